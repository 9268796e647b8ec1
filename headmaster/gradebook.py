"""The one writer of nbgrader's gradebook: one transaction per submission.

nbgrader's own module costs most of a second to import and a query per cell to use, so the tables
are described here and written in bulk; a test holds this description equal to nbgrader's. A table
of headmaster's own, `headmaster_result`, keeps every record in the same transaction as the grades.
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
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import SQLAlchemyError

from headmaster.course import Course, CourseError
from headmaster.light import skip_slow_grammar
from headmaster.records import NotebookResult, Result
from headmaster.release import AssignmentSpec, NotebookSpec, SpecCell

SCHEMA = "e43177bfe90b"  # the version of nbgrader's tables that this module writes
DEFAULT_COURSE = "default_course"  # nbgrader writes this one beside the course's own id

_meta = sa.MetaData()


def _table(name: str, *columns: sa.Column) -> sa.Table:
    return sa.Table(name, _meta, *columns)


def _key(length: int = 32) -> sa.Column:
    return sa.Column("id", sa.String(length), primary_key=True)


def _ref(name: str) -> sa.Column:
    return sa.Column(name, sa.String(32))


course_t = _table("course", _key(128))
assignment_t = _table(
    "assignment",
    _key(),
    sa.Column("name", sa.String(128)),
    sa.Column("duedate", sa.DateTime),
    sa.Column("course_id", sa.String(128)),
)
notebook_t = _table(
    "notebook",
    _key(),
    sa.Column("name", sa.String(128)),
    _ref("assignment_id"),
    sa.Column("kernelspec", sa.String(1024)),
)
base_t = _table(
    "base_cell",
    _key(),
    sa.Column("name", sa.String(128)),
    _ref("notebook_id"),
    sa.Column("type", sa.String(50)),
)
_cell_kind = sa.Enum("code", "markdown", name="grade_cell_type")
grade_cell_t = _table(
    "grade_cells", _key(), sa.Column("max_score", sa.Float), sa.Column("cell_type", _cell_kind)
)
task_cell_t = _table(
    "task_cells", _key(), sa.Column("max_score", sa.Float), sa.Column("cell_type", _cell_kind)
)
solution_cell_t = _table("solution_cells", _key())
source_t = _table(
    "source_cell",
    _key(),
    sa.Column("name", sa.String(128)),
    sa.Column("cell_type", sa.Enum("code", "markdown", name="source_cell_type")),
    sa.Column("locked", sa.Boolean),
    sa.Column("source", sa.Text),
    sa.Column("checksum", sa.String(128)),
    _ref("notebook_id"),
)
student_t = _table("student", _key(128))
submitted_t = _table(
    "submitted_assignment",
    _key(),
    _ref("assignment_id"),
    sa.Column("student_id", sa.String(128)),
    sa.Column("timestamp", sa.DateTime),
    sa.Column("extension", sa.Interval),
)
submitted_nb_t = _table(
    "submitted_notebook",
    _key(),
    _ref("assignment_id"),
    _ref("notebook_id"),
    sa.Column("flagged", sa.Boolean),
    sa.Column("late_submission_penalty", sa.Float),
)
grade_t = _table(
    "grade",
    _key(),
    _ref("notebook_id"),
    _ref("cell_id"),
    sa.Column("auto_score", sa.Float),
    sa.Column("manual_score", sa.Float),
    sa.Column("extra_credit", sa.Float),
    sa.Column("needs_manual_grade", sa.Boolean),
)
comment_t = _table(
    "comment",
    _key(),
    _ref("notebook_id"),
    _ref("cell_id"),
    sa.Column("auto_comment", sa.Text),
    sa.Column("manual_comment", sa.Text),
)

_own = sa.MetaData()
result_t = sa.Table(
    "headmaster_result",
    _own,
    sa.Column("assignment", sa.String(128), primary_key=True),
    sa.Column("student", sa.String(128), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("graded_at", sa.DateTime, nullable=False),
    sa.Column("result", sa.Text, nullable=False),
)


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
                _Registration(connection, assignment_id, spec.name, notebook).write()
            self.cells[spec.name] = _Cells(connection, assignment_id)

    def _assignment(self, connection: sa.Connection, name: str) -> str:
        row = _first(connection, assignment_t, name=name)
        if row:
            return row.id
        course_id = self.course.course_id or DEFAULT_COURSE
        if not _first(connection, course_t, id=course_id):
            connection.execute(course_t.insert().values(id=course_id))
        return _insert(connection, assignment_t, name=name, course_id=course_id)

    # --- results ------------------------------------------------------------------------------

    def results(self, assignment: str) -> dict[str, Result]:
        """Return the recorded results of an assignment by student."""
        query = sa.select(result_t.c.student, result_t.c.result)
        query = query.where(result_t.c.assignment == assignment).order_by(result_t.c.student)
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
                _update(connection, submitted_t, submission, timestamp=timestamp)
            for notebook in merged.notebooks:
                cells.write(connection, submission, notebook, merged.stale)
            self._penalties(connection, submission, result.student)
            self._record(connection, merged)
        return merged

    def _recorded(self, connection: sa.Connection, result: Result) -> Result | None:
        row = _first(connection, result_t, assignment=result.assignment, student=result.student)
        return Result.from_dict(json.loads(row.result)) if row else None

    def _record(self, connection: sa.Connection, result: Result) -> None:
        keys = {"assignment": result.assignment, "student": result.student}
        connection.execute(result_t.delete().filter_by(**keys))
        values = {
            "fingerprint": result.fingerprint,
            "graded_at": datetime.now(UTC).replace(tzinfo=None),
            "result": json.dumps(result.to_dict()),
        }
        connection.execute(result_t.insert().values(**keys, **values))

    # --- late hand-ins ------------------------------------------------------------------------

    def _penalties(self, connection: sa.Connection, submission: str, student: str) -> None:
        plugin = late_plugin(self.course)
        late = _seconds_late(connection, submission)
        rows = connection.execute(sa.select(submitted_nb_t).filter_by(assignment_id=submission))
        for notebook in rows.all():
            penalty = None
            if plugin is not None and late > 0:
                score = _score(connection, notebook.id)
                penalty = plugin.late_submission_penalty(student, score, late)
                penalty = None if penalty is None else min(max(penalty, 0.0), score)
            if penalty != notebook.late_submission_penalty:
                _update(connection, submitted_nb_t, notebook.id, late_submission_penalty=penalty)

    # --- what people added --------------------------------------------------------------------

    def marks(self, assignment: str, student: str) -> Marks:
        """Return what persons gave and wrote for a submission, and what lateness costs."""
        with self.engine.connect() as connection:
            row = connection.execute(
                sa.select(submitted_t.c.id)
                .join(assignment_t, assignment_t.c.id == submitted_t.c.assignment_id)
                .where(assignment_t.c.name == assignment, submitted_t.c.student_id == student)
            ).first()
            return _marks(connection, row.id) if row else Marks()


def _marks(connection: sa.Connection, submission: str) -> Marks:
    of_submission = (
        sa.select(
            submitted_nb_t.c.id.label("row"),
            notebook_t.c.name.label("notebook"),
            submitted_nb_t.c.late_submission_penalty.label("penalty"),
        )
        .join(notebook_t, notebook_t.c.id == submitted_nb_t.c.notebook_id)
        .where(submitted_nb_t.c.assignment_id == submission)
    )
    marks = Marks()
    for notebook in connection.execute(of_submission).all():
        marks.late[notebook.notebook] = notebook.penalty or 0.0
        for table, columns in (
            (grade_t, ("manual_score", "extra_credit")),
            (comment_t, ("manual_comment",)),
        ):
            query = (
                sa.select(base_t.c.name, *(table.c[column] for column in columns))
                .join(base_t, base_t.c.id == table.c.cell_id)
                .where(table.c.notebook_id == notebook.row)
            )
            for name, *values in connection.execute(query):
                if any(value is not None for value in values):
                    target = marks.scores if table is grade_t else marks.comments
                    target[notebook.notebook, name] = (
                        tuple(values) if table is grade_t else values[0]
                    )
    return marks


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
        tables = set(sa.inspect(engine).get_table_names())
        if not tables:
            _create_tables(engine)
        _check(engine, course)
        _own.create_all(engine)
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
        connection.exec_driver_sql(f"INSERT INTO alembic_version VALUES ('{SCHEMA}')")


def _check(engine: sa.Engine, course: Course) -> None:
    """Refuse a database that is not this course's gradebook of a known version; change nothing."""
    shown = _shown(engine.url)
    tables = set(sa.inspect(engine).get_table_names())
    if not {"assignment", "grade", "alembic_version"} <= tables:
        raise CourseError(f"{shown} is a database, but not a gradebook of nbgrader's")
    with engine.connect() as connection:
        version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
        if version != SCHEMA:
            raise CourseError(
                f"the gradebook {shown} has the tables of another version of nbgrader ({version}, "
                f"not {SCHEMA}); `nbgrader db upgrade` brings it up to date"
            )
        query = sa.select(assignment_t.c.course_id).distinct()
        ids = {row.course_id for row in connection.execute(query)} - {DEFAULT_COURSE, "", None}
        if ids and course.course_id and course.course_id not in ids:
            raise CourseError(
                f"the gradebook {shown} belongs to the course {', '.join(sorted(ids))}, "
                f"not to {course.course_id}"
            )


def _short(error: Exception) -> str:
    text = str(getattr(error, "orig", None) or error)
    return text.strip().split("\n")[0][:300]


# --- small helpers over SQLAlchemy ---------------------------------------------------------------


def _first(connection: sa.Connection, table: sa.Table, **keys: Any) -> Any:
    return connection.execute(sa.select(table).filter_by(**keys)).first()


def _insert(connection: sa.Connection, table: sa.Table, **values: Any) -> str:
    row_id = values.pop("id", None) or uuid.uuid4().hex
    connection.execute(table.insert().values(id=row_id, **values))
    return row_id


def _update(connection: sa.Connection, table: sa.Table, row_id: str, **values: Any) -> None:
    connection.execute(table.update().where(table.c.id == row_id).values(**values))


def _seconds_late(connection: sa.Connection, submission: str) -> float:
    row = connection.execute(
        sa.select(submitted_t.c.timestamp, submitted_t.c.extension, assignment_t.c.duedate)
        .join(assignment_t, assignment_t.c.id == submitted_t.c.assignment_id)
        .where(submitted_t.c.id == submission)
    ).one()
    if row.timestamp is None or row.duedate is None:
        return 0.0
    due = row.duedate + (row.extension or timedelta(0))
    return max(0.0, (row.timestamp - due).total_seconds())


def _score(connection: sa.Connection, notebook: str) -> float:
    """Return a notebook's points as nbgrader counts them: manual before automatic, plus extra."""
    given = sa.func.coalesce(grade_t.c.manual_score, grade_t.c.auto_score)
    extra = sa.func.coalesce(grade_t.c.extra_credit, 0.0)
    query = sa.select(sa.func.sum(given + extra)).where(grade_t.c.notebook_id == notebook)
    return float(connection.execute(query).scalar() or 0.0)


# --- the assignment's cells ----------------------------------------------------------------------


class _Registration:
    """Bring the cells of one notebook in the gradebook up to date with the source."""

    def __init__(
        self, connection: sa.Connection, assignment_id: str, assignment: str, spec: NotebookSpec
    ) -> None:
        self.connection = connection
        self.assignment = assignment
        self.spec = spec
        self.own = [cell for cell in spec.cells if cell.role != "free"]
        row = _first(connection, notebook_t, assignment_id=assignment_id, name=spec.name)
        self.is_new = row is None
        self.id = (
            row.id
            if row
            else _insert(
                connection,
                notebook_t,
                name=spec.name,
                assignment_id=assignment_id,
                kernelspec=json.dumps(spec.kernelspec),
            )
        )

    def write(self) -> None:
        """Write what differs; refuse to add or remove graded cells under existing grades."""
        old = {} if self.is_new else self._old_cells()
        wanted = {(kind, cell.id): cell for cell in self.own for kind in _tables_of(cell)}
        if set(old) != set(wanted):
            self._replace_cells(old, wanted)
        else:
            self._update_points(old, wanted)
        self._write_sources()

    def _old_cells(self) -> dict[tuple[str, str], str]:
        rows = self.connection.execute(sa.select(base_t).filter_by(notebook_id=self.id))
        return {(row.type, row.name): row.id for row in rows}

    def _replace_cells(self, old: dict[Any, str], wanted: dict[Any, SpecCell]) -> None:
        if old and _first(self.connection, submitted_nb_t, notebook_id=self.id):
            gone = sorted({name for _, name in set(old) - set(wanted)})
            new = sorted({name for _, name in set(wanted) - set(old)})
            raise CourseError(
                f"{self.assignment}/{self.spec.name}: graded cells were added ({_listed(new)}) or "
                f"removed ({_listed(gone)}) since submissions were graded. Put them back, or "
                "remove the old grades with "
                f"`nbgrader db assignment remove {self.assignment} --force`"
            )
        for (kind, _), row_id in old.items():
            self.connection.execute(_TABLES[kind].delete().where(_TABLES[kind].c.id == row_id))
            self.connection.execute(base_t.delete().where(base_t.c.id == row_id))
        for (kind, name), cell in wanted.items():
            row_id = _insert(self.connection, base_t, name=name, notebook_id=self.id, type=kind)
            _insert(self.connection, _TABLES[kind], id=row_id, **_points(kind, cell))

    def _update_points(self, old: dict[Any, str], wanted: dict[Any, SpecCell]) -> None:
        for (kind, name), cell in wanted.items():
            values = _points(kind, cell)
            table, row_id = _TABLES[kind], old[kind, name]
            if values and _first(self.connection, table, id=row_id).max_score != cell.points:
                _update(self.connection, table, row_id, **values)

    def _write_sources(self) -> None:
        rows = self.connection.execute(sa.select(source_t).filter_by(notebook_id=self.id)).all()
        old = {row.name: row for row in rows}
        for name in set(old) - {cell.id for cell in self.own}:
            self.connection.execute(source_t.delete().where(source_t.c.id == old[name].id))
        for cell in self.own:
            values = {
                "cell_type": cell.cell_type,
                "locked": cell.role in ("test", "locked", "task"),
                "source": cell.stored,
                "checksum": cell.checksum,
            }
            row = old.get(cell.id)
            if row is None:
                _insert(self.connection, source_t, name=cell.id, notebook_id=self.id, **values)
            elif any(getattr(row, key) != value for key, value in values.items()):
                _update(self.connection, source_t, row.id, **values)


_TABLES = {"GradeCell": grade_cell_t, "SolutionCell": solution_cell_t, "TaskCell": task_cell_t}


def _tables_of(cell: SpecCell) -> list[str]:
    kinds = {
        "test": ["GradeCell"],
        "solution": ["SolutionCell"],
        "manual": ["GradeCell", "SolutionCell"],
        "task": ["TaskCell"],
    }
    return kinds.get(cell.role, [])


def _points(kind: str, cell: SpecCell) -> dict[str, Any]:
    if kind == "SolutionCell":
        return {}
    return {"max_score": cell.points, "cell_type": cell.cell_type}


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"


# --- one submission's rows -----------------------------------------------------------------------


class _Cells:
    """The ids of an assignment's notebooks and cells, read once."""

    def __init__(self, connection: sa.Connection, assignment_id: str) -> None:
        self.assignment_id = assignment_id
        rows = connection.execute(sa.select(notebook_t).filter_by(assignment_id=assignment_id))
        self.notebooks = {row.name: row.id for row in rows}
        self.graded: dict[str, dict[str, str]] = {name: {} for name in self.notebooks}
        self.commented: dict[str, dict[str, str]] = {name: {} for name in self.notebooks}
        for name, notebook_id in self.notebooks.items():
            for row in connection.execute(sa.select(base_t).filter_by(notebook_id=notebook_id)):
                if row.type in ("GradeCell", "TaskCell"):
                    self.graded[name][row.name] = row.id
                if row.type in ("SolutionCell", "TaskCell"):
                    self.commented[name][row.name] = row.id

    def submission(self, connection: sa.Connection, student: str) -> str:
        """Return the id of the student's submission; make it, and the student, where new."""
        if not _first(connection, student_t, id=student):
            connection.execute(student_t.insert().values(id=student))
        keys = {"assignment_id": self.assignment_id, "student_id": student}
        row = _first(connection, submitted_t, **keys)
        return row.id if row else _insert(connection, submitted_t, **keys)

    def write(
        self, connection: sa.Connection, submission: str, notebook: NotebookResult, stale: str
    ) -> None:
        """Write the grades and comments of one notebook."""
        keys = {"assignment_id": submission, "notebook_id": self.notebooks[notebook.name]}
        row = _first(connection, submitted_nb_t, **keys)
        row_id = row.id if row else _insert(connection, submitted_nb_t, flagged=False, **keys)
        self._write_grades(connection, row_id, notebook, stale)
        self._write_comments(connection, row_id, notebook, stale)

    def _write_grades(
        self, connection: sa.Connection, row_id: str, notebook: NotebookResult, stale: str
    ) -> None:
        old = self._rows(connection, grade_t, row_id)
        graded = self.graded[notebook.name]
        new = []
        for record in notebook.records:
            cell_id = graded[record.id]
            row = old.get(cell_id)
            by_hand = row is not None and row.manual_score is not None
            needs = by_hand or record.points is None or bool(stale)
            values = {"auto_score": record.points, "needs_manual_grade": needs}
            if row is None:
                ids = {"id": uuid.uuid4().hex, "notebook_id": row_id, "cell_id": cell_id}
                new.append({**ids, **values})
            else:
                _update(connection, grade_t, row.id, **values)
        if new:
            connection.execute(grade_t.insert(), new)

    def _write_comments(
        self, connection: sa.Connection, row_id: str, notebook: NotebookResult, stale: str
    ) -> None:
        old = self._rows(connection, comment_t, row_id)
        new = []
        for name, cell_id in self.commented[notebook.name].items():
            comment = _comment(notebook, name, stale)
            if cell_id not in old:
                ids = {"id": uuid.uuid4().hex, "notebook_id": row_id, "cell_id": cell_id}
                new.append({**ids, "auto_comment": comment})
            elif old[cell_id].auto_comment != comment:
                _update(connection, comment_t, old[cell_id].id, auto_comment=comment)
        if new:
            connection.execute(comment_t.insert(), new)

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
