"""The Sphinx extension of this book: what pages are made of, and what makes them light.

One room per concern: `maths` (KaTeX without Node), `elements` (HTML that folds by itself),
`absent` (links to pages that are left out), `freshness` (what must be run again), `notebooks`
(what a page's cells are, for the browser), `widgets` (interactive figures), `pages` (head, menu and
the last touch), `repairs` (gaps in accessibility), `lean` (one small stylesheet), `library` and
`site` (the files around the pages).
"""

from __future__ import annotations

import hashlib

from sphinx.application import Sphinx

from . import absent, elements, freshness, lean, maths, notebooks, pages, repairs, site, widgets
from .paths import EXT

ROOMS = (absent, elements, freshness, maths, notebooks, widgets, pages, repairs, lean, site)


def setup(app: Sphinx) -> dict:
    """Register everything with Sphinx."""
    for room in ROOMS:
        room.setup(app)
    # A change in here changes pages whose text did not change: Sphinx then writes all of them.
    code = b"".join(path.read_bytes() for path in sorted(EXT.glob("*.py")))
    return {
        "version": "1",
        "env_version": int(hashlib.sha256(code).hexdigest()[:12], 16),
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
