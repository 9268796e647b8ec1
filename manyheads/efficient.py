"""Chapter 9: the same attention in less memory, and kinds of attention that need less.

Exact: tiled_attention (online softmax), shifted_attention and KVCache. Fewer keys and values to
keep: grouped_query_attention. Another function for the same use, in linear time: linear_attention.
"""

from __future__ import annotations

import math

import numpy as np

from .matrices import as_float
from .scaled_dot_product import attention, attention_scores, causal_mask, check_mask, check_shapes

ROWS = 256  # queries at a time: their scores against one tile of keys stay in the cache
CHUNK = 128  # positions at a time in causal linear attention
SHIFTED_ROWS, SHIFTED_TILE = 384, 768  # measured: the products run best at these sizes


def merge_partial(
    m1: np.ndarray,
    l1: np.ndarray,
    o1: np.ndarray,
    m2: np.ndarray,
    l2: np.ndarray,
    o2: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Join two partial softmax states of the same queries over different keys.

    Args:
        m1, m2: (…, n), the largest score so far; -inf before any.
        l1, l2: (…, n), the sum of exp(score - m); 0 before any.
        o1, o2: (…, n, d_v), the sum of exp(score - m) · value; 0 before any.

    Returns:
        (m, l, o) over the keys of both; o / l is the attention output.

    Raises:
        ValueError: shapes that don't fit.

    Milakov and Gimelshein 2018, section 3.1; Dao et al. 2022 (FlashAttention), section 3.1.
    """
    m1, l1, o1, m2, l2, o2 = map(as_float, (m1, l1, o1, m2, l2, o2))
    shapes = [a.shape for a in (m1, l1, o1)]
    if shapes != [a.shape for a in (m2, l2, o2)] or not m1.shape == l1.shape == o1.shape[:-1]:
        other = [a.shape for a in (m2, l2, o2)]
        raise ValueError(f"states {shapes} and {other}: both are (…, n), (…, n), (…, n, d_v)")
    m = np.maximum(m1, m2)  # (…, n)
    a1 = np.exp(m1 - _finite(m))  # (…, n), what the old sums are worth under the new maximum
    a2 = np.exp(m2 - _finite(m))
    return m, a1 * l1 + a2 * l2, a1[..., None] * o1 + a2[..., None] * o2


def partial_softmax(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The softmax state of some keys, to be joined with others' by merge_partial.

    Args:
        Q: (…, n, d_k).
        K: (…, t, d_k).
        V: (…, t, d_v).
        mask: boolean, broadcastable to (…, n, t).

    Returns:
        (m, l, o): the largest score (…, n), the sum of exponentials (…, n) and the unnormalised
        output (…, n, d_v).
    """
    scores = attention_scores(Q, K)  # (…, n, d_k), (…, t, d_k) -> (…, n, t)
    if mask is not None:
        scores = np.where(check_mask(mask, scores.shape), scores, -np.inf)
    m = scores.max(axis=-1)  # (…, n, t) -> (…, n)
    scores -= _finite(m)[..., None]
    powers = np.exp(scores, out=scores)  # (…, n, t)
    return m, powers.sum(axis=-1), powers @ V


def tiled_attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, tile: int, causal: bool = False
) -> np.ndarray:
    """Attention that reads the keys tile by tile and never holds the n×m scores.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v).
        tile: number of keys at a time.
        causal: hide later keys, as causal_mask(n, m).

    Returns:
        The output (…, n, d_v), in memory O(n · tile · d).

    Raises:
        ValueError: shapes that don't fit, or a tile below 1.

    Rabe and Staats 2021; Dao et al. 2022 (FlashAttention), algorithm 1.
    """
    Q, K, V = as_float(Q), as_float(K), as_float(V)
    check_shapes(Q, K, V)
    if tile < 1:
        raise ValueError(f"a tile holds at least 1 key, not {tile}")
    n, m = Q.shape[-2], K.shape[-2]
    output = np.empty((*Q.shape[:-1], V.shape[-1]), dtype=np.result_type(Q, K, V))
    for i in range(0, n, ROWS):
        rows = Q[..., i : i + ROWS, :]  # (…, r, d_k)
        # Query i sees the keys up to i + (m - n): an offset that moves with the tile.
        past = i + m - n if causal else None
        output[..., i : i + ROWS, :] = _attend_by_tiles(rows, K, V, tile, past)
    return output


def _attend_by_tiles(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, tile: int, past: int | None
) -> np.ndarray:
    """Online softmax of r queries; with `past`, query i sees the keys j <= i + past only."""
    *batch, r, _ = Q.shape
    seen = K.shape[-2] if past is None else r + past  # no query sees a key behind these
    top = np.full((*batch, r), -np.inf, dtype=Q.dtype)  # (…, r)
    total = np.zeros((*batch, r), dtype=Q.dtype)  # (…, r)
    mix = np.zeros((*batch, r, V.shape[-1]), dtype=Q.dtype)  # (…, r, d_v)
    for start in range(0, seen, tile):
        stop = min(start + tile, seen)
        mask = None
        if past is not None and stop > past + 1:  # else even query 0 sees the whole tile
            mask = np.arange(start, stop) <= np.arange(r)[:, None] + past  # (r, stop - start)
        part = partial_softmax(Q, K[..., start:stop, :], V[..., start:stop, :], mask)
        top, total, mix = merge_partial(top, total, mix, *part)
    return mix / np.where(total > 0, total, 1)[..., None]  # a query that saw nothing: 0


def _finite(m: np.ndarray) -> np.ndarray:
    """A maximum that can be subtracted: -inf (no score yet) minus -inf would be NaN."""
    return np.where(np.isneginf(m), 0, m)


def shifted_attention(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Exact attention in one pass that needs no running maximum: the fastest form here.

    What keeps exp from overflowing is a shift; the maximum is only the usual choice. No score of a
    query is above |q| · max|k| / √d_k (Cauchy and Schwarz), which is known before any score is. So
    the shift goes into the first product as one more column, the sum of the exponentials comes out
    of the second as one more column, and a tile meets one operation between the two: exp.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v); Q, K and V have the same leading axes.

    Returns:
        The output (…, n, d_v), in memory O((n + m) · d); in float32 to about 1e-5.

    Raises:
        ValueError: shapes that don't fit.
    """
    Q, K, V = as_float(Q), as_float(K), as_float(V)
    check_shapes(Q, K, V)
    output = np.empty((*Q.shape[:-1], V.shape[-1]), dtype=np.result_type(Q, K, V))
    for item in np.ndindex(Q.shape[:-2]):
        output[item] = _attend_shifted(Q[item], K[item], V[item])
    return output


def _attend_shifted(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """One sequence: (n, d_k), (m, d_k), (m, d_v) -> (n, d_v)."""
    queries = Q / math.sqrt(Q.shape[-1])  # (n, d_k)
    bound = _lengths(queries) * _lengths(K).max()  # (n, 1), no score of the row is above it
    queries = np.concatenate([queries, -bound], axis=1)  # (n, d_k + 1)
    keys, values = _with_ones(K), _with_ones(V)  # (m, d_k + 1), (m, d_v + 1)
    mix = np.zeros((len(Q), values.shape[1]), dtype=np.result_type(Q, K, V))
    buffer = np.empty((SHIFTED_ROWS, SHIFTED_TILE), dtype=np.result_type(Q, K))
    for j in range(0, len(K), SHIFTED_TILE):
        tile = np.ascontiguousarray(keys[j : j + SHIFTED_TILE].T)  # (d_k + 1, t)
        for i in range(0, len(Q), SHIFTED_ROWS):
            rows = queries[i : i + SHIFTED_ROWS]  # (r, d_k + 1)
            powers = buffer[: len(rows), : tile.shape[1]]  # (r, t)
            np.matmul(rows, tile, out=powers)  # the scores less the bound
            np.exp(powers, out=powers)
            mix[i : i + SHIFTED_ROWS] += powers @ values[j : j + SHIFTED_TILE]  # (r, d_v + 1)
    output, total = mix[:, :-1], mix[:, -1]  # (n, d_v), (n,)
    # Scores far below their bound are lost to underflow; a row of such scores goes by tiles.
    limits = np.finfo(buffer.dtype)
    lost = np.flatnonzero(total < limits.tiny / limits.eps**2)
    output[lost], total[lost] = tiled_attention(Q[lost], K, V, SHIFTED_TILE), 1
    return output / total[:, None]


def _lengths(x: np.ndarray) -> np.ndarray:
    """The Euclidean length of each row: (n, d) -> (n, 1)."""
    return np.sqrt((x * x).sum(axis=1, keepdims=True))


def _with_ones(x: np.ndarray) -> np.ndarray:
    """One more column, of ones: (n, d) -> (n, d + 1)."""
    return np.concatenate([x, np.ones((len(x), 1), dtype=x.dtype)], axis=1)


def linear_attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, causal: bool = False
) -> np.ndarray:
    """Attention with φ(q)·φ(k) for exp(q·k), where φ(x) = elu(x) + 1: another function, in O(n).

    The sums over the keys, Σ φ(k) vᵀ and Σ φ(k), are the same for every query; causal ones grow
    as the sequence goes on.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v).
        causal: query i sums over the keys j <= i only; then n = m.

    Returns:
        The output (…, n, d_v).

    Raises:
        ValueError: shapes that don't fit, or causal with more or fewer keys than queries.

    Katharopoulos et al. 2020, equations 5, 7 and 9.
    """
    Q, K, V = as_float(Q), as_float(K), as_float(V)
    check_shapes(Q, K, V)
    if causal and Q.shape[-2] != K.shape[-2]:
        raise ValueError(f"Q {Q.shape} and K {K.shape}: causal needs as many keys as queries")
    Q, K = _phi(Q), _phi(K)
    if causal:
        return _running_linear(Q, K, V)
    memory = K.swapaxes(-1, -2) @ V  # Σ φ(k) vᵀ: (…, d_k, m) @ (…, m, d_v) -> (…, d_k, d_v)
    total = K.sum(axis=-2)[..., None]  # Σ φ(k): (…, d_k, 1)
    return Q @ memory / (Q @ total)  # (…, n, d_v) / (…, n, 1)


def _running_linear(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Linear attention whose sums grow chunk by chunk; Q and K have been through φ."""
    output = np.empty((*Q.shape[:-1], V.shape[-1]), dtype=np.result_type(Q, K, V))
    memory = np.zeros((*Q.shape[:-2], Q.shape[-1], V.shape[-1]), dtype=output.dtype)
    total = np.zeros((*Q.shape[:-2], Q.shape[-1], 1), dtype=output.dtype)
    for start in range(0, Q.shape[-2], CHUNK):
        now = np.s_[..., start : start + CHUNK, :]
        q, k, v = Q[now], K[now], V[now]  # (…, c, d_k), (…, c, d_k), (…, c, d_v)
        pairs = np.tril(q @ k.swapaxes(-1, -2))  # (…, c, c), inside the chunk pair by pair
        mix = q @ memory + pairs @ v  # (…, c, d_v), the chunks before and this one
        output[now] = mix / (q @ total + pairs.sum(axis=-1, keepdims=True))
        memory += k.swapaxes(-1, -2) @ v  # (…, d_k, c) @ (…, c, d_v) -> (…, d_k, d_v)
        total += k.sum(axis=-2)[..., None]  # (…, d_k, 1)
    return output


def _phi(x: np.ndarray) -> np.ndarray:
    """elu(x) + 1, which is positive everywhere."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def grouped_query_attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Attention in which several query heads share one head of keys and values.

    Args:
        Q: (…, h, n, d_k).
        K: (…, g, m, d_k), g a divisor of h; query head i uses group i // (h / g).
        V: (…, g, m, d_v).
        mask: boolean, broadcastable to (…, h, n, m), True where the query may attend to the key.

    Returns:
        The output (…, h, n, d_v) and the weights (…, h, n, m).

    Raises:
        ValueError: shapes that don't fit, an h that is no multiple of g, or a mask that is not
            boolean.

    Ainslie et al. 2023; with g = 1, Shazeer 2019 (multi-query attention).
    """
    Q, K, V = as_float(Q), as_float(K), as_float(V)
    _check_groups(Q, K)
    *batch, h, n, d_k = Q.shape
    g, m = K.shape[-3:-1]
    # The h/g heads of a group ask the same keys, so together they are one longer list of queries.
    grouped = Q.reshape(*batch, g, h // g * n, d_k)  # (…, h, n, d_k) -> (…, g, h/g·n, d_k)
    if mask is not None:
        mask = np.broadcast_to(check_mask(mask, (*batch, h, n, m)), (*batch, h, n, m))
        mask = mask.reshape(*batch, g, h // g * n, m)  # (…, h, n, m) -> (…, g, h/g·n, m)
    output, weights = attention(grouped, K, V, mask)  # (…, g, h/g·n, d_v), (…, g, h/g·n, m)
    return output.reshape(*batch, h, n, V.shape[-1]), weights.reshape(*batch, h, n, m)


def _check_groups(Q: np.ndarray, K: np.ndarray) -> None:
    if Q.ndim < 3 or K.ndim < 3:
        raise ValueError(f"Q {Q.shape}, K {K.shape}: each needs (heads, positions, width), or more")
    if K.shape[-3] < 1 or Q.shape[-3] % K.shape[-3]:
        raise ValueError(f"Q {Q.shape}, K {K.shape}: the heads of K don't divide the heads of Q")


class KVCache:
    """Keys and values of the positions so far: a new query attends to them, nothing is recomputed.

    `len(cache)` is the number of positions.
    """

    def __init__(self) -> None:
        self._keys: np.ndarray | None = None  # (…, len, d_k)
        self._values: np.ndarray | None = None  # (…, len, d_v)

    def __len__(self) -> int:
        return 0 if self._keys is None else self._keys.shape[-2]

    def append(self, k: np.ndarray, v: np.ndarray) -> None:
        """Add the keys and values of the next t positions; they are copied.

        Args:
            k: (…, t, d_k).
            v: (…, t, d_v).

        Raises:
            ValueError: shapes that don't fit each other, or the positions before.
        """
        k, v = as_float(k), as_float(v)
        if k.ndim < 2 or k.shape[:-1] != v.shape[:-1]:
            raise ValueError(f"k {k.shape} and v {v.shape}: (…, t, d_k) and (…, t, d_v)")
        if self._keys is None:
            self._keys, self._values = k.copy(), v.copy()
            return
        if not _continues(self._keys, k) or not _continues(self._values, v):
            before = f"keys {self._keys.shape} and values {self._values.shape}"
            raise ValueError(f"k {k.shape} and v {v.shape} don't continue {before}")
        # This copies what was there; a cache for long texts would reserve room ahead.
        self._keys = np.concatenate([self._keys, k], axis=-2)  # (…, len + t, d_k)
        self._values = np.concatenate([self._values, v], axis=-2)  # (…, len + t, d_v)

    def attend(self, q: np.ndarray) -> np.ndarray:
        """Full causal attention, for the newest positions only.

        Args:
            q: (…, t, d_k), the queries of the newest t positions, t at most len(cache).

        Returns:
            (…, t, d_v).

        Raises:
            ValueError: shapes that don't fit, or more queries than positions.
        """
        q = as_float(q)
        if q.ndim < 2 or q.shape[-2] > len(self):
            raise ValueError(f"q {q.shape} asks for the newest of {len(self)} positions")
        mask = causal_mask(q.shape[-2], len(self))  # (t, len)
        output, _ = attention(q, self._keys, self._values, mask)
        return output


def _continues(old: np.ndarray, new: np.ndarray) -> bool:
    """Whether (…, t, d) has the leading axes and the width of (…, len, d)."""
    return old.shape[:-2] == new.shape[:-2] and old.shape[-1] == new.shape[-1]
