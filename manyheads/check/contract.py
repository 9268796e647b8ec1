"""What a student's checks know of a function: its contract, its examples, its misconceptions.

A `Function` holds no implementation: right and wrong outcomes are data, compiled from the hidden
specs into `visible/NN_topic.json` by `make release`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from manyheads.check.example import Example, Outcome


@dataclass(frozen=True)
class Witness:
    """A visible example with its right outcome and those of the misconceptions that it exposes."""

    example: Example
    expected: Outcome
    wrong: Mapping[str, Outcome]


@dataclass(frozen=True)
class Function:
    """A function of the course as its students' checks see it."""

    name: str
    exercise: str
    sentences: dict[str, str]  # C1 … Cn
    ideas: dict[str, tuple[Witness, ...]]
    misconceptions: dict[str, str]  # id -> message
    uses: tuple[str, ...] = ()  # other functions that an answer may call


class _Later(Mapping[str, Any]):
    """Entries of a compiled file by name, each decoded when it is first asked for."""

    def __init__(self, entries: Mapping[str, Any], decode: Callable[[str], Any]) -> None:
        self._entries, self._decode = entries, cache(decode)

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            raise KeyError(name)
        return self._decode(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)


@cache
def functions() -> Mapping[str, Function]:
    """Every function of the course by name."""
    home = {name: exercise for exercise in exercises() for name in load(exercise)}
    return _Later(home, lambda name: load(home[name])[name])


def exercises() -> list[str]:
    """The exercises that checks exist for, in order."""
    folder = resources.files("manyheads.check") / "visible"
    return sorted(
        f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json")
    )


@cache
def load(exercise: str) -> Mapping[str, Function]:
    """An exercise's functions, from its compiled file."""
    path = resources.files("manyheads.check") / "visible" / f"{exercise}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    return _Later(data, lambda name: _function(name, exercise, data[name]))


def dump(functions_: Iterable[Function]) -> str:
    """The text of an exercise's compiled file: a line for each example, for readable diffs."""
    entries = [f"{_line(f.name)}: {{\n{_entry(f)}\n}}" for f in functions_]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _entry(function: Function) -> str:
    ideas = ",\n".join(
        f"  {_line(idea)}: [\n" + ",\n".join(_line(_encode_witness(w)) for w in witnesses) + "\n  ]"
        for idea, witnesses in function.ideas.items()
    )
    return (
        f' "sentences": {_lines(function.sentences)},\n "uses": {_line(list(function.uses))},\n'
        f' "misconceptions": {_lines(function.misconceptions)},\n "ideas": {{\n{ideas}\n }}'
    )


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(texts: dict[str, str]) -> str:
    return (
        "{\n" + ",\n".join(f"  {_line(key)}: {_line(text)}" for key, text in texts.items()) + "\n }"
    )


def _function(name: str, exercise: str, entry: dict[str, Any]) -> Function:
    ideas = {
        idea: tuple(
            Witness(
                _example(item["example"]),
                _outcome(item["expected"]),
                _outcomes(item["wrong"]),
            )
            for item in items
        )
        for idea, items in entry["ideas"].items()
    }
    return Function(
        name, exercise, entry["sentences"], ideas, entry["misconceptions"], tuple(entry["uses"])
    )


def _encode_witness(witness: Witness) -> dict[str, Any]:
    example = witness.example
    return {
        "example": _set_fields(example),
        "expected": _encode_outcome(example, witness.expected),
        "wrong": {key: _encode_outcome(example, value) for key, value in witness.wrong.items()},
    }


def _encode_outcome(example: Example, outcome: Outcome) -> dict[str, Any]:
    """What tells outcomes apart; a second result only where it is another one."""
    data = _set_fields(outcome)
    data.pop("message", None)
    if data.pop("peak", None) and outcome.peak > example.memory:
        data["peak"] = 2 * example.memory  # too much: how much differs from machine to machine
    if example.raises:  # it matters that something was returned, not what
        data.pop("value", None)
    if example.raises or data.get("again") == data.get("value"):
        data.pop("again", None)
    return data


def _set_fields(item: Example | Outcome) -> dict[str, Any]:
    """The fields that differ from their defaults, encoded."""
    empty = Example("", "") if isinstance(item, Example) else Outcome()
    return {
        field.name: _encode(getattr(item, field.name))
        for field in fields(item)
        if field.name != "lines"
        and not _is_default(getattr(item, field.name), getattr(empty, field.name))
    }


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and not value and not default)


def _example(data: dict[str, Any]) -> Example:
    return Example(**{"sentence": "", **{key: _decode(value) for key, value in data.items()}})


def _outcomes(entries: dict[str, Any]) -> Mapping[str, Outcome]:
    return _Later(entries, lambda key: _outcome(entries[key]))


def _outcome(data: dict[str, Any]) -> Outcome:
    return Outcome(**{key: _decode(value) for key, value in data.items()})


def _encode(value: Any) -> Any:
    """Plain JSON; arrays, tuples and dicts under a key of their own."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        data: dict[str, Any] = {"array": _rounded(value).tolist()}
        if value.dtype != float:
            data["dtype"] = str(value.dtype)
        if not value.size:  # only then the nested lists do not tell it
            data["shape"] = list(value.shape)
        return data
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": {key: _encode(item) for key, item in value.items()}}
    if isinstance(value, float):
        return _short(value)
    if value is None or isinstance(value, str | int):
        return value
    return f"<{type(value).__name__}>"  # a misconception's odd result: like nothing else


def _rounded(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    return np.array([_short(x) for x in array.ravel()]).reshape(array.shape)


def _short(x: float) -> float:
    """Nine digits: more than any comparison looks at; the last bits differ between processors."""
    return float(f"{x:.9g}")


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        if "array" in value:
            array = np.array(value["array"], dtype=value.get("dtype", float))
            return array.reshape(value.get("shape", array.shape))
        if "tuple" in value:
            return tuple(_decode(item) for item in value["tuple"])
        return {key: _decode(item) for key, item in value["dict"].items()}
    return value
