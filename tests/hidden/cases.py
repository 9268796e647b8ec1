"""Inputs that the hidden examples of several chapters share.

Sizes all differ by default, so that exchanged axes do not fit, and scores are moderate, so that no
softmax saturates. Every function draws from `rng` only and returns a fresh case: names and arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

Case = dict[str, Any]

RAISES = {"raises": "ValueError"}
COARSE = {"rtol": 1e-3, "atol": 1e-3}  # float32 where scores are large

# --- what attention takes


def some_mask(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """A random mask in which every query sees at least one key and not all of them."""
    mask = rng.random(shape) < 0.6
    seen = rng.integers(shape[-1], size=shape[:-1])
    np.put_along_axis(mask, seen[..., None], True, axis=-1)
    np.put_along_axis(mask, ((seen + 1) % shape[-1])[..., None], False, axis=-1)
    return mask


def qkv(
    rng: np.random.Generator,
    batch: tuple[int, ...] = (),
    n: int = 5,
    m: int = 7,
    d_k: int = 4,
    d_v: int = 3,
    dtype: type = float,
) -> Case:
    """Queries (…, n, d_k), keys (…, m, d_k) and values (…, m, d_v)."""
    Q = rng.normal(size=(*batch, n, d_k)) * 1.3
    K = rng.normal(size=(*batch, m, d_k)) * 1.3
    V = rng.normal(size=(*batch, m, d_v)) + 0.5
    return {"Q": Q.astype(dtype), "K": K.astype(dtype), "V": V.astype(dtype)}


def qkv_misfits(rng: np.random.Generator, n: int = 4, m: int = 5) -> Iterator[Case]:
    """Q, K and V that do not fit each other; a 1 is no size that fits every other."""
    for q, k, v in (
        ((n, 3), (m, 2), (m, 6)),
        ((n, 3), (m, 3), (m + 1, 3)),
        ((n, 3), (m, 3), (1, 3)),
        ((3, n, 2), (2, m, 2), (2, m, 2)),
        ((3, n, 2), (3, m, 2), (2, m, 2)),
        ((3, n, 2), (3, m, 2), (1, m, 2)),
        ((1, n, 2), (3, m, 2), (3, m, 2)),
        ((n, 1), (m, 3), (m, 2)),
        ((3, n, 2), (3, m, 2), (m, 2)),
        ((n, 2), (m, 2), (3, m, 2)),
    ):
        yield normal(rng, Q=q, K=k, V=v)


def multi_head_case(
    rng: np.random.Generator,
    batch: tuple[int, ...] = (),
    n: int = 5,
    d: int = 12,
    h: int = 3,
    dtype: type = float,
) -> Case:
    """A sequence (…, n, d), the four matrices (d, d) and a number of heads."""
    case = {"x": rng.normal(size=(*batch, n, d)) + 0.3}
    for name in ("W_q", "W_k", "W_v", "W_o"):
        case[name] = rng.normal(size=(d, d)) * (1.2 / math.sqrt(d))
    case = {name: value.astype(dtype) for name, value in case.items()}
    return {**case, "num_heads": h}


# --- any case


def normal(rng: np.random.Generator, **shapes: int | tuple[int, ...]) -> Case:
    """Normal random numbers in these shapes: `normal(rng, x=(5, 4), W=(4, 3))`."""
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def integers(case: Mapping[str, Any]) -> Case:
    """The same case in integers."""
    return {
        name: _array(value, lambda a: (a * 2).round().astype(int)) for name, value in case.items()
    }


def fortran(case: Mapping[str, Any]) -> Case:
    """The same case with its arrays in Fortran's order in memory."""
    return {name: _array(value, np.asfortranarray) for name, value in case.items()}


def _array(value: Any, change: Any) -> Any:
    return change(value) if isinstance(value, np.ndarray) else value


# --- scores far from 0, in cases of Q, K and V


def low(case: Mapping[str, Any]) -> Case:
    """All scores below −1800, and still different."""
    Q, K = case["Q"].copy(), case["K"].copy()
    Q[..., 0], K[..., 0] = 4000, -(2 + K[..., 0] * 0.0002)
    return {**case, "Q": Q, "K": K}


def peaked(case: Mapping[str, Any], row: int) -> Case:
    """One query whose scores are thousands above the others'."""
    Q = case["Q"].copy()
    Q[..., row, :] *= 4000
    return {**case, "Q": Q}


# --- scores far from 0, in cases of x, W_q and W_k, with or without num_heads


def hidden_above(case: Mapping[str, Any], hidden: np.ndarray, lift: float) -> Case:
    """In every head the hidden positions (n,) score about `lift` above the visible ones, as keys."""
    columns, root = _heads(case)
    x, W_q, W_k = case["x"] * 0.3, case["W_q"] * 0.3, case["W_k"] * 0.3
    x[..., 0], x[..., 1] = 1, hidden
    W_q[:2], W_k[:2], W_q[:, columns], W_k[:, columns] = 0, 0, 0, 0
    W_q[0, columns], W_k[1, columns] = 1, lift * root
    return {**case, "x": x, "W_q": W_q, "W_k": W_k, "mask": ~hidden[None]}


def all_scores_at(case: Mapping[str, Any], level: float) -> Case:
    """The case with all its scores moved to about `level`, in every head."""
    columns, root = _heads(case)
    x, W_q, W_k = case["x"].copy(), case["W_q"].copy(), case["W_k"].copy()
    x[..., 0] = 1
    W_q[0], W_k[0], W_q[1:, columns], W_k[1:, columns] = 0, 0, 0, 0
    W_q[0, columns], W_k[0, columns] = 100, level * root / 100
    return {**case, "x": x, "W_q": W_q, "W_k": W_k}


def _heads(case: Mapping[str, Any]) -> tuple[np.ndarray, float]:
    """The first column of every head, and √d_k."""
    h = case.get("num_heads", 1)
    d_k = case["W_q"].shape[1] // h
    return np.arange(h) * d_k, math.sqrt(d_k)
