"""Two layers of attention that learn to continue a repeated sequence.

The first layer finds out which token came before, the second looks for the place where the present
token stood last time and takes what followed it: an induction head (Elhage et al. 2021, "A
mathematical framework for transformer circuits"; Olsson et al. 2022, arXiv:2209.11895). There is
nothing else in the model: no feed-forward part, no normalisation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ..scaled_dot_product import causal_mask
from .adam import fit
from .layers import Params, cross_entropy, embed, linear, multi_head

TOKENS, PLACES = 24, 32


@dataclass
class Induction:
    """A model that predicts the next of 24 tokens.

    Attributes:
        params: name → array; the attentions are `layer_1.W_q` … `layer_2.W_o`.
        num_heads: h, in each of the two layers, or a pair of numbers: below and above.
        history: name → (records, …), how the training went: see `train`.
    """

    params: Params
    num_heads: int | tuple[int, int]
    history: dict[str, np.ndarray] = field(default_factory=dict)

    def __call__(self, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predict each next token.

        Args:
            ids: (B, n) numbers below 24, n at most 32.

        Returns:
            Logits (B, n, 24) and the weights of both layers (2, B, h, n, n).

        Raises:
            ValueError: the layers have different numbers of heads; `logits` gives the logits.
        """
        logits, weights, _ = self._forward(ids)
        return logits, np.stack(weights)

    def logits(self, ids: np.ndarray) -> np.ndarray:
        """The logits (B, n, 24) alone, for any numbers of heads."""
        return self._forward(ids)[0]

    def _forward(self, ids: np.ndarray):
        params, causal = self.params, causal_mask(ids.shape[1])
        below, above = np.broadcast_to(self.num_heads, 2).tolist()
        x, embed_back = embed(params, "tokens", "places", ids)
        a, first, layer_1_back = multi_head(params, "layer_1", x, x, below, causal)
        x = x + a
        a, second, layer_2_back = multi_head(params, "layer_2", x, x, above, causal)
        logits, out_back = linear(params, "out", x + a)

        def backward(d_logits: np.ndarray, gradients: Params) -> None:
            d = out_back(d_logits, gradients)
            d = d + sum(layer_2_back(d, gradients))  # x is read as queries and as keys and values
            d = d + sum(layer_1_back(d, gradients))
            embed_back(d, gradients)

        return logits, (first, second), backward

    def loss_and_gradients(self, ids: np.ndarray, counted: np.ndarray) -> tuple[float, Params]:
        """The mean loss over the tokens that can be known, and all its gradients by hand.

        Args:
            ids: (B, n) numbers.
            counted: boolean (B, n − 1), True where the next token is a repetition.

        Returns:
            The loss, and name → gradient for every parameter.
        """
        logits, _, backward = self._forward(ids[:, :-1])
        loss, d_logits = cross_entropy(logits, ids[:, 1:], counted)
        gradients: Params = {}
        backward(d_logits, gradients)
        return loss, gradients


def batch(rng: np.random.Generator, size: int, n: int = PLACES) -> tuple[np.ndarray, np.ndarray]:
    """Random sequences, each repeated until it is n long.

    Args:
        rng: draws the periods, n/4 … n/2, and the tokens.
        size: B.
        n: their length, at most 32.

    Returns:
        ids (B, n), and the periods (B,): ids[b, i] == ids[b, i - periods[b]].
    """
    periods = rng.integers(n // 4, n // 2 + 1, size)
    ids = np.array([np.resize(rng.integers(TOKENS, size=p), n) for p in periods])
    return ids, periods


def repeated(periods: np.ndarray, n: int = PLACES) -> np.ndarray:
    """Boolean (B, n − 1): True where the next token has been seen a period ago."""
    return np.arange(n - 1) >= periods[:, None] - 1


def accuracy(logits: np.ndarray, ids: np.ndarray, periods: np.ndarray) -> float:
    """Share of right continuations after the first period."""
    known = (
        np.arange(ids.shape[1] - 1) >= periods[:, None]
    )  # its present token too was there before
    right = logits[:, :-1].argmax(-1) == ids[:, 1:]
    return right[known].mean()


def scores(model: Induction, ids: np.ndarray, periods: np.ndarray) -> dict[str, np.ndarray]:
    """What the heads do, and how well the model continues.

    Args:
        model: an `Induction`.
        ids: (B, n).
        periods: (B,).

    Returns:
        `accuracy`: share of right continuations after the first period; `previous` (2, h): mean
        weight of each head, by layer, on the previous token; `induction` (2, h): mean weight on
        the token after the present one's last occurrence.
    """
    logits, weights = model(ids)
    n = ids.shape[1]
    i = np.arange(1, n)
    looks = [
        weights[:, b, :, np.arange(p, n), np.arange(p, n) - p + 1].mean(0)
        for b, p in enumerate(periods)
    ]
    return {
        "accuracy": accuracy(logits, ids, periods),
        "previous": weights[..., i, i - 1].mean((1, -1)),  # (2, B, h, n - 1) -> (2, h)
        "induction": np.mean(looks, 0),
    }


def new_params(d: int, rng: np.random.Generator) -> Params:
    """Random parameters: normal with standard deviation 1/√d."""

    def normal(*shape: int) -> np.ndarray:
        return (rng.normal(size=shape) / math.sqrt(d)).astype(np.float32)

    params = {"tokens": normal(TOKENS, d), "places": normal(PLACES, d), "out": normal(d, TOKENS)}
    for layer in ("layer_1", "layer_2"):
        params |= {f"{layer}.{W}": normal(d, d) for W in ("W_q", "W_k", "W_v", "W_o")}
    return params


def train(
    d: int = 64,
    num_heads: int | tuple[int, int] = 2,
    steps: int = 1200,
    learning_rate: float = 1e-2,
    seed: int = 0,
    every: int = 25,
    without: str | None = None,
    record: Callable[[Induction, np.ndarray, np.ndarray], dict] = scores,
) -> Induction:
    """Train a new model.

    Args:
        d: width.
        num_heads: h, a divisor of d, or two of them: below and above.
        steps: batches of 32 sequences.
        learning_rate: the largest; see `adam.rate_at`.
        seed: of the parameters and of the batches.
        every: how many steps between two records.
        without: "layer_1" or "layer_2", a layer that stays silent (W_v = W_o = 0, for ever).
        record: what is written down, of the model, 64 fixed sequences and their periods.

    Returns:
        The model; its history has, per record, `step`, `loss` and what `record` gave.
    """
    rng = np.random.default_rng(seed)
    model = Induction(new_params(d, rng), num_heads)
    if without:
        for W in ("W_v", "W_o"):
            model.params[f"{without}.{W}"][:] = 0
    fixed = batch(np.random.default_rng(99), 64)

    def loss_and_gradients(_: Params) -> tuple[float, Params]:
        ids, periods = batch(rng, 32)
        return model.loss_and_gradients(ids, repeated(periods))

    model.history = fit(
        model.params,
        loss_and_gradients,
        lambda *_: record(model, *fixed),
        steps,
        learning_rate,
        every,
    )
    return model
