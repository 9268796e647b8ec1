"""Every page in a real browser: no errors, no strangers, accessible, light, usable by keyboard."""

from __future__ import annotations

import html
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browsing import ROOT, Watched, violations
from playwright.sync_api import Browser, expect
from static_host import Site

SCREENS = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
CHAPTER_BYTES = 450_000
HOME_BYTES = 280_000


@pytest.mark.parametrize("screen", SCREENS)
def test_every_page_is_accessible_and_without_errors(
    browser: Browser, site: Site, names: list[str], screen: str
) -> None:
    wrong = {}
    context = browser.new_context(**SCREENS[screen])
    for name in [*names, "search.html", "404.html"]:
        watched = Watched(context.new_page(), site)
        page = watched.open(name)
        too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        found = violations(page) + watched.errors + watched.strangers + ["too wide"] * too_wide
        if found:
            wrong[name] = found
        page.close()
    context.close()
    assert not wrong


def test_pages_are_light(browser: Browser, site: Site, names: list[str]) -> None:
    heavy = {}
    for name in names:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        site.forget()
        page = context.new_page()
        page.goto(site.address + name, wait_until="networkidle")
        page.evaluate("scrollTo(0, document.body.scrollHeight)")
        page.wait_for_load_state("networkidle")
        limit = HOME_BYTES if name == "book/index.html" else CHAPTER_BYTES
        if site.bytes_sent > limit:
            heavy[name] = (site.bytes_sent, sorted(site.sent, key=lambda one: -one[1])[:5])
        context.close()
    assert not heavy


def test_the_root_leads_to_the_home_page(watched: Watched) -> None:
    page = watched.open("")
    expect(page).to_have_url(watched.site.address + "book/index.html")


def test_a_wrong_address_gets_a_kind_page(watched: Watched) -> None:
    page = watched.open("book/no/such/page.html")
    expect(page.locator("h1")).to_contain_text("no attention")


def test_the_book_can_be_searched(watched: Watched) -> None:
    page = watched.open("book/students.html")
    page.keyboard.press("Control+K")
    page.keyboard.insert_text("softmax")
    page.keyboard.press("Enter")
    expect(page.locator("#search-results li").first).to_be_visible(timeout=15000)
    expect(page.locator("#search-results")).to_contain_text("Scaled dot-product")
    assert not watched.errors


def test_the_colours_can_be_chosen_and_stay(watched: Watched) -> None:
    page = watched.open("book/students.html")
    root = page.locator("html")
    button = page.locator("#colours-button")
    button.click()
    expect(root).to_have_attribute("data-theme", "light")
    button.click()
    expect(root).to_have_attribute("data-theme", "dark")
    page.reload()
    expect(root).to_have_attribute("data-theme", "dark")


def test_the_contents_open_on_a_phone_and_close_by_escape(browser: Browser, site: Site) -> None:
    context = browser.new_context(**SCREENS["phone"])
    page = context.new_page()
    page.goto(site.address + "book/students.html")
    contents = page.locator("#contents")
    expect(contents).to_be_hidden()
    page.locator("#contents-button").click()
    expect(contents).to_be_visible()
    assert not violations(page)
    page.keyboard.press("Escape")
    expect(contents).to_be_hidden()
    context.close()


def test_the_first_tab_skips_to_the_text(watched: Watched) -> None:
    page = watched.open("book/students.html")
    page.keyboard.press("Tab")
    expect(page.locator(".skip-link")).to_be_focused()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#main"


def test_a_hint_unfolds_by_keyboard(watched: Watched) -> None:
    page = watched.open("book/02_scaled_dot_product.html")
    hint = page.locator("details.admonition").first
    hint.locator("summary").focus()
    page.keyboard.press("Enter")
    expect(hint).to_have_attribute("open", "")


def test_a_page_can_be_read_without_scripts(browser: Browser, site: Site) -> None:
    context = browser.new_context(java_script_enabled=False, viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.goto(site.address + "book/02_scaled_dot_product.html")
    expect(page.locator("h1")).to_be_visible()
    expect(page.locator("#contents a").first).to_be_visible()
    expect(page.locator(".widget__still table").first).to_be_visible()
    expect(page.locator("#search-button")).to_be_hidden()
    context.close()


def test_a_changed_cell_and_its_editor_are_accessible_too(watched: Watched) -> None:
    page = watched.open("book/02_scaled_dot_product.html")
    page.locator(".cell-bar").first.get_by_role("button", name="Edit").click()
    expect(page.locator(".cm-content").first).to_be_visible()
    assert not violations(page)


def test_the_whole_book_prints_as_one_document(folder: Path, tmp_path: Path) -> None:
    script = ROOT / "book/_ext/print_book.py"
    spec = importlib.util.spec_from_file_location("print_book", script)
    printing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(printing)
    order = printing.reading_order(folder)
    assert {"book/02_scaled_dot_product.html", "book/references.html"} <= set(order)
    page = printing.whole(folder)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    links = {html.unescape(link) for link in re.findall(r'href="#([^"]+)"', page)}
    assert links <= set(ids)
    out = tmp_path / "book.pdf"
    subprocess.run([sys.executable, script, folder, out], check=True, capture_output=True)
    assert out.read_bytes().startswith(b"%PDF")
    assert out.stat().st_size > 200_000
