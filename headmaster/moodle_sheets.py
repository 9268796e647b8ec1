"""Grades as Moodle imports them, into its gradebook or by the offline grading worksheet.

What it asks for stands in its mod/assign/feedback/offline/importgradeslib.php.
"""

from __future__ import annotations

from headmaster.course import CourseError
from headmaster.roster import letters
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
from headmaster.standing import Standing

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


def moodle(export: Export) -> Sheet:
    """Return a table for Moodle's grade import from a CSV file."""
    titles = [
        title_of(export, assignment, index) or assignment
        for index, assignment in enumerate(export.standing.assignments)
    ]
    rows = [["ID number", "Email address", "Full name", *titles]]
    for person in export.people():
        grades = [number(export.points(export.of(person.id, a))) for a in export.standing.max]
        ids = (person.number or ("" if person.email else person.id), person.email)
        rows.append([*(safe_id(value) for value in ids), safe_text(person.full_name), *grades])
    notes = ["in Moodle map ID number or Email address to the user, and each grade to its item"]
    return Sheet(csv_text(rows), export.empty(), notes)


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
    # what students do not write stays as it is, to the letter
    titles = ("identifier", "idnumber", "emailaddress", "lastmodifiedgrade", "feedbackcomments")
    own = {_index(plain, title) for title in titles}
    rows = [list(header)]
    for person in export.people():
        cells = [*person.cells, *[""] * len(header)][: len(header)]
        standing = export.of(person.id, assignment)
        theirs = number_in(cells[top]) if top is not None else None
        what = f"Moodle's maximum grade (row {person.row})"
        factor = factor_of(export.choice, assignment, standing.max, theirs, what)
        cells[grade] = number(export.points(standing), factor)
        if comment is not None and not cells[comment].strip() and cells[grade]:
            cells[comment] = summary(standing)
        rows.append([c if i in own else safe_text(c) for i, c in enumerate(cells)])
    return Sheet(csv_text(rows, export.roster.delimiter), export.empty())


def _new_worksheet(export: Export, assignment: str) -> Sheet:
    numbers = platform_numbers(export, "moodle")
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
    return Sheet(csv_text(rows), export.empty(), notes)


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
