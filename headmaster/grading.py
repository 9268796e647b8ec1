"""From a matched notebook to a job, and from the job's outcome to records and output cells."""

from __future__ import annotations

import math
import re
import secrets
from typing import Any

from headmaster.course import Course
from headmaster.job import CellResult, Job, Outcome
from headmaster.matching import Assembly, PlacedCell
from headmaster.pycode import defined_names, imported_names
from headmaster.records import REASONS, NotebookResult, Record, Refused
from headmaster.release import NotebookSpec, SpecCell

# What the engine says of a process that it stopped, and the reason code for it.
_STOPPED = {
    "too long": "time-limit",
    "processor time": "time-limit",
    "to disk": "disk-limit",
}


def new_seed() -> int:
    """Draw the seed of one submission's hidden tests."""
    return secrets.randbelow(2**31)


def make_job(
    course: Course, assignment: str, spec: NotebookSpec, student: str, cells: Assembly, seed: int
) -> Job:
    """Return the job that grades one matched notebook."""
    return Job(
        assignment=assignment,
        notebook=spec.name,
        student=student,
        cells=cells.job_cells(),
        hide=spec.hide,
        show=spec.show,
        trusted_path=course.trusted_path,
        seed=seed,
        limits=course.limits,
    )


def grade(spec: NotebookSpec, assembly: Assembly, outcome: Outcome) -> NotebookResult:
    """Return the records of a notebook that ran, or that the machine could not run."""
    results = {result.id: result for result in outcome.results}
    judge = _Judge(assembly, results, outcome)
    return NotebookResult(
        name=spec.name,
        records=[judge.record(cell) for cell in spec.cells if cell.graded],
        cells=[output_cell(cell, results.get(cell.id)) for cell in assembly.cells],
        unanswered=list(assembly.unanswered),
        notes=list(assembly.notes),
        confinement=dict(outcome.confinement),
        seed=outcome.seed,
    )


def not_handed_in(spec: NotebookSpec) -> NotebookResult:
    """Return no points for a notebook that is missing beside others that are there."""
    sentence = REASONS["no-notebook"]
    records = [
        Record(c.id, c.function, 0.0, c.points, "fail", "no-notebook", sentence, sentence)
        for c in spec.cells
        if c.graded
    ]
    return NotebookResult(spec.name, records)


def refused(spec: NotebookSpec, refusal: Refused) -> NotebookResult:
    """Return records that say why a notebook could not be graded at all."""
    records = [
        Record(
            cell.id,
            cell.function,
            None,
            cell.points,
            "not graded",
            refusal.code,
            refusal.message,
            refusal.message,
        )
        for cell in spec.cells
        if cell.graded
    ]
    return NotebookResult(spec.name, records)


class _Judge:
    """The verdicts on one notebook's tests."""

    def __init__(
        self, assembly: Assembly, results: dict[str, CellResult], outcome: Outcome
    ) -> None:
        self.assembly = assembly
        self.results = results
        self.outcome = outcome

    def record(self, cell: SpecCell) -> Record:
        """Return the record of one graded cell."""
        if cell.role != "test":
            return self._manual(cell)
        result = self.results.get(cell.id)
        if self.outcome.trouble or result is None:
            trouble = self.outcome.trouble or "the engine gave no result for this test"
            return self._make(cell, None, "not graded", "trouble", trouble, REASONS["trouble"])
        if result.status == "ok":
            return self._finished(cell, result)
        if result.status == "error":
            return self._raised(cell, result)
        return self._stopped(cell, result)

    def _make(
        self,
        cell: SpecCell,
        points: float | None,
        verdict: Any,
        reason: str,
        message: str = "",
        told: str = "",
        **more: Any,
    ) -> Record:
        more = {key: plain(value) if value else value for key, value in more.items()}
        return Record(
            cell.id,
            cell.function,
            points,
            cell.points,
            verdict,
            reason,
            plain(message) or REASONS[reason],
            plain(told) or REASONS[reason],
            seed=self.outcome.seed,
            **more,
        )

    def _manual(self, cell: SpecCell) -> Record:
        """Leave a text to a person, but give nothing for an empty one, as nbgrader does."""
        if cell.id in self.assembly.unanswered and cell.role == "manual":
            return self._make(cell, 0.0, "fail", "no-answer", told="There is no answer yet.")
        return self._make(cell, None, "not graded", "manual")

    def _finished(self, cell: SpecCell, result: CellResult) -> Record:
        score = _partial_score(result)
        if score is None:
            return self._make(cell, cell.points, "pass", "passed")
        if not math.isfinite(score) or not 0.0 <= score <= cell.points:
            message = f"the test's score is {score}, which is not between 0 and {cell.points:g}"
            return self._make(cell, 0.0, "error", "bad-score", message)
        if score == cell.points:
            return self._make(cell, score, "pass", "passed")
        return self._make(cell, score, "fail", "partial", f"{score:g} of {cell.points:g} points")

    def _raised(self, cell: SpecCell, result: CellResult) -> Record:
        said = {k: str(v) for k, v in (result.record or {}).items()}
        raised = f"{result.ename}: {result.evalue}" if result.evalue else str(result.ename)
        more = {
            "sentence": said.get("sentence", ""),
            "misconception": said.get("misconception") or None,
        }
        if said or result.ename == "AssertionError":  # the test says that a result is wrong
            told = said.get("message") or _told_of_assertion(cell, result)
            message = said.get("message") or raised
            return self._make(cell, 0.0, "fail", "wrong-answer", message, told, **more)
        if _is_the_tests_fault(cell, result):
            return self._make(cell, None, "not graded", "test-broken", raised)
        reason, told = self._why(cell, result)
        message = told if reason == "cell-failed" else raised
        return self._make(cell, 0.0, "error", reason, message, told, **more)

    def _why(self, cell: SpecCell, result: CellResult) -> tuple[str, str]:
        """Return the reason code of an error, and what its author is told."""
        broken = self._broken_answer(cell)
        if broken is not None and result.ename in ("NameError", "AttributeError", broken.ename):
            told = f"The cell {broken.id} did not run: {broken.ename}: {broken.evalue}"
            return "cell-failed", told
        if result.ename == "NotImplementedError":
            return "not-implemented", REASONS["not-implemented"]
        if result.ename == "NameError" and self._has_no_answer(cell):
            return "no-answer", REASONS["no-answer"]
        if result.ename == "MemoryError":
            return "memory-limit", REASONS["memory-limit"]
        return "raised", f"The code raised {_identifier(result.ename)} while it was tested."

    def _broken_answer(self, cell: SpecCell) -> CellResult | None:
        """Return the result of the student's cell that should define what the test needs."""
        for placed in self._answers(cell):
            result = self.results.get(placed.id)
            if result is not None and result.status == "error":
                return result
        return None

    def _answers(self, cell: SpecCell) -> list[PlacedCell]:
        return [
            placed
            for placed in self.assembly.cells
            if placed.kind == "student" and cell.function in defined_names(placed.source)
        ]

    def _has_no_answer(self, cell: SpecCell) -> bool:
        return not self._answers(cell)

    def _stopped(self, cell: SpecCell, result: CellResult) -> Record:
        """Judge a test in which the student's process ended, or before which it was gone."""
        said = result.evalue or ""
        if result.status == "not run":
            return self._make(cell, 0.0, "error", "not-run", said)
        reason = next((code for text, code in _STOPPED.items() if text in said), "crashed")
        return self._make(cell, 0.0, "error", reason, said)


def _is_the_tests_fault(cell: SpecCell, result: CellResult) -> bool:
    """Say whether a test could not import a module of its own."""
    if result.ename not in ("ModuleNotFoundError", "ImportError"):
        return False
    return any(f"'{name}'" in (result.evalue or "") for name in imported_names(cell.source))


_ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b.")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Return text without what would move a terminal's cursor or turn its lines around."""
    return _CONTROL.sub("", _ANSI.sub("", text))


def _partial_score(result: CellResult) -> float | None:
    """Return the score that a test gave by its last expression, or None if it gave none.

    A text or a truth value is no score: the test passed, as under nbgrader. A number that cannot
    be a score (nan, infinite) comes back as it is and gets no points.
    """
    if not result.has_value:
        return None
    if result.value is not None:
        return float(result.value)
    for output in result.outputs:
        if output.get("output_type") == "execute_result":
            text = str(output.get("data", {}).get("text/plain", ""))
            return _number(text)
    return None


def _number(text: str) -> float | None:
    inner = text.removeprefix("np.float64(").removeprefix("np.float32(").rstrip(")")
    try:
        return float(inner)
    except ValueError:
        return None


def _told_of_assertion(cell: SpecCell, result: CellResult) -> str:
    """Repeat an assertion's own words only where the whole test is visible to students."""
    if cell.hides or not result.evalue:
        return REASONS["wrong-answer"]
    return str(result.evalue)[:2000]


def _identifier(name: str | None) -> str:
    return name if name and name.isidentifier() and len(name) <= 80 else "an error"


def output_cell(cell: PlacedCell, result: CellResult | None) -> dict[str, Any]:
    """Return the cell as it stands in the autograded notebook."""
    data: dict[str, Any] = {
        "cell_type": cell.cell_type,
        "id": cell.id,
        "metadata": {"nbgrader": _nbgrader_metadata(cell.spec)} if cell.spec else {},
        "source": cell.source,
    }
    if cell.cell_type == "code":
        data["execution_count"] = None
        data["outputs"] = [dict(output) for output in result.outputs] if result else []
    elif cell.attachments:
        data["attachments"] = cell.attachments
    return data


def _nbgrader_metadata(cell: SpecCell) -> dict[str, Any]:
    """Return the metadata by which nbgrader's formgrader and feedback know the cell."""
    meta: dict[str, Any] = {
        "grade_id": cell.id,
        "grade": cell.role in ("test", "manual"),
        "solution": cell.role in ("solution", "manual"),
        "locked": cell.role in ("test", "locked", "task"),
        "task": cell.role == "task",
        "schema_version": 3,
        "cell_type": cell.cell_type,
        "checksum": cell.checksum,
    }
    if cell.graded:
        meta["points"] = cell.points
    return meta
