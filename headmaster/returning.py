"""Give feedback back: a folder for each student, or a zip that Canvas or Moodle takes.

Moodle ("Upload multiple feedback files in a zip") finds the student by the folder's name, which is
the one of its own download. Canvas ("Upload submissions") finds the hand-in by the two numbers in
the file's name, and shows the file under the name that the student gave it: so what goes back for a
notebook is a notebook again, with the feedback as its text.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from headmaster.autograded import replace_file
from headmaster.course import Course, CourseError
from headmaster.lms import is_notebook
from headmaster.manifest import Collected, Manifest
from headmaster.standing import class_standing

_DATE = (1980, 1, 1, 0, 0, 0)  # the same pages make the same zip


@dataclass
class Returned:
    """What was written, and for whom there is nothing."""

    files: int = 0
    students: int = 0
    without: list[str] = field(default_factory=list)


Pages = dict[str, bytes]  # a student's pages of one assignment, by notebook
Files = Iterator[tuple[str, bytes]]


def feedback(course: Course, assignments: tuple[str, ...], form: str, to: Path) -> Returned:
    """Write the feedback of everybody who is graded; form is folders, canvas or moodle.

    The pages are written anew first, so that they hold what people graded and wrote since.
    """
    from headmaster.marking import rewrite_feedback

    if form != "folders" and len(assignments) != 1:
        raise CourseError(f"feedback for {form.title()} goes back one assignment at a time")
    class_standing(course, assignments)  # says so if nobody is graded
    returned = Returned()
    files: list[tuple[str, bytes]] = []
    served: set[str] = set()
    for assignment in assignments:
        rewrite_feedback(course, assignment, ())
        collected = Manifest.of(course, assignment).students
        for student in course.students(assignment):
            pages = _pages(course, student, assignment)
            name = _FORMS[form]
            found = list(name(student, assignment, pages, collected.get(student)))
            if found:
                served.add(student)
                files.extend(found)
            else:
                returned.without.append(f"{student} ({assignment}): {_why(pages, form)}")
    unique = dict(files)  # a group's file is there once for each member
    if not unique:
        raise CourseError("there is no feedback to give back: " + "; ".join(returned.without))
    try:
        _write(to, unique, as_zip=form != "folders" or to.suffix.lower() == ".zip")
    except OSError as error:
        raise CourseError(f"{to} cannot be written: {error.strerror or error}") from None
    returned.files, returned.students = len(unique), len(served)
    return returned


def _pages(course: Course, student: str, assignment: str) -> Pages:
    folder = course.folder("feedback", student, assignment)
    files = sorted(folder.glob("*.html")) if folder.is_dir() else []
    return {path.stem: path.read_bytes() for path in files if not path.is_symlink()}


def _why(pages: Pages, form: str) -> str:
    if not pages:
        return "no page, as nothing of it is graded"
    return f"its file's name in the download from {form.title()} is not known; collect it again"


# --- forms ---------------------------------------------------------------------------------------


def _folders(student: str, assignment: str, pages: Pages, _: Collected | None) -> Files:
    for notebook, page in pages.items():
        yield f"{student}/{assignment}/{notebook}.html", page


def _moodle(_: str, assignment: str, pages: Pages, collected: Collected | None) -> Files:
    pieces = collected.pieces if collected and collected.lms == "moodle" else ()
    folder = next((piece.folder for piece in pieces if piece.folder), "")
    if folder:
        for notebook, page in pages.items():
            # both ways of Moodle's download begin like this, and its import reads either
            yield f"{folder.rstrip('_')}_/{notebook}.html", page


def _canvas(_: str, assignment: str, pages: Pages, collected: Collected | None) -> Files:
    if collected is None or collected.lms != "canvas" or not pages:
        return
    by_file = {f"{notebook}.ipynb": notebook for notebook in pages}
    for piece in collected.pieces:
        name = PurePosixPath(piece.path).name
        if piece.kept in by_file:
            notebook = by_file[piece.kept]
            yield name, _as_notebook(pages[notebook])
        elif name.lower().endswith(".zip"):
            yield name, _zip({f"{notebook}.html": page for notebook, page in pages.items()})
        elif is_notebook(name) and len(pages) == 1:
            yield name, _as_notebook(next(iter(pages.values())))


_FORMS: dict[str, Callable[[str, str, Pages, Collected | None], Files]] = {
    "folders": _folders,
    "canvas": _canvas,
    "moodle": _moodle,
}


def _as_notebook(page: bytes) -> bytes:
    """Return a notebook that shows a feedback page as text."""
    text = page.decode("utf-8", "replace")
    body = re.search(r"<body[^>]*>(.*)</body>", text, re.DOTALL)
    html = body[1] if body else text
    # one line, or a blank line within an answer would end the HTML for Markdown
    for tag, end in (("pre", "&#10;"), ("dd", "<br>")):
        pattern = re.compile(f"<{tag}[ >].*?</{tag}>", re.DOTALL)
        html = pattern.sub(partial(_on_one_line, end), html)
    html = re.sub(r"\s*\n\s*", " ", html).strip()
    cell = {"cell_type": "markdown", "id": "feedback", "metadata": {}, "source": html}
    metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
    }
    data = {"cells": [cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()


def _on_one_line(end: str, match: re.Match[str]) -> str:
    return match[0].replace("\n", end)


# --- writing -------------------------------------------------------------------------------------


def _write(to: Path, files: dict[str, bytes], as_zip: bool) -> None:
    """Write a zip or a folder whole or not at all."""
    if not to.parent.is_dir():
        raise CourseError(f"there is no folder {to.parent} for {to.name}")
    if as_zip:
        if to.is_dir():
            raise CourseError(f"{to} is a folder; give the name of a zip file")
        replace_file(to, _zip(files))
        return
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise CourseError(f"{to} is there already; give the name of a new folder, or of a zip file")
    scratch = Path(tempfile.mkdtemp(prefix=".feedback-", dir=to.parent))
    try:
        for name, data in files.items():
            path = scratch / "all" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        if to.is_dir():
            to.rmdir()
        (scratch / "all").rename(to)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _zip(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in sorted(files.items()):
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            archive.writestr(info, data)
    return out.getvalue()
