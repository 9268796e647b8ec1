"""Tables of grades in all forms: made as text, and written whole or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from headmaster import canvas_sheet, moodle_sheets, plain_sheets
from headmaster.autograded import replace_file
from headmaster.course import Course, CourseError
from headmaster.roster import Roster
from headmaster.sheets import Choice, Export, Sheet
from headmaster.standing import class_standing

FORMATS: dict[str, Callable[[Export], Sheet]] = {
    "canvas": canvas_sheet.canvas,
    "moodle": moodle_sheets.moodle,
    "moodle-worksheet": moodle_sheets.worksheet,
    "tests": plain_sheets.tests,
    "json": plain_sheets.everything,
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
    try:
        replace_file(to, sheet.text.encode("utf-8", "replace"))
    except OSError as error:
        raise CourseError(f"{to} cannot be written: {error.strerror or error}") from None
