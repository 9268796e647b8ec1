"""Whether the hidden tests are fair: every wrong way against every right one, with many seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from manyheads.check import contract, report
from tests.hidden.spec import FunctionSpec, Implementation, Verdict


@dataclass(frozen=True)
class Rejection:
    """How a misconception fared: with each seed it has to be rejected and named."""

    misconception: str
    seeds: int
    rejected: int  # seeds with which a hidden test failed
    named: int  # seeds with which a failed test named it
    shown: str = ""  # what the visible checks name, "" where they find nothing wrong


@dataclass(frozen=True)
class Acceptance:
    """How a right implementation fared: with each seed it has to get full marks."""

    style: str
    seeds: int
    accepted: int


def verdicts(spec: FunctionSpec, source: str, seed: int) -> dict[str, Verdict]:
    """The verdict on every idea of a function."""
    function = spec.load(source)
    return {idea: spec.judge(function, idea, seed) for idea in spec.ideas}


def rejection(spec: FunctionSpec, key: str, seeds: Iterable[int]) -> Rejection:
    """Try a misconception with each seed."""
    wrong = spec.misconceptions[key]
    seeds = list(seeds)
    failed = [
        [v for v in verdicts(spec, wrong.source, seed).values() if not v.passed] for seed in seeds
    ]
    return Rejection(
        key,
        len(seeds),
        sum(bool(found) for found in failed),
        sum(key in [v.misconception for v in found] for found in failed),
    )


def acceptance(spec: FunctionSpec, right: Implementation, seeds: Iterable[int]) -> Acceptance:
    """Try a right implementation with each seed."""
    seeds = list(seeds)
    passed = [all(v.passed for v in verdicts(spec, right.source, seed).values()) for seed in seeds]
    return Acceptance(right.name, len(seeds), sum(passed))


def right_ways(spec: FunctionSpec) -> list[Implementation]:
    """The course's answer and the alternatives."""
    answer = Implementation("the course's answer", spec.exercise.text.answers[spec.name])
    return [answer, *spec.alternatives.values()]


def fairness(spec: FunctionSpec, seeds: Iterable[int]) -> dict:
    """Everything about a function, for `build/fairness.json`."""
    misconceptions, styles = [], []
    for seed in seeds:
        misconceptions.append([rejection(spec, key, [seed]) for key in spec.misconceptions])
        styles.append([acceptance(spec, right, [seed]) for right in right_ways(spec)])
        FunctionSpec.trials.cache_clear()  # what one seed needs would fill the memory with twenty
        FunctionSpec._wrong_outcome.cache_clear()
    return {
        "exercise": spec.exercise.name,
        "function": spec.name,
        "misconceptions": [
            {**_sum(parts), "shown": _shown(spec, spec.misconceptions[parts[0].misconception])}
            for parts in zip(*misconceptions, strict=True)
        ],
        "styles": [_sum(parts) for parts in zip(*styles, strict=True)],
    }


def _sum(parts: Sequence[Rejection] | Sequence[Acceptance]) -> dict:
    """The results with single seeds as one: numbers are added up, words are the same in all."""
    all_ = [asdict(part) for part in parts]
    return {
        name: sum(one[name] for one in all_) if isinstance(value, int) else value
        for name, value in all_[0].items()
    }


def counts(result: dict) -> dict:
    """A function's result in short, for the book: how many, and what is not as it should be.

    A wrong way counts as rejected, or named, and a right way as accepted, if it was so with every
    seed. It counts as seen where the visible checks find it too.
    """
    wrong, right = result["misconceptions"], result["styles"]
    return {
        "exercise": result["exercise"],
        "function": result["function"],
        "wrong": len(wrong),
        "rejected": sum(way["rejected"] == way["seeds"] for way in wrong),
        "named": sum(way["named"] == way["seeds"] for way in wrong),
        "seen": sum(bool(way["shown"]) for way in wrong),
        "right": len(right),
        "accepted": sum(way["accepted"] == way["seeds"] for way in right),
        "lapses": [_lapse(way) for way in wrong if way["named"] < way["seeds"]]
        + [_refused(way) for way in right if way["accepted"] < way["seeds"]],
    }


def _lapse(way: dict) -> str:
    done = f"rejected {way['rejected']} and named {way['named']} of {way['seeds']} times"
    return f"{way['misconception']} was {done}"


def _refused(way: dict) -> str:
    return f"{way['style']!r} passed {way['accepted']} of {way['seeds']} times"


def _shown(spec: FunctionSpec, wrong: Implementation) -> str:
    """What a student who runs the visible checks idea by idea is told."""
    visible = contract.load(spec.exercise.name)[spec.name]
    function = spec.load(wrong.source)
    named = []
    for idea in visible.ideas:
        failure = report(visible, function, idea).failure
        if failure is not None:
            named.append(failure.misconception or "")
    if wrong.name in named:
        return wrong.name
    return next(filter(None, named), "")
