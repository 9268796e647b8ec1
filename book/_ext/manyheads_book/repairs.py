"""Repairs of the theme's HTML: what axe-core and a keyboard find missing in it."""

from __future__ import annotations

import re

# (what the theme writes, what it should be, why)
_REPAIRS: list[tuple[re.Pattern, str, str]] = [
    (
        re.compile(r'<summary aria-label="Toggle hidden content">'),
        "<summary>",
        "the visible text is the name",
    ),
    (
        re.compile(r' role="doc-biblioentry"'),
        ' role="listitem"',
        "the old role is deprecated, and these stand in a list",
    ),
    (
        re.compile(r"<th\b[^>]*>\s*(?:<p>\s*</p>)?\s*</th>"),
        "<td></td>",
        "an empty cell heads nothing",
    ),
    (
        re.compile(r'<span class="section-number">([\d.]+?)\.\s*</span>'),
        r'<span class="section-number">\1 </span>',
        "the number is set apart from the title, so it needs no full stop",
    ),
]


def repair(page: str) -> str:
    """A page's HTML with the theme's gaps closed."""
    for pattern, right, _why in _REPAIRS:
        page = pattern.sub(right, page)
    return page


def setup(app: object) -> None:
    """Nothing to register: `pages` calls `repair`."""
