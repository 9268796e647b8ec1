"""The layers of the tiny models, each with its backward pass written by hand.

A layer takes the parameters (a dict of arrays) and the name of its own part of them. It returns its
output and a function `backward(d_output, gradients)`, which adds the gradients of its parameters to
the dict `gradients` and returns the gradient of its input.
"""

import math
from collections.abc import Callable

import numpy as np

from ..multi_head import merge_heads, split_heads
from ..scaled_dot_product import attention

Params = dict[str, np.ndarray]
Backward = Callable[[np.ndarray, Params], np.ndarray]


def linear(params: Params, name: str, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    """x W: (B, n, d_in) -> (B, n, d_out), and its backward pass."""
    W = params[name]

    def backward(d_y: np.ndarray, gradients: Params) -> np.ndarray:
        _add(gradients, name, _flat(x).T @ _flat(d_y))  # (d_in, B n) @ (B n, d_out)
        return d_y @ W.T

    return x @ W, backward


def embed(
    params: Params, words: str, places: str, ids: np.ndarray
) -> tuple[np.ndarray, Callable[[np.ndarray, Params], None]]:
    """A word's vector plus its place's: ids (B, n) -> (B, n, d), and its backward pass."""
    n = ids.shape[1]

    def backward(d_x: np.ndarray, gradients: Params) -> None:
        # A product with one-hot rows adds up a word's gradients, faster than np.add.at.
        one_hot = np.eye(len(params[words]), dtype=d_x.dtype)[ids.ravel()]  # (B n, vocabulary)
        _add(gradients, words, one_hot.T @ _flat(d_x))
        d_places = np.zeros_like(params[places])
        d_places[:n] = d_x.sum(0)
        _add(gradients, places, d_places)

    return params[words][ids] + params[places][:n], backward


def layer_norm(params: Params, name: str, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    """Mean 0 and variance 1 over the last axis, then a learned factor; and its backward pass.

    Ba et al. 2016, arXiv:1607.06450, without the shift.
    """
    gamma = params[name]
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)  # (B, n, 1)
    unit = centred * inverse

    def backward(d_y: np.ndarray, gradients: Params) -> np.ndarray:
        _add(gradients, name, _flat(d_y * unit).sum(0))
        d = d_y * gamma
        along = (d * unit).mean(-1, keepdims=True)  # what only stretches x changes nothing
        return inverse * (d - d.mean(-1, keepdims=True) - unit * along)

    return unit * gamma, backward


def feed_forward(params: Params, name: str, x: np.ndarray) -> tuple[np.ndarray, Backward]:
    """max(0, x W_1 + b_1) W_2: (B, n, d) -> (B, n, d), and its backward pass."""
    inner, inner_backward = linear(params, f"{name}.W_1", x)
    inner = np.maximum(inner + params[f"{name}.b_1"], 0)
    y, outer_backward = linear(params, f"{name}.W_2", inner)

    def backward(d_y: np.ndarray, gradients: Params) -> np.ndarray:
        d_inner = outer_backward(d_y, gradients) * (inner > 0)
        _add(gradients, f"{name}.b_1", _flat(d_inner).sum(0))
        return inner_backward(d_inner, gradients)

    return y, backward


def multi_head(
    params: Params,
    name: str,
    x: np.ndarray,
    memory: np.ndarray,
    num_heads: int,
    mask: np.ndarray,
    scaled: bool = True,
) -> tuple[np.ndarray, np.ndarray, Callable[[np.ndarray, Params], tuple[np.ndarray, np.ndarray]]]:
    """Queries from x, keys and values from memory (x itself: self-attention).

    Args:
        params: has `name.W_q`, `name.W_k`, `name.W_v`, `name.W_o`, each (d, d).
        name: the part's name.
        x: (B, n, d).
        memory: (B, m, d).
        num_heads: h.
        mask: boolean, broadcastable to (B, h, n, m).
        scaled: False leaves out the division by √d_k.

    Returns:
        The output (B, n, d), the weights (B, h, n, m), and the backward pass, which returns the
        gradients of x and of memory.
    """
    Q, q_backward = linear(params, f"{name}.W_q", x)
    K, k_backward = linear(params, f"{name}.W_k", memory)
    V, v_backward = linear(params, f"{name}.W_v", memory)
    Q, K, V = (split_heads(a, num_heads) for a in (Q, K, V))  # (B, n, d) -> (B, h, n, d_k)
    undo = 1.0 if scaled else math.sqrt(Q.shape[-1])  # attention divides by √d_k in any case
    heads, weights = attention(undo * Q, K, V, mask)
    y, o_backward = linear(params, f"{name}.W_o", merge_heads(heads))

    def backward(d_y: np.ndarray, gradients: Params) -> tuple[np.ndarray, np.ndarray]:
        # Imported late: a trained model can be used where chapter 10 is still to be solved.
        from ..gradients_and_debugging import attention_backward

        d_heads = split_heads(o_backward(d_y, gradients), num_heads)
        dQ, dK, dV = attention_backward(undo * Q, K, V, d_heads, mask)
        d_x = q_backward(merge_heads(undo * dQ), gradients)
        d_memory = k_backward(merge_heads(dK), gradients) + v_backward(merge_heads(dV), gradients)
        return d_x, d_memory

    return y, weights, backward


def cross_entropy(
    logits: np.ndarray, targets: np.ndarray, counted: np.ndarray
) -> tuple[float, np.ndarray]:
    """Mean −log probability of the targets, and its gradient.

    Args:
        logits: (B, n, vocabulary).
        targets: (B, n) integers.
        counted: boolean (B, n), the places that count.

    Returns:
        The loss, and the gradient of the logits (B, n, vocabulary).
    """
    shifted = logits - logits.max(-1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))  # (B, n, vocabulary)
    share = (counted / counted.sum()).astype(logits.dtype)  # (B, n), sums to 1
    right = np.take_along_axis(log_p, targets[..., None], -1)  # (B, n, 1)
    d_logits = np.exp(log_p)
    np.put_along_axis(d_logits, targets[..., None], np.exp(right) - 1, -1)
    return -float((right[..., 0] * share).sum()), d_logits * share[..., None]


def _flat(x: np.ndarray) -> np.ndarray:
    return x.reshape(-1, x.shape[-1])  # (B, n, d) -> (B n, d)


def _add(gradients: Params, name: str, gradient: np.ndarray) -> None:
    gradients[name] = gradients[name] + gradient if name in gradients else gradient
