"""The Sphinx extension of this book: what pages are made of, and what makes them light.

One room per concern: `maths` (KaTeX without Node), `elements` (HTML that folds by itself),
`absent` (links to chapters that are left out), `notebooks` (what a page's cells are, for the
browser), `widgets` (interactive figures), `pages` (head, menu and the last touch), `repairs` (gaps
in accessibility), `lean` (one small stylesheet), `library` and `site` (the files around the pages).
"""

from __future__ import annotations

from sphinx.application import Sphinx

from . import absent, elements, lean, maths, notebooks, pages, repairs, site, widgets


def setup(app: Sphinx) -> dict:
    """Register everything with Sphinx."""
    for room in (absent, elements, maths, notebooks, widgets, pages, repairs, lean, site):
        room.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
