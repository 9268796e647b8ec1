"""The command: what it prints, and what it says when something is wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import HandIn, OneProcess, answered, released

from headmaster.cli import main
from headmaster.course import Course
from headmaster.release import AssignmentSpec


@pytest.fixture
def class_(course: Course, ps1: AssignmentSpec, hand_in: HandIn, one_process: OneProcess) -> Course:
    """Return the course with a small class."""
    square = answered(released(ps1), double="def double(x):\n    return x * x")
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    hand_in("bea", {"numbers.ipynb": square})
    hand_in("cyd", {"numbers.ipynb": b"{"})
    hand_in("dan", {"numbers.ipynb": square})
    return course


def run(course: Course, *arguments: str) -> Any:
    """Run a command on the course."""
    return CliRunner().invoke(main, [*arguments, "--course", str(course.root)])


def test_grade_prints_the_class_and_where_everything_lies(class_: Course) -> None:
    result = run(class_, "grade", "ps1")
    assert result.exit_code == 0
    lines = " ".join(result.output.split())
    assert "ana │ 6 of 8" in lines and "bea │ 4 of 8" in lines and "cyd │ not graded" in lines
    assert "2 × double-is-square" in lines
    assert "cyd (ps1): unreadable: The file is not a complete notebook" in lines
    for place in ("gradebook.db", "autograded", "feedback"):
        assert str((class_.root / place).resolve()) in result.output


def test_many_of_the_same_reason_are_one_line(
    class_: Course, hand_in: HandIn, one_process: OneProcess
) -> None:
    hand_in("eva", {"numbers.ipynb": b"{"})
    assert "cyd (ps1), eva (ps1): unreadable" in run(class_, "grade", "ps1").output


def test_names_that_look_like_markup_are_printed_as_they_are(
    class_: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    hand_in("[red]o'b", {"numbers.ipynb": answered(released(ps1))})
    assert "[red]o'b" in run(class_, "grade", "ps1").output


def test_grade_again_says_that_nothing_changed(class_: Course) -> None:
    run(class_, "grade", "ps1")
    assert run(class_, "grade", "ps1").output.count("unchanged") == 4


def test_grade_writes_json(class_: Course, tmp_path: Path) -> None:
    file = tmp_path / "out.json"
    run(class_, "grade", "ps1", "--student", "bea", "--json", str(file))
    (item,) = json.loads(file.read_text())
    assert (item["student"], item["score"], item["max"]) == ("bea", 4.0, 8.0)
    record = item["notebooks"][0]["records"][0]
    assert record["misconception"] == "double-is-square"
    to_stdout = run(class_, "grade", "ps1", "--json", "-")
    assert len(json.loads(to_stdout.stdout)) == 4


def test_grade_can_leave_feedback_out(class_: Course) -> None:
    run(class_, "grade", "ps1", "--no-feedback")
    assert not (class_.root / "feedback").exists()
    run(class_, "grade", "ps1")
    assert (class_.root / "feedback" / "ana" / "ps1" / "numbers.html").exists()


def test_grade_of_trouble_has_exit_status_1(class_: Course, one_process: OneProcess) -> None:
    def fails(job: Any) -> None:
        if job.student == "bea":
            raise OSError("no processes left")

    one_process.before = fails
    result = run(class_, "grade", "ps1")
    assert result.exit_code == 1
    assert "bea (ps1): trouble: OSError: no processes left" in result.output
    assert "6 of 8" in result.output


def test_an_unknown_assignment_gets_the_list(class_: Course) -> None:
    result = run(class_, "grade", "ps1", "ps11")
    assert result.exit_code == 2
    assert result.output.strip() == (
        "headmaster: there is no assignment 'ps11' (did you mean 'ps1'?); there are: ps1, ps2"
    )
    assert not (class_.root / "gradebook.db").exists(), "nothing is half done"


def test_an_unknown_student_gets_the_list(class_: Course) -> None:
    result = run(class_, "grade", "ps1", "--student", "bae")
    assert result.exit_code == 2
    assert "there are: ana, bea, cyd, dan" in result.output


def test_an_assignment_that_nobody_handed_in_is_graded_to_nothing(class_: Course) -> None:
    result = run(class_, "grade", "ps2")
    assert result.exit_code == 0


def test_a_folder_that_is_not_there_is_named(class_: Course) -> None:
    result = CliRunner().invoke(main, ["grade", "ps1", "--course", "/no/such/place"])
    assert result.exit_code == 2
    assert "no course folder /no/such/place" in result.output


def test_a_scheduler_that_does_not_answer_is_named(
    class_: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headmaster.pool.CONNECT_SECONDS", 1)
    result = run(class_, "grade", "ps1", "--scheduler", "tcp://127.0.0.1:1")
    assert result.exit_code == 2
    assert "Dask" in result.output


def test_show_tells_why(class_: Course) -> None:
    run(class_, "grade", "ps1")
    output = run(class_, "show", "ps1", "bea").output
    for piece in ("double-values", "0 of 2", "wrong-answer", "double-is-square", "seed:"):
        assert piece in output
    assert "confined by: rlimits, landlock (pretended)" in output


def test_show_repeats_a_grade_with_its_seed(class_: Course) -> None:
    run(class_, "grade", "ps1")
    result = run(class_, "show", "ps1", "bea", "--again")
    assert result.exit_code == 0
    assert "every verdict is the same" in result.output


def test_show_says_what_differs(class_: Course, ps1: AssignmentSpec, hand_in: HandIn) -> None:
    run(class_, "grade", "ps1")
    hand_in("bea", {"numbers.ipynb": answered(released(ps1))})
    result = run(class_, "show", "ps1", "bea", "--again")
    assert result.exit_code == 1
    assert "double-values: was fail (0.0), is now pass (2.0)" in result.output


def test_show_of_somebody_ungraded_lists_the_graded(class_: Course) -> None:
    run(class_, "grade", "ps1", "--student", "ana")
    result = run(class_, "show", "ps1", "zoe")
    assert result.exit_code == 2
    assert "graded so far: ana" in result.output


def test_feedback_is_written_again(class_: Course) -> None:
    run(class_, "grade", "ps1", "--no-feedback")
    result = run(class_, "feedback", "ps1", "--student", "ana")
    assert result.output.strip().endswith("numbers.html")


def test_release_makes_what_students_get(class_: Course, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    assert run(class_, "release", "ps1").exit_code == 0
    made = (class_.root / "release" / "ps1" / "numbers.ipynb").read_text()
    assert "NotImplementedError" in made and "graders" not in made


def test_lint_finds_nothing_in_good_tests(class_: Course) -> None:
    result = run(class_, "lint", "ps1", "ps2")
    assert (result.exit_code, result.output) == (0, "nothing found\n")


COMMANDS = ("release", "grade", "check", "show", "lint", "doctor", "feedback")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(command: str) -> None:
    result = CliRunner().invoke(main, [command, "--help"])
    assert result.exit_code == 0
    assert len(result.output.splitlines()) >= 6


def test_the_groups_help_shows_a_first_run() -> None:
    output = CliRunner().invoke(main, ["--help"]).output
    assert "headmaster grade 02_attention" in output
    assert all(command in output for command in COMMANDS)


def test_help_is_quick_to_load() -> None:
    import subprocess

    code = (
        "import sys; import headmaster.cli; "
        "heavy = {'nbgrader', 'sqlalchemy', 'numpy', 'jupytext', 'rich', 'nbformat'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
