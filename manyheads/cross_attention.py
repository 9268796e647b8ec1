"""Chapter 6: cross-attention, where one sequence asks and another answers."""

from __future__ import annotations

import numpy as np

from .matrices import as_float, linear
from .multi_head import (
    attend_in_heads,
    check_square,
    mask_for_every_head,
    merge_heads,
    multi_head_attention,
)
from .scaled_dot_product import causal_mask


def cross_attention(
    x: np.ndarray,
    memory: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    W_o: np.ndarray,
    num_heads: int,
    memory_mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Multi-head attention from x to a memory (Vaswani et al. 2017, section 3.2.3).

    Args:
        x: (…, n, d), which asks.
        memory: (…, m, d_mem), which answers, with the leading axes of x.
        W_q, W_o: (d, d).
        W_k, W_v: (d_mem, d).
        num_heads: h, a divisor of d.
        memory_mask: boolean, broadcastable to (…, n, m), True where the query may attend to the
            memory's position; it holds for every head.

    Returns:
        The output (…, n, d) and the weights (…, h, n, m).

    Raises:
        ValueError: shapes that don't fit, a width that the heads don't divide, or a mask that is
            not boolean.
    """
    x, memory = as_float(x), as_float(memory)
    check_square(x, W_q=W_q, W_o=W_o)
    check_memory(x, memory, W_k=W_k, W_v=W_v)
    if memory_mask is not None:
        memory_mask = mask_for_every_head(memory_mask, (*x.shape[:-1], memory.shape[-2]))
    Q = linear(x, W_q)  # (…, n, d) -> (…, n, d)
    K = linear(memory, W_k)  # (…, m, d_mem) -> (…, m, d)
    V = linear(memory, W_v)  # (…, m, d_mem) -> (…, m, d)
    heads, weights = attend_in_heads(Q, K, V, num_heads, memory_mask)
    return linear(merge_heads(heads), W_o), weights  # (…, h, n, d_k) -> (…, n, d)


def hard_alignment(weights: np.ndarray) -> np.ndarray:
    """Name, for each query, the key that its heads attend to most.

    Args:
        weights: (…, h, n, m).

    Returns:
        (…, n) integers: the key with the largest mean weight over the heads.

    Raises:
        ValueError: fewer than three axes.
    """
    weights = as_float(weights)
    if weights.ndim < 3:
        raise ValueError(
            f"weights {weights.shape} need three axes, (heads, queries, keys), or more"
        )
    return weights.mean(axis=-3).argmax(axis=-1)  # (…, h, n, m) -> (…, n, m) -> (…, n)


def decoder_attention(
    y: np.ndarray,
    memory: np.ndarray,
    self_weights: dict[str, np.ndarray],
    cross_weights: dict[str, np.ndarray],
    num_heads: int,
    memory_mask: np.ndarray | None = None,
) -> np.ndarray:
    """The two attentions of a decoder layer, each added to what went in.

    Args:
        y: (…, n, d), what has been written so far; position i sees no later one.
        memory: (…, m, d_mem), what is read.
        self_weights: W_q, W_k, W_v and W_o, each (d, d).
        cross_weights: W_q and W_o (d, d), W_k and W_v (d_mem, d).
        num_heads: h, a divisor of d.
        memory_mask: boolean, broadcastable to (…, n, m).

    Returns:
        (…, n, d): z + cross_attention(z, memory), where z = y + causal self-attention of y.

    Raises:
        ValueError: as multi_head_attention and cross_attention.
    """
    y = as_float(y)
    past = causal_mask(y.shape[-2]) if y.ndim > 1 else None
    written, _ = multi_head_attention(y, **self_weights, num_heads=num_heads, mask=past)
    z = y + written  # (…, n, d)
    read, _ = cross_attention(
        z, memory, **cross_weights, num_heads=num_heads, memory_mask=memory_mask
    )
    return z + read  # (…, n, d)


def check_memory(x: np.ndarray, memory: np.ndarray, **weights: np.ndarray) -> None:
    """Raise ValueError unless memory is (…, m, d_mem) beside x and each weight (d_mem, d)."""
    if memory.ndim < 2 or memory.shape[:-2] != x.shape[:-2]:
        raise ValueError(f"x {x.shape} and memory {memory.shape}: the leading axes differ")
    shape = (memory.shape[-1], x.shape[-1])
    for name, W in weights.items():
        if np.shape(W) != shape:
            raise ValueError(
                f"{name} {np.shape(W)} doesn't fit memory {memory.shape} and x {x.shape}: "
                f"it is {shape}"
            )
