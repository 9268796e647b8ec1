"""The gradebook in a real PostgreSQL, started from Debian's package where it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from conftest import HandIn, OneProcess, answered, nbgrader_api, released

from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook
from headmaster.marking import Options, grade_assignment
from headmaster.pool import pool
from headmaster.release import AssignmentSpec

pytest.importorskip("psycopg")
PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
pytestmark = pytest.mark.skipif(not PROGRAMS, reason="PostgreSQL is not installed")


def run(*command: str | Path) -> None:
    """Run a program of PostgreSQL's, which refuses to run as root."""
    program, *rest = map(str, command)
    whole = [str(PROGRAMS[-1] / program), *rest]
    if os.getuid() == 0:
        whole = ["runuser", "-u", "postgres", "--", *whole]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL, cwd="/")


@pytest.fixture(scope="module")
def server() -> Iterator[Path]:
    """Start a server that listens on a socket in its own folder only; return the folder."""
    folder = Path(tempfile.mkdtemp(prefix="headmaster-pg-"))
    if os.getuid() == 0:
        shutil.chown(folder, "postgres")
    data = folder / "data"
    run("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync")
    options = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off"
    run("pg_ctl", "-D", data, "-w", "-o", options, "-l", folder / "log", "start")
    try:
        yield folder
    finally:
        run("pg_ctl", "-D", data, "-m", "immediate", "stop")
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def on_postgres(server: Path, course: Course) -> Course:
    """Return the tiny course with its gradebook in a fresh database of the server."""
    name = f"book{os.urandom(4).hex()}"
    run("createdb", "-h", server, "-U", "postgres", name)
    config = course.root / "nbgrader_config.py"
    url = f"postgresql+psycopg://postgres@/{name}?host={server}"
    config.write_text(config.read_text() + f"\nc.CourseDirectory.db_url = {url!r}\n")
    return Course.open(course.root)


def grade(course: Course) -> dict[str, float]:
    """Grade, and return the scores by student."""
    with pool(1) as executor:
        items = grade_assignment(course, "ps1", executor, Options(), lambda *_: None)
    return {item.result.student: item.result.score for item in items}


def test_a_class_is_graded_into_postgres(
    on_postgres: Course, ps1: AssignmentSpec, hand_in: HandIn, one_process: OneProcess
) -> None:
    square = answered(released(ps1), double="def double(x):\n    return x * x  # \u00e9\0")
    stamp = {"timestamp.txt": "2026-01-01 00:00:00 UTC"}
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), **stamp})
    hand_in("bea", {"numbers.ipynb": square})
    hand_in("cyd", {"numbers.ipynb": b"{"})
    scores = grade(on_postgres)
    assert scores == {"ana": 6.0, "bea": 4.0, "cyd": 0.0}
    assert grade(on_postgres) == scores
    assert len(one_process.jobs) == 2, "nothing is graded twice"


def test_stock_nbgrader_works_on_the_result(
    on_postgres: Course, ps1: AssignmentSpec, hand_in: HandIn, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade(on_postgres)
    api = nbgrader_api(on_postgres.root)
    with api.gradebook as gradebook:
        submission = gradebook.find_submission("ps1", "ana")
        assert (submission.score, submission.max_score) == (6.0, 8.0)
    assert api.generate_feedback("ps1", "ana", force=True)["success"]


def test_a_failed_write_leaves_nothing_behind(
    on_postgres: Course, ps1: AssignmentSpec, hand_in: HandIn, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    with Gradebook(on_postgres) as gradebook:
        gradebook.register(ps1)
        with gradebook.engine.begin() as connection:
            connection.exec_driver_sql("alter table headmaster_result drop column result")
            connection.exec_driver_sql("alter table headmaster_result add column result integer")
    with pytest.raises(CourseError, match="could not be written"), pool(1):
        _save_one(on_postgres, ps1)
    with Gradebook(on_postgres) as gradebook, gradebook.engine.connect() as connection:
        assert connection.execute(sa.text("select count(*) from grade")).scalar() == 0
        assert connection.execute(sa.text("select count(*) from student")).scalar() == 0


def _save_one(course: Course, spec: AssignmentSpec) -> None:
    from headmaster.intake import take_in
    from headmaster.marking import grade_once

    result = grade_once(course, spec, take_in(course, spec, "ana"), 1)
    with Gradebook(course) as gradebook:
        gradebook.register(spec)
        gradebook.save(result, None)


def test_a_server_that_is_not_there_is_named_without_the_password(course: Course) -> None:
    config = course.root / "nbgrader_config.py"
    url = "postgresql+psycopg://me:secret@127.0.0.1:1/book"
    config.write_text(config.read_text() + f"\nc.CourseDirectory.db_url = {url!r}\n")
    with pytest.raises(CourseError, match="cannot be opened") as caught:
        Gradebook(Course.open(course.root))
    assert "secret" not in str(caught.value)
