"""The library as the browser gets it: one small zip, and the large files beside it."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from .paths import LIBRARY

# The library goes to the browser as one small file; what is larger than this comes when it is read.
LARGEST_IN_ZIP = 300_000
_LIBRARY_FILES = {".py", ".json", ".txt", ".npz"}


def library_files() -> list[Path]:
    """The library's files that a page can use, in a fixed order."""
    return [
        path
        for path in sorted(LIBRARY.rglob("*"))
        if path.suffix in _LIBRARY_FILES and "__pycache__" not in path.parts
    ]


def library_zip() -> bytes:
    """The library as a zip whose bytes depend on nothing but its files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in library_files():
            if path.stat().st_size > LARGEST_IN_ZIP:
                continue
            entry = zipfile.ZipInfo(path.relative_to(LIBRARY.parent).as_posix())
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def large_files() -> dict[str, int]:
    """What a cell may ask for later: path inside the library's folder → bytes."""
    return {
        path.relative_to(LIBRARY.parent).as_posix(): path.stat().st_size
        for path in library_files()
        if path.stat().st_size > LARGEST_IN_ZIP
    }
