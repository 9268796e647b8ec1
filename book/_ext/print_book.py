"""Print the whole built book as one PDF, with an outline and working links.

    python book/_ext/print_book.py [SITE] [OUT.pdf]

The articles of all pages, in reading order, become one long page that Chromium prints. The still
forms of the interactive figures are printed; what folds is unfolded.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "build/book/_build/html"
OUT = ROOT / "build/many-heads.pdf"
HOME = "book/index.html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FOOTER = (
    '<div style="font: 8px sans-serif; width: 100%; text-align: center; color: #555">'
    '<span class="pageNumber"></span></div>'
)
ARTICLE = re.compile(r'<article class="article">(.*?)</article>', re.S)
NEXT = re.compile(r'<link rel="next" href="([^"]+)">')


def reading_order(site: Path) -> list[str]:
    """The pages from the first to the last, as the links "next" lead."""
    order = [HOME]
    while found := NEXT.search((site / order[-1]).read_text("utf8")):
        order.append(urljoin(order[-1], found[1]))
    return order


def _prefix(name: str) -> str:
    return re.sub(r"\W+", "-", name.removesuffix(".html"))


def article(site: Path, name: str, order: list[str]) -> str:
    """One page's text, its ids made unique and its links turned into links within the document."""
    inside = ARTICLE.search((site / name).read_text("utf8"))[1]
    own = _prefix(name)

    def link(match: re.Match) -> str:
        attribute, url = match[1], match[2]
        if urlsplit(url).scheme or url.startswith("//"):
            return match[0]
        parts = urlsplit(urljoin("x:/" + name, url))
        target = unquote(parts.path).lstrip("/")
        if target in order:
            anchor = f"--{parts.fragment}" if parts.fragment else ""
            return f'{attribute}="#{_prefix(target)}{anchor}"'
        return f'{attribute}="{target}"'

    inside = re.sub(r'\bid="([^"]+)"', rf'id="{own}--\1"', inside)
    inside = re.sub(r"url\(#([^)]+)\)", rf"url(#{own}--\1)", inside)
    inside = re.sub(r'\b(href|src)="([^"]*)"', link, inside)
    inside = re.sub(r'<details(?![^>]*\bopen\b)(?! class="hide)', "<details open", inside)
    kind = "page-exercise" if name.startswith("exercises/") else "page-text"
    return f'<article class="article {kind}" id="{own}">{inside}</article>'


def _contents(site: Path, order: list[str]) -> str:
    """A list of all pages, as links."""
    items = []
    for name in order[1:]:
        title = re.search(r"<h1>(.*?)<a class=\"headerlink", (site / name).read_text("utf8"), re.S)[
            1
        ]
        plain = re.sub(r"<span class=\"section-number\">(.*?)</span>", r"\1· ", title)
        items.append(f'<li><a href="#{_prefix(name)}">{plain}</a></li>')
    return f'<nav class="article print-contents"><h2>Contents</h2><ul>{"".join(items)}</ul></nav>'


def whole(site: Path) -> str:
    """The book as one page."""
    order = reading_order(site)
    first, *others = (article(site, name, order) for name in order)
    articles = "\n".join([first, _contents(site, order), *others])
    return (
        '<!DOCTYPE html><html lang="en" data-theme="light"><head><meta charset="utf-8">'
        '<title>Many Heads</title><link rel="stylesheet" href="_static/book.css"><style>'
        "article { break-before: page } article:first-of-type { break-before: auto }"
        f"</style></head><body><main>{articles}</main></body></html>"
    )


def print_book(site: Path = SITE, out: Path = OUT) -> int:
    """Print the book in `site` to `out`; the number of bytes written."""
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    if executable is None:
        sys.exit("printing needs Chromium: no chromium is on the PATH")
    if not (site / HOME).is_file():
        sys.exit(f"{site} holds no built book: build it first (make book)")
    page_file = site / "whole-book.html"
    page_file.write_text(whole(site), "utf8")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with sync_playwright() as playwright:
            options = ["--no-sandbox", "--disable-gpu", "--allow-file-access-from-files"]
            browser = playwright.chromium.launch(executable_path=executable, args=options)
            page = browser.new_page()
            page.emulate_media(media="print", color_scheme="light")
            page.goto(page_file.as_uri(), wait_until="load")
            page.evaluate("document.fonts.ready")
            page.pdf(
                path=out,
                format="A4",
                margin={"top": "19mm", "bottom": "19mm", "left": "22mm", "right": "22mm"},
                print_background=True,
                tagged=True,
                outline=True,
                display_header_footer=True,
                header_template="<span></span>",
                footer_template=FOOTER,
            )
            browser.close()
    finally:
        page_file.unlink()
    return out.stat().st_size


def main() -> None:
    """Print as the command line says."""
    paths = [Path(argument).resolve() for argument in sys.argv[1:3]]
    site, out = (paths + [SITE, OUT][len(paths) :])[:2]
    size = print_book(site, out)
    print(f"{out}: {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
