"""Which layers of confinement hold on this machine, what is missing, and how to get it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from headmaster import sandbox
from headmaster.curtain import interpreter_paths
from headmaster.engine import Engine
from headmaster.job import Cell, Job, Outcome


@dataclass(frozen=True)
class Layer:
    """One layer of confinement, as the doctor found it."""

    name: str
    holds: bool
    detail: str  # which version holds, or what the layer would keep out
    advice: str = ""  # how to get it, where it is missing

    def __str__(self) -> str:
        """Return the doctor's line."""
        head = f"{'holds  ' if self.holds else 'MISSING'}  {self.name:<12} {self.detail}"
        return f"{head}\n{'':>22}{self.advice}" if self.advice and not self.holds else head


def layers(outcome: Outcome | None = None) -> list[Layer]:
    """Return every layer, as a real job on this machine reports it.

    `outcome`: of a job that has just run here; without it a small one is run.
    """
    held = (outcome or probe()).confinement
    return list(_layers(held))


def probe() -> Outcome:
    """Run the smallest job."""
    cells = (Cell("one", "student", "one = 1"), Cell("test", "test", "assert one == 1"))
    with Engine() as engine:
        return engine.run(Job("doctor", "doctor", "doctor", cells))


def _layers(held: dict[str, bool | str]) -> Iterator[Layer]:
    linux = sandbox.LINUX
    root = linux and os.getuid() == 0
    yield Layer(
        "rlimits",
        bool(held.get("rlimits")),
        "memory, processor time, size and number of files",
        "These limits exist on every Unix; on Windows use WSL.",
    )
    abi = sandbox.landlock_abi()
    yield Layer(
        "landlock",
        bool(held.get("landlock")),
        f"ABI {abi}: files{', network' * (abi >= 4)}{', signals' * (abi >= 6)}"
        if abi
        else "files outside of the scratch folder",
        "Linux 5.13 or newer with `landlock` among its security modules "
        "(the kernel parameter lsm=landlock,…)."
        if linux
        else "Only Linux has it: run headmaster in a Linux machine or container.",
    )
    yield Layer(
        "seccomp",
        bool(held.get("seccomp")),
        "processes, sockets, signals, file modes",
        "pip install pyseccomp, and the system's libseccomp (Debian: apt install libseccomp2).",
    )
    yield Layer(
        "own uid",
        bool(held.get("own uid")),
        "other users' files and processes",
        "The interpreter's folder is closed to other users: install Python where they can read it."
        if root
        else "Only root can give each submission a user of its own; Landlock and seccomp do "
        "without, and bubblewrap is the next best.",
    )
    yield Layer(
        "namespaces",
        bool(held.get("namespaces")),
        str(held.get("namespaces") or "processes, network, mounts of the machine"),
        "Only root (with CAP_SYS_ADMIN in a container) can leave them; or install bubblewrap.",
    )
    yield Layer(
        "bubblewrap",
        bool(held.get("bubblewrap")),
        _bubblewrap_detail(),
        "apt install bubblewrap (unprivileged user namespaces must be allowed). "
        "Not needed where the namespaces hold.",
    )
    measured = sandbox.LINUX and os.access("/proc/self/smaps_rollup", os.R_OK)
    yield Layer(
        "gauge",
        measured,
        "memory and processor time measured from outside",
        "It reads /proc/PID/clear_refs and smaps_rollup, which this system lacks: the figure "
        "of a memory test is then the student process' own.",
    )


def _bubblewrap_detail() -> str:
    found = shutil.which("bwrap")
    return found if found else "what the namespaces keep out, without root"


def main() -> int:
    """Print the report; returns 0 if student code is confined here, else 1."""
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}")
    outcome = probe()
    if outcome.trouble:
        print(f"Nothing can be graded here: {outcome.trouble}", file=sys.stderr)
        return 1
    found = layers(outcome)
    for layer in found:
        print(layer)
    strong = {layer.name for layer in found if layer.holds} & {"landlock", "own uid", "bubblewrap"}
    if not strong:
        print(
            "\nStudent code can read and write whatever you can. Grades are marked unconfined.",
            file=sys.stderr,
        )
        return 1
    print("\nStudent code can read the system's libraries and")
    for path in interpreter_paths():
        print(f"  {path}")
    return 0
