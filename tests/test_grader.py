"""Every known implementation as a file that `headmaster check` grades, in its two processes.

`test_specs.py` judges them in one process; here the grader has to come to the same verdicts.
"""

import pytest

from headmaster.answers import check_with, find_exercise
from headmaster.pool import pool
from tests.hidden.__main__ import SOLUTIONS, exercises
from tests.hidden.fairness import right_ways

FUNCTIONS = [spec for exercise in exercises() for spec in exercise.functions.values()]


@pytest.fixture(scope="module")
def executor():
    with pool(1) as executor:
        yield executor


@pytest.mark.parametrize("spec", FUNCTIONS, ids=lambda s: f"{s.exercise.topic}.{s.name}")
def test_the_grader_rejects_and_names_what_is_wrong_and_accepts_what_is_right(executor, spec):
    wrong, right = list(spec.misconceptions.values()), right_ways(spec)
    sources = [implementation.source for implementation in wrong + right]
    exercise = find_exercise(spec.exercise.name, SOLUTIONS.parent)
    graded = check_with(executor, exercise, sources, spec.name, seed=1)
    surprises = []
    for implementation, result in zip(wrong + right, graded, strict=True):
        lost = [test for test in result["tests"] if test["verdict"] != "pass"]
        if implementation in right:
            surprises += [(implementation.name, test["id"], test["message"]) for test in lost]
        elif implementation.name not in [test["misconception"] for test in lost]:
            found = [(test["verdict"], test["misconception"], test["message"]) for test in lost]
            surprises.append((implementation.name, found or "passes"))
    assert not surprises
