"""Downloads as Canvas and Moodle make them, built by the rules of their own code.

Canvas, lib/content_zipper.rb (github.com/instructure/canvas-lms): the sortable name in small
letters, LATE where it is late, the user's and the attachment's number; then everything that is no
letter, digit or underscore is dropped from that, and the file's name follows as the student gave
it. An assignment without names has anon_ and the anonymous id instead of name and number.

Moodle, mod/assign/classes/downloader.php (github.com/moodle/moodle): the full name with spaces for
underscores, the participant's number, the kind of plug-in; then a folder (up to 4.0 with _ at its
end), or, without folders, the file's name. clean_filename drops what file systems do not allow.
"""

from __future__ import annotations

import re
import stat
import zipfile
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

HERE = Path(__file__).parent / "lms"
GRADEBOOK = HERE / "canvas_gradebook.csv"
WORKSHEET = HERE / "moodle_worksheet.csv"
GRADES = HERE / "moodle_grades.csv"
CLASS = HERE / "class.csv"

EARLY = datetime(2026, 11, 2, 10, 0)
LATER = datetime(2026, 11, 3, 11, 30)

Member = tuple[str, bytes, datetime]


def canvas(sortable: str, user: int, upload: int, file: str, late: bool = False) -> str:
    """Return the name that Canvas gives a file."""
    name = re.sub(r"_(\d+)_", r"\1", sortable).lower()
    parts = [name, *(["LATE"] if late else []), str(user)]
    head = re.sub(r"[^\w]", "", "_".join(parts))
    return f"{head}_{upload}_{re.sub(r'[/:*?<>|]+', '_', file)}"


def canvas_anonymous(anonymous: str, upload: int, file: str, late: bool = False) -> str:
    """Return the name that Canvas gives a file where students have no names."""
    return f"{'LATE_' if late else ''}anon_{anonymous}_{upload}_{file}"


def moodle(full_name: str, participant: int, file: str, flat: bool = False, end: str = "_") -> str:
    """Return the path that Moodle gives a file; end is "" since version 4.1."""
    name = re.sub(r"[&<>\"`|':\\/]", "", full_name.replace("_", " "))
    head = f"{name}_{participant}_assignsubmission_file"
    return f"{head}_{file}" if flat else f"{head}{end}/{file}"


def write_zip(path: Path, members: Iterable[Member], **more: int) -> Path:
    """Write an archive; `flag_bits=0` leaves names without the mark that they are UTF-8."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data, time in members:
            info = zipfile.ZipInfo(name, time.timetuple()[:6])
            info.compress_type = zipfile.ZIP_DEFLATED
            for key, value in more.items():
                setattr(info, key, value)
            archive.writestr(info, data)
    return path


def link(name: str, target: bytes) -> tuple[zipfile.ZipInfo, bytes]:
    """Return a member of an archive that is a symbolic link."""
    info = zipfile.ZipInfo(name, EARLY.timetuple()[:6])
    info.create_system = 3
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target


def zip_with_raw_names(path: Path, members: Iterable[tuple[bytes, bytes]]) -> Path:
    """Write an archive whose names are these bytes, without any mark of their encoding."""
    names: dict[bytes, bytes] = {}
    with zipfile.ZipFile(path, "w") as archive:
        for count, (raw, data) in enumerate(members):
            stand_in = f"{count}".ljust(len(raw), "~").encode()[: len(raw)]
            names[stand_in] = raw
            archive.writestr(zipfile.ZipInfo(stand_in.decode(), EARLY.timetuple()[:6]), data)
    content = path.read_bytes()
    for stand_in, raw in names.items():
        content = content.replace(stand_in, raw)
    path.write_bytes(content)
    return path
