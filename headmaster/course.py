"""A course on disk: where nbgrader's configuration says that its folders and gradebook are."""

from __future__ import annotations

import difflib
import fnmatch
import os
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from headmaster.job import Limits

CONFIG = "nbgrader_config.py"
STRUCTURE = os.path.join("{nbgrader_step}", "{student_id}", "{assignment_id}")
# what nbgrader ignores, and what operating systems leave behind
IGNORED = (".ipynb_checkpoints", "*.pyc", "__pycache__", "feedback")
LITTER = ("__MACOSX", ".DS_Store", "Thumbs.db", "desktop.ini", "._*")


class CourseError(Exception):
    """Something about the course that a person has to put right; the text says what."""


@dataclass(frozen=True)
class Course:
    """The folders and settings of one nbgrader course.

    Settings of headmaster's own stand in the same file:
    `c.Headmaster.trusted_path` (folders with the modules that tests import; default: the course's
    root and the folder above the sources), `c.Headmaster.hide` and `c.Headmaster.show` (packages
    kept from every student's process, and the exceptions), `c.Headmaster.limits` (a dict with the
    fields of `headmaster.job.Limits`), `c.Headmaster.template` (the folder that `headmaster new`
    fills in).
    """

    root: Path
    config: Any  # traitlets' Config

    @classmethod
    def open(cls, folder: Path | str = ".") -> Course:
        """Read the course in a folder; a folder without configuration has nbgrader's defaults."""
        start = Path(folder).absolute()
        if not start.is_dir():
            raise CourseError(f"there is no course folder {folder}")
        config = _load_config(start)
        root = Path(config.CourseDirectory.get("root") or start).absolute()
        return cls(root, config)

    @classmethod
    def around(cls, path: Path) -> Course:
        """Find the course that a file or folder belongs to, by walking up."""
        for folder in [path.absolute(), *path.absolute().parents]:
            if (folder / CONFIG).is_file():
                return cls.open(folder)
        raise CourseError(f"there is no {CONFIG} in {path} or above it")

    def setting(self, section: str, name: str, default: Any) -> Any:
        """Return one setting of nbgrader_config.py."""
        value = self.config.get(section, {}).get(name, default)
        return default if value is None else value

    def folder(self, step: str, student: str = ".", assignment: str = ".") -> Path:
        """Return a folder of nbgrader's: step is source, release, submitted, autograded …"""
        structure = self.setting("CourseDirectory", "directory_structure", STRUCTURE)
        name = self.setting("CourseDirectory", f"{step}_directory", step)
        filled = structure.format(nbgrader_step=name, student_id=student, assignment_id=assignment)
        return Path(os.path.normpath(self.root / filled))

    @property
    def course_id(self) -> str:
        """Return the course's id, "" where none is set."""
        return str(self.setting("CourseDirectory", "course_id", "")).strip()

    @property
    def db_url(self) -> str:
        """Return the SQLAlchemy URL of the gradebook."""
        default = f"sqlite:///{self.root / 'gradebook.db'}"
        return str(self.setting("CourseDirectory", "db_url", "") or default)

    @property
    def trusted_path(self) -> tuple[str, ...]:
        """Return the folders from which test cells import."""
        above_source = self.folder("source").parent
        chosen = self.setting("Headmaster", "trusted_path", None)
        paths = [self.root / item for item in chosen] if chosen else [self.root, above_source]
        return tuple(dict.fromkeys(str(path) for path in paths))

    @property
    def limits(self) -> Limits:
        """Return the limits for every submission."""
        chosen = dict(self.setting("Headmaster", "limits", {}))
        try:
            return Limits(**chosen)
        except TypeError as error:
            raise CourseError(f"c.Headmaster.limits in {CONFIG}: {error}") from None

    @property
    def ignored(self) -> tuple[str, ...]:
        """Return the patterns of files that are neither copied nor handed in."""
        return tuple(self.setting("CourseDirectory", "ignore", IGNORED))

    def assignments(self) -> list[str]:
        """Return the names of the assignments that have a source."""
        source = self.folder("source")
        folders = source.iterdir() if source.is_dir() else ()
        return sorted(f.name for f in folders if f.is_dir() and _has_notebooks(f))

    def students(self, assignment: str) -> list[str]:
        """Return the students who handed in an assignment."""
        anybody = "any student"  # stands for the part of the path that names the student
        base = self.folder("submitted", anybody, assignment)
        place = next((p for p in [base, *base.parents] if p.name == anybody), base)
        below = base.relative_to(place)
        folders = place.parent.iterdir() if place.parent.is_dir() else ()
        names = (f.name for f in folders if not f.is_symlink() and (f / below).is_dir())
        return sorted(name for name in names if not name.startswith("."))

    def require_assignment(self, name: str) -> None:
        """Raise CourseError with the list of assignments if there is none of this name."""
        known = self.assignments()
        if name not in known:
            raise CourseError(_unknown("assignment", name, known, str(self.folder("source"))))

    def require_students(self, assignment: str, wanted: tuple[str, ...]) -> list[str]:
        """Return the students to grade; raise CourseError for one who handed in nothing."""
        known = self.students(assignment)
        for student in wanted:
            if student not in known:
                place = str(self.folder("submitted"))
                raise CourseError(_unknown("student", student, known, place, assignment))
        return [student for student in known if not wanted or student in wanted]


def skipped(name: str, patterns: tuple[str, ...] = IGNORED) -> bool:
    """Say whether a file is nobody's work: caches, checkpoints, what operating systems leave."""
    parts = PurePosixPath(name).parts
    return any(fnmatch.fnmatch(part, pattern) for part in parts for pattern in patterns + LITTER)


def _load_config(folder: Path) -> Any:
    from traitlets.config import Config, PyFileConfigLoader

    file = folder / CONFIG
    if not file.is_file():
        return Config()
    here = Path.cwd()
    try:
        os.chdir(folder)  # a configuration may use paths relative to itself, as under nbgrader
        return PyFileConfigLoader(CONFIG, path=str(folder)).load_config()
    except Exception as error:
        raise CourseError(f"{file}: {type(error).__name__}: {error}") from error
    finally:
        os.chdir(here)


def _has_notebooks(folder: Path) -> bool:
    return any(f.suffix in (".ipynb", ".md") for f in folder.iterdir())


def _unknown(kind: str, name: str, known: list[str], place: str, assignment: str = "") -> str:
    for_what = f" who handed in {assignment!r}" if assignment else ""
    if not known:
        return f"there is no {kind} {name!r}: {place} holds no {kind}{for_what} at all"
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" (did you mean {near[0]!r}?)" if near else ""
    return f"there is no {kind} {name!r}{for_what}{hint}; there are: {', '.join(known)}"
