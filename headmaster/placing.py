"""Put a hand-in in its place as a whole, and what stood there aside: nothing is overwritten."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from headmaster.course import Course
from headmaster.intake import TIMESTAMP, read_folder, submitted_time
from headmaster.manifest import Collected, Manifest, collected_folder
from headmaster.records import Refused

Outcome = Literal["new", "newer", "unchanged", "older", "failed"]


@dataclass(frozen=True)
class Placed:
    """What became of a hand-in, and the time that it has now."""

    outcome: Outcome
    time: datetime | None


class Places:
    """The folders of one assignment's hand-ins, and what is known of them."""

    def __init__(self, course: Course, assignment: str, force: bool) -> None:
        self.course, self.assignment, self.force = course, assignment, force
        self.manifest = Manifest.of(course, assignment)

    def place(self, student: str) -> Path:
        """Return a student's folder."""
        return self.course.folder("submitted", student, self.assignment)

    def settled(self, student: str, hand_in: Collected, notes: list[str]) -> Placed | None:
        """Return what is clear without reading the hand-in: that it is there, or is older."""
        known = self.manifest.students.get(student)
        if known is None or self.force or not self.place(student).is_dir():
            return None
        if known.fingerprint == hand_in.fingerprint:
            return Placed("unchanged", self._correct_time(student, known, hand_in, notes))
        if hand_in.fingerprint in known.earlier or _is_older(hand_in, known):
            notes.append("what was collected before is later; --force takes this one")
            return Placed("older", hand_in.moment)
        return None

    def put(
        self, student: str, content: dict[str, bytes], hand_in: Collected, notes: list[str]
    ) -> Placed:
        """Put a hand-in in its place, unless the same or a later one is there; raises OSError."""
        place = self.place(student)
        known = self.manifest.students.get(student)
        there = place.is_dir() or place.is_symlink()
        old = _content(place) if there else {}
        before = submitted_time(old.pop(TIMESTAMP, None))
        if there and old == content:
            kept = hand_in if hand_in.time or not before else _with_time(hand_in, before)
            self._record(student, kept, replaced=kept.moment != before)
            _write_time(place, kept.moment)
            return Placed("unchanged", kept.moment)
        is_earlier = before and hand_in.moment and hand_in.moment < before
        if is_earlier and not known and not self.force:
            notes.append("what is there is later; --force takes this one")
            return Placed("older", hand_in.moment)
        self._replace(student, place, content, hand_in.moment, notes)
        self._record(student, hand_in, replaced=True)
        return Placed("newer" if there else "new", hand_in.moment)

    def _replace(
        self,
        student: str,
        place: Path,
        content: dict[str, bytes],
        time: datetime | None,
        notes: list[str],
    ) -> None:
        """Write a hand-in elsewhere and move it; if that fails, what was there comes back."""
        folder = collected_folder(self.course, self.assignment)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".incoming-", dir=folder) as scratch:
            new = Path(scratch) / "hand-in"
            _write(new, content, time)
            place.parent.mkdir(parents=True, exist_ok=True)
            aside = self._aside(student, place) if place.is_dir() or place.is_symlink() else None
            try:
                shutil.move(new, place)
            except BaseException:
                if aside:
                    shutil.move(aside, place)
                raise
            if aside:
                shown = os.path.relpath(aside, self.course.root)
                notes.append(f"the earlier one is in {shown}")

    def _aside(self, student: str, place: Path) -> Path:
        stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H-%M-%S")
        folder = collected_folder(self.course, self.assignment) / "earlier" / student
        folder.mkdir(parents=True, exist_ok=True)
        aside, count = folder / stamp, 1
        while aside.exists() or aside.is_symlink():
            count += 1
            aside = folder / f"{stamp}-{count}"
        shutil.move(place, aside)
        return aside

    def _record(self, student: str, hand_in: Collected, replaced: bool) -> None:
        known = self.manifest.students.get(student)
        earlier = known.earlier if known else ()
        if known and known.fingerprint != hand_in.fingerprint:
            earlier = (*(f for f in earlier if f != known.fingerprint), known.fingerprint)
        earlier = tuple(f for f in earlier if f != hand_in.fingerprint)
        at = hand_in.at if replaced else known.at if known else ""
        self.manifest.students[student] = replace(hand_in, earlier=earlier, at=at)

    def _correct_time(
        self, student: str, known: Collected, hand_in: Collected, notes: list[str]
    ) -> datetime | None:
        """Write the time of a hand-in that has not changed, if only now it is known."""
        if not hand_in.time or hand_in.time == known.time:
            return known.moment
        _write_time(self.place(student), hand_in.moment)
        self.manifest.students[student] = replace(known, time=hand_in.time, at=hand_in.at)
        notes.append("its time is now known")
        return hand_in.moment


def _is_older(hand_in: Collected, known: Collected) -> bool:
    """Say whether the platform's own numbers, or else the times, put a hand-in before another."""
    if hand_in.upload and known.upload and hand_in.upload != known.upload:
        return hand_in.upload < known.upload
    if hand_in.moment and known.moment:
        return hand_in.moment < known.moment
    return False


def _content(place: Path) -> dict[str, bytes]:
    """Return what a folder holds; of what cannot be read, something that equals nothing."""
    try:
        return read_folder(place)
    except Refused:
        return {"": b""}


def _with_time(hand_in: Collected, time: datetime) -> Collected:
    return replace(hand_in, time=time.isoformat(timespec="seconds"))


def _write(folder: Path, content: dict[str, bytes], time: datetime | None) -> None:
    folder.mkdir(parents=True)
    for name, data in content.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    _write_time(folder, time)


def _write_time(folder: Path, time: datetime | None) -> None:
    """Write a time as nbgrader's exchange writes it."""
    text = f"{time:%Y-%m-%d %H:%M:%S.%f} UTC" if time else ""
    path = folder / TIMESTAMP
    if text and not (path.is_file() and path.read_text(errors="replace") == text):
        path.write_text(text)
