"""`headmaster check`: answers in plain files, graded as submissions are."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import OneProcess

from headmaster.answers import check, insert_answer
from headmaster.cli import main
from headmaster.course import Course, CourseError
from headmaster.release import AssignmentSpec

RIGHT = "def double(x):\n    return x + x"
SQUARE = "def double(x):\n    return x * x"


def points(result: dict[str, Any]) -> dict[str, float]:
    """Return the points by test."""
    return {test["id"]: test["points"] for test in result["tests"]}


@pytest.fixture
def where(folder: Path, one_process: OneProcess) -> Path:
    """Return the path of an exercise, with an engine in this process."""
    return folder / "source" / "ps1"


def test_functions_that_the_file_does_not_define_keep_the_courses_answers(where: Path) -> None:
    (result,) = check(where, [RIGHT])
    assert points(result) == {"double-values": 2.0, "double-zero": 1.0, "mean-score": 3.0}
    assert (result["exercise"], result["score"], result["max"]) == ("ps1", 6.0, 6.0)


def test_every_file_gets_its_own_result_in_order(where: Path) -> None:
    results = check(where, [RIGHT, SQUARE, RIGHT, "def mean(v):\n    return 0"], jobs=2)
    assert [result["score"] for result in results] == [6.0, 4.0, 6.0, 3.0]


def test_a_result_is_json_of_the_documented_form(where: Path) -> None:
    (result,) = check(where, [SQUARE], seed=7)
    test = result["tests"][0]
    keys = "id function points max verdict reason misconception message seed".split()
    assert list(test) == keys
    assert (test["verdict"], test["reason"]) == ("fail", "wrong-answer")
    assert (test["misconception"], test["seed"]) == ("double-is-square", 7)
    json.dumps(result)


def test_a_function_limits_the_tests(where: Path) -> None:
    (result,) = check(where, [RIGHT], function="double")
    assert list(points(result)) == ["double-values", "double-zero"]
    assert result["max"] == 3.0


def test_an_unknown_function_gets_the_list_of_those_there_are(where: Path) -> None:
    with pytest.raises(CourseError, match=r"no function 'treble'; there are: double, mean"):
        check(where, [RIGHT], function="treble")


NOTHING_ASKED_FOR = {
    "a syntax error": "def double(x:\n    return 2 * x",
    "no definition": "x = 1",
    "another name": "def treble(x):\n    return 3 * x",
    "an empty file": "",
    "not even text": "\x00\x01\x02",
    "an error on the way": "1 / 0\ndef double(x):\n    return 2 * x",
}


@pytest.mark.parametrize("what", NOTHING_ASKED_FOR)
def test_the_courses_answer_never_stands_in_for_one_that_is_missing(what: str, where: Path) -> None:
    (result,) = check(where, [NOTHING_ASKED_FOR[what]], function="double")
    assert result["score"] == 0.0
    assert {test["verdict"] for test in result["tests"]} == {"error"}


def test_a_file_that_does_not_compile_says_why(where: Path) -> None:
    (result,) = check(where, ["def double(x:\n    return 2 * x"], function="double")
    assert result["tests"][0]["reason"] == "cell-failed"
    assert "SyntaxError" in result["tests"][0]["message"]


def test_helpers_imports_and_assignments_of_the_file_are_kept(where: Path) -> None:
    answer = "import operator as op\nTWO = 2\ndef times(a, b):\n    return op.mul(a, b)\n"
    (result,) = check(where, [f"{answer}double = lambda x: times(TWO, x)"])
    assert result["score"] == 6.0


def test_a_file_may_use_the_courses_other_functions(where: Path) -> None:
    (result,) = check(where, ["def mean(v):\n    return double(sum(v)) / double(len(v))"])
    assert result["score"] == 6.0
    (result,) = check(where, ["start = mean([1, 3])\ndef double(x):\n    return start * x"])
    assert result["score"] == 3.0, "mean stands below double: it is not there yet"


def test_only_the_replaced_definitions_of_a_cell_go(ps1: AssignmentSpec) -> None:
    assembly = insert_answer(ps1.notebooks[0], RIGHT)
    sources = {cell.id: cell.source for cell in assembly.cells}
    assert "def double" not in sources["double"]
    assert "math.fsum" in sources["mean"]


def test_data_files_of_the_exercise_lie_beside_the_answer(folder: Path, one_process: Any) -> None:
    answer = "def count(t):\n    return len((t or open('words.txt').read()).split())"
    (result,) = check(folder / "source" / "ps2" / "words.ipynb", [answer], function="count")
    assert points(result)["count-file"] == 1.0


# --- naming an exercise --------------------------------------------------------------------------


def test_an_exercise_is_found_by_name_folder_or_notebook(
    folder: Path, one_process: OneProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder / "source")
    for name in ("ps1", "ps1/numbers", folder / "source/ps1", folder / "source/ps1/numbers.md"):
        assert check(name, [RIGHT])[0]["score"] == 6.0


WRONG_NAMES = {
    "ps7": r"no assignment 'ps7'.*there are: ps1, ps2",
    "ps2": "several notebooks; name one as ps2/NOTEBOOK: letters, words",
    "ps2/songs": r"no notebook 'songs'; there are: letters, words",
    ".": "is a whole course; name one of: ps1, ps2",
}


@pytest.mark.parametrize("name", WRONG_NAMES)
def test_a_wrong_name_gets_what_there_is(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(CourseError, match=WRONG_NAMES[name]):
        check(name, [RIGHT])


def test_a_folder_outside_any_course_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CourseError, match=r"no nbgrader_config\.py"):
        check("ps1", [RIGHT])


# --- the command ---------------------------------------------------------------------------------


def run(*arguments: object) -> Any:
    """Run `headmaster check`."""
    return CliRunner().invoke(main, ["check", *map(str, arguments)])


def test_the_command_prints_one_object_per_file(where: Path, tmp_path: Path) -> None:
    files = []
    for name, source in (("right.py", RIGHT), ("broken.py", "def double(:"), ("sq.py", SQUARE)):
        (tmp_path / name).write_text(source)
        files.append(tmp_path / name)
    result = run(where, *files, "--json")
    assert result.exit_code == 0
    listed = json.loads(result.stdout)
    assert [item["file"] for item in listed] == [str(file) for file in files]
    assert [item["score"] for item in listed] == [6.0, 3.0, 4.0]


def test_the_command_reads_any_encoding(where: Path, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(f"# señor\n{RIGHT}".encode("utf-16"))
    assert "6 of 6" in run(where, tmp_path / "a.py").output


def test_a_missing_file_ends_with_a_sentence(where: Path, tmp_path: Path) -> None:
    result = run(where, tmp_path / "nothing.py")
    assert result.exit_code == 2
    assert "there is no file" in result.output and "nothing.py" in result.output


def test_trouble_of_the_machines_own_is_told_by_the_exit_status(
    where: Path, tmp_path: Path, one_process: OneProcess
) -> None:
    def fails(_: Any) -> None:
        raise OSError("no processes left")

    one_process.before = fails
    (tmp_path / "a.py").write_text(RIGHT)
    result = run(where, tmp_path / "a.py", "--json")
    assert result.exit_code == 1
    test = json.loads(result.stdout)[0]["tests"][0]
    assert (test["verdict"], test["reason"], test["points"]) == ("not graded", "trouble", None)


def test_the_real_engine_agrees(folder: Path) -> None:
    results = check(
        folder / "source" / "ps1", [RIGHT, SQUARE, "def double(x:", "import os\nos._exit(1)"]
    )
    assert [result["score"] for result in results] == [6.0, 4.0, 3.0, 0.0]
    assert Course.open(folder).assignments() == ["ps1", "ps2"]
