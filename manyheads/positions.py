"""Chapter 7: four ways to tell attention where things are."""

from __future__ import annotations

import numpy as np

from .matrices import as_float
from .scaled_dot_product import attention_scores, broadcasts_to, check_shapes, masked_softmax


def sinusoidal_encoding(n: int, d: int, base: float = 10000.0) -> np.ndarray:
    """Waves of falling frequency, to be added to the input (Vaswani et al. 2017, section 3.5).

    Args:
        n: number of positions, counted from 0.
        d: width, even.
        base: the slowest wave is nearly this many times slower than the fastest.

    Returns:
        (n, d): the sine of position / base^(2i/d) in column 2i, its cosine in column 2i + 1.

    Raises:
        ValueError: an odd width.
    """
    angles = _angles(np.arange(n), d, base)  # (n, d/2)
    table = np.empty((n, d))
    table[:, 0::2] = np.sin(angles)
    table[:, 1::2] = np.cos(angles)
    return table


def relative_position_bias(table: np.ndarray, n: int, m: int) -> np.ndarray:
    """Spread one learned number per head and distance over all pairs of positions.

    Args:
        table: (h, 2k + 1), for the distances -k … k; farther ones count as -k or k.
        n, m: numbers of queries and keys, both counted from 0.

    Returns:
        (h, n, m), entry table[:, clip(j - i, -k, k) + k].

    Raises:
        ValueError: a table of even width, or without two axes.

    Shaw et al. 2018, section 3.2 (the clipping); Raffel et al. 2020, section 2.1 (a bias per head).
    """
    table = as_float(table)
    if table.ndim != 2 or table.shape[1] % 2 == 0:
        raise ValueError(f"table {table.shape} is (h, 2k + 1), one column per distance -k … k")
    k = table.shape[1] // 2
    distances = np.arange(m) - np.arange(n)[:, None]  # (n, m), j - i
    return table[:, np.clip(distances, -k, k) + k]  # (h, 2k + 1) -> (h, n, m)


def biased_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    bias: np.ndarray,
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Attention whose scores get a bias: softmax(Q Kᵀ / √d_k + bias) V.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v); Q, K and V have the same leading axes.
        bias: finite, broadcastable to (…, n, m).
        mask: boolean, broadcastable to (…, n, m), True where the query may attend to the key.

    Returns:
        The output (…, n, d_v) and the weights (…, n, m).

    Raises:
        ValueError: shapes that don't fit, or a mask that is not boolean.
    """
    Q, K, V, bias = as_float(Q), as_float(K), as_float(V), as_float(bias)
    check_shapes(Q, K, V)
    scores = attention_scores(Q, K)  # (…, n, d_k), (…, m, d_k) -> (…, n, m)
    if not broadcasts_to(bias.shape, scores.shape):
        raise ValueError(f"bias {bias.shape} doesn't fit scores {scores.shape}")
    weights = masked_softmax(scores + bias, mask)  # (…, n, m)
    return weights @ V, weights  # (…, n, m) @ (…, m, d_v) -> (…, n, d_v)


def alibi_slopes(num_heads: int) -> np.ndarray:
    """One steepness per head, for alibi_bias (Press et al. 2022, section 3).

    Args:
        num_heads: h, at least 1.

    Returns:
        (h,): 2^(-8(i+1)/h) where h is a power of two; else, as published, the slopes for the next
        lower power of two, then every other one of those for the power above it.

    Raises:
        ValueError: fewer than one head.
    """
    if num_heads < 1:
        raise ValueError(f"at least one head, not {num_heads}")
    power = 2 ** (int(num_heads).bit_length() - 1)  # the largest power of two up to h
    slopes = _geometric_slopes(power)  # (power,)
    between = _geometric_slopes(2 * power)[0::2]  # (power,)
    return np.concatenate([slopes, between[: num_heads - power]])  # (h,)


def alibi_bias(num_heads: int, n: int, m: int) -> np.ndarray:
    """A bias that falls with distance, in each head at its own slope (Press et al. 2022).

    Args:
        num_heads: h, at least 1.
        n, m: numbers of queries and keys; the last query stands at the last key, as in causal_mask.

    Returns:
        (h, n, m), entry -slope · |i + (m - n) - j|.

    Raises:
        ValueError: fewer than one head.
    """
    queries, keys = np.arange(n) + (m - n), np.arange(m)
    distances = np.abs(queries[:, None] - keys)  # (n, m)
    return alibi_slopes(num_heads)[:, None, None] * -distances  # (h, 1, 1), (n, m) -> (h, n, m)


def apply_rope(x: np.ndarray, positions: np.ndarray, base: float = 10000.0) -> np.ndarray:
    """Turn each pair of columns by an angle that grows with the position: rotary embedding.

    A query and a key turned in this way have a product that depends on their distance only.
    Su et al. 2021 (RoFormer), equation 34.

    Args:
        x: (…, n, d), d even; the pairs are the columns (2i, 2i + 1).
        positions: (n,).
        base: pair i turns by position · base^(-2i/d).

    Returns:
        (…, n, d).

    Raises:
        ValueError: an odd width, or not n positions.
    """
    x, positions = as_float(x), np.asarray(positions)
    if x.ndim < 2 or positions.shape != x.shape[-2:-1]:
        raise ValueError(f"x {x.shape} and positions {positions.shape}: (…, n, d) and (n,)")
    angles = _angles(positions, x.shape[-1], base)  # (n, d/2), in float64: they can be large
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    u, v = x[..., 0::2], x[..., 1::2]  # (…, n, d) -> twice (…, n, d/2)
    turned = np.empty_like(x)
    turned[..., 0::2] = u * cos - v * sin
    turned[..., 1::2] = u * sin + v * cos
    return turned


def _angles(positions: np.ndarray, d: int, base: float) -> np.ndarray:
    """position / base^(2i/d) for each position and i = 0 … d/2 - 1: (n,) -> (n, d/2)."""
    if d % 2:
        raise ValueError(f"the width {d} is odd; sines and cosines come in pairs")
    return positions[:, None] / base ** (np.arange(0, d, 2) / d)


def _geometric_slopes(power: int) -> np.ndarray:
    return 2.0 ** (-8 * np.arange(1, power + 1) / power)
