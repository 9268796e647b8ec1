"""Copies are found whatever was renamed in them; what people write by themselves is not flagged."""

from __future__ import annotations

import time

import pytest

from headmaster import similarity
from headmaster.similarity import alike, limit, tokens

ORIGINAL = '''
def running_mean(values, size):
    """The mean of each window."""
    sums, total = [], 0.0
    for place, value in enumerate(values):
        total += value
        if place >= size:
            total -= values[place - size]
        if place >= size - 1:
            sums.append(total / size)
    weights = {key: len(key) for key in sorted(set(map(str, sums)))}
    return sums, max(weights.values(), default=0)
'''
COPY = """
# by me
def running_mean(v: list, n: int) -> tuple:
    out, s = [], 0.0
    for i, x in enumerate(v):
        s += x                       # add the new one
        if i >= n:
            s -= v[(i - n)]
        if i >= n - 1: out.append(s / n)
    w = {k: len(k)
         for k in sorted(set(map(str, out)))}
    return (out, max(w.values(), default=0))
"""
OTHER = """
def running_mean(values, size):
    means = []
    for end in range(size, len(values) + 1):
        window = values[end - size : end]
        means.append(sum(window) / len(window))
    longest = 0
    for mean in means:
        if len(str(mean)) > longest:
            longest = len(str(mean))
    if not means:
        return [], 0
    return means, longest
"""


def class_of(**answers: str) -> dict[str, dict[str, str]]:
    """Return a class in which everybody answers one question."""
    return {student: {"running_mean": source} for student, source in answers.items()}


def test_names_comments_and_layout_make_no_difference() -> None:
    assert tokens(ORIGINAL) == tokens(COPY)


def test_names_of_the_library_make_a_difference() -> None:
    assert tokens("y = np.sort(x)") != tokens("y = np.sum(x)")
    assert tokens("y = a[0]") != tokens("y = a[1]")
    assert (
        tokens("import numpy as xp\ny = xp.sum(x)")[2:] == tokens("import numpy\ny = np.sum(x)")[2:]
    )


def test_a_renamed_copy_is_found() -> None:
    (found,) = alike(class_of(ana=ORIGINAL, bea=OTHER, cyd=COPY))
    assert found.students == ("ana", "cyd")
    assert found.cells == ("running_mean", "running_mean")
    assert found.share == 1.0


def test_a_copy_with_a_part_of_ones_own_is_found() -> None:
    more = COPY + "\n\ndef helper(a, b):\n    return [a] * b\n"
    assert alike(class_of(ana=ORIGINAL, bea=OTHER, cyd=more))


def test_two_ways_of_ones_own_are_not_alike() -> None:
    assert not alike(class_of(ana=ORIGINAL, bea=OTHER))


def test_short_answers_are_never_alike() -> None:
    short = "def double(x):\n    return 2 * x\n"
    assert not alike(class_of(ana=short, bea=short))


def test_what_the_course_wrote_is_not_counted() -> None:
    assert not alike(class_of(ana=ORIGINAL, bea=COPY), ours=[ORIGINAL])


def test_what_many_have_is_not_counted() -> None:
    few = {f"student {i}": ORIGINAL for i in range(limit(10))}
    many = {**few, "one more": COPY}
    rest = {f"other {i}": OTHER.replace("2", str(i)) for i in range(3)}
    assert alike(class_of(**few, **rest))
    assert not [one for one in alike(class_of(**many, **rest)) if "one more" in one.students]


def test_the_limit_grows_with_the_class() -> None:
    assert (limit(2), limit(100), limit(1000)) == (4, 4, 20)


def test_a_cell_that_was_pasted_twice_is_told_once() -> None:
    answers = class_of(ana=ORIGINAL, bea=COPY)
    answers["bea"]["pasted"] = COPY
    assert len(alike(answers)) == 1


@pytest.mark.parametrize(
    "source", ["def f(:\n", "%matplotlib inline\n", "", "\0", "(" * 5000, "x = " + "-" * 9000 + "1"]
)
def test_what_does_not_parse_is_compared_with_nothing(source: str) -> None:
    assert tokens(source) == []
    assert not alike(class_of(ana=source, bea=source))


def test_hostile_repetition_does_not_take_long() -> None:
    flood = "x = 1\n" * 15_000
    cells = {f"own-{i}": f"y = {i} + 1 + 2 + 3 + 4 + 5 + 6 + 7\n" * 20 for i in range(1000)}
    begun = time.monotonic()
    alike({"ana": {"a": flood, **cells}, "bea": {"b": flood, **cells}})
    assert time.monotonic() - begun < 60


def test_the_threshold_lies_between_copies_and_chance() -> None:
    """`make fairness` measures it on the course's right answers; book/fairness.md tells it."""
    assert (similarity.LEAST, similarity.SHARE) == (60, 0.5)
