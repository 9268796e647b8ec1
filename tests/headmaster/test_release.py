"""The spec of an assignment agrees with what nbgrader itself makes of the source."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import HERE, nbgrader_api

from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook
from headmaster.release import AssignmentSpec, load_assignment


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the tiny course as stock nbgrader has released and registered it."""
    folder = tmp_path_factory.mktemp("stock") / "course"
    shutil.copytree(HERE / "course", folder)
    with pytest.MonkeyPatch.context() as patch:  # nbgrader needs `alembic` on its PATH
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        api = nbgrader_api(folder)
        for name in ("ps1", "ps2"):
            assert api.generate_assignment(name)["success"]
    return folder


def rows(folder: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return what a course's gradebook knows of the assignments."""
    with nbgrader_api(folder).gradebook as gradebook:
        return {
            f"{assignment.name}/{notebook.name}": sorted(
                (cell.name, cell.cell_type, cell.locked, cell.source, cell.checksum)
                for cell in notebook.source_cells
            )
            + sorted((cell.name, cell.max_score, cell.cell_type) for cell in notebook.grade_cells)
            + sorted((cell.name,) for cell in notebook.solution_cells)
            for assignment in gradebook.assignments
            for notebook in assignment.notebooks
        }


def register(folder: Path) -> None:
    """Register both assignments by headmaster."""
    course = Course.open(folder)
    with Gradebook(course) as gradebook:
        for name in ("ps1", "ps2"):
            gradebook.register(load_assignment(course, name))


def test_the_gradebook_is_registered_as_nbgrader_does_it(stock: Path, folder: Path) -> None:
    register(folder)
    assert rows(folder) == rows(stock)


def test_registering_over_nbgraders_own_work_changes_nothing(stock: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(stock, tmp_path / "copy"))
    register(copy)
    assert rows(copy) == rows(stock)


def test_what_is_released_is_what_nbgrader_releases(stock: Path) -> None:
    course = Course.open(stock)
    for name in ("ps1", "ps2"):
        for notebook in load_assignment(course, name).notebooks:
            path = stock / "release" / name / f"{notebook.name}.ipynb"
            released = json.loads(path.read_text())["cells"]
            sources = ["".join(cell["source"]) for cell in released]
            assert [cell.released for cell in notebook.cells] == sources


def test_the_text_and_the_notebook_made_of_it_give_the_same_spec(folder: Path) -> None:
    text = load_assignment(Course.open(folder), "ps1")
    nbgrader_api(folder)
    made = load_assignment(Course.open(folder), "ps1")
    assert made.notebooks[0].cells == text.notebooks[0].cells


def test_tests_know_their_function(ps1: AssignmentSpec) -> None:
    functions = {cell.id: cell.function for cell in ps1.notebooks[0].tests}
    assert functions == {"double-values": "double", "double-zero": "double", "mean-score": "mean"}


def test_the_fingerprint_follows_the_modules_that_tests_import(
    course: Course, ps1: AssignmentSpec
) -> None:
    module = course.root / "graders" / "numbers.py"
    assert load_assignment(course, "ps1").fingerprint == ps1.fingerprint
    module.write_text(module.read_text() + "\n# a new case\n")
    assert load_assignment(course, "ps1").fingerprint != ps1.fingerprint


def test_the_fingerprint_ignores_what_tests_do_not_import(
    course: Course, ps1: AssignmentSpec
) -> None:
    (course.root / "graders" / "unrelated.py").write_text("x = 1\n")
    assert load_assignment(course, "ps1").fingerprint == ps1.fingerprint


def test_an_unknown_assignment_gets_the_list_of_those_there_are(course: Course) -> None:
    with pytest.raises(CourseError, match=r"no assignment 'ps3'.*there are: ps1, ps2"):
        load_assignment(course, "ps3")


BROKEN = {
    "### END SOLUTION": "BEGIN SOLUTION without END SOLUTION",
    "### END HIDDEN TESTS": "BEGIN HIDDEN TESTS without END HIDDEN TESTS",
}


@pytest.mark.parametrize("line", BROKEN)
def test_an_unfinished_region_is_named(line: str, course: Course) -> None:
    source = course.root / "source" / "ps1" / "numbers.md"
    source.write_text(source.read_text().replace(line, "", 1))
    with pytest.raises(CourseError, match=BROKEN[line]):
        load_assignment(course, "ps1")


def test_a_cell_id_that_stands_twice_is_named(course: Course) -> None:
    source = course.root / "source" / "ps1" / "numbers.md"
    source.write_text(source.read_text().replace("double-zero", "double-values"))
    with pytest.raises(CourseError, match="more than once: double-values"):
        load_assignment(course, "ps1")


def test_a_test_cell_that_is_not_python_is_named(course: Course) -> None:
    source = course.root / "source" / "ps1" / "numbers.md"
    source.write_text(source.read_text().replace("assert double(2) == 4", "assert double(2 == 4"))
    with pytest.raises(CourseError, match="the test cell double-values is not valid Python"):
        load_assignment(course, "ps1")


def test_a_notebook_in_another_language_is_named(course: Course) -> None:
    source = course.root / "source" / "ps1" / "numbers.md"
    source.write_text(source.read_text().replace("language: python", "language: R"))
    with pytest.raises(CourseError, match="a notebook in R; headmaster grades Python"):
        load_assignment(course, "ps1")


@pytest.mark.parametrize("order", ["student_id assignment_id", "assignment_id student_id"])
def test_students_are_found_in_any_order_of_folders(order: str, folder: Path) -> None:
    first, second = (f"{{{name}}}" for name in order.split())
    config = folder / "nbgrader_config.py"
    structure = f"{{nbgrader_step}}/{first}/{second}"
    line = f"c.CourseDirectory.directory_structure = {structure!r}\n"
    config.write_text(config.read_text() + line)
    course = Course.open(folder)
    for student in ("ana", "béa", "c.d"):
        course.folder("submitted", student, "ps1").mkdir(parents=True)
    assert course.students("ps1") == ["ana", "béa", "c.d"]


def test_a_configuration_with_a_mistake_is_named(folder: Path) -> None:
    (folder / "nbgrader_config.py").write_text("c = get_config()\nnonsense")
    with pytest.raises(CourseError, match="NameError"):
        Course.open(folder)
