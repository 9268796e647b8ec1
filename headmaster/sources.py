"""What a download holds: the files of a folder or a zip archive, one at a time and within limits.

Nothing here follows a link, trusts a size, or unpacks anything to disk.
"""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from headmaster.course import CourseError, skipped
from headmaster.intake import MAX_RATIO, MAX_TOTAL, check_place, read_member
from headmaster.job import MIB
from headmaster.reading import MAX_FILE
from headmaster.records import Refused

MAX_CLASS_FILES = 50_000
MAX_CLASS_TOTAL = 16 * 1024 * MIB
_UTF8_FLAG, _ENCRYPTED = 0x800, 0x1
_TIME_FIELD, _NAME_FIELD = 0x5455, 0x7075  # of a zip member's extra fields


@dataclass(frozen=True)
class Entry:
    """One file of a download; it is read when it is asked for."""

    source: str  # the download's name
    path: str  # within the download, with /
    size: int
    mark: str  # changes with the content, and costs nothing to know
    time: datetime | None  # naive UTC
    read: Callable[[], bytes]  # raises Refused
    spellings: tuple[str, ...] = ()  # other readings of a name whose encoding is not known
    trouble: Refused | None = None  # why it cannot be read
    place: Path | None = None  # where it lies, if it is a file on disk

    @property
    def shown(self) -> str:
        """Return the name with the download that it is in."""
        return f"{self.source}: {self.path}" if self.source != self.path else self.path


@contextmanager
def open_sources(paths: list[Path]) -> Iterator[tuple[list[Entry], Callable[[Entry], list[Entry]]]]:
    """Open downloads; yield their files, and a function that opens an archive among them."""
    with ExitStack() as stack:
        entries = [entry for path in paths for entry in _open(path, stack)]
        yield entries, lambda entry: _open_inner(entry, stack)


def _open(path: Path, stack: ExitStack) -> list[Entry]:
    if not path.exists():
        raise CourseError(f"there is no {path}")
    if path.is_dir():
        try:
            return _folder(path)
        except OSError as error:
            raise CourseError(f"{error.filename} cannot be read: {error.strerror}") from None
    if path.suffix.lower() == ".zip":
        return _archive(path, path.name, stack)
    if zipfile.is_zipfile(path):  # a notebook never is
        return _archive(path, path.name, stack)
    return [_file(path, path.name, path.name)]


def _open_inner(entry: Entry, stack: ExitStack) -> list[Entry]:
    """Open an archive that lies in a download; raises Refused or CourseError."""
    if entry.place:
        return _archive(entry.place, entry.path, stack)
    if entry.size > MAX_TOTAL:
        raise Refused("too-large", f"The archive is larger than {MAX_TOTAL // MIB} MB.")
    return _archive(io.BytesIO(entry.read()), entry.path, stack)


# --- folders -------------------------------------------------------------------------------------


def _folder(folder: Path) -> list[Entry]:
    entries: list[Entry] = []
    queue = [folder]
    while queue:
        for item in sorted(os.scandir(queue.pop()), key=lambda e: e.name):
            path = Path(item.path)
            name = path.relative_to(folder).as_posix()
            if skipped(name):
                continue
            if item.is_dir(follow_symlinks=False):
                queue.append(path)
            else:
                entries.append(_file(path, folder.name, name))
            if len(entries) + len(queue) > MAX_CLASS_FILES:
                raise CourseError(f"{folder} holds more than {MAX_CLASS_FILES} files")
    return sorted(entries, key=lambda entry: entry.path)


def _file(path: Path, source: str, name: str) -> Entry:
    status = path.lstat()
    trouble = None
    if stat.S_ISLNK(status.st_mode):
        trouble = Refused("link", "it is a link to another place, not a file")
    elif not stat.S_ISREG(status.st_mode):
        trouble = Refused("special-file", "it is neither a file nor a folder")
    elif status.st_size > MAX_FILE and path.suffix.lower() != ".zip":
        trouble = Refused("too-large", f"it is larger than {MAX_FILE // MIB} MB")
    time = datetime.fromtimestamp(int(status.st_mtime), UTC).replace(tzinfo=None)
    return Entry(
        source=source,
        path=name,
        size=status.st_size,
        mark=f"{status.st_size}@{status.st_mtime_ns}",
        time=time,
        read=lambda: _read_file(path),
        trouble=trouble,
        place=path,
    )


def _read_file(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0))
        with os.fdopen(handle, "rb") as file:
            data = file.read(MAX_FILE + 1)
    except OSError as error:
        raise Refused("unreadable", f"it cannot be read: {error.strerror}") from None
    if len(data) > MAX_FILE:
        raise Refused("too-large", f"it is larger than {MAX_FILE // MIB} MB")
    return data


# --- zip archives --------------------------------------------------------------------------------


def _archive(file: Path | io.BytesIO, name: str, stack: ExitStack) -> list[Entry]:
    try:
        archive = stack.enter_context(zipfile.ZipFile(file))
    except Exception as error:  # zipfile raises many kinds for a damaged archive
        raise CourseError(f"{name} {_no_zip(file, error)}") from None
    members = [info for info in archive.infolist() if not info.is_dir()]
    total = sum(info.file_size for info in members)
    if len(members) > MAX_CLASS_FILES or total > MAX_CLASS_TOTAL:
        raise CourseError(
            f"{name} claims to hold {len(members)} files of {total / MIB:,.0f} MB: that is no "
            "download of hand-ins, and nothing of it was unpacked"
        )
    entries = [_member(archive, info, name) for info in members]
    return [entry for entry in entries if not skipped(entry.path)]


def _no_zip(file: Path | io.BytesIO, error: Exception) -> str:
    """Say what a file that is no archive probably is."""
    if isinstance(file, Path):
        with open(file, "rb") as opened:
            head = opened.read(512)
    else:
        head = file.getvalue()[:512]
    if head.lstrip()[:1] == b"<":
        return (
            "is a web page and not a zip file: the platform probably asked to log in; "
            "download it again in the browser"
        )
    if head.startswith(b"PK"):
        return f"is a zip file that breaks off or is damaged ({error}); download it again"
    return f"is not a zip file ({error}); download it again, or give the folder of files instead"


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, source: str) -> Entry:
    path, *others = _spellings(info)
    return Entry(
        source=source,
        path=path,
        size=info.file_size,
        mark=f"{info.file_size}#{info.CRC:08x}",
        time=_time(info),
        read=lambda: _read(archive, info),
        spellings=tuple(others),
        trouble=_trouble(_renamed(info, path)),
    )


def _renamed(info: zipfile.ZipInfo, path: str) -> zipfile.ZipInfo:
    """Return a copy of a member's description under the name that it is read as."""
    copy = zipfile.ZipInfo(path, info.date_time)
    copy.filename = path
    copy.external_attr, copy.flag_bits = info.external_attr, info.flag_bits
    copy.file_size, copy.compress_size = info.file_size, info.compress_size
    return copy


def _trouble(info: zipfile.ZipInfo) -> Refused | None:
    try:
        check_place(info)
    except Refused as refused:
        return refused
    if info.flag_bits & _ENCRYPTED:
        return Refused("bad-archive", "it is protected by a password")
    if info.file_size > MAX_FILE:
        return Refused("too-large", f"it is larger than {MAX_FILE // MIB} MB")
    if info.file_size > MIB and info.file_size > MAX_RATIO * max(info.compress_size, 1):
        return Refused("too-large", "it unpacks to far more than a notebook can need")
    return None


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    try:
        return read_member(archive, info)
    except Refused:
        raise
    except Exception:  # zipfile raises many kinds for a damaged member
        raise Refused("bad-archive", "it is damaged in the zip file; download it again") from None


def _spellings(info: zipfile.ZipInfo) -> list[str]:
    """Return the readings of a member's name, the likeliest first.

    A name without the UTF-8 flag should be in code page 437; many programs write UTF-8, or their
    system's own code page, all the same.
    """
    name = info.orig_filename.split("\0")[0]
    if info.flag_bits & _UTF8_FLAG:
        return [name.replace("\\", "/")]
    raw = name.encode("cp437", "replace")
    told = _extra(info, _NAME_FIELD)
    readings = []
    if told and len(told) > 5 and struct.unpack("<L", told[1:5])[0] == zlib.crc32(raw):
        readings.append(told[5:].decode("utf-8", "replace"))
    for encoding in ("utf-8", "cp437", "cp850", "cp1252"):
        try:
            readings.append(raw.decode(encoding))
        except UnicodeDecodeError:
            continue
    return list(dict.fromkeys(reading.replace("\\", "/") for reading in readings))


def _time(info: zipfile.ZipInfo) -> datetime | None:
    """Return when a member was last changed; the old field has no time zone: it is ours."""
    told = _extra(info, _TIME_FIELD)
    if told and len(told) >= 5 and told[0] & 1:
        seconds = struct.unpack("<l", told[1:5])[0]
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    if info.date_time[:3] <= (1980, 1, 1):  # archives that hold no times
        return None
    try:
        return datetime(*info.date_time).astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        return None


def _extra(info: zipfile.ZipInfo, wanted: int) -> bytes | None:
    data = info.extra
    while len(data) >= 4:
        kind, length = struct.unpack("<HH", data[:4])
        if kind == wanted:
            return data[4 : 4 + length]
        data = data[4 + length :]
    return None
