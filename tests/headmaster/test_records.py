"""Every result is a record: a verdict, a reason code of the one table, a message, a seed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import headmaster
from headmaster.grading import grade, refused
from headmaster.job import CellResult, Outcome
from headmaster.matching import Assembly, PlacedCell
from headmaster.records import REASONS, NotebookResult, Record, Refused, Result
from headmaster.release import NotebookSpec, SpecCell

TEST = SpecCell("f-values", "code", "test", "f()\n# hidden", "f()", 3.0, function="f")
TEXT = SpecCell("why", "markdown", "manual", "so", "YOUR ANSWER HERE", 2.0)
SPEC = NotebookSpec("nb", (TEST, TEXT), {})


def record_of(result: CellResult | None, answer: str = "def f(): ...", **outcome: Any) -> Record:
    """Return the record of the test for what happened in its cell."""
    student = PlacedCell("a", "code", answer, kind="student")
    assembly = Assembly((student, PlacedCell("f-values", "code", "f()", TEST, "test")), (), ())
    results = (outcome.pop("first", CellResult("a", "ok")), *([result] if result else []))
    return grade(SPEC, assembly, Outcome(results, {}, 42, **outcome)).records[0]


def failed(ename: str, evalue: str = "", **more: Any) -> CellResult:
    """Return a test cell that raised."""
    return CellResult("f-values", "error", ename=ename, evalue=evalue, **more)


def killed(evalue: str, status: str = "killed") -> CellResult:
    """Return a test cell in which S ended."""
    return CellResult("f-values", status, ename="StudentStopped", evalue=evalue)


OK = CellResult("f-values", "ok")
CASES: list[tuple[CellResult, str, str, float | None]] = [
    (OK, "pass", "passed", 3.0),
    (CellResult("f-values", "ok", value=3.0, has_value=True), "pass", "passed", 3.0),
    (CellResult("f-values", "ok", value=1.5, has_value=True), "fail", "partial", 1.5),
    (CellResult("f-values", "ok", value=0.0, has_value=True), "fail", "partial", 0.0),
    (CellResult("f-values", "ok", value=9.0, has_value=True), "error", "bad-score", 0.0),
    (failed("AssertionError"), "fail", "wrong-answer", 0.0),
    (failed("Odd", record={"message": "no"}), "fail", "wrong-answer", 0.0),
    (failed("NotImplementedError"), "error", "not-implemented", 0.0),
    (failed("ZeroDivisionError"), "error", "raised", 0.0),
    (failed("MemoryError"), "error", "memory-limit", 0.0),
    (killed("The student's process took too long."), "error", "time-limit", 0.0),
    (killed("… used more than 30 seconds of processor time."), "error", "time-limit", 0.0),
    (killed("… wrote more than 256 MB to disk."), "error", "disk-limit", 0.0),
    (killed("… ended (a crash, os._exit)."), "error", "crashed", 0.0),
    (killed("… had ended too often before it.", "not run"), "error", "not-run", 0.0),
]


@pytest.mark.parametrize("result, verdict, reason, points", CASES)
def test_what_happened_gets_its_reason(
    result: CellResult, verdict: str, reason: str, points: float | None
) -> None:
    record = record_of(result)
    assert (record.verdict, record.reason, record.points) == (verdict, reason, points)
    assert record.message and record.told and record.seed == 42 and record.max == 3.0


def test_no_result_is_the_machines_trouble_and_never_a_number() -> None:
    for record in (record_of(None), record_of(OK, trouble="no memory for the zygote")):
        assert (record.verdict, record.reason, record.points) == ("not graded", "trouble", None)
    assert "no memory" in record.message and "no memory" not in record.told


def test_a_name_that_no_cell_defines_is_a_missing_answer() -> None:
    record = record_of(failed("NameError", "name 'f' is not defined"), answer="x = 1")
    assert record.reason == "no-answer"


def test_a_broken_answer_cell_is_named_as_the_cause() -> None:
    broken = CellResult("a", "error", ename="SyntaxError", evalue="invalid syntax (line 1)")
    record = record_of(failed("NameError"), answer="def f(: ...", first=broken)
    assert record.reason == "cell-failed"
    assert record.told == "The cell a did not run: SyntaxError: invalid syntax (line 1)"


def test_a_tests_record_is_kept() -> None:
    said = {"sentence": "C1: so it is.", "misconception": "upside-down", "message": "Turn it."}
    record = record_of(failed("CheckFailed", "C1 …", record=said))
    assert (record.sentence, record.misconception) == ("C1: so it is.", "upside-down")
    assert record.told == record.message == "Turn it."


def test_a_hidden_assertion_is_told_to_the_instructor_only() -> None:
    record = record_of(failed("AssertionError", "expected 0.25"))
    assert "0.25" in record.message and "0.25" not in record.told


def test_a_test_that_cannot_import_its_own_module_costs_nobody_points() -> None:
    source = "from tests.hidden.f import grade\ngrade(f)"
    test = SpecCell("f-values", "code", "test", source, "", 3.0, function="f")
    missing = failed("ModuleNotFoundError", "No module named 'tests'")
    outcome = Outcome((missing,), {}, 1)
    (record,) = grade(NotebookSpec("nb", (test,), {}), Assembly((), (), ()), outcome).records
    assert (record.verdict, record.reason, record.points) == ("not graded", "test-broken", None)


def test_a_module_that_the_students_code_lacks_costs_its_points() -> None:
    record = record_of(failed("ModuleNotFoundError", "No module named 'tensorflow'"))
    assert (record.verdict, record.reason) == ("error", "raised")


def test_messages_cannot_move_the_terminals_cursor() -> None:
    record = record_of(failed("ValueError", "\x1b[2J\x1b]0;title\x07 left\u202eright\rback"))
    assert record.message == "ValueError: 0;title leftrightback"


def test_a_text_waits_for_a_person_and_an_empty_one_gets_nothing() -> None:
    def text(unanswered: tuple[str, ...]) -> Record:
        return grade(SPEC, Assembly((), unanswered, ()), Outcome((OK,), {}, 1)).records[1]

    assert (text(()).verdict, text(()).reason, text(()).points) == ("not graded", "manual", None)
    assert (text(("why",)).reason, text(("why",)).points) == ("no-answer", 0.0)


def test_a_refusal_is_a_record_for_every_graded_cell() -> None:
    result = refused(SPEC, Refused("link", "It is a link."))
    assert [r.id for r in result.records] == ["f-values", "why"]
    assert {(r.verdict, r.reason, r.points) for r in result.records} == {
        ("not graded", "link", None)
    }
    assert result.refusal is result.records[0]


def test_a_result_survives_json() -> None:
    notebook = NotebookResult("nb", [record_of(OK)], notes=["x"], confinement={"landlock": "ABI 7"})
    result = Result("ps", "ana", [notebook], "f" * 64)
    data = result.to_dict()
    data["a_later_version"] = "added this"
    data["notebooks"][0]["records"][0]["and_this"] = 1
    assert Result.from_dict(data) == result


def test_every_reason_in_the_code_stands_in_the_table_and_the_other_way_round() -> None:
    sources = {p.name: p.read_text() for p in Path(headmaster.__file__).parent.glob("*.py")}
    used = re.findall(r"Refused\(\s*\"([a-z-]+)\"", "\n".join(sources.values()))
    others = "\n".join(text for name, text in sources.items() if name != "records.py")
    assert set(used) <= set(REASONS)
    assert [code for code in REASONS if f'"{code}"' not in others] == []


def test_every_reason_is_a_sentence() -> None:
    assert all(text[0].isupper() and text.endswith(".") for text in REASONS.values())
