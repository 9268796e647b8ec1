"""Adam, and the loop that all tiny models are trained by."""

from collections.abc import Callable

import numpy as np

from .layers import Params


class Adam:
    """Steps of nearly equal size for all parameters, whatever the size of their gradients.

    Args:
        params: changed in place by `step`.

    Kingma & Ba 2014, arXiv:1412.6980, algorithm 1.
    """

    def __init__(self, params: Params, beta_1: float = 0.9, beta_2: float = 0.98):
        self.params, self.beta_1, self.beta_2, self.steps = params, beta_1, beta_2, 0
        self.mean = {name: np.zeros_like(p) for name, p in params.items()}
        self.square = {name: np.zeros_like(p) for name, p in params.items()}

    def step(self, gradients: Params, rate: float) -> None:
        """Move every parameter against its gradient."""
        self.steps += 1
        rate *= (1 - self.beta_2**self.steps) ** 0.5 / (1 - self.beta_1**self.steps)
        for name, g in gradients.items():
            self.mean[name] += (1 - self.beta_1) * (g - self.mean[name])
            self.square[name] += (1 - self.beta_2) * (g * g - self.square[name])
            self.params[name] -= rate * self.mean[name] / (np.sqrt(self.square[name]) + 1e-8)


def rate_at(step: int, steps: int) -> float:
    """The share of the learning rate: up over 100 steps, down over the last 40 %."""
    left = (steps - step) / (0.4 * steps)
    return min(1.0, (step + 1) / 100, max(0.05, left))


def fit(
    params: Params,
    loss_and_gradients: Callable[[Params], tuple[float, Params]],
    observe: Callable[[Params, Params], dict[str, np.ndarray]],
    steps: int,
    learning_rate: float,
    every: int,
) -> dict[str, np.ndarray]:
    """Train the parameters in place.

    Args:
        params: name → array.
        loss_and_gradients: draws a batch; returns the loss and the gradients.
        observe: (params, gradients) → what to write down besides the step and the loss.
        steps: how many.
        learning_rate: the largest.
        every: write down the first of so many steps, and the last.

    Returns:
        name → (records, …): `step`, `loss` and what `observe` saw.
    """
    adam, records = Adam(params), []
    for step in range(steps + 1):
        loss, gradients = loss_and_gradients(params)
        if step % every == 0 or step == steps:
            records.append({"step": step, "loss": loss} | observe(params, gradients))
        if step < steps:  # the last record describes the parameters as they are returned
            adam.step(gradients, learning_rate * rate_at(step, steps))
    return {name: np.array([r[name] for r in records]) for name in records[0]}
