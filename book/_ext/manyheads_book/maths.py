"""Maths at build time: KaTeX runs in QuickJS, so a page carries finished HTML and MathML.

A formula that KaTeX cannot read is a warning, and a warning fails the build.
"""

from __future__ import annotations

import json
from functools import lru_cache

import quickjs
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator

from .paths import VENDOR

logger = logging.getLogger(__name__)


class Katex:
    """KaTeX in a JavaScript engine of its own; each different formula is set once."""

    def __init__(self, macros: dict[str, str]) -> None:
        context = quickjs.Context()
        context.eval((VENDOR / "katex/katex.min.js").read_text("utf8"))
        self._call = context.eval(
            "(text) => { const [tex, options] = JSON.parse(text);"
            " return katex.renderToString(tex, options); }"
        )
        self._context = context  # keeps the engine alive as long as its function
        self._macros = macros
        self.render = lru_cache(maxsize=None)(self._render)

    def _render(self, tex: str, display: bool) -> str:
        options = {
            "displayMode": display,
            "output": "htmlAndMathml",
            "throwOnError": True,
            "strict": False,
            "trust": False,
            "macros": self._macros,
        }
        return self._call(json.dumps([tex, options]))


@lru_cache(maxsize=1)
def _katex(macros: tuple[tuple[str, str], ...]) -> Katex:
    return Katex(dict(macros))


def _html(translator: HTML5Translator, tex: str, display: bool, node: nodes.Element) -> str:
    macros = translator.builder.app.config.book_tex_macros
    katex = _katex(tuple((f"\\{name}", tex) for name, tex in sorted(macros.items())))
    try:
        return katex.render(tex, display)
    except quickjs.JSException as error:
        logger.warning("KaTeX: %s in %r", error, tex, location=node, type="book", subtype="maths")
        return f"<code>{translator.encode(tex)}</code>"


def visit_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula that stands in a line of text."""
    translator.body.append(
        f'<span class="math">{_html(translator, node.astext(), False, node)}</span>'
    )
    raise nodes.SkipNode


def visit_display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a displayed formula, with its number and a link to it where it has one."""
    tex = node.astext().strip()
    plain = not node.get("no-wrap", node.get("nowrap"))
    if plain and "\\\\" in tex and "\\begin{" not in tex:
        tex = f"\\begin{{split}}{tex}\\end{{split}}"
    number = get_node_equation_number(translator, node) if node.get("number") else ""
    label = f"Equation {number}".strip()
    write = translator.body.append
    write(translator.starttag(node, "div", CLASS="math-block"))
    # Wide formulas scroll on a phone: a scrolling region must be reachable by keyboard.
    write(f'<div class="math-scroll" tabindex="0" role="group" aria-label="{label}">')
    write(_html(translator, tex, True, node) + "</div>")
    if number:
        write(f'<span class="eqno">({number})')
        translator.add_permalink_ref(node, "Link to this equation")
        write("</span>")
    write("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the renderer; `_config.yml` chooses it by `html_math_renderer: katex_static`."""
    app.add_config_value("book_tex_macros", {}, "env")
    app.add_html_math_renderer("katex_static", (visit_inline, None), (visit_display, None))
