"""The class report: its figures are right, nothing in it is alive, and nothing in it leaks."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import statistics
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from conftest import HandIn, OneProcess, Page, answered, cell, code, released

from headmaster import tables
from headmaster.cli import main
from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook
from headmaster.marking import Options, grade_assignment
from headmaster.pool import pool
from headmaster.records import REASONS, NotebookResult, Record, Result
from headmaster.release import AssignmentSpec, load_assignment
from headmaster.report import figures, write_report
from headmaster.report.gathering import Class, Submission
from headmaster.report.signs import signs_in, signs_in_outputs

SQUARE = "def double(x):\n    return x * x"
LONG = """def double(x):
    total, seen = 0, []
    for step, part in enumerate([x, x]):
        if step > 1:
            seen.append(part - total)
        elif part is None:
            raise ValueError("nothing to double")
        total = total + part
        seen.append(total)
    checked = {index: item for index, item in enumerate(seen)}
    assert len(checked) == len(seen), checked
    return max(checked.items(), key=lambda pair: pair[0])[1]
"""


def grade(course: Course, assignment: str = "ps1") -> None:
    """Grade everybody."""
    with pool(1) as executor:
        grade_assignment(course, assignment, executor, Options(), lambda *_: None)


@pytest.fixture
def class_(course: Course, ps1: AssignmentSpec, hand_in: HandIn, one_process: OneProcess) -> Course:
    """Return the course with a graded class of six."""
    right = released(ps1)
    hand_in("ana", {"numbers.ipynb": answered(right)})
    hand_in("bea", {"numbers.ipynb": answered(right, double=SQUARE)})
    hand_in("cyd", {"numbers.ipynb": b"{"})
    hand_in("dan", {"numbers.ipynb": answered(right, double=SQUARE)})
    hand_in("eva", {"numbers.ipynb": answered(right, double=LONG)})
    renamed = LONG.replace("total", "summe").replace("seen", "liste").replace("checked", "d")
    hand_in("fay", {"numbers.ipynb": answered(right, double=f"# mine\n{renamed}")})
    grade(course)
    return course


def report(course: Course, *options: str) -> Any:
    """Run the command."""
    return CliRunner().invoke(main, ["report", "ps1", "--course", str(course.root), *options])


def page_of(course: Course, **options: Any) -> str:
    """Write the report and return its page."""
    return write_report(course, "ps1", **options)[0].read_text()


def rows_of(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file."""
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8-sig"))))


# --- what it tells -------------------------------------------------------------------------------


def test_the_command_writes_a_page_and_tables(class_: Course) -> None:
    result = report(class_)
    assert result.exit_code == 0, result.output
    folder = class_.root / "report/ps1"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "report.html",
        "students.csv",
        "tests.csv",
        "misconceptions.csv",
        "look.csv",
        "alike.csv",
    }
    assert len(result.output.splitlines()) == len(names)


def test_it_writes_where_it_is_told(class_: Course, tmp_path: Path) -> None:
    place = tmp_path / "new" / "place"
    assert report(class_, "--to", str(place)).exit_code == 0
    assert (place / "report.html").is_file()


def test_the_class_is_summed_up(class_: Course) -> None:
    text = Page(page_of(class_)).text
    assert "Handed in 6" in text and "Graded 5" in text
    assert "5 submissions: mean 5.2, median 6, the middle half from 4 to 6, of 8 points." in text
    assert "1 could not be graded" in text


def test_the_most_frequent_misconception_goes_into_the_next_lecture(class_: Course) -> None:
    text = Page(page_of(class_)).text
    lecture = text[text.index("For the next lecture") : text.index("Scores 5")]
    assert "2 of 6, in double:" in lecture
    assert "Your numbers are the squares: x times x instead of 2 times x." in lecture
    assert "double(x) is twice x, for every number." in lecture


def test_tests_have_a_pass_rate_and_a_discrimination(class_: Course) -> None:
    write_report(class_, "ps1")
    rows = {row["test"]: row for row in rows_of(class_.root / "report/ps1/tests.csv")}
    double = rows["double-values"]
    assert (double["graded"], double["passed"], double["pass_rate"]) == ("5", "3", "0.6")
    assert double["discrimination"] == "", "all other tests are passed by everybody"
    assert {row["by_hand"] for row in rows.values()} == {"yes", "no"}


def test_a_reason_in_short_is_a_reason() -> None:
    assert set(figures.SHORT) | set(figures.LOOKED_AT) | set(figures.AUTHORS) <= set(REASONS)


def test_what_is_undefined_is_a_dash(class_: Course) -> None:
    page = page_of(class_)
    assert re.search(r'class="count">\s*–</td>', page)


def test_answers_that_are_alike_stand_side_by_side(class_: Course) -> None:
    page = Page(page_of(class_))
    assert "eva and fay side by side" in page.text
    (row,) = rows_of(class_.root / "report/ps1/alike.csv")
    assert (row["student"], row["other_student"], row["cell"]) == ("eva", "fay", "double")
    assert "Likeness is no proof of copying" in page.text


def test_what_was_not_graded_is_told_with_its_reason(class_: Course) -> None:
    write_report(class_, "ps1")
    rows = rows_of(class_.root / "report/ps1/look.csv")
    told = {(row["kind"], row["student"]): row["detail"] for row in rows}
    assert "unreadable: The file is not a complete notebook" in told["Not graded", "cyd"]
    assert len(rows_of(class_.root / "report/ps1/students.csv")) == 6


def test_an_assignment_of_two_notebooks_tells_its_tests_by_notebook(
    course: Course, hand_in: HandIn, one_process: OneProcess
) -> None:
    ps2 = load_assignment(course, "ps2")
    both = {f"{name}.ipynb": answered(released(ps2, name)) for name in ("letters", "words")}
    for student in ("ana", "bea", "cyd"):
        hand_in(student, both, "ps2")
    hand_in("dan", {"letters.ipynb": both["letters.ipynb"]}, "ps2")
    grade(course, "ps2")
    page = Page(write_report(course, "ps2")[0].read_text())
    groups = [attrs for tag, attrs in page.tags if tag == "th" and attrs["scope"] == "colgroup"]
    assert len(groups) == 2
    assert "1 × notebook not handed in" in page.text


def test_a_stale_grade_is_told(class_: Course, hand_in: HandIn) -> None:
    hand_in("ana", {"numbers.ipynb": b"{"})
    grade(class_)
    text = Page(page_of(class_)).text
    assert "Stale grade" in text and "belongs to an earlier hand-in" in text


def test_points_given_by_hand_count(class_: Course) -> None:
    with Gradebook(class_) as gradebook, gradebook._transaction() as connection:
        connection.execute(sa.update(tables.grade_t).values(manual_score=1.0))
    write_report(class_, "ps1")
    scores = {
        row["student"]: row["score"] for row in rows_of(class_.root / "report/ps1/students.csv")
    }
    assert float(scores["ana"]) == float(scores["bea"])


def test_code_that_reaches_beyond_the_answer_is_told(
    class_: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    notebook = answered(released(ps1))
    notebook["cells"].append(code("import ctypes\nopen('/etc/passwd')\n", id="own"))
    hand_in("gus", {"numbers.ipynb": notebook})
    grade(class_)
    text = Page(page_of(class_)).text
    assert "imports ctypes; names the place '/etc/passwd'" in text
    assert "ask before you judge" in text


def test_what_is_refused_while_an_answer_is_tested_is_told_without_its_words(
    class_: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    tries = "def double(x):\n    raise PermissionError(f'hidden input {x}')"
    hand_in("gus", {"numbers.ipynb": answered(released(ps1), double=tries)})
    grade(class_)
    page = page_of(class_)
    assert "was refused something while it was tested" in page
    assert "hidden input" not in page.split("side by side")[0]


# --- time ----------------------------------------------------------------------------------------


@pytest.fixture
def timed(class_: Course) -> Course:
    """Return the class with a due date, hand-ins around it, and an extension for dan."""
    due = datetime(2026, 5, 4, 12, 0)
    hours = {"ana": 50, "bea": 2, "cyd": -1, "dan": -2, "eva": -30}
    with Gradebook(class_) as gradebook, gradebook._transaction() as connection:
        connection.execute(sa.update(tables.assignment_t).values(duedate=due))
        for student, before in hours.items():
            values: dict[str, Any] = {"timestamp": due - timedelta(hours=before)}
            if student == "dan":
                values["extension"] = timedelta(days=1)
            query = sa.update(tables.submitted_t).where(tables.submitted_t.c.student_id == student)
            connection.execute(query.values(**values))
        connection.execute(tables.student_t.insert().values(id="zoe"))
    return class_


def test_hand_ins_are_told_by_time_before_the_due_date(timed: Course) -> None:
    text = Page(page_of(timed)).text
    assert "due date, 2026-05-04 12:00 UTC" in text
    assert "2 to 7 days before 1" in text and "1 to 6 hours before 1" in text
    assert "6 to 24 hours before 1" in text, "dan's extension"
    assert "Late: cyd (1 hour), eva (1 day)." in text
    rows = {row["student"]: row for row in rows_of(timed.root / "report/ps1/students.csv")}
    assert (rows["ana"]["hours_before_due"], rows["dan"]["hours_before_due"]) == ("50.0", "22.0")


def test_who_handed_in_nothing_is_told(timed: Course) -> None:
    text = Page(page_of(timed)).text
    assert "Handed in 6 of 7" in text
    assert "without a hand-in that was graded: zoe." in text


def test_without_a_due_date_hand_ins_are_told_by_day(class_: Course) -> None:
    assert "The gradebook has no time of hand-in" in Page(page_of(class_)).text
    with Gradebook(class_) as gradebook, gradebook._transaction() as connection:
        day = datetime(2026, 5, 4, 12, 0)
        connection.execute(sa.update(tables.submitted_t).values(timestamp=day))
    text = Page(page_of(class_)).text
    assert "Submissions by day (UTC); the gradebook has no due date" in text
    assert "2026-05-04 6" in text


# --- names ---------------------------------------------------------------------------------------

NAMES = ("ana", "bea", "cyd", "dan", "eva", "fay")


def everything(paths: list[Path]) -> str:
    """Return the text of all files."""
    return "\n".join(path.read_text("utf-8-sig") for path in paths)


def test_hidden_names_stand_nowhere(class_: Course, ps1: AssignmentSpec, hand_in: HandIn) -> None:
    signed = answered(released(ps1), double=LONG.replace("total =", "# by eva\n        total ="))
    signed["cells"].append(code(f"open('/home/eva/x')\n{LONG}", id="eva-1"))
    hand_in("eva", {"numbers.ipynb": signed})
    grade(class_)
    written = everything(write_report(class_, "ps1", hide_names=True))
    assert not [name for name in NAMES if re.search(rf"\b{name}\b", written)]
    assert len(set(re.findall(r"student-[0-9a-f]{8}", written))) == 6
    assert "names the place" in written


def test_pseudonyms_stay_the_same_and_depend_on_a_key_of_the_course(
    class_: Course, tmp_path: Path
) -> None:
    def names(course: Course) -> list[str]:
        paths = write_report(course, "ps1", hide_names=True)
        return [row["student"] for row in rows_of(paths[1])]

    first = names(class_)
    assert names(class_) == first == sorted(first)
    key = class_.root / "report/.names-key"
    assert key.stat().st_mode & 0o077 == 0
    key.unlink()
    assert not set(names(class_)) & set(first)


# --- nothing leaks, nothing is alive -------------------------------------------------------------


def test_no_hidden_test_and_no_expected_value_is_told(
    class_: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    wrong = answered(released(ps1), double="def double(x):\n    return 2 * x if x < 3 else 7")
    hand_in("hal", {"numbers.ipynb": wrong})
    grade(class_)
    written = everything(write_report(class_, "ps1"))
    assert "SECRET" not in written and "check_double" not in written
    assert "math.fsum" not in written, "the course's answer"


HOSTILE = "<script>alert(1)</script>"


def test_names_and_answers_are_text_and_never_alive(
    class_: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    evil = LONG.replace("nothing to double", f"{HOSTILE}</code></pre><img src=x onerror=a>")
    for name in ("=1+cmd|'x'!A0", "<b>o'b & co"):
        hand_in(name, {"numbers.ipynb": answered(released(ps1), double=evil)})
    grade(class_)
    paths = write_report(class_, "ps1")
    page = Page(paths[0].read_text())
    assert not page.open
    assert not {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object", "link", "b"}
    assert not [attrs for _, attrs in page.tags if any(name.startswith("on") for name in attrs)]
    assert "<b>o'b & co" in page.text
    assert any("default-src 'none'" in (attrs.get("content") or "") for _, attrs in page.tags)
    students = {row["student"] for row in rows_of(paths[1])}
    assert "'=1+cmd|'x'!A0" in students, "a spreadsheet must not take it for a formula"


def test_the_page_loads_nothing(class_: Course) -> None:
    page = Page(page_of(class_))
    links = [attrs.get("href") for _, attrs in page.tags if "href" in attrs]
    assert links and all(link.startswith("#") for link in links if link)
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "srcset" in attrs]
    assert "url(" not in page_of(class_) and "@import" not in page_of(class_)


def test_every_table_has_a_caption_and_every_heading_a_scope(class_: Course) -> None:
    page = Page(page_of(class_))
    names = [tag for tag, _ in page.tags]
    assert names.count("table") == names.count("caption")
    assert all(attrs.get("scope") for tag, attrs in page.tags if tag == "th")
    links = {attrs["href"][1:] for tag, attrs in page.tags if tag == "a" and attrs["href"]}
    assert links <= {attrs.get("id") for _, attrs in page.tags}


# --- what can be wrong ---------------------------------------------------------------------------


def test_a_class_that_is_not_graded_has_no_report(course: Course, hand_in: HandIn) -> None:
    hand_in("ana", {"numbers.ipynb": b"{"})
    result = report(course)
    assert result.exit_code == 2
    assert "nothing of 'ps1' is graded yet" in result.output
    assert "`headmaster grade ps1` comes first" in result.output
    assert not (course.root / "report").exists()


def test_an_unknown_assignment_is_told(course: Course) -> None:
    with pytest.raises(CourseError, match="did you mean 'ps1'"):
        write_report(course, "ps11")


def test_a_class_in_which_nobody_could_be_graded_has_a_report(
    course: Course, hand_in: HandIn, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": b"{"})
    grade(course)
    text = Page(page_of(course)).text
    assert "No submission could be graded." in text and "Not graded" in text


def test_graded_notebooks_that_are_gone_or_damaged_do_no_harm(class_: Course) -> None:
    shutil.rmtree(class_.folder("autograded", "eva", "ps1"))
    broken = class_.folder("autograded", "fay", "ps1") / "numbers.ipynb"
    broken.write_text(json.dumps({"cells": [{"cell_type": "code"}, 7]}))
    assert "Answers that are alike None." in Page(page_of(class_)).text


def test_nothing_is_written_where_the_folder_is_a_file(class_: Course, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    assert report(class_, "--to", str(tmp_path / "file")).exit_code == 2
    assert (tmp_path / "file").read_text() == "mine"


# --- figures -------------------------------------------------------------------------------------


def made(points: list[tuple[float | None, ...]]) -> Class:
    """Return a class of submissions with these points in the tests t0, t1 …, 1 each at most."""

    def submission(i: int, row: tuple[float | None, ...]) -> Submission:
        records = [
            Record(
                f"t{j}", None, p, 1.0, "pass" if p else "fail", "passed" if p else "wrong-answer"
            )
            for j, p in enumerate(row)
        ]
        result = Result("ps", f"s{i}", [NotebookResult("nb", records)])
        return Submission(f"s{i}", result, {("nb", r.id): r.points for r in records})

    submissions = [submission(i, row) for i, row in enumerate(points)]
    return Class("ps", False, submissions, [], None, [])


def test_discrimination_is_the_correlation_with_the_rest() -> None:
    points = [(1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.0), (1.0, 0.0, 1.0)]
    rest = [b + c for _, b, c in points]
    expected = statistics.correlation([a for a, *_ in points], rest)
    first = figures.tests(made(points))[0]
    assert first.discrimination == pytest.approx(expected)


@pytest.mark.parametrize(
    "points",
    [
        [(1.0, 0.0), (0.0, 1.0)],  # two submissions
        [(1.0, 0.0), (1.0, 1.0), (1.0, 0.0)],  # everybody passes
        [(1.0,), (0.0,), (1.0,)],  # no other test
        [(1.0, None), (0.0, 1.0), (1.0, None)],  # no other test that is graded for everybody
    ],
)
def test_discrimination_is_undefined(points: list[tuple[float | None, ...]]) -> None:
    assert figures.tests(made(points))[0].discrimination is None


def test_bars_hold_everybody_once() -> None:
    class_ = made([(i / 10, 1.0) for i in range(11)])
    bars = figures.score_bars(class_)
    assert sum(bar.count for bar in bars) == 11
    assert [bar.label for bar in bars][::9] == ["0 to under 0.2", "1.8 to 2"]


@pytest.mark.parametrize("scores", [[], [3.0], [1.0, 2.0, 4.0]])
def test_a_distribution_of_any_size_is_summed_up(scores: list[float]) -> None:
    assert figures.summary(scores).count == len(scores)


# --- signs ---------------------------------------------------------------------------------------


def attacks() -> Iterator[Any]:
    """Yield the attacks on the grader."""
    import sys

    sys.path.insert(0, str(Path(__file__).parents[2]))
    from tests.attacks.corpus import ATTACKS

    yield from ATTACKS


def test_attacks_on_the_machine_leave_signs() -> None:
    groups = (
        "frames, memory and the heap",
        "stealing the answer",
        "writing outside, and staying",
        "other processes, and the next submission",
    )
    reaching = [attack for attack in attacks() if attack.group in groups]
    places = {"DECOY", "COURSE", "GRADEBOOK", "OTHER"}  # an attacker has to write them out
    shown = [re.sub(rf"\b({'|'.join(places)})\b", "'/home/x/file'", a.code) for a in reaching]
    found = [source for source in shown if signs_in(source, ("library", "secret_tests"))]
    assert len(found) >= 0.85 * len(shown)


def test_right_answers_in_many_styles_leave_none() -> None:
    from tests.hidden.__main__ import exercises

    ways: Callable[[Any], list[Any]] = lambda spec: list(spec.alternatives.values())  # noqa: E731
    specs = [spec for exercise in exercises() for spec in exercise.functions.values()]
    signs = {way.name: signs_in(way.source) for spec in specs for way in ways(spec)}
    assert not {name: found for name, found in signs.items() if found}


def test_a_hidden_import_is_a_sign_and_a_shown_one_is_none() -> None:
    hide, show = ("library", "tests"), ("library.check",)
    assert signs_in("from library.answers import f", hide, show) == ["imports library.answers.f"]
    assert signs_in("import tests.hidden", hide, show) == ["imports tests.hidden"]
    assert not signs_in("from library.check import check\nimport library.check", hide, show)


def test_what_confinement_refused_is_a_sign() -> None:
    refused = {"output_type": "error", "ename": "PermissionError", "evalue": "not yours"}
    assert signs_in_outputs([refused]) == ["was refused: PermissionError: not yours"]
    assert not signs_in_outputs([{"output_type": "stream", "text": "PermissionError"}, None, 7])


def test_a_cell_of_the_course_is_nobodys_sign(class_: Course, ps1: AssignmentSpec) -> None:
    assert cell(released(ps1), "setup")["source"]
    write_report(class_, "ps1")
    kinds = {row["kind"] for row in rows_of(class_.root / "report/ps1/look.csv")}
    assert "Reached beyond the answer" not in kinds
