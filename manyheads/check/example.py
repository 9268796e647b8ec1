"""An example: a few lines of code with named inputs, run on anybody's implementation.

The same example runs on the reference, on the student's function and on every known misconception,
so that the three outcomes can be compared like with like.
"""

from __future__ import annotations

import ast
import io
import math
import random
import re
import tracemalloc
import warnings
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Example:
    """One use of a function: `code` with `inputs`, told for the contract sentence `sentence`.

    `code` is one expression, or statements whose last line is one; besides the inputs it may use
    the exercise's functions, `np`, `math`, `random` and `re`.

    raises: the exception that the contract demands, by name ("ValueError").
    expect: the right value, where it isn't what the reference returns (statistics of random draws).
    rtol, atol: tolerances other than the contract's.
    memory: the most bytes that the calls may allocate.
    no_warning: a RuntimeWarning (NumPy's: 0/0, overflow) breaks the contract here.
    once: do not run it a second time (long examples).
    """

    sentence: str
    code: str
    inputs: dict[str, Any] = field(default_factory=dict)
    raises: str | None = None
    expect: Any = None
    rtol: float | None = None
    atol: float | None = None
    memory: float | None = None
    no_warning: bool = False
    once: bool = False


@dataclass(frozen=True)
class Outcome:
    """What running an example gave: a value or an error, and what happened besides."""

    value: Any = None
    error: str | None = None  # the exception's class, by name
    message: str = ""
    again: Any = None  # the value of a second run with the same inputs, where there was one
    changed: tuple[str, ...] = ()  # the inputs that the calls changed
    warned: str = ""
    peak: float | None = None  # bytes
    lines: tuple[str, ...] = ()  # the lines of the student's own code on the way to the error


def run(example: Example, functions: Mapping[str, Any]) -> Outcome:
    """Run the example on copies of its inputs; what the code raises becomes part of the outcome."""
    inputs = {name: _copy(value) for name, value in example.inputs.items()}
    before = {name: _bytes(value) for name, value in inputs.items()}
    meter = _Meter()
    names = dict(functions)
    if example.memory is not None:
        names = {name: meter.wrap(f) if callable(f) else f for name, f in names.items()}
    again = None
    # Nobody loses points for a warning or a line on stderr, except where the contract says so.
    with redirect_stderr(io.StringIO()), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = _evaluate(example.code, names, inputs)
            changed = tuple(n for n, value_ in inputs.items() if _bytes(value_) != before[n])
            if not (example.once or changed or example.memory is not None):
                again = _evaluate(example.code, names, inputs)
        except Exception as error:
            return Outcome(
                error=_error_name(error, example.raises),
                message=str(error),
                lines=_student_lines(error),
            )
    return Outcome(
        value=value,
        again=again,
        changed=changed,
        warned=next((str(w.message) for w in caught if w.category is RuntimeWarning), ""),
        peak=meter.peak if example.memory is not None else None,
    )


def _error_name(error: Exception, wanted: str | None) -> str:
    """The exception's class by name; a class derived from the wanted one is as right as that."""
    names = [kind.__name__ for kind in type(error).__mro__]
    return wanted if wanted in names else names[0]


def _evaluate(code: str, names: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:
    statements, last = _compiled(code)
    space = {"np": np, "math": math, "random": random, "re": re, **names, **inputs}
    exec(statements, space)
    return eval(last, space)


@cache
def _compiled(code: str) -> tuple[CodeType, CodeType]:
    *statements, last = ast.parse(code).body
    return (
        compile(ast.Module(statements, []), "<example>", "exec"),
        compile(ast.Expression(last.value), "<example>", "eval"),
    )


class _Meter:
    """Measures the largest peak of the wrapped functions' calls."""

    def __init__(self) -> None:
        self.peak = 0.0

    def wrap(self, function: Callable) -> Callable:
        def measured(*args: Any, **kwargs: Any) -> Any:
            # A function that lives in another process is measured there.
            elsewhere = getattr(function, "__peak_memory__", None)
            if elsewhere is not None:
                result, peak = elsewhere(*args, **kwargs)
            else:
                result, peak = _peak_here(function, args, kwargs)
            self.peak = max(self.peak, peak)
            return result

        return measured


def _peak_here(function: Callable, args: tuple, kwargs: dict) -> tuple[Any, float]:
    mine = not tracemalloc.is_tracing()
    if mine:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        start = tracemalloc.get_traced_memory()[0]
        result = function(*args, **kwargs)
        return result, float(tracemalloc.get_traced_memory()[1] - start)
    finally:
        if mine:
            tracemalloc.stop()


def _copy(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy(order="K")
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    return value


def _bytes(value: Any) -> Any:
    """A fingerprint in which every change shows, also one from −0.0 to 0.0 or between NaNs."""
    if isinstance(value, np.ndarray):
        return (value.shape, value.dtype.str, value.tobytes())
    if isinstance(value, list | tuple):
        return [_bytes(item) for item in value]
    if isinstance(value, dict):
        return {key: _bytes(item) for key, item in value.items()}
    return repr(value)


def _student_lines(error: BaseException) -> tuple[str, ...]:
    """The traceback's lines in the student's own code: notebook cells and plain files."""
    import linecache

    # A function that lives in another process brings its lines along.
    elsewhere = getattr(error, "__student_lines__", None)
    if elsewhere is not None:
        return tuple(elsewhere)
    ours = __file__.rsplit("check", 1)[0]
    lines = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        text = linecache.getline(code.co_filename, trace.tb_lineno).strip()
        foreign = code.co_filename.startswith((ours, "<example>")) or "site-packages" in (
            code.co_filename
        )
        if text and not foreign:
            lines.append(f"{code.co_name}, line {trace.tb_lineno}: {text}")
        trace = trace.tb_next
    return tuple(lines)
