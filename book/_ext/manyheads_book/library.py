"""The library as the browser gets it: a small zip at the start, larger files when they are read."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

from .paths import LIBRARY

VISIBLE = LIBRARY / "check/visible"
DATA = {".json", ".npz"}
SMALL = 16_000  # bytes; data up to this size travels with the code


def _files() -> list[Path]:
    """The library's code and data, in a fixed order; scripts that make its assets are left out."""
    found = [path for path in sorted(LIBRARY.rglob("*")) if "__pycache__" not in path.parts]
    return [
        path
        for path in found
        if path.suffix in DATA or (path.suffix == ".py" and not path.name.startswith("make_"))
    ]


def _in_zip(path: Path) -> bool:
    return path.suffix == ".py" or (path.stat().st_size <= SMALL and path.parent != VISIBLE)


def _name(path: Path) -> str:
    return path.relative_to(LIBRARY.parent).as_posix()


def library_zip() -> bytes:
    """The library as a zip whose bytes depend on nothing but its files."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in filter(_in_zip, _files()):
            entry = zipfile.ZipInfo(_name(path))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, path.read_bytes(), compresslevel=9)
    return buffer.getvalue()


def later_files() -> dict[str, int]:
    """What a cell may ask for later: path inside the library's folder → bytes."""
    return {_name(path): path.stat().st_size for path in _files() if not _in_zip(path)}


def contract_files(docname: str) -> list[str]:
    """The checks that a page starts with: a chapter's own, an exercise's and those before it."""
    place = docname.split("/")
    if place[0] == "exercises":
        return [_name(path) for path in sorted(VISIBLE.glob("*.json")) if path.stem <= place[1]]
    return [_name(path) for path in VISIBLE.glob(f"{place[-1]}.json")]
