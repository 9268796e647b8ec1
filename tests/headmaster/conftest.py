"""A tiny course, submissions to it, and an engine that runs everything in this process."""

from __future__ import annotations

import ast
import contextlib
import copy
import io
import json
import os
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from headmaster.course import Course
from headmaster.job import CellResult, Job, Outcome
from headmaster.release import AssignmentSpec, load_assignment

HERE = Path(__file__).parent

ANSWERS = {
    "double": "def double(x):\n    return 2 * x",
    "mean": "def mean(values):\n    return sum(values) / len(values)",
    "why": "Nothing can be divided by zero.",
    "shout": "def shout(word):\n    return word.upper() + '!'",
    "count": (
        "def count(text):\n"
        "    if text is None:\n"
        "        text = open('words.txt').read()\n"
        "    return len(text.split())"
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a fresh copy of the tiny course."""
    return Path(shutil.copytree(HERE / "course", tmp_path / "course"))


@pytest.fixture
def course(folder: Path) -> Course:
    """Return the tiny course, opened."""
    return Course.open(folder)


@pytest.fixture
def ps1(course: Course) -> AssignmentSpec:
    """Return the spec of the assignment with one notebook and a text question."""
    return load_assignment(course, "ps1")


Notebook = dict[str, Any]


def released(spec: AssignmentSpec, name: str | None = None) -> Notebook:
    """Return a notebook as students receive it."""
    notebook = next(n for n in spec.notebooks if name in (None, n.name))
    cells = [
        {
            "cell_type": cell.cell_type,
            "id": cell.id,
            "metadata": {}
            if cell.role == "free"
            else {
                "nbgrader": {
                    "grade_id": cell.id,
                    "grade": cell.graded,
                    "solution": cell.role in ("solution", "manual"),
                    "locked": cell.role in ("test", "locked"),
                    "points": cell.points,
                    "schema_version": 3,
                }
            },
            "source": cell.released,
            **({"outputs": [], "execution_count": None} if cell.cell_type == "code" else {}),
        }
        for cell in notebook.cells
    ]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def cell(notebook: Notebook, cell_id: str) -> Notebook:
    """Return the cell with this id."""
    return next(c for c in notebook["cells"] if c["id"] == cell_id)


def index(notebook: Notebook, cell_id: str) -> int:
    """Return where the cell with this id stands."""
    return next(i for i, c in enumerate(notebook["cells"]) if c["id"] == cell_id)


def answered(notebook: Notebook, **answers: str) -> Notebook:
    """Return the notebook with the right answers, or with the given ones."""
    notebook = copy.deepcopy(notebook)
    for item in notebook["cells"]:
        if item["id"] in ANSWERS:
            item["source"] = answers.get(item["id"], ANSWERS[item["id"]])
    return notebook


def code(source: str, **more: Any) -> Notebook:
    """Return a code cell without any metadata."""
    return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], **more}


def write_notebook(path: Path, notebook: Notebook) -> None:
    """Write a notebook and the folder that it stands in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(notebook))


HandIn = Callable[..., Path]


@pytest.fixture
def hand_in(course: Course) -> HandIn:
    """Return a function that hands in notebooks (dicts, text or bytes) for a student."""

    def put(student: str, notebooks: dict[str, Any], assignment: str = "ps1") -> Path:
        place = course.folder("submitted", student, assignment)
        place.mkdir(parents=True, exist_ok=True)
        for name, content in notebooks.items():
            data = (
                content
                if isinstance(content, bytes)
                else (content if isinstance(content, str) else json.dumps(content)).encode()
            )
            (place / name).write_bytes(data)
        return place

    return put


class OneProcess:
    """An engine without walls, for tests of what happens before and after it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.jobs: list[Job] = []
        self.before: Callable[[Job], None] = lambda job: None

    def run(self, job: Job) -> Outcome:
        """Run all cells in one namespace; one job at a time, for they share the process."""
        with self.lock:
            self.jobs.append(job)
            self.before(job)
            return self._run(job)

    def _run(self, job: Job) -> Outcome:
        space: dict[str, Any] = {"__name__": "__main__"}
        here = os.getcwd()
        with _path(job.trusted_path), contextlib.redirect_stdout(io.StringIO()):
            os.environ["GRADING_SEED"] = str(job.seed)
            os.chdir(job.files or here)
            try:
                results = tuple(_run(item.id, item.source, space) for item in job.cells)
            finally:
                os.chdir(here)
        return Outcome(results, {"rlimits": True, "landlock": "pretended"}, job.seed)


def _run(cell_id: str, source: str, space: dict[str, Any]) -> CellResult:
    try:
        tree = ast.parse(source)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, cell_id, "exec"), space)
        value = eval(compile(ast.Expression(last.value), cell_id, "eval"), space) if last else None
    except BaseException as error:
        record = getattr(error, "record", None)
        name, text = type(error).__name__, str(error)
        output = {"output_type": "error", "ename": name, "evalue": text, "traceback": [text]}
        return CellResult(cell_id, "error", (output,), name, text, record)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return CellResult(
        cell_id, "ok", value=float(value) if number else None, has_value=value is not None
    )


@contextlib.contextmanager
def _path(folders: tuple[str, ...]) -> Iterator[None]:
    before = list(sys.path)
    sys.path[:0] = folders
    try:
        yield
    finally:
        sys.path[:] = before
        for name in [n for n in sys.modules if n.split(".")[0] == "graders"]:
            del sys.modules[name]


@pytest.fixture
def one_process(monkeypatch: pytest.MonkeyPatch) -> OneProcess:
    """Replace the engine of this process by one without walls."""
    engine = OneProcess()
    monkeypatch.setattr("headmaster.pool._engine", lambda: engine)
    return engine


def nbgrader_api(folder: Path) -> Any:
    """Return stock nbgrader's API for a course, with its sources as notebooks."""
    from headmaster.light import skip_slow_grammar

    skip_slow_grammar()
    import jupytext
    from nbgrader.apps.api import NbGraderAPI
    from traitlets.config import Config

    for text in (folder / "source").rglob("*.md"):
        jupytext.write(jupytext.read(text), text.with_suffix(".ipynb"))
        text.unlink()
    config = Course.open(folder).config
    config.merge(Config({"CourseDirectory": {"root": str(folder)}}))
    return NbGraderAPI(config=config)


class Page(HTMLParser):
    """What a browser makes of the page: its tags and its words."""

    VOID = ("meta", "br", "wbr", "img", "rect", "line")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        """Return the words with single spaces."""
        return re.sub(r" ([.,;:)])", r"\1", " ".join(" ".join(self.words).split()))
