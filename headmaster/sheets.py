"""What every table of grades is made of: the people, their points, and cells that do no harm.

A grade that is not finished is an empty cell, and the reason is returned beside the table; it is
never a 0.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from headmaster.course import Course, CourseError
from headmaster.manifest import Manifest
from headmaster.roster import Person, Roster, visible
from headmaster.standing import ClassStanding, Standing

_FORMULA = "=+-@＝＋－＠"
_NO_FORMULA = re.compile(r"[+-](?:\d+(?:[.,]\d+)?)?")  # a lone dash, or a number
_PLAIN_ID = re.compile(r"[+@-]?[\w.@+-]*")


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
        return [
            visible(f"{', '.join(who)}: {' '.join(why.split())}") for why, who in reasons.items()
        ]

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


def title_of(export: Export, assignment: str, nth: int) -> str:
    """Return the platform's title of an assignment, "" where the person gave none."""
    columns = export.choice.columns
    if columns and len(columns) != len(export.standing.assignments):
        raise CourseError(
            f"--column is given {len(columns)} times for {len(export.standing.assignments)} "
            "assignments: give it once for each, in their order"
        )
    return columns[nth] if columns else ""


# --- cells ---------------------------------------------------------------------------------------


def number(points: float | None, factor: float = 1.0) -> str:
    """Return points as text with a decimal point, without zeros at the end; None is empty."""
    if points is None:
        return ""
    text = f"{points * factor:.4f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


def safe_text(value: str) -> str:
    """Return text that no spreadsheet takes for a formula: an apostrophe stands before it."""
    begins = value[:1] in ("\t", "\r") or value.lstrip()[:1] in tuple(_FORMULA)
    return f"'{value}" if value and begins and not _NO_FORMULA.fullmatch(value) else value


def safe_id(value: str) -> str:
    """Return an id unchanged, unless it could be a formula that does anything.

    An id must come back as it is, or nobody is found by it: "+4912" and "@ada" stay. What contains
    brackets, quotes or bars, or begins with =, is no id that a platform gives.
    """
    return value if _PLAIN_ID.fullmatch(value) else safe_text(value)


def csv_text(rows: Iterable[list[str]], delimiter: str = ",") -> str:
    """Return rows as CSV."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter).writerows(rows)
    return out.getvalue()


def number_in(cell: str) -> float | None:
    """Return the number in a cell, with a decimal point or comma; None where there is none."""
    try:
        return float(cell.strip().replace(",", ".")) if cell.strip() else None
    except ValueError:
        return None


def factor_of(
    choice: Choice, assignment: str, own: float, theirs: float | None, where: str
) -> float:
    """Return what grades are multiplied by; refuse a maximum that says something else."""
    if theirs is None or abs(theirs - own) < 1e-6 or not own:
        return 1.0
    if choice.scale:
        return theirs / own
    raise CourseError(
        f"{where} is {number(theirs)} points, and {assignment} has {number(own)}: set it to "
        f"{number(own)} on the platform, or give --scale to convert the grades"
    )


def platform_numbers(export: Export, lms: str) -> dict[str, str]:
    """Return the platform's numbers of students, from what was collected."""
    found: dict[str, str] = {}
    for assignment in export.standing.assignments:
        for student, item in Manifest.of(export.course, assignment).students.items():
            if item.lms == lms and item.number:
                found[student] = item.number
    return found
