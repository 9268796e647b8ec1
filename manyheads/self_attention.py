"""Chapter 3: self-attention, where one sequence asks, is asked and answers."""

from __future__ import annotations

import numpy as np

from .matrices import linear
from .scaled_dot_product import attention


def self_attention(
    x: np.ndarray,
    W_q: np.ndarray,
    W_k: np.ndarray,
    W_v: np.ndarray,
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Let every position of a sequence attend to every position of the same sequence.

    Nothing in it knows the order: permuting the positions of x permutes the output.

    Args:
        x: (…, n, d).
        W_q, W_k: (d, d_k).
        W_v: (d, d_v).
        mask: boolean, broadcastable to (…, n, n), True where the query may attend to the key.

    Returns:
        The output (…, n, d_v) and the weights (…, n, n).

    Raises:
        ValueError: shapes that don't fit, or a mask that is not boolean.
    """
    Q = linear(x, W_q)  # (…, n, d) -> (…, n, d_k)
    K = linear(x, W_k)  # (…, n, d) -> (…, n, d_k)
    V = linear(x, W_v)  # (…, n, d) -> (…, n, d_v)
    return attention(Q, K, V, mask)
