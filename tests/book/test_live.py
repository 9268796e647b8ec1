"""Live cells: a chapter's code runs in the page, and nothing comes before the first click."""

from __future__ import annotations

import re

import pytest
from browsing import ROOT, Watched
from playwright.sync_api import Locator, Page, expect

CHAPTER = "book/02_scaled_dot_product.html"
SLOW = 90_000  # milliseconds: Python has to start, on a machine that may be busy


def cell(page: Page, number: int) -> Locator:
    """A cell that runs, counted from 0."""
    return page.locator(".cell:has(.cell-bar)").nth(number)


def press(one: Locator, name: str) -> None:
    one.locator(".cell-bar").get_by_role("button", name=name).click()


def finish(one: Locator) -> str:
    """Wait until the cell is done; what its status says."""
    status = one.locator(".cell-bar__status")
    expect(status).to_contain_text("Done", timeout=SLOW)
    return status.inner_text()


def write(one: Locator, text: str) -> None:
    """Put a text of one's own into the cell, as with the keyboard."""
    press(one, "Edit")
    editor = one.locator(".cm-content")
    editor.click()
    page = editor.page
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def test_nothing_of_python_is_fetched_before_the_first_click(watched: Watched) -> None:
    watched.open(CHAPTER)
    assert not [url for url in watched.asked if "pyodide" in url or "codemirror" in url]
    assert not [url for url in watched.asked if url.endswith((".zip", ".json"))]


def test_a_cell_runs_within_the_budget_and_again_at_once(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    watched.site.forget()
    first = cell(page, 0)
    press(first, "Run")
    finish(first)
    expect(first.locator(".live-output")).to_contain_text("weights")
    assert watched.site.bytes_sent < 9_000_000, watched.site.sent
    press(first, "Run")
    expect(first.locator(".cell-bar__status")).to_have_text(re.compile(r"Done in 0\.[0-2] s\."))
    assert not watched.errors
    assert not watched.strangers


def test_the_cells_above_run_first(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    second = cell(page, 1)
    press(second, "Run")
    finish(second)
    expect(second.locator(".live-output")).not_to_contain_text("Error")
    assert not watched.errors


def test_an_edited_cell_runs_is_kept_and_can_be_reset(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    first = cell(page, 0)
    write(first, "import numpy as np\nnp.arange(6).reshape(2, 3) * 7")
    page.keyboard.press("Shift+Enter")
    finish(first)
    expect(first.locator(".live-output")).to_contain_text("[21, 28, 35]")
    page.reload()
    expect(cell(page, 0).locator("pre").first).to_contain_text("reshape(2, 3) * 7")
    press(cell(page, 0), "Reset")
    expect(cell(page, 0).locator("pre").first).to_contain_text(
        "from manyheads.matrices import softmax"
    )
    cell(page, 0).get_by_role("button", name="Undo").click()
    expect(cell(page, 0).locator("pre").first).to_contain_text("reshape(2, 3) * 7")


def test_an_endless_loop_can_be_stopped_and_python_starts_afresh(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    first = cell(page, 0)
    write(first, "print('on my way')\nwhile True:\n    pass")
    page.keyboard.press("Control+Enter")
    expect(first.locator(".live-output")).to_contain_text("on my way", timeout=SLOW)
    press(first, "Stop")
    expect(first.locator(".live-output")).to_contain_text("Stopped")
    first.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text("6 * 7")
    page.keyboard.press("Shift+Enter")
    finish(first)
    expect(first.locator(".live-output")).to_have_text("42")


def test_an_error_shows_the_readers_lines_only(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    first = cell(page, 0)
    write(first, "import numpy as np\n\ndef f(a):\n    return a @ a\n\nf(np.ones((2, 3)))")
    page.keyboard.press("Shift+Enter")
    error = first.locator(".live-error")
    expect(error).to_contain_text("return a @ a", timeout=SLOW)
    assert "boot.py" not in error.inner_text() and "site-packages" not in error.inner_text()


def test_a_figure_is_drawn_in_the_page(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    drawing = page.locator(".cell:has(.cell-bar):has(.cell_output svg.mh-figure)").first
    press(drawing, "Run")
    expect(drawing.locator(".live-output svg.mh-figure").first).to_be_visible(timeout=SLOW)
    assert not watched.errors
    assert not watched.strangers


CHAPTERS = sorted(path.stem for path in (ROOT / "book").glob("[0-9]*.md"))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_all_cells_of_a_chapter_run_in_the_page(watched: Watched, chapter: str) -> None:
    page = watched.open(f"book/{chapter}.html")
    last = page.locator(".cell:has(.cell-bar)").last
    press(last, "Run")
    ask = page.get_by_role("button", name="Load the model")
    outcome = last.locator(".cell-bar__status", has_text=re.compile("Done|Stopped"))
    for _ in range(6):  # a chapter may ask for the model before some of its cells
        expect(outcome.or_(ask).first).to_be_visible(timeout=4 * SLOW)
        if not ask.is_visible():
            break
        ask.click()
        expect(ask).to_be_hidden(timeout=4 * SLOW)
    expect(last.locator(".cell-bar__status")).to_contain_text("Done", timeout=4 * SLOW)
    assert page.locator(".live-error").all_inner_texts() == []
    assert not watched.errors
    assert not watched.strangers


@pytest.mark.parametrize("key", ["Enter", " "])
def test_the_bar_works_by_keyboard(watched: Watched, key: str) -> None:
    page = watched.open(CHAPTER)
    first = cell(page, 0)
    first.locator(".cell-bar__run").focus()
    page.keyboard.press(key if key != " " else "Space")
    expect(first.locator(".cell-bar__run")).to_have_text("Stop")


def test_escape_then_tab_leaves_the_editor(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    first = cell(page, 0)
    write(first, "x = 1")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert page.evaluate("!document.activeElement.closest('.cm-editor')")


def test_the_real_model_comes_when_the_reader_agrees(watched: Watched) -> None:
    page = watched.open(CHAPTER)
    first = cell(page, 0)
    write(first, "from manyheads import minilm\n\nmodel = minilm.load()\ntype(model).__name__")
    page.keyboard.press("Shift+Enter")
    agree = first.get_by_role("button", name=re.compile(r"Load the model \(1\d\.\d MB\) and run"))
    expect(agree).to_be_focused(timeout=SLOW)
    assert not [url for url in watched.asked if url.endswith(".npz")]
    agree.press("Enter")
    finish(first)
    expect(first.locator(".live-output")).to_contain_text("MiniLM")
    assert not watched.errors
