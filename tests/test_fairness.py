"""The page on fairness tells the numbers of this course, and `make fairness` can be trusted."""

import json
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.attacks.corpus import ATTACKS
from tests.hidden import measuring
from tests.hidden.__main__ import exercises
from tests.hidden.fairness import counts, right_ways
from tests.hidden.likeness import likeness, renamed

EXERCISES = exercises()
BOOK = json.loads(measuring.BOOK.read_text(encoding="utf-8"))
AGAIN = "run `make fairness`, and commit book/fairness.json"


def test_the_page_knows_every_function_with_all_its_wrong_and_right_implementations():
    told = [(f["exercise"], f["function"], f["wrong"], f["right"]) for f in BOOK["functions"]]
    ours = [
        (exercise.name, spec.name, len(spec.misconceptions), len(right_ways(spec)))
        for exercise in EXERCISES
        for spec in exercise.functions.values()
    ]
    assert told == ours, AGAIN


def test_the_page_knows_every_attack():
    told = {
        group["group"]: sum(count for count in group.values() if isinstance(count, int))
        for group in BOOK["attacks"]["groups"]
    }
    assert told == Counter(attack.group for attack in ATTACKS), AGAIN


def test_what_the_page_tells_is_as_it_should_be():
    assert not [function for function in BOOK["functions"] if function["lapses"]]
    assert not [group for group in BOOK["attacks"]["groups"] if group["succeeded"]]
    assert BOOK["likeness"]["flagged"] == 0


@pytest.fixture
def one_function(monkeypatch, tmp_path):
    """An exercise of one function, and other places for the results."""
    monkeypatch.setattr(measuring, "PARTS", tmp_path / "parts")
    monkeypatch.setattr(measuring, "WHOLE", tmp_path / "fairness.json")
    monkeypatch.setattr(measuring, "BOOK", tmp_path / "book.json")
    exercise = EXERCISES[0]
    parts = {name: getattr(exercise, name) for name in ("name", "topic", "text")}
    return SimpleNamespace(**parts, functions={"linear": exercise.functions["linear"]})


def test_a_result_is_kept_until_something_changes(one_function, monkeypatch):
    assert measuring.measure([one_function], seeds=1, whole=False) == 0
    first = json.loads(measuring.WHOLE.read_text())
    assert [f["function"] for f in first["functions"]] == ["linear"]
    assert not measuring.BOOK.exists(), "a part of the course is not the book's business"

    monkeypatch.setattr(measuring, "fairness", None)  # it can't be measured any more
    assert measuring.measure([one_function], seeds=1, whole=False) == 0
    assert json.loads(measuring.WHOLE.read_text()) == first
    with pytest.raises(TypeError):
        measuring.measure([one_function], seeds=2, whole=False)


def test_a_half_written_part_is_measured_again(one_function):
    measuring.PARTS.mkdir()
    (measuring.PARTS / "01_matrices.linear.json").write_text('{"key": "')
    assert measuring.measure([one_function], seeds=1, whole=False) == 0


def test_what_is_not_as_it_should_be_is_told():
    wrong = {"misconception": "A01-slip", "seeds": 3, "rejected": 3, "named": 2, "shown": ""}
    right = {"style": "loops", "seeds": 3, "accepted": 1}
    short = counts({"exercise": "e", "function": "f", "misconceptions": [wrong], "styles": [right]})
    assert (short["rejected"], short["named"], short["accepted"]) == (1, 0, 0)
    assert short["lapses"] == [
        "A01-slip was rejected 3 and named 2 of 3 times",
        "'loops' passed 1 of 3 times",
    ]


def test_nobody_who_wrote_alone_is_flagged_and_renamed_copies_are_found():
    found = likeness(EXERCISES[3:4])
    assert found["pairs"] > 50 and found["flagged"] == 0
    assert found["found"] > 0.9 * found["copies"] > 15


def test_a_renamed_copy_does_the_same():
    copy = renamed("def f(numbers, last=-1):\n    x = numbers[last]  # one\n    return max(x, 0)\n")
    assert "numbers" not in copy and "one" not in copy
    space = {}
    exec(copy, space)
    assert space["f"]([1, 2, 3]) == 3
