"""The attention map of several heads: a page lets its reader choose the head, others see the first.

    from manyheads import interactive
    interactive.heads(weights, ["The", "cat", "sat"])

What it returns shows itself as a real table. The book's script adds the choice of the head and the
arrow keys; without it, in a notebook or on paper, the table stays as it is.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from html import escape

import numpy as np

LEVELS = 255  # weights travel as bytes: a step is 0.004, and two decimals are shown


class HeadMap:
    """The weights of some heads over one pair of sequences, ready to be shown."""

    def __init__(
        self, weights: np.ndarray, queries: Sequence[str], keys: Sequence[str], title: str
    ) -> None:
        self.weights, self.queries, self.keys, self.title = weights, queries, keys, title

    def _repr_html_(self) -> str:
        levels = np.round(self.weights * LEVELS).astype(np.uint8)  # (h, n, m)
        options = {
            "heads": len(self.weights),
            "queries": list(self.queries),
            "keys": list(self.keys),
            "weights": base64.b64encode(levels.tobytes()).decode(),
            "title": self.title,
        }
        return (
            f'<div class="widget" data-figure="attention-map" '
            f'data-options="{escape(json.dumps(options, ensure_ascii=False))}">'
            f'<div class="widget__still">{self._table()}</div></div>'
        )

    def _table(self) -> str:
        """The first head as a table: what stands there without a script."""
        head = "".join(f'<th scope="col"><span>{escape(key)}</span></th>' for key in self.keys)
        rows = "".join(
            f'<tr><th scope="row">{escape(query)}</th>'
            + "".join(_cell(weight) for weight in row)
            + "</tr>"
            for query, row in zip(self.queries, self.weights[0], strict=True)
        )
        caption = f"{escape(self.title)}: " if self.title else ""
        return (
            f'<div class="widget__scroll"><table class="heat"><caption>{caption}head 1 of '
            f"{len(self.weights)}; queries in rows, keys in columns</caption>"
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )

    def __repr__(self) -> str:
        h, n, m = self.weights.shape
        return f"Attention map: {h} heads, {n} queries, {m} keys. {self.title}".rstrip()


def _cell(weight: float) -> str:
    shown = "0" if weight < 0.005 else f"{weight:.2f}".removeprefix("0")
    shade = " strong" if weight >= 0.73 else " middle" if weight >= 0.47 else ""
    return f'<td class="heat__cell{shade}" style="--v:{weight:.3f}">{shown}</td>'


def heads(
    weights: np.ndarray,
    queries: Sequence[str],
    keys: Sequence[str] | None = None,
    *,
    title: str = "",
) -> HeadMap:
    """A map of attention weights with a choice of the head, and the mean over the heads.

    Args:
        weights: shape (h, n, m), or (n, m) for one head; between 0 and 1.
        queries, keys: the tokens of the rows and columns; keys default to the queries.
        title: the words above the map.

    Returns:
        The map, to be the last expression of a cell.

    Raises:
        ValueError: for weights outside 0 … 1 or of another shape, or labels of another number.
    """
    weights = np.asarray(weights, dtype=float)
    if weights.ndim == 2:
        weights = weights[None]  # (n, m) -> (1, n, m)
    keys = queries if keys is None else keys
    if weights.ndim != 3 or weights.shape[1:] != (len(queries), len(keys)):
        raise ValueError(
            f"weights of shape {weights.shape} do not fit "
            f"{len(queries)} queries and {len(keys)} keys"
        )
    if not (np.isfinite(weights).all() and weights.min() >= -1e-9 and weights.max() <= 1 + 1e-9):
        raise ValueError("weights lie between 0 and 1")
    return HeadMap(np.clip(weights, 0, 1), list(queries), list(keys), title)
