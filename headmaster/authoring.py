"""From an exercise's text to the notebook that students get, by nbgrader's own generate_assignment.

The text is a MyST notebook, `topic.md`. It becomes `topic.ipynb` beside it (a product, not kept in
version control), from which nbgrader makes the release: in a folder and a gradebook of its own, so
that a release that fails changes nothing, and grades that are there are never in its way.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook
from headmaster.release import load_assignment

if TYPE_CHECKING:
    from nbformat import NotebookNode


def release(course: Course, assignment: str) -> list[Path]:
    """Make the released notebooks of an assignment and return them.

    Raises CourseError with nbgrader's log where nbgrader refuses.
    """
    course.require_assignment(assignment)
    texts = sorted(course.folder("source", ".", assignment).glob("*.md"))
    for text in texts:
        write_notebook(text)
    with tempfile.TemporaryDirectory(prefix="release-", dir=course.root) as place:
        apart = _apart(course, Path(place))
        _generate(apart, assignment)
        made = apart.folder("release", ".", assignment)
        for path in made.glob("*.ipynb"):
            _settle(path)
        with Gradebook(course) as gradebook:
            gradebook.register(load_assignment(course, assignment))
        there = _exchange(made, course.folder("release", ".", assignment))
    return sorted(there.glob("*.ipynb"))


def _apart(course: Course, place: Path) -> Course:
    """Return the course as it would be with nothing released or graded, in a folder of its own."""
    config = copy.deepcopy(course.config)
    config.CourseDirectory.release_directory = str(place / "release")
    config.CourseDirectory.db_url = f"sqlite:///{place / 'gradebook.db'}"
    apart = Course(course.root, config)
    with Gradebook(apart):  # makes it whole
        pass
    return apart


def _exchange(made: Path, there: Path) -> Path:
    """Put the new release in the place of the old one, which is gone only when that has worked."""
    there.parent.mkdir(parents=True, exist_ok=True)
    old = made.parent / "replaced"
    if there.exists():
        shutil.move(there, old)
    try:
        shutil.move(made, there)
    except OSError:
        if old.exists():
            shutil.move(old, there)
        raise
    return there


def write_notebook(text: Path) -> Path:
    """Write a MyST text as the notebook beside it."""
    import nbformat

    path = text.with_suffix(".ipynb")
    nbformat.write(read_text(text), path)
    return path


def read_text(text: Path) -> NotebookNode:
    """A MyST text as a notebook whose cells have stable ids: nbgrader's where they have one."""
    import jupytext

    notebook = jupytext.read(text)
    notebook.metadata.pop("jupytext", None)
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for cell, name in zip(notebook.cells, _ids(notebook), strict=True):
        cell["id"] = name
    return notebook


def _ids(notebook: NotebookNode) -> Iterator[str]:
    for index, cell in enumerate(notebook.cells):
        grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
        yield grade_id or f"cell-{index}"


def _generate(course: Course, assignment: str) -> None:
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    config = Config(course.config)
    config.CourseDirectory.root = str(course.root)
    result = NbGraderAPI(config=config).generate_assignment(assignment, force=True, create=True)
    if not result["success"]:
        raise CourseError(f"nbgrader did not release {assignment}:\n{result['log'].strip()}")


def _settle(path: Path) -> None:
    """Leave out of a released notebook what changes from machine to machine."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    notebook["metadata"].pop("language_info", None)
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True)
    path.write_text(text + "\n", encoding="utf-8")
