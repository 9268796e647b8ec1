"""Where everybody stands: each student's points as nbgrader counts them, or why there are none.

A number is given only for a hand-in that is graded to its end. What the machine could not grade,
what still waits for a person, and what was handed in since is named instead.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from headmaster import tables
from headmaster.course import Course, CourseError
from headmaster.manifest import Manifest
from headmaster.records import Record, Result

Status = Literal["graded", "not graded", "to grade", "missing"]


@dataclass(frozen=True)
class Mark:
    """The points of one graded cell."""

    notebook: str
    cell: str
    max: float
    auto: float | None
    manual: float | None
    extra: float

    @property
    def points(self) -> float | None:
        """Return the points as nbgrader counts them: a person's before the machine's, and extra."""
        given = self.auto if self.manual is None else self.manual
        return None if given is None else given + self.extra


@dataclass(frozen=True)
class Standing:
    """One student's standing in one assignment."""

    student: str
    assignment: str
    max: float
    status: Status
    why: str = ""  # of everything but "graded"
    marks: tuple[Mark, ...] = ()
    penalty: float = 0.0  # for lateness
    handed_in: datetime | None = None
    result: Result | None = None  # what headmaster recorded, if it graded it

    @property
    def raw(self) -> float:
        """Return the points without the penalty; what has none counts as nothing yet."""
        return sum(mark.points or 0.0 for mark in self.marks)

    @property
    def score(self) -> float | None:
        """Return the points that count, None where the hand-in is not graded to its end."""
        return max(0.0, self.raw - self.penalty) if self.status == "graded" else None


@dataclass
class ClassStanding:
    """Everybody's standing in some assignments."""

    assignments: tuple[str, ...]
    max: dict[str, float]
    students: dict[str, dict[str, Standing]]  # student to assignment to standing
    names: dict[str, tuple[str, str, str]] = field(default_factory=dict)  # first, last, email


def class_standing(course: Course, assignments: Iterable[str]) -> ClassStanding:
    """Return the standing of everybody who is known; raises CourseError for an ungraded class."""
    wanted = tuple(dict.fromkeys(assignments))
    for name in wanted:
        course.require_assignment(name)
    with _reading(course, wanted[0]) as connection:
        book = _Book(course, connection)
        students: dict[str, dict[str, Standing]] = {}
        maxima = {}
        for name in wanted:
            maxima[name] = book.max_score(name)
            for student, standing in book.standings(name, maxima[name]).items():
                students.setdefault(student, {})[name] = standing
        return ClassStanding(wanted, maxima, dict(sorted(students.items())), book.names)


def graded_assignments(course: Course) -> list[str]:
    """Return the course's assignments in which anybody is graded; raises CourseError if none."""
    known = course.assignments()
    with _reading(course, known[0] if known else "ASSIGNMENT") as connection:
        copy, handed_in = tables.submitted_nb_t, tables.submitted_t
        query = (
            sa.select(tables.assignment_t.c.name)
            .join(handed_in, handed_in.c.assignment_id == tables.assignment_t.c.id)
            .join(copy, copy.c.assignment_id == handed_in.c.id)
            .join(tables.grade_t, tables.grade_t.c.notebook_id == copy.c.id)
            .distinct()
        )
        found = {row.name for row in connection.execute(query).all()}
    graded = [name for name in known if name in found]
    if not graded:
        raise CourseError("nobody is graded in any assignment yet: run `headmaster grade` first")
    return graded


def deadlines(course: Course, assignment: str) -> tuple[datetime | None, dict[str, timedelta]]:
    """Return when an assignment is due, in naive UTC, and the extensions by student."""
    if not _exists(course):
        return None, {}
    with _reading(course, assignment) as connection:
        row = tables.first(connection, tables.assignment_t, name=assignment)
        if row is None:
            return None, {}
        table = tables.submitted_t
        query = sa.select(table.c.student_id, table.c.extension).filter_by(assignment_id=row.id)
        rows = connection.execute(query).all()
    return row.duedate, {r.student_id: r.extension for r in rows if r.extension}


# --- reading the gradebook -----------------------------------------------------------------------


class _reading:
    """A connection to a gradebook that is there; it is only read."""

    def __init__(self, course: Course, assignment: str) -> None:
        if not _exists(course):
            raise CourseError(_ungraded(assignment))
        self.url = sa.make_url(course.db_url)

    def __enter__(self) -> sa.Connection:
        try:
            self.engine = sa.create_engine(self.url)
            self.connection = self.engine.connect()
        except (SQLAlchemyError, ImportError) as error:
            raise CourseError(f"the gradebook cannot be opened: {_short(error)}") from None
        return self.connection

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        self.connection.close()
        self.engine.dispose()
        if isinstance(error, SQLAlchemyError):
            raise CourseError(f"the gradebook cannot be read: {_short(error)}") from None


def _exists(course: Course) -> bool:
    url = sa.make_url(course.db_url)
    return url.get_backend_name() != "sqlite" or Path(url.database or "").is_file()


def _short(error: Exception) -> str:
    return str(getattr(error, "orig", None) or error).strip().split("\n")[0][:300]


def _ungraded(assignment: str) -> str:
    return f"nobody is graded in {assignment!r} yet: run `headmaster grade {assignment}` first"


class _Book:
    """The gradebook's rows about some assignments."""

    def __init__(self, course: Course, connection: sa.Connection) -> None:
        self.course, self.connection = course, connection
        columns = ("id", "first_name", "last_name", "email")
        table = sa.table("student", *(sa.column(name) for name in columns))
        self.names = {
            row.id: (row.first_name or "", row.last_name or "", row.email or "")
            for row in connection.execute(sa.select(table)).all()
        }
        self.kept = set(sa.inspect(connection).get_table_names())

    def max_score(self, assignment: str) -> float:
        """Return the points that can be had."""
        base, notebook, names = tables.base_t, tables.notebook_t, tables.assignment_t
        total = 0.0
        for table in (tables.grade_cell_t, tables.task_cell_t):
            query = (
                sa.select(sa.func.sum(table.c.max_score))
                .join(base, base.c.id == table.c.id)
                .join(notebook, notebook.c.id == base.c.notebook_id)
                .join(names, names.c.id == notebook.c.assignment_id)
                .where(names.c.name == assignment)
            )
            total += self.connection.execute(query).scalar() or 0.0
        return total

    def standings(self, assignment: str, maximum: float) -> dict[str, Standing]:
        """Return everybody's standing in one assignment."""
        row = tables.first(self.connection, tables.assignment_t, name=assignment)
        submitted = self._submitted(row.id) if row else {}
        marks = self._marks(row.id) if row else {}
        results = self._results(assignment)
        if not any(marks.values()):
            raise CourseError(_ungraded(assignment))
        collected = Manifest.of(self.course, assignment).students
        here = set(self.course.students(assignment))
        found = {}
        for student in sorted({*self.names, *submitted, *here}):
            given = marks.get(student, ())
            result, graded_at = results.get(student, (None, None))
            status, why = _status(given, result)
            if not given:
                status, why = _without_marks(assignment, student in here)
            elif _is_newer(collected.get(student), graded_at):
                status = "not graded"
                why = f"handed in again since it was graded: run `headmaster grade {assignment}`"
            time, penalty = submitted.get(student, (None, 0.0))
            found[student] = Standing(
                student, assignment, maximum, status, why, given, penalty, time, result
            )
        return found

    def _submitted(self, assignment_id: str) -> dict[str, tuple[datetime | None, float]]:
        table, notebook = tables.submitted_t, tables.submitted_nb_t
        penalty = sa.func.coalesce(sa.func.sum(notebook.c.late_submission_penalty), 0.0)
        query = (
            sa.select(table.c.student_id, table.c.timestamp, penalty.label("penalty"))
            .outerjoin(notebook, notebook.c.assignment_id == table.c.id)
            .where(table.c.assignment_id == assignment_id)
            .group_by(table.c.student_id, table.c.timestamp)
        )
        rows = self.connection.execute(query).all()
        return {row.student_id: (row.timestamp, float(row.penalty)) for row in rows}

    def _marks(self, assignment_id: str) -> dict[str, tuple[Mark, ...]]:
        grade, base, cell = tables.grade_t, tables.base_t, tables.grade_cell_t
        task, handed_in, copy = tables.task_cell_t, tables.submitted_t, tables.submitted_nb_t
        query = (
            sa.select(
                handed_in.c.student_id,
                tables.notebook_t.c.name.label("notebook"),
                base.c.name.label("cell"),
                sa.func.coalesce(cell.c.max_score, task.c.max_score, 0.0).label("max"),
                grade.c.auto_score,
                grade.c.manual_score,
                sa.func.coalesce(grade.c.extra_credit, 0.0).label("extra"),
            )
            .join(base, base.c.id == grade.c.cell_id)
            .outerjoin(cell, cell.c.id == base.c.id)
            .outerjoin(task, task.c.id == base.c.id)
            .join(copy, copy.c.id == grade.c.notebook_id)
            .join(handed_in, handed_in.c.id == copy.c.assignment_id)
            .join(tables.notebook_t, tables.notebook_t.c.id == copy.c.notebook_id)
            .where(handed_in.c.assignment_id == assignment_id)
            .order_by(tables.notebook_t.c.name, base.c.name)
        )
        found: dict[str, list[Mark]] = {}
        for row in self.connection.execute(query).all():
            scores = (row.auto_score, row.manual_score, row.extra)
            found.setdefault(row.student_id, []).append(
                Mark(row.notebook, row.cell, row.max, *scores)
            )
        return {student: tuple(marks) for student, marks in found.items()}

    def _results(self, assignment: str) -> dict[str, tuple[Result, datetime]]:
        table = tables.result_t
        if table.name not in self.kept:
            return {}
        query = sa.select(table).where(table.c.assignment == assignment)
        return {
            row.student: (Result.from_dict(json.loads(row.result)), row.graded_at)
            for row in self.connection.execute(query).all()
        }


def _status(marks: tuple[Mark, ...], result: Result | None) -> tuple[Status, str]:
    """Say whether all marks are given, and if not, what is wrong."""
    if result and result.stale:
        return "not graded", f"stale: {result.stale}"
    open_cells = {(mark.notebook, mark.cell) for mark in marks if mark.points is None}
    if not open_cells:
        return "graded", ""
    records: dict[tuple[str, str], Record] = {}
    if result:
        records = {(n.name, r.id): r for n in result.notebooks for r in n.records}
    for key in sorted(open_cells):
        record = records.get(key)
        if record and record.verdict == "not graded" and record.reason != "manual":
            return "not graded", f"{record.reason}: {record.message}"
    cells = ", ".join(cell for _, cell in sorted(open_cells))
    return "to grade", f"a person has not graded yet: {cells} (in formgrader)"


def _without_marks(assignment: str, handed_in: bool) -> tuple[Status, str]:
    if handed_in:
        return "not graded", f"handed in, but not graded: run `headmaster grade {assignment}`"
    return "missing", "nothing was handed in"


def _is_newer(collected: Any, graded_at: datetime | None) -> bool:
    """Say whether a hand-in was collected after the one that is graded."""
    if collected is None or not collected.at or graded_at is None:
        return False
    return datetime.fromisoformat(collected.at) > graded_at
