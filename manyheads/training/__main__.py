"""Trains the tiny models and writes checkpoints/: `python -m manyheads.training [NAME …]`.

One core suffices: set OPENBLAS_NUM_THREADS=1, the matrices are too small to share.
"""

import sys
import time
from pathlib import Path

import numpy as np

from . import dates, induction, reversal, starts, widths

CHECKPOINTS = Path(__file__).parent / "checkpoints"


def kept(model) -> dict[str, dict[str, np.ndarray]]:
    """What a checkpoint holds of a model."""
    return {"params": model.params, "history": model.history}


MAKERS = {
    "reversal": lambda: kept(reversal.train()),
    "dates": lambda: kept(dates.train()),
    "induction": lambda: kept(induction.train()),
    "without": lambda: {
        layer: induction.train(without=layer).history for layer in ("layer_1", "layer_2")
    },
    "starts": lambda: {name: starts.train(name).history for name in starts.STARTS},
    "widths": lambda: {"sweep": widths.sweep(), "layers": widths.by_layer()},
}


def write(name: str, parts: dict[str, dict[str, np.ndarray]]) -> Path:
    """Write a checkpoint; numbers are rounded to sixteen bits."""
    arrays = {f"{part}/{key}": np.asarray(a) for part, d in parts.items() for key, a in d.items()}
    path = CHECKPOINTS / f"{name}.npz"
    rounded = {k: a.astype(np.float16) if a.dtype.kind == "f" else a for k, a in arrays.items()}
    np.savez_compressed(path, **rounded)
    return path


def main(names: list[str]) -> None:
    """Make the named checkpoints, or all."""
    unknown = [name for name in names if name not in MAKERS]
    if unknown:
        raise SystemExit(f"no {', '.join(unknown)}; there are {', '.join(MAKERS)}")
    for name in names or MAKERS:
        began = time.process_time()
        path = write(name, MAKERS[name]())
        seconds, size = time.process_time() - began, path.stat().st_size
        print(f"{name}: {seconds:.0f} s, {size:,} bytes", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
