"""Grades as Canvas imports them; what it asks for stands in its lib/gradebook_importer.rb."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headmaster.course import CourseError
from headmaster.roster import Person, Roster, letters
from headmaster.sheets import (
    Export,
    Sheet,
    csv_text,
    factor_of,
    number,
    number_in,
    platform_numbers,
    safe_id,
    safe_text,
    title_of,
)

POINTS_POSSIBLE = "    Points Possible"  # as Canvas writes it
_HEADER = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")


def canvas(export: Export) -> Sheet:
    """Return a table that Canvas imports: its identity columns, then a column per assignment.

    Columns of other assignments are left out, so that an import cannot bring back old grades.
    """
    notes: list[str] = []
    columns = [
        _CanvasColumn.of(export, assignment, index, notes)
        for index, assignment in enumerate(export.standing.assignments)
    ]
    identity = _canvas_identity(export, notes)
    header = next(identity)
    blank = [""] * (len(header) - 1)
    rows = [[*header, *(column.title for column in columns)]]
    rows.append([POINTS_POSSIBLE, *blank, *(number(column.max) for column in columns)])
    for person, cells in zip(export.people(), identity, strict=True):
        rows.append([*cells, *(column.cell(person) for column in columns)])
    return Sheet(csv_text(rows, export.roster.delimiter), export.empty(), notes)


def _canvas_identity(export: Export, notes: list[str]) -> Iterator[list[str]]:
    """Yield the header of the identity columns, and then each person's, as Canvas knows them."""
    roster = export.roster
    if roster.kind == "canvas":
        last = next(i for i, title in enumerate(roster.header) if title.strip() == "Section")
        names = [i for i in range(last + 1) if letters(roster.header[i]) not in _ID_TITLES]
        yield list(roster.header[: last + 1])
        for person in export.people():
            cells = [*person.cells, *[""] * (last + 1)][: last + 1]
            yield [safe_text(c) if i in names else safe_id(c) for i, c in enumerate(cells)]
        return
    notes.append(
        "the class list is no gradebook exported by Canvas: Canvas will match students by the "
        "columns ID, SIS User ID and SIS Login ID, as far as they are known"
    )
    numbers = platform_numbers(export, "canvas")
    yield list(_HEADER)
    for person in export.people():
        name = person.sortable_name or person.id
        ids = (person.canvas or numbers.get(person.id, ""), person.sis, person.login or person.id)
        yield [safe_text(name), *(safe_id(value) for value in ids), ""]


_ID_TITLES = {letters(t) for t in (*_HEADER[1:4], "Integration ID", "Root Account")}


@dataclass(frozen=True)
class _CanvasColumn:
    export: Export
    assignment: str
    title: str
    max: float
    factor: float
    index: int | None  # in the class list

    @classmethod
    def of(cls, export: Export, assignment: str, nth: int, notes: list[str]) -> _CanvasColumn:
        """Find an assignment's column in Canvas's gradebook, and its points there."""
        own = export.standing.max[assignment]
        title = title_of(export, assignment, nth)
        if export.roster.kind != "canvas":
            return cls(export, assignment, title or assignment, own, 1.0, None)
        index = _canvas_column(export.roster, assignment, title)
        if index is None:
            notes.append(
                f"the gradebook {export.roster.file} has no column for {assignment}: Canvas will "
                "ask whether it is a new assignment; --column names the column where there is one"
            )
            return cls(export, assignment, title or assignment, own, 1.0, None)
        found = export.roster.header[index]
        theirs = _canvas_points(export.roster, index)
        factor = factor_of(export.choice, assignment, own, theirs, f"Canvas's column {found!r}")
        return cls(export, assignment, found, theirs or own, factor, index)

    def cell(self, person: Person) -> str:
        """Return the grade; who is excused, or not assigned, stays so."""
        there = ""
        if self.index is not None and self.index < len(person.cells):
            there = person.cells[self.index].strip()
        if there.upper() in ("EX", "N/A"):
            return there
        points = self.export.points(self.export.of(person.id, self.assignment))
        return number(points, self.factor)


def _canvas_column(roster: Roster, assignment: str, title: str) -> int | None:
    """Return the index of an assignment's column: by the title given, else by a name alike."""
    start = next(i for i, name in enumerate(roster.header) if name.strip() == "Section") + 1
    titles = dict(enumerate(roster.header[start:], start))
    if title:
        found = [i for i, name in titles.items() if title in (name, _without_id(name))]
        if not found:
            near = ", ".join(repr(name) for name in titles.values()) or "none"
            raise CourseError(
                f"the gradebook {roster.file} has no column {title!r}; its columns of assignments "
                f"are: {near}"
            )
        return found[0]
    wanted = {_bare(assignment), _bare(re.sub(r"^\d+[_ -]*", "", assignment))}
    found = [i for i, name in titles.items() if _bare(_without_id(name)) in wanted]
    if len(found) > 1:
        near = ", ".join(repr(titles[i]) for i in found)
        raise CourseError(
            f"the gradebook {roster.file} has more than one column for {assignment}: {near}; "
            "name one of them with --column"
        )
    return found[0] if found else None


def _without_id(title: str) -> str:
    return re.sub(r"\s*\(\d+\)\s*$", "", title)


def _bare(title: str) -> str:
    return re.sub(r"[\W_]", "", title.casefold())


def _canvas_points(roster: Roster, index: int) -> float | None:
    for row in roster.before:
        if row[0].strip().startswith("Points Possible") and index < len(row):
            return number_in(row[index])
    return None
