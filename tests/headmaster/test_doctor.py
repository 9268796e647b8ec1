"""The doctor says what holds here, what is missing, and how to get it."""

from __future__ import annotations

import pytest

from headmaster import doctor
from headmaster.job import Outcome

NAMES = ["rlimits", "landlock", "seccomp", "own uid", "namespaces", "bubblewrap", "gauge"]


def test_a_real_job_tells_which_layers_hold() -> None:
    outcome = doctor.probe()
    assert outcome.trouble is None
    found = doctor.layers(outcome)
    assert [layer.name for layer in found] == NAMES
    for layer in found[:-1]:
        assert layer.holds == bool(outcome.confinement[layer.name])


def test_what_is_missing_comes_with_advice() -> None:
    nothing = doctor.layers(Outcome((), {}, 0))
    missing = [layer for layer in nothing if not layer.holds]
    assert {layer.name for layer in missing} >= set(NAMES) - {"gauge"}
    for layer in missing:
        assert layer.advice
        assert str(layer).startswith("MISSING") and layer.advice in str(layer)


def test_a_machine_that_confines_nothing_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "probe", lambda: Outcome((), {"rlimits": True}, 0))
    assert doctor.main() == 1
    assert "marked unconfined" in capsys.readouterr().err


def test_a_machine_on_which_nothing_runs_is_told_why(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "probe", lambda: Outcome((), {}, 0, "no memory"))
    assert doctor.main() == 1
    assert "no memory" in capsys.readouterr().err
