/* Where each number goes when x (n, d) is split into heads, and where it goes by the usual mistake. */

import { make, stepper } from "./parts.js";

export function draw(stage, { tokens: n, heads: h, width: d }) {
  const dk = d / h;
  const owner = (number) => Math.floor((number % d) / dk); // the head that a number belongs to
  const chip = (number) =>
    make("td", { className: `chip chip--${owner(number) % 6}` }, String(number));

  function block(caption, rows, name) {
    const body = rows.map((row, i) =>
      make("tr", {}, make("th", { scope: "row" }, name(i)), ...row.map(chip)),
    );
    return make(
      "table",
      { className: "chips" },
      make("caption", {}, caption),
      make("tbody", {}, ...body),
    );
  }
  const range = (length, f) => Array.from({ length }, (_, i) => f(i));
  const x = (t, c) => t * d + c;
  const stages = [
    {
      code: "x",
      say: `x has the shape (${n}, ${d}): a row for each token. A colour marks the ${dk} columns of a head.`,
      blocks: () => [
        block(
          `x (${n}, ${d})`,
          range(n, (t) => range(d, (c) => x(t, c))),
          (t) => `token ${t}`,
        ),
      ],
    },
    {
      code: `x.reshape(${n}, ${h}, ${dk})`,
      say: "Reshape cuts each row into heads. No number moves in memory: token first, then head.",
      blocks: () =>
        range(n, (t) =>
          block(
            `token ${t} (${h}, ${dk})`,
            range(h, (i) => range(dk, (c) => x(t, i * dk + c))),
            (i) => `head ${i}`,
          ),
        ),
    },
    {
      code: `x.reshape(${n}, ${h}, ${dk}).transpose(1, 0, 2)`,
      say: `Transpose puts the head first: (${h}, ${n}, ${dk}). Each head now has every token, in its own colour.`,
      blocks: () =>
        range(h, (i) =>
          block(
            `head ${i} (${n}, ${dk})`,
            range(n, (t) => range(dk, (c) => x(t, i * dk + c))),
            (t) => `token ${t}`,
          ),
        ),
    },
    {
      code: `x.reshape(${h}, ${n}, ${dk})`,
      say: "The mistake: reshape alone gives the same shape, but it only counts numbers off. The colours are mixed: a “head” holds pieces of several heads, and its rows are no tokens.",
      blocks: () =>
        range(h, (i) =>
          block(
            `not head ${i} (${n}, ${dk})`,
            range(n, (t) => range(dk, (c) => (i * n + t) * dk + c)),
            (t) => `row ${t}`,
          ),
        ),
    },
  ];
  const code = make("code");
  const blocks = make("div", { className: "chip-blocks" });
  const steps = stepper({
    steps: stages.length,
    onStep: (step) => {
      code.textContent = stages[step].code;
      blocks.replaceChildren(...stages[step].blocks());
      return stages[step].say;
    },
  });
  stage.append(
    steps.frame,
    make("p", { className: "widget__code" }, code),
    make("div", { className: "widget__scroll" }, blocks),
    steps.told,
  );
  steps.show(0);
}
