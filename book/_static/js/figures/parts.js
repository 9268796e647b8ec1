/* What the figures are built from: elements, a heat table that arrow keys walk through, controls. */

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

let count = 0;
export const freshName = (stem) => `${stem}-${++count}`;

/* Shade a cell by a share between 0 and 1; the classes keep the number readable on it. */
export function shade(cell, share) {
  cell.style.setProperty("--v", share.toFixed(3));
  cell.classList.toggle("strong", share >= 0.73);
  cell.classList.toggle("middle", share >= 0.47 && share < 0.73);
}

/* A number as text sets it: a real minus, no more digits than asked for. */
export const plain = (value, digits) => {
  if (value === -Infinity) return "−∞";
  return (digits === undefined ? String(value) : value.toFixed(digits)).replace("-", "−");
};

export const short = (weight) => (weight < 0.005 ? "0" : weight.toFixed(2).replace(/^0/, ""));

/* A table with one cell in the tab order at a time. onEnter(i, j) tells where the reader is. */
export function heatTable({ caption, rows, columns, onEnter, onPress }) {
  const head = make(
    "tr",
    {},
    make("td"),
    ...columns.map((name) => make("th", { scope: "col" }, make("span", {}, name))),
  );
  const cells = rows.map((_, i) =>
    columns.map((__, j) => {
      const cell = make("td", { className: "heat__cell", tabIndex: i || j ? -1 : 0 });
      cell.addEventListener("focus", () => onEnter?.(i, j));
      cell.addEventListener("pointerenter", () => onEnter?.(i, j));
      if (onPress)
        cell.addEventListener("click", () => {
          move(i, j);
          onPress(i, j);
        });
      return cell;
    }),
  );
  const body = make(
    "tbody",
    {},
    ...rows.map((name, i) => make("tr", {}, make("th", { scope: "row" }, name), ...cells[i])),
  );
  const table = make(
    "table",
    { className: onPress ? "heat heat--paint" : "heat", role: "grid" },
    make("caption", {}, caption),
    make("thead", {}, head),
    body,
  );
  let at = [0, 0];
  function move(i, j) {
    if (!cells[i]?.[j]) return;
    cells[at[0]][at[1]].tabIndex = -1;
    at = [i, j];
    cells[i][j].tabIndex = 0;
    cells[i][j].focus({ preventScroll: false });
  }
  table.addEventListener("keydown", (event) => {
    const steps = {
      ArrowRight: [0, 1],
      ArrowLeft: [0, -1],
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
      Home: [0, -at[1]],
      End: [0, columns.length - 1 - at[1]],
    };
    const step = steps[event.key];
    if (step) {
      event.preventDefault();
      move(at[0] + step[0], at[1] + step[1]);
    } else if (onPress && (event.key === " " || event.key === "Enter")) {
      event.preventDefault();
      onPress(...at);
    }
  });
  const frame = make("div", { className: "widget__scroll" }, table);
  return { frame, table, cells };
}

/* One of several, as native radio buttons. */
export function choice({ legend, names, chosen = 0, onChange }) {
  const group = freshName("choice");
  const field = make("fieldset", { className: "widget__choice" }, make("legend", {}, legend));
  names.forEach((name, i) => {
    const input = make("input", {
      type: "radio",
      name: group,
      value: String(i),
      checked: i === chosen,
    });
    input.addEventListener("change", () => onChange(i));
    field.append(make("label", {}, input, make("span", {}, name)));
  });
  return field;
}

/* A slider with its name and its value in words. */
export function slider({ label, min, max, step, value, say, onInput }) {
  const id = freshName("slider");
  const input = make("input", { type: "range", id, min, max, step, value });
  const told = make("output", { htmlFor: id });
  const update = () => {
    told.textContent = say(Number(input.value));
    input.setAttribute("aria-valuetext", told.textContent);
    onInput(Number(input.value));
  };
  input.addEventListener("input", update);
  const frame = make(
    "div",
    { className: "widget__slider" },
    make("label", { htmlFor: id }, label),
    input,
    told,
  );
  return { frame, input, update };
}

/* Back, next and where one is, for figures that go by steps. */
export function stepper({ steps, onStep }) {
  let now = 0;
  const back = make("button", { type: "button", className: "button" }, "Back");
  const next = make("button", { type: "button", className: "button button--main" }, "Next");
  const told = make("p", { className: "widget__say", role: "status" });
  function show(step) {
    now = Math.max(0, Math.min(steps - 1, step));
    back.disabled = now === 0;
    next.disabled = now === steps - 1;
    told.textContent = `Step ${now + 1} of ${steps}. ${onStep(now)}`;
  }
  const go = (by) => () => {
    show(now + by);
    const pressed = by > 0 ? next : back;
    if (pressed.disabled) (by > 0 ? back : next).focus(); // a disabled button loses the focus
  };
  back.addEventListener("click", go(-1));
  next.addEventListener("click", go(1));
  const frame = make("div", { className: "widget__steps" }, back, next);
  return { frame, told, show };
}

export function sayLine() {
  return make("p", { className: "widget__say", role: "status" });
}
