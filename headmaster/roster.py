"""The class list: who is in the class, and whose a downloaded file is.

Reading one from a file is `headmaster.class_list`'s part.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from headmaster.lms import Sender

Kind = Literal["canvas", "worksheet", "list"]

# What no two students may share, and what a file may name a student by.
UNIQUE = ("login", "number", "sis", "email", "canvas", "participant", "anonymous")


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
    _index: dict[str, dict[str, list[Person]]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

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
            found = self._lookup(kind, plain(sender.name))
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
        found = self._lookup("anonymous", plain(sender.anonymous))
        if found:
            return tuple(found)
        raise Unmatched(
            "it was downloaded without names: switch anonymous grading off in Canvas and download "
            'again, or add a column "Anonymous ID" to the class list'
        )

    def _by_number(self, sender: Sender) -> list[Person]:
        kind = "canvas" if sender.lms == "canvas" else "participant"
        return self._lookup(kind, plain(sender.number))

    def _by_name(self, name: str) -> list[Person]:
        for kind, key in (("name", letters(name)), ("ascii", bare_letters(name))):
            found = self._lookup(kind, key)
            if found:
                return found
        return []

    def _refuse_other_number(self, sender: Sender, person: Person) -> None:
        known = person.canvas if sender.lms == "canvas" else person.participant
        if known and sender.number and plain(known) != plain(sender.number):
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
    keys = {kind: [plain(getattr(person, kind))] for kind in UNIQUE}
    keys["own"] = [person.id, *([plain(person.id)] if plain(person.id) != person.id else [])]
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


def visible(text: str) -> str:
    """Return a line that a terminal can show: names may hold anything, also its commands."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def plain(value: str) -> str:
    """Return an id or address as it is compared."""
    return unicodedata.normalize("NFC", value).strip().casefold()


def _turned(name: str) -> str:
    last, comma, first = name.partition(",")
    return f"{first.strip()} {last.strip()}" if comma else name


def unsafe(student: str) -> str:
    """Say why an id cannot be a folder's name; "" if it can."""
    if not student:
        return "is empty"
    if student.startswith(".") or any(mark in student for mark in "/\\\0\n\r\t:"):
        return f"is {student!r}, which cannot be the name of a folder"
    return f"is longer than 128 letters: {student[:40]}…" if len(student) > 128 else ""
