"""The one writer of nbgrader's gradebook: one transaction per submission.

A table of headmaster's own, `headmaster_result`, keeps every record in the same transaction as the
grades.
"""

from __future__ import annotations

import json
import os
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from headmaster import tables
from headmaster.course import Course, CourseError
from headmaster.light import skip_slow_grammar
from headmaster.records import NotebookResult, Result
from headmaster.registration import Registration
from headmaster.release import AssignmentSpec


@dataclass
class Marks:
    """What persons and the calendar added to a submission's automatic grades."""

    scores: dict[tuple[str, str], tuple[float | None, float | None]] = field(default_factory=dict)
    comments: dict[tuple[str, str], str] = field(default_factory=dict)
    late: dict[str, float] = field(default_factory=dict)  # points that lateness costs, by notebook


class Gradebook:
    """nbgrader's gradebook of one course, open for writing."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.engine = _open_engine(course)
        self.cells: dict[str, _Cells] = {}

    def __enter__(self) -> Gradebook:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.dispose()

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        try:
            with self.engine.execution_options(writes=True).begin() as connection:
                yield connection
        except SQLAlchemyError as error:
            raise CourseError(f"the gradebook could not be written: {_short(error)}") from error

    # --- the assignment -----------------------------------------------------------------------

    def register(self, spec: AssignmentSpec) -> None:
        """Write the assignment's cells and points, as `nbgrader generate_assignment` does."""
        with self._transaction() as connection:
            assignment_id = self._assignment(connection, spec.name)
            for notebook in spec.notebooks:
                Registration(connection, assignment_id, spec.name, notebook).write()
            self.cells[spec.name] = _Cells(connection, assignment_id)

    def _assignment(self, connection: sa.Connection, name: str) -> str:
        row = tables.first(connection, tables.assignment_t, name=name)
        if row:
            return row.id
        course_id = self.course.course_id or tables.DEFAULT_COURSE
        if not tables.first(connection, tables.course_t, id=course_id):
            connection.execute(tables.course_t.insert().values(id=course_id))
        return tables.insert(connection, tables.assignment_t, name=name, course_id=course_id)

    # --- results ------------------------------------------------------------------------------

    def results(self, assignment: str) -> dict[str, Result]:
        """Return the recorded results of an assignment by student."""
        query = sa.select(tables.result_t.c.student, tables.result_t.c.result)
        query = query.where(tables.result_t.c.assignment == assignment).order_by(
            tables.result_t.c.student
        )
        with self.engine.connect() as connection:
            rows = connection.execute(query).all()
        return {row.student: Result.from_dict(json.loads(row.result)) for row in rows}

    def save(self, result: Result, timestamp: datetime | None) -> Result:
        """Write one submission's grades, comments and records in one transaction.

        What could not be graded never overwrites what was graded before: the earlier grade stays,
        marked stale. Returns the result as it is recorded.
        """
        with self._transaction() as connection:
            merged = _with_earlier(result, self._recorded(connection, result))
            cells = self.cells[result.assignment]
            submission = cells.submission(connection, result.student)
            if timestamp and not merged.stale:
                tables.update(connection, tables.submitted_t, submission, timestamp=timestamp)
            for notebook in merged.notebooks:
                cells.write(connection, submission, notebook, merged.stale)
            self._penalties(connection, submission, result.student)
            self._record(connection, merged)
        return merged

    def _recorded(self, connection: sa.Connection, result: Result) -> Result | None:
        row = tables.first(
            connection, tables.result_t, assignment=result.assignment, student=result.student
        )
        return Result.from_dict(json.loads(row.result)) if row else None

    def _record(self, connection: sa.Connection, result: Result) -> None:
        keys = {"assignment": result.assignment, "student": result.student}
        connection.execute(tables.result_t.delete().filter_by(**keys))
        values = {
            "fingerprint": result.fingerprint,
            "graded_at": datetime.now(UTC).replace(tzinfo=None),
            "result": json.dumps(result.to_dict()),
        }
        connection.execute(tables.result_t.insert().values(**keys, **values))

    # --- late hand-ins ------------------------------------------------------------------------

    def settle_penalties(self, assignment: str) -> set[str]:
        """Take the penalties again, as due dates, extensions and points are now.

        Returns the students whose penalty is another one.
        """
        with self._transaction() as connection:
            row = tables.first(connection, tables.assignment_t, name=assignment)
            query = sa.select(tables.submitted_t).filter_by(assignment_id=row.id if row else "")
            return {
                submission.student_id
                for submission in connection.execute(query).all()
                if self._penalties(connection, submission.id, submission.student_id)
            }

    def _penalties(self, connection: sa.Connection, submission: str, student: str) -> bool:
        """Take the penalty of every notebook; say whether one is another than before."""
        late = _seconds_late(connection, submission)
        rows = connection.execute(
            sa.select(tables.submitted_nb_t).filter_by(assignment_id=submission)
        )
        changed = False
        for notebook in rows.all():
            penalty = None
            if self.late_plugin is not None and late > 0:
                score = _score(connection, notebook.id)
                penalty = self.late_plugin.late_submission_penalty(student, score, late)
                penalty = None if penalty is None else min(max(penalty, 0.0), score)
            if penalty != notebook.late_submission_penalty:
                changed = True
                tables.update(
                    connection, tables.submitted_nb_t, notebook.id, late_submission_penalty=penalty
                )
        return changed

    @cached_property
    def late_plugin(self) -> Any:
        """What lateness costs, as configured; None where it costs nothing."""
        return late_plugin(self.course)

    # --- what people added --------------------------------------------------------------------

    def marks(self, assignment: str, student: str) -> Marks:
        """Return what persons gave and wrote for a submission, and what lateness costs."""
        with self.engine.connect() as connection:
            row = connection.execute(
                sa.select(tables.submitted_t.c.id)
                .join(
                    tables.assignment_t,
                    tables.assignment_t.c.id == tables.submitted_t.c.assignment_id,
                )
                .where(
                    tables.assignment_t.c.name == assignment,
                    tables.submitted_t.c.student_id == student,
                )
            ).first()
            return _marks(connection, row.id) if row else Marks()


def _marks(connection: sa.Connection, submission: str) -> Marks:
    marks = Marks()
    rows = connection.execute(
        sa.select(tables.submitted_nb_t, tables.notebook_t.c.name)
        .join(tables.notebook_t, tables.notebook_t.c.id == tables.submitted_nb_t.c.notebook_id)
        .where(tables.submitted_nb_t.c.assignment_id == submission)
    )
    for notebook in rows.all():
        marks.late[notebook.name] = notebook.late_submission_penalty or 0.0
        for grade in _by_cell(connection, tables.grade_t, notebook.id):
            if grade.manual_score is not None or grade.extra_credit is not None:
                given = (grade.manual_score, grade.extra_credit)
                marks.scores[notebook.name, grade.name] = given
        for comment in _by_cell(connection, tables.comment_t, notebook.id):
            if comment.manual_comment is not None:
                marks.comments[notebook.name, comment.name] = comment.manual_comment
    return marks


def _by_cell(connection: sa.Connection, table: sa.Table, notebook: str) -> list[Any]:
    """Return a submitted notebook's grades or comments, with the names of their cells."""
    query = (
        sa.select(table, tables.base_t.c.name)
        .join(tables.base_t, tables.base_t.c.id == table.c.cell_id)
        .where(table.c.notebook_id == notebook)
    )
    return list(connection.execute(query).all())


def late_plugin(course: Course) -> Any:
    """Return nbgrader's late-submission plugin as configured, or None where it does nothing."""
    chosen = course.setting("AssignLatePenalties", "plugin_class", None)
    method = course.setting("LateSubmissionPlugin", "penalty_method", "none")
    if chosen is None and method == "none":
        return None
    skip_slow_grammar()
    from nbgrader.preprocessors import AssignLatePenalties

    holder = AssignLatePenalties(config=course.config)
    holder.init_plugin()
    return holder.plugin_inst


# --- opening -------------------------------------------------------------------------------------


def _open_engine(course: Course) -> sa.Engine:
    url = _url(course)
    if url.get_backend_name() == "sqlite" and url.database and not Path(url.database).exists():
        _create_sqlite(Path(url.database))
    try:
        engine = sa.create_engine(url)
        if url.get_backend_name() == "sqlite":
            _begin_immediately(engine)
        present = set(sa.inspect(engine).get_table_names())
        if not present:
            _create_tables(engine)
        _check(engine, course)
        tables.headmasters.create_all(engine)
    except SQLAlchemyError as error:
        raise CourseError(
            f"the gradebook {_shown(url)} cannot be opened: {_short(error)}"
        ) from None
    except ImportError as error:
        raise CourseError(f"the gradebook {_shown(url)} needs a driver: {error}") from None
    return engine


def _url(course: Course) -> sa.URL:
    try:
        return sa.make_url(course.db_url)
    except SQLAlchemyError as error:
        raise CourseError(f"CourseDirectory.db_url is no database URL: {_short(error)}") from None


def _shown(url: sa.URL) -> str:
    return url.render_as_string(hide_password=True)


def _begin_immediately(engine: sa.Engine) -> None:
    """Take SQLite's write lock when writing begins: a second writer waits instead of failing."""

    @sa.event.listens_for(engine, "connect")
    def _connect(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        connection.execute("PRAGMA busy_timeout = 30000")

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _create_sqlite(path: Path) -> None:
    """Make a new gradebook beside its place and move it in whole: it is never half there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=".gradebook-", dir=path.parent)
    os.close(handle)
    try:
        engine = sa.create_engine(f"sqlite:///{name}")
        _create_tables(engine)
        engine.dispose()
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def _create_tables(engine: sa.Engine) -> None:
    skip_slow_grammar()
    from nbgrader.api import Base

    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"
        )
        connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{tables.SCHEMA}')")


def _check(engine: sa.Engine, course: Course) -> None:
    """Refuse a database that is not this course's gradebook of a known version; change nothing."""
    shown = _shown(engine.url)
    present = set(sa.inspect(engine).get_table_names())
    if not {"assignment", "grade", "alembic_version"} <= present:
        raise CourseError(f"{shown} is a database, but not a gradebook of nbgrader's")
    with engine.connect() as connection:
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if version != tables.SCHEMA:
            raise CourseError(
                f"the gradebook {shown} has the tables of another version of nbgrader ({version}, "
                f"not {tables.SCHEMA}); `nbgrader db upgrade` brings it up to date"
            )
        query = sa.select(tables.assignment_t.c.course_id).distinct()
        ids = {row.course_id for row in connection.execute(query)} - {
            tables.DEFAULT_COURSE,
            "",
            None,
        }
        if ids and course.course_id and course.course_id not in ids:
            raise CourseError(
                f"the gradebook {shown} belongs to the course {', '.join(sorted(ids))}, "
                f"not to {course.course_id}"
            )


def _short(error: Exception) -> str:
    text = str(getattr(error, "orig", None) or error)
    return text.strip().split("\n")[0][:300]


# --- points and lateness -------------------------------------------------------------------------


def _seconds_late(connection: sa.Connection, submission: str) -> float:
    row = connection.execute(
        sa.select(
            tables.submitted_t.c.timestamp,
            tables.submitted_t.c.extension,
            tables.assignment_t.c.duedate,
        )
        .join(tables.assignment_t, tables.assignment_t.c.id == tables.submitted_t.c.assignment_id)
        .where(tables.submitted_t.c.id == submission)
    ).one()
    if row.timestamp is None or row.duedate is None:
        return 0.0
    due = row.duedate + (row.extension or timedelta(0))
    return max(0.0, (row.timestamp - due).total_seconds())


def _score(connection: sa.Connection, notebook: str) -> float:
    """Return a notebook's points as nbgrader counts them: manual before automatic, plus extra."""
    given = sa.func.coalesce(tables.grade_t.c.manual_score, tables.grade_t.c.auto_score)
    extra = sa.func.coalesce(tables.grade_t.c.extra_credit, 0.0)
    query = sa.select(sa.func.sum(given + extra)).where(tables.grade_t.c.notebook_id == notebook)
    return float(connection.execute(query).scalar() or 0.0)


# --- one submission's rows -----------------------------------------------------------------------


class _Cells:
    """The ids of an assignment's notebooks and cells, read once."""

    def __init__(self, connection: sa.Connection, assignment_id: str) -> None:
        self.assignment_id = assignment_id
        rows = connection.execute(
            sa.select(tables.notebook_t).filter_by(assignment_id=assignment_id)
        )
        self.notebooks = {row.name: row.id for row in rows}
        self.graded: dict[str, dict[str, str]] = {name: {} for name in self.notebooks}
        self.commented: dict[str, dict[str, str]] = {name: {} for name in self.notebooks}
        for name, notebook_id in self.notebooks.items():
            for row in connection.execute(
                sa.select(tables.base_t).filter_by(notebook_id=notebook_id)
            ):
                if row.type in ("GradeCell", "TaskCell"):
                    self.graded[name][row.name] = row.id
                if row.type in ("SolutionCell", "TaskCell"):
                    self.commented[name][row.name] = row.id

    def submission(self, connection: sa.Connection, student: str) -> str:
        """Return the id of the student's submission; make it, and the student, where new."""
        if not tables.first(connection, tables.student_t, id=student):
            connection.execute(tables.student_t.insert().values(id=student))
        keys = {"assignment_id": self.assignment_id, "student_id": student}
        row = tables.first(connection, tables.submitted_t, **keys)
        return row.id if row else tables.insert(connection, tables.submitted_t, **keys)

    def write(
        self, connection: sa.Connection, submission: str, notebook: NotebookResult, stale: str
    ) -> None:
        """Write the grades and comments of one notebook."""
        keys = {"assignment_id": submission, "notebook_id": self.notebooks[notebook.name]}
        row = tables.first(connection, tables.submitted_nb_t, **keys)
        row_id = (
            row.id
            if row
            else tables.insert(connection, tables.submitted_nb_t, flagged=False, **keys)
        )
        self._write_grades(connection, row_id, notebook, stale)
        self._write_comments(connection, row_id, notebook, stale)

    def _write_grades(
        self, connection: sa.Connection, row_id: str, notebook: NotebookResult, stale: str
    ) -> None:
        old = self._rows(connection, tables.grade_t, row_id)
        graded = self.graded[notebook.name]
        new = []
        for record in notebook.records:
            cell_id = graded[record.id]
            row = old.get(cell_id)
            by_hand = row is not None and row.manual_score is not None
            needs = by_hand or record.points is None or bool(stale)
            values: dict[str, Any] = {"needs_manual_grade": needs}
            if record.points is not None or record.reason == "manual" or row is None:
                values["auto_score"] = record.points  # else an earlier grade stays
            if row is None:
                ids = {"id": uuid.uuid4().hex, "notebook_id": row_id, "cell_id": cell_id}
                new.append({**ids, **values})
            else:
                tables.update(connection, tables.grade_t, row.id, **values)
        if new:
            connection.execute(tables.grade_t.insert(), new)

    def _write_comments(
        self, connection: sa.Connection, row_id: str, notebook: NotebookResult, stale: str
    ) -> None:
        old = self._rows(connection, tables.comment_t, row_id)
        new = []
        for name, cell_id in self.commented[notebook.name].items():
            comment = _comment(notebook, name, stale)
            if cell_id not in old:
                ids = {"id": uuid.uuid4().hex, "notebook_id": row_id, "cell_id": cell_id}
                new.append({**ids, "auto_comment": comment})
            elif old[cell_id].auto_comment != comment:
                tables.update(connection, tables.comment_t, old[cell_id].id, auto_comment=comment)
        if new:
            connection.execute(tables.comment_t.insert(), new)

    @staticmethod
    def _rows(connection: sa.Connection, table: sa.Table, notebook: str) -> dict[str, Any]:
        rows = connection.execute(sa.select(table).filter_by(notebook_id=notebook))
        return {row.cell_id: row for row in rows}


def _comment(notebook: NotebookResult, cell: str, stale: str) -> str | None:
    if stale:
        return f"STALE GRADE: {stale}"
    if notebook.refusal:
        return f"NOT GRADED: {notebook.refusal.message}"
    return "No response." if cell in notebook.unanswered else None


def _with_earlier(result: Result, earlier: Result | None) -> Result:
    """Keep what was graded before where the new hand-in could not be graded, marked stale."""
    if earlier is None:
        return result
    before = {notebook.name: notebook for notebook in earlier.notebooks}
    kept, reasons = [], []
    for notebook in result.notebooks:
        old = before.get(notebook.name)
        if notebook.refusal and old is not None and not old.refusal:
            kept.append(old)
            reasons.append(notebook.refusal.message)
        else:
            kept.append(notebook)
    if not reasons:
        return result
    stale = (
        "this grade belongs to an earlier hand-in; the newest one could not be graded: "
        + " ".join(dict.fromkeys(reasons))
    )
    return Result(result.assignment, result.student, kept, result.fingerprint, result.notes, stale)
