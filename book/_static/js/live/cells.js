/* Live cells: Run, Edit, Stop and Reset on every code cell of a page. Nothing is fetched before the
   first click: the cells' sources, Python and the editor all come when they are asked for. */

import { Outputs } from "./outputs.js";
import { forget, keep, kept } from "./store.js";

const META = document.querySelector('meta[name="book-cells"]');
const ICONS = {
  run: '<svg viewBox="0 0 12 12" width="10" height="10" aria-hidden="true"><path d="M2.5 1.2v9.6l8-4.8z" fill="currentColor"/></svg>',
  stop: '<svg viewBox="0 0 12 12" width="10" height="10" aria-hidden="true"><rect x="2" y="2" width="8" height="8" fill="currentColor"/></svg>',
};

let facts = null; // the page's file of cells, once it is here
let python = null;
let ran = new Map(); // cell index → the source that Python has seen
const cells = [];

/* An exercise has the facts in its page; a chapter's are fetched once, at the first click. */
const inPage = document.getElementById("book-facts");
if (inPage) facts = JSON.parse(inPage.textContent);

async function pageFacts() {
  facts ??= await (await fetch(META.content)).json();
  return facts;
}

class Cell {
  constructor(element, number) {
    this.element = element;
    this.number = number;
    this.index = Number(element.className.match(/\bcell-(\d+)\b/)[1]);
    this.kind = element.className.match(/\bcell-kind-(\w+)/)[1];
    this.code = element.querySelector(".cell_input .highlight");
    this.original = this.code.textContent.replace(/\n$/, "");
    this.editor = null;
    this.#build();
    this.#restore();
  }

  get name() {
    return this.kind === "check" ? `check ${this.number}` : `cell ${this.number}`;
  }
  /* An exercise's cells keep their names when the course moves them; a chapter's have none. */
  get storeName() {
    return facts?.cells.find((entry) => entry.index === this.index)?.id || String(this.index);
  }
  get source() {
    return this.changed ?? this.original;
  }

  #build() {
    const bar = document.createElement("div");
    bar.className = "cell-bar";
    const action = this.kind === "check" ? "Check" : "Run";
    this.runButton = this.#button(bar, action, () => this.run());
    this.runButton.classList.add("cell-bar__run");
    this.#label(action, ICONS.run);
    this.action = action;
    if (this.kind !== "check") {
      this.editButton = this.#button(bar, "Edit", () => this.edit());
      this.resetButton = this.#button(bar, "Reset", () => this.reset());
      this.resetButton.hidden = true;
    }
    this.status = document.createElement("span");
    this.status.className = "cell-bar__status";
    this.status.setAttribute("role", "status");
    bar.append(this.status);
    const box = document.createElement("div");
    box.className = "live-output";
    box.hidden = true;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Output of ${this.name}`);
    this.outputs = new Outputs(box, this.element.querySelector(".cell_output"));
    const input = this.element.querySelector("details.hide, .cell_input");
    input.after(bar);
    bar.after(box);
  }

  #button(bar, text, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = text;
    button.setAttribute("aria-label", `${text} ${this.name}`);
    button.addEventListener("click", act);
    bar.append(button);
    return button;
  }

  #label(text, icon) {
    this.runButton.innerHTML = `${icon}<span>${text}</span>`;
    this.runButton.setAttribute("aria-label", `${text} ${this.name}`);
  }

  #restore() {
    const found = this.kind === "check" ? null : kept(this.storeName);
    if (!found) return;
    if (found.original !== this.original && this.kind !== "solution") {
      forget(this.storeName);
      return;
    }
    this.change(found.text);
    this.#showPlain();
  }

  /* A changed cell that is not being edited shows the reader's text; colours come with the editor. */
  #showPlain() {
    this.code.querySelector("pre").textContent = this.source + "\n";
  }

  change(text) {
    const same = text === this.original;
    this.changed = same ? null : text;
    this.element.classList.toggle("is-changed", !same);
    if (this.resetButton) this.resetButton.hidden = same && !this.editor;
    if (same) forget(this.storeName);
    else if (!keep(this.storeName, { original: this.original, text })) {
      this.say("This browser keeps nothing: download your work before you leave.");
    }
    document.dispatchEvent(new CustomEvent("book:cell-changed", { detail: this }));
  }

  /* Replace the text from outside (an uploaded notebook). */
  replace(text) {
    this.change(text);
    if (this.editor) this.editor.text = text;
    else this.#showPlain();
  }

  async edit() {
    const fold = this.element.querySelector("details.hide");
    if (fold) fold.open = true;
    if (this.editor) {
      this.editor.focus();
      return;
    }
    if (this.opening) return;
    this.opening = true;
    const { openEditor } = await import("./editing.js");
    const frame = document.createElement("div");
    frame.className = "cell-editor";
    this.code.after(frame);
    this.editor = await openEditor({
      parent: frame,
      text: this.source,
      label: `Code of ${this.name}. Escape, then Tab, leaves the editor.`,
      onChange: (text) => this.change(text),
      onRun: () => this.run(),
    });
    this.frame = frame;
    this.opening = false;
    this.code.hidden = true;
    this.resetButton.hidden = false;
    this.say("Shift+Enter runs. Your changes are kept in this browser.");
    this.editor.focus();
  }

  reset() {
    const before = this.source;
    this.editor?.destroy();
    this.frame?.remove();
    this.editor = this.frame = null;
    this.code.hidden = false;
    this.change(this.original);
    this.#showPlain();
    ran.delete(this.index);
    this.outputs.restore();
    this.say("As it was.");
    if (before !== this.original) {
      const undo = document.createElement("button");
      undo.type = "button";
      undo.textContent = "Undo";
      undo.addEventListener("click", () => {
        this.replace(before);
        this.say("Your version is back.");
        this.editButton.focus();
      });
      this.status.append(" ", undo);
      undo.focus();
    } else this.editButton.focus();
  }

  say(text) {
    this.status.textContent = text;
  }

  busy(on) {
    this.isBusy = on;
    this.element.classList.toggle("is-running", on);
    this.#label(on ? "Stop" : this.action, on ? ICONS.stop : ICONS.run);
  }

  /* Run this cell after those above that Python has not seen as they are now. */
  async run(options = {}) {
    if (this.isBusy) {
      python?.stop();
      return false;
    }
    if (cells.some((cell) => cell.isBusy)) {
      this.say("Another cell is running; stop it first.");
      return false;
    }
    this.busy(true);
    const start = performance.now();
    try {
      this.say(python?.isRunning ? "Running …" : "Starting Python (9 MB, once) …");
      const ready = await this.#runAbove();
      if (!ready) return false;
      const result = await this.execute(options);
      if (result.asks || result.stopped) return false;
      const seconds = (performance.now() - start) / 1000;
      this.say(
        result.error ? "" : `Done in ${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s.`,
      );
      return !result.error;
    } catch (error) {
      this.say("");
      this.outputs.error(`The page could not run this cell: ${error.message}`);
      return false;
    } finally {
      this.busy(false);
    }
  }

  async #runAbove() {
    const { cells: known } = await pageFacts();
    for (const entry of known) {
      if (entry.index >= this.index) break;
      if (entry.type !== "code" || entry.kind === "check") continue;
      const cell = cells.find((one) => one.index === entry.index);
      if (ran.get(entry.index) === (cell ? cell.source : entry.source)) continue;
      const result = await (cell ? cell.execute({ status: this }) : this.#executeHidden(entry));
      if (result.stopped) return false;
      if (result.asks || result.error) {
        if (cell) {
          if (result.asks) cell.waiting = this; // it goes on by itself after the answer
          this.say(
            result.asks
              ? `First, ${cell.name} above asks for something.`
              : `Stopped: ${cell.name} above has an error.`,
          );
          cell.element.scrollIntoView({ block: "center" });
        } else this.outputs.error(result.error);
        return false;
      }
    }
    return true;
  }

  async #executeHidden(entry) {
    const result = await execute(
      entry.source,
      entry.index,
      this,
      () => {},
      () => {},
    );
    if (!result.error && !result.stopped) ran.set(entry.index, entry.source);
    return result;
  }

  async execute({ status = this, allowed = false } = {}) {
    const source = this.source;
    document.dispatchEvent(new CustomEvent("book:running", { detail: this }));
    this.outputs.begin();
    const show = (output) => {
      this.outputs.add(output, this.name);
      if (output.report)
        document.dispatchEvent(new CustomEvent("book:report", { detail: output.report }));
    };
    const result = await execute(
      source,
      this.number,
      status,
      show,
      () => this.outputs.clear(),
      allowed,
    );
    if (result.stopped) {
      this.outputs.note("Stopped. Python starts afresh with the next run.");
      status.say("");
    } else if (result.asks) this.#ask(result.asks);
    else if (result.error) {
      ran.delete(this.index);
      if (result.errorName !== "CheckFailed") this.outputs.error(result.error);
    } else ran.set(this.index, source);
    this.element.classList.toggle("has-failed", Boolean(result.error));
    this.element.classList.toggle("has-passed", !result.error && !result.asks && !result.stopped);
    return result;
  }

  #ask({ size }) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button button--main";
    button.textContent = `Load the model (${(size / 1e6).toFixed(1)} MB) and run`;
    button.addEventListener("click", async () => {
      const waiting = this.waiting;
      this.waiting = null;
      if ((await this.run({ allowed: true })) && waiting) await waiting.run();
    });
    this.outputs.clear();
    this.outputs.note(
      "This cell uses the real model, which comes once and is then kept by your browser. ",
      button,
    );
    this.say("");
    button.focus();
  }
}

async function execute(source, number, status, onOutput, onAgain, allowed) {
  if (!python) {
    const { Python } = await import("./python.js");
    python = new Python(await pageFacts());
    python.addEventListener("ended", () => ran.clear());
  }
  return python.run({
    source,
    number,
    allowed,
    onOutput,
    onAgain,
    onProgress: (text) => status.say(text),
  });
}

for (const element of document.querySelectorAll(".cell[class*='cell-kind-']")) {
  if (element.querySelector(".cell_input .highlight"))
    cells.push(new Cell(element, cells.length + 1));
}
if (document.body.classList.contains("page-exercise")) {
  import("./exercise.js").then(({ enhance }) => enhance({ cells, pageFacts }));
}
