"""The files around the pages: fonts, Python for the browser, the library, 404, sitemap, robots."""

from __future__ import annotations

import shutil
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from sphinx.application import Sphinx

from .icons import mark
from .library import later_files, library_zip
from .notebooks import page_cells
from .paths import EXT, LIBRARY, STATIC, VENDOR


def _copy(source: Path, target: Path) -> None:
    """Copy a large file, or nothing where it lies there already."""
    now = source.stat()
    if target.is_file() and (target.stat().st_size, target.stat().st_mtime) == (
        now.st_size,
        now.st_mtime,
    ):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


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


def write_sitemap(app: Sphinx) -> None:
    """The addresses of all pages, for search engines, and where to find them."""
    base = app.config.html_baseurl
    pages = "".join(
        f"  <url><loc>{escape(base + docname)}.html</loc></url>\n"
        for docname in sorted(app.env.found_docs)
    )
    (Path(app.outdir) / "sitemap.xml").write_text(
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{pages}</urlset>\n',
        "utf8",
    )
    (Path(app.outdir) / "robots.txt").write_text(
        f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n", "utf8"
    )


def write_lone_pages(app: Sphinx) -> None:
    """The page for a wrong address, and the one that leads from the site's root to the home page.

    A host shows 404.html at any depth, so it carries its style and knows the way home by the
    address that the book is published under.
    """
    home = urlsplit(app.config.html_baseurl).path or "/"
    page = (EXT / "templates/404.html").read_text("utf8")
    page = page.replace("MARK", str(mark())).replace("HOME", f"{home}{app.config.root_doc}.html")
    (Path(app.outdir) / "404.html").write_text(page, "utf8")
    (Path(app.outdir) / "index.html").write_text(
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>Many Heads</title>'
        f'<meta http-equiv="refresh" content="0; url={app.config.root_doc}.html">'
        f'<link rel="canonical" href="{app.config.html_baseurl}{app.config.root_doc}.html"></head>'
        f'<body><main><h1>Many Heads</h1><p><a href="{app.config.root_doc}.html">To the book</a>'
        "</p></main></body></html>\n",
        "utf8",
    )


def finish(app: Sphinx, error: Exception | None) -> None:
    """Lay down everything that is no page."""
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    lay_own(static)
    lay_vendor(static)
    lay_library(static)
    lay_notebooks(app)
    write_sitemap(app)
    write_lone_pages(app)
    (Path(app.outdir) / ".nojekyll").touch()  # GitHub Pages would leave out _static


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("build-finished", finish, priority=960)
