"""Feedback tells what helps; it never leaks a hidden test, and nothing in it is alive."""

from __future__ import annotations

import base64
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conftest import HandIn, Page, answered, code, released

from headmaster import feedback
from headmaster.course import Course
from headmaster.gradebook import Marks
from headmaster.marking import Options, grade_assignment, rewrite_feedback
from headmaster.pool import pool
from headmaster.records import NotebookResult, Record, Result
from headmaster.release import AssignmentSpec

pytestmark = pytest.mark.usefixtures("one_process")


def page_of(course: Course, hand_in: HandIn, notebook: Any) -> str:
    """Grade a notebook of ana's and return her page."""
    hand_in("ana", {"numbers.ipynb": notebook})
    with pool(1) as executor:
        grade_assignment(course, "ps1", executor, Options(), lambda *_: None)
    return (course.folder("feedback", "ana", "ps1") / "numbers.html").read_text()


def test_a_misconception_is_told_in_the_teachers_words(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    wrong = answered(released(ps1), double="def double(x):\n    return x * x")
    page = page_of(course, hand_in, wrong)
    assert "Your numbers are the squares: x times x instead of 2 times x." in page
    assert "double(x) is twice x, for every number." in page
    assert "<strong>4</strong> of 8 points" in page


def test_no_hidden_test_and_no_expected_value_is_shown(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    wrong = answered(released(ps1), double="def double(x):\n    return 2 * x if x < 3 else 7")
    page = page_of(course, hand_in, wrong)
    assert "SECRET" not in page
    assert "check_double" not in page and "graders" not in page
    assert "assert double(2) == 4" in page, "the visible part may be shown"


def test_an_assertion_of_a_visible_test_is_repeated(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    page = page_of(course, hand_in, answered(released(ps1), double="def double(x):\n    return 1"))
    assert "twice nothing is nothing" in page


def test_what_the_code_says_while_it_is_tested_is_not_shown(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    leak = "def double(x):\n    raise ValueError(f'LEAK {x}')"
    page = page_of(course, hand_in, answered(released(ps1), double=leak))
    assert not re.search(r"LEAK \d", page)
    assert "ValueError" in page


HOSTILE = "</code></pre><script>alert(1)</script><img src=x onerror=alert(2)><style>*{}</style>"


def test_html_and_scripts_of_a_student_are_inert(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    notebook = answered(released(ps1), why=HOSTILE, double=f"'''{HOSTILE}'''")
    notebook["cells"].append(code(f"raise ValueError('''{HOSTILE}''')"))
    page = Page(page_of(course, hand_in, notebook))
    names = {name for name, _ in page.tags}
    assert not names & {"script", "img", "iframe", "object", "link", "form", "svg"}
    assert [name for name, _ in page.tags].count("style") == 1
    attributes = {key for _, attrs in page.tags for key in attrs}
    assert not {key for key in attributes if key.startswith("on")}
    assert page.open == []


def test_only_text_and_png_outputs_are_shown() -> None:
    def shown(data: dict[str, Any]) -> feedback.Output | None:
        return feedback._shown_output({"output_type": "display_data", "data": data})

    png = base64.b64encode(b"\x89PNG").decode()
    assert shown({"image/png": png}).png == png
    assert shown({"image/png": '"><script>'}) is None
    assert shown({"text/html": "<script>", "text/plain": "plain"}).text == "plain"
    assert shown({"image/svg+xml": "<svg onload=x>", "application/javascript": "x"}) is None


def test_long_outputs_are_cut_and_colours_are_dropped() -> None:
    stream = {
        "output_type": "stream",
        "name": "stdout",
        "text": "\x1b[31mred\x1b[0m" + "x" * 20_000,
    }
    shown = feedback._shown_output(stream).text
    assert shown.startswith("red") and shown.endswith("cut here")
    assert len(shown) < 11_000


def test_the_page_needs_nothing_from_elsewhere(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    text = page_of(course, hand_in, answered(released(ps1)))
    page = Page(text)
    assert "Content-Security-Policy" in text and "default-src 'none'" in text
    assert not re.search(r"https?://", text)
    assert not {key for _, attrs in page.tags for key in attrs} & {"src", "href"}


def test_the_page_can_be_read_by_everybody(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    text = page_of(course, hand_in, answered(released(ps1), mean="def mean(v):\n    return 0"))
    page = Page(text)
    by_name = dict(page.tags)
    assert by_name["html"]["lang"] == "en"
    assert "prefers-color-scheme: dark" in text
    levels = [int(name[1]) for name, _ in page.tags if re.fullmatch(r"h\d", name)]
    assert levels[0] == 1 and all(b - a <= 1 for a, b in pairwise(levels))
    assert {"main", "header", "footer"} <= {name for name, _ in page.tags}
    assert "Not yet" in text or "Partly" in text, "a verdict is words, not only a colour"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_every_colour_has_enough_contrast_in_light_and_dark() -> None:
    template = (feedback.TEMPLATES / "feedback.html").read_text()
    schemes = re.findall(r":root \{(.*?)\}", template, re.DOTALL)
    assert len(schemes) == 2
    for scheme in schemes:
        colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", scheme))
        for name in ("text", "soft", "pass", "fail", "wait", "link"):
            for ground in ("page", "panel"):
                pair = sorted([luminance(colours[name]), luminance(colours[ground])])
                assert (pair[1] + 0.05) / (pair[0] + 0.05) >= 4.5, (name, ground)


def test_points_and_comments_of_people_are_shown_when_written_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    import sqlite3

    first = page_of(course, hand_in, answered(released(ps1)))
    assert "1 answer still to be graded" in first
    with sqlite3.connect(course.root / "gradebook.db") as connection:
        why = "(select id from base_cell where name = 'why' and type = :kind)"
        for kind, change in (
            ("GradeCell", "update grade set manual_score = 1.5, extra_credit = 0.25"),
            ("SolutionCell", "update comment set manual_comment = 'Nearly <b>there</b>'"),
        ):
            connection.execute(f"{change} where cell_id = {why}", {"kind": kind})
    (path,) = rewrite_feedback(course, "ps1", ())
    page = path.read_text()
    assert "<strong>7.75</strong> of 8 points" in page
    assert "Nearly &lt;b&gt;there&lt;/b&gt;" in page


def test_a_refused_notebook_is_explained(course: Course, hand_in: HandIn) -> None:
    page = page_of(course, hand_in, b"<<<<<<< HEAD\n")
    assert "This notebook is not graded yet." in page
    assert "unfinished merge" in page


def test_an_unconfined_grade_says_so(ps1: AssignmentSpec) -> None:
    record = Record("double-values", "double", 2.0, 2.0, "pass", "passed")
    open_air = {"rlimits": True, "landlock": False, "seccomp": False}
    notebook = NotebookResult("numbers", [record], confinement=open_air)
    result = Result("ps1", "ana", [notebook])
    page = feedback.render(ps1.notebooks[0], result, notebook, Marks())
    assert "without confinement" in page


def test_the_page_looks_right_in_a_browser(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, tmp_path: Path
) -> None:
    sync_api = pytest.importorskip("playwright.sync_api")
    chromium = Path("/usr/bin/chromium")
    if not chromium.exists():
        pytest.skip("no Chromium here")
    notebook = answered(released(ps1), why=HOSTILE, double="def double(x):\n    return x * x")
    page_of(course, hand_in, notebook)
    address = (course.folder("feedback", "ana", "ps1") / "numbers.html").as_uri()
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
    with sync_api.sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=str(chromium), args=flags)
        page = browser.new_page(viewport={"width": 360, "height": 800}, color_scheme="dark")
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("dialog", lambda dialog: said.append("a dialog"))
        page.goto(address)
        wide = page.evaluate("document.documentElement.scrollWidth")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        browser.close()
    assert said == []
    assert wide <= 360, "nothing is wider than a telephone"
    assert dark == "rgb(22, 24, 28)"
