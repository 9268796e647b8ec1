"""The files around the pages: fonts, Python for the browser, the library, 404, sitemap, robots."""

from __future__ import annotations

import shutil
from pathlib import Path

from sphinx.application import Sphinx

from .library import later_files, library_zip
from .notebooks import page_cells
from .paths import LIBRARY, STATIC, VENDOR


def _copy(source: Path, target: Path) -> None:
    """Copy a large file, or nothing where it lies there already."""
    if target.is_file() and target.stat().st_size == source.stat().st_size:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def lay_own(static: Path) -> None:
    """The book's own scripts and pictures; Sphinx would not see that one of them has changed."""
    shutil.rmtree(static / "js", ignore_errors=True)
    shutil.copytree(STATIC, static, dirs_exist_ok=True, ignore=shutil.ignore_patterns("css"))


def lay_vendor(static: Path) -> None:
    """The third-party files that pages load."""
    shutil.copytree(VENDOR / "fonts", static / "fonts", dirs_exist_ok=True)
    shutil.copytree(VENDOR / "katex/fonts", static / "katex/fonts", dirs_exist_ok=True)
    _copy(VENDOR / "codemirror/codemirror.js", static / "codemirror/codemirror.js")
    for source in (VENDOR / "pyodide").iterdir():
        _copy(source, static / "pyodide" / source.name)


def lay_library(static: Path) -> None:
    """The library for the browser: its zip, and beside it what comes later."""
    folder = static / "live"
    folder.mkdir(exist_ok=True)
    (folder / "manyheads.zip").write_bytes(library_zip())
    for name in later_files():
        _copy(LIBRARY.parent / name, folder / name)


def lay_notebooks(app: Sphinx) -> None:
    """Each exercise's notebook beside its page, byte for byte as it is released."""
    for docname in page_cells(app):
        source = Path(app.env.doc2path(docname))
        if source.suffix == ".ipynb":
            shutil.copyfile(source, Path(app.outdir) / f"{docname}.ipynb")


def finish(app: Sphinx, error: Exception | None) -> None:
    """Lay down everything that is no page."""
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    lay_own(static)
    lay_vendor(static)
    lay_library(static)
    lay_notebooks(app)
    (Path(app.outdir) / ".nojekyll").touch()  # GitHub Pages would leave out _static


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("build-finished", finish, priority=960)
