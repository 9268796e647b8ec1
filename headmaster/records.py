"""Every result is a record: what was tested, the verdict, and a reason that a person can act on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

Verdict = Literal["pass", "fail", "error", "not graded"]

# The one table of reason codes: what each means, in a sentence for the student.
REASONS: dict[str, str] = {
    # the test ran to its end
    "passed": "The test passed.",
    "partial": "The test gave part of the points.",
    "manual": "A person grades this answer.",
    # the answer is not right yet
    "wrong-answer": "The test found a result that does not agree with the exercise.",
    "not-implemented": "The answer is still the empty stub.",
    "no-answer": "No cell of the notebook defines what this test needs.",
    "cell-failed": "The cell with the answer did not run, so that there was nothing to test.",
    "raised": "The code raised an error while it was tested.",
    "time-limit": "The code took longer than the time limit.",
    "memory-limit": "The code needed more memory than the limit.",
    "disk-limit": "The code wrote more to disk than the limit.",
    "crashed": "The code ended the Python process it ran in.",
    "not-run": "The test did not run: the code had ended its Python process too often before it.",
    "bad-score": "The test gave a score outside the possible points; it counts as no points.",
    "no-notebook": "The notebook was not handed in.",
    # the hand-in cannot be read: nothing is graded until a person has looked, or it is sent again
    "unreadable": "The file is not a notebook that can be read.",
    "merge-conflict": "The file holds the marks of an unfinished merge.",
    "link": "The hand-in holds a link to another place instead of a file.",
    "unsafe-path": "The hand-in holds a file whose name leads out of its folder.",
    "special-file": "The hand-in holds something that is neither a file nor a folder.",
    "too-large": "The hand-in is larger than the limit.",
    "nested-archive": "The hand-in holds an archive inside an archive.",
    "bad-archive": "The archive cannot be read.",
    # the course's or the machine's own trouble: grade again
    "test-broken": "The test itself does not run; its author has to put it right.",
    "trouble": "The grader had trouble of its own; the submission has to be graded again.",
}


class Refused(Exception):
    """A hand-in that is not graded, with the reason code and a sentence for its author."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Record:
    """What one test said about one submission."""

    id: str
    function: str | None
    points: float | None  # None: not graded
    max: float
    verdict: Verdict
    reason: str  # a key of REASONS
    message: str = ""  # for the instructor: may quote hidden values
    told: str = ""  # for the student: never quotes a hidden test
    sentence: str = ""  # what the contract demands, in the test author's words
    misconception: str | None = None
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the record as the JSON object that `headmaster check` prints."""
        keys = ("id", "function", "points", "max", "verdict", "reason", "misconception")
        return {key: getattr(self, key) for key in (*keys, "message", "seed")}


@dataclass
class NotebookResult:
    """One graded notebook: its records and the assembled cells with their outputs."""

    name: str
    records: list[Record] = field(default_factory=list)
    cells: list[dict[str, Any]] = field(default_factory=list)  # nbformat cells
    unanswered: list[str] = field(default_factory=list)  # solution cells left as released
    notes: list[str] = field(default_factory=list)  # what intake repaired
    confinement: dict[str, bool | str] = field(default_factory=dict)
    seed: int = 0

    @property
    def unconfined(self) -> bool:
        """Say whether student code ran without any layer of confinement but resource limits."""
        layers = {name: held for name, held in self.confinement.items() if name != "rlimits"}
        return bool(self.confinement) and not any(layers.values())

    @property
    def missing(self) -> bool:
        """Say whether this notebook was not handed in."""
        return any(record.reason == "no-notebook" and record.points == 0 for record in self.records)

    @property
    def refusal(self) -> Record | None:
        """Return a record that says why nothing of this notebook was graded, or None."""
        automatic = [record for record in self.records if record.reason != "manual"]
        if automatic and all(record.verdict == "not graded" for record in automatic):
            return automatic[0]
        return None


@dataclass
class Result:
    """One graded submission, as the gradebook keeps it."""

    assignment: str
    student: str
    notebooks: list[NotebookResult] = field(default_factory=list)
    fingerprint: str = ""  # of the hand-in and of the tests
    notes: list[str] = field(default_factory=list)
    stale: str = ""  # why these grades belong to an earlier hand-in

    @property
    def records(self) -> list[Record]:
        """Return the records of all notebooks."""
        return [record for notebook in self.notebooks for record in notebook.records]

    @property
    def score(self) -> float:
        """Return the points given so far; what is not graded counts as nothing yet."""
        return sum(record.points or 0.0 for record in self.records)

    @property
    def max(self) -> float:
        """Return the points that can be had."""
        return sum(record.max for record in self.records)

    @property
    def misconceptions(self) -> list[str]:
        """Return the misconceptions found, each once, in the order of the tests."""
        found = (record.misconception for record in self.records)
        return list(dict.fromkeys(name for name in found if name))

    @property
    def ungraded(self) -> Record | None:
        """Return the first record that could not be graded by the machine, or None."""
        for record in self.records:
            if record.verdict == "not graded" and record.reason != "manual":
                return record
        return None

    def to_dict(self, with_cells: bool = False) -> dict[str, Any]:
        """Return plain data for JSON; the cells (with their outputs) live in autograded/."""
        data = asdict(self)
        if not with_cells:
            for notebook in data["notebooks"]:
                del notebook["cells"]
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Result:
        """Read what `to_dict` wrote; unknown keys of a later version are left out."""
        notebooks = [
            _known(
                NotebookResult, {**item, "records": [_known(Record, r) for r in item["records"]]}
            )
            for item in data["notebooks"]
        ]
        return _known(cls, {**data, "notebooks": notebooks})


def _known(cls: type, data: dict[str, Any]) -> Any:
    names = {item.name for item in fields(cls)}
    return cls(**{key: value for key, value in data.items() if key in names})
