"""What an assignment asks: its cells, tests and points, read from the course's own source.

The submission is never asked about any of this. The released form of a cell (what students got)
follows nbgrader's rules for solution and hidden-test regions, with the course's own settings.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from headmaster import pycode
from headmaster.course import Course, CourseError, skipped
from headmaster.light import skip_slow_grammar
from headmaster.reading import clean, decode

# test: graded by the machine · locked: released code or text that is restored · solution: the
# student's code · manual: graded by a person · task: text that is restored, graded by a person ·
# free: everything else
Role = Literal["test", "locked", "solution", "manual", "task", "free"]

STUB = "# YOUR CODE HERE\nraise NotImplementedError()"
TEXT_STUB = "YOUR ANSWER HERE"
_AUTOTEST = re.compile(r"^\s*#+\s*(HASHED\s+)?AUTOTEST\b", re.MULTILINE)


@dataclass(frozen=True)
class SpecCell:
    """One cell of the source notebook."""

    id: str
    cell_type: str
    role: Role
    source: str  # with answers and hidden tests
    released: str  # as students received it
    points: float = 0.0
    checksum: str = ""  # nbgrader's, of the source as its gradebook holds it
    function: str | None = None  # of a test: what it tests

    @property
    def graded(self) -> bool:
        """Say whether the cell has points."""
        return self.role in ("test", "manual", "task")

    @cached_property
    def names(self) -> list[str]:
        """Return what this cell of the course defines: functions and classes, else variables."""
        if self.cell_type != "code":
            return []
        return pycode.defined_names(self.source) or sorted(pycode.bound_names(self.source))

    @property
    def stored(self) -> str:
        """Return the source as nbgrader's gradebook holds it: hidden tests, but no answers."""
        return self.source if self.role == "test" else self.released

    @property
    def hides(self) -> bool:
        """Say whether a part of the test is hidden from students."""
        return self.role == "test" and self.source != self.released


@dataclass(frozen=True)
class NotebookSpec:
    """One notebook of an assignment."""

    name: str
    cells: tuple[SpecCell, ...]
    kernelspec: dict[str, Any]
    hide: tuple[str, ...] = ()
    show: tuple[str, ...] = ()

    def __getitem__(self, cell_id: str) -> SpecCell:
        """Return the cell with this id."""
        return next(cell for cell in self.cells if cell.id == cell_id)

    @property
    def tests(self) -> tuple[SpecCell, ...]:
        """Return the tests in order."""
        return tuple(cell for cell in self.cells if cell.role == "test")


@dataclass(frozen=True)
class AssignmentSpec:
    """An assignment: its notebooks, and the other files that come with it."""

    name: str
    notebooks: tuple[NotebookSpec, ...]
    files: tuple[tuple[str, bytes], ...]
    fingerprint: str  # changes with any test, and with the modules that tests import


def load_assignment(course: Course, name: str) -> AssignmentSpec:
    """Read the spec of an assignment from the course's source folder."""
    course.require_assignment(name)
    folder = course.folder("source", ".", name)
    notebooks = tuple(_load(course, path) for path in _notebook_files(folder))
    files = tuple(_other_files(folder, course.ignored))
    digest = hashlib.sha256(repr(notebooks).encode())
    digest.update(repr(files).encode())
    for path in _imported_files(notebooks, course.trusted_path):
        digest.update(path.read_bytes())
    return AssignmentSpec(name, notebooks, files, digest.hexdigest())


def notebook_names(course: Course, name: str) -> list[str]:
    """Return the names of an assignment's notebooks, without their suffix."""
    course.require_assignment(name)
    return [path.stem for path in _notebook_files(course.folder("source", ".", name))]


def read_source(path: Path) -> dict[str, Any]:
    """Return the parsed notebook in a source file: .ipynb, or text that jupytext reads."""
    try:
        if path.suffix == ".ipynb":
            return json.loads(decode(path.read_bytes()))
        skip_slow_grammar()
        import jupytext

        return jupytext.reads(decode(path.read_bytes()), fmt=path.suffix[1:])
    except Exception as error:
        raise CourseError(f"{path}: not a notebook: {error}") from error


def _notebook_files(folder: Path) -> list[Path]:
    """Return the notebooks of an assignment; text wins over the product of the same name."""
    texts = {f.stem: f for f in sorted(folder.glob("*.md")) if _is_notebook_text(f)}
    made = {f.stem: f for f in sorted(folder.glob("*.ipynb"))}
    chosen = {**made, **texts}
    if not chosen:
        raise CourseError(f"{folder} holds no notebook")
    return [chosen[stem] for stem in sorted(chosen)]


def _is_notebook_text(path: Path) -> bool:
    """Tell a notebook in Markdown from a plain README: it begins with jupytext's front matter."""
    head = decode(path.read_bytes()[:4096])
    return head.startswith("---") and ("jupytext" in head or "kernelspec" in head)


def _other_files(folder: Path, ignored: tuple[str, ...]) -> list[tuple[str, bytes]]:
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file() and not p.is_symlink())
    named = ((p.relative_to(folder).as_posix(), p) for p in paths)
    return [
        (name, path.read_bytes())
        for name, path in named
        if not skipped(name, ignored)
        and path.suffix != ".ipynb"
        and not (path.suffix == ".md" and _is_notebook_text(path))
    ]


def _load(course: Course, path: Path) -> NotebookSpec:
    notebook = read_source(path)
    metadata = notebook.get("metadata", {})
    own = metadata.get("headmaster", {})
    language = metadata.get("kernelspec", {}).get("language") or "python"
    if language.lower() not in ("python", "ipython"):
        raise CourseError(f"{path} is a notebook in {language}; headmaster grades Python")
    rules = _Rules(course, language)
    try:
        cells = _with_functions([rules.cell(i, raw) for i, raw in enumerate(notebook["cells"])])
        _require_unique([cell.id for cell in cells if cell.role != "free"])
    except ValueError as error:
        raise CourseError(f"{path}: {error}") from None
    return NotebookSpec(
        name=path.stem,
        cells=tuple(cells),
        kernelspec=dict(metadata.get("kernelspec", {})),
        hide=(*course.setting("Headmaster", "hide", ()), *own.get("hide", ())),
        show=(*course.setting("Headmaster", "show", ()), *own.get("show", ())),
    )


def _require_unique(ids: list[str]) -> None:
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise ValueError(f"these cell ids stand there more than once: {', '.join(twice)}")


class _Rules:
    """nbgrader's rules for one notebook: which role a cell has, and what is released of it."""

    def __init__(self, course: Course, language: str) -> None:
        stubs = course.setting("ClearSolutions", "code_stub", {"python": STUB})
        self.code_stub = stubs if isinstance(stubs, str) else stubs.get(language, STUB)
        self.text_stub = course.setting("ClearSolutions", "text_stub", TEXT_STUB)
        self.solution = _delimiters(course, "ClearSolutions", "solution", "SOLUTION")
        self.hidden = _delimiters(course, "ClearHiddenTests", "test", "HIDDEN TESTS")
        self.scheme = _delimiters(course, "ClearMarkScheme", "mark_scheme", "MARK SCHEME")

    def cell(self, index: int, raw: dict[str, Any]) -> SpecCell:
        meta = raw.get("metadata", {}).get("nbgrader") or {}
        source = raw["source"] if isinstance(raw["source"], str) else "".join(raw["source"])
        source, role = clean(source), _role(meta, raw["cell_type"])
        cell_id = str(meta.get("grade_id") or f"cell-{index}")
        released = self._released(source, role, raw["cell_type"])
        if role == "test" and _AUTOTEST.search(source):
            raise ValueError(
                f"cell {cell_id} uses nbgrader's AUTOTEST; run "
                "`nbgrader generate_source_with_tests` and grade from what it writes"
            )
        if role == "test" and pycode.parse(source) is None:
            raise ValueError(f"the test cell {cell_id} is not valid Python")
        points = float(meta.get("points") or 0.0) if role in ("test", "manual", "task") else 0.0
        stored = source if role == "test" else released
        checksum = nbgrader_checksum(stored, raw["cell_type"], meta, cell_id, points)
        return SpecCell(cell_id, raw["cell_type"], role, source, released, points, checksum)

    def _released(self, source: str, role: Role, cell_type: str) -> str:
        stub = self.code_stub if cell_type == "code" else self.text_stub
        if role in ("solution", "manual"):
            cleared = _replace(source, self.solution, stub)
            return _replace(stub if cleared == source else cleared, self.scheme, "")
        return _replace(_replace(source, self.hidden, None), self.scheme, None)


def _delimiters(course: Course, section: str, name: str, text: str) -> tuple[str, str]:
    # nbgrader spells it "delimeter"
    begin = course.setting(section, f"begin_{name}_delimeter", f"BEGIN {text}")
    return begin, course.setting(section, f"end_{name}_delimeter", f"END {text}")


def _role(meta: dict[str, Any], cell_type: str) -> Role:
    if meta.get("task"):
        return "task"
    if meta.get("grade") and (meta.get("solution") or cell_type != "code"):
        return "manual"
    if meta.get("grade"):
        return "test"
    if meta.get("solution"):
        return "solution"
    return "locked" if meta.get("locked") else "free"


def _replace(source: str, delimiters: tuple[str, str], stub: str | None) -> str:
    """Replace each marked region by an indented stub, or by nothing."""
    begin, end = delimiters
    lines: list[str] = []
    inside = False
    for line in source.split("\n"):
        if begin in line:
            if inside:
                raise ValueError(f"{begin} stands inside another {begin}")
            inside = True
            indent = line[: len(line) - len(line.lstrip())]
            lines.extend(indent + part for part in stub.split("\n")) if stub else None
        elif end in line:
            inside = False
        elif not inside:
            lines.append(line)
    if inside:
        raise ValueError(f"{begin} without {end}")
    return "\n".join(lines)


def nbgrader_checksum(
    source: str, cell_type: str, meta: dict[str, Any], cell_id: str, points: float
) -> str:
    """Return what nbgrader.utils.compute_checksum returns, without its slow import."""
    grade, solution = bool(meta.get("grade")), bool(meta.get("solution"))
    locked = not solution and (grade or bool(meta.get("locked")))
    parts = [source, cell_type, str(grade), str(solution), str(locked), cell_id]
    if grade:
        parts.append(str(float(points)))
    return hashlib.md5("".join(parts).encode("utf-8")).hexdigest()


def _with_functions(cells: list[SpecCell]) -> list[SpecCell]:
    """Say of every test what it tests: by its id, else the answer that stands before it."""
    answers = [cell for cell in cells if cell.role == "solution"]
    named: list[SpecCell] = []
    before: SpecCell | None = None
    for cell in cells:
        before = cell if cell.role == "solution" else before
        if cell.role == "test":
            fitting = [a for a in answers if f"{cell.id}-".startswith(f"{a.id}-")]
            owner = max(fitting, key=lambda a: len(a.id)) if fitting else before
            named.append(replace(cell, function=_function_name(owner)))
        else:
            named.append(cell)
    return named


def _function_name(cell: SpecCell | None) -> str | None:
    if cell is None:
        return None
    if cell.id in cell.names or not cell.names:
        return cell.id
    return cell.names[0]


def _imported_files(notebooks: tuple[NotebookSpec, ...], path: tuple[str, ...]) -> list[Path]:
    """Return the files below the trusted folders that tests import, directly or not."""
    found: dict[Path, None] = {}
    queue = [
        name for nb in notebooks for cell in nb.tests for name in pycode.imported_names(cell.source)
    ]
    while queue:
        name = queue.pop()
        for file in _files_of(name, path):
            if file not in found:
                found[file] = None
                queue.extend(pycode.imported_names(decode(file.read_bytes()), _package(file, path)))
    return sorted(found)


def _files_of(name: str, path: tuple[str, ...]) -> list[Path]:
    """Return the file of a module or package, if it is the course's own."""
    for folder in map(Path, path):
        base = folder.joinpath(*name.split("."))
        files = [f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()]
        if files:
            return files
    return []


def _package(file: Path, path: tuple[str, ...]) -> str:
    for folder in path:
        if file.is_relative_to(folder):
            return ".".join(file.relative_to(folder).parent.parts)
    return ""
