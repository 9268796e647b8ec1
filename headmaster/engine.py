"""The engine: turns a job into an outcome by a pair of processes from a warm fork server."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headmaster import sandbox, wire
from headmaster.curtain import interpreter_paths
from headmaster.gauge import Gauge
from headmaster.job import Cell, CellResult, Job, Outcome
from headmaster.zygote import imports_of, receive_message, send_message

ROOT = str(Path(__file__).resolve().parent.parent)  # where the package `headmaster` lies
FOLDERS = "headmaster-"  # how the names of scratch folders begin
STALE_SECONDS = 2 * 86400.0  # after which a scratch folder belongs to no running job
MAX_SHELVES = 24  # warm processes that wait for jobs
START_SECONDS = 120.0  # for a fork server to get warm
MARGIN = 30.0  # seconds that T may take beyond a cell's own limits before it counts as stuck
_KEPT_ENVIRONMENT = "PATH LANG LC_ALL LC_CTYPE TZ HOME MPLCONFIGDIR TMPDIR VIRTUAL_ENV".split()
_THREADS = "OMP OPENBLAS MKL BLIS NUMEXPR VECLIB".split()
_BOOT = "import sys; sys.path.append({root!r}); from headmaster.zygote import main; main({fd})"

# The kernel ties the fork server's life to the thread that started it, and the thread of a pool
# may end long before the engine does: this one stays.
_starter = ThreadPoolExecutor(1, thread_name_prefix="headmaster-starter")


class EngineError(Exception):
    """The machine's own fault: a process of the engine's could not start or has died."""


class Server:
    """A fork server (the base or a shelf) as the engine sees it."""

    def __init__(self, control: socket.socket, process: subprocess.Popen | None = None):
        self.control = control
        self.process = process
        self.users = 0  # jobs that run on it
        self._lock = threading.Lock()

    @classmethod
    def boot(cls, wrapper: tuple[str, ...] = ()) -> Server:
        """Start a base, inside of `wrapper` (bubblewrap's command) if it is not empty."""
        ours, theirs = socket.socketpair()
        fd = theirs.fileno()
        environment = {k: os.environ[k] for k in _KEPT_ENVIRONMENT if k in os.environ}
        environment.update({f"{library}_NUM_THREADS": "1" for library in _THREADS})
        environment["PYTHONHASHSEED"] = "0"
        boot = _BOOT.format(root=ROOT, fd=fd)
        process = _starter.submit(
            subprocess.Popen,
            [*wrapper, sys.executable, "-P", "-c", boot],
            pass_fds=[fd],
            env=environment,
            stdin=subprocess.DEVNULL,
        ).result()
        theirs.close()
        ours.settimeout(START_SECONDS)
        try:
            receive_message(ours)
        except (OSError, EOFError) as error:
            process.kill()
            process.wait()
            ours.close()
            raise EngineError(f"the fork server did not start ({error})") from None
        ours.settimeout(None)
        return cls(ours, process)

    def fork(self, request: dict[str, Any], sockets: list[int]) -> tuple[int, int | None]:
        """Ask for a process; returns its pid (in the server's eyes) and pidfd."""
        with self._lock:
            try:
                send_message(self.control, request, sockets)
                answer, fds = receive_message(self.control)
            except (OSError, EOFError) as error:
                raise EngineError(f"the fork server is gone ({error})") from None
        return answer["pid"], fds[0] if fds else None

    def shelf(self, request: dict[str, Any]) -> Server:
        """Ask a base for a shelf."""
        ours, theirs = socket.socketpair()
        _, pidfd = self.fork(request, [theirs.fileno()])
        theirs.close()
        if pidfd is not None:
            os.close(pidfd)
        return Server(ours)

    def close(self) -> None:
        """Let the server end; its forks end with it."""
        self.control.close()
        if self.process is not None:
            try:
                self.process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


class Engine:
    """Runs jobs; use it as a context manager. The fork server starts with the first job.

    One engine may be used from several threads. It must not be used after a fork of the process
    that made it: make one per process. `without` names layers of confinement to leave out: for
    tests, and for a machine on which one of them does harm.
    """

    def __init__(self, without: tuple[str, ...] = ()) -> None:
        self.without = without
        self._base: Server | None = None
        self._student_base: Server | None = None
        self._shelves: dict[str, Server] = {}
        self._lock = threading.Lock()

    @property
    def _wrapped(self) -> bool:
        return self._student_base is not self._base

    def __enter__(self) -> Engine:
        """Return the engine."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the fork server."""
        self.close()

    def close(self) -> None:
        """Stop the fork server and everything that was forked from it."""
        with self._lock:
            for server in self._shelves.values():
                server.close()
            self._shelves.clear()
            for server in {id(s): s for s in (self._student_base, self._base) if s}.values():
                server.close()
            self._base = self._student_base = None

    def warm(self) -> None:
        """Start the fork server now; raises EngineError if it does not start."""
        with self._lock:
            self._boot()

    def run(self, job: Job) -> Outcome:
        """Run a job. The machine's own faults are in the outcome's `trouble`, never raised."""
        ids = [cell.id for cell in job.cells]
        if len(set(ids)) < len(ids):
            return _troubled(job, "two cells of the notebook have the same id")
        try:
            return self._replay(job)
        except (EngineError, OSError, MemoryError) as error:
            self._forget()
            return _troubled(job, f"{type(error).__name__}: {error}")

    # -------------------------------------------------------------------------- the replays

    def _replay(self, job: Job) -> Outcome:
        """Run the job, again without each cell that ended S or T, until it runs through."""
        lost: dict[str, CellResult] = {}
        deaths, used = 0, 0.0
        until = time.monotonic() + job.limits.total_seconds
        for _ in range(job.limits.restarts + 1):
            ran = self._once(job, [cell for cell in job.cells if cell.id not in lost])
            used += ran.cpu_seconds
            if ran.trouble:
                return _troubled(job, ran.trouble, ran.layers)
            if ran.killer is not None:
                lost[ran.killer.id] = ran.killer
            elif not ran.finished:  # T itself has died: once may be chance
                deaths += 1
                if deaths > 1 and ran.current is None:
                    return _troubled(job, "the trusted process cannot run here", ran.layers)
                if deaths > 1:
                    why = "The process that runs the tests ended in this cell, twice."
                    lost[ran.current] = CellResult(ran.current, "killed", evalue=why)
            if ran.finished or time.monotonic() > until:
                break
        results = (lost.get(c.id) or ran.results.get(c.id) or _not_run(c.id) for c in job.cells)
        return Outcome(tuple(results), ran.layers, job.seed, cpu_seconds=used)

    def _once(self, job: Job, cells: list[Cell]) -> Run:
        """Run `cells` in a fresh pair of processes."""
        servers = self._servers(job)
        try:
            return self._pair(job, cells, *servers)
        finally:
            with self._lock:
                for server in servers:
                    server.users -= 1

    def _pair(self, job: Job, cells: list[Cell], student: Server, trusted: Server) -> Run:
        with _folders(job) as (scratch, folder):
            pair = socket.socketpair()
            reports = socket.socketpair()
            gauges = []
            try:
                request = _student_request(job, scratch)
                pid, pidfd = student.fork(request, [pair[0].fileno()])
                gauges.append(Gauge(pid, pidfd))
                request = _trusted_request(job, cells, scratch, folder, pid)
                fds = [pair[1].fileno(), reports[1].fileno()]
                fds += [pidfd] if pidfd is not None else []
                pid, pidfd = trusted.fork(request, fds)
                gauges.append(Gauge(pid, pidfd))
                for sock in (*pair, reports[1]):
                    sock.close()
                return _listen(reports[0], job, len(cells), self._wrapped)
            finally:
                for gauge in gauges:
                    gauge.end()
                for sock in (*pair, *reports):
                    sock.close()

    # --------------------------------------------------------------------------- the servers

    def _servers(self, job: Job) -> tuple[Server, Server]:
        """Return the shelves for S and T, started if need be."""
        released = tuple(cell for cell in job.cells if cell.kind != "student")
        wanted = _shelf_requests(released, job.hide, job.show, job.trusted_path, self.without)
        with self._lock:
            self._boot()
            return (
                self._shelf(self._student_base, wanted[0]),
                self._shelf(self._base, wanted[1]),
            )

    def _boot(self) -> None:
        if self._base is None:
            sweep()
            self._base = Server.boot()
            wrapper = () if "bubblewrap" in self.without else sandbox.bubblewrap()
            self._student_base = Server.boot(wrapper) if wrapper else self._base

    def _shelf(self, base: Server, request: str) -> Server:
        """Return the shelf that a request describes; the one not used for longest makes room."""
        shelf = self._shelves.pop(request, None) or base.shelf(json.loads(request))
        self._shelves[request] = shelf
        idle = [k for k, other in self._shelves.items() if not other.users and other is not shelf]
        for old in idle[: max(0, len(self._shelves) - MAX_SHELVES)]:
            self._shelves.pop(old).close()
        shelf.users += 1
        return shelf

    def _forget(self) -> None:
        """Start from nothing next time: a server may be gone."""
        with contextlib.suppress(OSError):
            self.close()


@functools.lru_cache(maxsize=MAX_SHELVES)
def _shelf_requests(
    released: tuple[Cell, ...],
    hide: tuple[str, ...],
    show: tuple[str, ...],
    trusted_path: tuple[str, ...],
    without: tuple[str, ...],
) -> tuple[str, str]:
    """Return what to ask a base for, as JSON: shelves for S and for T."""
    course = [str(Path(path).resolve()) for path in trusted_path]
    ours = [] if ROOT in interpreter_paths() else [ROOT]  # installed, or beside the course
    student = {
        "role": "student",
        "hide": hide,
        "show": show,
        "course": list(dict.fromkeys((*course, *ours))),
        "imports": imports_of(cell.source for cell in released if cell.kind == "locked"),
        "without": without,
    }
    cells = [dataclasses.asdict(cell) for cell in released]
    return json.dumps(student), json.dumps({"role": "trusted", "course": course, "cells": cells})


@dataclasses.dataclass
class Run:
    """What one pair of processes has reported."""

    results: dict[str, CellResult] = dataclasses.field(default_factory=dict)
    layers: dict[str, bool | str] = dataclasses.field(default_factory=dict)
    current: str | None = None  # the cell that was running when the reports ended
    ended: bool = False  # T has said that it is done
    finished: bool = False  # … and has done all cells
    trouble: str | None = None
    cpu_seconds: float = 0.0

    @property
    def killer(self) -> CellResult | None:
        """The result of the cell in which S died, if T had to stop there."""
        if not self.ended or self.finished or not self.results:
            return None
        return list(self.results.values())[-1]

    def take(self, head: wire.Head, values: list[Any]) -> None:
        """Take in one report of T's."""
        if head[0] == "begun":
            self.layers = values[0]
        elif head[0] == "cell":
            self.current = head[1]
        elif head[0] == "result":
            result = _result(values[0])
            self.results[result.id] = result
            self.current = None
        elif head[0] == "trouble":
            self.trouble, self.ended = head[1], True
        elif head[0] == "end":
            self.cpu_seconds, self.ended = values[0], True


class _Silence(Exception):
    """T has not reported for too long."""


def _listen(sock: socket.socket, job: Job, cells: int, wrapped: bool) -> Run:
    """Read T's reports until it has done all cells, or S or T is gone."""
    run = Run()
    until = time.monotonic() + START_SECONDS

    def check() -> None:
        if time.monotonic() > until:
            raise _Silence

    channel = wire.Channel(sock, check, tick=1.0)
    with contextlib.suppress(EOFError, OSError, wire.WireError, _Silence):
        while not run.ended:
            head, buffers = channel.receive()
            run.take(head, [json.loads(buffer) for buffer in buffers])
            until = time.monotonic() + job.limits.wall_seconds * 2 + MARGIN
    run.finished = run.ended and len(run.results) == cells
    if run.layers:
        run.layers["bubblewrap"] = wrapped
    return run


def _result(fields: dict[str, Any]) -> CellResult:
    fields["outputs"] = tuple(fields["outputs"])
    return CellResult(**fields)


def _not_run(cell_id: str) -> CellResult:
    why = "This cell was not run: the student's process had ended too often before it."
    return CellResult(cell_id, "not run", evalue=why)


def _troubled(job: Job, why: str, layers: dict[str, bool | str] | None = None) -> Outcome:
    """Return the outcome of a job that this machine could not run."""
    results = tuple(CellResult(cell.id, "not run") for cell in job.cells)
    return Outcome(results, layers or {}, job.seed, why)


def _student_request(job: Job, scratch: str) -> dict[str, Any]:
    total = int(job.limits.cpu_seconds * (len(job.cells) + 1)) + 1
    return {
        "scratch": scratch,
        "limits": dataclasses.asdict(job.limits),
        "total_cpu": total,
        "figures": job.figures,
        "random": _derived(job.seed, "student"),
    }


def _derived(seed: int, role: str) -> int:
    """Return where the global generators of S or T begin: neither tells the other's, nor `seed`."""
    digest = hashlib.sha256(f"{role} {seed}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def _trusted_request(
    job: Job, cells: list[Cell], scratch: str, folder: str, pid: int
) -> dict[str, Any]:
    return {
        "scratch": scratch,
        "folder": folder,
        "limits": dataclasses.asdict(job.limits),
        "seed": job.seed,
        "random": _derived(job.seed, "trusted"),
        "pid": pid,
        "cells": [dataclasses.asdict(cell) for cell in cells],
    }


@contextlib.contextmanager
def _folders(job: Job) -> Iterator[tuple[str, str]]:
    """Make the scratch folder of S and T's own, with copies of the job's files; remove them."""
    made = [tempfile.mkdtemp(prefix=FOLDERS) for _ in range(2)]
    try:
        if job.files is not None:
            for folder in made:
                shutil.copytree(job.files, folder, dirs_exist_ok=True, ignore=_not_plain)
        yield made[0], made[1]
    finally:
        for folder in made:
            _remove(folder)


def sweep(older_than: float = STALE_SECONDS) -> None:
    """Remove what engines that were killed have left behind long ago."""
    now = time.time()
    owners = {os.getuid()}
    if os.getuid() == 0:
        owners |= set(range(sandbox.FIRST_UID, sandbox.FIRST_UID + sandbox.UIDS))
    for path in Path(tempfile.gettempdir()).glob(f"{FOLDERS}*"):
        with contextlib.suppress(OSError):
            state = path.lstat()
            ours = stat.S_ISDIR(state.st_mode) and state.st_uid in owners
            if ours and now - state.st_mtime > older_than:
                _remove(str(path))


def _not_plain(folder: str, names: list[str]) -> list[str]:
    """Return the names that are neither a file nor a folder: links, pipes, devices."""
    paths = {name: os.path.join(folder, name) for name in names}
    plain = (stat.S_IFREG, stat.S_IFDIR)
    return [
        name for name, path in paths.items() if stat.S_IFMT(os.lstat(path).st_mode) not in plain
    ]


def _remove(folder: str) -> None:
    """Remove a folder that a student's code has filled: deeper than any path, closed, or both.

    It walks down and up by descriptors, so that neither the depth nor a link can mislead it.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        here = os.open(folder, flags)
        try:
            way = [("", _empty(here))]  # the folders above, each with those left in it
            while len(way) > 1 or way[0][1]:
                name, left = way[-1]
                if left:
                    name = left.pop()
                    with contextlib.suppress(OSError):
                        os.chmod(name, 0o700, dir_fd=here)
                    here = _step(here, name, flags)
                    way.append((name, _empty(here)))
                else:
                    way.pop()
                    here = _step(here, "..", flags)
                    os.rmdir(name, dir_fd=here)
        finally:
            os.close(here)
        os.rmdir(folder)


def _step(here: int, name: str, flags: int) -> int:
    there = os.open(name, flags, dir_fd=here)
    os.close(here)
    return there


def _empty(folder: int) -> list[str]:
    """Remove the files of an open folder; returns the names of the folders in it."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders
