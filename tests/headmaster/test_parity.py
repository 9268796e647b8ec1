"""The same class graded by stock nbgrader and by headmaster: equal gradebooks, cell by cell.

Where stock nbgrader is provably wrong, the case is listed, with what it does and what headmaster
does instead.
"""

from __future__ import annotations

import inspect
import os
import shutil
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, answered, cell, code, nbgrader_api, released, write_notebook

from headmaster import nbgrader_plugin
from headmaster.course import Course
from headmaster.engine import Engine
from headmaster.grading import grade
from headmaster.job import Cell, Job, Outcome
from headmaster.light import skip_slow_grammar
from headmaster.marking import Options, grade_assignment
from headmaster.matching import Assembly, PlacedCell
from headmaster.pool import pool, run_task
from headmaster.records import Record
from headmaster.release import NotebookSpec, SpecCell, load_assignment


@pytest.fixture(scope="module")
def graded_twice(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Grade the same class both ways; return the two course folders."""
    stock, ours = (tmp_path_factory.mktemp(name) / "course" for name in ("stock", "ours"))
    for folder in (stock, ours):
        shutil.copytree(HERE / "course", folder)
        hand_in_all(Course.open(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", str(stock))
        api = nbgrader_api(stock)
        assert api.generate_assignment("ps1")["success"]
        for student in STUDENTS:
            answer = api.autograde("ps1", student)
            assert answer["success"], answer["log"]
    with pool(2) as executor:
        grade_assignment(Course.open(ours), "ps1", executor, Options(), lambda *_: None)
    yield stock, ours


STUDENTS = ("ana", "bob", "cyd", "dora")


def hand_in_all(course: Course) -> None:
    """Hand in: all right, two kinds of wrong, nothing done, and a cell of one's own that fails."""
    ps1 = load_assignment(course, "ps1")
    wrong = {"double": "def double(x):\n    return x * x", "mean": "def mean(v):\n    return v[0]"}
    extra = answered(released(ps1), mean="def mean(v:\n    return")
    extra["cells"].insert(2, code("print('hello')\n1 / 0"))
    notebooks = {
        "ana": answered(released(ps1)),
        "bob": answered(released(ps1), **wrong),
        "cyd": released(ps1),
        "dora": extra,
    }
    for student, notebook in notebooks.items():
        write_notebook(course.folder("submitted", student, "ps1") / "numbers.ipynb", notebook)


def test_the_gradebooks_are_equal(graded_twice: tuple[Path, Path]) -> None:
    stock, ours = (rows(folder) for folder in graded_twice)
    assert ours == stock
    assert len(stock) == 7 * len(STUDENTS)


def rows(folder: Path) -> dict[tuple[str, ...], tuple[Any, ...]]:
    """Return all grades and comments of a course's gradebook."""
    with nbgrader_api(folder).gradebook as gradebook:
        submissions = gradebook.assignment_submissions("ps1")
        notebooks = [notebook for item in submissions for notebook in item.notebooks]
        grades = {
            (n.student.id, "grade", g.name): (g.auto_score, g.manual_score, g.needs_manual_grade)
            for n in notebooks
            for g in n.grades
        }
        comments = {
            (n.student.id, "comment", c.name): (c.auto_comment,)
            for n in notebooks
            for c in n.comments
        }
    return {**grades, **comments}


def test_stock_feedback_can_be_made_of_the_result(graded_twice: tuple[Path, Path]) -> None:
    _, ours = graded_twice
    page = ours / "feedback" / "bob" / "ps1" / "numbers.html"
    assert "headmaster-fingerprint" in page.read_text()
    answer = nbgrader_api(ours).generate_feedback("ps1", "bob", force=True)
    assert answer["success"], answer["log"]
    text = page.read_text()
    assert "headmaster-fingerprint" not in text
    assert "numbers (Score: 2.0 / 8.0)" in text


def test_stock_export_reads_the_result(graded_twice: tuple[Path, Path], tmp_path: Path) -> None:
    from nbgrader.plugins import CsvExportPlugin

    _, ours = graded_twice
    plugin = CsvExportPlugin(to=str(tmp_path / "grades.csv"))
    with nbgrader_api(ours).gradebook as gradebook:
        plugin.export(gradebook)
    lines = (tmp_path / "grades.csv").read_text().splitlines()
    scores = {line.split(",")[3]: line.split(",")[-2] for line in lines[1:]}
    assert (scores["ana"], scores["bob"]) == ("6.0", "2.0")


def test_formgrader_finds_every_submission(graded_twice: tuple[Path, Path]) -> None:
    _, ours = graded_twice
    found = nbgrader_api(ours).get_submissions("ps1")
    assert [item["student"] for item in found] == list(STUDENTS)
    assert all(item["autograded"] and item["needs_manual_grade"] for item in found[:2])
    notebooks = nbgrader_api(ours).get_notebook_submissions("ps1", "numbers")
    assert {item["student"]: item["score"] for item in notebooks}["ana"] == 6.0


def test_nbgrader_itself_can_use_the_engine_by_one_line(
    graded_twice: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_seen: list[Any] = []

    def seen(task: Any) -> Outcome:
        job_seen.append(task.job)
        return run_task(task)

    monkeypatch.setattr(nbgrader_plugin, "run_task", seen)
    stock, _ = graded_twice
    folder = Path(shutil.copytree(stock, tmp_path / "course"))
    shutil.rmtree(folder / "autograded")
    with sqlite3.connect(folder / "gradebook.db") as connection:
        connection.execute("update grade set auto_score = null")
    config = folder / "nbgrader_config.py"
    documented = nbgrader_plugin.__doc__.split("kernel:")[1].split("nbgrader then")[0]
    config.write_text(config.read_text() + inspect.cleandoc(documented) + "\n")
    api = nbgrader_api(folder)
    for student in STUDENTS:
        answer = api.autograde("ps1", student)
        assert answer["success"], answer["log"]
    assert rows(folder) == rows(stock)
    assert len(job_seen) == len(STUDENTS)


# --- where stock nbgrader is provably wrong ------------------------------------------------------
#
# | a test cell …                          | stock nbgrader        | headmaster               |
# |----------------------------------------|-----------------------|--------------------------|
# | that passes, and warns on stderr       | no points             | full points              |
# | whose score is np.float64(0.0)         | full points           | 0 points                 |
# | whose score is nan                     | nan or a crash        | 0 points, "bad-score"    |
# | whose score is −1                      | a crash, or full      | 0 points, "bad-score"    |
# | whose score is above the maximum       | a crash               | 0 points, "bad-score"    |
# | tagged skip-execution by the student   | full points           | it runs                  |
# | whose answer rewrites its output       | what the answer says  | what the test says       |

STUDENT = "import sys, warnings\nimport numpy as np\ndef f(x):\n    return x"


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    """Return one engine for the cases below."""
    with Engine() as engine:
        yield engine


def verdicts(engine: Engine, test: str, student: str = STUDENT) -> tuple[Record, Any]:
    """Return headmaster's record for a test cell worth 3 points, and the cell that it leaves."""
    placed = (
        PlacedCell("a", "code", student, kind="student"),
        PlacedCell("t", "code", test, SpecCell("t", "code", "test", test, test, 3.0), "test"),
    )
    job = Job("ps", "nb", "ana", tuple(Cell(c.id, c.kind, c.source) for c in placed))
    outcome: Outcome = engine.run(job)
    spec = NotebookSpec("nb", (placed[1].spec,), {})
    result = grade(spec, Assembly(placed, (), ()), outcome)
    return result.records[0], result.cells[1]


def stock_points(output: dict[str, Any] | None) -> float | None:
    """Return what stock nbgrader gives a test cell worth 3 points for one output."""
    skip_slow_grammar()
    import nbformat
    from nbgrader.utils import determine_grade

    metadata = {"nbgrader": {"grade": True, "solution": False, "grade_id": "t", "points": 3.0}}
    outputs = [nbformat.from_dict(output)] if output else []
    made = nbformat.v4.new_code_cell("f()", metadata=metadata, outputs=outputs)
    return determine_grade(made)[0]


def result_output(text: str) -> dict[str, Any]:
    """Return the output of a cell whose last expression shows as this text."""
    return {
        "output_type": "execute_result", "data": {"text/plain": text}, "metadata": {},
        "execution_count": 1,
    }  # fmt: skip


def test_a_warning_costs_points_under_stock_only(engine: Engine) -> None:
    stderr = {"output_type": "stream", "name": "stderr", "text": "UserWarning: careful"}
    assert stock_points(stderr) == 0
    record, _ = verdicts(engine, "import warnings\nwarnings.warn('careful')\nassert f(1) == 1")
    assert (record.points, record.verdict) == (3.0, "pass")


def test_a_numpy_zero_counts_full_under_stock_only(engine: Engine) -> None:
    assert stock_points(result_output("np.float64(0.0)")) == 3.0
    record, _ = verdicts(engine, "import numpy as np\nnp.float64(0.0) * f(1)")
    assert (record.points, record.reason) == (0.0, "partial")


def test_a_score_that_is_not_a_number_counts_nothing(engine: Engine) -> None:
    assert stock_points(result_output("-1.0")) == 3.0
    for score in ("float('nan')", "float('inf')", "-1.0", "3.5"):
        record, _ = verdicts(engine, score)
        assert (record.points, record.verdict, record.reason) == (0.0, "error", "bad-score")


def test_a_partial_score_counts_as_under_stock(engine: Engine) -> None:
    for score in ("0", "1.5", "3", "3.0"):
        record, left = verdicts(engine, score)
        assert record.points == stock_points(left["outputs"][0]) == float(score)


def test_a_text_as_last_expression_passes_as_under_stock(engine: Engine) -> None:
    record, left = verdicts(engine, "'all tests passed'")
    assert record.points == stock_points(left["outputs"][0]) == 3.0


def test_an_answer_cannot_write_the_tests_output(engine: Engine) -> None:
    cheat = (
        "import sys\ndef f(x):\n    import IPython\n"
        "    IPython.get_ipython().displayhook(3.0)\n    raise KeyboardInterrupt"
    )
    assert stock_points(result_output("3.0")) == 3.0
    record, _ = verdicts(engine, "assert f(1) == 2", cheat)
    assert record.points == 0.0


def test_a_tag_skips_a_test_under_stock_only(graded_twice: tuple[Path, Path]) -> None:
    stock, ours = graded_twice
    ps1 = load_assignment(Course.open(ours), "ps1")
    tagged = answered(released(ps1), double="def double(x):\n    return 0")
    cell(tagged, "double-values")["metadata"]["tags"] = ["skip-execution"]
    for folder in (stock, ours):
        course = Course.open(folder)
        write_notebook(course.folder("submitted", "tagger", "ps1") / "numbers.ipynb", tagged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(stock))
        assert nbgrader_api(stock).autograde("ps1", "tagger")["success"]
    with pool(1) as executor:
        options = Options(students=("tagger",))
        grade_assignment(Course.open(ours), "ps1", executor, options, lambda *_: None)
    of_stock, of_ours = (
        rows(folder)["tagger", "grade", "double-values"] for folder in (stock, ours)
    )
    assert of_stock[0] == 2.0
    assert of_ours[0] == 0.0
