"""Chapter 1: matrices by hand, then the three NumPy functions that everything else stands on."""

from __future__ import annotations

import math
import random

import numpy as np

PREVIEW = 5  # rows and columns that str(Matrix) shows


class Matrix:
    """A matrix in pure Python: a list of rows. Every operation returns a new Matrix.

    Args:
        data: list of lists of numbers, all rows equally long; it is copied.

    Raises:
        ValueError: no rows, no columns, or rows of different lengths.
    """

    def __init__(self, data: list[list[float]]) -> None:
        self._data = [list(row) for row in data]
        lengths = sorted({len(row) for row in self._data})
        if not lengths or lengths == [0]:
            raise ValueError("a matrix needs at least one row and one column")
        if len(lengths) > 1:
            raise ValueError(f"the rows of a matrix are equally long; these have lengths {lengths}")
        self.rows = len(self._data)
        self.cols = lengths[0]

    def __getitem__(self, index: tuple[int, int]) -> float:
        i, j = index
        return self._data[i][j]

    def __setitem__(self, index: tuple[int, int], value: float) -> None:
        i, j = index
        self._data[i][j] = value

    def __matmul__(self, other: Matrix) -> Matrix:
        """The product: (rows, k) @ (k, cols) -> (rows, cols)."""
        if self.cols != other.rows:
            raise ValueError(f"{_size(self)} @ {_size(other)}: the inner sizes differ")
        columns = other.transpose()._data
        return Matrix([[_dot(row, column) for column in columns] for row in self._data])

    def __add__(self, other: Matrix) -> Matrix:
        """The sum, entry by entry, of two matrices of one size."""
        if (self.rows, self.cols) != (other.rows, other.cols):
            raise ValueError(f"{_size(self)} + {_size(other)}: the sizes differ")
        pairs = zip(self._data, other._data, strict=True)
        return Matrix([[a + b for a, b in zip(left, right, strict=True)] for left, right in pairs])

    def __truediv__(self, scalar: float) -> Matrix:
        """Every entry divided by one number."""
        return Matrix([[value / scalar for value in row] for row in self._data])

    def transpose(self) -> Matrix:
        """Rows become columns: (rows, cols) -> (cols, rows)."""
        return Matrix([list(column) for column in zip(*self._data, strict=True)])

    def softmax(self) -> Matrix:
        """Each row as weights that are positive and sum to 1."""
        return Matrix([_softmax_row(row) for row in self._data])

    def tolist(self) -> list[list[float]]:
        """The entries as a list of rows, copied."""
        return [list(row) for row in self._data]

    def __str__(self) -> str:
        """The first 5 rows and columns with 4 decimals, `...` where something is cut."""
        shown = [[f"{value:.4f}" for value in row[:PREVIEW]] for row in self._data[:PREVIEW]]
        width = max(len(cell) for row in shown for cell in row)
        cut = "  ..." if self.cols > PREVIEW else ""
        lines = ["[" + "  ".join(cell.rjust(width) for cell in row) + cut + "]" for row in shown]
        return "\n".join(lines + ["..."] * (self.rows > PREVIEW))

    def __repr__(self) -> str:
        return f"Matrix({self._data!r})"

    @classmethod
    def xavier(cls, rows: int, cols: int, rng: random.Random) -> Matrix:
        """A (rows, cols) matrix of normal numbers with standard deviation sqrt(2 / (rows + cols)).

        Glorot and Bengio 2010, equation 12, as a normal distribution of the same variance.
        """
        std = math.sqrt(2 / (rows + cols))
        return cls([[rng.gauss(0, std) for _ in range(cols)] for _ in range(rows)])


def _size(m: Matrix) -> str:
    return f"({m.rows}, {m.cols})"


def _dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _softmax_row(row: list[float]) -> list[float]:
    top = max(row)  # of this row: another row's maximum could push all of these to exp(-large) = 0
    powers = [math.exp(value - top) for value in row]
    total = sum(powers)
    return [power / total for power in powers]


def as_float(x: np.ndarray) -> np.ndarray:
    """Anything NumPy reads as numbers as a floating-point array; float32 stays float32."""
    x = np.asarray(x)
    return x if x.dtype.kind == "f" else x.astype(float)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """Turn numbers along one axis into weights that are positive and sum to 1.

    Args:
        x: (…), any shape.
        axis: the axis along which the weights sum to 1.

    Returns:
        The weights, of x's shape.

    Raises:
        ValueError: an axis that x doesn't have.
    """
    x = as_float(x)
    # Subtracting a constant from a row changes no weight; with its own maximum no row overflows.
    shifted = x - x.max(axis=axis, keepdims=True)
    powers = np.exp(shifted, out=shifted)  # in place: the scores of a long text are gigabytes
    powers /= powers.sum(axis=axis, keepdims=True)
    return powers


def linear(x: np.ndarray, W: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Apply a linear map to the last axis: x W + b.

    Args:
        x: (…, d_in).
        W: (d_in, d_out).
        b: (d_out,), or None for no bias.

    Returns:
        (…, d_out).

    Raises:
        ValueError: shapes that don't fit.
    """
    x, W = as_float(x), as_float(W)
    if x.ndim < 1 or W.ndim != 2 or x.shape[-1] != W.shape[0]:
        raise ValueError(f"x {x.shape} and W {W.shape} don't fit: W is (width of x, d_out)")
    y = x @ W  # (…, d_in) -> (…, d_out)
    if b is None:
        return y
    b = as_float(b)
    if b.shape != W.shape[1:]:
        raise ValueError(f"b {b.shape} doesn't fit W {W.shape}: b is (d_out,)")
    return y + b


def xavier_normal(rng: np.random.Generator, d_in: int, d_out: int) -> np.ndarray:
    """Draw a (d_in, d_out) weight matrix whose variance keeps signals neither growing nor fading.

    Normal with standard deviation sqrt(2 / (d_in + d_out)): Glorot and Bengio 2010, equation 12.
    """
    return rng.normal(0, math.sqrt(2 / (d_in + d_out)), size=(d_in, d_out))
