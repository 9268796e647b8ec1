"""Few wide heads or many narrow ones: the induction model with the same width and 1 … 32 heads.

And more of them below or above: the same with different numbers of heads in its two layers.
"""

from collections.abc import Iterable

import numpy as np

from . import induction

HEADS = (1, 2, 4, 8, 16, 32)
PAIRS = ((2, 16), (16, 2), (2, 32), (32, 2))  # below, above


def sweep(
    heads: Iterable[int] = HEADS, seeds: Iterable[int] = (0, 1, 2), steps: int = 800
) -> dict[str, np.ndarray]:
    """Train one model per number of heads and seed, d = 64.

    Args:
        heads: numbers of heads.
        seeds: of the parameters and of the batches.
        steps: batches of 32 sequences.

    Returns:
        `heads` (H,), `step` (records,) and `accuracy` (H, seeds, records).
    """
    runs = [
        [induction.train(num_heads=h, seed=s, steps=steps, every=50).history for s in seeds]
        for h in heads
    ]
    accuracy = np.array([[run["accuracy"] for run in row] for row in runs])
    return {"heads": np.array(list(heads)), "step": runs[0][0]["step"], "accuracy": accuracy}


def by_layer(
    pairs: Iterable[tuple[int, int]] = PAIRS, seeds: Iterable[int] = (0, 1, 2), steps: int = 800
) -> dict[str, np.ndarray]:
    """As `sweep`, with one number of heads in the lower layer and another in the upper.

    Args:
        pairs: numbers of heads, (below, above).
        seeds: of the parameters and of the batches.
        steps: batches of 32 sequences.

    Returns:
        `heads` (P, 2), `step` (records,) and `accuracy` (P, seeds, records).
    """

    def right(model: induction.Induction, ids: np.ndarray, periods: np.ndarray) -> dict:
        return {"accuracy": induction.accuracy(model.logits(ids), ids, periods)}

    runs = [
        [
            induction.train(num_heads=pair, seed=s, steps=steps, every=50, record=right).history
            for s in seeds
        ]
        for pair in pairs
    ]
    accuracy = np.array([[run["accuracy"] for run in row] for row in runs])
    return {"heads": np.array(list(pairs)), "step": runs[0][0]["step"], "accuracy": accuracy}
