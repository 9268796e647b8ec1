"""The class report in a browser: accessible on every screen, by keyboard, and ready to print."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from browsing import AXE, RULES, VIOLATIONS
from playwright.sync_api import Browser, Page

from headmaster.records import NotebookResult, Record, Result
from headmaster.report import page
from headmaster.report.gathering import Class, Submission
from headmaster.similarity import Likeness

SCREENS: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
DUE = datetime(2026, 5, 4, 12, 0)
CODE = (
    "def attention(Q, K, V, mask=None):\n" + "    scores = Q @ K.T  # " + "a long line " * 12 + "\n"
)


def record(name: str, right: bool) -> Record:
    """Return a record with everything in it."""
    if right:
        return Record(name, "attention", 2.0, 2.0, "pass", "passed")
    told = "Your scores are not divided by `sqrt(d_k)`, so the weights are too peaked."
    sentence = "C1: The weights are the softmax of `Q Kᵀ / √d_k`."
    more = {"told": told, "sentence": sentence, "misconception": "B01-no-scale"}
    return Record(name, "attention", 0.0, 2.0, "fail", "wrong-answer", told, **more)


def submission(i: int) -> Submission:
    """Return one of a class: some right, some wrong, some late, one unreadable, one curious."""
    names = ("attention-values", "attention-mask", "a_test_with_a_very_long_name-numbers")
    records = [record(name, (i * 7 + j * 3) % 5 < 3) for j, name in enumerate(names)]
    if i == 3:
        records = [
            Record(n, None, None, 2.0, "not graded", "unreadable", "No JSON.") for n in names
        ]
    student = f"student-with-a-long-name-{i:02}"
    result = Result("02_attention", student, [NotebookResult("attention", records)])
    points = {("attention", one.id): one.points for one in records}
    at = DUE - timedelta(hours=30 - 4 * i)
    signs = ("imports ctypes", "uses _getframe") if i == 5 else ()
    return Submission(student, result, points, 0.0, at, DUE, {"attention": CODE}, signs)


@pytest.fixture
def report(tmp_path: Path) -> str:
    """Write a report that has everything in it; return its address."""
    class_ = [submission(i) for i in range(14)]
    pair = (class_[0].name, class_[1].name)
    alike = [Likeness(pair, ("attention", "attention"), 120, 0.97)]
    whole = Class("02_attention", False, class_, ["zoe"], DUE, alike)
    (tmp_path / "report.html").write_text(page.render(whole), "utf8")
    return (tmp_path / "report.html").as_uri()


def opened(browser: Browser, address: str, **options: Any) -> tuple[Page, list[str]]:
    """Open the report, and everything that folds in it; collect what goes wrong."""
    tab = browser.new_context(bypass_csp=True, **options).new_page()
    wrong: list[str] = []
    tab.on("console", lambda message: wrong.append(message.text))
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.goto(address)
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    return tab, wrong


@pytest.mark.parametrize("screen", SCREENS)
def test_the_report_is_accessible_and_fits(browser: Browser, report: str, screen: str) -> None:
    tab, wrong = opened(browser, report, **SCREENS[screen])
    assert not tab.evaluate("document.documentElement.scrollWidth > innerWidth")
    tab.evaluate(AXE)
    assert tab.evaluate(VIOLATIONS, RULES) == []
    assert wrong == []
    tab.context.close()


def test_the_report_can_be_read_by_keyboard(browser: Browser, report: str) -> None:
    tab, _ = opened(browser, report, **SCREENS["light"])
    tab.keyboard.press("Tab")
    assert tab.evaluate("document.activeElement.textContent") == "Skip to the report"
    for _ in range(6):
        tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    assert tab.evaluate("location.hash").startswith("#")
    tab.context.close()


def test_the_report_prints_dark_on_white_with_everything_unfolded(
    browser: Browser, report: str, tmp_path: Path
) -> None:
    tab, _ = opened(browser, report, **SCREENS["dark"])
    tab.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = false; })")
    tab.emulate_media(media="print", color_scheme="dark")
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not tab.locator("nav").is_visible()
    assert tab.locator("details pre").first.bounding_box()["height"] > 20
    tab.pdf(path=str(tmp_path / "report.pdf"), format="A4")
    tab.context.close()
