"""Start an exercise of one's own: the course's template, with the names filled in.

What an exercise consists of is the course's affair. Its template is a folder that mirrors the
course (`c.Headmaster.template` in nbgrader_config.py); contents and names of the files in it are
Jinja templates, and the ending `.jinja` is dropped.
"""

from __future__ import annotations

import keyword
import os
import re
from pathlib import Path
from typing import Any

from headmaster.course import CONFIG, Course, CourseError

ENDING = ".jinja"
FORM = re.compile(r"(?P<number>\d\d)_(?P<topic>[a-z][a-z0-9]*(_[a-z0-9]+)*)")


def new_exercise(course: Course, name: str) -> list[Path]:
    """Write the files of a new exercise, all or none, and return their paths.

    Raises CourseError for a name of another form or one that is taken, where a file would be
    overwritten, and where the course has no template or a broken one.
    """
    facts = _facts(course, name)
    files = _filled(_template(course), course.root, facts)
    taken = [str(path.relative_to(course.root)) for path in files if os.path.lexists(path)]
    if taken:
        raise CourseError(
            f"{name} would overwrite {', '.join(taken)}: choose another name, or move them away"
        )
    _write(files)
    return list(files)


def _facts(course: Course, name: str) -> dict[str, Any]:
    """Return what a template may name."""
    form = FORM.fullmatch(name)
    if form is None or keyword.iskeyword(form["topic"]):
        raise CourseError(
            f"{name!r} is no name for an exercise: it takes two digits and a name that Python "
            "accepts, in lower case, as in 12_pooling"
        )
    others = course.assignments()
    same = [other for other in others if other.startswith(f"{form['number']}_")]
    if same:
        raise CourseError(f"the number {form['number']} is taken: there is {', '.join(same)}")
    known = [match for match in map(FORM.fullmatch, others) if match]
    return {
        "exercise": name,
        "number": form["number"],
        "topic": form["topic"],
        "title": form["topic"].replace("_", " "),
        "earlier": [match["topic"] for match in known if match["number"] < form["number"]],
    }


def _template(course: Course) -> Path:
    chosen = course.setting("Headmaster", "template", None)
    if chosen is None:
        raise CourseError(
            f"this course has no template for exercises: {CONFIG} in {course.root} would name its "
            "folder as c.Headmaster.template"
        )
    folder = course.root / chosen
    if not any(path.is_file() for path in folder.rglob("*")):
        raise CourseError(f"c.Headmaster.template in {CONFIG}: {folder} holds no files")
    return folder


def _filled(template: Path, root: Path, facts: dict[str, Any]) -> dict[Path, str]:
    """Return the text of each file of the new exercise."""
    from jinja2 import Environment, StrictUndefined, TemplateError

    environment = Environment(undefined=StrictUndefined, keep_trailing_newline=True)
    files = {}
    for path in sorted(p for p in template.rglob("*") if p.is_file()):
        place = path.relative_to(template).as_posix().removesuffix(ENDING)
        try:
            text = path.read_text(encoding="utf-8")
            place, text = (environment.from_string(s).render(facts) for s in (place, text))
        except (TemplateError, UnicodeDecodeError) as error:
            raise CourseError(f"the template {path} can't be filled in: {error}") from error
        files[root / place] = text
    return files


def _write(files: dict[Path, str]) -> None:
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8", newline="\n") as file:
                written.append(path)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise CourseError(f"nothing was written: {error}") from error
