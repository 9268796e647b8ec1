"""Comparing what a function returned with what it should have returned.

Order matters: the kind of thing first, then its shape, then whether it is finite, and only then the
numbers. `max(error, nan)` never decides, and nothing passes because nothing was compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from manyheads.check.example import Example, Outcome

FLOAT64_TOLERANCE = (1e-6, 1e-8)
FLOAT32_TOLERANCE = (1e-4, 1e-5)


@dataclass(frozen=True)
class Difference:
    """What is wrong with an outcome, in words; `kind` is stable for programs."""

    kind: str
    message: str


def judge(example: Example, expected: Outcome, got: Outcome) -> Difference | None:
    """The first thing wrong with `got`, or None where it is right."""
    if example.raises:
        return _judge_error(example, got)
    if got.error:
        return _unexpected_error(got)
    changed = [name for name in got.changed if name not in expected.changed]
    if changed:
        names = ", ".join(changed)
        return Difference("inputs changed", f"your function changed its input {names}")
    rtol, atol = tolerance(example)
    difference = compare(expected.value, got.value, rtol, atol)
    if difference is None and got.again is not None:
        second = compare(expected.value, got.again, rtol, atol)
        if second is not None:
            difference = Difference(
                "second call", "the second call with the same inputs gives something else"
            )
    if difference is not None:
        return difference
    if example.no_warning and got.warned:
        return Difference("warning", f"your function gives a warning: {got.warned}")
    if _is_large(example, got):
        return Difference(
            "memory",
            f"your function needs {_bytes(got.peak)} at its peak; the contract allows "
            f"{_bytes(example.memory)} here, so somewhere a full table of queries × keys is built",
        )
    return None


def same(example: Example, one: Outcome, other: Outcome) -> bool:
    """Whether two outcomes are alike: does the student's agree with a misconception's?"""
    if one.error or other.error or example.raises:
        return one.error == other.error
    if one.changed != other.changed:
        return False
    if _is_large(example, one) != _is_large(example, other):
        return False
    rtol, atol = tolerance(example)
    if compare(other.value, one.value, rtol, atol, nan_is_right=True) is not None:
        return False
    return (
        one.again is None
        or other.again is None
        or compare(other.again, one.again, rtol, atol, nan_is_right=True) is None
    )


def _is_large(example: Example, outcome: Outcome) -> bool:
    """Whether the calls needed more memory than the example allows."""
    limit, peak = example.memory, outcome.peak
    return limit is not None and peak is not None and peak > limit


def tolerance(example: Example) -> tuple[float, float]:
    """The example's (rtol, atol): its own, else the contract's for the inputs' precision."""
    single = any(_is_single(value) for value in example.inputs.values())
    rtol, atol = FLOAT32_TOLERANCE if single else FLOAT64_TOLERANCE
    return (
        rtol if example.rtol is None else example.rtol,
        atol if example.atol is None else example.atol,
    )


def compare(
    expected: Any, got: Any, rtol: float, atol: float, nan_is_right: bool = False
) -> Difference | None:
    """The first difference between two values, or None.

    A tuple expects a tuple or list of as many; anything else that holds numbers may come as
    anything that NumPy reads as numbers. Where booleans are expected only booleans are right.
    """
    if isinstance(expected, tuple):
        return _compare_tuples(expected, got, rtol, atol, nan_is_right)
    if isinstance(expected, str) or (
        isinstance(expected, list) and expected and isinstance(expected[0], str)
    ):
        return _compare_texts(expected, got)
    if expected is None:
        return None if got is None else Difference("type", f"expected None, got {_kind(got)}")
    wanted = numbers(expected)
    if wanted is None:  # nothing to compare with: only a misconception's result is ever like that
        return Difference("type", f"expected {_kind(expected)}, got {_kind(got)}")
    return _compare_numbers(wanted, got, rtol, atol, nan_is_right)


def numbers(value: Any) -> np.ndarray | None:
    """`value` as a plain array of numbers or booleans, or None where it isn't one."""
    try:
        array = np.array(value, subok=False)
    except (ValueError, TypeError, RuntimeError):
        return None
    return array if array.dtype.kind in "biufc" else None


def _judge_error(example: Example, got: Outcome) -> Difference | None:
    if got.error == example.raises:
        return None
    if got.error:
        return _unexpected_error(got, f"; a {example.raises} should tell the caller what is wrong")
    return Difference(
        "no error",
        f"a {example.raises} should be raised here, but your function returned {_kind(got.value)}",
    )


def _unexpected_error(got: Outcome, after: str = "") -> Difference:
    if got.error == "NotImplementedError":
        return Difference("not written", "not written yet")
    return Difference("error", f"your function raised {got.error}: {got.message}{after}")


def _compare_tuples(
    expected: tuple, got: Any, rtol: float, atol: float, nan_is_right: bool
) -> Difference | None:
    if not isinstance(got, tuple | list):
        return Difference("type", f"expected a tuple of {len(expected)} results, got {_kind(got)}")
    if len(got) != len(expected):
        return Difference("type", f"expected {len(expected)} results, got {len(got)}")
    for part, (wanted, have) in enumerate(zip(expected, got, strict=True), start=1):
        difference = compare(wanted, have, rtol, atol, nan_is_right)
        if difference is not None:
            where = f"result {part} of {len(expected)}: "
            return Difference(difference.kind, where + difference.message)
    return None


def _compare_texts(expected: str | list[str], got: Any) -> Difference | None:
    if isinstance(got, np.ndarray):
        got = got.tolist()
    if isinstance(expected, list) and isinstance(got, list | tuple):
        if [str(item) for item in got] == expected:
            return None
    elif isinstance(got, str) and str(got) == expected:
        return None
    return Difference("value", f"expected {expected!r}, got {_short(got)}")


def _compare_numbers(
    expected: np.ndarray, got: Any, rtol: float, atol: float, nan_is_right: bool
) -> Difference | None:
    if got is None:
        return Difference("type", "your function returned None: is a `return` missing?")
    array = numbers(got)
    if array is None:
        return Difference("type", f"expected numbers, got {_kind(got)}")
    if array.shape != expected.shape:
        return Difference("shape", f"the shape should be {expected.shape}, yours is {array.shape}")
    if (expected.dtype == bool) != (array.dtype == bool) and array.size:
        wanted = "True and False" if expected.dtype == bool else "numbers"
        return Difference("dtype", f"expected {wanted}, yours has the dtype {array.dtype}")
    if array.dtype.kind == "c":
        return Difference("dtype", "expected real numbers, yours are complex")
    return _compare_entries(expected, array, rtol, atol, nan_is_right)


def _compare_entries(
    expected: np.ndarray, got: np.ndarray, rtol: float, atol: float, nan_is_right: bool
) -> Difference | None:
    if expected.dtype == bool:
        wrong = expected != got
        if wrong.any() and wrong.size == 1:  # a question about the answer, not a number in it
            return Difference("value", f"this should be {expected.item()}, and is {got.item()}")
        if wrong.any():
            return Difference("value", _count(wrong))
        return None
    expected, got = expected.astype(float), got.astype(float)
    missing = np.isnan(got) & ~np.isnan(expected)
    if missing.any():
        return Difference("nan", f"{int(missing.sum())} of {got.size} entries are NaN")
    with np.errstate(invalid="ignore", over="ignore"):
        close = np.abs(got - expected) <= atol + rtol * np.abs(expected)
    close = np.where(np.isfinite(expected) & np.isfinite(got), close, expected == got)
    if nan_is_right:
        close |= np.isnan(expected) & np.isnan(got)
    if not close.all():
        infinite = np.isinf(got) & ~np.isinf(expected)
        if infinite.any():
            return Difference(
                "infinite", f"{int(infinite.sum())} of {got.size} entries are infinite"
            )
        return Difference("value", _count(~close))
    return None


def _count(wrong: np.ndarray) -> str:
    if wrong.size == 1:
        return "the number is not the right one"
    return f"{int(wrong.sum())} of {wrong.size} entries differ"


def _is_single(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype in (np.float32, np.float16)
    if isinstance(value, list | tuple):
        return any(_is_single(item) for item in value)
    if isinstance(value, dict):
        return any(_is_single(item) for item in value.values())
    return False


def _kind(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"{type(value).__name__} {_short(value)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _bytes(count: float) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"
