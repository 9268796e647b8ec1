"""The book's few icons, drawn on a grid of 24 and coloured by the text around them."""

from __future__ import annotations

from markupsafe import Markup

from .paths import STATIC

_PATHS = {
    "download": '<path d="M12 4v11m0 0-4.5-4.5M12 15l4.5-4.5M5 20h14"/>',
    "search": '<circle cx="11" cy="11" r="6.5"/><path d="m16 16 4.5 4.5"/>',
    "menu": '<path d="M4 7h16M4 12h16M4 17h16"/>',
    "sun": '<circle cx="12" cy="12" r="4"/><path d="M12 3v2m0 14v2M3 12h2m14 0h2M5.6 5.6 7 7m10 10'
    ' 1.4 1.4M5.6 18.4 7 17M17 7l1.4-1.4"/>',
    "moon": '<path d="M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z"/>',
    "half": '<circle cx="12" cy="12" r="8"/><path d="M12 4a8 8 0 0 1 0 16z" fill="currentColor"/>',
}


def icon(name: str) -> Markup:
    """One icon as SVG; the element around it carries the name."""
    return Markup(
        '<svg class="icon" viewBox="0 0 24 24" width="20" height="20" fill="none" '
        'stroke="currentColor" stroke-width="1.7" stroke-linecap="round" stroke-linejoin="round" '
        f'aria-hidden="true">{_PATHS[name]}</svg>'
    )


def mark() -> Markup:
    """The book's mark, to stand in a page beside its name."""
    svg = (STATIC / "mark.svg").read_text("utf8").strip()
    return Markup(svg.replace("<svg ", '<svg class="brand__mark" aria-hidden="true" ', 1))


def hero() -> Markup:
    """The picture on the home page: decoration, so a screen reader passes it by."""
    svg = (STATIC / "hero.svg").read_text("utf8").strip()
    head, rest = svg.split(">", 1)
    return Markup(
        f'<svg class="home-hero" aria-hidden="true" {head[5 : head.index(" role=")]}>{rest}'
    )
