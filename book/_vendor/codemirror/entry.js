/* What the book uses of CodeMirror 6, behind one function. build.sh bundles it into codemirror.js. */
import { EditorState } from "@codemirror/state";
import { EditorView, keymap, drawSelection, highlightSpecialChars } from "@codemirror/view";
import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import {
  bracketMatching,
  indentOnInput,
  indentUnit,
  syntaxHighlighting,
} from "@codemirror/language";
import { closeBrackets, closeBracketsKeymap } from "@codemirror/autocomplete";
import { python } from "@codemirror/lang-python";
import { classHighlighter } from "@lezer/highlight";

const look = EditorView.theme({
  "&": { fontSize: "inherit", backgroundColor: "transparent", color: "inherit" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "inherit", lineHeight: "inherit" },
  ".cm-content": { padding: "0", caretColor: "var(--ink)" },
  ".cm-line": { padding: "0" },
  ".cm-cursor": { borderLeftColor: "var(--ink)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground":
    {
      backgroundColor: "color-mix(in srgb, var(--accent) 24%, transparent)",
    },
  "&.cm-focused .cm-matchingBracket": {
    backgroundColor: "var(--accent-soft)",
    outline: "1px solid var(--accent)",
  },
});

/* An editor inside `parent`. Tab indents; Escape, then Tab, leaves it. Shift+Enter and Ctrl+Enter run. */
export function createEditor({ parent, text, label, onChange, onRun, plain }) {
  const run = () => {
    onRun();
    return true;
  };
  const extensions = [
    keymap.of([
      { key: "Mod-Enter", run },
      { key: "Shift-Enter", run },
    ]),
    history(),
    drawSelection(),
    highlightSpecialChars(),
    look,
    keymap.of([...closeBracketsKeymap, ...defaultKeymap, ...historyKeymap, indentWithTab]),
    EditorView.contentAttributes.of({
      "aria-label": label,
      tabindex: "0",
      spellcheck: plain ? "true" : "false",
      autocapitalize: "off",
    }),
    EditorView.updateListener.of((update) => {
      if (update.docChanged) onChange(update.state.doc.toString());
    }),
  ];
  if (plain) extensions.push(EditorView.lineWrapping);
  else
    extensions.push(
      python(),
      indentUnit.of("    "),
      indentOnInput(),
      bracketMatching(),
      closeBrackets(),
      syntaxHighlighting(classHighlighter),
    );
  const view = new EditorView({ parent, state: EditorState.create({ doc: text, extensions }) });
  return {
    get text() {
      return view.state.doc.toString();
    },
    set text(value) {
      view.dispatch({ changes: { from: 0, to: view.state.doc.length, insert: value } });
    },
    focus: () => view.focus(),
    destroy: () => view.destroy(),
  };
}
