/* An editor in place of a cell's code: CodeMirror, loaded with the first Edit, or a plain text field. */

const BUNDLE = new URL("../../codemirror/codemirror.js", import.meta.url);

function plainField({ parent, text, label, onChange, onRun }) {
  const field = document.createElement("textarea");
  Object.assign(field, {
    value: text,
    spellcheck: false,
    className: "plain-editor",
    rows: text.split("\n").length + 1,
  });
  field.setAttribute("aria-label", label);
  field.addEventListener("input", () => onChange(field.value));
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey || event.shiftKey)) {
      event.preventDefault();
      onRun();
    }
  });
  parent.append(field);
  return {
    get text() {
      return field.value;
    },
    set text(value) {
      field.value = value;
    },
    focus: () => field.focus(),
    destroy: () => field.remove(),
  };
}

export async function openEditor(options) {
  try {
    const { createEditor } = await import(BUNDLE);
    return createEditor(options);
  } catch {
    return plainField(options);
  }
}
