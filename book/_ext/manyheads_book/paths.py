"""Where things are in the repository."""

from __future__ import annotations

from pathlib import Path

EXT = Path(__file__).resolve().parent
BOOK = EXT.parent.parent
ROOT = BOOK.parent
VENDOR = BOOK / "_vendor"
STATIC = BOOK / "_static"
LIBRARY = ROOT / "manyheads"
