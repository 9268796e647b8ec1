"""One small stylesheet for all pages, and nothing in the site that no page uses.

The theme's own frame is replaced by `templates/layout.html`, so its stylesheets, its scripts and
its icon fonts (1.4 MB) have nothing left to do. What remains of third parties is KaTeX's
stylesheet, and of sphinx-design's and myst-nb's the rules whose classes occur in the book.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from functools import lru_cache
from pathlib import Path

import sphinx_design
from sphinx.application import Sphinx

from .paths import STATIC, VENDOR

SEARCH_SCRIPTS = {
    "documentation_options.js",
    "doctools.js",
    "sphinx_highlight.js",
    "language_data.js",
    "searchtools.js",
}
# What the theme and its extensions lay down in _static and no page of this book asks for.
UNUSED = re.compile(
    r"^(scripts|styles|vendor|locales|images|sphinx-thebe\.|webpack-macros|sbt-webpack|basic\.css|"
    r"togglebutton\.|copybutton|clipboard|copy-button|check-solid|play-solid|design-tabs|file\.png|"
    r"minus\.png|plus\.png|pygments\.css|mystnb\.|sphinx-design|css$)"
)


@lru_cache(maxsize=1)
def _own_version() -> str:
    digest = hashlib.sha256()
    for path in sorted([*STATIC.rglob("*.css"), *STATIC.rglob("*.js")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:10]


def version(app: Sphinx) -> str:
    """Changes whenever a stylesheet or script changes, so that no browser keeps an old one."""
    return _own_version()


def minified(css: str) -> str:
    """A stylesheet without comments and line breaks."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    return re.sub(r"\s*\n\s*", " ", re.sub(r"\s*([{};,])\s*", r"\1", css)).strip()


def used_rules(css: str, classes: set[str]) -> str:
    """The rules of a flat, minified stylesheet whose every class occurs in the book."""

    def wanted(selector: str) -> bool:
        return all(name in classes for name in re.findall(r"\.(-?[A-Za-z_][\w-]*)", selector))

    def keep(rule: re.Match) -> str:
        selectors = [one for one in rule[1].split(",") if wanted(one)]
        return ",".join(selectors) + rule[2] if selectors else ""

    css = re.sub(r"([^{}@]+)(\{[^{}]*\})", keep, css)
    return re.sub(r"@media[^{]*\{\s*\}", "", css)


def classes_of(folder: Path) -> set[str]:
    """Every class that an element of a page has."""
    found: set[str] = set()
    for page in folder.rglob("*.html"):
        for value in re.findall(r'class="([^"]*)"', page.read_text("utf8")):
            found.update(value.split())
    return found


def stylesheet(folder: Path) -> str:
    """The one stylesheet: KaTeX, what is used of sphinx-design, and the book's own."""
    katex = (VENDOR / "katex/katex.min.css").read_text("utf8")
    katex = re.sub(r",url\([^)]*\.(?:woff|ttf)\) format\([^)]*\)", "", katex)
    katex = katex.replace("url(fonts/", "url(katex/fonts/")
    design = (Path(sphinx_design.__file__).parent / "static/sphinx-design.min.css").read_text(
        "utf8"
    )
    own = "\n".join(path.read_text("utf8") for path in sorted((STATIC / "css").glob("*.css")))
    own = own.replace("url(../fonts/", "url(fonts/")
    return katex + used_rules(minified(design), classes_of(folder)) + minified(own)


def finish(app: Sphinx, error: Exception | None) -> None:
    """Write the stylesheet and take away what nothing uses."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    (folder / "_static/book.css").write_text(stylesheet(folder), "utf8")
    for path in (folder / "_static").iterdir():
        if UNUSED.match(path.name) and path.name not in SEARCH_SCRIPTS:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events; late, after the theme has written its own files."""
    app.connect("build-finished", finish, priority=950)
