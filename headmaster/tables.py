"""nbgrader's tables, as far as headmaster reads and writes them, and a table of its own.

nbgrader's own module costs most of a second to import and a query per cell to use; a test holds
this description equal to it.
"""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa

SCHEMA = "e43177bfe90b"  # the version of nbgrader's tables that this module writes
DEFAULT_COURSE = "default_course"  # nbgrader writes this one beside the course's own id

nbgraders = sa.MetaData()


def _table(name: str, *columns: sa.Column) -> sa.Table:
    return sa.Table(name, nbgraders, *columns)


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

headmasters = sa.MetaData()
result_t = sa.Table(
    "headmaster_result",
    headmasters,
    sa.Column("assignment", sa.String(128), primary_key=True),
    sa.Column("student", sa.String(128), primary_key=True),
    sa.Column("fingerprint", sa.String(64), nullable=False),
    sa.Column("graded_at", sa.DateTime, nullable=False),
    sa.Column("result", sa.Text, nullable=False),
)


def first(connection: sa.Connection, table: sa.Table, **keys: Any) -> Any:
    """Return the first row with these values, or None."""
    return connection.execute(sa.select(table).filter_by(**keys)).first()


def insert(connection: sa.Connection, table: sa.Table, **values: Any) -> str:
    """Insert a row and return its id."""
    row_id = values.pop("id", None) or uuid.uuid4().hex
    connection.execute(table.insert().values(id=row_id, **values))
    return row_id


def update(connection: sa.Connection, table: sa.Table, row_id: str, **values: Any) -> None:
    """Change values of the row with this id."""
    connection.execute(table.update().where(table.c.id == row_id).values(**values))
