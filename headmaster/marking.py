"""Grade an assignment: every hand-in through the pool, every result through the one writer.

For each submission, in this order: the gradebook's transaction, the other files, the notebooks,
the feedback. A submission is finished when all of them carry its fingerprint, so that grading can
be stopped at any moment, and run again without repeating what is finished.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from headmaster import __version__, autograded, feedback
from headmaster.course import Course
from headmaster.gradebook import Gradebook
from headmaster.grading import grade, make_job, new_seed, not_handed_in, refused
from headmaster.intake import HandIn, take_in
from headmaster.job import Outcome
from headmaster.matching import Assembly, assemble
from headmaster.pool import Task, pool, run_task
from headmaster.records import NotebookResult, Refused, Result
from headmaster.release import AssignmentSpec, NotebookSpec, load_assignment

AHEAD = 16  # hand-ins that are read before the first of them is graded


@dataclass(frozen=True)
class Options:
    """What the person who grades chose."""

    students: tuple[str, ...] = ()  # empty: everybody
    feedback: bool = True
    force: bool = False  # grade again what is finished
    seed: int | None = None  # None: a fresh one per submission


@dataclass(frozen=True)
class Graded:
    """One line of the class list."""

    result: Result
    fresh: bool  # graded now, or finished before
    trouble: str = ""  # what went wrong in writing it down


@dataclass
class _Pending:
    """A hand-in on its way through the pool."""

    hand_in: HandIn
    seed: int
    fingerprint: str = ""
    assemblies: dict[str, Assembly] = field(default_factory=dict)
    futures: dict[str, Future[Outcome]] = field(default_factory=dict)

    @property
    def done(self) -> bool:
        return all(future.done() for future in self.futures.values())

    def submit(self, course: Course, spec: AssignmentSpec, executor: Executor) -> _Pending:
        """Match the notebooks and give them to the executor."""
        files = tuple({**dict(self.hand_in.files), **dict(spec.files)}.items())
        student = self.hand_in.student
        for notebook in spec.notebooks:
            cells = self.hand_in.notebooks[notebook.name]
            if isinstance(cells, list):
                assembly = assemble(notebook, cells)
                job = make_job(course, spec.name, notebook, student, assembly, self.seed)
                self.assemblies[notebook.name] = assembly
                self.futures[notebook.name] = executor.submit(run_task, Task(job, files))
        return self

    def result(self, spec: AssignmentSpec) -> Result:
        """Return the records of all notebooks; waits for those that are still running."""
        notebooks = [self._notebook(notebook) for notebook in spec.notebooks]
        notes = list(self.hand_in.notes)
        return Result(spec.name, self.hand_in.student, notebooks, self.fingerprint, notes)

    def _notebook(self, spec: NotebookSpec) -> NotebookResult:
        cells = self.hand_in.notebooks[spec.name]
        if cells is None:
            return not_handed_in(spec)
        if isinstance(cells, Refused):
            return refused(spec, cells)
        return grade(spec, self.assemblies[spec.name], self._outcome(spec.name))

    def _outcome(self, notebook: str) -> Outcome:
        try:
            return self.futures[notebook].result()
        except Exception as error:  # a worker or the pool itself is gone
            return Outcome((), {}, self.seed, f"{type(error).__name__}: {error}")


Progress = Callable[[int, int, str], None]  # finished, of how many, the student


def grade_assignment(
    course: Course, name: str, executor: Executor, options: Options, progress: Progress
) -> list[Graded]:
    """Grade an assignment's submissions and return the class list, by student."""
    spec = load_assignment(course, name)
    students = course.require_students(name, options.students)
    with Gradebook(course) as gradebook:
        gradebook.register(spec)
        run = _Run(course, spec, gradebook, executor, options)
        graded = []
        for item in run.each(students):
            graded.append(item)
            progress(len(graded), len(students), item.result.student)
    return sorted(graded, key=lambda item: item.result.student)


class _Run:
    """One assignment on its way through the pool and into the gradebook."""

    def __init__(
        self,
        course: Course,
        spec: AssignmentSpec,
        gradebook: Gradebook,
        executor: Executor,
        options: Options,
    ) -> None:
        self.course, self.spec, self.gradebook = course, spec, gradebook
        self.executor, self.options = executor, options
        self.before = gradebook.results(spec.name)
        self.repriced = gradebook.settle_penalties(spec.name)  # their pages name the old penalty

    def each(self, students: list[str]) -> Iterator[Graded]:
        """Grade the students, and yield each as it is finished."""
        waiting = list(reversed(students))
        pending: list[_Pending] = []
        while waiting or pending:
            while waiting and len(pending) < AHEAD:
                started = self._start(waiting.pop())
                if isinstance(started, Graded):
                    yield started
                else:
                    pending.append(started)
            done = [item for item in pending if item.done]
            if pending and not done:
                futures = [f for item in pending for f in item.futures.values() if not f.done()]
                wait(futures, return_when=FIRST_COMPLETED)
            for item in done:
                pending.remove(item)
                yield self._finish(item)

    def _start(self, student: str) -> Graded | _Pending:
        try:
            hand_in = take_in(self.course, self.spec, student)
            known = self._finished(hand_in)
            if known:
                return Graded(known, fresh=False)
            item = _Pending(hand_in, self._seed(hand_in), self._print_of(hand_in))
            return item.submit(self.course, self.spec, self.executor)
        except Exception as error:  # one hand-in's trouble never stops the class
            return self._in_trouble(student, error)

    def _print_of(self, hand_in: HandIn) -> str:
        parts = (__version__, self.spec.fingerprint, hand_in.digest, str(hand_in.timestamp))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def _seed(self, hand_in: HandIn) -> int:
        """Return the chosen seed; else the same again for the same hand-in and the same tests."""
        if self.options.seed is not None:
            return self.options.seed
        before = self.before.get(hand_in.student)
        if before and before.fingerprint == self._print_of(hand_in) and before.notebooks:
            return before.notebooks[0].seed or new_seed()
        return new_seed()

    def _finished(self, hand_in: HandIn) -> Result | None:
        """Return the recorded result of a hand-in that has not changed since it was finished."""
        before = self.before.get(hand_in.student)
        if before is None or self.options.force or before.fingerprint != self._print_of(hand_in):
            return None
        names = [notebook.name for notebook in before.notebooks if not notebook.missing]
        folder = self.course.folder("autograded", hand_in.student, self.spec.name)
        if not autograded.complete(folder, names, before.fingerprint):
            return None
        told = feedback.complete(self.course, before) and hand_in.student not in self.repriced
        if self.options.feedback and not told:
            self._write_feedback(autograded.with_cells(folder, before))
        return before

    def _finish(self, item: _Pending) -> Graded:
        try:
            result = item.result(self.spec)
            if result.ungraded and result.ungraded.reason == "trouble":
                result.fingerprint = ""  # so that the next run tries again
            saved = self.gradebook.save(result, item.hand_in.timestamp)
            self._write_files(saved, item.hand_in)
            return Graded(saved, fresh=True)
        except Exception as error:
            return self._in_trouble(item.hand_in.student, error)

    def _write_files(self, result: Result, hand_in: HandIn) -> None:
        folder = self.course.folder("autograded", result.student, self.spec.name)
        if result.stale:
            autograded.mark_stale(folder, result)
            result = autograded.with_cells(folder, result)
        else:
            autograded.write_files(folder, hand_in.files, self.spec.files, hand_in.timestamp)
            autograded.write(folder, self.spec, result)
        if self.options.feedback:
            self._write_feedback(result)

    def _write_feedback(self, result: Result) -> None:
        marks = self.gradebook.marks(self.spec.name, result.student)
        feedback.write(self.course, self.spec, result, marks)

    def _in_trouble(self, student: str, error: Exception) -> Graded:
        """Report what the machine could not do; the gradebook keeps what it had."""
        trouble = f"{type(error).__name__}: {error}"
        before = self.before.get(student)
        if before is not None:
            return Graded(before, fresh=False, trouble=trouble)
        nothing = Refused("trouble", f"The grader had trouble of its own: {trouble}")
        notebooks = [refused(spec, nothing) for spec in self.spec.notebooks]
        return Graded(Result(self.spec.name, student, notebooks), fresh=False, trouble=trouble)


def grade_once(course: Course, spec: AssignmentSpec, hand_in: HandIn, seed: int) -> Result:
    """Grade one hand-in and write nothing."""
    with pool(1) as executor:
        return _Pending(hand_in, seed).submit(course, spec, executor).result(spec)


def rewrite_feedback(course: Course, name: str, students: tuple[str, ...]) -> list[Path]:
    """Write the feedback pages of graded submissions again, and return their paths."""
    spec = load_assignment(course, name)
    wanted = course.require_students(name, students)
    paths: list[Path] = []
    with Gradebook(course) as gradebook:
        gradebook.settle_penalties(name)
        for student, result in gradebook.results(name).items():
            if student in wanted:
                folder = course.folder("autograded", student, name)
                marks = gradebook.marks(name, student)
                whole = autograded.with_cells(folder, result)
                paths.extend(feedback.write(course, spec, whole, marks))
    return paths
