/* One row of scores, divided by what the reader chooses: its weights as bars, and their entropy. */

import { make, plain, slider } from "./parts.js";

function softmax(scores) {
  const top = Math.max(...scores);
  const powers = scores.map((score) => Math.exp(score - top));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

export function draw(stage, { scores, labels, d_k: dk }) {
  const bars = labels.map(() => make("span", { className: "bar" }));
  const numbers = labels.map(() => make("td", { className: "number" }));
  const head = make(
    "tr",
    {},
    ...["key", "score", "divided", "weight"].map((name) => make("th", { scope: "col" }, name)),
    make("td"),
  );
  const divided = labels.map(() => make("td", { className: "number" }));
  const rows = labels.map((label, j) =>
    make(
      "tr",
      {},
      make("th", { scope: "row" }, label),
      make("td", { className: "number" }, plain(scores[j])),
      divided[j],
      numbers[j],
      make("td", { className: "bar-cell" }, bars[j]),
    ),
  );
  const table = make(
    "table",
    { className: "plain bars" },
    make("caption", {}, "One query’s scores and weights"),
    make("thead", {}, head),
    make("tbody", {}, ...rows),
  );
  const said = make("p", { className: "widget__count", role: "status" });
  const root = Math.sqrt(dk);
  const largest = Math.log2(Math.max(2 * dk, 4));

  function show(exponent) {
    const by = 2 ** exponent;
    const weights = softmax(scores.map((score) => score / by));
    weights.forEach((weight, j) => {
      divided[j].textContent = plain(scores[j] / by, 2);
      numbers[j].textContent = weight.toFixed(3);
      bars[j].style.width = `${(100 * weight).toFixed(1)}%`;
    });
    const entropy = -weights.reduce(
      (sum, weight) => sum + (weight > 0 ? weight * Math.log(weight) : 0),
      0,
    );
    said.textContent = `Entropy ${entropy.toFixed(2)} nats, of at most ${Math.log(scores.length).toFixed(2)} (ln ${scores.length}).`;
  }
  const words = (exponent) => {
    const by = 2 ** exponent;
    if (Math.abs(by - root) < 0.02 * root)
      return `${root % 1 ? root.toFixed(2) : root} = √d_k, d_k = ${dk}`;
    if (Math.abs(by - 1) < 0.02) return "1: not scaled";
    return by.toFixed(by < 10 ? 2 : 1);
  };
  const control = slider({
    label: "Scores divided by",
    min: -1,
    max: largest,
    step: 0.125,
    value: Math.log2(root),
    say: words,
    onInput: show,
  });
  const toRoot = make(
    "button",
    { type: "button", className: "button" },
    `√d_k = ${root % 1 ? root.toFixed(2) : root}`,
  );
  const toOne = make("button", { type: "button", className: "button" }, "1");
  const toAll = make("button", { type: "button", className: "button" }, `d_k = ${dk}`);
  const jump = (button, exponent) =>
    button.addEventListener("click", () => {
      control.input.step = "any";
      control.input.value = exponent;
      control.update();
      control.input.step = "0.125";
    });
  jump(toRoot, Math.log2(root));
  jump(toOne, 0);
  jump(toAll, Math.log2(dk));
  control.frame.append(make("span", { className: "widget__jumps" }, toOne, toRoot, toAll));
  stage.append(control.frame, make("div", { className: "widget__scroll" }, table), said);
  control.update();
}
