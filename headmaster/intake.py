"""Take in what a student handed in: find the notebooks, refuse what could do harm.

Nothing here follows a link, writes a file, or trusts a name or a size that the hand-in claims.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import zipfile
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from headmaster.course import Course, skipped
from headmaster.job import MIB
from headmaster.reading import MAX_FILE, SubmittedCell, decode, read_notebook
from headmaster.records import Refused
from headmaster.release import AssignmentSpec, NotebookSpec

MAX_FILES = 2_000
MAX_TOTAL = 200 * MIB
MAX_RATIO = 200  # unpacked to packed bytes, of an archive as a whole
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst")
TIMESTAMP = "timestamp.txt"


@dataclass(frozen=True)
class HandIn:
    """One student's hand-in for an assignment."""

    student: str
    notebooks: dict[str, list[SubmittedCell] | Refused | None]  # None: this one is missing
    files: tuple[tuple[str, bytes], ...]  # the other files
    timestamp: datetime | None
    digest: str
    notes: list[str] = field(default_factory=list)


def take_in(course: Course, spec: AssignmentSpec, student: str) -> HandIn:
    """Read a student's folder; whatever is wrong with it stands in the hand-in as Refused."""
    folder = course.folder("submitted", student, spec.name)
    try:
        found = _unpack_single_archive(read_folder(folder))
        files = {n: data for n, data in found.items() if not skipped(n, course.ignored)}
    except Refused as refused:
        everything = {notebook.name: refused for notebook in spec.notebooks}
        return HandIn(student, everything, (), _modified(folder), _digest_of_refusal(refused))
    return _hand_in(spec, student, files)


def _hand_in(spec: AssignmentSpec, student: str, files: dict[str, bytes]) -> HandIn:
    notes: list[str] = []
    chosen = _choose(spec, files, notes)
    notebooks: dict[str, list[SubmittedCell] | Refused | None] = {}
    for name, path in chosen.items():
        notebooks[name] = _read(files[path]) if path else None
    if all(path is None for path in chosen.values()):
        nothing = Refused("no-notebook", _nothing(files))
        notebooks = dict.fromkeys(chosen, nothing)
    used = {path for path in chosen.values() if path}
    others = tuple(
        (name, data)
        for name, data in sorted(files.items())
        if name not in used and name != TIMESTAMP and not name.endswith(".ipynb")
    )
    stamp = _timestamp(files.get(TIMESTAMP), notes)
    return HandIn(student, notebooks, others, stamp, _digest(files), notes)


def _read(data: bytes) -> list[SubmittedCell] | Refused:
    try:
        return read_notebook(data)
    except Refused as refused:
        return refused


def _nothing(files: dict[str, bytes]) -> str:
    if not files:
        return "The folder is empty: nothing was handed in."
    names = ", ".join(sorted(files)[:5])
    return f"There is no notebook (.ipynb) among the files that were handed in: {names}."


def _modified(folder: Path) -> datetime | None:
    try:
        data = (folder / TIMESTAMP).read_bytes()[:200] if not folder.is_symlink() else None
    except OSError:
        return None
    return submitted_time(data)


def submitted_time(data: bytes | None) -> datetime | None:
    """Return the time in nbgrader's timestamp.txt as naive UTC, None where there is none."""
    return _timestamp(data, [])


def _timestamp(data: bytes | None, notes: list[str]) -> datetime | None:
    """Read nbgrader's timestamp.txt as naive UTC, as its gradebook keeps it."""
    if not data or not data.strip():
        return None
    text = decode(data[:200]).strip()
    try:
        from dateutil import parser, tz

        moment = parser.parse(text, tzinfos=lambda name, offset: offset or tz.gettz(name))
        return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
    except (ValueError, OverflowError):
        notes.append(f"{TIMESTAMP} holds no time that can be read: {text!r}")
        return None


def _digest(files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    for name, data in sorted(files.items()):
        digest.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
        digest.update(data)
    return digest.hexdigest()


def _digest_of_refusal(refused: Refused) -> str:
    return hashlib.sha256(f"{refused.code}\0{refused.message}".encode()).hexdigest()


# --- reading a folder ----------------------------------------------------------------------------


def read_folder(folder: Path) -> dict[str, bytes]:
    """Return the files of a hand-in by their relative names; raise Refused for links and floods."""
    files: dict[str, bytes] = {}
    total = 0
    for name, path in _walk(folder):
        total += path.lstat().st_size
        if len(files) >= MAX_FILES or total > MAX_TOTAL:
            raise Refused("too-large", _too_large())
        files[name] = _read_file(path, name)
    return files


def _walk(folder: Path) -> list[tuple[str, Path]]:
    if folder.is_symlink():
        raise Refused("link", "The folder that was handed in is a link to another place.")
    found: list[tuple[str, Path]] = []
    queue = [folder]
    while queue:
        for entry in sorted(os.scandir(queue.pop()), key=lambda e: e.name):
            path = Path(entry.path)
            name = path.relative_to(folder).as_posix()
            if skipped(name):
                continue
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                raise Refused("link", f"{_shown(name)} is a link to another place, not a file.")
            if stat.S_ISDIR(mode):
                queue.append(path)
            elif stat.S_ISREG(mode):
                found.append((name, path))
            else:
                raise Refused("special-file", f"{_shown(name)} is neither a file nor a folder.")
            if len(found) + len(queue) > MAX_FILES:
                raise Refused("too-large", _too_large())
    return found


def _read_file(path: Path, name: str) -> bytes:
    """Read a file that must still be the plain file that was seen a moment ago."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
    except OSError as error:
        raise Refused("unreadable", f"{_shown(name)} cannot be read: {error.strerror}.") from None
    with os.fdopen(handle, "rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise Refused("too-large", f"{_shown(name)} is larger than {MAX_FILE // MIB} MB.")
    return data


def _too_large() -> str:
    return f"The hand-in is larger than {MAX_TOTAL // MIB} MB or has more than {MAX_FILES} files."


def _shown(name: str) -> str:
    return repr(name.encode("utf-8", "replace").decode()[:120])


# --- a hand-in that is one archive ---------------------------------------------------------------


def _unpack_single_archive(files: dict[str, bytes]) -> dict[str, bytes]:
    """If there is no notebook but a zip, take the notebook out of the zip."""
    if any(name.endswith(".ipynb") for name in files):
        return files
    archives = [name for name in files if name.lower().endswith(ARCHIVES)]
    zips = [name for name in archives if name.lower().endswith(".zip")]
    if not archives:
        return files
    if len(archives) > 1 or not zips:
        raise Refused("bad-archive", "Hand in the notebook itself, or one zip file that holds it.")
    rest = {name: data for name, data in files.items() if name not in archives}
    inside = read_zip(files[zips[0]])
    inside.pop(TIMESTAMP, None)  # the time is the collector's to say
    return {**inside, **rest}


def read_zip(data: bytes) -> dict[str, bytes]:
    """Return the files of a zip archive; raise Refused for anything that a notebook never needs."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            _check_members(members, len(data))
            kept = [info for info in members if not skipped(info.filename)]
            return _without_common_folder({m.filename: read_member(archive, m) for m in kept})
    except Refused:
        raise
    except Exception as error:  # zipfile raises many kinds for a damaged archive
        kind = type(error).__name__
        raise Refused("bad-archive", f"The zip file is damaged or protected ({kind}).") from None


def _check_members(members: list[zipfile.ZipInfo], packed: int) -> None:
    total = sum(info.file_size for info in members)
    if len(members) > MAX_FILES or total > MAX_TOTAL:
        raise Refused("too-large", _too_large())
    if total > MIB and total > MAX_RATIO * packed:
        raise Refused("too-large", "The zip file unpacks to far more than a notebook can need.")
    for info in members:
        check_place(info)
        if info.filename.lower().endswith(ARCHIVES):
            shown = _shown(info.filename)
            raise Refused("nested-archive", f"The zip file holds another archive, {shown}.")


def check_place(info: zipfile.ZipInfo) -> None:
    """Raise Refused for a member that leads out of the archive, is a link, or is no plain file."""
    name = info.filename
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or parts[0] == "/" or ".." in parts or ":" in parts[0] or "\0" in name:
        raise Refused("unsafe-path", f"The zip file holds {_shown(name)}, which leads out of it.")
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        raise Refused("link", f"The zip file holds a link, {_shown(name)}.")
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise Refused("special-file", f"{_shown(name)} in the zip file is not a plain file.")


def read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Unpack one member, and stop where it is longer than it claims."""
    with archive.open(info) as file:
        data = file.read(info.file_size + 1)
    if len(data) > info.file_size:
        raise Refused("too-large", f"{_shown(info.filename)} is longer than the zip file says.")
    return data


def _without_common_folder(files: dict[str, bytes]) -> dict[str, bytes]:
    tops = {PurePosixPath(name).parts[0] for name in files}
    if len(tops) == 1 and all("/" in name for name in files):
        return _without_common_folder({n.split("/", 1)[1]: data for n, data in files.items()})
    return files


# --- which file is which notebook ----------------------------------------------------------------


def _choose(
    spec: AssignmentSpec, files: dict[str, bytes], notes: list[str]
) -> dict[str, str | None]:
    """Return the file of each notebook: by its name, else by what stands in it."""
    candidates = [name for name in files if _may_be_notebook(name)]
    chosen: dict[str, str | None] = {}
    for notebook in spec.notebooks:
        exact = f"{notebook.name}.ipynb"
        chosen[notebook.name] = exact if exact in candidates else None
    for notebook in spec.notebooks:
        left = [name for name in candidates if name not in chosen.values()]
        if chosen[notebook.name] is None and left:
            best = max(left, key=lambda name: _likeness(notebook, name, files[name]))
            if _likeness(notebook, best, files[best])[0] > 0 or len(spec.notebooks) == 1:
                chosen[notebook.name] = best
                notes.append(f"{_shown(best)} was taken for {notebook.name}.ipynb")
    return chosen


def _may_be_notebook(name: str) -> bool:
    lower = name.lower()
    return lower.endswith((".ipynb", ".ipynb.txt", ".ipynb.json", ".ipynb.download"))


def _likeness(notebook: NotebookSpec, name: str, data: bytes) -> tuple[float, float]:
    """Return how much of the notebook's cells a file holds, and how close its name is."""
    from rapidfuzz import fuzz

    cells = _read(data)
    if isinstance(cells, Refused):
        return 0.0, fuzz.ratio(notebook.name, PurePosixPath(name).stem)
    ids = {cell.grade_id or cell.id for cell in cells}
    sources = "\n".join(cell.source for cell in cells)
    wanted = [c for c in notebook.cells if c.role != "free"]
    held = sum(c.id in ids or any(f" {name}(" in sources for name in c.names) for c in wanted)
    return held / max(len(wanted), 1), fuzz.ratio(notebook.name, PurePosixPath(name).stem)
