"""What the desk asks of the engine (a job) and what the engine answers (an outcome).

These are plain, frozen, picklable values: a job can travel to another process or machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

MIB = 1 << 20

Kind = Literal["student", "locked", "test"]
Status = Literal["ok", "error", "killed", "not run"]


@dataclass(frozen=True)
class Cell:
    """One code cell of a notebook, in document order.

    `student` cells run in S only; `locked` cells are released code (the setup) and run in S and
    in T; `test` cells run in T only.
    """

    id: str
    kind: Kind
    source: str


@dataclass(frozen=True)
class Limits:
    """How much one submission may use; each limit is enforced by `headmaster.sandbox` or T."""

    cpu_seconds: float = 30.0  # processor time of S per cell
    wall_seconds: float = 90.0  # clock time per cell: generous, the machine may be busy
    grace_seconds: float = 1.0  # that S has to react to an interrupt before it is killed
    memory_bytes: int = 2 << 30  # address space of S above the warm interpreter's own
    output_bytes: int = 1_000_000  # per cell; what is longer is cut, never failed
    processes: int = 64  # threads of S (it can start no process at all under seccomp)
    open_files: int = 256
    file_bytes: int = 64 * MIB  # size of one file in the scratch folder
    disk_bytes: int = 256 * MIB  # all of the scratch folder
    files: int = 1_000  # and folders in it
    restarts: int = 12  # replays without a cell that killed S
    total_seconds: float = 600.0  # clock time of the job, replays included; then no more replays


@dataclass(frozen=True)
class Job:
    """One notebook of one submission."""

    assignment: str
    notebook: str
    student: str
    cells: tuple[Cell, ...]
    hide: tuple[str, ...] = ()  # packages that S cannot import …
    show: tuple[str, ...] = ()  # … except these modules of them
    trusted_path: tuple[str, ...] = ()  # extra sys.path entries of T
    files: Path | None = None  # a folder whose files are copied into S's scratch folder
    seed: int = 0  # GRADING_SEED in T
    limits: Limits = field(default_factory=Limits)
    figures: bool = False  # draw figures and full tracebacks, for a person who reads the notebook


@dataclass(frozen=True)
class CellResult:
    """What happened in one cell.

    `status`: "ok" (nothing was raised), "error" (something was), "killed" (the cell ended S or ran
    out of its limits), "not run" (S was gone before it).
    """

    id: str
    status: Status
    outputs: tuple[dict[str, Any], ...] = ()  # nbformat outputs
    ename: str | None = None
    evalue: str | None = None
    record: dict[str, str] | None = None  # the dict attribute `record` of a test cell's exception
    value: float | None = None  # last expression of a test cell, if a plain finite number
    has_value: bool = False
    seconds: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """What happened to one job. `trouble` is the machine's own fault: then nothing is graded."""

    results: tuple[CellResult, ...]
    confinement: dict[str, bool | str]
    seed: int
    trouble: str | None = None
    cpu_seconds: float = 0.0  # processor time of S and T, replays included

    def __getitem__(self, cell_id: str) -> CellResult:
        """Return the result of the cell with this id."""
        for result in self.results:
            if result.id == cell_id:
                return result
        raise KeyError(cell_id)
