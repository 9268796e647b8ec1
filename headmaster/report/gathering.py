"""What the gradebook and the graded notebooks know about an assignment's class."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from headmaster import autograded, similarity, tables
from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook, Marks
from headmaster.records import Record, Result
from headmaster.release import AssignmentSpec, load_assignment
from headmaster.report.names import course_key, pseudonym
from headmaster.report.signs import signs_in, signs_in_outputs

Test = tuple[str, str]  # the names of a notebook and of a graded cell


@dataclass
class Submission:
    """One student's submission."""

    name: str  # as the report shows it
    result: Result
    points: dict[Test, float | None]  # by the machine, or by a person where one decided
    late: float = 0.0  # points that lateness costs
    handed_in: datetime | None = None
    due: datetime | None = None  # with the student's own extension
    answers: dict[str, str] = field(default_factory=dict)  # code by cell
    signs: tuple[str, ...] = ()  # of an attempt to leave the place where answers run

    @property
    def graded(self) -> bool:
        """Say whether the machine could grade all of it."""
        return self.result.ungraded is None

    @property
    def score(self) -> float:
        """Return the points so far, as nbgrader counts them."""
        return sum(points or 0.0 for points in self.points.values()) - self.late

    @property
    def before_due(self) -> timedelta | None:
        """Return how long before the due date it came, negative where it was late."""
        if self.handed_in is None or self.due is None:
            return None
        return self.due - self.handed_in

    def records(self) -> list[tuple[Test, Record]]:
        """Return the records with the tests that they are about."""
        return [
            ((nb.name, record.id), record) for nb in self.result.notebooks for record in nb.records
        ]


@dataclass
class Class:
    """Everything that a report is made of."""

    assignment: str
    names_hidden: bool
    submissions: list[Submission]
    absent: list[str]  # students in the gradebook who handed in nothing
    due: datetime | None
    alike: list[similarity.Likeness]

    @property
    def graded(self) -> list[Submission]:
        """Return the submissions with a score."""
        return [submission for submission in self.submissions if submission.graded]

    @property
    def max(self) -> float:
        """Return the points that can be had."""
        return max(submission.result.max for submission in self.submissions)


def report_folder(course: Course) -> Path:
    """Return the folder of all reports: beside autograded/ and feedback/."""
    return course.folder("autograded").parent / "report"


def gather(course: Course, assignment: str, hide_names: bool) -> Class:
    """Read what is known about an assignment's class."""
    course.require_assignment(assignment)
    spec = load_assignment(course, assignment)
    with Gradebook(course) as gradebook:
        results = gradebook.results(assignment)
        if not results:
            raise CourseError(
                f"nothing of {assignment!r} is graded yet, so there is nothing to report; "
                f"`headmaster grade {assignment}` comes first"
            )
        due, times, everybody = _calendar(gradebook, assignment)
        marks = {student: gradebook.marks(assignment, student) for student in results}
    shown = _shown_names(course, {*results, *everybody}, hide_names)
    submissions = [
        _submission(course, spec, result, marks[student], times.get(student), due, shown[student])
        for student, result in results.items()
    ]
    submissions.sort(key=lambda submission: submission.name)
    absent = sorted(shown[student] for student in everybody if student not in results)
    alike = similarity.alike({s.name: s.answers for s in submissions}, _ours(spec))
    return Class(assignment, hide_names, submissions, absent, due, alike)


def _shown_names(course: Course, students: set[str], hide: bool) -> dict[str, str]:
    if not hide:
        return {student: student for student in students}
    key = course_key(report_folder(course))
    return {student: pseudonym(student, key) for student in students}


Times = dict[str, tuple[datetime | None, timedelta | None]]


def _calendar(gradebook: Gradebook, assignment: str) -> tuple[datetime | None, Times, list[str]]:
    """Return the due date, each student's time and extension, and everybody in the gradebook."""
    submitted = sa.select(
        tables.submitted_t.c.student_id,
        tables.submitted_t.c.timestamp,
        tables.submitted_t.c.extension,
    ).join(tables.assignment_t, tables.assignment_t.c.id == tables.submitted_t.c.assignment_id)
    with gradebook.engine.connect() as connection:
        row = tables.first(connection, tables.assignment_t, name=assignment)
        rows = connection.execute(submitted.where(tables.assignment_t.c.name == assignment))
        times = {student: (time, extension) for student, time, extension in rows}
        students = connection.execute(sa.select(tables.student_t.c.id)).scalars().all()
    return row.duedate if row else None, times, list(students)


def _submission(
    course: Course,
    spec: AssignmentSpec,
    result: Result,
    marks: Marks,
    times: tuple[datetime | None, timedelta | None] | None,
    due: datetime | None,
    name: str,
) -> Submission:
    time, extension = times or (None, None)
    cells = _own_cells(course, result)
    answers = {cell_id: source for cell_id, source, _ in cells}
    hidden = tuple(dict.fromkeys(item for notebook in spec.notebooks for item in notebook.hide))
    shown = tuple(dict.fromkeys(item for notebook in spec.notebooks for item in notebook.show))
    signs = [sign for source in answers.values() for sign in signs_in(source, hidden, shown)]
    signs += [sign for _, _, outputs in cells for sign in signs_in_outputs(outputs)]
    return Submission(
        name,
        result,
        _points(result, marks),
        sum(marks.late.values()),
        time,
        due + (extension or timedelta(0)) if due else None,
        answers,
        tuple(dict.fromkeys(signs)),
    )


def _points(result: Result, marks: Marks) -> dict[Test, float | None]:
    points: dict[Test, float | None] = {}
    for notebook in result.notebooks:
        for record in notebook.records:
            test = (notebook.name, record.id)
            manual, extra = marks.scores.get(test, (None, None))
            given = record.points if manual is None else manual
            points[test] = (given or 0.0) + extra if extra else given
    return points


def _own_cells(course: Course, result: Result) -> list[tuple[str, str, list[Any]]]:
    """Return the student's code cells with their outputs, from the graded notebooks."""
    folder = course.folder("autograded", result.student, result.assignment)
    found = []
    try:
        for notebook in autograded.with_cells(folder, result).notebooks:
            prefix = f"{notebook.name}/" if len(result.notebooks) > 1 else ""
            for place, cell in enumerate(filter(_is_students_code, notebook.cells), 1):
                meta = cell["metadata"].get("nbgrader") or {}
                # an id of the student's own making might tell a name
                cell_id = prefix + str(meta.get("grade_id") or f"own cell {place}")
                found.append((cell_id, str(cell["source"]), list(cell.get("outputs", ()))))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return []  # somebody changed the notebook by hand: its records are enough for the rest
    return found


def _is_students_code(cell: dict[str, Any]) -> bool:
    meta = cell["metadata"].get("nbgrader")
    return cell["cell_type"] == "code" and (not meta or bool(meta.get("solution")))


def _ours(spec: AssignmentSpec) -> list[str]:
    """Return the code that the course wrote: nobody is asked why it stands in an answer."""
    cells = [cell for notebook in spec.notebooks for cell in notebook.cells]
    code = [cell for cell in cells if cell.cell_type == "code"]
    return [text for cell in code for text in (cell.source, cell.released)]
