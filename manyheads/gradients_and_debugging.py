"""Chapter 10: attention backwards, the check for any gradient, and the signs of sick heads."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .matrices import as_float
from .scaled_dot_product import attention
from .seeing_heads import attention_entropy

UNIFORM, SATURATED = 0.95, 0.05  # of the largest possible entropy: above the one, below the other


def softmax_backward(weights: np.ndarray, d_weights: np.ndarray) -> np.ndarray:
    """Carry a gradient back through a softmax over the last axis.

    The Jacobian of one row is diag(w) - w wᵀ; its product with a gradient needs no matrix.

    Args:
        weights: (…, m), what softmax returned.
        d_weights: (…, m), the gradient with respect to it.

    Returns:
        (…, m), the gradient with respect to what softmax was given.

    Raises:
        ValueError: shapes that differ.
    """
    weights, d_weights = as_float(weights), as_float(d_weights)
    if weights.ndim < 1 or weights.shape != d_weights.shape:
        raise ValueError(f"weights {weights.shape} and d_weights {d_weights.shape} differ")
    mean = (weights * d_weights).sum(axis=-1, keepdims=True)  # (…, 1)
    return weights * (d_weights - mean)  # (…, m)


def attention_backward(
    Q: np.ndarray,
    K: np.ndarray,
    V: np.ndarray,
    d_output: np.ndarray,
    mask: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Carry a gradient back through attention(Q, K, V, mask).

    Args:
        Q: (…, n, d_k).
        K: (…, m, d_k).
        V: (…, m, d_v).
        d_output: (…, n, d_v), the gradient with respect to the output.
        mask: boolean, broadcastable to (…, n, m), True where the query may attend to the key.

    Returns:
        dQ (…, n, d_k), dK (…, m, d_k) and dV (…, m, d_v); zero for a query without keys.

    Raises:
        ValueError: shapes that don't fit, or a mask that is not boolean.

    Dao et al. 2022 (FlashAttention), appendix B.2.
    """
    Q, K, V, d_output = as_float(Q), as_float(K), as_float(V), as_float(d_output)
    output, weights = attention(Q, K, V, mask)  # (…, n, d_v), (…, n, m)
    if d_output.shape != output.shape:
        raise ValueError(f"d_output {d_output.shape} is not the output's shape {output.shape}")
    dV = weights.swapaxes(-1, -2) @ d_output  # (…, m, n) @ (…, n, d_v) -> (…, m, d_v)
    d_weights = d_output @ V.swapaxes(-1, -2)  # (…, n, d_v) @ (…, d_v, m) -> (…, n, m)
    d_scores = softmax_backward(weights, d_weights) / math.sqrt(Q.shape[-1])  # (…, n, m)
    dQ = d_scores @ K  # (…, n, m) @ (…, m, d_k) -> (…, n, d_k)
    dK = d_scores.swapaxes(-1, -2) @ Q  # (…, m, n) @ (…, n, d_k) -> (…, m, d_k)
    return dQ, dK, dV


def numerical_gradient(
    f: Callable[[np.ndarray], float], x: np.ndarray, eps: float = 1e-6
) -> np.ndarray:
    """Measure a gradient by central differences, one entry at a time.

    Args:
        f: takes an array of x's shape, returns a number.
        x: (…), any shape; computed in float64, whatever it is.
        eps: the step.

    Returns:
        The gradient, of x's shape: (f(x + eps) - f(x - eps)) / (2 eps) for a step in each entry.
    """
    x = np.asarray(x, dtype=float)
    gradient = np.empty(x.shape)
    for index in np.ndindex(x.shape):
        above, below = x.copy(), x.copy()  # f may keep or change what it is given
        above[index] += eps
        below[index] -= eps
        gradient[index] = (f(above) - f(below)) / (2 * eps)
    return gradient


def head_norms(dW: np.ndarray, num_heads: int) -> np.ndarray:
    """Say how much gradient each head's columns of a weight matrix receive.

    Args:
        dW: (d, d), the gradient of W_q, W_k or W_v.
        num_heads: h, a divisor of d.

    Returns:
        (h,): the Frobenius norm of the columns i·d_k … (i+1)·d_k - 1.

    Raises:
        ValueError: not a square matrix, or a width that the heads don't divide.
    """
    dW = as_float(dW)
    if dW.ndim != 2 or dW.shape[0] != dW.shape[1]:
        raise ValueError(f"dW {dW.shape} is (d, d)")
    d = dW.shape[1]
    if num_heads < 1 or d % num_heads:
        raise ValueError(f"{num_heads} heads don't divide the width of dW {dW.shape}")
    heads = dW.reshape(d, num_heads, d // num_heads)  # (d, d) -> (d, h, d_k)
    return np.sqrt((heads * heads).sum(axis=(0, 2)))  # (d, h, d_k) -> (h,)


def dead_heads(outputs: np.ndarray, tolerance: float = 1e-6) -> np.ndarray:
    """Find heads that say the same whatever they read.

    Args:
        outputs: (samples, h, n, d_k), at least two samples.
        tolerance: a head is dead where the standard deviation over the samples is below this at
            every position and feature.

    Returns:
        (h,) boolean.

    Raises:
        ValueError: not four axes, or fewer than two samples.
    """
    outputs = as_float(outputs)
    if outputs.ndim != 4 or len(outputs) < 2:
        raise ValueError(f"outputs {outputs.shape} are (samples, heads, n, d_k), samples >= 2")
    changes = outputs - outputs[:1]  # equal samples are exactly 0, without a rounded mean
    spread = changes.std(axis=0)  # (samples, h, n, d_k) -> (h, n, d_k)
    return (spread < tolerance).all(axis=(1, 2))  # (h, n, d_k) -> (h,)


def diagnose_weights(weights: np.ndarray) -> list[str]:
    """Name the state of each head by the mean entropy of its weights.

    Args:
        weights: (…, h, n, m), m >= 2.

    Returns:
        h strings: "uniform" where the mean entropy over batch and queries is above 0.95 of log m,
        "saturated" where it is below 0.05 of it, else "healthy".

    Raises:
        ValueError: fewer than three axes, or fewer than two keys.
    """
    weights = as_float(weights)
    if weights.ndim < 3 or weights.shape[-1] < 2:
        raise ValueError(f"weights {weights.shape} are (…, heads, n, m), m >= 2")
    entropy = attention_entropy(weights) / math.log(weights.shape[-1])  # (…, h, n), from 0 to 1
    by_head = np.moveaxis(entropy, -2, 0)  # (…, h, n) -> (h, …, n)
    return [_state(float(head.mean())) for head in by_head]


def _state(entropy: float) -> str:
    if entropy > UNIFORM:
        return "uniform"
    return "saturated" if entropy < SATURATED else "healthy"
