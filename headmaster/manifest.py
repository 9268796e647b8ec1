"""What was collected: for every student where the hand-in came from, and under what name.

It stands in `collected/ASSIGNMENT/manifest.json`, outside the folders that are graded, so that no
notebook ever reads it. Feedback that goes back to a learning platform needs the platform's own
names, and collecting again needs to know what is there already.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from pathlib import Path, PurePath
from typing import Any

from headmaster.autograded import replace_file
from headmaster.course import STRUCTURE, Course, CourseError

VERSION = 1


@dataclass(frozen=True)
class Piece:
    """One file of a hand-in: as the platform named it, and as it is kept."""

    path: str  # in the download
    kept: str  # in submitted/STUDENT/ASSIGNMENT
    mark: str
    folder: str = ""  # Moodle's folder of the student


@dataclass(frozen=True)
class Collected:
    """One student's hand-in."""

    source: str
    lms: str
    pieces: tuple[Piece, ...]
    at: str  # when it was put in place, UTC; "" if it was there before
    time: str = ""  # when it was handed in, UTC; "" where nothing tells
    late: bool = False
    number: str = ""  # the platform's number of the student or group
    name: str = ""
    upload: int = 0
    earlier: tuple[str, ...] = ()  # fingerprints of hand-ins that it replaced

    @property
    def fingerprint(self) -> str:
        """Return what tells this hand-in from another without reading it."""
        return "; ".join(sorted(f"{piece.kept} {piece.mark}" for piece in self.pieces))

    @property
    def moment(self) -> datetime | None:
        """Return the time of the hand-in as naive UTC."""
        return datetime.fromisoformat(self.time) if self.time else None


@dataclass
class Manifest:
    """All hand-ins of one assignment that were collected by headmaster."""

    path: Path
    students: dict[str, Collected] = field(default_factory=dict)

    @classmethod
    def of(cls, course: Course, assignment: str) -> Manifest:
        """Read an assignment's manifest; an empty one where nothing was collected yet."""
        path = collected_folder(course, assignment) / "manifest.json"
        if not path.is_file():
            return cls(path)
        try:
            data = json.loads(path.read_bytes())
            students = {name: _collected(item) for name, item in data["students"].items()}
        except (ValueError, KeyError, TypeError) as error:
            raise CourseError(
                f"{path} is damaged ({error}); move it away and collect again"
            ) from None
        return cls(path, students)

    def write(self) -> None:
        """Write the manifest whole or not at all."""
        students = {name: asdict(item) for name, item in sorted(self.students.items())}
        text = json.dumps({"version": VERSION, "students": students}, indent=1, ensure_ascii=False)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(self.path, (text + "\n").encode("utf-8", "replace"))
        except OSError as error:
            raise CourseError(f"{self.path} cannot be written: {error.strerror}") from None


def collected_folder(course: Course, assignment: str) -> Path:
    """Return the folder beside submitted/ that keeps the manifest and earlier hand-ins."""
    submitted = PurePath(course.setting("CourseDirectory", "submitted_directory", "submitted"))
    place = course.setting("Headmaster", "collected_directory", submitted.parent / "collected")
    structure = course.setting("CourseDirectory", "directory_structure", STRUCTURE)
    before = structure.split("{nbgrader_step}")[0] if "{nbgrader_step}" in structure else ""
    return Path(course.root / before / place / assignment)


def _collected(data: dict[str, Any]) -> Collected:
    pieces = tuple(Piece(**_known(Piece, piece)) for piece in data["pieces"])
    given = {**_known(Collected, data), "pieces": pieces, "earlier": tuple(data["earlier"])}
    return Collected(**given)


def _known(cls: type, data: dict[str, Any]) -> dict[str, Any]:
    names = {item.name for item in fields(cls)}
    return {key: value for key, value in data.items() if key in names}
