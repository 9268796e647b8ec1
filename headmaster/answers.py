"""Grade answers in plain files against an exercise: `headmaster check`.

A file's definitions take the place of the exercise's solution cells; functions that it does not
define keep the course's own answers. The file is then graded exactly as a submission is.
"""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headmaster import pycode
from headmaster.course import CONFIG, Course, CourseError
from headmaster.grading import grade, make_job, new_seed
from headmaster.job import Kind
from headmaster.matching import Assembly, PlacedCell
from headmaster.pool import Task, pool, run_task
from headmaster.records import NotebookResult
from headmaster.release import AssignmentSpec, NotebookSpec, SpecCell, load_assignment

ANSWER = "answer"  # id of the cell that holds the file


@dataclass(frozen=True)
class Exercise:
    """One notebook of a course, as `check` needs it."""

    course: Course
    assignment: AssignmentSpec
    notebook: NotebookSpec


def check(
    exercise: Path | str,
    answers: list[str],
    function: str | None = None,
    jobs: int | None = None,
    seed: int | None = None,
    course: Path | str | None = None,
) -> list[dict[str, Any]]:
    """Grade answers (source texts) against an exercise, many in parallel.

    `exercise` is the name of an assignment or a path to it or to its notebook; `function` limits
    the run to that function's tests. Returns one dict per answer, in order, with the keys
    exercise, score, max and tests (the records of `headmaster.records.Record.as_json`).
    Raises CourseError for an exercise or a function that is not there.
    """
    found = find_exercise(exercise, course)
    with pool(jobs) as executor:
        return check_with(executor, found, answers, function, seed)


def check_with(
    executor: Executor,
    exercise: Exercise,
    answers: list[str],
    function: str | None = None,
    seed: int | None = None,
) -> list[dict[str, Any]]:
    """Grade answers in an executor that is already open."""
    spec = limited(exercise.notebook, function)
    prepared = [_prepare(exercise, spec, answer, function, seed) for answer in answers]
    futures = [executor.submit(run_task, task) for _, task in prepared]
    graded = [
        grade(spec, assembly, future.result())
        for (assembly, _), future in zip(prepared, futures, strict=True)
    ]
    return [as_json(exercise.assignment.name, spec, result) for result in graded]


def as_json(exercise: str, spec: NotebookSpec, result: NotebookResult) -> dict[str, Any]:
    """Return a graded answer as the JSON object of `headmaster check` (without the file's name)."""
    tests = {cell.id for cell in spec.tests}
    records = [record for record in result.records if record.id in tests]
    return {
        "exercise": exercise,
        "score": sum(record.points or 0.0 for record in records),
        "max": sum(record.max for record in records),
        "tests": [record.as_json() for record in records],
    }


# --- finding the exercise ------------------------------------------------------------------------


def find_exercise(exercise: Path | str, course: Path | str | None = None) -> Exercise:
    """Find an exercise by its assignment's name, or by a path to its folder or notebook."""
    path = Path(exercise)
    if path.exists():
        return _at(path.absolute(), course)
    where = Course.open(course) if course else Course.around(Path.cwd())
    name, _, notebook = str(exercise).partition("/")
    return _pick(where, name, notebook)


def _at(path: Path, course: Path | str | None) -> Exercise:
    folder = path if path.is_dir() else path.parent
    where = Course.open(course) if course else Course.around(folder)
    if (folder / CONFIG).is_file():
        raise CourseError(f"{path} is a whole course; name one of: {_names(where)}")
    return _pick(where, folder.name, "" if path.is_dir() else path.stem)


def _pick(course: Course, assignment: str, notebook: str) -> Exercise:
    spec = load_assignment(course, assignment)
    names = [item.name for item in spec.notebooks]
    if notebook and notebook not in names:
        raise CourseError(
            f"{assignment} has no notebook {notebook!r}; there are: {', '.join(names)}"
        )
    if not notebook and len(names) > 1:
        raise CourseError(
            f"{assignment} has several notebooks; name one as {assignment}/NOTEBOOK: "
            + ", ".join(names)
        )
    return Exercise(course, spec, spec.notebooks[names.index(notebook) if notebook else 0])


def _names(course: Course) -> str:
    return ", ".join(course.assignments()) or "(none)"


def limited(spec: NotebookSpec, function: str | None) -> NotebookSpec:
    """Return the notebook with the tests of one function only, and without texts to grade."""
    known = list(dict.fromkeys(cell.function for cell in spec.tests if cell.function))
    if function is not None and function not in known:
        raise CourseError(
            f"{spec.name} tests no function {function!r}; there are: {', '.join(known)}"
        )
    wanted = {cell.id for cell in spec.tests if function in (None, cell.function)}
    unwanted = ("manual", "task")
    kept = [
        cell
        for cell in spec.cells
        if cell.role not in unwanted and (cell.role != "test" or cell.id in wanted)
    ]
    return replace(spec, cells=tuple(kept))


# --- the answer among the course's own answers ---------------------------------------------------


def _prepare(
    exercise: Exercise, spec: NotebookSpec, answer: str, function: str | None, seed: int | None
) -> tuple[Assembly, Task]:
    assembly = insert_answer(spec, answer, function)
    chosen = new_seed() if seed is None else seed
    name = exercise.assignment.name
    job = make_job(exercise.course, name, spec, ANSWER, assembly, chosen)
    return assembly, Task(job, exercise.assignment.files)


def insert_answer(spec: NotebookSpec, answer: str, function: str | None = None) -> Assembly:
    """Return the notebook with the answer in it, behind the last answer that it replaces."""
    names = set(pycode.defined_names(answer)) | pycode.bound_names(answer)
    solutions = [cell for cell in spec.cells if cell.role == "solution"]
    replaced = [cell for cell in solutions if names & set(cell.names)]
    if not replaced:  # it defines nothing that is asked for: nothing may stand in for it
        replaced = [c for c in solutions if function in (None, c.id, *c.names)]
        names |= {name for cell in replaced for name in cell.names}
    own = [cell for cell in spec.cells if cell.role in ("locked", "solution", "test")]
    code = [cell for cell in own if cell.cell_type == "code"]
    after = code.index(replaced[-1]) + 1 if replaced else len(code)
    before = [_place(cell, names) for cell in code[:after]]
    placed = [
        *(cell for cell in before if cell.kind != "test"),
        PlacedCell(ANSWER, "code", answer, kind="student"),
        *(cell for cell in before if cell.kind == "test"),
        *(_place(cell, names) for cell in code[after:]),
    ]
    return Assembly(tuple(placed), (), ())


def _place(cell: SpecCell, names: set[str]) -> PlacedCell:
    if cell.role == "solution":
        kept = pycode.without_definitions(cell.source, names)
        return PlacedCell(cell.id, cell.cell_type, kept, cell, "student")
    kind: Kind = "test" if cell.role == "test" else "locked"
    return PlacedCell(cell.id, cell.cell_type, cell.source, cell, kind)
