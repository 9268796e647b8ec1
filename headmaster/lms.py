"""What the name of a downloaded file says: who handed it in, when it counts, and what it holds.

The forms are those of Canvas's and Moodle's own code (Canvas: lib/content_zipper.rb; Moodle:
mod/assign/classes/downloader.php):

    lovelaceada_12345_67890_topic.ipynb                    Canvas: name, person, upload, file
    lovelaceada_LATE_12345_67890_topic-2.ipynb             … late, handed in again
    anon_Xy3k9_67890_topic.ipynb                           … graded without names
    Ada Lovelace_123456_assignsubmission_file_/topic.ipynb Moodle: a folder for each student
    Ada Lovelace_123456_assignsubmission_file_topic.ipynb  … or all in one folder
    ada_topic.ipynb, ada/topic.ipynb                       files that somebody named so
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

Lms = Literal["canvas", "moodle", "names"]

_CANVAS = re.compile(
    r"(?P<name>.+?)_(?P<late>LATE_)?(?P<person>\d+)_"
    r"(?:(?P<upload>\d+)_(?P<file>.+)|(?P<page>(?:text|link)\.html))",
    re.IGNORECASE,
)
_ANONYMOUS = re.compile(
    r"(?P<late>LATE_)?anon_(?P<anonymous>[A-Za-z0-9]+)_"
    r"(?:(?P<upload>\d+)_(?P<file>.+)|(?P<page>(?:text|link)\.html))",
    re.IGNORECASE,
)
_MOODLE = re.compile(
    r"(?P<name>.+?)(?:_(?P<person>\d+))?_assignsubmission_[a-z]+(?:_(?P<file>.*))?"
)
# what Canvas, browsers and file managers append to a name that is there already
_COUNTER = re.compile(
    r"(?:-(?P<a>\d+)| ?\((?P<b>\d+)\)| - Copy(?: \((?P<c>\d+)\))?| copy(?: (?P<d>\d+))?)$",
    re.IGNORECASE,
)
_NOTEBOOK = re.compile(r"(?P<stem>.+?)\.ipynb(?:\.(?:txt|json|download))?$", re.IGNORECASE)


@dataclass(frozen=True)
class Sender:
    """Whom a file is from, as its name says it."""

    lms: Lms
    file: str  # as the student named it, perhaps with folders
    name: str = ""  # of the person or group, as the platform writes it; of "names": any id
    number: str = ""  # the platform's number for the person or group
    anonymous: str = ""
    upload: int = 0  # Canvas's number of the upload: a later one is larger
    late: bool = False
    folder: str = ""  # Moodle's name for the student's folder
    sure: bool = False  # of "names": the form says whom, even where no class list does


def senders(path: str, notebooks: Iterable[str], pattern: str = "") -> Iterator[Sender]:
    """Yield what a file's path may say, the surest reading first.

    `pattern` is nbgrader's `FileNameCollectorPlugin.named_regexp`, "" where none is set.
    """
    pure = PurePosixPath(path)
    moodle = _moodle(pure)
    if moodle:
        yield moodle
        return
    canvas = _canvas(pure.name)
    if canvas:
        yield canvas
    yield from _by_pattern(path, pattern)
    for sender in (*_by_notebook(pure.name, notebooks), *_by_folder(pure.parts, notebooks)):
        yield replace(sender, sure=sender.sure and not canvas)
    yield from _by_beginning(pure.name)


def _moodle(path: PurePosixPath) -> Sender | None:
    for depth, part in enumerate(path.parts):
        match = _MOODLE.fullmatch(part)
        below = path.parts[depth + 1 :]
        if match and (below or match["file"]):
            flat = not below
            file = match["file"] if flat else "/".join(below)
            folder = part.removesuffix(match["file"] or "") if flat else part
            return Sender("moodle", file, match["name"], match["person"] or "", folder=folder)
    return None


def _canvas(name: str) -> Sender | None:
    match = _ANONYMOUS.fullmatch(name) or _CANVAS.fullmatch(name)
    if not match:
        return None
    found = match.groupdict()
    return Sender(
        "canvas",
        found["file"] or found["page"],
        found.get("name") or "",
        found.get("person") or "",
        found.get("anonymous") or "",
        int(found["upload"] or 0),
        bool(found["late"]),
    )


def _by_pattern(path: str, pattern: str) -> Iterator[Sender]:
    match = re.match(pattern, path) if pattern else None
    found = match.groupdict() if match else {}
    if found.get("student_id") and found.get("file_id"):
        suffix = "" if found["file_id"].endswith(".ipynb") else PurePosixPath(path).suffix
        yield Sender("names", found["file_id"] + suffix, found["student_id"], sure=True)


def _by_notebook(name: str, notebooks: Iterable[str]) -> Iterator[Sender]:
    """Read student_notebook.ipynb and notebook_student.ipynb, for notebooks that there are."""
    match = _NOTEBOOK.fullmatch(name)
    if not match:
        return
    stem, _ = _without_counters(match["stem"])
    plain = [(known, plain_stem(known)) for known in notebooks]
    for known, wanted in sorted(plain, key=lambda pair: -len(pair[1])):
        for cut in _cuts(stem):
            before, after = stem[:cut], stem[cut + 1 :]
            if plain_stem(after) == wanted:
                yield Sender("names", name[cut + 1 :], before, sure=True)
            if plain_stem(before) == wanted:
                yield Sender("names", f"{known}.ipynb", after, sure=True)


def _by_folder(parts: tuple[str, ...], notebooks: Iterable[str]) -> Iterator[Sender]:
    for depth in range(len(parts) - 1):
        file = "/".join(parts[depth + 1 :])
        known = depth == 0 and notebook_of(file, notebooks)[0] is not None
        yield Sender("names", file, parts[depth], sure=known)


def _by_beginning(name: str) -> Iterator[Sender]:
    """Read student_anything.txt; whether it begins with a student only a class list can say."""
    stem = name.rpartition(".")[0] or name
    yield Sender("names", name, stem)
    for cut in reversed(_cuts(stem)):
        yield Sender("names", name[cut + 1 :], stem[:cut])


def _cuts(stem: str) -> list[int]:
    return [index for index, letter in enumerate(stem) if letter in "_- " and index > 0]


# --- which notebook ------------------------------------------------------------------------------


def plain_stem(stem: str) -> str:
    """Return a file's stem as it is compared: letters alike, and one kind of gap."""
    return re.sub(r"[\s_-]+", "_", unicodedata.normalize("NFC", stem).casefold()).strip("_")


def is_notebook(file: str) -> bool:
    """Say whether a file's name is that of a notebook."""
    return _NOTEBOOK.fullmatch(PurePosixPath(file).name) is not None


def notebook_of(file: str, notebooks: Iterable[str]) -> tuple[str | None, tuple[int, ...]]:
    """Return the notebook that a file is by its name, and the counters at the name's end."""
    match = _NOTEBOOK.fullmatch(PurePosixPath(file).name)
    if not match:
        return None, ()
    known = {plain_stem(name): name for name in notebooks}
    stem, counters = match["stem"], ()
    while True:
        if plain_stem(stem) in known:
            return known[plain_stem(stem)], counters
        shorter, more = _without_counter(stem)
        if shorter == stem:
            return None, counters
        stem, counters = shorter, (*more, *counters)


def _without_counters(stem: str) -> tuple[str, tuple[int, ...]]:
    counters: tuple[int, ...] = ()
    while True:
        shorter, more = _without_counter(stem)
        if shorter == stem:
            return stem, counters
        stem, counters = shorter, (*more, *counters)


def _without_counter(stem: str) -> tuple[str, tuple[int, ...]]:
    match = _COUNTER.search(stem)
    if not match or match.start() == 0:
        return stem, ()
    number = next((int(text) for text in match.groups() if text), 1)
    return stem[: match.start()], (number,)
