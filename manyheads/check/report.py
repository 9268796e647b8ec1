"""The report that a student reads: as text in a terminal, as HTML in a notebook."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from manyheads.check.comparison import Difference, compare, numbers, tolerance
from manyheads.check.example import Example, Outcome

_HOLDS, _FAILS = "✓", "✗"


@dataclass(frozen=True)
class Failure:
    """The first example that fails, and what can be said about it."""

    example: Example
    expected: Outcome
    got: Outcome
    difference: Difference
    telling: str = ""
    misconception: str | None = None
    message: str = ""
    cause: str = ""  # another function of the student's that fails its own checks


@dataclass(frozen=True)
class Report:
    """Which sentences of a function's contract hold on the visible examples."""

    function: str
    idea: str | None
    sentences: dict[str, str]
    holds: dict[str, bool]
    failure: Failure | None = None

    @property
    def passed(self) -> bool:
        return self.failure is None

    @property
    def title(self) -> str:
        return self.function + (f", {self.idea}" if self.idea else "")

    @property
    def headline(self) -> str:
        """One line: what a reader of a traceback needs."""
        if self.failure is None:
            return f"{self.title}: every sentence checked here holds."
        if self.failure.difference.kind == "not written":
            return f"{self.function} is not written yet."
        broken = self.failure.example.sentence
        named = f" ({self.failure.misconception})" if self.failure.misconception else ""
        return f"{self.title}: {broken} does not hold: {self.failure.difference.message}{named}."

    def __str__(self) -> str:
        return "\n".join(_text(self))

    def _repr_html_(self) -> str:
        return _html(self)


def marked(report: Report) -> list[tuple[str, str, str]]:
    """(mark, id, sentence) for each sentence that was checked, in the contract's order."""
    return [
        (_HOLDS if report.holds[key] else _FAILS, key, sentence)
        for key, sentence in report.sentences.items()
        if key in report.holds
    ]


# --- text


def _text(report: Report) -> list[str]:
    failure = report.failure
    if failure is not None and failure.difference.kind == "not written":
        return [report.headline]
    lines = [report.title]
    lines += [f"  {mark} {key}  {sentence}" for mark, key, sentence in marked(report)]
    if failure is None:
        return lines
    lines += ["", f"{failure.example.sentence} does not hold. The smallest example that shows it:"]
    for name, value in failure.example.inputs.items():
        lines += _assignment(name, value)
    lines += [f"    {line}" for line in failure.example.code.splitlines()]
    lines += _results_as_text(failure)
    lines += ["", f"{_sentence(failure.difference.message)} {failure.telling}".rstrip()]
    lines += [f"    {line}" for line in failure.got.lines]
    if failure.misconception:
        lines += ["", f"What your numbers show ({failure.misconception}):", f"  {failure.message}"]
    if failure.cause:
        lines += ["", failure.cause]
    return lines


def _assignment(name: str, value: Any) -> list[str]:
    first, *rest = _show(value).splitlines() or [""]
    indent = " " * (len(name) + 7)
    return [f"    {name} = {first}", *(indent + line for line in rest)]


def _results_as_text(failure: Failure) -> list[str]:
    lines = []
    for label, wanted, have in _pairs(failure):
        lines += [f"  expected{label}:", *_indented(wanted), f"  yours{label}:", *_indented(have)]
    return lines


def _indented(value: Any) -> list[str]:
    return [f"    {line}" for line in _show(value).splitlines()]


def _pairs(failure: Failure) -> list[tuple[str, Any, Any]]:
    """(label, expected, yours) for the parts that differ; nothing where there are no two values."""
    if failure.expected.error or failure.got.error or failure.example.raises:
        return []
    wanted, have = failure.expected.value, failure.got.value
    rtol, atol = tolerance(failure.example)
    if failure.difference.kind == "second call":
        have = failure.got.again
    if not (isinstance(wanted, tuple) and isinstance(have, tuple | list)):
        differ = compare(wanted, have, rtol, atol) is not None
        return [("", wanted, have)] if differ else []
    if len(wanted) != len(have):
        return []
    pairs = zip(wanted, have, strict=True)
    return [
        (f" (result {part} of {len(wanted)})", a, b)
        for part, (a, b) in enumerate(pairs, start=1)
        if compare(a, b, rtol, atol) is not None
    ]


def _show(value: Any) -> str:
    if isinstance(value, np.ndarray):
        text = np.array2string(value, precision=4, suppress_small=True, threshold=60, edgeitems=3)
        text = re.sub(r"-0\.(?=\s|\])", " 0.", text)  # what is left of rounding has no sign
        return (
            text if value.dtype.kind != "f" or value.dtype == float else f"{text}  # {value.dtype}"
        )
    text = repr(value)
    return text if len(text) <= 300 else text[:297] + "…"


def _sentence(text: str) -> str:
    text = text[:1].upper() + text[1:]
    return text if text.endswith((".", "?")) else text + "."


# --- HTML (inline styles: a notebook keeps no style sheet; colours are never the only sign)

_BAD = "border:2px solid #c2410c;font-weight:700"
_BOX = "border-inline-start:4px solid {colour};padding:.4em .9em;margin:.6em 0"


def _html(report: Report) -> str:
    failure = report.failure
    colour = "#0f766e" if failure is None else "#c2410c"
    parts = [f"<div class='check-report' style='{_BOX.format(colour=colour)}'>"]
    parts.append(f"<p style='margin:.2em 0'><strong>{escape(report.title)}</strong></p>")
    if failure is not None and failure.difference.kind == "not written":
        return "".join([*parts, f"<p>{escape(report.headline)}</p></div>"])
    items = "".join(
        f"<li><span aria-label='{'holds' if mark == _HOLDS else 'does not hold'}'>{mark}</span> "
        f"<strong>{key}</strong> {_inline(sentence)}</li>"
        for mark, key, sentence in marked(report)
    )
    parts.append(f"<ul style='list-style:none;padding-inline-start:0;margin:.2em 0'>{items}</ul>")
    if failure is not None:
        parts.append(_failure_html(failure))
    return "".join([*parts, "</div>"])


def _failure_html(failure: Failure) -> str:
    example = failure.example
    parts = [
        f"<p><strong>{example.sentence} does not hold.</strong> "
        "The smallest example that shows it:</p>"
    ]
    inputs = [
        line[4:] for name, value in example.inputs.items() for line in _assignment(name, value)
    ]
    parts.append(f"<pre>{escape(chr(10).join([*inputs, example.code]))}</pre>")
    tables = [
        f"<div style='display:inline-block;vertical-align:top;margin-inline-end:1.5em'>"
        f"{_table(f'expected{label}', wanted, None)}</div>"
        f"<div style='display:inline-block;vertical-align:top'>"
        f"{_table(f'yours{label}', have, wanted)}</div>"
        for label, wanted, have in _pairs(failure)
    ]
    parts += [f"<div>{table}</div>" for table in tables]
    parts.append(
        f"<p>{escape(_sentence(failure.difference.message))} {escape(failure.telling)}</p>"
    )
    if failure.got.lines:
        parts.append(f"<pre>{escape(chr(10).join(failure.got.lines))}</pre>")
    if failure.misconception:
        parts.append(
            f"<p><strong>What your numbers show</strong> ({escape(failure.misconception)}): "
            f"{_inline(failure.message)}</p>"
        )
    if failure.cause:
        parts.append(f"<p>{_inline(failure.cause)}</p>")
    return "".join(parts)


def _table(caption: str, value: Any, wanted: Any) -> str:
    """A table of a small array (of a large one, the text); entries that differ are marked."""
    array = numbers(value)
    if array is None or not 1 <= array.ndim <= 2 or array.size > 100:
        return f"<p style='margin:.2em 0'>{escape(caption)}</p><pre>{escape(_show(value))}</pre>"
    rows = np.atleast_2d(array)
    wrong = _differs(rows, wanted)
    body = "".join(
        "<tr>" + "".join(_cell(x, bool(bad)) for x, bad in zip(row, marks, strict=True)) + "</tr>"
        for row, marks in zip(rows, wrong, strict=True)
    )
    return (
        "<table style='border-collapse:collapse;margin:.3em 0'>"
        f"<caption style='text-align:start'>{escape(caption)}</caption>"
        f"<tbody>{body}</tbody></table>"
    )


def _cell(value: Any, wrong: bool) -> str:
    text = str(value) if isinstance(value, np.bool_) else f"{value:.4g}"
    style = f"padding:.15em .6em;text-align:right;{_BAD if wrong else ''}"
    return f"<td style='{style}'>{text}{' ' + _FAILS if wrong else ''}</td>"


def _differs(rows: np.ndarray, wanted: Any) -> np.ndarray:
    if wanted is None:
        return np.zeros(rows.shape, bool)
    right = np.atleast_2d(np.asarray(wanted))
    if right.shape != rows.shape:
        return np.zeros(rows.shape, bool)
    with np.errstate(invalid="ignore"):
        close = np.isclose(rows.astype(float), right.astype(float), rtol=1e-6, atol=1e-8)
    return ~close


def _inline(text: str) -> str:
    """Escaped text in which `code` is marked as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))
