"""Chapter 8: attention that leaves out most pairs, by place, by block, by hash, by head.

A masked dense attention saves nothing: the n×m array is made and then hidden. The functions here
that return an output only compute the pairs that are seen, a block of queries at a time.
"""

from __future__ import annotations

import numpy as np

from .matrices import as_float, linear
from .multi_head import attend_in_heads, check_square, merge_heads
from .scaled_dot_product import attention, check_shapes, masked_softmax

BLOCK = 64  # queries at a time: enough for a fast matrix product, few enough to stay small


def window_mask(n: int, window: int, causal: bool = False) -> np.ndarray:
    """Let each position see its neighbours only.

    Args:
        n: number of positions.
        window: how far a position sees, to each side; 0 is itself only.
        causal: hide later positions too.

    Returns:
        (n, n) boolean, True where |i - j| <= window (and j <= i if causal).

    Raises:
        ValueError: a negative window.
    """
    positions = np.arange(n)
    return _near(positions, positions, window, causal)


def global_window_mask(n: int, window: int, global_positions: np.ndarray) -> np.ndarray:
    """A window, and besides it a few positions that see all and are seen by all.

    Args:
        n: number of positions.
        window: as in window_mask.
        global_positions: integers p, 0 <= p < n, possibly none.

    Returns:
        (n, n) boolean.

    Raises:
        ValueError: a negative window, or global positions that are not integers from 0 to n - 1.

    Beltagy et al. 2020 (Longformer), section 3.1.
    """
    chosen = np.asarray(global_positions)
    if chosen.size and not np.issubdtype(chosen.dtype, np.integer):
        raise ValueError(f"global positions are integers, not {chosen.dtype}")
    if np.any((chosen < 0) | (chosen >= n)):
        raise ValueError(f"global positions go from 0 to {n - 1}, not {chosen}")
    mask = window_mask(n, window)
    chosen = chosen.astype(int)  # an empty list comes as floats
    mask[chosen, :] = True  # they see all
    mask[:, chosen] = True  # and are seen by all
    return mask


def local_attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, window: int, causal: bool = False
) -> np.ndarray:
    """Attention under window_mask, without the n×n array.

    Args:
        Q, K: (…, n, d_k).
        V: (…, n, d_v).
        window: how far a query sees, to each side.
        causal: hide later positions too.

    Returns:
        The output (…, n, d_v), in memory O(n · window · d).

    Raises:
        ValueError: shapes that don't fit, more or fewer keys than queries, or a negative window.

    Beltagy et al. 2020 (Longformer), section 3.1.
    """
    Q, K, V = as_float(Q), as_float(K), as_float(V)
    check_shapes(Q, K, V)
    n = Q.shape[-2]
    if K.shape[-2] != n:
        raise ValueError(f"Q {Q.shape} and K {K.shape}: a window needs as many keys as queries")
    output = _zeros(Q, K, V)  # (…, n, d_v)
    window = min(window, n)  # nothing is farther
    ahead = 0 if causal else window
    size = min(max(window, BLOCK), n)
    # What a block of queries sees of its surroundings is the same for every block.
    band = _near(np.arange(size), np.arange(-window, size + ahead), window, causal)
    for start in range(0, n, size):
        stop = min(start + size, n)
        first, last = max(start - window, 0), min(stop + ahead, n)  # the keys in sight
        mask = band[: stop - start, first - start + window : last - start + window]
        q, k, v = Q[..., start:stop, :], K[..., first:last, :], V[..., first:last, :]
        output[..., start:stop, :], _ = attention(q, k, v, mask)
    return output


def block_sparse_attention(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, layout: np.ndarray, block_size: int
) -> np.ndarray:
    """Attention between blocks of queries and blocks of keys that a layout pairs.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v).
        layout: (ceil(n / block_size), ceil(m / block_size)) boolean, True where the block of
            queries sees the block of keys.
        block_size: positions in a block; the last one may be short.

    Returns:
        The output (…, n, d_v), in memory for the active blocks only; 0 for a block of queries that
        sees no block.

    Raises:
        ValueError: shapes that don't fit, a layout of another shape or not boolean, or a block
            size below 1.

    Child et al. 2019 (Sparse Transformers), section 5.5; Zaheer et al. 2020 (BigBird).
    """
    Q, K, V, layout = as_float(Q), as_float(K), as_float(V), np.asarray(layout)
    check_shapes(Q, K, V)
    n, m = Q.shape[-2], K.shape[-2]
    _check_layout(layout, n, m, block_size)
    output = _zeros(Q, K, V)  # (…, n, d_v)
    block_of_key = np.arange(m) // block_size  # (m,)
    for i, active in enumerate(layout):
        keys = np.flatnonzero(active[block_of_key])  # the keys of the active blocks
        if keys.size:
            rows = slice(i * block_size, (i + 1) * block_size)
            output[..., rows, :], _ = attention(Q[..., rows, :], K[..., keys, :], V[..., keys, :])
    return output


def hash_buckets(x: np.ndarray, rotations: np.ndarray) -> np.ndarray:
    """Put vectors that point in similar directions into the same bucket, most of the time.

    Args:
        x: (…, n, d).
        rotations: (d, b/2), random directions.

    Returns:
        (…, n) integers from 0 to b - 1: argmax of [xR, -xR].

    Raises:
        ValueError: shapes that don't fit.

    Kitaev et al. 2020 (Reformer), section 2; Andoni et al. 2015.
    """
    turned = linear(x, rotations)  # (…, n, d) -> (…, n, b/2)
    return np.concatenate([turned, -turned], axis=-1).argmax(axis=-1)  # (…, n, b) -> (…, n)


def hash_attention(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    q_buckets: np.ndarray,
    k_buckets: np.ndarray,
) -> np.ndarray:
    """Attention of each query to the keys in its own bucket.

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v).
        q_buckets, k_buckets: (…, n) and (…, m), any integers.

    Returns:
        The output (…, n, d_v), without an n×m array; 0 for a query whose bucket has no key.

    Raises:
        ValueError: shapes that don't fit, or buckets that are not integers.

    Kitaev et al. 2020 (Reformer), equation 2 and what follows.
    """
    Q, K, V = as_float(Q), as_float(K), as_float(V)
    check_shapes(Q, K, V)
    q_buckets, k_buckets = _check_buckets(Q, q_buckets), _check_buckets(K, k_buckets)
    output = _zeros(Q, K, V)  # (…, n, d_v)
    for item in np.ndindex(Q.shape[:-2]):  # the buckets of each sequence are its own
        queries, keys = _members(q_buckets[item]), _members(k_buckets[item])
        for bucket in queries.keys() & keys.keys():
            columns = keys[bucket]
            for rows in _pieces(queries[bucket]):  # a crowded bucket costs time, not memory
                output[item][rows], _ = attention(Q[item][rows], K[item][columns], V[item][columns])
    return output


def route_heads(x: np.ndarray, W_r: np.ndarray, top_k: int) -> np.ndarray:
    """Choose a few heads for each token, and how much each counts.

    Args:
        x: (…, n, d).
        W_r: (d, h).
        top_k: number of heads per token, 1 … h.

    Returns:
        Gates (…, n, h): softmax over the top_k largest of x W_r, exactly 0 elsewhere.

    Raises:
        ValueError: shapes that don't fit, or a top_k outside 1 … h.

    Shazeer et al. 2017, equations 3 to 5; Zhang et al. 2022 (mixture of attention heads).
    """
    logits = linear(x, W_r)  # (…, n, d) -> (…, n, h)
    h = logits.shape[-1]
    if not 1 <= top_k <= h:
        raise ValueError(f"top_k goes from 1 to {h}, the number of heads; it is {top_k}")
    largest = np.argsort(-logits, axis=-1, kind="stable")[..., :top_k]  # (…, n, top_k)
    chosen = np.zeros(logits.shape, dtype=bool)
    np.put_along_axis(chosen, largest, True, axis=-1)  # (…, n, h)
    return masked_softmax(logits, chosen)


def routed_multi_head_attention(
    x: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    W_r: np.ndarray,
    num_heads: int,
    top_k: int,
) -> np.ndarray:
    """Multi-head self-attention in which each query token picks its heads.

    Args:
        x: (…, n, d).
        W_q, W_k, W_v, W_o: (d, d).
        W_r: (d, h).
        num_heads: h, a divisor of d.
        top_k: number of heads per token, 1 … h.

    Returns:
        The output (…, n, d): the heads' outputs at a token are scaled by its gates before W_o.

    Raises:
        ValueError: shapes that don't fit, a width that the heads don't divide, or a top_k outside
            1 … h.
    """
    x = as_float(x)
    check_square(x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o)
    if np.shape(W_r) != (x.shape[-1], num_heads):
        raise ValueError(f"W_r {np.shape(W_r)} doesn't fit x {x.shape} and {num_heads} heads")
    gates = route_heads(x, W_r, top_k)  # (…, n, d) -> (…, n, h)
    heads, _ = attend_in_heads(linear(x, W_q), linear(x, W_k), linear(x, W_v), num_heads)
    gated = heads * gates.swapaxes(-1, -2)[..., None]  # (…, h, n, d_k) · (…, h, n, 1)
    return linear(merge_heads(gated), W_o)  # (…, h, n, d_k) -> (…, n, d)


def _near(queries: np.ndarray, keys: np.ndarray, window: int, causal: bool) -> np.ndarray:
    """Which keys each query has in its window, by their positions: (n,), (m,) -> (n, m)."""
    if window < 0:
        raise ValueError(f"the window is at least 0, not {window}")
    ahead = keys - queries[:, None]  # (n, m), j - i
    return (ahead >= -window) & (ahead <= (0 if causal else window))


def _zeros(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> np.ndarray:
    """An output (…, n, d_v) for Q (…, n, d_k), K and V (…, m, d_v), all zeros."""
    return np.zeros((*Q.shape[:-1], V.shape[-1]), dtype=np.result_type(Q, K, V))


def _check_layout(layout: np.ndarray, n: int, m: int, block_size: int) -> None:
    if block_size < 1:
        raise ValueError(f"the block size is at least 1, not {block_size}")
    shape = (-(-n // block_size), -(-m // block_size))  # rounded up: the last block may be short
    if layout.shape != shape or layout.dtype != bool:
        raise ValueError(
            f"layout {layout.shape} {layout.dtype}: {n} queries and {m} keys in blocks of "
            f"{block_size} need {shape} booleans"
        )


def _check_buckets(x: np.ndarray, buckets: np.ndarray) -> np.ndarray:
    buckets = np.asarray(buckets)
    if buckets.shape != x.shape[:-1] or not np.issubdtype(buckets.dtype, np.integer):
        raise ValueError(
            f"buckets {buckets.shape} {buckets.dtype}: an array of shape {x.shape} needs an "
            f"integer for each of {x.shape[:-1]}"
        )
    return buckets


def _members(buckets: np.ndarray) -> dict[int, np.ndarray]:
    """The positions in each bucket: (n,) -> {bucket: positions}."""
    order = np.argsort(buckets, kind="stable")
    names, starts = np.unique(buckets[order], return_index=True)
    return dict(zip(names.tolist(), np.split(order, starts[1:]), strict=True))


def _pieces(positions: np.ndarray) -> list[np.ndarray]:
    return np.split(positions, range(BLOCK, len(positions), BLOCK))
