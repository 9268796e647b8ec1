"""Tiny models, trained in NumPy with gradients written by hand.

    >>> from manyheads import training
    >>> model = training.load("dates")
    >>> model.write(["Tuesday, 7 Oct 1986"])
    ['1986-10-07']

| file | what it is |
|---|---|
| `layers` | linear, normalisation, attention, loss …: forwards and backwards |
| `adam` | the optimiser and the loop |
| `encoder_decoder` | the model of `reversal` and `dates`, read by cross-attention |
| `reversal`, `dates` | its two tasks |
| `induction` | two layers of attention that learn to continue a repeated sequence |
| `starts` | healthy and broken starts of `reversal` |
| `widths` | the induction model with 1 … 32 heads, below or above or in both layers |

`python -m manyheads.training` trains all of it again and writes `checkpoints/`.
"""

import io
from importlib import resources

import numpy as np

from . import dates, induction, reversal, starts, widths
from .encoder_decoder import EncoderDecoder
from .induction import Induction

__all__ = ["dates", "history", "induction", "load", "reversal", "starts", "widths"]

_CHECKPOINTS = resources.files("manyheads") / "training" / "checkpoints"
_MODELS = {
    "dates": lambda params: EncoderDecoder(dates.task, params, num_heads=1, reach=1),
    "reversal": lambda params: EncoderDecoder(reversal.task(), params, num_heads=1, reach=0),
    "induction": lambda params: Induction(params, num_heads=2),
}


def load(name: str) -> EncoderDecoder | Induction:
    """A trained model with its history.

    Args:
        name: "dates", "reversal" or "induction".

    Returns:
        The model, float32.

    Raises:
        ValueError: another name.
    """
    if name not in _MODELS:
        raise ValueError(f"no model {name!r}; there are {', '.join(_MODELS)}")
    arrays = _read(name)
    model = _MODELS[name](_part(arrays, "params"))
    model.history = _part(arrays, "history")
    return model


def history(name: str) -> dict[str, dict[str, np.ndarray]]:
    """How trainings went whose models were not kept.

    Args:
        name: "starts": the key of each `starts.STARTS` → its history, see `encoder_decoder.train`;
            "widths": "sweep" → see `widths.sweep`, "layers" → see `widths.by_layer`;
            "without": "layer_1" and "layer_2" → the induction model's history without that layer.

    Returns:
        name of the run → name of what was written down → (records, …).

    Raises:
        ValueError: another name.
    """
    if name not in ("starts", "widths", "without"):
        raise ValueError(f"no history {name!r}; there are starts, widths, without")
    arrays = _read(name)
    return {
        run: _part(arrays, run) for run in dict.fromkeys(key.rpartition("/")[0] for key in arrays)
    }


def _read(name: str) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO((_CHECKPOINTS / f"{name}.npz").read_bytes())) as stored:
        return {
            key: a.astype(np.float32) if a.dtype == np.float16 else a for key, a in stored.items()
        }


def _part(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    return {key[len(name) + 1 :]: a for key, a in arrays.items() if key.startswith(f"{name}/")}
