"""No attack gains a point, none writes outside, and the next honest submission has full marks."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from .conftest import LIMITS, PATIENT, Range, points
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
    assert not Path("/tmp/headmaster-planted").exists()
    assert points(shooting_range.honest()) == FULL
