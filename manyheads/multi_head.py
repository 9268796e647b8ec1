"""Chapter 4: multi-head attention, several attentions side by side in slices of one width.

Vaswani et al. 2017, section 3.2.2: MultiHead(x) = Concat(head_1, …, head_h) W_o.
"""

from __future__ import annotations

import numpy as np

from .matrices import as_float, linear, xavier_normal
from .scaled_dot_product import attention, check_mask


def split_heads(x: np.ndarray, num_heads: int) -> np.ndarray:
    """Cut the width into heads: head i gets the columns i·d_k … (i+1)·d_k - 1.

    Args:
        x: (…, n, d).
        num_heads: h, a divisor of d.

    Returns:
        (…, h, n, d_k) with d_k = d / h: a view, nothing is copied.

    Raises:
        ValueError: fewer than two axes, or a width that the heads don't divide.
    """
    x = np.asarray(x)
    if x.ndim < 2:
        raise ValueError(f"x {x.shape} needs two axes, (positions, width), or more")
    *batch, n, d = x.shape
    if num_heads < 1 or d % num_heads:
        raise ValueError(f"{num_heads} heads don't divide the width {d} of x {x.shape}")
    heads = x.reshape(*batch, n, num_heads, d // num_heads)  # (…, n, d) -> (…, n, h, d_k)
    return heads.swapaxes(-3, -2)  # (…, n, h, d_k) -> (…, h, n, d_k)


def merge_heads(x: np.ndarray) -> np.ndarray:
    """Put the heads side by side again: the inverse of split_heads.

    Args:
        x: (…, h, n, d_k).

    Returns:
        (…, n, d) with d = h·d_k.

    Raises:
        ValueError: fewer than three axes.
    """
    x = np.asarray(x)
    if x.ndim < 3:
        raise ValueError(f"x {x.shape} needs three axes, (heads, positions, width), or more")
    *batch, h, n, d_k = x.shape
    return x.swapaxes(-3, -2).reshape(*batch, n, h * d_k)  # (…, h, n, d_k) -> (…, n, d)


def multi_head_attention(
    x: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    num_heads: int,
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Self-attention in h heads, each in its own slice of the width, joined by W_o.

    Args:
        x: (…, n, d).
        W_q, W_k, W_v, W_o: (d, d).
        num_heads: h, a divisor of d.
        mask: boolean, True where the query may attend to the key. With one axis more than x it has
            a head axis, broadcastable to (…, h, n, n); any other mask is broadcast to (…, n, n)
            and holds for every head.

    Returns:
        The output (…, n, d) and the weights (…, h, n, n).

    Raises:
        ValueError: shapes that don't fit, a width that the heads don't divide, or a mask that is
            not boolean.
    """
    x = as_float(x)
    check_square(x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o)
    Q, K, V = linear(x, W_q), linear(x, W_k), linear(x, W_v)  # each (…, n, d) -> (…, n, d)
    heads, weights = attend_in_heads(Q, K, V, num_heads, mask)
    return linear(merge_heads(heads), W_o), weights  # (…, h, n, d_k) -> (…, n, d)


def attend_in_heads(
    Q: np.ndarray, K: np.ndarray, V: np.ndarray, num_heads: int, mask: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Projected queries, keys and values in h heads, before the heads are merged.

    Args:
        Q: (…, n, d).
        K, V: (…, m, d).
        num_heads: h, a divisor of d.
        mask: as in multi_head_attention, for m keys.

    Returns:
        The heads' outputs (…, h, n, d_k) and their weights (…, h, n, m).
    """
    Q = split_heads(Q, num_heads)  # (…, n, d) -> (…, h, n, d_k)
    K = split_heads(K, num_heads)  # (…, m, d) -> (…, h, m, d_k)
    V = split_heads(V, num_heads)  # (…, m, d) -> (…, h, m, d_k)
    if mask is not None and np.ndim(mask) != Q.ndim:
        mask = mask_for_every_head(mask, (*Q.shape[:-3], Q.shape[-2], K.shape[-2]))
    return attention(Q, K, V, mask)


def mask_for_every_head(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Broadcast a mask without a head axis to shape (…, n, m), then give it one: (…, 1, n, m)."""
    mask = np.broadcast_to(check_mask(mask, shape), shape)
    return mask[..., None, :, :]  # (…, n, m) -> (…, 1, n, m)


def check_square(x: np.ndarray, **weights: np.ndarray) -> None:
    """Raise ValueError unless x is (…, n, d) and every weight matrix (d, d)."""
    if x.ndim < 2:
        raise ValueError(f"x {x.shape} needs two axes, (positions, width), or more")
    d = x.shape[-1]
    for name, W in weights.items():
        if np.shape(W) != (d, d):
            raise ValueError(f"{name} {np.shape(W)} doesn't fit x {x.shape}: it is ({d}, {d})")


class MultiHeadAttention:
    """Multi-head self-attention that keeps its weights; they can be read and set at any time.

    Args:
        d_model: the width d.
        num_heads: h, a divisor of d.
        rng: draws W_q, W_k, W_v and W_o, each (d, d), Xavier-normal.

    Raises:
        ValueError: a width that the heads don't divide.
    """

    def __init__(self, d_model: int, num_heads: int, rng: np.random.Generator) -> None:
        if num_heads < 1 or d_model % num_heads:
            raise ValueError(f"{num_heads} heads don't divide the width {d_model}")
        self.d_model = d_model
        self.num_heads = num_heads
        self.W_q = xavier_normal(rng, d_model, d_model)
        self.W_k = xavier_normal(rng, d_model, d_model)
        self.W_v = xavier_normal(rng, d_model, d_model)
        self.W_o = xavier_normal(rng, d_model, d_model)

    def __call__(
        self, x: np.ndarray, mask: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """multi_head_attention of x (…, n, d): output (…, n, d) and weights (…, h, n, n)."""
        return multi_head_attention(x, self.W_q, self.W_k, self.W_v, self.W_o, self.num_heads, mask)
