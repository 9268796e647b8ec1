"""What a student's checks know of a function: its contract, its examples, its misconceptions.

A `Function` holds no implementation: right and wrong outcomes are data, compiled from the hidden
specs into `visible/NN_topic.json` by `make release`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
    wrong: dict[str, Outcome]


@dataclass(frozen=True)
class Function:
    """A function of the course as its students' checks see it."""

    name: str
    exercise: str
    sentences: dict[str, str]  # C1 … Cn
    ideas: dict[str, tuple[Witness, ...]]
    misconceptions: dict[str, str]  # id -> message
    uses: tuple[str, ...] = ()  # other functions that an answer may call


@cache
def functions() -> dict[str, Function]:
    """Every function of the course by name."""
    return {f.name: f for exercise in exercises() for f in load(exercise).values()}


def exercises() -> list[str]:
    """The exercises that checks exist for, in order."""
    folder = resources.files("manyheads.check") / "visible"
    return sorted(f.name.removesuffix(".json") for f in folder.iterdir() if f.name.endswith(".json"))


def load(exercise: str) -> dict[str, Function]:
    """An exercise's functions, from its compiled file."""
    path = resources.files("manyheads.check") / "visible" / f"{exercise}.json"
    data = json.loads(path.read_text(encoding="utf-8"))
    return {name: _function(name, exercise, entry) for name, entry in data.items()}


def dump(functions_: Iterator[Function] | list[Function]) -> str:
    """The text of an exercise's compiled file."""
    data = {f.name: _encode_function(f) for f in functions_}
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _function(name: str, exercise: str, entry: dict[str, Any]) -> Function:
    ideas = {
        idea: tuple(
            Witness(
                _example(item["example"]),
                _outcome(item["expected"]),
                {key: _outcome(value) for key, value in item["wrong"].items()},
            )
            for item in items
        )
        for idea, items in entry["ideas"].items()
    }
    return Function(
        name, exercise, entry["sentences"], ideas, entry["misconceptions"], tuple(entry["uses"])
    )


def _encode_function(function: Function) -> dict[str, Any]:
    return {
        "sentences": function.sentences,
        "uses": list(function.uses),
        "misconceptions": function.misconceptions,
        "ideas": {
            idea: [
                {
                    "example": _set_fields(witness.example),
                    "expected": _set_fields(witness.expected),
                    "wrong": {key: _set_fields(value) for key, value in witness.wrong.items()},
                }
                for witness in witnesses
            ]
            for idea, witnesses in function.ideas.items()
        },
    }


def _set_fields(item: Example | Outcome) -> dict[str, Any]:
    """The fields that differ from their defaults, encoded."""
    empty = Example("", "") if isinstance(item, Example) else Outcome()
    return {
        field.name: _encode(getattr(item, field.name))
        for field in fields(item)
        if field.name != "lines" and not _is_default(getattr(item, field.name), getattr(empty, field.name))
    }


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and not value and not default)


def _example(data: dict[str, Any]) -> Example:
    return Example(**{"sentence": "", **{key: _decode(value) for key, value in data.items()}})


def _outcome(data: dict[str, Any]) -> Outcome:
    return Outcome(**{key: _decode(value) for key, value in data.items()})


def _encode(value: Any) -> Any:
    """Plain JSON; arrays, tuples and dicts under a key of their own."""
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if isinstance(value, np.ndarray):
        return {"array": _rounded(value).tolist(), "dtype": str(value.dtype), "shape": list(value.shape)}
    if isinstance(value, tuple):
        return {"tuple": [_encode(item) for item in value]}
    if isinstance(value, list):
        return [_encode(item) for item in value]
    if isinstance(value, dict):
        return {"dict": {key: _encode(item) for key, item in value.items()}}
    if isinstance(value, float):
        return float(f"{value:.12g}")
    return value


def _rounded(array: np.ndarray) -> np.ndarray:
    """Twelve digits: the last bits differ between processors and would make noise in diffs."""
    if array.dtype.kind != "f":
        return array
    return np.array([float(f"{x:.12g}") for x in array.ravel()]).reshape(array.shape)


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        if "array" in value:
            return np.array(value["array"], dtype=value["dtype"]).reshape(value["shape"])
        if "tuple" in value:
            return tuple(_decode(item) for item in value["tuple"])
        return {key: _decode(item) for key, item in value["dict"].items()}
    return value
