/* Which keys each query may see: rules that combine, and single pairs by hand. */

import { heatTable, make, sayLine, shade, slider } from "./parts.js";

const NAMES = { causal: "Causal", window: "Window", blocks: "Blocks", global: "Global" };

export function draw(stage, { tokens, kinds, start }) {
  const n = tokens.length;
  const on = new Set([start]);
  let reach = 1;
  let block = Math.max(2, Math.round(n / 4));
  const byHand = new Map(); // "i,j" → boolean, over the rules

  const ruled = (i, j) => {
    if (on.has("global") && (i === 0 || j === 0)) return !on.has("causal") || j <= i;
    return (
      (!on.has("causal") || j <= i) &&
      (!on.has("window") || Math.abs(i - j) <= reach) &&
      (!on.has("blocks") || Math.floor(i / block) === Math.floor(j / block))
    );
  };
  const allowed = (i, j) => byHand.get(`${i},${j}`) ?? ruled(i, j);

  const said = sayLine();
  const count = make("p", { className: "widget__count" });
  const tell = (i, j) => {
    said.textContent = `“${tokens[i]}” ${allowed(i, j) ? "may attend to" : "does not see"} “${tokens[j]}”.`;
  };
  const { frame, cells } = heatTable({
    caption: "Queries in rows, keys in columns. Click, or press Space, to allow or hide a pair.",
    rows: tokens,
    columns: tokens,
    onEnter: tell,
    onPress: (i, j) => {
      byHand.set(`${i},${j}`, !allowed(i, j));
      show();
      tell(i, j);
    },
  });

  function show() {
    let total = 0;
    let blind = 0;
    cells.forEach((row, i) => {
      let seen = 0;
      row.forEach((cell, j) => {
        const may = allowed(i, j);
        seen += may;
        cell.textContent = may ? "✓" : "·";
        cell.setAttribute("aria-label", may ? "allowed" : "hidden");
        shade(cell, may ? 0.75 : 0);
      });
      total += seen;
      blind += seen === 0;
    });
    const empty = blind
      ? ` ${blind} ${blind === 1 ? "query sees" : "queries see"} nothing: its weights and its output are 0.`
      : "";
    count.textContent = `${total} of ${n * n} pairs allowed, ${Math.round((100 * total) / (n * n))} %.${empty}`;
    for (const [kind, control] of sliders) control.hidden = !on.has(kind);
  }

  const rules = make("fieldset", { className: "widget__choice" }, make("legend", {}, "Rules"));
  for (const kind of kinds) {
    const box = make("input", { type: "checkbox", checked: on.has(kind) });
    box.addEventListener("change", () => {
      if (box.checked) on.add(kind);
      else on.delete(kind);
      byHand.clear();
      show();
    });
    rules.append(make("label", {}, box, make("span", {}, NAMES[kind])));
  }
  const sliders = new Map();
  const addSlider = (kind, options) => {
    if (!kinds.includes(kind)) return;
    const { frame: control, update } = slider(options);
    sliders.set(kind, control);
    update();
  };
  addSlider("window", {
    label: "Reach",
    min: 0,
    max: n - 1,
    step: 1,
    value: reach,
    say: (v) => `${v} to each side`,
    onInput: (v) => {
      reach = v;
      byHand.clear();
      show();
    },
  });
  addSlider("blocks", {
    label: "Block",
    min: 1,
    max: n,
    step: 1,
    value: block,
    say: (v) => `${v} tokens`,
    onInput: (v) => {
      block = v;
      byHand.clear();
      show();
    },
  });
  stage.append(rules, ...sliders.values(), frame, count, said);
  show();
}
