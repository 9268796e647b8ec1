"""The built folder: what is in it, where its links lead, and that its files are the pinned ones."""

from __future__ import annotations

import hashlib
import html
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

from browsing import ROOT

REFERENCE = re.compile(r'<(\w+)\b[^>]*?\s(?:href|src)="([^"]*)"')
LOADED = {"script", "link", "img", "iframe", "source", "video", "audio"}
LOADING_LINKS = re.compile(r'<link[^>]*rel="(?:stylesheet|preload|icon|modulepreload)"[^>]*>')


def text(folder: Path, name: str) -> str:
    return (folder / name).read_text("utf8")


def references(page: str) -> list[tuple[str, str]]:
    return [(tag, html.unescape(url)) for tag, url in REFERENCE.findall(page)]


def test_the_vendored_files_are_the_pinned_ones() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "book/_vendor/fetch.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_the_accessibility_checker_is_the_pinned_one() -> None:
    folder = ROOT / "tests/book/vendor"
    digest, name, *_ = (folder / "SHA256").read_text().split()
    assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_pages_load_nothing_from_other_hosts(folder: Path, names: list[str]) -> None:
    for name in [*names, "404.html", "index.html", "search.html"]:
        page = text(folder, name)
        loaded = [url for tag, url in references(page) if tag in LOADED - {"link"}]
        loaded += [url for tag in LOADING_LINKS.findall(page) for _, url in references(tag)]
        assert not [url for url in loaded if url.startswith(("http", "//"))], name


def test_every_link_inside_the_book_leads_somewhere(folder: Path, names: list[str]) -> None:
    anchors: dict[str, set[str]] = {}

    def ids(name: str) -> set[str]:
        if name not in anchors:
            anchors[name] = set(re.findall(r'\bid="([^"]+)"', text(folder, name)))
        return anchors[name]

    broken = []
    for name in names:
        for tag, url in references(text(folder, name)):
            parts = urlsplit(urljoin("x:/" + name, url))
            if tag != "a" or parts.scheme != "x":
                continue
            target = unquote(parts.path).lstrip("/")
            known = (folder / target).is_file()
            anchored = known and parts.fragment and target.endswith(".html")
            if not known or (anchored and unquote(parts.fragment) not in ids(target)):
                broken.append((name, url))
    assert not broken


def test_every_page_has_a_title_and_a_description(folder: Path, names: list[str]) -> None:
    for name in names:
        page = text(folder, name)
        assert re.search(r"<title>[^<]{4,}</title>", page), name
        assert re.search(r'<meta name="description" content="[^"]{40,}"', page), name
        assert page.count("<h1") == 1, name


def test_shared_links_have_a_picture(folder: Path, names: list[str]) -> None:
    picture = re.search(r'og:image" content="([^"]+)"', text(folder, names[0]))[1]
    assert picture.endswith("_static/preview.png")
    assert (folder / "_static/preview.png").stat().st_size < 100_000


def test_the_sitemap_names_every_page(folder: Path, names: list[str]) -> None:
    listed = re.findall(
        r"<loc>[^<]*?/((?:book|exercises)/[^<]+)</loc>", text(folder, "sitemap.xml")
    )
    assert sorted(listed) == names
    assert "sitemap.xml" in text(folder, "robots.txt")


def test_every_picture_says_what_it_shows(folder: Path, names: list[str]) -> None:
    for name in names:
        page = text(folder, name)
        for image in re.findall(r"<img\b[^>]*>", page):
            assert re.search(r'\balt="[^"]{10,}"', image), (name, image[:120])
            assert not re.search(r'\balt="[^"]*_images/', image), (name, image[:120])
        for drawing in re.findall(r"<svg\b[^>]*\bmh-figure\b[^>]*>", page):
            assert re.search(r'aria-label="[^"]{10,}"', drawing), (name, drawing[:120])


def test_maths_is_finished_in_the_page(folder: Path, names: list[str]) -> None:
    for name in names:
        page = text(folder, name)
        assert "katex-error" not in page, name
        assert "MathJax" not in page, name
        assert r"\(" not in re.sub(r"<(script|annotation|pre|code)\b.*?</\1>", "", page, flags=re.S)


def test_no_page_shows_an_error_or_a_machines_path(folder: Path, names: list[str]) -> None:
    for name in names:
        page = text(folder, name)
        assert "Traceback (most recent call last)" not in page or "chapter" in page, name
        assert str(ROOT) not in page, name


def test_the_site_has_no_file_that_no_page_uses(folder: Path) -> None:
    for unused in ("styles", "vendor", "scripts", "locales", "css"):
        assert not (folder / "_static" / unused).exists(), unused
    assert (folder / ".nojekyll").exists()


def test_the_library_for_the_browser_holds_no_answers_of_exercises_in_its_checks(
    folder: Path,
) -> None:
    with zipfile.ZipFile(folder / "_static/live/manyheads.zip") as archive:
        members = archive.namelist()
    assert "manyheads/check/__init__.py" in members
    assert not [name for name in members if name.startswith(("tests", "solutions", "headmaster"))]


def test_an_exercise_lies_beside_its_page_byte_for_byte(folder: Path) -> None:
    for released in sorted((ROOT / "exercises").glob("*/*.ipynb")):
        copy = folder / released.relative_to(ROOT)
        if copy.with_suffix(".html").is_file():
            assert copy.read_bytes() == released.read_bytes()


def test_an_exercise_hides_what_it_asks_for(folder: Path) -> None:
    for page in (folder / "_static/live").glob("exercises--*.json"):
        facts = json.loads(page.read_text("utf8"))
        assert "manyheads" in facts["hide"], page.name
        assert "manyheads.check" in facts["show"], page.name
        assert facts["contract"], page.name


def test_a_page_is_run_again_when_the_part_of_the_library_that_it_uses_changes() -> None:
    sys.path.insert(0, str(ROOT / "book/_ext"))
    try:
        from manyheads_book.freshness import library_files
    finally:
        sys.path.pop(0)

    def used(source: str) -> set[str]:
        return {path.name for path in library_files([source])}

    assert "show.py" in used("from manyheads import show")
    assert "scaled_dot_product.py" in used("import manyheads.scaled_dot_product as s\n%magic")
    assert "contract.py" in used("from manyheads.check import contract_table")
    through_others = used("from manyheads.multi_head import multi_head_attention")
    assert "scaled_dot_product.py" in through_others
    assert used("import numpy as np") == set()
