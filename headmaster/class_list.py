"""Read a class list from a CSV file, or from the gradebook where there is none.

Any CSV with a row of headers will do: one's own, a gradebook that Canvas exported, Moodle's grading
worksheet, grade export or list of participants.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from headmaster.course import Course, CourseError
from headmaster.reading import decode
from headmaster.roster import UNIQUE, Kind, Person, Roster, plain, unsafe

# What a column is called, written without gaps and in small letters.
_HEADERS: dict[str, str] = {
    header: field
    for field, headers in {
        "id": "studentid nbgraderid id",
        "login": "sisloginid loginid login username user netid uid",
        "number": (
            "idnumber studentnumber studentno matriculation matriculationnumber matrikelnummer"
        ),
        "sis": "sisuserid sisid",
        "email": "email emailaddress mail emailadresse",
        "canvas": "canvasid canvasuserid lmsuserid",
        "participant": "identifier participant participantid participantnumber moodleid",
        "anonymous": "anonymousid",
        "name": "name fullname student studentname displayname",
        "first": "firstname givenname forename vorname",
        "last": "lastname surname familyname nachname",
        "group": "group groups groupname team teamname",
        "submitted": "lastmodifiedsubmission submitted submittedat submissiontime",
    }.items()
    for header in headers.split()
}
# Which column is the student's id under nbgrader, where nothing else decides it.
_IDS = ("id", "login", "number", "sis", "email", "canvas", "participant")


def read_roster(path: Path, known: Iterable[str] = (), id_column: str = "") -> Roster:
    """Read a class list; raise CourseError that names the row or column that is wrong.

    `known` are ids that the course has already: they show which column nbgrader's ids are in.
    `id_column` is that column's header, where the instructor says it.
    """
    if not path.is_file():
        raise CourseError(f"there is no class list {path}")
    text = decode(path.read_bytes())
    delimiter = _delimiter(text)
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True))
    except csv.Error as error:
        raise CourseError(f"{path.name} is no table in CSV: {error}") from None
    numbered = [(i, tuple(row)) for i, row in enumerate(rows, 1) if any(c.strip() for c in row)]
    if not numbered:
        raise CourseError(f"the class list {path.name} is empty")
    header = numbered[0][1]
    kind, columns = _columns(path.name, header)
    before = tuple(row for _, row in numbered[1:] if _is_canvas_note(kind, row, columns))
    people = [
        _person(number, row, columns)
        for number, row in numbered[1:]
        if not _is_canvas_note(kind, row, columns)
    ]
    if not people:
        raise CourseError(f"the class list {path.name} has a header and no students")
    people = _with_ids(path.name, people, columns, set(known), (header, id_column))
    _refuse_duplicates(path.name, people)
    return Roster(path.name, kind, header, tuple(people), before, delimiter)


def _delimiter(text: str) -> str:
    first = text.lstrip("\ufeff").split("\n", 1)[0]
    return max(",;\t", key=lambda mark: (first.count(mark), mark == ","))


def _columns(name: str, header: tuple[str, ...]) -> tuple[Kind, dict[str, int]]:
    plain = [re.sub(r"[^a-z0-9]", "", unicodedata.normalize("NFKD", h).casefold()) for h in header]
    kind: Kind = "list"
    if {"identifier", "grade"} <= set(plain):
        kind = "worksheet"
    elif "section" in plain and "id" in plain and {"student", "lastname"} & set(plain):
        kind = "canvas"
    columns: dict[str, int] = {}
    for index, title in enumerate(plain):
        field = "canvas" if kind == "canvas" and title == "id" else _HEADERS.get(title)
        if field and field not in columns:
            columns[field] = index
        if kind == "canvas" and title == "section":
            break  # what follows are custom columns and assignments
    if "student" in plain and not any(field in columns for field in _IDS):
        columns["id"] = columns.pop("name")  # an only column may hold ids under this title
    if not any(field in columns for field in _IDS):
        raise CourseError(
            f"the class list {name} has no column that could identify a student. Row 1 should "
            "hold headers, such as: id, first name, last name, email; it holds: "
            + ", ".join(h.strip() or "(nothing)" for h in header)[:300]
        )
    return kind, columns


def _is_canvas_note(kind: Kind, row: tuple[str, ...], columns: dict[str, int]) -> bool:
    """Tell Canvas's rows of points and of posting policies from students."""
    if kind != "canvas":
        return False
    if row[0].strip().startswith("Points Possible"):
        return True
    return not any(row[i].strip() for i in columns.values() if i < len(row))


def _person(number: int, row: tuple[str, ...], columns: dict[str, int]) -> Person:
    found = {f: row[i].strip() for f, i in columns.items() if i < len(row)}
    if "participant" in found:  # "Participant 123456", in the language of the platform
        digits = re.search(r"\d+", found["participant"])
        found["participant"] = digits[0] if digits else ""
    return Person(**{"id": "", **found}, row=number, cells=row)


def _with_ids(
    name: str,
    people: list[Person],
    columns: dict[str, int],
    known: set[str],
    wanted: tuple[tuple[str, ...], str],
) -> list[Person]:
    """Give everybody nbgrader's id: from the column named, or the one that fits what is known."""
    header, title = wanted
    if title:
        index = next((i for i, h in enumerate(header) if plain(h) == plain(title)), None)
        if index is None:
            raise CourseError(
                f"the class list {name} has no column {title!r}; it has: {', '.join(header)}"
            )
        people = [
            replace(p, id=p.cells[index].strip() if index < len(p.cells) else "") for p in people
        ]
    else:
        column = _id_field(people, columns, known)
        title = header[columns[column]].strip()
        people = [replace(p, id=getattr(p, column) or _stand_in(p, columns)) for p in people]
    for person in people:
        reason = unsafe(person.id)
        if reason:
            raise CourseError(
                f"{name}, row {person.row}: the {title!r} {reason}; correct the row, or name "
                "another column with --id-column"
            )
    return people


def _stand_in(person: Person, columns: dict[str, int]) -> str:
    """Return another id where Canvas has none of this kind, as for its test student."""
    return person.login or person.canvas if {"canvas", "login"} <= set(columns) else ""


def _id_field(people: list[Person], columns: dict[str, int], known: set[str]) -> str:
    present = [field for field in _IDS if field in columns]
    fitting = {f: sum(getattr(p, f) in known for p in people) for f in present}
    complete = [f for f in present if all(getattr(p, f) for p in people)]
    best = max(present, key=lambda f: fitting[f])
    return best if fitting[best] else (complete or present)[0]


def _refuse_duplicates(name: str, people: list[Person]) -> None:
    for kind in ("id", *UNIQUE):
        first: dict[str, Person] = {}
        for person in people:
            value = plain(getattr(person, kind))
            if value and value in first:
                earlier = first[value]
                raise CourseError(
                    f"{name}, rows {earlier.row} and {person.row}: both have "
                    f"{getattr(person, kind)!r} as {_CALLED.get(kind, kind)}; "
                    "remove one of them or correct it"
                )
            first[value] = person


_CALLED = {
    "id": "id",
    "number": "ID number",
    "sis": "SIS id",
    "canvas": "Canvas id",
    "participant": "participant number",
    "anonymous": "anonymous id",
}


# --- without a file ------------------------------------------------------------------------------


def roster_of(course: Course, file: str | None, id_column: str = "") -> Roster:
    """Return the class list in a file, else the configured one, else whom the gradebook knows."""
    if file:
        return read_roster(Path(file), known_students(course), id_column)
    configured = course.setting("Headmaster", "roster", "")
    if configured:
        roster = read_roster(course.root / configured, known_students(course), id_column)
        # its times of hand-ins, if it has any, are those of some other assignment
        return replace(roster, people=tuple(replace(p, submitted="") for p in roster.people))
    return Roster("", "list", (), tuple(_people_in_gradebook(course)), given=False)


def known_students(course: Course) -> set[str]:
    """Return the ids of the students who have a folder, or stand in the gradebook."""
    base = course.folder("submitted", ".", ".")
    folders = base.iterdir() if base.is_dir() else ()
    found = {f.name for f in folders if f.is_dir() and not f.name.startswith(".")}
    return found | {person.id for person in _people_in_gradebook(course)}


def _people_in_gradebook(course: Course) -> list[Person]:
    import sqlalchemy as sa
    from sqlalchemy.exc import SQLAlchemyError

    names = ("id", "first_name", "last_name", "email", "lms_user_id")
    try:
        url = sa.make_url(course.db_url)
        if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
            return []
        engine = sa.create_engine(url)
        table = sa.table("student", *(sa.column(name) for name in names))
        with engine.connect() as connection:
            rows = connection.execute(sa.select(table).order_by(table.c.id)).all()
        engine.dispose()
    except (SQLAlchemyError, ImportError) as error:
        raise CourseError(
            f"the gradebook cannot be read: {str(error).splitlines()[0][:200]}"
        ) from None
    return [
        Person(
            row.id,
            first=row.first_name or "",
            last=row.last_name or "",
            email=row.email or "",
            canvas=row.lms_user_id or "",
        )
        for row in rows
    ]
