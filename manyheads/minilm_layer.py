"""What a layer of MiniLM does besides its attention, in float32 and fast.

A module of its own, because it holds the answers of chapter 11: that chapter's exercise lets the
model be imported and hides this.
"""

import math
from collections.abc import Mapping

import numpy as np

from .matrices import linear


def after_attention(x: np.ndarray, heads: np.ndarray, p: Mapping[str, np.ndarray]) -> np.ndarray:
    """The rest of a layer: x and its heads' merged outputs (B, n, d) -> (B, n, d)."""
    x = layer_norm(x + project(heads, p["W_o"], p["b_o"]), p["gamma_1"], p["beta_1"])
    wide = gelu(project(x, p["W_1"], p["b_1"]))  # (B, n, d) -> (B, n, 4d)
    return layer_norm(x + project(wide, p["W_2"], p["b_2"]), p["gamma_2"], p["beta_2"])


def project(x: np.ndarray, W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """x W + b: (B, n, d_in) -> (B, n, d_out)."""
    # One product for all sentences: NumPy would make B small ones, several times slower.
    return linear(x.reshape(-1, x.shape[-1]), W, b).reshape(*x.shape[:-1], -1)


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    """Each position with mean 0 and variance 1, then scaled and shifted: (…, d) -> (…, d)."""
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-12) * gamma + beta


def gelu(x: np.ndarray) -> np.ndarray:
    """x · Φ(x), to 1.5e-7."""
    # Abramowitz & Stegun 7.1.26: math.erf would take one number at a time.
    z = np.abs(x) * math.sqrt(0.5)
    t = 1 / (1 + 0.3275911 * z)
    series = 1.061405429
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + coefficient
    return 0.5 * x * (1 + np.sign(x) * (1 - series * t * np.exp(-z * z)))


def sentence_embedding(hidden: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """The mean of the words, of length 1: hidden (B, n, d), mask (B, n) -> (B, d)."""
    total = (hidden * mask[..., None]).sum(-2)  # (B, n, d) -> (B, d)
    mean = total / mask.sum(-1, keepdims=True).astype(hidden.dtype)
    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)
