"""Bring an assignment's cells in nbgrader's gradebook up to date with the course's source."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from headmaster import tables
from headmaster.course import CourseError
from headmaster.release import NotebookSpec, SpecCell


class Registration:
    """Bring the cells of one notebook in the gradebook up to date with the source."""

    def __init__(
        self, connection: sa.Connection, assignment_id: str, assignment: str, spec: NotebookSpec
    ) -> None:
        self.connection = connection
        self.assignment = assignment
        self.spec = spec
        self.own = [cell for cell in spec.cells if cell.role != "free"]
        row = tables.first(
            connection, tables.notebook_t, assignment_id=assignment_id, name=spec.name
        )
        self.is_new = row is None
        self.id = (
            row.id
            if row
            else tables.insert(
                connection,
                tables.notebook_t,
                name=spec.name,
                assignment_id=assignment_id,
                kernelspec=json.dumps(spec.kernelspec),
            )
        )

    def write(self) -> None:
        """Write what differs; refuse to remove a cell that a person has graded."""
        old = {} if self.is_new else self._old_cells()
        wanted = {(kind, cell.id): cell for cell in self.own for kind in _tables_of(cell)}
        if set(old) != set(wanted):
            self._replace_cells(old, wanted)
        else:
            self._update_points(old, wanted)
        self._write_sources()

    def _old_cells(self) -> dict[tuple[str, str], str]:
        rows = self.connection.execute(sa.select(tables.base_t).filter_by(notebook_id=self.id))
        return {(row.type, row.name): row.id for row in rows}

    def _replace_cells(self, old: dict[Any, str], wanted: dict[Any, SpecCell]) -> None:
        """Add and remove cells; what stays keeps its grades. The submissions are graded again."""
        gone = set(old) - set(wanted)
        for kind, name in sorted(gone):
            self._remove(kind, name, old[kind, name])
        for kind, name in set(wanted) - set(old):
            row_id = tables.insert(
                self.connection, tables.base_t, name=name, notebook_id=self.id, type=kind
            )
            values = _points(kind, wanted[kind, name])
            tables.insert(self.connection, _TABLES[kind], id=row_id, **values)
        kept = {key: row_id for key, row_id in old.items() if key not in gone}
        self._update_points(kept, {key: wanted[key] for key in kept})

    def _remove(self, kind: str, name: str, row_id: str) -> None:
        """Remove a cell and its automatic grades, unless a person gave or wrote something."""
        grade, comment = tables.grade_t, tables.comment_t
        by_hand = [
            (grade, sa.or_(grade.c.manual_score.is_not(None), grade.c.extra_credit > 0)),
            (comment, comment.c.manual_comment.is_not(None)),
        ]
        for table, given in by_hand:
            query = sa.select(table.c.id).where(table.c.cell_id == row_id, given)
            if self.connection.execute(query).first():
                raise CourseError(
                    f"{self.assignment}/{self.spec.name}: the cell {name} is gone from the source, "
                    "and a person has graded it or commented on it. Put it back, or take back "
                    "these points and comments in formgrader"
                )
        for table in (grade, comment):
            self.connection.execute(table.delete().where(table.c.cell_id == row_id))
        for table in (_TABLES[kind], tables.base_t):
            self.connection.execute(table.delete().where(table.c.id == row_id))

    def _update_points(self, old: dict[Any, str], wanted: dict[Any, SpecCell]) -> None:
        for (kind, name), cell in wanted.items():
            values = _points(kind, cell)
            table, row_id = _TABLES[kind], old[kind, name]
            if values and tables.first(self.connection, table, id=row_id).max_score != cell.points:
                tables.update(self.connection, table, row_id, **values)

    def _write_sources(self) -> None:
        rows = self.connection.execute(
            sa.select(tables.source_t).filter_by(notebook_id=self.id)
        ).all()
        old = {row.name: row for row in rows}
        for name in set(old) - {cell.id for cell in self.own}:
            self.connection.execute(
                tables.source_t.delete().where(tables.source_t.c.id == old[name].id)
            )
        for cell in self.own:
            values = {
                "cell_type": cell.cell_type,
                "locked": cell.role in ("test", "locked", "task"),
                "source": cell.stored,
                "checksum": cell.checksum,
            }
            row = old.get(cell.id)
            if row is None:
                tables.insert(
                    self.connection, tables.source_t, name=cell.id, notebook_id=self.id, **values
                )
            elif any(getattr(row, key) != value for key, value in values.items()):
                tables.update(self.connection, tables.source_t, row.id, **values)


_TABLES = {
    "GradeCell": tables.grade_cell_t,
    "SolutionCell": tables.solution_cell_t,
    "TaskCell": tables.task_cell_t,
}


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
