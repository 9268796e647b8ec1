"""Chapter 11: from attention to an encoder layer, and from words to one vector per sentence.

Vaswani et al. 2017 with the choices of BERT (Devlin et al. 2019): biases, GELU, normalisation
after each sum.
"""

from __future__ import annotations

import math

import numpy as np

from .matrices import as_float, linear
from .multi_head import attend_in_heads, check_square, merge_heads

LAYER_NORM_EPS = 1e-12  # BERT's


def layer_norm(
    x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, eps: float = LAYER_NORM_EPS
) -> np.ndarray:
    """Give each position mean 0 and variance 1 over its width, then a learned scale and shift.

    Args:
        x: (…, d).
        gamma, beta: (d,).
        eps: added to the variance, inside the root.

    Returns:
        (…, d).

    Raises:
        ValueError: shapes that don't fit.

    Ba et al. 2016, equation 4.
    """
    x, gamma, beta = as_float(x), as_float(gamma), as_float(beta)
    if x.ndim < 1 or not gamma.shape == beta.shape == x.shape[-1:]:
        raise ValueError(f"x {x.shape}, gamma {gamma.shape}, beta {beta.shape}: (…, d), (d,), (d,)")
    centred = x - x.mean(axis=-1, keepdims=True)  # (…, d)
    variance = (centred * centred).mean(axis=-1, keepdims=True)  # (…, 1)
    return gamma * centred / np.sqrt(variance + eps) + beta  # (…, d)


def gelu(x: np.ndarray) -> np.ndarray:
    """x · Φ(x), where Φ is the normal distribution: a ReLU with a soft corner.

    Args:
        x: (…), any shape.

    Returns:
        Of x's shape.

    Hendrycks and Gimpel 2016, section 2; exact, not the tanh approximation.
    """
    x = as_float(x)
    return x * (0.5 * (1 + _erf(x / math.sqrt(2)))).astype(x.dtype)


def feed_forward(
    x: np.ndarray, W_1: np.ndarray, b_1: np.ndarray, W_2: np.ndarray, b_2: np.ndarray
) -> np.ndarray:
    """Two linear maps with a GELU between, at each position alone.

    Args:
        x: (…, d).
        W_1: (d, d_hidden).
        b_1: (d_hidden,).
        W_2: (d_hidden, d).
        b_2: (d,).

    Returns:
        (…, d).

    Raises:
        ValueError: shapes that don't fit.

    Vaswani et al. 2017, equation 2, with GELU for ReLU.
    """
    hidden = gelu(linear(x, W_1, b_1))  # (…, d) -> (…, d_hidden)
    return linear(hidden, W_2, b_2)  # (…, d_hidden) -> (…, d)


def encoder_layer(
    x: np.ndarray,
    params: dict[str, np.ndarray],
    num_heads: int,
    mask: np.ndarray | None = None,
) -> np.ndarray:
    """One layer of an encoder: positions exchange, then each is worked on; each sum is normalised.

    Args:
        x: (…, n, d).
        params: W_q b_q W_k b_k W_v b_v W_o b_o gamma_1 beta_1 for the attention,
            W_1 b_1 W_2 b_2 gamma_2 beta_2 for the rest.
        num_heads: h, a divisor of d.
        mask: as in multi_head_attention.

    Returns:
        The output (…, n, d).

    Raises:
        ValueError: shapes that don't fit, a width that the heads don't divide, or a mask that is
            not boolean.
    """
    x, p = as_float(x), params
    check_square(x, **{name: p[name] for name in ("W_q", "W_k", "W_v", "W_o")})
    if np.shape(p["W_2"])[-1:] != x.shape[-1:]:  # one column would be stretched by the sum
        raise ValueError(f"W_2 {np.shape(p['W_2'])} doesn't fit x {x.shape}: it is (d_hidden, d)")
    Q = linear(x, p["W_q"], p["b_q"])  # (…, n, d) -> (…, n, d)
    K = linear(x, p["W_k"], p["b_k"])
    V = linear(x, p["W_v"], p["b_v"])
    heads, _ = attend_in_heads(Q, K, V, num_heads, mask)  # (…, h, n, d_k)
    attended = linear(merge_heads(heads), p["W_o"], p["b_o"])  # (…, h, n, d_k) -> (…, n, d)
    x = layer_norm(x + attended, p["gamma_1"], p["beta_1"])
    worked = feed_forward(x, p["W_1"], p["b_1"], p["W_2"], p["b_2"])  # (…, n, d)
    return layer_norm(x + worked, p["gamma_2"], p["beta_2"])


def sentence_embedding(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """One vector of length 1 for each sentence: the direction of the mean of its words.

    Args:
        hidden: (…, n, d).
        mask: (…, n) boolean, True for words, False for padding; at least one word each.

    Returns:
        (…, d).

    Raises:
        ValueError: shapes that don't fit, a mask that is not boolean, or a sentence without words.

    Reimers and Gurevych 2019 (Sentence-BERT), section 3.
    """
    hidden, mask = as_float(hidden), np.asarray(mask)
    if hidden.ndim < 2 or mask.shape != hidden.shape[:-1] or mask.dtype != bool:
        raise ValueError(
            f"hidden {hidden.shape} needs {hidden.shape[:-1]} booleans, one per word, "
            f"not {mask.shape} {mask.dtype}"
        )
    if not mask.any(axis=-1).all():
        raise ValueError("a sentence without words has no mean")
    mean = hidden.mean(axis=-2, where=mask[..., None])  # (…, n, d) -> (…, d)
    length = np.sqrt((mean * mean).sum(axis=-1, keepdims=True))  # (…, 1)
    return mean / length


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x)
