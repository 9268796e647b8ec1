"""Write the students' edition: the book, the exercises and the library, and how to use them.

    python book/_ext/student_edition.py    build/student-edition/, and its zip beside it

What goes in is named here: solutions, hidden tests, specs, the grader and its tests are not, nor
are the pages for those who teach.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "build/student-edition"
NAME = "many-heads-student-edition"
README = "book/_ext/student_edition.md"
FOLDERS = ("book", "exercises", "manyheads")
FILES = ("_config.yml", "_toc.yml", "LICENSE", "LICENSE-text")
FOR_TEACHERS = {"book/instructors", "book/writing-exercises", "book/publishing"}
LEFT_OUT = (".*", "*~", "*.pyc", "__pycache__", "student_edition.*", "print_book.py")
# The sections of pyproject.toml and requirements.txt that students need.
SETTINGS = ("[build-system]", "[project]", "[tool.setuptools.")
PINS = ("The library", "The book")
NOTEBOOKS = "jupyterlab"  # pinned among what the others bring with them
OTHER_PINS = "What these bring with them"


def write(root: Path, target: Path) -> None:
    """Write the edition of the course in `root` into a folder, in place of what was there."""
    shutil.rmtree(target, ignore_errors=True)
    for source in files(root):
        copy = target / source.relative_to(root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    for name, text in own_texts(root).items():
        (target / name).write_text(text, encoding="utf-8")


def pack(folder: Path, target: Path) -> None:
    """Zip a folder; the bytes depend on nothing but its files."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = zipfile.ZipInfo(f"{NAME}/{path.relative_to(folder).as_posix()}")
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())


def files(root: Path) -> Iterator[Path]:
    """The files that are the same in the edition and in the course."""
    yield from (root / name for name in FILES)
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    pages = set(re.findall(r"(?:file|root): *(book/[\w-]+)", contents)) - FOR_TEACHERS
    for path in (path for name in FOLDERS for path in _below(root / name)):
        place = path.relative_to(root)
        if place.parent == Path("book") and path.suffix == ".md" and path.name[0] != "_":
            if place.with_suffix("").as_posix() in pages:  # not what only lies there
                yield path
        else:
            yield path


def _below(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if any(fnmatch(path.name, pattern) for pattern in LEFT_OUT):
            continue
        if path.is_dir():
            yield from _below(path)
        else:
            yield path


def own_texts(root: Path) -> dict[str, str]:
    """The files that the edition has of its own."""
    project = (root / "pyproject.toml").read_text(encoding="utf-8")
    pins = (root / "requirements.txt").read_text(encoding="utf-8")
    return {
        "README.md": (root / README).read_text(encoding="utf-8"),
        "pyproject.toml": _project(project),
        "requirements.txt": _requirements(pins),
        "constraints.txt": _section(pins, OTHER_PINS),
    }


def _project(text: str) -> str:
    """The settings without the grader and without what only developers need."""
    sections = re.findall(r"^\[.*?(?=^\[|\Z)", text, re.M | re.S)
    kept = [section for section in sections if section.startswith(SETTINGS)]
    lines = "".join(kept).replace(', "headmaster*"', "").splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("headmaster"))


def _requirements(pins: str) -> str:
    """The pins of the library and the book, and a notebook server."""
    server = re.search(rf"^{NOTEBOOKS}==.*$", pins, re.M)[0]
    parts = [_section(pins, name) for name in PINS]
    head = "# For the exercises and the book. Other versions that these need: constraints.txt.\n"
    return f"{head}-c constraints.txt\n-e .\n{server}\n\n" + "\n".join(parts)


def _section(pins: str, name: str) -> str:
    """The lines of one section, which begins with a comment."""
    return re.search(rf"^# {name}\n(?:[^#\n].*\n)+", pins, re.M)[0]


def main() -> None:
    """Write the folder and the zip."""
    archive = TARGET.parent / f"{NAME}.zip"
    write(ROOT, TARGET)
    pack(TARGET, archive)
    for path in (TARGET, archive):
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()
