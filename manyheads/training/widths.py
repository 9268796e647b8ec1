"""Few wide heads or many narrow ones: the induction model with the same width and 1 … 32 heads."""

from collections.abc import Iterable

import numpy as np

from . import induction

HEADS = (1, 2, 4, 8, 16, 32)


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
