"""Measure another process from outside, where its code cannot lie about it (Linux)."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from pathlib import Path

GROWTH_SLACK = 16 << 20  # bytes by which resident memory may differ from what was allocated
USE_SLACK = 48 << 20  # the same for used pages, with the interpreter's and the libraries' own
COPIES = 4  # of arguments and results that S makes on their way
KILL_SECONDS = 10.0  # a killed process may have much memory to give back


class Gauge:
    """What T knows of S: its processor time, its memory, and how to stop it.

    `pidfd` (Linux) names the process for ever; its number may be another in S's own namespace and
    may be given to a stranger after S has died.
    """

    def __init__(self, pid: int, pidfd: int | None):
        self.pidfd = pidfd
        self.pid = pid if pidfd is None else _pid_of(pidfd) or pid
        self._clock = (~self.pid << 3) | 2  # the kernel's name of a process' CPU clock
        self._proc = Path(f"/proc/{self.pid}")

    def cpu_seconds(self) -> float:
        """Return the processor time that S has used, 0 where it cannot be known."""
        try:
            return time.clock_gettime(self._clock)
        except OSError:
            return 0.0

    def signal(self, number: int) -> None:
        """Send S a signal; nothing happens if it is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pidfd is not None:
                signal.pidfd_send_signal(self.pidfd, number)
            else:
                os.kill(self.pid, number)

    def end(self) -> None:
        """Kill the process and wait until it is gone: only then is its folder safe to remove."""
        self.signal(signal.SIGKILL)
        if self.pidfd is None:
            return
        select.select([self.pidfd], [], [], KILL_SECONDS)
        os.close(self.pidfd)
        self.pidfd = None

    def reset_peak(self) -> int | None:
        """Begin a measurement of S's resident memory; returns what it holds now, in bytes.

        None where the kernel does not tell. From here on `touched` counts from nothing.
        """
        try:
            for what in ("1", "5"):  # forget which pages were used; forget the peak
                (self._proc / "clear_refs").write_text(what)
            return self._status("VmRSS")
        except (OSError, LookupError, ValueError):
            return None

    def peak(self) -> int:
        """Return the most resident memory that S has held since `reset_peak`, in bytes."""
        try:
            return self._status("VmHWM")
        except (OSError, LookupError, ValueError):
            return 0

    def touched(self) -> int:
        """Return how much memory that S still holds was used since `reset_peak`, in bytes."""
        try:
            lines = (self._proc / "smaps_rollup").read_text().splitlines()
            return next(int(x.split()[1]) << 10 for x in lines if x.startswith("Referenced:"))
        except (OSError, StopIteration, ValueError):
            return 0

    def _status(self, name: str) -> int:
        for line in (self._proc / "status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) << 10
        raise LookupError(name)


class Measurement:
    """The memory of one call: S's own figure, and the evidence from outside that it is no lie.

    S traces its allocations by functions taken before any student code ran, and that figure is
    exact. But S is the student's: it may stop the tracing, allocate behind its back, compute in a
    buffer kept from an earlier call, or compute before it says "ready" or after it says "done". So
    T looks at the kernel's own count of resident memory and of used pages in three windows: while
    the arguments arrive, during the call, and while the result is fetched. Where the evidence
    exceeds S's figure by more than honest work explains, the evidence is what counts.
    """

    def __init__(self, gauge: Gauge):
        self.gauge = gauge
        self.step = ""
        self._traced = 0
        self._start: int | None = None  # resident memory at the start of the window
        self._arguments = 0
        self._grown = self._touched = 0  # the largest evidence of any window

    def begin(self, argument_bytes: int) -> None:
        """The arguments are about to be sent."""
        self.step, self._arguments = "begun", argument_bytes
        self._start = self.gauge.reset_peak()

    def ready(self) -> None:
        """S has decoded the arguments and says that it is about to call."""
        self._look(COPIES * self._arguments, COPIES * self._arguments)
        self.step, self._start = "ready", self.gauge.reset_peak()

    def done(self, traced: int) -> None:
        """S says that the call has ended and that it held `traced` bytes at most."""
        self.step, self._traced = "done", max(0, traced)
        self._look(0, self._arguments)

    def fetched(self, result_bytes: int) -> None:
        """The result has arrived, and S has compared the arguments with what they were."""
        copies = COPIES * (self._arguments + result_bytes)
        self._look(copies, copies)

    @property
    def complete(self) -> bool:
        """Whether S has gone through all steps."""
        return self.step == "done"

    def _look(self, explained_growth: int, explained_use: int) -> None:
        if self._start is not None:
            grown = self.gauge.peak() - self._start
            self._grown = max(self._grown, grown - explained_growth)
            self._touched = max(self._touched, self.gauge.touched() - explained_use)

    def result(self) -> float:
        """Return the figure that counts, in bytes."""
        figure = self._traced
        for evidence, slack in ((self._grown, GROWTH_SLACK), (self._touched, USE_SLACK)):
            if evidence > self._traced + slack:
                figure = max(figure, evidence)
        return float(figure)


def _pid_of(pidfd: int) -> int | None:
    """Return the number of the process in this process' own namespace."""
    try:
        lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
        pid = next(int(x.split()[1]) for x in lines if x.startswith("Pid:"))
    except (OSError, StopIteration, ValueError):
        return None
    return pid if pid > 0 else None


def disk_bytes(folder: Path, enough: int, most_entries: int) -> int:
    """Return the size of what lies in `folder`, at least `enough` as soon as that is certain.

    More than `most_entries` files, or folders deeper than a path can be long, count as enough: no
    honest notebook makes them, and removing them takes as long as making them.
    """
    total, entries, todo = 0, 0, [folder]
    while todo:
        try:
            with os.scandir(todo.pop()) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if total >= enough or entries > most_entries:
                        return max(total, enough)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return max(total, enough)
    return total
