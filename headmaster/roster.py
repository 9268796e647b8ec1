"""The class list: who is in the class, and whose a downloaded file is.

Any CSV with a row of headers will do: one's own, a gradebook that Canvas exported, Moodle's grading
worksheet, grade export or list of participants.
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from headmaster.course import Course, CourseError
from headmaster.lms import Sender
from headmaster.reading import decode

Kind = Literal["canvas", "worksheet", "list"]

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
_UNIQUE = ("login", "number", "sis", "email", "canvas", "participant", "anonymous")


@dataclass(frozen=True)
class Person:
    """One student on the class list."""

    id: str  # nbgrader's
    row: int = 0  # in the file, the header being row 1
    name: str = ""
    first: str = ""
    last: str = ""
    login: str = ""
    number: str = ""  # Moodle's "ID number", a matriculation number …
    sis: str = ""
    email: str = ""
    canvas: str = ""
    participant: str = ""  # Moodle's number within one assignment
    anonymous: str = ""
    group: str = ""
    submitted: str = ""
    cells: tuple[str, ...] = ()  # the row as it stands in the file

    @property
    def full_name(self) -> str:
        """Return the name with the given name first, "" where there is none."""
        return f"{self.first} {self.last}".strip() or _turned(self.name)

    @property
    def sortable_name(self) -> str:
        """Return the name with the family name first, as Canvas writes it."""
        if self.first or self.last:
            return ", ".join(part for part in (self.last, self.first) if part)
        return self.name

    @property
    def time(self) -> datetime | None:
        """Return when the class list says that the student handed in, in naive UTC."""
        from dateutil import parser

        if not any(letter.isdigit() for letter in self.submitted):
            return None
        try:
            moment = parser.parse(self.submitted)
            return moment.astimezone(UTC).replace(tzinfo=None)
        except (ValueError, OverflowError):
            return None


class Unmatched(Exception):
    """Nobody, or more than one, whom a file could be from; the text says why."""

    def __init__(self, reason: str, final: bool = True) -> None:
        super().__init__(reason)
        self.final = final  # no other reading of the name may decide otherwise


@dataclass(frozen=True)
class Roster:
    """A class list."""

    file: str
    kind: Kind
    header: tuple[str, ...]
    people: tuple[Person, ...]
    before: tuple[tuple[str, ...], ...] = ()  # rows between the header and the students
    delimiter: str = ","
    given: bool = True  # by the instructor; else it is what the gradebook knows
    _index: dict[str, dict[str, list[Person]]] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        for person in self.people:
            for kind, keys in _keys(person).items():
                for key in keys:
                    self._index.setdefault(kind, {}).setdefault(key, []).append(person)

    def get(self, student: str) -> Person | None:
        """Return the person with nbgrader's id, or None."""
        return self._index.get("own", {}).get(student, [None])[0]

    def is_group(self, person: Person, sender: Sender) -> bool:
        """Say whether a file came from a group that the person is in, not from the person."""
        return letters(sender.name) in _keys(person)["group"] and not _is_name(person, sender.name)

    def is_called(self, person: Person, name: str) -> bool:
        """Say whether a name is that of a person, or of the person's group."""
        return _is_name(person, name) or letters(name) in _keys(person)["group"]

    def find(self, sender: Sender) -> tuple[Person, ...]:
        """Return whose a file is: one person, or a group; raises Unmatched with the reason."""
        if sender.lms == "names":
            return self._find_any(sender)
        if sender.anonymous:
            return self._find_anonymous(sender)
        by_number = self._by_number(sender)
        by_name = self._by_name(sender.name)
        if by_number:
            others = [p for p in by_name if p not in by_number]
            if others and not any(p in by_number for p in by_name):
                raise Unmatched(
                    f"the number {sender.number} is {_who(by_number)}, the name is {_who(others)}"
                )
            return self._group(sender) or tuple(by_number)
        if len(by_name) > 1:
            raise Unmatched(f"more than one student has this name: {_who(by_name)}")
        if by_name:
            self._refuse_other_number(sender, by_name[0])
            return tuple(by_name)
        return self._group(sender) or self._nobody(sender)

    def _find_any(self, sender: Sender) -> tuple[Person, ...]:
        for kind in ("own", "login", "number", "sis", "email", "canvas"):
            found = self._lookup(kind, _plain(sender.name))
            if len(found) == 1:
                return tuple(found)
        found = self._by_name(sender.name)
        if len(found) > 1:
            raise Unmatched(f"more than one student has this name: {_who(found)}")
        if not found and not self.given and sender.sure:
            reason = unsafe(sender.name)
            if reason:
                raise Unmatched(f"the id {sender.name!r} {reason}")
            return (Person(sender.name),)
        return tuple(found) or self._group(sender) or self._nobody(sender)

    def _find_anonymous(self, sender: Sender) -> tuple[Person, ...]:
        found = self._lookup("anonymous", _plain(sender.anonymous))
        if found:
            return tuple(found)
        raise Unmatched(
            "it was downloaded without names: switch anonymous grading off in Canvas and download "
            'again, or add a column "Anonymous ID" to the class list'
        )

    def _by_number(self, sender: Sender) -> list[Person]:
        kind = "canvas" if sender.lms == "canvas" else "participant"
        return self._lookup(kind, _plain(sender.number))

    def _by_name(self, name: str) -> list[Person]:
        for kind, key in (("name", letters(name)), ("ascii", bare_letters(name))):
            found = self._lookup(kind, key)
            if found:
                return found
        return []

    def _refuse_other_number(self, sender: Sender, person: Person) -> None:
        known = person.canvas if sender.lms == "canvas" else person.participant
        if known and sender.number and _plain(known) != _plain(sender.number):
            raise Unmatched(
                f"the name is that of {person.id}, but the number {sender.number} is not: "
                f"the class list has {known}"
            )

    def _group(self, sender: Sender) -> tuple[Person, ...]:
        return tuple(self._lookup("group", letters(sender.name)))

    def _lookup(self, kind: str, key: str) -> list[Person]:
        return self._index.get(kind, {}).get(key, []) if key else []

    def _nobody(self, sender: Sender) -> tuple[Person, ...]:
        whom = sender.name or sender.number
        if not self.given:
            raise Unmatched(
                f"the gradebook knows no student {whom!r}: give the class list with --roster",
                final=False,
            )
        raise Unmatched(f"there is no {whom!r} on the class list {self.file}", final=False)


def _keys(person: Person) -> dict[str, list[str]]:
    names = {person.full_name, person.sortable_name, person.name, person.last + person.first}
    keys = {kind: [_plain(getattr(person, kind))] for kind in _UNIQUE}
    keys["own"] = [person.id, *([_plain(person.id)] if _plain(person.id) != person.id else [])]
    keys["name"] = list({letters(name) for name in names})
    keys["ascii"] = list({bare_letters(name) for name in names})
    keys["group"] = [letters(group) for group in re.split(r"[;,]", person.group)]
    return {kind: [key for key in found if key] for kind, found in keys.items()}


def _is_name(person: Person, name: str) -> bool:
    keys = _keys(person)
    return letters(name) in keys["name"] or bare_letters(name) in keys["ascii"]


def _who(people: Iterable[Person]) -> str:
    return ", ".join(
        f"{person.id} (row {person.row})" if person.row else person.id for person in people
    )


# --- comparing names -----------------------------------------------------------------------------


def letters(name: str) -> str:
    """Return a name's letters and digits, however its accents are stored."""
    text = unicodedata.normalize("NFKC", name).casefold()
    text = unicodedata.normalize("NFC", text)
    return "".join(letter for letter in text if letter.isalnum() or unicodedata.combining(letter))


def bare_letters(name: str) -> str:
    """Return a name's letters without their accents, for platforms that drop them."""
    text = unicodedata.normalize("NFKD", letters(name))
    text = text.translate(str.maketrans({"ø": "o", "ł": "l", "đ": "d", "ı": "i", "æ": "ae"}))
    return "".join(letter for letter in text if letter.isalnum())


def _plain(value: str) -> str:
    return unicodedata.normalize("NFC", value).strip().casefold()


def _turned(name: str) -> str:
    last, comma, first = name.partition(",")
    return f"{first.strip()} {last.strip()}" if comma else name


# --- reading the file ----------------------------------------------------------------------------


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
        index = next((i for i, h in enumerate(header) if _plain(h) == _plain(title)), None)
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


def unsafe(student: str) -> str:
    """Say why an id cannot be a folder's name; "" if it can."""
    if not student:
        return "is empty"
    if student.startswith(".") or any(mark in student for mark in "/\\\0\n\r\t:"):
        return f"is {student!r}, which cannot be the name of a folder"
    return f"is longer than 128 letters: {student[:40]}…" if len(student) > 128 else ""


def _refuse_duplicates(name: str, people: list[Person]) -> None:
    for kind in ("id", *_UNIQUE):
        first: dict[str, Person] = {}
        for person in people:
            value = _plain(getattr(person, kind))
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
    chosen = file or course.setting("Headmaster", "roster", "")
    if chosen:
        path = Path(chosen) if file else course.root / chosen
        return read_roster(path, known_students(course), id_column)
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
