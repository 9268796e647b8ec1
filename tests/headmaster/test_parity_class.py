"""The course's sample class: graded as it deserves, and by stock nbgrader alike where that can."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import nbgrader_api

from headmaster.course import Course
from headmaster.marking import Options, grade_assignment
from headmaster.pool import pool
from headmaster.records import Result

ROOT = Path(__file__).resolve().parents[2]
CLASS = ROOT / "tests" / "class"
ASSIGNMENT = "02_scaled_dot_product"
NOTEBOOK = "scaled_dot_product"
NAME = re.compile(r"(?P<student>[A-Za-z0-9-]+)_(?P<notebook>[a-z_]+?)([ -]?\(\d+\)| copy)?\.ipynb")
PLAIN = ("ada", "emma", "goran")  # whose files are as stock nbgrader wants them

pytestmark = pytest.mark.skipif(not CLASS.is_dir(), reason="the sample class is not here")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a course with the sample class's hand-ins for one exercise."""
    folder = tmp_path_factory.mktemp("class") / "course"
    shutil.copytree(ROOT / "solutions" / ASSIGNMENT, folder / "source" / ASSIGNMENT)
    config = "c = get_config()\nc.OverwriteCells.add_missing_cells = True\nc.Execute.timeout = 60\n"
    config += f"c.Headmaster.trusted_path = [{str(ROOT)!r}]\n"
    (folder / "nbgrader_config.py").write_text(config)
    for file in (CLASS / "downloads" / ASSIGNMENT).iterdir():
        student = NAME.fullmatch(file.name)["student"]
        place = folder / "submitted" / student / ASSIGNMENT
        place.mkdir(parents=True)
        shutil.copy(file, place / f"{NOTEBOOK}.ipynb")
    return folder


@pytest.fixture(scope="module")
def graded(folder: Path) -> Iterator[dict[str, Result]]:
    """Grade the class by headmaster."""
    with pool(2) as executor:
        course = Course.open(folder)
        items = grade_assignment(course, ASSIGNMENT, executor, Options(seed=1), lambda *_: None)
    assert not any(item.trouble for item in items)
    yield {item.result.student: item.result for item in items}


def points(result: Result) -> dict[str, float | None]:
    """Return the points of the tests."""
    return {record.id: record.points for record in result.records if "question" not in record.id}


def test_everybody_gets_what_they_deserve(graded: dict[str, Result]) -> None:
    expected: dict[str, Any] = json.loads((CLASS / "expected.json").read_text())[ASSIGNMENT]
    assert set(graded) == set(expected)
    for student, deserved in expected.items():
        result = graded[student]
        if deserved is None:
            assert result.ungraded.reason == "unreadable"
            continue
        assert points(result) == deserved["points"], student
        assert sorted(result.misconceptions) == sorted(deserved["misconceptions"]), student


def test_stock_nbgrader_gives_the_same_points(graded: dict[str, Result], folder: Path) -> None:
    stock = folder.parent / "stock"
    shutil.copytree(folder, stock, ignore=shutil.ignore_patterns("autograded", "feedback", "*.db"))
    with pytest.MonkeyPatch.context() as patch:
        bins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        for name, value in (("PATH", bins), ("PYTHONPATH", str(ROOT)), ("GRADING_SEED", "1")):
            patch.setenv(name, value)
        api = nbgrader_api(stock)
        answer = api.generate_assignment(ASSIGNMENT)
        assert answer["success"], answer["log"]
        for student in PLAIN:
            answer = api.autograde(ASSIGNMENT, student)
            assert answer["success"], answer["log"]
        with api.gradebook as gradebook:
            for student in PLAIN:
                notebook = gradebook.find_submission_notebook(NOTEBOOK, ASSIGNMENT, student)
                given = {g.name: g.auto_score for g in notebook.grades if "question" not in g.name}
                assert given == points(graded[student]), student
