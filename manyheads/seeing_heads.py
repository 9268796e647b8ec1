"""Chapter 5: numbers that say what a head does, and what happens without it."""

from __future__ import annotations

import numpy as np

from .matrices import as_float, linear
from .multi_head import attend_in_heads, check_square, merge_heads


def attention_entropy(weights: np.ndarray) -> np.ndarray:
    """Say how widely each query spreads its attention: -Σ w log w, in nats (Shannon 1948).

    Args:
        weights: (…, n, m).

    Returns:
        (…, n): 0 for a query that sees one key only (or none), log m for one that sees all alike.

    Raises:
        ValueError: fewer than two axes.
    """
    weights = as_float(weights)
    if weights.ndim < 2:
        raise ValueError(f"weights {weights.shape} need two axes, (queries, keys), or more")
    logs = np.log(np.where(weights > 0, weights, 1))  # 0 · log 0 counts as 0
    return 0 - (weights * logs).sum(axis=-1)  # (…, n, m) -> (…, n); 0 - x gives 0, not -0


def attention_distance(weights: np.ndarray) -> np.ndarray:
    """Say how far each head looks: the mean of |i - j| under its weights.

    Args:
        weights: (…, h, n, n).

    Returns:
        (…, h), averaged over all n queries.

    Raises:
        ValueError: fewer than three axes, or unequal numbers of queries and keys.
    """
    weights = check_self_weights(weights)
    n = weights.shape[-1]
    positions = np.arange(n)
    distances = np.abs(positions[:, None] - positions).astype(weights.dtype)  # (n, n)
    return (weights * distances).sum(axis=(-2, -1)) / n  # (…, h, n, n) -> (…, h)


def offset_score(weights: np.ndarray, offset: int) -> np.ndarray:
    """Say how much each head attends to the key a fixed number of positions away.

    Args:
        weights: (…, h, n, n).
        offset: j - i, with |offset| < n; -1 finds previous-token heads.

    Returns:
        (…, h): the mean weight on key i + offset, over the queries i where that key exists.

    Raises:
        ValueError: fewer than three axes, unequal numbers of queries and keys, or an offset that
            no pair of positions has.
    """
    weights = check_self_weights(weights)
    n = weights.shape[-1]
    if abs(offset) >= n:
        raise ValueError(f"offset {offset} leaves weights {weights.shape}: |offset| < {n}")
    diagonal = np.diagonal(weights, offset, axis1=-2, axis2=-1)  # (…, h, n - |offset|)
    return diagonal.mean(axis=-1)  # (…, h, n - |offset|) -> (…, h)


def ablate_heads(
    x: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    num_heads: int,
    keep: np.ndarray,
) -> np.ndarray:
    """Multi-head attention in which some heads are silent (Michel et al. 2019, section 2.3).

    Args:
        x: (…, n, d).
        W_q, W_k, W_v, W_o: (d, d).
        num_heads: h, a divisor of d.
        keep: (h,) boolean; a head that is not kept contributes zero before W_o.

    Returns:
        The output (…, n, d).

    Raises:
        ValueError: shapes that don't fit, a width that the heads don't divide, or a keep that is
            not h booleans.
    """
    x, keep = as_float(x), np.asarray(keep)
    check_square(x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o)
    if keep.shape != (num_heads,) or keep.dtype != bool:
        raise ValueError(f"keep is ({num_heads},) booleans, not {keep.shape} {keep.dtype}")
    heads, _ = attend_in_heads(linear(x, W_q), linear(x, W_k), linear(x, W_v), num_heads)
    kept = np.where(keep[:, None, None], heads, 0)  # (h, 1, 1), (…, h, n, d_k) -> (…, h, n, d_k)
    return linear(merge_heads(kept), W_o)  # (…, h, n, d_k) -> (…, n, d)


def check_self_weights(weights: np.ndarray) -> np.ndarray:
    """Return weights as a floating-point array; raise ValueError unless they are (…, h, n, n)."""
    weights = as_float(weights)
    if weights.ndim < 3 or weights.shape[-1] != weights.shape[-2]:
        raise ValueError(f"weights {weights.shape} are (…, heads, n, n), as in self-attention")
    return weights
