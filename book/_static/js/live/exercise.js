/* An exercise solved in the page: progress over the contract, the question's text, and the notebook to
   take along. The notebook that is downloaded is the released one (or the one that was uploaded) with
   the reader's sources put in; its grading metadata and cell ids stay as they are. */

import { keep, kept, forget } from "./store.js";

const UPLOADED = "uploaded-notebook";
const PROGRESS = "progress";

const element = (tag, properties = {}, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};
const sourceText = (cell) => (Array.isArray(cell.source) ? cell.source.join("") : cell.source);
const sourceLines = (text) => text.split(/(?<=\n)/);
const gradeId = (cell) => cell.metadata?.nbgrader?.grade_id;

/* ------------------------------------------------------------------ the question that people read */

class Answer {
  constructor(box, entry) {
    this.entry = entry;
    this.original = entry.source;
    const label = element("label", { textContent: "Your answer" });
    this.field = element("textarea", {
      rows: 5,
      value: kept(this.storeName)?.text ?? this.original,
    });
    label.append(this.field);
    this.field.addEventListener("input", () => this.remember());
    this.field.addEventListener("focus", () => {
      if (this.field.value === this.original) this.field.select();
    });
    box.replaceChildren(label);
  }

  get storeName() {
    return `answer:${this.entry.id}`;
  }
  get source() {
    return this.field.value;
  }

  remember() {
    if (this.source === this.original) forget(this.storeName);
    else keep(this.storeName, { text: this.source });
    document.dispatchEvent(new CustomEvent("book:cell-changed", { detail: this }));
  }

  replace(text) {
    this.field.value = text;
    this.remember();
  }
}

/* ------------------------------------------------------------------------- progress */

class Progress {
  #contract;
  #held = kept(PROGRESS) ?? {}; // function → sentence → check → held

  constructor(contract) {
    this.#contract = contract;
    this.total = Object.values(contract).reduce(
      (sum, sentences) => sum + Object.keys(sentences).length,
      0,
    );
    this.meter = element("progress", { max: this.total, value: 0 });
    this.meter.setAttribute("aria-label", "Sentences of the contract that hold");
    this.told = element("p", { className: "exercise__count" });
    this.told.setAttribute("role", "status");
    this.list = element("ul", { className: "exercise__functions" });
    this.show();
  }

  report({ function: name, holds }, check) {
    const known = (this.#held[name] ??= {});
    for (const [sentence, held] of Object.entries(holds)) (known[sentence] ??= {})[check] = held;
    keep(PROGRESS, this.#held);
    this.show();
  }

  /* What was checked before the function was changed says nothing about it now. */
  changed(name) {
    if (!(name in this.#held)) return;
    delete this.#held[name];
    keep(PROGRESS, this.#held);
    this.show();
  }

  #state(name, sentence) {
    const results = Object.values(this.#held[name]?.[sentence] ?? {});
    if (!results.length) return "unknown";
    return results.every(Boolean) ? "holds" : "fails";
  }

  show() {
    const words = { holds: "holds", fails: "does not hold", unknown: "not checked yet" };
    const marks = { holds: "✓", fails: "✗", unknown: "·" };
    let holding = 0;
    const rows = Object.entries(this.#contract).map(([name, sentences]) => {
      const states = Object.entries(sentences).map(([key, text]) => {
        const state = this.#state(name, key);
        holding += state === "holds";
        const mark = element(
          "span",
          { className: `sentence sentence--${state}`, title: `${key}: ${text}` },
          `${key} ${marks[state]}`,
        );
        mark.append(element("span", { className: "visually-hidden" }, ` ${words[state]}`));
        return mark;
      });
      return element(
        "li",
        {},
        element("code", {}, name),
        " ",
        ...states.flatMap((mark) => [mark, " "]),
      );
    });
    this.list.replaceChildren(...rows);
    this.meter.value = holding;
    this.told.textContent = `${holding} of ${this.total} sentences hold.`;
  }
}

/* --------------------------------------------------------------------- the notebook to take along */

const notebookAddress = () => location.pathname.replace(/\.html$/, "") + ".ipynb";
const notebookName = () => decodeURIComponent(notebookAddress().split("/").pop());

async function releasedNotebook() {
  const answer = await fetch(notebookAddress());
  if (!answer.ok) throw new Error(`the notebook could not be loaded (${answer.status})`);
  return answer.json();
}

/* The notebook with the reader's sources; everything else stays as it is. */
function filled(notebook, parts) {
  const byId = new Map(parts.map((part) => [part.id, part]));
  for (const cell of notebook.cells) {
    const part = byId.get(gradeId(cell));
    if (!part) continue;
    const text = part.source();
    if (text === sourceText(cell)) continue;
    cell.source = sourceLines(text);
    if (cell.cell_type === "code") Object.assign(cell, { outputs: [], execution_count: null });
  }
  return notebook;
}

function offerFile(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "application/x-ipynb+json" }));
  const link = element("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 5000);
}

/* Put an uploaded notebook's answers into the page. Returns how many, and the ids that it lacks. */
function takeOver(notebook, parts) {
  if (!Array.isArray(notebook?.cells)) throw new Error("this file is no Jupyter notebook");
  const found = new Map(notebook.cells.map((cell) => [gradeId(cell), cell]));
  const missing = parts.filter((part) => !found.has(part.id)).map((part) => part.id);
  if (missing.length === parts.length) throw new Error("this is the notebook of another exercise");
  for (const part of parts) if (found.has(part.id)) part.replace(sourceText(found.get(part.id)));
  const slim = {
    ...notebook,
    cells: notebook.cells.map((cell) =>
      cell.cell_type === "code" ? { ...cell, outputs: [], execution_count: null } : cell,
    ),
  };
  return { slim, count: parts.length - missing.length, missing };
}

/* ------------------------------------------------------------------------- the panel */

export async function enhance({ cells, pageFacts }) {
  const facts = await pageFacts();
  const entries = new Map(facts.cells.map((entry) => [entry.index, entry]));
  const parts = [];
  for (const cell of cells) {
    const entry = entries.get(cell.index);
    if (cell.kind === "check" && entry.points) {
      cell.element
        .querySelector(".cell-bar")
        .append(
          element(
            "span",
            { className: "cell-bar__points" },
            `${entry.points} ${entry.points === 1 ? "point" : "points"}`,
          ),
        );
    }
    if (cell.kind === "solution") {
      parts.push({
        id: entry.id,
        source: () => cell.source,
        replace: (text) => cell.replace(text),
      });
      cell.code.addEventListener("click", () => {
        if (!getSelection().toString()) cell.edit();
      });
    }
  }
  for (const box of document.querySelectorAll(".cell-kind-answer")) {
    const entry = entries.get(Number(box.className.match(/\bcell-(\d+)\b/)[1]));
    const answer = new Answer(box, entry);
    parts.push({
      id: entry.id,
      source: () => answer.source,
      replace: (text) => answer.replace(text),
    });
  }

  const progress = new Progress(facts.contract ?? {});
  const said = element("p", { className: "exercise__say" });
  said.setAttribute("role", "status");
  const say = (text) => {
    said.textContent = text;
  };
  const button = (text, act, main) => {
    const made = element("button", {
      type: "button",
      className: main ? "button button--main" : "button",
      textContent: text,
    });
    made.addEventListener("click", () =>
      Promise.resolve(act(made)).catch((error) => say(`That did not work: ${error.message}.`)),
    );
    return made;
  };

  const checkAll = button(
    "Check everything",
    async (made) => {
      made.disabled = true;
      let held = 0;
      const checks = cells.filter((cell) => cell.kind === "check");
      for (const [done, cell] of checks.entries()) {
        say(`Checking ${done + 1} of ${checks.length} …`);
        held += await cell.run();
      }
      const waiting = checks.filter((cell) => cell.element.querySelector(".live-note .button"));
      const asks = waiting.length ? " One more asks for the model first: see its cell." : "";
      say(`${held} of ${checks.length} checks pass.${asks}`);
      made.disabled = false;
    },
    true,
  );
  const download = button("Download my notebook", async () => {
    const base = kept(UPLOADED) ?? (await releasedNotebook());
    offerFile(JSON.stringify(filled(base, parts), null, 1) + "\n", notebookName());
    say(`${notebookName()} is yours to hand in, or to go on with in Jupyter.`);
  });
  const file = element("input", { type: "file", accept: ".ipynb,application/json", hidden: true });
  file.setAttribute("aria-label", "A notebook of this exercise");
  const upload = button("Upload my notebook", () => file.click());
  file.addEventListener("change", async () => {
    const [chosen] = file.files;
    file.value = "";
    if (!chosen) return;
    try {
      const { slim, count, missing } = takeOver(JSON.parse(await chosen.text()), parts);
      keep(UPLOADED, slim);
      const lacks = missing.length ? ` It lacks: ${missing.join(", ")}.` : "";
      say(`${chosen.name}: ${count} of ${parts.length} answers are in the page now.${lacks}`);
    } catch (error) {
      say(
        `${chosen.name} could not be used: ${error instanceof SyntaxError ? "it is no Jupyter notebook" : error.message}.`,
      );
    }
  });
  const startOver = button("Start over", () => {
    for (const part of parts)
      part.replace(facts.cells.find((entry) => entry.id === part.id).source);
    forget(UPLOADED);
    for (const name of Object.keys(facts.contract ?? {})) progress.changed(name);
    say("Every cell is as it was released.");
  });
  const sure = button("Start over", () => {
    sure.replaceWith(confirmRow);
    startOverNow.focus();
  });
  const startOverNow = button("Yes, throw my work away", () => {
    startOver.click();
    confirmRow.replaceWith(sure);
    sure.focus();
  });
  const confirmRow = element(
    "span",
    { className: "exercise__sure" },
    startOverNow,
    button("No", () => {
      confirmRow.replaceWith(sure);
      sure.focus();
    }),
  );

  const links = element("p", { className: "exercise__elsewhere" }, "Elsewhere: ");
  for (const link of document.querySelectorAll(".page-menu a")) {
    if (!/colab|binder|\.ipynb$/i.test(link.href) || /github\.com\/.*\/blob/.test(link.href))
      continue;
    const copy = link.cloneNode(true);
    links.append(links.childElementCount ? " · " : "", copy);
  }
  if (facts.repository) {
    links.append(
      ". In Colab, first run ",
      element("code", {}, `%pip install git+${facts.repository}`),
      ".",
    );
  }

  const panel = element(
    "section",
    { className: "exercise" },
    element("h2", { className: "exercise__title", textContent: "Your work" }),
    progress.meter,
    progress.told,
    progress.list,
    element("div", { className: "exercise__actions" }, checkAll, download, upload, sure, file),
    said,
    element("p", {
      className: "exercise__note",
      textContent:
        "Write in the cells marked violet; Python starts at your first click and runs in this page. Your work is kept in this browser until you download it.",
    }),
    links,
  );
  panel.setAttribute("aria-label", "Your work");
  document.querySelector(".article h1").after(panel);

  let checking = null;
  document.addEventListener("book:running", ({ detail }) => {
    checking = entries.get(detail.index)?.id ?? null;
  });
  document.addEventListener("book:report", ({ detail }) => progress.report(detail, checking));
  document.addEventListener("book:cell-changed", ({ detail }) => {
    if (detail.kind === "solution") progress.changed(entries.get(detail.index).id);
  });
}
