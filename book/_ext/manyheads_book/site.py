"""The files around the pages: fonts, the library for the browser, 404, sitemap, robots."""

from __future__ import annotations

import shutil
from pathlib import Path

from sphinx.application import Sphinx

from .paths import VENDOR


def lay_vendor(app: Sphinx, error: Exception | None) -> None:
    """Copy the third-party files that pages load, unless they lie there already."""
    if error or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    for name in ("katex/fonts", "fonts"):
        shutil.copytree(
            VENDOR / name, static / name, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.ttf")
        )


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("build-finished", lay_vendor, priority=960)
