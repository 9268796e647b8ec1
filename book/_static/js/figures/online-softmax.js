/* One query, its keys in tiles: what is carried from tile to tile is a maximum, a sum and an output. */

import { make, plain, stepper } from "./parts.js";

export function draw(stage, { scores, values, tile }) {
  const states = [{ m: -Infinity, l: 0, o: 0, upTo: 0, shrink: 1 }];
  for (let start = 0; start < scores.length; start += tile) {
    const before = states[states.length - 1];
    const part = scores.slice(start, start + tile);
    const m = Math.max(before.m, ...part);
    const shrink = Math.exp(before.m - m);
    const powers = part.map((score) => Math.exp(score - m));
    states.push({
      m,
      shrink,
      start,
      upTo: start + part.length,
      l: before.l * shrink + powers.reduce((a, b) => a + b, 0),
      o: before.o * shrink + powers.reduce((sum, power, k) => sum + power * values[start + k], 0),
    });
  }
  const number = (value) =>
    plain(value, Number.isInteger(value) || value === -Infinity ? undefined : 4);
  const head = make(
    "tr",
    {},
    make("td"),
    ...scores.map((_, j) => make("th", { scope: "col" }, `key ${j}`)),
  );
  const scoreCells = scores.map((score) => make("td", {}, plain(score)));
  const valueCells = values.map((value) => make("td", {}, plain(value)));
  const keys = make(
    "table",
    { className: "plain tiles" },
    make("caption", {}, `${scores.length} keys in tiles of ${tile}`),
    make("thead", {}, head),
    make(
      "tbody",
      {},
      make("tr", {}, make("th", { scope: "row" }, "score"), ...scoreCells),
      make("tr", {}, make("th", { scope: "row" }, "value"), ...valueCells),
    ),
  );
  const cell = () => make("td", { className: "number" });
  const carried = { m: cell(), l: cell(), o: cell(), result: cell() };
  const state = make(
    "table",
    { className: "plain tiles" },
    make("caption", {}, "What is carried on"),
    make(
      "thead",
      {},
      make(
        "tr",
        {},
        ...["m (maximum)", "l (sum)", "o (output)", "o / l"].map((name) =>
          make("th", { scope: "col" }, name),
        ),
      ),
    ),
    make("tbody", {}, make("tr", {}, carried.m, carried.l, carried.o, carried.result)),
  );

  const steps = stepper({
    steps: states.length,
    onStep: (step) => {
      const now = states[step];
      [scoreCells, valueCells].forEach((row) =>
        row.forEach((element, j) => {
          element.classList.toggle("is-now", step > 0 && j >= now.start && j < now.upTo);
          element.classList.toggle("is-done", j < now.upTo && !(j >= now.start));
        }),
      );
      carried.m.textContent = number(now.m);
      carried.l.textContent = number(now.l);
      carried.o.textContent = number(now.o);
      carried.result.textContent = now.l ? number(now.o / now.l) : "—";
      if (step === 0) return "Nothing is seen yet: the empty state is (−∞, 0, 0).";
      const before = states[step - 1];
      if (step === 1)
        return `The first tile: m is its maximum ${number(now.m)}; l and o are sums of exponentials relative to it.`;
      const last =
        step === states.length - 1
          ? " All keys are seen: o / l is the attention output, the same as from one softmax."
          : "";
      if (now.m === before.m)
        return `The maximum stays ${number(now.m)}, so the old sums stay as they are and the new tile is added.${last}`;
      return `A larger score: the maximum rises from ${number(before.m)} to ${number(now.m)}, so the old l and o shrink by e^(${number(before.m)} − ${number(now.m)}) = ${now.shrink.toFixed(4)} before the new tile is added.${last}`;
    },
  });
  stage.append(
    steps.frame,
    make("div", { className: "widget__scroll" }, keys),
    make("div", { className: "widget__scroll" }, state),
    steps.told,
  );
  steps.show(0);
}
