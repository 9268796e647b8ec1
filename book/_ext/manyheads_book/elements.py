"""Elements written as HTML has them: an admonition that folds is a `<details>`, with no script."""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator

FOLDING = {"dropdown", "toggle"}


def _folds(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Admonition) and bool(FOLDING & set(node["classes"]))


class BookTranslator(HTML5Translator):
    """Sphinx's HTML with folding admonitions as native elements."""

    def visit_admonition(self, node: nodes.Element, name: str = "") -> None:
        if not _folds(node):
            super().visit_admonition(node, name)
            return
        opened = {"OPEN": "open"} if "toggle-shown" in node["classes"] else {}
        node["classes"] = [one for one in node["classes"] if one not in FOLDING]
        node["book-folds"] = True
        self.body.append(
            self.starttag(node, "details", CLASS=f"admonition {name}".strip(), **opened)
        )
        if name:
            node.insert(0, nodes.title(name, name.capitalize()))

    def depart_admonition(self, node: nodes.Element | None = None) -> None:
        if node is not None and node.get("book-folds"):
            self.body.append("</details>\n")
        else:
            super().depart_admonition(node)

    def visit_title(self, node: nodes.title) -> None:
        if isinstance(node.parent, nodes.Element) and node.parent.get("book-folds"):
            self.body.append(self.starttag(node, "summary", "", CLASS="admonition-title"))
            self.context.append("</summary>\n")
        else:
            super().visit_title(node)


def setup(app: Sphinx) -> None:
    """Make it the translator of the HTML builder; the theme adds its tables to it."""
    app.set_translator("html", BookTranslator)
