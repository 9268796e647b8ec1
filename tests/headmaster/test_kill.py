"""Killed at any moment, the grader leaves a consistent gradebook, and the next run finishes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from conftest import HandIn, OneProcess, answered, released

from headmaster import autograded, feedback, gradebook
from headmaster.course import Course
from headmaster.marking import Options, grade_assignment
from headmaster.pool import pool
from headmaster.release import AssignmentSpec

STUDENTS = ("ana", "bea", "cyd")
SCORES = {"ana": 6.0, "bea": 3.0, "cyd": 0.0}


@pytest.fixture
def class_(course: Course, ps1: AssignmentSpec, hand_in: HandIn) -> Course:
    """Return the course with three hand-ins of known scores."""
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), "notes.txt": "x"})
    hand_in("bea", {"numbers.ipynb": answered(released(ps1), mean="1/0")})
    hand_in("cyd", {"numbers.ipynb": released(ps1)})
    return course


def grade(course: Course) -> dict[str, Any]:
    """Grade and return the class list by student."""
    with pool(1) as executor:
        items = grade_assignment(course, "ps1", executor, Options(), lambda *_: None)
    return {item.result.student: item for item in items}


class Countdown:
    """Kills this process at the n-th thing that it writes."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def step(self, *_: Any, **__: Any) -> None:
        """Count one thing that is written."""
        self.steps -= 1
        if self.steps == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def watch(self) -> None:
        """Count every statement, commit and file, before and after it."""
        for event in ("before_cursor_execute", "after_cursor_execute", "commit"):
            sa.event.listen(sa.Engine, event, self.step)
        os_replace = os.replace

        def replace(*arguments: Any) -> None:
            self.step()
            os_replace(*arguments)
            self.step()

        os.replace = replace


def run_and_kill(course: Course, step: int) -> int:
    """Grade in a fork that dies at this step; returns the steps that were left."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        countdown = Countdown(step)
        countdown.watch()
        grade(course)
        os.write(write, str(countdown.steps).encode())
        os._exit(0)
    os.close(write)
    left = os.read(read, 20)
    os.close(read)
    os.waitpid(pid, 0)
    return int(left or 0)


def is_consistent(course: Course) -> list[str]:
    """Check the gradebook as the kill left it; return the students whose notebooks are graded."""
    path = course.root / "gradebook.db"
    if not path.exists():
        return []
    with sqlite3.connect(path) as connection:
        assert connection.execute("pragma integrity_check").fetchone() == ("ok",)
        tables = {name for (name,) in connection.execute("select name from sqlite_master")}
        assert {"grade", "alembic_version"} <= tables, "the gradebook was never half made"
        if "headmaster_result" not in tables:
            return []
        graded = dict(connection.execute("select student, result from headmaster_result"))
        for student, result in graded.items():
            records = json.loads(result)["notebooks"][0]["records"]
            rows = connection.execute(
                """select count(*), sum(g.auto_score) from grade g join submitted_notebook n
                on n.id = g.notebook_id join submitted_assignment s on s.id = n.assignment_id
                where s.student_id = ?""",
                (student,),
            ).fetchone()
            total = sum(record["points"] or 0 for record in records)
            assert rows == (len(records), total), "grades and records are of one transaction"
        submitted = connection.execute("select count(*) from submitted_notebook").fetchone()[0]
        assert submitted == len(graded)
    for file in course.root.glob("autograded/**/*.ipynb"):
        json.loads(file.read_text())  # whole, or not there
    for file in course.root.glob("feedback/**/*.html"):
        assert file.read_text().endswith("</html>")
    return [s for s in graded if (course.folder("autograded", s, "ps1") / "numbers.ipynb").exists()]


STEPS = sorted({*range(1, 40, 5), *range(40, 330, 11)})


@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_step_loses_nothing(
    step: int, class_: Course, one_process: OneProcess
) -> None:
    run_and_kill(class_, step)
    finished = is_consistent(class_)
    graded = grade(class_)
    assert {student: item.result.score for student, item in graded.items()} == SCORES
    assert [s for s, item in graded.items() if not item.fresh] == finished
    assert len(one_process.jobs) == len(STUDENTS) - len(finished)
    assert sorted(is_consistent(class_)) == sorted(STUDENTS)
    assert len(list(class_.root.glob("feedback/*/ps1/numbers.html"))) == len(STUDENTS)


def test_the_steps_above_reach_over_the_whole_run(class_: Course, one_process: OneProcess) -> None:
    left = run_and_kill(class_, 10_000)
    assert 0.75 * (10_000 - left) <= STEPS[-1]


def test_a_kill_of_the_whole_command_leaves_a_class_that_can_be_finished(
    class_: Course, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "headmaster", "grade", "ps1", "--course", str(class_.root)]
    page = class_.folder("feedback", "ana", "ps1") / "numbers.html"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not page.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    process.kill()
    process.wait()
    is_consistent(class_)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "unchanged" in done.stdout
    assert sorted(is_consistent(class_)) == sorted(STUDENTS)


def test_nothing_is_written_but_through_one_replace(class_: Course) -> None:
    """The countdown sees every file because all are written whole, by these modules."""
    for module in (autograded, feedback, gradebook):
        text = Path(module.__file__).read_text()
        assert "write_text(" not in text and "write_bytes(" not in text
