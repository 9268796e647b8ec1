"""Healthy and broken starts: one task, one model, one thing wrong with its cross-attention.

The task is `reversal` with words of 4 to 10 letters; all runs see the same batches.
"""

from collections.abc import Callable
from dataclasses import dataclass

from . import reversal
from .encoder_decoder import EncoderDecoder
from .encoder_decoder import train as train_task
from .layers import Params


def times(factor: float, *matrices: str) -> Callable[[Params], None]:
    """A change of fresh parameters: these matrices of the cross-attention times a factor."""

    def change(params: Params) -> None:
        for W in matrices:
            params[f"cross.{W}"] *= factor

    return change


@dataclass(frozen=True)
class Start:
    """How a run begins.

    Attributes:
        change: what is done to the fresh parameters, or None.
        num_heads: h; the width is 64, so d_k = 64 / h.
        scaled: False leaves out the division by √d_k.
        learning_rate: the largest.
    """

    change: Callable[[Params], None] | None = None
    num_heads: int = 4
    scaled: bool = True
    learning_rate: float = 3e-3


STARTS = {
    "healthy": Start(),
    "W_q = W_k = 0": Start(times(0, "W_q", "W_k")),
    "W_q = 0": Start(times(0, "W_q")),
    "W_v = W_o = 0": Start(times(0, "W_v", "W_o")),
    "W_o = 0": Start(times(0, "W_o")),
    "W_q, W_k times 20": Start(times(20, "W_q", "W_k")),
    "W_q, W_k times 0.01": Start(times(0.01, "W_q", "W_k")),
    "one head": Start(num_heads=1),
    "one head, no scaling": Start(num_heads=1, scaled=False),
    "four heads, no scaling": Start(scaled=False),
    "W_q = W_k = 0, learning rate times 5": Start(times(0, "W_q", "W_k"), learning_rate=1.5e-2),
    "W_q, W_k times 20, learning rate times 5": Start(
        times(20, "W_q", "W_k"), learning_rate=1.5e-2
    ),
    "W_q, W_k times 20, learning rate by 5": Start(times(20, "W_q", "W_k"), learning_rate=6e-4),
}


def train(name: str, steps: int = 600, seed: int = 0) -> EncoderDecoder:
    """Train from one of the `STARTS`.

    Args:
        name: a key of `STARTS`.
        steps: batches of 64 words.
        seed: of the parameters and of the batches.

    Returns:
        The model with its history: see `encoder_decoder.train`.

    Raises:
        KeyError: no start of this name.
    """
    start = STARTS[name]
    return train_task(
        reversal.task(shortest=4),
        reversal.PROBE,
        d=64,
        num_heads=start.num_heads,
        scaled=start.scaled,
        change=start.change,
        steps=steps,
        learning_rate=start.learning_rate,
        seed=seed,
        every=25,
    )
