"""Diagnosis: which misconception do these numbers show, and if none, what is most telling?"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from manyheads.check.comparison import Difference, compare, numbers, same, tolerance
from manyheads.check.example import Example, Outcome


def match(
    trials: Sequence[tuple[Example, Outcome, bool]],
    names: Iterable[str],
    wrong: Callable[[str, int], Outcome | None],
    own: int | None = None,
) -> str | None:
    """The misconception that explains the most of the failed trials, or None.

    trials: each example with the student's outcome and whether it failed.
    names: the misconceptions, in order of preference.
    wrong: wrong(name, index) is a misconception's outcome on a trial, None where it is right there.
    own: how many trials are to be explained; the others, behind them, only tell the names apart.

    A misconception is only named when it gives the student's numbers on the first failed trial, and
    never when it fails a trial that the student's function passes. Among several the one that
    explains more trials wins, then the one that speaks against fewer, then the one listed first.
    """
    failed = [index for index, (_, _, bad) in enumerate(trials) if bad]
    if not failed:
        return None
    own = len(trials) if own is None else own
    best, best_score = None, (0, 0)
    for name in names:
        score = _explained(trials, failed, lambda index, name=name: wrong(name, index), own)
        if score > best_score:
            best, best_score = name, score
    return best


def _explained(
    trials: Sequence[tuple[Example, Outcome, bool]],
    failed: Sequence[int],
    wrong: Callable[[int], Outcome | None],
    own: int,
) -> tuple[int, int]:
    """How many failed trials the misconception explains, and (negative) how many it gets wrong.

    Most misconceptions drop out at the first failed trial.
    """

    def agrees(index: int) -> bool:
        example, got, _ = trials[index]
        outcome = wrong(index)
        return outcome is not None and same(example, got, outcome)

    if not agrees(failed[0]):
        return 0, 0
    if any(not bad and wrong(index) is not None for index, (_, _, bad) in enumerate(trials)):
        return 0, 0
    explained = [index for index in failed if agrees(index)]
    against = [index for index in failed if index not in explained and wrong(index) is not None]
    # Errors alone are weak evidence, since many mistakes end in the same exception: then it has to
    # explain all own trials, wherever else the student's function raised something, and its words.
    must = {index for index in failed if index < own or trials[index][1].error}
    example, got, _ = trials[failed[0]]
    if all(trials[index][1].error for index in explained) and (
        against
        or must - set(explained)
        or not (example.raises or _alike(got.message, wrong(failed[0]).message))
    ):
        return 0, 0
    return len(explained), -len(against)


def _alike(one: str, other: str) -> bool:
    """Whether two error messages, as far as they are known, begin alike but for their numbers."""
    words = [re.sub(r"[^a-z ]", "", message.lower()).split()[:4] for message in (one, other)]
    return not all(words) or words[0] == words[1]


def telling(example: Example, expected: Outcome, got: Outcome, difference: Difference) -> str:
    """One sentence on the most telling thing about a wrong result."""
    if difference.kind not in ("value", "nan", "infinite", "shape", "dtype"):
        return ""
    for wanted, have in _parts(expected.value, got.value):
        rtol, atol = tolerance(example)
        if compare(wanted, have, rtol, atol) is None:
            continue
        wanted_array, have_array = numbers(wanted), numbers(have)
        if wanted_array is None or have_array is None:
            return ""
        return _look(wanted_array, have_array, rtol, atol)
    return ""


def _parts(expected: Any, got: Any) -> list[tuple[Any, Any]]:
    """The pairs to look at; of (output, weights) the weights first: they explain the output."""
    if isinstance(expected, tuple) and isinstance(got, tuple | list):
        return list(zip(expected, got, strict=False))[::-1]
    return [(expected, got)]


def _look(wanted: np.ndarray, have: np.ndarray, rtol: float, atol: float) -> str:
    if wanted.shape != have.shape:
        return _look_at_shape(wanted, have)
    if np.isnan(have.astype(float)).any():
        rows = np.isnan(have.astype(float)).reshape(-1, have.shape[-1] if have.ndim else 1)
        return "Whole rows are NaN." if rows.all(-1).any() else "Some entries are NaN."
    if wanted.dtype == bool:
        return _look_at_masks(wanted, have) if have.dtype == bool else ""
    return _look_at_numbers(wanted.astype(float), have.astype(float), rtol, atol)


def _look_at_shape(wanted: np.ndarray, have: np.ndarray) -> str:
    if have.shape == wanted.shape[::-1] or (
        wanted.ndim >= 2 and have.shape == (*wanted.shape[:-2], wanted.shape[-1], wanted.shape[-2])
    ):
        return "Two axes are exchanged."
    if have.size == wanted.size:
        return "The number of entries is right; they are arranged in another shape."
    return ""


def _look_at_masks(wanted: np.ndarray, have: np.ndarray) -> str:
    if wanted.ndim < 2:  # a plain yes or no, not a mask
        return ""
    if (wanted == ~have).all():
        return "Every entry is the opposite: True means that the query may attend to the key."
    extra, lacking = int((have & ~wanted).sum()), int((wanted & ~have).sum())
    return (
        f"{extra} entries are True that should be False, {lacking} are False that should be True."
    )


def _look_at_numbers(wanted: np.ndarray, have: np.ndarray, rtol: float, atol: float) -> str:
    def near(a: np.ndarray, b: np.ndarray) -> bool:
        return compare(a, b, rtol, atol) is None

    if (
        wanted.ndim >= 2
        and wanted.shape[-1] == wanted.shape[-2]
        and near(np.swapaxes(wanted, -1, -2), have)
    ):
        return "Your result is the right one transposed."
    is_weights = wanted.ndim >= 1 and (wanted >= 0).all() and wanted.any()
    is_weights = is_weights and _rows_sum_to_one_or_zero(wanted)
    if is_weights and wanted.shape[-1] > 1:
        return _look_at_weights(wanted, have)
    if near(-wanted, have):
        return "Your result has the opposite sign."
    ratio = _constant_ratio(wanted, have, rtol)
    if ratio is not None and abs(ratio - 1) > 1e-3:
        return f"Your result is {ratio:.4g} times the right one, everywhere."
    if have.any() and near(np.trunc(wanted), have) and not near(wanted, np.trunc(wanted)):
        return "Your numbers are cut to integers."
    shift = have - wanted
    if (
        wanted.size > 2
        and np.isfinite(shift).all()
        and near(np.full_like(shift, shift.flat[0]), shift)
    ):
        return f"Your result differs from the right one by {shift.flat[0]:.4g}, everywhere."
    return ""


def _look_at_weights(wanted: np.ndarray, have: np.ndarray) -> str:
    if (have < 0).any():
        return "Some weights are negative."
    leaks = (wanted == 0) & (have > 1e-12)
    if leaks.any():
        return f"{int(leaks.sum())} pairs that are hidden still get weight."
    sums = have.sum(-1)
    if not np.allclose(sums, wanted.sum(-1), atol=1e-4):
        if have.ndim >= 2 and np.allclose(have.sum(-2), 1, atol=1e-4):
            return "Your columns sum to 1; the rows should."
        worst = sums.flat[np.abs(sums - wanted.sum(-1)).argmax()]
        return (
            f"A row of weights sums to {worst:.4g}; it should sum to 1, or to 0 if it sees nothing."
        )
    peak_wanted, peak_have = wanted.max(-1).mean(), have.max(-1).mean()
    if peak_have > peak_wanted * 1.02:
        return "Your weights are more peaked than they should be."
    if peak_have < peak_wanted * 0.98:
        return "Your weights are flatter than they should be."
    return ""


def _rows_sum_to_one_or_zero(array: np.ndarray) -> bool:
    sums = array.sum(-1)
    return bool((np.isclose(sums, 1, atol=1e-4) | np.isclose(sums, 0, atol=1e-8)).all())


def _constant_ratio(wanted: np.ndarray, have: np.ndarray, rtol: float) -> float | None:
    solid = np.abs(wanted) > 1e-6
    if solid.sum() < 2 or not np.isfinite(have).all():
        return None
    ratios = have[solid] / wanted[solid]
    if np.allclose(ratios, ratios[0], rtol=max(rtol, 1e-6)) and np.allclose(
        have[~solid], 0, atol=1e-5
    ):
        return float(ratios[0])
    return None
