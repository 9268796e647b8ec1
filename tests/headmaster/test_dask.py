"""Grading on a Dask cluster: two real workers, one of which is killed on the way."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import HandIn, answered, released

from headmaster.course import Course
from headmaster.marking import Options, grade_assignment
from headmaster.pool import pool
from headmaster.release import AssignmentSpec, load_assignment

pytest.importorskip("distributed")


class Cluster:
    """A scheduler and its workers, each a process of its own on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self._start("scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", file)
        _wait_for(file.exists)
        import json

        _wait_for(lambda: file.read_text().rstrip().endswith("}"))
        self.address = json.loads(file.read_text())["address"]
        self.workers = [self._worker() for _ in range(2)]

    def _worker(self) -> subprocess.Popen[bytes]:
        flags = ("--nthreads", "1", "--no-nanny", "--no-dashboard", "--memory-limit", "0")
        return self._start("worker", self.address, *flags, "--local-directory", self.folder)

    def _start(self, *arguments: Any) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli.dask_" + arguments[0]]
        process = subprocess.Popen(
            [*command, *map(str, arguments[1:])], stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.processes.append(process)
        return process

    def stop(self) -> None:
        """End the processes that this cluster started."""
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)
            process.kill()


def _wait_for(condition: Any, seconds: float = 60.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Start a scheduler and two workers."""
    started = Cluster(tmp_path)
    yield started
    started.stop()


STUDENTS = [f"s{number:02}" for number in range(8)]


def hand_in_all(course: Course, ps1: AssignmentSpec, hand_in: HandIn) -> None:
    """Hand in right and wrong answers, each slow enough that a worker dies amid them."""
    for number, student in enumerate(STUDENTS):
        wrong = {"mean": "mean = max"} if number % 3 == 0 else {}
        notebook = answered(released(ps1), **wrong)
        slow = {"cell_type": "code", "metadata": {}, "source": "import time; time.sleep(0.3)"}
        notebook["cells"].insert(0, slow)
        hand_in(student, {"numbers.ipynb": notebook})


def grade(course: Course, address: str | None, progress: Any = lambda *_: None) -> dict[str, Any]:
    """Grade, and return the records by student."""
    with pool(2, address) as executor:
        options = Options(seed=5, force=True)
        items = grade_assignment(course, "ps1", executor, options, progress)
    return {item.result.student: [r.as_json() for r in item.result.records] for item in items}


def test_a_cluster_that_loses_a_worker_gives_the_same_results(
    cluster: Cluster, course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    hand_in_all(course, ps1, hand_in)

    def kill_one(done: int, *_: Any) -> None:
        if done == 2:
            os.kill(cluster.workers[0].pid, signal.SIGKILL)

    with_a_loss = grade(course, cluster.address, kill_one)
    assert cluster.workers[0].wait(timeout=10) == -signal.SIGKILL
    assert with_a_loss == grade(course, None)
    assert list(with_a_loss) == STUDENTS


def test_files_beside_the_notebook_travel_to_the_workers(
    cluster: Cluster, course: Course, hand_in: HandIn
) -> None:
    ps2 = load_assignment(course, "ps2")
    hand_in("ana", {"words.ipynb": answered(released(ps2, "words"))}, "ps2")
    with pool(2, cluster.address) as executor:
        (item,) = grade_assignment(course, "ps2", executor, Options(), lambda *_: None)
    assert {r.id: r.points for r in item.result.records}["count-file"] == 1.0
