"""Feedback for students: one self-contained HTML page per notebook.

It tells, per test, what was expected, what happened and what helps; it never shows a hidden test,
an expected value of one, or what the student's code printed while it was tested. Everything that
came from the student is escaped text, and the page allows no script at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from headmaster.autograded import replace_file
from headmaster.course import Course
from headmaster.gradebook import Marks
from headmaster.intake import TIMESTAMP
from headmaster.records import REASONS, NotebookResult, Record, Result
from headmaster.release import AssignmentSpec, NotebookSpec

TEMPLATES = Path(__file__).parent / "templates"
MAX_TEXT = 10_000  # characters of one output
_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]+")

LABELS = {
    "pass": "Passed",
    "fail": "Not yet",
    "error": "Error",
    "partial": "Partly",
    "manual": "To be graded",
    "not graded": "Not graded",
}


@dataclass(frozen=True)
class Row:
    """One test as the page shows it."""

    record: Record
    points: float | None
    label: str
    css: str
    told: str
    visible: str  # the part of the test that students have
    comment: str

    @property
    def passed(self) -> bool:
        """Say whether there is nothing left to do."""
        return self.css == "pass"


def write(course: Course, spec: AssignmentSpec, result: Result, marks: Marks) -> list[Path]:
    """Write a submission's feedback pages where nbgrader would, and return their paths."""
    paths = []
    for notebook in result.notebooks:
        if notebook.missing:
            continue
        source = next(item for item in spec.notebooks if item.name == notebook.name)
        path = _path(course, result, notebook.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        page = render(source, result, notebook, marks)
        replace_file(path, page.encode("utf-8", "replace"))
        paths.append(path)
    _pass_on(course, result)
    return paths


def _pass_on(course: Course, result: Result) -> None:
    """Copy what `nbgrader release_feedback` reads beside the pages of the exchange's hand-ins."""
    here = course.folder("autograded", result.student, result.assignment)
    there = course.folder("feedback", result.student, result.assignment)
    for name in (TIMESTAMP, "submission_secret.txt"):
        if (here / name).is_file() and there.is_dir():
            replace_file(there / name, (here / name).read_bytes())


def complete(course: Course, result: Result) -> bool:
    """Say whether all pages of this result are there."""
    names = [notebook.name for notebook in result.notebooks if not notebook.missing]
    return all(_carries(_path(course, result, name), result.fingerprint) for name in names)


def _path(course: Course, result: Result, notebook: str) -> Path:
    return course.folder("feedback", result.student, result.assignment) / f"{notebook}.html"


def _carries(path: Path, fingerprint: str) -> bool:
    try:
        with open(path, "rb") as file:
            return fingerprint.encode() in file.read(2048)
    except OSError:
        return False


def render(spec: NotebookSpec, result: Result, notebook: NotebookResult, marks: Marks) -> str:
    """Return the page for one notebook."""
    rows = [_row(spec, notebook, record, marks) for record in notebook.records]
    late = marks.late.get(notebook.name, 0.0)
    score = sum(row.points or 0.0 for row in rows)
    return _template().render(
        result=result,
        notebook=notebook,
        rows=rows,
        score=score - late,
        late=late,
        max=sum(record.max for record in notebook.records),
        passed=sum(row.passed for row in rows),
        waiting=sum(row.points is None for row in rows),
        refusal=notebook.refusal,
        unconfined=notebook.unconfined,
        cells=[_shown_cell(cell) for cell in notebook.cells if _is_students(cell)],
    )


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["points"] = lambda value: "–" if value is None else f"{value:g}"
    return environment.get_template("feedback.html")


def _row(spec: NotebookSpec, notebook: NotebookResult, record: Record, marks: Marks) -> Row:
    cell = spec[record.id]
    key = (notebook.name, record.id)
    manual, extra = marks.scores.get(key, (None, None))
    points = record.points if manual is None else manual
    if extra:
        points = (points or 0.0) + extra
    css = _css(record, points)
    told = "" if css == "pass" else record.told or REASONS[record.reason]
    if manual is not None:
        told = ""
    visible = cell.released.strip() if cell.role == "test" else ""
    comment = marks.comments.get(key, "")
    return Row(record, points, LABELS[css], css.replace(" ", "-"), told, visible, comment)


def _css(record: Record, points: float | None) -> str:
    if record.reason == "manual":
        if points is None:
            return "manual"
        return "pass" if points >= record.max else "partial"
    if record.verdict == "fail" and points:
        return "partial"
    return record.verdict


# --- the student's own cells ---------------------------------------------------------------------


def _is_students(cell: dict[str, Any]) -> bool:
    """Say whether a cell was written by the student; tests and released cells are left out."""
    meta = cell["metadata"].get("nbgrader")
    if not cell["source"].strip():
        return False
    return bool(meta["solution"]) if meta else cell["cell_type"] == "code"


@dataclass(frozen=True)
class Output:
    """An output as plain text or as a PNG picture; anything livelier is left out."""

    text: str = ""
    png: str = ""
    is_error: bool = False


def _shown_cell(cell: dict[str, Any]) -> dict[str, Any]:
    meta = cell["metadata"].get("nbgrader") or {}
    outputs = [_shown_output(output) for output in cell.get("outputs", ())]
    return {
        "name": meta.get("grade_id", ""),
        "source": cell["source"],
        "outputs": [output for output in outputs if output],
    }


def _shown_output(output: dict[str, Any]) -> Output | None:
    kind = output.get("output_type")
    if kind == "stream":
        return Output(_text(output.get("text")))
    if kind == "error":
        return Output(_text(f"{output.get('ename')}: {output.get('evalue')}"), is_error=True)
    data = output.get("data") or {}
    picture = data.get("image/png")
    if isinstance(picture, str) and _BASE64.fullmatch(picture):
        return Output(png="".join(picture.split()))
    return Output(_text(data["text/plain"])) if "text/plain" in data else None


def _text(value: Any) -> str:
    text = "".join(value) if isinstance(value, list) else str(value)
    text = _ANSI.sub("", text)
    return text if len(text) <= MAX_TEXT else text[:MAX_TEXT] + "\n… cut here"
