/* The weights of one head at a time, or their mean; arrow keys walk through the table. */

import { choice, heatTable, sayLine, shade, short } from "./parts.js";

export function draw(stage, { heads, queries, keys, weights, title }) {
  const bytes = Uint8Array.from(atob(weights), (letter) => letter.charCodeAt(0));
  const one = (head, i, j) => bytes[(head * queries.length + i) * keys.length + j] / 255;
  const mean = (i, j) => {
    let sum = 0;
    for (let head = 0; head < heads; head += 1) sum += one(head, i, j);
    return sum / heads;
  };
  const names = Array.from({ length: heads }, (_, i) => `Head ${i + 1}`);
  if (heads > 1) names.push("Mean");
  let chosen = 0;
  const weight = (i, j) => (chosen < heads ? one(chosen, i, j) : mean(i, j));

  const said = sayLine();
  const tell = (i, j) => {
    const row = keys.map((_, other) => weight(i, other));
    const largest = weight(i, j) === Math.max(...row) ? ", the largest in its row" : "";
    said.textContent = `${names[chosen]}: “${queries[i]}” gives “${keys[j]}” the weight ${weight(i, j).toFixed(2)}${largest}.`;
  };
  const { frame, cells } = heatTable({
    caption: `${title ? title + ". " : ""}Queries in rows, keys in columns.`,
    rows: queries,
    columns: keys,
    onEnter: tell,
  });
  const show = (head) => {
    chosen = head;
    cells.forEach((row, i) =>
      row.forEach((cell, j) => {
        const value = weight(i, j);
        cell.textContent = short(value);
        shade(cell, value);
      }),
    );
  };
  if (names.length > 1) stage.append(choice({ legend: "Head", names, onChange: show }));
  stage.append(frame, said);
  show(0);
}
