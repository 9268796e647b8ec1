"""Chapter 2: scaled dot-product attention, and the masks that hide keys from queries.

Vaswani et al. 2017, equation 1: softmax(Q Kᵀ / √d_k) V. Queries are rows, keys are columns.
"""

from __future__ import annotations

import math

import numpy as np

from .matrices import as_float, softmax


def attention_scores(Q: np.ndarray, K: np.ndarray) -> np.ndarray:
    """Compare every query with every key: Q Kᵀ / √d_k.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k), with the leading axes of Q.

    Returns:
        (…, n, m).

    Raises:
        ValueError: shapes that don't fit.
    """
    Q, K = as_float(Q), as_float(K)
    check_shapes(Q, K)
    d_k = Q.shape[-1]
    # math.sqrt gives a Python float: float32 stays float32 (np.sqrt(d_k) would lift it to float64).
    Q = Q / math.sqrt(d_k)  # (…, n, d_k): n·d_k divisions, where the scores would take n·m
    return Q @ K.swapaxes(-1, -2)  # (…, n, d_k) @ (…, d_k, m) -> (…, n, m)


def causal_mask(n: int, m: int | None = None) -> np.ndarray:
    """Let each query see no later key; the last query sees the last key.

    Args:
        n: number of queries.
        m: number of keys; None means n.

    Returns:
        (n, m) boolean, True where query i may attend to key j: j <= i + (m - n).
    """
    m = n if m is None else m
    return np.tri(n, m, k=m - n, dtype=bool)


def padding_mask(lengths: np.ndarray, m: int) -> np.ndarray:
    """Let every query see the real keys and not the padding behind them.

    Args:
        lengths: (B,) integers, 0 … m: how many keys of each sequence are real.
        m: number of keys, padding included.

    Returns:
        (B, 1, m) boolean; the axis of size 1 holds for every query.

    Raises:
        ValueError: lengths that are not one-dimensional integers from 0 to m.
    """
    lengths = np.asarray(lengths)
    if lengths.ndim != 1 or not np.issubdtype(lengths.dtype, np.integer):
        raise ValueError(f"lengths is (B,) integers, not {lengths.shape} {lengths.dtype}")
    if np.any((lengths < 0) | (lengths > m)):
        raise ValueError(f"lengths go from 0 to m = {m}, not {lengths.min()} to {lengths.max()}")
    return np.arange(m) < lengths[:, None, None]  # (m,) < (B, 1, 1) -> (B, 1, m)


def attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Mix the values, for each query, by how well their keys match it: softmax(Q Kᵀ / √d_k) V.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v); Q, K and V have the same leading axes.
        mask: boolean, broadcastable to (…, n, m), True where the query may attend to the key.

    Returns:
        The output (…, n, d_v) and the weights (…, n, m). A query that may attend to nothing has
        weights 0 and output 0.

    Raises:
        ValueError: shapes that don't fit, or a mask that is not boolean.
    """
    Q, K, V = as_float(Q), as_float(K), as_float(V)
    check_shapes(Q, K, V)
    scores = attention_scores(Q, K)  # (…, n, d_k), (…, m, d_k) -> (…, n, m)
    weights = masked_softmax(scores, mask)  # (…, n, m), each row sums to 1
    return weights @ V, weights  # (…, n, m) @ (…, m, d_v) -> (…, n, d_v)


def masked_softmax(scores: np.ndarray, mask: np.ndarray | None = None) -> np.ndarray:
    """Softmax over the keys that a mask lets each query see; the others get weight 0.

    Args:
        scores: (…, n, m).
        mask: boolean, broadcastable to the scores, True where the key is visible.

    Returns:
        (…, n, m) weights; a row with no visible key is all zeros.

    Raises:
        ValueError: a mask that is not boolean or doesn't fit.
    """
    if mask is None:
        return softmax(scores)
    scores = as_float(scores)
    mask = check_mask(mask, scores.shape)
    hidden = np.where(mask, scores, -np.inf)  # exp(-inf) = 0
    top = hidden.max(axis=-1, keepdims=True)  # (…, n, 1), over the visible keys only
    top[np.isneginf(top)] = 0  # nothing visible: -inf minus -inf would be NaN
    hidden -= top
    powers = np.exp(hidden, out=hidden)  # (…, n, m)
    total = powers.sum(axis=-1, keepdims=True)  # (…, n, 1), at least 1 or, nothing visible, 0
    powers /= np.maximum(total, 1)
    return powers


def check_shapes(Q: np.ndarray, K: np.ndarray, V: np.ndarray | None = None) -> None:
    """Raise ValueError unless Q (…, n, d_k), K (…, m, d_k) and V (…, m, d_v) belong together."""
    shapes = f"Q {Q.shape}, K {K.shape}" + ("" if V is None else f", V {V.shape}")
    arrays = [Q, K] if V is None else [Q, K, V]
    if any(a.ndim < 2 for a in arrays):
        raise ValueError(f"{shapes}: each needs two axes, (positions, width), or more")
    if any(a.shape[:-2] != Q.shape[:-2] for a in arrays):
        raise ValueError(f"{shapes}: the leading axes differ")
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError(f"{shapes}: queries and keys differ in width")
    if V is not None and K.shape[-2] != V.shape[-2]:
        raise ValueError(f"{shapes}: the numbers of keys and values differ")


def check_mask(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the mask as an array; raise ValueError unless it is boolean and fits the shape."""
    mask = np.asarray(mask)
    if mask.dtype != bool:
        raise ValueError(f"a mask is boolean, True = may attend; this one is {mask.dtype}")
    if mask.ndim < 2 or not broadcasts_to(mask.shape, shape):
        raise ValueError(f"mask {mask.shape} doesn't fit scores {shape}")
    return mask


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether an array of this shape can be repeated along axes to have the target shape."""
    aligned = zip(reversed(shape), reversed(target), strict=False)
    return len(shape) <= len(target) and all(a in (1, b) for a, b in aligned)
