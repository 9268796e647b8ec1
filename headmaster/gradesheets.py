"""Tables of grades: for Canvas, for Moodle, per test, and as JSON.

What Canvas and Moodle ask for stands in their own code (Canvas: lib/gradebook_importer.rb; Moodle:
mod/assign/feedback/offline/importgradeslib.php). A grade that is not finished is an empty cell, and
the reason is returned beside the table; it is never a 0.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headmaster.autograded import replace_file
from headmaster.course import Course, CourseError
from headmaster.manifest import Manifest
from headmaster.records import Record
from headmaster.roster import Person, Roster, letters
from headmaster.standing import ClassStanding, Standing, class_standing

POINTS_POSSIBLE = "    Points Possible"  # as Canvas writes it
_FORMULA = "=+-@＝＋－＠"
_PLAIN_ID = re.compile(r"[+@-]?[\w.@+-]*")
_CANVAS_HEADER = ("Student", "ID", "SIS User ID", "SIS Login ID", "Section")
_WORKSHEET_HEADER = (
    "Identifier",
    "Full name",
    "ID number",
    "Email address",
    "Status",
    "Grade",
    "Maximum Grade",
    "Grade can be changed",
    "Last modified (submission)",
    "Last modified (grade)",
    "Feedback comments",
)


@dataclass(frozen=True)
class Choice:
    """What the person who exports chose."""

    missing_as_zero: bool = False  # who handed in nothing has 0 points
    so_far: bool = False  # also points of hand-ins that still wait for a person
    scale: bool = False  # grades as parts of the platform's maximum
    columns: tuple[str, ...] = ()  # the platform's titles of the assignments, in their order
    students: tuple[str, ...] = ()  # empty: everybody


@dataclass
class Sheet:
    """A table as text, and what a person should know about it."""

    text: str
    empty: list[str] = field(default_factory=list)  # who has no grade in it, and why
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Export:
    """Everything that a table is made of."""

    course: Course
    standing: ClassStanding
    roster: Roster
    choice: Choice = Choice()

    def people(self) -> list[Person]:
        """Return who has a row: the class list, or else everybody whom the gradebook knows."""
        if self.roster.given:
            people = list(self.roster.people)
        else:
            named = self.standing.names
            people = [_known_person(s, named.get(s)) for s in self.standing.students]
        wanted = self.choice.students
        return [person for person in people if not wanted or person.id in wanted]

    def of(self, student: str, assignment: str) -> Standing:
        """Return a standing; who is on the class list only has handed in nothing."""
        found = self.standing.students.get(student, {}).get(assignment)
        if found:
            return found
        maximum = self.standing.max[assignment]
        return Standing(student, assignment, maximum, "missing", "nothing was handed in")

    def points(self, standing: Standing) -> float | None:
        """Return the points that count, None for an empty cell."""
        if standing.status == "missing" and self.choice.missing_as_zero:
            return 0.0
        if standing.status == "to grade" and self.choice.so_far:
            return max(0.0, standing.raw - standing.penalty)
        return standing.score

    def empty(self) -> list[str]:
        """Return a line for each reason why cells are empty, with everybody whom it concerns."""
        reasons: dict[str, list[str]] = {}
        on_list = {person.id for person in self.people()}
        for assignment in self.standing.assignments:
            for person in self.people():
                standing = self.of(person.id, assignment)
                if self.points(standing) is None:
                    why = f"{standing.status}: {standing.why}" if standing.why else standing.status
                    reasons.setdefault(f"{assignment}: {why}", []).append(person.id)
            for student in self._not_listed(on_list, assignment):
                why = f"{assignment}: graded, but not on the class list {self.roster.file}"
                reasons.setdefault(why, []).append(student)
        return [f"{', '.join(who)}: {why}" for why, who in reasons.items()]

    def _not_listed(self, on_list: set[str], assignment: str) -> list[str]:
        if self.choice.students:
            return []
        return [
            student
            for student, found in self.standing.students.items()
            if student not in on_list and found[assignment].marks
        ]


def _known_person(student: str, named: tuple[str, str, str] | None) -> Person:
    first, last, email = named or ("", "", "")
    return Person(student, first=first, last=last, email=email)


# --- Canvas --------------------------------------------------------------------------------------


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
    return Sheet(_csv(rows, export.roster.delimiter), export.empty(), notes)


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
    numbers = _numbers(export, "canvas")
    yield list(_CANVAS_HEADER)
    for person in export.people():
        name = person.sortable_name or person.id
        ids = (person.canvas or numbers.get(person.id, ""), person.sis, person.login or person.id)
        yield [safe_text(name), *(safe_id(value) for value in ids), ""]


_ID_TITLES = {letters(t) for t in (*_CANVAS_HEADER[1:4], "Integration ID", "Root Account")}


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
        title = _title(export, assignment, nth)
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
        factor = _factor(export.choice, assignment, own, theirs, f"Canvas's column {found!r}")
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


def _title(export: Export, assignment: str, nth: int) -> str:
    columns = export.choice.columns
    if columns and len(columns) != len(export.standing.assignments):
        raise CourseError(
            f"--column is given {len(columns)} times for {len(export.standing.assignments)} "
            "assignments: give it once for each, in their order"
        )
    return columns[nth] if columns else ""


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
            return _number_in(row[index])
    return None


# --- Moodle --------------------------------------------------------------------------------------


def moodle(export: Export) -> Sheet:
    """Return a table for Moodle's grade import from a CSV file."""
    titles = [
        _title(export, assignment, index) or assignment
        for index, assignment in enumerate(export.standing.assignments)
    ]
    rows = [["ID number", "Email address", "Full name", *titles]]
    for person in export.people():
        grades = [number(export.points(export.of(person.id, a))) for a in export.standing.max]
        ids = (person.number or ("" if person.email else person.id), person.email)
        rows.append([*(safe_id(value) for value in ids), safe_text(person.full_name), *grades])
    notes = ["in Moodle map ID number or Email address to the user, and each grade to its item"]
    return Sheet(_csv(rows), export.empty(), notes)


def worksheet(export: Export) -> Sheet:
    """Return Moodle's offline grading worksheet with grades and comments filled in.

    If the class list is that worksheet, every other cell stays as it is: Moodle compares the time
    of the last grade, and skips rows that were graded since the worksheet was downloaded.
    """
    if len(export.standing.assignments) != 1:
        raise CourseError("a grading worksheet is for one assignment: export them one at a time")
    (assignment,) = export.standing.assignments
    if export.roster.kind == "worksheet":
        return _filled_worksheet(export, assignment)
    return _new_worksheet(export, assignment)


def _filled_worksheet(export: Export, assignment: str) -> Sheet:
    header = export.roster.header
    plain = [letters(title) for title in header]
    grade, comment = plain.index("grade"), _index(plain, "feedbackcomments")
    top = _index(plain, "maximumgrade")
    rows = [list(header)]
    for person in export.people():
        cells = [*person.cells, *[""] * len(header)][: len(header)]
        standing = export.of(person.id, assignment)
        theirs = _number_in(cells[top]) if top is not None else None
        what = f"Moodle's maximum grade (row {person.row})"
        factor = _factor(export.choice, assignment, standing.max, theirs, what)
        cells[grade] = number(export.points(standing), factor)
        if comment is not None and not cells[comment].strip() and cells[grade]:
            cells[comment] = summary(standing)
        keep = {_index(plain, "identifier"), _index(plain, "idnumber"), grade, top}
        rows.append([safe_id(c) if i in keep else safe_text(c) for i, c in enumerate(cells)])
    return Sheet(_csv(rows, export.roster.delimiter), export.empty())


def _new_worksheet(export: Export, assignment: str) -> Sheet:
    numbers = _numbers(export, "moodle")
    rows, unknown = [list(_WORKSHEET_HEADER)], []
    for person in export.people():
        participant = person.participant or numbers.get(person.id, "")
        standing = export.of(person.id, assignment)
        if not participant:
            unknown.append(person.id)
            continue
        points = number(export.points(standing))
        rows.append(
            [
                f"Participant {participant}",
                safe_text(person.full_name or person.id),
                safe_id(person.number),
                safe_id(person.email),
                "" if standing.status == "missing" else "Submitted for grading",
                points,
                f"{standing.max:.2f}",
                "Yes",
                "-",
                "-",
                summary(standing) if points else "",
            ]
        )
    if not len(rows) > 1:
        raise CourseError(
            "Moodle knows students by its participant numbers, and none of them is known: give "
            "the worksheet that Moodle offers as --roster"
        )
    notes = [
        "this worksheet was made without Moodle's own: give Moodle's as the class list with "
        "--roster, and Moodle can tell which grades were changed since"
    ]
    if unknown:
        notes.append(f"left out, their participant number is not known: {', '.join(unknown)}")
    return Sheet(_csv(rows), export.empty(), notes)


def _index(titles: list[str], title: str) -> int | None:
    return titles.index(title) if title in titles else None


def summary(standing: Standing) -> str:
    """Return a hand-in's result in a sentence or two."""
    given = max(0.0, standing.raw - standing.penalty)
    text = f"{number(given)} of {number(standing.max)} points."
    if standing.penalty:
        text += f" {number(standing.penalty)} points are taken off for lateness."
    not_yet = [
        mark.cell for mark in standing.marks if mark.points is not None and mark.points < mark.max
    ]
    if not_yet:
        text += f" Not yet: {', '.join(not_yet)}."
    return text


# --- per test, and everything --------------------------------------------------------------------

_TEST_COLUMNS = (
    "student assignment notebook test function points max by_hand verdict reason misconception "
    "message"
).split()


def tests(export: Export) -> Sheet:
    """Return a row for each student and test: points, verdict, reason."""
    rows: list[list[str]] = [_TEST_COLUMNS]
    for person in export.people():
        for assignment in export.standing.assignments:
            rows.extend(_test_rows(export.of(person.id, assignment)))
    return Sheet(_csv(rows), export.empty())


def _test_rows(standing: Standing) -> Iterator[list[str]]:
    records = _records(standing)
    for mark in standing.marks:
        record = records.get((mark.notebook, mark.cell))
        yield [
            safe_id(standing.student),
            standing.assignment,
            mark.notebook,
            mark.cell,
            (record.function if record else None) or "",
            number(mark.points),
            number(mark.max),
            "yes" if mark.manual is not None or mark.extra else "no",
            record.verdict if record else "",
            record.reason if record else "",
            (record.misconception if record else None) or "",
            safe_text(record.message if record else ""),
        ]


def _records(standing: Standing) -> dict[tuple[str, str], Record]:
    notebooks = standing.result.notebooks if standing.result else []
    return {(n.name, record.id): record for n in notebooks for record in n.records}


def everything(export: Export) -> Sheet:
    """Return all that is known, as JSON."""
    data = {
        "assignments": [
            {"name": name, "max": maximum} for name, maximum in export.standing.max.items()
        ],
        "students": [
            {
                "id": person.id,
                "name": person.full_name,
                "email": person.email,
                "assignments": {
                    name: _as_json(export, export.of(person.id, name))
                    for name in export.standing.assignments
                },
            }
            for person in export.people()
        ],
    }
    return Sheet(json.dumps(data, indent=1, ensure_ascii=False) + "\n", export.empty())


def _as_json(export: Export, standing: Standing) -> dict[str, Any]:
    has_points = bool(standing.marks)
    return {
        "status": standing.status,
        "why": standing.why,
        "score": export.points(standing),
        "raw": standing.raw if has_points else None,
        "late_penalty": standing.penalty if has_points else None,
        "max": standing.max,
        "handed_in": f"{standing.handed_in}Z" if standing.handed_in else None,
        "cells": [{**asdict(mark), "points": mark.points} for mark in standing.marks],
        "graded": standing.result.to_dict() if standing.result else None,
    }


# --- cells ---------------------------------------------------------------------------------------


def number(points: float | None, factor: float = 1.0) -> str:
    """Return points as text with a decimal point, without zeros at the end; None is empty."""
    if points is None:
        return ""
    text = f"{points * factor:.4f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def safe_text(value: str) -> str:
    """Return text that no spreadsheet takes for a formula."""
    begins = value[:1] in ("\t", "\r") or value.lstrip()[:1] in tuple(_FORMULA)
    return f"'{value}" if value and begins else value


def safe_id(value: str) -> str:
    """Return an id unchanged, unless it could be a formula that does anything.

    An id must come back as it is, or nobody is found by it: "+4912" and "@ada" stay. What contains
    brackets, quotes or bars, or begins with =, is no id that a platform gives.
    """
    return value if _PLAIN_ID.fullmatch(value) else safe_text(value)


def _csv(rows: Iterable[list[str]], delimiter: str = ",") -> str:
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue()


def _number_in(cell: str) -> float | None:
    try:
        return float(cell.strip().replace(",", ".")) if cell.strip() else None
    except ValueError:
        return None


def _factor(choice: Choice, assignment: str, own: float, theirs: float | None, where: str) -> float:
    """Return what grades are multiplied by; refuse a maximum that says something else."""
    if theirs is None or abs(theirs - own) < 1e-6 or not own:
        return 1.0
    if choice.scale:
        return theirs / own
    raise CourseError(
        f"{where} is {number(theirs)} points, and {assignment} has {number(own)}: set it to "
        f"{number(own)} on the platform, or give --scale to convert the grades"
    )


def _numbers(export: Export, lms: str) -> dict[str, str]:
    """Return the platform's numbers of students, from what was collected."""
    found: dict[str, str] = {}
    for assignment in export.standing.assignments:
        for student, item in Manifest.of(export.course, assignment).students.items():
            if item.lms == lms and item.number:
                found[student] = item.number
    return found


FORMATS: dict[str, Callable[[Export], Sheet]] = {
    "canvas": canvas,
    "moodle": moodle,
    "moodle-worksheet": worksheet,
    "tests": tests,
    "json": everything,
}


def make(
    course: Course, assignments: Iterable[str], form: str, roster: Roster, choice: Choice
) -> Sheet:
    """Return the table of some assignments in one of FORMATS; raises CourseError."""
    return FORMATS[form](Export(course, class_standing(course, assignments), roster, choice))


def write(sheet: Sheet, to: Path) -> None:
    """Write a table whole or not at all."""
    if not to.parent.is_dir():
        raise CourseError(f"there is no folder {to.parent} for {to.name}")
    if to.is_dir():
        raise CourseError(f"{to} is a folder; give the name of a file")
    replace_file(to, sheet.text.encode("utf-8", "replace"))
