"""The proofs that the hidden tests are fair, function by function and entry by entry."""

import numpy as np
import pytest

from manyheads.check import contract
from tests.hidden.__main__ import VISIBLE, compiled, exercises, texts
from tests.hidden.fairness import acceptance, rejection, right_ways, verdicts

EXERCISES = exercises()
FUNCTIONS = [spec for exercise in EXERCISES for spec in exercise.functions.values()]
WRONG = [(spec, key) for spec in FUNCTIONS for key in spec.misconceptions]
RIGHT = [(spec, right) for spec in FUNCTIONS for right in right_ways(spec)]
SEEDS = (1, 2, 3)


def of(spec):
    return f"{spec.exercise.topic}.{spec.name}"


functions = pytest.mark.parametrize("spec", FUNCTIONS, ids=of)


@pytest.mark.parametrize(("spec", "key"), WRONG, ids=[f"{of(spec)}-{key}" for spec, key in WRONG])
def test_a_misconception_is_rejected_and_named(spec, key):
    result = rejection(spec, key, SEEDS)
    assert result.rejected == result.seeds
    assert result.named == result.seeds


@pytest.mark.parametrize(("spec", "right"), RIGHT, ids=[f"{of(s)}-{r.name}" for s, r in RIGHT])
def test_a_right_implementation_gets_full_marks(spec, right):
    result = acceptance(spec, right, SEEDS)
    assert result.accepted == result.seeds


@pytest.mark.parametrize(("spec", "right"), RIGHT, ids=[f"{of(s)}-{r.name}" for s, r in RIGHT])
def test_a_right_style_does_not_break_the_courses_answers_that_call_it(spec, right):
    """A function that returns lists is right; another one that calls it has to bear it."""
    exercise = spec.exercise
    space = exercise.namespace(**{spec.name: right.source})
    for other in exercise.functions.values():
        if other is not spec and spec.name in exercise.text.answers[other.name]:
            for idea in other.ideas:
                assert other.judge(space[other.name], idea, seed=1).passed, (other.name, idea)


@functions
def test_the_stub_fails_every_test_as_not_written(spec):
    stub = spec.load(spec.exercise.text.stubs[spec.name])
    for idea in spec.ideas:
        verdict = spec.judge(stub, idea, seed=1)
        assert not verdict.passed
        assert verdict.difference == "not written yet"


@functions
def test_a_function_that_returns_its_input_or_nothing_fails_every_value_test(spec):
    for lazy in (
        lambda *a, **k: None,
        lambda *a, **k: np.zeros((1, 1)),
        lambda *a, **k: a[0] if a else 0,
    ):
        assert not all(spec.judge(lazy, idea, seed=1).passed for idea in spec.ideas)


@functions
def test_every_sentence_has_a_witness_and_a_hidden_example(spec):
    seen = {example.sentence for examples in spec.witnesses.values() for example in examples}
    hidden = {
        example.sentence
        for idea in spec.ideas
        for example in spec.examples(idea, 1)[len(spec.witnesses[idea]) :]
    }
    assert seen == set(spec.sentences)
    assert hidden == set(spec.sentences)


@functions
def test_every_idea_has_points_witnesses_and_hidden_examples(spec):
    for idea, points in spec.ideas.items():
        assert points >= 1
        assert spec.witnesses[idea]
        assert spec.generators[idea]


@functions
def test_there_are_four_misconceptions_and_two_alternatives_at_least(spec):
    assert len(spec.misconceptions) >= 4
    assert len(spec.alternatives) >= 2


@functions
def test_fresh_seeds_give_fresh_inputs(spec):
    def hidden(seed):
        return [e.inputs for idea in spec.ideas for e in spec.examples(idea, seed)]

    assert repr(hidden(1)) != repr(hidden(2))
    assert repr(hidden(1)) == repr(hidden(1))


def test_every_exercise_text_has_a_spec():
    assert [exercise.name for exercise in EXERCISES] == texts()


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_every_function_of_an_exercise_has_a_contract_and_a_spec(exercise):
    assert set(exercise.functions) == set(exercise.text.answers) == set(exercise.text.contracts)


@functions
def test_no_two_exercises_ask_for_a_function_of_the_same_name(spec):
    """`check(f)` finds the contract by the function's name."""
    assert [other.exercise for other in FUNCTIONS if other.name == spec.name] == [spec.exercise]


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_an_exercise_is_worth_20_points(exercise):
    from headmaster.authoring import read_text

    notebook = read_text(exercise.text.path)
    points = [cell.metadata.get("nbgrader", {}).get("points", 0) for cell in notebook.cells]
    assert sum(points) == 20


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda e: e.name)
def test_the_visible_checks_are_compiled_from_the_specs(exercise):
    """Numbers may differ in their last digits between processors, everything else may not."""
    path = VISIBLE / f"{exercise.name}.json"
    made = compiled(exercise)
    assert _without_numbers(path.read_text(encoding="utf-8")) == _without_numbers(made), (
        "run `make release`"
    )
    assert set(contract.load(exercise.name)) == set(exercise.functions)


def _without_numbers(text):
    import re

    return re.sub(r"-?\d+\.\d+(e[+-]?\d+)?|\b\d+e[+-]?\d+\b", "#", text)


def test_a_verdict_on_the_answer_names_nothing():
    spec = FUNCTIONS[0]
    found = verdicts(spec, spec.exercise.text.answers[spec.name], seed=5)
    assert all(verdict.passed and not verdict.misconception for verdict in found.values())
