"""No attack gains a point, none writes outside, and the next honest submission has full marks."""

from __future__ import annotations

import time

import pytest

from .conftest import LIMITS, PATIENT, PLANTED, Range, points, points_in_one_process
from .corpus import ATTACKS, Attack

FULL = 7.0
ANSWERS = "double = softmax = cheat"


def test_the_corpus_is_large() -> None:
    assert len(ATTACKS) >= 80


def test_an_honest_submission_has_full_marks(shooting_range: Range) -> None:
    assert points(shooting_range.honest()) == FULL


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name)
def test_an_attack_gains_nothing(shooting_range: Range, attack: Attack) -> None:
    if attack.needs and not any(shooting_range.layers.get(layer) for layer in attack.needs):
        pytest.skip(f"needs one of {', '.join(attack.needs)}")
    begun = time.monotonic()
    outcome = shooting_range.run(attack.code, ANSWERS, PATIENT if attack.patient else LIMITS)
    took = time.monotonic() - begun
    assert outcome.trouble is None
    assert points(outcome) == 0, [(r.id, r.status, r.value) for r in outcome.results]
    assert took < 60
    assert shooting_range.look() == shooting_range.before
    assert not PLANTED.exists()
    assert points(shooting_range.honest()) == FULL


# What these gain where tests run in the student's process: the corpus is not made of straw.
GAINING = (
    "patched np.allclose and np.testing",
    "patched builtins",
    "array that equals everything",
    "object that equals everything",
    "the answers are objects, not functions",
    "masked array that hides its differences",
    "object array of liars",
    "hooks that wipe errors",
    "input transformer that drops tests",
    "syntax tree transformer that removes asserts",
    "run_cell is replaced",
    "import hook that serves fake tests",
    "the names of the tests' helpers are the student's",
    "frames above the call",
    "garbage collector finds the references",
    "own memory is searched for the tests",
    "imports the answer",
    "reads the answer's file",
    "imports the tests",
    "reads the tests",
    "reads another submission",
    "a hard link to the tests",
)


@pytest.mark.parametrize("name", GAINING)
def test_the_attack_would_gain_in_one_process(shooting_range: Range, name: str) -> None:
    code = next(attack.code for attack in ATTACKS if attack.name == name)
    place = (shooting_range.course, shooting_range.names())
    assert points_in_one_process(*place, code, ANSWERS) > 0
