"""Hidden tests of chapter 04: heads cut and merged, multi-head attention, and its class."""

import math

import numpy as np

from manyheads import multi_head as library
from manyheads.matrices import linear, softmax, xavier_normal
from manyheads.multi_head import merge_heads, multi_head_attention, split_heads
from manyheads.scaled_dot_product import attention
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import (
    COARSE,
    RAISES,
    all_scores_at,
    fortran,
    hidden_above,
    integers,
    multi_head_case,
    some_mask,
)
from tests.hidden.common import SAID, wrong_weights
from tests.hidden.spec import Example, Exercise

exercise = Exercise("04_multi_head", library)
grade = exercise.grade


# --- split_heads ---------------------------------------------------------------------------------

split = exercise.function("split_heads")
SPLIT = "split_heads(x, num_heads)"

split.witness("values", "C1", SPLIT, x=np.arange(12.0).reshape(3, 4), num_heads=2)
split.witness("values", "C1", SPLIT, x=np.arange(4.0).reshape(2, 2) / 3, num_heads=2)
split.witness("values", "C3", SPLIT, x=np.array([[1, 2, 3, 4, 5, 6]]), num_heads=3)
split.witness("batches", "C2", SPLIT, x=np.arange(16.0).reshape(2, 2, 4), num_heads=2)
split.witness("batches", "C2", SPLIT, x=np.arange(12.0).reshape(3, 1, 1, 4), num_heads=2)
split.witness("errors", "C4", SPLIT, x=np.ones((2, 6)), num_heads=4, options=RAISES)
split.witness("errors", "C4", SPLIT, x=np.ones((2, 3)), num_heads=6, options=RAISES)


@split.hidden("values")
def _(rng):
    for n, d, h in ((5, 6, 3), (4, 10, 5), (7, 4, 1), (4, 5, 5), (1, 6, 2), (6, 6, 2), (3, 9, 3)):
        yield Example("C1", SPLIT, {"x": rng.normal(size=(n, d)), "num_heads": h})
    x = rng.normal(size=(7, 15))
    yield Example("C1", "split_heads(x=x, num_heads=5)", {"x": x})
    yield Example("C3", SPLIT, {"x": rng.integers(-99, 99, size=(5, 8)), "num_heads": 4})
    yield Example("C3", SPLIT, {"x": rng.normal(size=(4, 6)).astype(np.float32), "num_heads": 3})
    yield Example("C3", SPLIT, {"x": np.asfortranarray(x), "num_heads": 3})
    yield Example("C3", SPLIT, {"x": x[::-1, ::-1], "num_heads": 3})


@split.hidden("batches")
def _(rng):
    shapes = [((3, 5, 6), 3), ((2, 3, 4, 10), 5), ((1, 4, 6), 2), ((3, 3, 9), 3), ((2, 2, 4), 2)]
    shapes += [
        ((4, 1, 6), 3),
        ((3, 2, 1, 5, 4), 2),
        ((5, 2, 3), 1),
        ((2, 7, 3), 3),
        ((3, 4, 4, 4), 4),
    ]
    for shape, h in shapes:
        yield Example("C2", SPLIT, {"x": rng.normal(size=shape), "num_heads": h})
    x = np.swapaxes(rng.normal(size=(3, 6, 5)), -1, -2)
    yield Example("C2", SPLIT, {"x": x, "num_heads": 2})


@split.hidden("errors")
def _(rng):
    misfits = [((4, 6), 4), ((4, 6), 5), ((3, 5), 2), ((3, 5), 10), ((4, 3), 2), ((2, 1), 2)]
    misfits += [((4, 3, 7), 4), ((3, 7), 3), ((2, 4, 6, 10), 4), ((6, 8), 6)]
    for shape, h in misfits:
        yield Example(
            "C4", SPLIT, {"x": rng.normal(size=shape), "num_heads": h}, raises="ValueError"
        )


CUT = "np.swapaxes(x, -3, -2)"
RESHAPE = "x.reshape(*batch, n, num_heads, d // num_heads)"
for code, name, message, old, new in (
    ("C01", "reshaped-in-one-step",
     "Your heads are runs of positions: one reshape to (h, n, d_k) deals the numbers out in the "
     "order of memory. Cut the columns first, (n, h, d_k), then exchange two axes.",
     f"x = {RESHAPE}", "return x.reshape(*batch, num_heads, n, d // num_heads)"),
    ("X87", "not-transposed",
     "The reshape is right, the exchange of axes is missing: your result is (…, n, h, d_k), and "
     "heads have to come before positions.",
     f"return {CUT}", "return x"),
    ("C06", "interleaved", SAID["interleaved"],
     f"x = {RESHAPE}", "x = np.swapaxes(x.reshape(*batch, n, d // num_heads, num_heads), -1, -2)"),
    ("C09", "heads-and-width-exchanged",
     "Number and width of the heads are exchanged: you cut d / h heads of width h, not h heads of "
     "width d / h.",
     RESHAPE, "x.reshape(*batch, n, d // num_heads, num_heads)"),
    ("X90", "columns-before-positions",
     "Positions and columns are exchanged inside each head: (…, h, d_k, n) instead of (…, h, n, "
     "d_k).",
     f"return {CUT}", "return np.moveaxis(x, -3, -1)"),
    ("X91", "heads-in-reverse", "Your heads come in reverse order: head 0 holds the first columns.",
     f"return {CUT}", "return np.swapaxes(x, -3, -2)[..., ::-1, :, :]"),
    ("X92", "columns-in-reverse", "The columns inside a head are in reverse order.",
     f"return {CUT}", "return np.swapaxes(x, -3, -2)[..., ::-1]"),
    ("C08", "heads-before-the-batch",
     "The axis of heads comes first, before the batch axes; it belongs right before the positions.",
     f"return {CUT}", "return np.moveaxis(x, -2, 0)"),
    ("C08", "second-axis",
     "The axis of heads is always your second one; with several batch axes it belongs after all of "
     "them.",
     f"return {CUT}", "return np.moveaxis(x, -2, min(1, x.ndim - 3))"),
    ("A03", "all-axes-turned", "`.T` turns all axes around; only two have to change places.",
     f"return {CUT}", "return x.T"),
    ("X94", "axes-one-and-two",
     "You exchange the axes 1 and 2 whatever x is: count from the end (−3 and −2), so that any "
     "number of batch axes may lead.",
     f"return {CUT}", "return np.swapaxes(x, 1, 2)"),
    ("X95", "axes-zero-and-one",
     "You exchange the axes 0 and 1 whatever x is: count from the end (−3 and −2), so that any "
     "number of batch axes may lead.",
     f"return {CUT}", "return np.swapaxes(x, 0, 1)"),
    ("X96", "cut-along-positions",
     "You share out the positions among the heads: each head has to see all positions, in a slice "
     "of the columns.",
     f"x = {RESHAPE}",
     "if n % num_heads == 0:\n"
     "        return x.reshape(*batch, num_heads, n // num_heads, d)\n"
     "    x = x.reshape(*batch, n, num_heads, -1)"),
    ("X97", "whole-width-for-all",
     "Every head gets all columns: a head holds d / h of them, the others belong to other heads.",
     f"x = {RESHAPE}", "return np.stack([x] * num_heads, axis=-3)"),
    ("X98", "first-slice-for-all", "All heads hold the columns of head 0.",
     f"return {CUT}", "return np.swapaxes(np.repeat(x[..., :1, :], num_heads, axis=-2), -3, -2)"),
    ("X99", "zeros-outside",
     "Your heads are as wide as x, with zeros outside their columns: a head is d_k wide.",
     f"x = {RESHAPE}",
     "k = d // num_heads\n"
     "    return np.stack([x * (np.arange(d) // k == i) for i in range(num_heads)], axis=-3)"),
    ("A48", "last-head-overwritten",
     "All heads but the first are 0: does a `return` stand inside the loop?",
     f"return {CUT}", "x = np.swapaxes(x, -3, -2).copy()\n    x[..., 1:, :, :] = 0\n    return x"),
    ("A48", "first-item-only", "Only the first batch item is cut; the others are 0.",
     f"return {CUT}",
     "x = np.swapaxes(x, -3, -2).copy()\n    if batch:\n        x[1:] = 0\n    return x"),
    ("B64", "two-axes-only", "Your function takes (n, d) only; any number of batch axes may lead.",
     "*batch, n, d = x.shape", "n, d = x.shape\n    batch = ()"),
    ("B64", "one-batch-axis", SAID["one-batch-axis"],
     "*batch, n, d = x.shape", "B, n, d = x.shape\n    batch = (B,)"),
    ("A24", "reshaped-in-place",
     "Your function gives x itself another shape (`x.shape = …`): the caller's array is changed. "
     "Use reshape.",
     f"x = {RESHAPE}", "x.shape = (*batch, n, num_heads, d // num_heads)"),
    ("X100", "scaled", "Your function changes the numbers (it scales them); it only cuts.",
     f"return {CUT}", "return np.swapaxes(x, -3, -2) / (d // num_heads) ** 0.5"),
    ("X101", "columns-lost",
     "A width that the heads do not divide raises no ValueError: are columns lost, or filled up, "
     "or the heads unequal?",
     'if d % num_heads != 0:\n        raise ValueError(f"{num_heads} heads do not divide a '
     'width of {d}")', "d = d // num_heads * num_heads\n    x = x[..., :d]"),
    ("X01", "assertion",
     "A width that the heads do not divide raises another error (an assertion, say); a ValueError "
     "is asked for.",
     'if d % num_heads != 0:\n        raise ValueError(f"{num_heads} heads do not divide a '
     'width of {d}")', 'assert d % num_heads == 0, "the heads do not divide the width"'),
    ("X88", "heads-stacked-last",
     "Your heads are stacked behind the positions, (…, n, h, d_k) or (…, n, d_k, h): stack them "
     "before (axis=-3).",
     f"x = {RESHAPE}",
     "k = d // num_heads\n"
     "    return np.stack([x[..., i * k : (i + 1) * k] for i in range(num_heads)], axis=-1)"),
):  # fmt: skip
    split.slip(code, name, message, old, new)


@split.misconception(
    "A26",
    "Your result is cut to integers, or rounded: the numbers have to come out as they went in.",
)
def rounded(x, num_heads):
    *batch, n, d = x.shape
    if d % num_heads != 0:
        raise ValueError("heads")
    return np.swapaxes(np.round(x.reshape(*batch, n, num_heads, -1), 2), -3, -2)


@split.alternative("slices, stacked")
def by_slices(x, num_heads):
    d_k, rest = divmod(x.shape[-1], num_heads)
    if rest:
        raise ValueError(f"{x.shape[-1]} is no multiple of {num_heads}")
    return np.stack([x[..., i * d_k : (i + 1) * d_k] for i in range(num_heads)], axis=-3)


@split.alternative("np.split")
def by_np_split(x, num_heads):
    return (
        np.array(np.split(x, num_heads, axis=-1))
        if x.ndim == 2
        else np.stack(np.split(x, num_heads, -1), -3)
    )


@split.alternative("loops into lists")
def into_lists(x, num_heads):
    x = np.asarray(x)
    if x.shape[-1] % num_heads:
        raise ValueError("the heads do not divide the width")
    if x.ndim > 2:
        return [into_lists(item, num_heads) for item in x]
    d_k = x.shape[-1] // num_heads
    return [[list(row[i * d_k : (i + 1) * d_k]) for row in x.tolist()] for i in range(num_heads)]


@split.alternative("transpose with a list of axes")
def by_transpose(x, num_heads):
    if x.shape[-1] / num_heads != x.shape[-1] // num_heads:
        raise ValueError("heads")
    y = np.reshape(x, (*x.shape[:-1], num_heads, -1))
    axes = list(range(y.ndim))
    axes[-3], axes[-2] = axes[-2], axes[-3]
    return y.transpose(axes).copy()


@split.alternative("flattened batch, moveaxis")
def flattened_batch(x, num_heads):
    n, d = x.shape[-2:]
    if d % num_heads:
        raise ValueError(f"d={d}, h={num_heads}")
    y = np.moveaxis(x.reshape(-1, n, num_heads, d // num_heads), 2, 1)
    return y.reshape(x.shape[:-2] + y.shape[1:])


@split.alternative("filled array")
def filled_array(x, num_heads):
    n, d = x.shape[-2:]
    if d < num_heads or d % num_heads > 0:
        raise ValueError
    result = np.empty((*x.shape[:-2], num_heads, n, d // num_heads))
    for column in range(d):
        head, place = divmod(column, d // num_heads)
        result[..., head, :, place] = x[..., column]
    return result


@split.alternative("einsum with an identity")
def by_einsum(x, num_heads):
    d = x.shape[-1]
    if d % num_heads:
        raise ValueError("width")
    blocks = np.eye(d).reshape(d, num_heads, d // num_heads)
    return np.einsum("...nd,dhk->...hnk", x, blocks)


# --- merge_heads ---------------------------------------------------------------------------------

merge = exercise.function("merge_heads")
MERGE = "merge_heads(x)"

merge.witness(
    "values", "C1", MERGE, x=np.array([[[0.0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]])
)
merge.witness("values", "C1", MERGE, x=np.arange(4.0).reshape(2, 2, 1) / 3)
merge.witness("values", "C3", MERGE, x=np.arange(6).reshape(3, 1, 2))
merge.witness("batches", "C2", MERGE, x=np.arange(16.0).reshape(2, 2, 2, 2))
merge.witness("batches", "C2", MERGE, x=np.arange(12.0).reshape(3, 1, 2, 2, 1))


@merge.hidden("values")
def _(rng):
    for shape in (
        (3, 5, 2),
        (5, 4, 2),
        (3, 3, 3),
        (1, 4, 5),
        (4, 5, 1),
        (2, 1, 3),
        (2, 7, 4),
        (4, 2, 3),
    ):
        yield Example("C1", MERGE, {"x": rng.normal(size=shape)})
    yield Example("C1", "merge_heads(x=x)", {"x": rng.normal(size=(3, 4, 5))})
    cut = np.swapaxes(rng.normal(size=(5, 3, 4)), 0, 1)  # as split_heads leaves it: a view
    yield Example("C1", MERGE, {"x": cut})
    yield Example("C3", MERGE, {"x": rng.integers(-99, 99, size=(3, 5, 2))})
    yield Example("C3", MERGE, {"x": rng.normal(size=(3, 5, 2)).astype(np.float32)})
    yield Example("C3", MERGE, {"x": np.asfortranarray(rng.normal(size=(3, 5, 2)))})


@merge.hidden("batches")
def _(rng):
    for shape in (
        (4, 3, 5, 2),
        (2, 4, 3, 5, 2),
        (1, 3, 4, 2),
        (3, 3, 3, 3),
        (2, 2, 3, 2),
        (3, 2, 3, 1),
    ):
        yield Example("C2", MERGE, {"x": rng.normal(size=shape)})
    yield Example("C2", MERGE, {"x": rng.normal(size=(2, 1, 2, 3, 4, 2))})
    yield Example("C2", MERGE, {"x": np.swapaxes(rng.normal(size=(3, 5, 4, 2)), 1, 2)})


JOIN = "np.swapaxes(x, -3, -2).reshape(*batch, n, h * d_k)"
for code, name, message, new in (
    ("C03", "reshaped-in-one-step",
     "Your rows mix positions and heads: a reshape alone lays the heads one after the other. First "
     "exchange the axes of heads and positions, then reshape.",
     "x.reshape(*batch, n, h * d_k)"),
    ("C07", "column-by-column",
     "The heads are interleaved: first column 0 of every head, then column 1, … Here the columns "
     "of one head stay together.",
     "np.moveaxis(x, -3, -1).reshape(*batch, n, h * d_k)"),
    ("X90", "positions-last",
     "You exchange the wrong two axes (positions and columns): exchange the axes of heads and "
     "positions.",
     "np.swapaxes(x, -2, -1).reshape(*batch, n, h * d_k)"),
    ("X91", "heads-in-reverse", "Your heads stand in reverse order: head 0 comes first.",
     "np.swapaxes(x[..., ::-1, :, :], -3, -2).reshape(*batch, n, h * d_k)"),
    ("X105", "not-flattened",
     "The two last axes, h and d_k, are still apart: they become one, of width h·d_k.",
     "np.swapaxes(x, -3, -2)"),
    ("X106", "summed", "The heads are added up; they have to stand side by side.",
     "x.sum(axis=-3)"),
    ("X107", "averaged", "The heads are averaged; they have to stand side by side.",
     "x.mean(axis=-3)"),
    ("C33", "last-head-only", "You return a single head: all of them have to stand side by side.",
     "x[..., -1, :, :]"),
    ("X108", "one-below-the-other",
     "The heads stand one below the other, as further positions: they belong side by side, as "
     "further columns.",
     "x.reshape(*batch, h * n, d_k)"),
    ("A03", "all-axes-turned", "`.T` turns all axes around; only two have to change places.",
     "x.T.reshape(*batch, n, h * d_k)"),
    ("X94", "axes-one-and-two",
     "You exchange the axes 1 and 2 whatever x is: count from the end (−3 and −2).",
     "np.swapaxes(x, 1, 2).reshape(*batch, n, h * d_k)"),
    ("X95", "axes-zero-and-one",
     "You exchange the axes 0 and 1 whatever x is: count from the end (−3 and −2).",
     "np.swapaxes(x, 0, 1).reshape(*batch, n, h * d_k)"),
    ("C08", "concatenated-over-the-batch",
     "You take the first axis for that of the heads: it is the third from the end, batch axes "
     "stand before it.",
     "np.concatenate(list(x), axis=-1)"),
    ("A48", "first-item-only", "Only the first batch item is merged; the others are 0.",
     "np.concatenate([np.swapaxes(x, -3, -2).reshape(*batch, n, -1)[:1], np.zeros((*batch, n, h * "
     "d_k))[1:]]) if batch else np.swapaxes(x, -3, -2).reshape(n, -1)"),
    ("A26", "rounded", "Your result is rounded: the numbers have to come out as they went in.",
     "np.round(np.swapaxes(x, -3, -2).reshape(*batch, n, h * d_k), 2)"),
    ("X89", "first-head-repeated",
     "Every head is repeated instead of being followed by the next one.",
     "np.concatenate([x[..., 0, :, :]] * h, axis=-1)"),
):  # fmt: skip
    merge.slip(code, name, message, JOIN, new)
merge.slip(
    "B64",
    "three-axes-only",
    "Your function takes (h, n, d_k) only; any number of batch axes may lead.",
    "*batch, h, n, d_k = x.shape",
    "h, n, d_k = x.shape\n    batch = ()",
)
merge.slip(
    "B64",
    "one-batch-axis",
    SAID["one-batch-axis"],
    "*batch, h, n, d_k = x.shape",
    "B, h, n, d_k = x.shape\n    batch = (B,)",
)


@merge.misconception("A24", "Your function writes into x: the caller's heads are changed.")
def writes_into_x(x):
    *batch, h, n, d_k = x.shape
    result = np.swapaxes(x, -3, -2).reshape(*batch, n, h * d_k).copy()
    x[...] = result.reshape(x.shape)
    return result


@merge.misconception(
    "X97", "Number and width of the heads are exchanged: the rows of your result belong to columns."
)
def positions_and_columns_exchanged(x):
    *batch, h, n, d_k = x.shape
    return np.swapaxes(np.swapaxes(x, -3, -2).reshape(*batch, n, h * d_k), -1, -2)


@merge.alternative("concatenate")
def by_concatenate(x):
    return np.concatenate([x[..., i, :, :] for i in range(x.shape[-3])], axis=-1)


@merge.alternative("moveaxis and −1")
def by_moveaxis(x):
    x = np.moveaxis(x, -3, -2)
    return np.ascontiguousarray(x).reshape(x.shape[:-2] + (-1,))


@merge.alternative("filled column by column")
def column_by_column(x):
    h, n, d_k = x.shape[-3:]
    result = np.zeros(x.shape[:-3] + (n, h * d_k))
    for i in range(h):
        result[..., i * d_k : (i + 1) * d_k] = x[..., i, :, :]
    return result


@merge.alternative("lists")
def merged_lists(x):
    x = np.asarray(x)
    if x.ndim > 3:
        return [merged_lists(item) for item in x]
    return [[float(v) for head in x for v in head[p]] for p in range(x.shape[1])]


@merge.alternative("einsum with an identity")
def merged_by_einsum(x):
    h, _, d_k = x.shape[-3:]
    return np.einsum("...hnk,hkd->...nd", x, np.eye(h * d_k).reshape(h, d_k, -1))


@merge.alternative("transpose of a flattened batch")
def merged_flat(x):
    h, n, d_k = x.shape[-3:]
    return x.reshape(-1, h, n, d_k).transpose(0, 2, 1, 3).reshape(*x.shape[:-3], n, h * d_k)


# --- multi_head_attention ------------------------------------------------------------------------

mha = exercise.function("multi_head_attention", uses=("split_heads", "merge_heads"))
ARGUMENTS = "x, W_q, W_k, W_v, W_o, num_heads"
CALL = f"multi_head_attention({ARGUMENTS})"
MASKED = f"multi_head_attention({ARGUMENTS}, mask)"

# Three positions of width 4, or two of width 2, in two heads; no matrix equals another.
X34 = np.array([[1.0, 0.0, 2.0, -1.0], [0.0, 1.0, -1.0, 1.0], [1.0, 1.0, 0.0, 0.5]])
FOUR = {
    "W_q": np.array([[1.0, 0, 0, 1], [0, 1, 1, 0], [0, -1, 1, 0], [1, 0, 0, 0]]),
    "W_k": np.array([[0.0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0], [-1, 0, 1, 0]]),
    "W_v": np.array([[1.0, 0, 2, 0], [0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, -1]]),
    "W_o": np.array([[1.0, 2, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [1, 0, 0, 3]]),
}
SMALL = {"x": X34, **FOUR, "num_heads": 2}
PAIR = {
    "x": np.array([[1.0, -1.0], [0.5, 1.0]]),
    "W_q": np.array([[1.0, 0.5], [0.0, 1.0]]),
    "W_k": np.array([[1.0, 0.0], [-1.0, 1.0]]),
    "W_v": np.array([[1.0, 2.0], [0.0, 1.0]]),
    "W_o": np.array([[2.0, 0.0], [1.0, 1.0]]),
    "num_heads": 2,
}
TWICE = {**PAIR, "x": np.stack([PAIR["x"], PAIR["x"] - 1.0])}
WHOLE = {
    "x": np.array([[1, 0], [0, 1]]),
    "W_q": np.array([[1, 1], [0, -1]]),
    "W_k": np.array([[0, 1], [1, 0]]),
    "W_v": np.array([[3, 1], [0, 2]]),
    "W_o": np.array([[1, 2], [0, 1]]),
    "num_heads": 2,
}
PAST = np.tri(2, dtype=bool)
# Position 1 is hidden; as a key it scores far above the others.
FAR = {
    "x": np.array([[1.0, -150.0], [1.0, 100.0], [0.5, -149.0]]),
    "W_q": np.array([[1.0, 0.0], [0.0, 0.0]]),
    "W_k": np.array([[0.0, 0.0], [1.0, 0.0]]),
    "W_v": np.eye(2),
    "W_o": np.eye(2),
    "num_heads": 1,
    "mask": np.array([[True, False, True]]),
}


mha.witness("values", "C1", CALL + "[1]", **SMALL)
mha.witness("values", "C2", CALL, **{**PAIR, "num_heads": 1})
mha.witness("values", "C3", CALL + "[0]", **{**SMALL, "x": X34[:2]})
mha.witness("mask", "C4", MASKED + "[1]", **PAIR, mask=PAST)
mha.witness("mask", "C4", MASKED + "[0]", **PAIR, mask=np.array([[False, True]]))
mha.witness("mask", "C4", MASKED + "[1]", **FAR)
mha.witness(
    "headmask", "C5", MASKED + "[1]", **PAIR,
    mask=np.stack([PAST, ~PAST[::-1] | np.eye(2, dtype=bool)]),
)  # fmt: skip
mha.witness(
    "headmask", "C5", MASKED + "[1]", **TWICE, mask=np.array([[[[True, False]], [[False, True]]]])
)
mha.witness(
    "nothing", "C6", MASKED + "[1]", **PAIR,
    mask=np.array([[[False, True], [False, False]], [[True, True], [True, True]]]),
    options={"no_warning": True},
)  # fmt: skip
mha.witness(
    "nothing", "C6", MASKED + "[0]", **PAIR, mask=np.array([[False, True], [False, False]]),
    options={"no_warning": True},
)  # fmt: skip
mha.witness(
    "batches", "C7", MASKED + "[0]", **TWICE, mask=np.array([[[True, True]], [[False, True]]])
)
mha.witness(  # the mask has fewer axes than x, and still its first belongs to the batch
    "batches",
    "C7",
    MASKED + "[1]",
    **{**TWICE, "x": TWICE["x"][None]},
    mask=np.array([[[True, True]], [[False, True]]]),
)
mha.witness(
    "batches", "C7", MASKED + "[1]", **{**TWICE, "x": TWICE["x"][None]},
    mask=np.array([[[[True, True]], [[False, True]]]]),
)  # fmt: skip
mha.witness("batches", "C7", CALL + "[1]", **TWICE)
mha.witness("numbers", "C8", CALL + "[1]", **{**PAIR, "x": PAIR["x"] * [[2000.0], [1.0]]})
mha.witness("numbers", "C8", CALL + "[0]", **WHOLE)
mha.witness(
    "errors", "C9", CALL,
    **{**PAIR, "x": np.ones((2, 3)), **{name: np.ones((3, 3)) for name in FOUR}}, options=RAISES,
)  # fmt: skip
mha.witness("errors", "C9", CALL, **{**PAIR, "W_k": np.ones((3, 2))}, options=RAISES)
mha.witness("errors", "C9", CALL, **{**PAIR, "W_o": np.ones((1, 2))}, options=RAISES)
mha.witness("errors", "C9", MASKED, **PAIR, mask=np.ones((3, 2, 2), bool), options=RAISES)


@mha.hidden("values")
def _(rng):
    for n, d, h in ((5, 12, 3), (4, 15, 5), (7, 6, 3), (1, 6, 3), (5, 4, 4), (6, 5, 1), (2, 14, 2)):
        yield Example("C3", CALL, multi_head_case(rng, (), n, d, h))
    for n, d, h in (
        (3, 9, 3),
        (6, 6, 2),
        (4, 8, 4),
    ):  # sizes that agree: a wrong axis keeps the shape
        yield Example("C1", CALL, multi_head_case(rng, (), n, d, h))
    case = multi_head_case(rng, (), 4, 32, 2)
    yield Example("C2", CALL + "[1]", case)
    yield Example("C2", CALL + "[1]", {**case, "num_heads": 4})
    keywords = "multi_head_attention(x=x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o, num_heads=num_heads)"
    yield Example("C3", keywords, multi_head_case(rng, (), 5, 6, 2))
    case = multi_head_case(rng, (), 5, 6, 3)
    yield Example("C3", MASKED, {**case, "mask": None})
    yield Example("C3", CALL, {**case, "W_o": np.eye(6)})
    yield Example("C1", CALL, {**case, "W_q": case["W_k"], "W_k": case["W_q"]})
    yield Example("C3", CALL, {**case, "W_v": np.zeros((6, 6))})


@mha.hidden("mask")
def _(rng):
    case = multi_head_case(rng, (), 7, 6, 3)
    yield Example("C4", MASKED, {**case, "mask": some_mask(rng, 7, 7)})
    yield Example("C4", MASKED, {**case, "mask": np.tri(7, dtype=bool)})
    yield Example("C4", MASKED, {**case, "mask": np.ones((7, 7), bool)})
    yield Example(
        "C4",
        CALL.replace("num_heads)", "num_heads, mask=mask)"),
        {**case, "mask": some_mask(rng, 1, 7)},
    )
    yield Example("C4", MASKED, {**multi_head_case(rng, (), 3, 9, 3), "mask": some_mask(rng, 3, 3)})
    hidden = np.array([False, True, False, False, True])
    for lift in (75, 290):  # hidden keys far above the visible ones expose weak penalties
        yield Example("C4", MASKED, hidden_above(multi_head_case(rng), hidden, lift))
    case = hidden_above(multi_head_case(rng, dtype=np.float32), hidden, 70)
    yield Example("C4", MASKED, case, **COARSE)
    yield Example(
        "C4", MASKED, {**all_scores_at(multi_head_case(rng), -120.0), "mask": some_mask(rng, 5, 5)}
    )


@mha.hidden("headmask")
def _(rng):
    for n, d, h in ((5, 12, 3), (7, 10, 5), (3, 9, 3)):
        yield Example(
            "C5", MASKED, {**multi_head_case(rng, (), n, d, h), "mask": some_mask(rng, h, n, n)}
        )
    yield Example("C5", MASKED, {**multi_head_case(rng), "mask": some_mask(rng, 3, 1, 5)})
    yield Example("C5", MASKED, {**multi_head_case(rng), "mask": some_mask(rng, 1, 5, 5)})
    batch = multi_head_case(rng, (4,), 5, 6, 3)
    for leading in ((4, 3, 5), (1, 3, 1), (4, 1, 1), (4, 1, 5), (1, 1, 5)):
        yield Example("C5", MASKED, {**batch, "mask": some_mask(rng, *leading, 5)})
    yield Example(
        "C5", MASKED, {**multi_head_case(rng, (3,), 4, 6, 3), "mask": some_mask(rng, 3, 3, 4, 4)}
    )
    two = multi_head_case(rng, (2, 3), 4, 6, 2)
    yield Example("C5", MASKED, {**two, "mask": some_mask(rng, 2, 3, 2, 1, 4)})


@mha.hidden("nothing")
def _(rng):
    mask = some_mask(rng, 5, 5)
    mask[int(rng.integers(5))] = False
    yield Example("C6", MASKED, {**multi_head_case(rng), "mask": mask}, no_warning=True)
    mask = some_mask(rng, 3, 5, 5)
    mask[int(rng.integers(3)), 2] = False
    mask[:, 4] = False
    yield Example("C6", MASKED, {**multi_head_case(rng), "mask": mask}, no_warning=True)
    mask = np.ones((3, 1, 5), bool)
    mask[2] = False
    yield Example("C6", MASKED, {**multi_head_case(rng), "mask": mask}, no_warning=True)
    yield Example(
        "C6", MASKED, {**multi_head_case(rng), "mask": np.zeros((1, 5), bool)}, no_warning=True
    )
    single = multi_head_case(rng, dtype=np.float32)
    yield Example("C6", MASKED, {**single, "mask": np.tri(5, 5, -2, dtype=bool)}, no_warning=True)
    case = multi_head_case(rng)
    case["W_q"] *= 15
    yield Example("C6", MASKED, {**case, "mask": np.tri(5, 5, -1, dtype=bool)}, no_warning=True)


@mha.hidden("batches")
def _(rng):
    for batch in ((4,), (1,), (2, 3), (3, 1, 2)):
        case = multi_head_case(rng, batch, 5, 6, 3)
        yield Example("C7", CALL, case)
        yield Example("C7", MASKED, {**case, "mask": some_mask(rng, *batch, 5, 5)})
    # As many items as heads, as positions, as both: a misplaced axis keeps the shape.
    yield Example(
        "C7", MASKED, {**multi_head_case(rng, (3,), 4, 6, 3), "mask": some_mask(rng, 3, 4, 4)}
    )
    yield Example(
        "C7", MASKED, {**multi_head_case(rng, (3,), 3, 9, 3), "mask": some_mask(rng, 3, 1, 3)}
    )
    yield Example(
        "C7", MASKED, {**multi_head_case(rng, (3,), 3, 9, 3), "mask": some_mask(rng, 3, 3, 3)}
    )
    two = multi_head_case(rng, (2, 3), 4, 6, 3)
    yield Example("C7", MASKED, {**two, "mask": some_mask(rng, 3, 4, 4)})
    yield Example("C7", MASKED, {**two, "mask": some_mask(rng, 2, 1, 1, 4)})
    four = multi_head_case(rng, (4,), 5, 6, 3)
    yield Example("C7", MASKED, {**four, "mask": some_mask(rng, 5, 5)})
    yield Example("C7", MASKED, {**four, "mask": some_mask(rng, 4, 1, 5)})
    yield Example(
        "C7", MASKED, {**multi_head_case(rng, (3,), 3, 6, 3), "mask": some_mask(rng, 3, 3)}
    )
    yield Example("C7", CALL, fortran(multi_head_case(rng, (3,), 5, 8, 4)))
    pair = multi_head_case(rng, (2,), 4, 6, 3)
    for size in ((3, 1, 4), (3, 4, 4), (2, 2, 4, 4), (3, 3, 4, 4), (2, 4, 1, 4)):
        yield Example("C9", MASKED, {**pair, "mask": np.ones(size, bool)}, raises="ValueError")


@mha.hidden("numbers")
def _(rng):
    case = multi_head_case(rng, (), 5, 6, 2)
    case["x"][2] *= 1000  # one row of scores thousands above the others
    yield Example("C8", CALL, case)
    for level in (-2500.0, 1e6):
        case = all_scores_at(multi_head_case(rng), level)
        yield Example("C8", CALL, case)
        yield Example("C8", MASKED, {**case, "mask": some_mask(rng, 5, 5)})
    case = multi_head_case(rng)
    whole = integers(case)
    yield Example("C8", CALL, whole)
    yield Example("C8", CALL, {**case, "x": whole["x"]})
    yield Example("C8", CALL, {**case, "W_v": (case["W_v"] * 7).astype(int), "W_o": whole["W_o"]})
    yield Example("C8", MASKED, {**case, "mask": some_mask(rng, 5, 5)})
    yield Example("C8", CALL, multi_head_case(rng, (), 5, 16, 4, dtype=np.float32))
    single = multi_head_case(rng, (), 5, 6, 3, dtype=np.float32)
    yield Example("C8", MASKED, {**single, "mask": some_mask(rng, 3, 5, 5)})
    yield Example("C8", CALL, fortran(multi_head_case(rng, (), 5, 8, 4)))


@mha.hidden("errors")
def _(rng):
    for n, d, h in ((4, 6, 4), (3, 5, 2), (4, 7, 3), (4, 4, 8), (3, 3, 2), (4, 9, 6)):
        yield Example("C9", CALL, multi_head_case(rng, (), n, d, h), raises="ValueError")
    case = multi_head_case(rng, (), 4, 6, 3)
    for name in ("W_q", "W_k", "W_v", "W_o"):
        for size in ((7, 6), (1, 6), (5, 6), (4, 6)):
            if name == "W_o" and size[0] > 6:
                continue
            yield Example("C9", CALL, {**case, name: rng.normal(size=size)}, raises="ValueError")
    for name in ("W_q", "W_k", "W_v"):
        for size in ((6, 4), (6, 3), (6, 1)):
            yield Example("C9", CALL, {**case, name: rng.normal(size=size)}, raises="ValueError")
    yield Example("C9", CALL, {**case, "x": rng.normal(size=(4, 3))}, raises="ValueError")
    for size in ((5, 4), (4, 3), (2, 1, 4), (2, 4, 4), (4, 4, 4), (4, 1, 4)):
        yield Example("C9", MASKED, {**case, "mask": np.ones(size, bool)}, raises="ValueError")


# What only forgets the error comes first: where an error is asked for, all that returns is alike.
@mha.misconception("X75", SAID["cuts-to-size"])
def cuts_to_size(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    k = max(1, x.shape[-1] // num_heads)
    outputs, weights = [], []
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = mask[..., None, :, :]
    for i in range(num_heads):
        part = slice(i * k, (i + 1) * k)
        Q, K, V = (x[..., : len(W)] @ W[: x.shape[-1], part] for W in (W_q, W_k, W_v))
        k_i = min(Q.shape[-1], K.shape[-1])
        seen = (
            None
            if mask is None
            else mask[..., min(i, mask.shape[-3] - 1), -x.shape[-2] :, : x.shape[-2]]
        )
        try:
            o, w = attention(Q[..., :k_i], K[..., :k_i], V, seen)
        except ValueError:
            o, w = attention(Q[..., :k_i], K[..., :k_i], V)
        outputs.append(o), weights.append(w)
    joined = np.concatenate(outputs, axis=-1)
    width = min(joined.shape[-1], len(W_o))
    return joined[..., :width] @ W_o[:width], np.stack(weights, axis=-3)


@mha.misconception(
    "C10",
    "A width that the heads do not divide loses its last columns silently (d // h): a "
    "ValueError is asked for.",
)
def loses_columns(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d = x.shape[-1]
    if not W_q.shape == W_k.shape == W_v.shape == W_o.shape == (d, d):
        raise ValueError("shapes")
    k = max(d // num_heads, 1)
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    Q, K, V = (
        np.stack([linear(x, W)[..., i * k : (i + 1) * k] for i in range(min(num_heads, d))], -3)
        for W in (W_q, W_k, W_v)
    )
    heads, weights = attention(Q, K, V, mask)
    joined = merge_heads(heads)
    return joined @ W_o[: joined.shape[-1]], weights


@mha.misconception("X01", SAID["asserts"])
def asserts(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d, n = x.shape[-1], x.shape[-2]
    assert d % num_heads == 0 and all(W.shape == (d, d) for W in (W_q, W_k, W_v, W_o))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-2], n, n))[..., None, :, :]
    heads, weights = attention(*(split_heads(x @ W, num_heads) for W in (W_q, W_k, W_v)), mask)
    return merge_heads(heads) @ W_o, weights


@mha.misconception("X76", SAID["ignores-a-misfit"])
def ignores_a_misfit(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = mask[..., None, :, :]
    try:
        heads, weights = attention(Q, K, V, mask)
    except ValueError:
        heads, weights = attention(Q, K, V)
    return linear(merge_heads(heads), W_o), weights


@mha.misconception(
    "B44",
    "The mask's batch axis meets the heads. Only a mask with one axis more than x has an axis of "
    "heads; give the others one before their last two: mask[..., None, :, :].",
)
def mask_as_it_is(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d = x.shape[-1]
    if not W_q.shape == W_k.shape == W_v.shape == W_o.shape == (d, d):
        raise ValueError("shapes")
    heads, weights = attention(*(split_heads(x @ W, num_heads) for W in (W_q, W_k, W_v)), mask)
    return merge_heads(heads) @ W_o, weights


# Wrong ways to cut what is projected ({}), and wrong ways to join the heads.
CUTS = {
    "reshaped": "np.reshape({}, (*x.shape[:-2], num_heads, x.shape[-2], -1))",
    "interleaved": "np.moveaxis(np.reshape({}, (*x.shape[:-1], -1, num_heads)), -1, -3)",
    "exchanged": "split_heads({}, x.shape[-1] // num_heads)",
    "reversed": "split_heads({}, num_heads)[..., ::-1, :, :]",
    "uncut": "np.reshape({}, (*x.shape[:-1], num_heads, -1))",
}
JOINS = {
    "reshaped": "np.reshape(heads, x.shape)",
    "interleaved": "np.moveaxis(heads, -3, -1).reshape(x.shape)",
    "reversed": "merge_heads(heads[..., ::-1, :, :])",
}


def wrong_layout(code, name, message, cut=None, join=None, only="QKV"):
    """A misconception that cuts or joins in another way; `only` some of Q, K and V are cut so."""
    answer = exercise.text.answers["multi_head_attention"]
    for letter in only if cut else ():
        line = f"{letter} = split_heads(linear(x, W_{letter.lower()}), num_heads)"
        answer = answer.replace(
            line, f"{letter} = " + CUTS[cut].format(f"linear(x, W_{letter.lower()})")
        )
    if join:
        answer = answer.replace("merge_heads(heads)", JOINS[join])
    mha.slip(code, name, message, exercise.text.answers["multi_head_attention"], answer)


for code, name, message, changes in (
    ("C01", "cut-by-reshape", SAID["cut-by-reshape"], {"cut": "reshaped"}),
    ("C04", "cut-and-joined-by-reshape", SAID["cut-and-joined-by-reshape"],
     {"cut": "reshaped", "join": "reshaped"}),
    ("C01", "only-queries-cut-by-reshape",
     "The queries are cut by reshape alone, keys and values rightly: use the same cut for all "
     "three.",
     {"cut": "reshaped", "only": "Q"}),
    ("C01", "only-keys-cut-by-reshape",
     "The keys are cut by reshape alone, queries and values rightly: use the same cut for all "
     "three.",
     {"cut": "reshaped", "only": "K"}),
    ("C01", "only-values-cut-by-reshape",
     "The values are cut by reshape alone, queries and keys rightly: use the same cut for all "
     "three.",
     {"cut": "reshaped", "only": "V"}),
    ("C03", "joined-by-reshape",
     "Your weights are right; the heads are joined by one reshape, which mixes positions and "
     "heads. First exchange the axes of heads and positions.",
     {"join": "reshaped"}),
    ("C06", "interleaved",
     "Your heads take every h-th column and are joined the same way: consistent, and a convention "
     "of some libraries, but not the one here. Head i holds the columns i·d_k … (i+1)·d_k − 1 of "
     "each matrix.",
     {"cut": "interleaved", "join": "interleaved"}),
    ("C06", "cut-interleaved",
     "Your heads take every h-th column (0, h, 2h, …); here they take neighbouring columns.",
     {"cut": "interleaved"}),
    ("C07", "joined-column-by-column",
     "Your weights are right; the heads are interleaved when they are joined (first column 0 of "
     "each head, …). The columns of a head stay together.",
     {"join": "interleaved"}),
    ("C09", "heads-and-width-exchanged", SAID["heads-and-width-exchanged"], {"cut": "exchanged"}),
    ("X91", "joined-in-reverse", "Your weights are right; the heads are joined in reverse order.",
     {"join": "reversed"}),
    ("X91", "weights-in-reverse",
     "Your output is right; the weights come with the last head first.",
     {"cut": "reversed", "join": "reversed"}),
    ("X109", "heads-attend-to-heads",
     "Within each position the heads attend to each other: your weights are h × h for each "
     "position. The exchange of axes before `attention` is missing, so that it takes the heads for "
     "positions.",
     {"cut": "uncut", "join": "reshaped"}),
):  # fmt: skip
    wrong_layout(code, name, message, **changes)

# Slips in the answer's lines. The projections:
LINES = {
    letter: f"{letter} = split_heads(linear(x, W_{letter.lower()}), num_heads)" for letter in "QKV"
}
for letter, what in (("Q", "queries"), ("K", "keys"), ("V", "values")):
    line, matrix = LINES[letter], f"W_{letter.lower()}"
    for code, name, message, new in (
        (
            "C17",
            f"{what}-by-the-transposed-matrix",
            f"Your {what} are x times the transposed {matrix}, as a PyTorch layer stores it. "
            f"Here a matrix stands on the right as it is: x @ {matrix}.",
            line.replace(matrix, f"{matrix}.T"),
        ),
        (
            "C25",
            f"activated-{what}",
            f"An activation follows your {what} (negative entries have become 0): the "
            "projection alone is asked for.",
            f"{line}\n    {letter} = np.maximum({letter}, 0)",
        ),
        (
            "B56",
            f"x-for-{what}",
            f"Your {what} are slices of x itself: they are x @ {matrix}.",
            line.replace(f"linear(x, {matrix})", "x"),
        ),
        (
            "C14",
            f"{what}-of-head-0-for-all",
            f"All heads have the {what} of head 0: each head has its own block of columns of "
            f"{matrix}.",
            f"{line}\n    {letter} = np.broadcast_to({letter}[..., :1, :, :], {letter}.shape)",
        ),
        (
            "C13",
            f"{what}-from-slices-of-x",
            "x is cut before it is projected: head i then only sees its own columns of x. Its "
            f"{what} are all of x times its columns of {matrix}.",
            f"k = d // num_heads\n    {letter} = np.stack([x[..., i * k : (i + 1) * k] @ "
            f"{matrix}[i * k : (i + 1) * k, i * k : (i + 1) * k] "
            "for i in range(num_heads)], axis=-3)",
        ),
    ):
        mha.slip(code, name, message, line, new)
for code, name, message, old, new in (
    ("C17", "all-matrices-transposed",
     "All four matrices are applied transposed, as PyTorch layers store them (d_out, d_in). Here "
     "they are (d_in, d_out): x @ W.",
     "d = x.shape[-1]\n", "d = x.shape[-1]\n    W_q, W_k, W_v, W_o = W_q.T, W_k.T, W_v.T, W_o.T\n"),
    ("C17", "output-by-the-transposed-matrix",
     "Your weights are right; the output is multiplied by the transposed W_o. It is heads @ W_o.",
     "linear(merge_heads(heads), W_o)", "linear(merge_heads(heads), W_o.T)"),
    ("C14", "keys-from-the-query-matrix", SAID["keys-from-the-query-matrix"],
     LINES["K"], LINES["K"].replace("W_k", "W_q")),
    ("C14", "values-from-the-key-matrix",
     "Your values come from W_k, as the keys do: they have a matrix of their own, W_v.",
     LINES["V"], LINES["V"].replace("W_v", "W_k")),
    ("C19", "queries-and-keys-exchanged", SAID["queries-and-keys-exchanged"],
     "attention(Q, K, V, mask)", "attention(K, Q, V, mask)"),
    ("C19", "keys-and-values-exchanged",
     "Keys and values are exchanged: W_k makes what is compared, W_v what is averaged.",
     "attention(Q, K, V, mask)", "attention(Q, V, K, mask)"),
    ("C30", "cut-in-the-wrong-order",
     "The three projections are taken for each other: the first is the values', the last the "
     "queries' (or all three turn around).",
     "attention(Q, K, V, mask)", "attention(K, V, Q, mask)"),
    ("C20", "no-projections", "There is no projection: every head attends in slices of x itself.",
     "heads, weights =", "Q = K = V = split_heads(x, num_heads)\n    heads, weights ="),
    ("C22", "no-output-matrix",
     "Your weights are right; W_o is missing: the joined heads are multiplied by it.",
     "return linear(merge_heads(heads), W_o)", "return merge_heads(heads)"),
    ("C22", "output-matrix-too-early",
     "Your weights are right; W_o is applied to the values, before the heads: it mixes what the "
     "heads have found, side by side.",
     "return linear(merge_heads(heads), W_o)",
     "return merge_heads(weights @ split_heads(linear(linear(x, W_v), W_o), num_heads))"),
    ("C22", "output-matrix-twice",
     "Your weights are right; the joined heads are multiplied by W_o twice.",
     "return linear(merge_heads(heads), W_o)",
     "return linear(linear(merge_heads(heads), W_o), W_o)"),
    ("C23", "one-block-of-the-output-matrix",
     "Your weights are right; all heads are multiplied by the first rows of W_o. Head i meets the "
     "rows i·d_k … (i+1)·d_k − 1.",
     "return linear(merge_heads(heads), W_o)",
     "return sum(heads[..., i, :, :] @ W_o[: d // num_heads] for i in range(num_heads))"),
    ("C23", "blocks-of-the-output-matrix",
     "Your weights are right; each head has a square block of W_o to itself, so that the heads "
     "never mix. All of W_o multiplies all heads side by side.",
     "return linear(merge_heads(heads), W_o)",
     "k = d // num_heads\n"
     "    return np.concatenate([heads[..., i, :, :] @ W_o[i * k : (i + 1) * k, i * k : (i + 1) * "
     "k] for i in range(num_heads)], axis=-1)"),
    ("C25", "activated-output",
     "An activation follows W_o: your output has no negative entries. Nothing comes after W_o.",
     "return linear(merge_heads(heads), W_o)",
     "return np.maximum(linear(merge_heads(heads), W_o), 0)"),
    ("C26", "residual-added", SAID["residual-added"],
     "return linear(merge_heads(heads), W_o)", "return x + linear(merge_heads(heads), W_o)"),
    ("X110", "normalised-output",
     "The output is normalised (LayerNorm): that comes later, around attention, not in it.",
     "return linear(merge_heads(heads), W_o)",
     "y = linear(merge_heads(heads), W_o)\n"
     "    y = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + 1e-5)\n"
     "    return y"),
    ("C13", "one-small-matrix-for-all",
     "All heads share one small matrix, applied to slices of x: each head has d_k columns of the "
     "whole matrix, and sees all of x.",
     "heads, weights =",
     "k = d // num_heads\n"
     "    Q, K, V = (split_heads(x, num_heads) @ W[:k, :k] for W in (W_q, W_k, W_v))\n"
     "    heads, weights ="),
    ("C16", "row-blocks",
     "Head i takes rows of the matrices (W[i·d_k : (i+1)·d_k]); with x on the left it takes "
     "columns: W[:, i·d_k : (i+1)·d_k].",
     "heads, weights =",
     "k = d // num_heads\n"
     "    Q, K, V = (np.stack([x @ W[i * k : (i + 1) * k].T for i in range(num_heads)], axis=-3) "
     "for W in (W_q, W_k, W_v))\n"
     "    heads, weights ="),
    ("C15", "one-column-a-head",
     "Head i takes a single row or column of the matrices (W[i]): it has d_k of them, the columns "
     "i·d_k … (i+1)·d_k − 1.",
     "heads, weights =",
     "Q, K, V = (np.stack([x @ W[i][:, None] for i in range(num_heads)], axis=-3) for W in (W_q, "
     "W_k, W_v))\n"
     "    heads, weights ="),
    ("C30", "cut-by-head-first",
     "Queries, keys and values are taken from one product whose columns you cut by heads first and "
     "by Q, K, V then. With the three matrices side by side it is the other way round.",
     "heads, weights =",
     "fused = split_heads(x @ np.concatenate([W_q, W_k, W_v], axis=1), num_heads)\n"
     "    Q, K, V = np.split(fused, 3, axis=-1)\n"
     "    heads, weights ="),
    ("C33", "last-head-for-all",
     "All heads are the last one: is the result overwritten in the loop?",
     "return linear(",
     "heads, weights = (np.repeat(part[..., -1:, :, :], num_heads, axis=-3) for part in (heads, "
     "weights))\n"
     "    return linear("),
    ("C33", "first-head-only",
     "Only head 0 contributes to the output: look for a `return` inside the loop, or an index 0.",
     "return linear(",
     "heads = heads * (np.arange(num_heads) == 0)[:, None, None]\n    return linear("),
    ("X111", "heads-averaged",
     "The heads are averaged, and each gets the mean: they stand side by side.",
     "return linear(",
     "heads = np.broadcast_to(heads.mean(-3, keepdims=True), heads.shape)\n    return linear("),
    ("X112", "one-head", "num_heads is not used: there is one head as wide as x.",
     "heads, weights =",
     "Q, K, V = (np.expand_dims(merge_heads(part), -3) for part in (Q, K, V))\n"
     "    heads, weights ="),
    ("X112", "one-head-repeated",
     "All heads have the weights of one attention over the whole width: each head has its own, "
     "from its slice.",
     "heads, weights =",
     "_, weights = attention(*(np.broadcast_to(np.expand_dims(merge_heads(part), -3), "
     "(*Q.shape[:-1], d)) for part in (Q, K, V)), mask)\n"
     "    heads = weights @ V\n"
     "    _ ="),
    ("X113", "scores-averaged",
     "All heads share the mean of their scores: each has its own weights.",
     "heads, weights =",
     "scores = np.broadcast_to(attention_scores(Q, K).mean(-3, keepdims=True), (*Q.shape[:-1], "
     "x.shape[-2]))\n"
     "    visible = np.broadcast_to(True if mask is None else mask, scores.shape)\n"
     "    weights = softmax(np.where(visible, scores, -1e9)) * visible.any(-1, keepdims=True)\n"
     "    heads = weights @ V\n"
     "    _ ="),
    ("X114", "values-not-cut",
     "Each head averages all of V, and the heads' results are averaged: a head averages its own "
     "columns of V only.",
     "return linear(merge_heads(heads), W_o)",
     "return linear((weights @ linear(x, W_v)[..., None, :, :]).mean(-3), W_o)"),
    ("X115", "one-after-the-other",
     "The heads run one after the other, each on the output of the one before, like layers: they "
     "all work on the same x, side by side.",
     "heads, weights =",
     "for i in range(1, num_heads):\n"
     "        before = attention(Q[..., i - 1, :, :], K[..., i - 1, :, :], V[..., i - 1, :, "
     ":])[0]\n"
     "        Q[..., i, :, :], K[..., i, :, :] = before, before\n"
     "    heads, weights ="),
):  # fmt: skip
    mha.slip(code, name, message, old, new)

# The scale:
for code, name, message, factor in (
    ("B03", "scaled-by-the-width-of-the-model",
     "The scores are divided by √d, the root of the model's width: your weights are too flat. The "
     "width that counts is that of a head, d_k = d / h.",
     "num_heads ** -0.5"),
    ("B01", "no-scale", SAID["no-scale"], "math.sqrt(Q.shape[-1])"),
    ("B02", "divided-by-d-k", SAID["divided-by-d-k"], "Q.shape[-1] ** -0.5"),
    ("B08", "multiplied", SAID["multiplied"], "Q.shape[-1]"),
    ("B11", "scaled-by-both-widths",
     "The scores are divided by √d_k and by √d as well: the width of a head alone counts.",
     "d ** -0.5"),
    ("B03", "scaled-by-the-number-of-heads",
     "The scores are divided by √h, the root of the number of heads. The width of a head counts: "
     "√d_k.",
     "math.sqrt(Q.shape[-1] / num_heads)"),
    ("B03", "scaled-by-the-length",
     "The scores are divided by √n, the root of the number of positions. The width of a head "
     "counts: √d_k.",
     "math.sqrt(Q.shape[-1] / x.shape[-2])"),
    ("B07", "constant-scale", SAID["constant-scale"], "math.sqrt(Q.shape[-1]) / 8"),
):  # fmt: skip
    mha.slip(
        code, name, message, "attention(Q, K, V, mask)", f"attention(Q * ({factor}), K, V, mask)"
    )

# What is returned:
for code, name, message, old, new in (
    ("B61", "output-only", SAID["output-only"], "W_o), weights", "W_o)"),
    ("B61", "weights-first", SAID["weights-first"],
     "return linear(merge_heads(heads), W_o), weights",
     "return weights, linear(merge_heads(heads), W_o)"),
    ("B13", "weights-averaged",
     "Your weights are the mean over the heads, as PyTorch's MultiheadAttention returns them. Here "
     "each head's weights are asked for, (…, h, n, n).",
     "W_o), weights", "W_o), weights.mean(axis=-3)"),
    ("J13", "weights-summed",
     "Your weights are summed over the heads: each head's own are asked for, (…, h, n, n).",
     "W_o), weights", "W_o), weights.sum(axis=-3)"),
    ("C33", "weights-of-the-last-head",
     "You return the weights of one head; those of all are asked for, (…, h, n, n).",
     "W_o), weights", "W_o), weights[..., -1, :, :]"),
    ("C08", "heads-before-the-batch", SAID["heads-before-the-batch"],
     "W_o), weights", "W_o), np.moveaxis(weights, -3, 0)"),
    ("X88", "heads-last",
     "The heads are the last axis of your weights; the shape asked for is (…, h, n, n).",
     "W_o), weights", "W_o), np.moveaxis(weights, -3, -1)"),
    ("B53", "weights-transposed",
     "Your output is right; the weights are returned transposed: their rows belong to queries, "
     "their columns to keys.",
     "W_o), weights", "W_o), np.swapaxes(weights, -1, -2)"),
    ("X14", "scores-returned", SAID["scores-returned"],
     "W_o), weights", "W_o), attention_scores(Q, K)"),
    ("X116", "joined-heads-returned-too",
     "You return three results; the output and the weights are asked for.",
     "W_o), weights", "W_o), weights, merge_heads(heads)"),
    ("X117", "unmasked-weights-returned",
     "Your output is right; the weights that you return are those without the mask.",
     "W_o), weights", "W_o), attention(Q, K, V)[1]"),
    ("A21", "rounded", SAID["rounded"], "W_o), weights", "W_o).round(4), weights.round(4)"),
    ("A26", "output-like-x", SAID["output-like-x"],
     "return linear(merge_heads(heads), W_o)",
     "return linear(merge_heads(heads), W_o).astype(x.dtype)"),
    ("B59", "transposed-weights-used", SAID["transposed-weights-used"],
     "return linear(", "heads = np.swapaxes(weights, -1, -2) @ V\n    return linear("),
    ("J08", "softmax-twice", SAID["softmax-twice"],
     "return linear(", "weights = softmax(weights)\n    heads = weights @ V\n    return linear("),
    ("A35", "dropout",
     "Some weights are 0 and the others too large (dropout): every call has to use all weights.",
     "return linear(",
     "weights = weights * (np.random.default_rng(0).random(weights.shape) > 0.1) / 0.9\n"
     "    heads = weights @ V\n"
     "    return linear("),
):  # fmt: skip
    mha.slip(code, name, message, old, new)

# The mask:
SEEN = "np.broadcast_to(mask, (*Q.shape[:-1], x.shape[-2]))"
for code, name, message, new in (
    ("B47", "mask-not-used", SAID["mask-not-used"], "attention(Q, K, V)"),
    ("B38", "mask-the-other-way", SAID["mask-the-other-way"],
     "attention(Q, K, V, None if mask is None else ~mask)"),
    ("B43", "mask-on-queries", SAID["mask-on-queries"],
     f"attention(Q, K, V, mask if mask is None else np.swapaxes({SEEN}, -1, -2))"),
    ("X120", "mask-for-head-0-only", "Only head 0 obeys the mask: it holds for every head.",
     f"attention(Q, K, V, mask if mask is None else {SEEN} | (np.arange(num_heads) > 0)[:, "
     "None, None])"),
    ("X121", "first-heads-mask-for-all", "All heads obey the mask of head 0: each has its own.",
     "attention(Q, K, V, mask if mask is None else mask[..., :1, :, :])"),
    ("B42", "any-heads-mask",
     "A key that one head may see is seen by all: each head has its own mask.",
     "attention(Q, K, V, mask if mask is None else mask.any(axis=-3, keepdims=True))"),
    ("B42", "all-heads-mask",
     "A key that one head must not see is hidden from all: each head has its own mask.",
     "attention(Q, K, V, mask if mask is None else mask.all(axis=-3, keepdims=True))"),
    ("X122", "heads-mask-in-reverse",
     "The heads obey each other's masks: head i obeys mask[…, i, :, :].",
     "attention(Q, K, V, mask if mask is None else mask[..., ::-1, :, :])"),
    ("A48", "mask-of-the-first-item", SAID["mask-of-the-first-item"],
     "attention(Q, K, V, mask if mask is None or x.ndim == 2 else "
     f"np.broadcast_to({SEEN}[(0,) * (x.ndim - 2)], {SEEN}.shape))"),
    ("B45", "masks-tiled-in-the-other-order",
     "Batch items and heads get each other's masks: the mask is repeated in the other order than "
     "the heads (np.tile where np.repeat is meant, or the reverse).",
     f"attention(Q, K, V, mask if mask is None or x.ndim == 2 else np.swapaxes({SEEN}, -4, "
     f"-3).reshape({SEEN}.shape))"),
    ("B43", "only-the-first-row-of-the-mask",
     "All queries get the mask of the first query: each row of the mask is its own.",
     "attention(Q, K, V, mask if mask is None else mask[..., :1, :])"),
    ("X18", "always-causal", SAID["always-causal"],
     "attention(Q, K, V, causal_mask(x.shape[-2]) if mask is None else causal_mask(x.shape[-2]) & "
     "mask)"),
    ("X67", "causal-without-a-mask", SAID["causal-without-a-mask"],
     "attention(Q, K, V, causal_mask(x.shape[-2]) if mask is None else mask)"),
    ("X69", "always-itself", SAID["always-itself"],
     "attention(Q, K, V, mask if mask is None else mask | np.eye(x.shape[-2], dtype=bool))"),
    ("B33", "empty-rows-see-all", SAID["empty-rows-see-all"],
     "attention(Q, K, V, mask if mask is None else mask | ~mask.any(-1, keepdims=True))"),
    ("B33", "last-key-unlocked",
     "A query that sees nothing looks at the last position: it must get weights 0.",
     f"attention(Q, K, V, mask if mask is None else np.where({SEEN}.any(-1, keepdims=True), "
     f"{SEEN}, np.arange(x.shape[-2]) == x.shape[-2] - 1))"),
    ("X123", "empty-in-one-head-empty-in-all",
     "A query that sees nothing in one head gets nothing from the others either: they go on.",
     f"attention(Q, K, V, mask if mask is None else {SEEN} & {SEEN}.any(-1, "
     "keepdims=True).all(-3, keepdims=True))"),
):  # fmt: skip
    mha.slip(code, name, message, "attention(Q, K, V, mask)", new)
WITHOUT_HEADS = (
    "        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))  # (…, n, n)\n"
    "        mask = mask[..., None, :, :]  # (…, n, n) -> (…, 1, n, n)\n"
)
for code, name, message, old, new in (
    ("B44", "three-axes-mean-heads",
     "A mask of three axes is always taken for a mask of the heads. With a batch, (B, n, n) has "
     "none: compare the number of its axes with that of x.",
     "mask.ndim != x.ndim + 1", "mask.ndim not in (3, x.ndim + 1)"),
    ("X124", "mask-of-heads-unknown",
     "A mask with an axis of heads is not taken for one: where it has one axis more than x, the "
     "third from the end belongs to the heads.",
     "if mask is not None and mask.ndim != x.ndim + 1:", "if mask is not None:"),
    ("B44", "only-as-many-axes",
     "A mask with fewer axes than x is handed on without an axis of heads, and its first axis "
     "meets them: broadcast it to (…, n, n) first.",
     WITHOUT_HEADS, "        mask = mask[..., None, :, :] if mask.ndim in (2, x.ndim) else mask\n"),
    ("X125", "four-axes-mean-heads",
     "Only a mask of four axes is taken for a mask of the heads. Without a batch it has three: "
     "compare the number of its axes with that of x.",
     "mask.ndim != x.ndim + 1", "mask.ndim != 4"),
    ("B44", "axis-after-the-first",
     "The axis of heads is put after the mask's first axis, whatever that is: put it before the "
     "last two, mask[..., None, :, :].",
     WITHOUT_HEADS, "        mask = mask[:, None]\n"),
    ("B44", "axis-in-front",
     "The axis of heads is put in front of the mask; it belongs between the batch axes and the "
     "queries.",
     WITHOUT_HEADS, "        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[None]\n"),
):  # fmt: skip
    mha.slip(code, name, message, old, new)

# The softmax by hand:
BY_HAND = (
    "scores = attention_scores(Q, K)\n"
    "    visible = np.broadcast_to(True if mask is None else mask, scores.shape)\n    "
)
for code, name, message, lines in (
    ("X118", "softmax-over-heads",
     "Your softmax runs over the heads: for each pair of positions the heads' weights sum to 1. It "
     "runs over the keys.",
     "weights = softmax(np.where(visible, scores, -1e9), axis=-3)"),
    ("X119", "softmax-over-heads-and-keys",
     "The weights of all heads together sum to 1 for each query; each head's own should.",
     "e = np.exp(scores - scores.max(axis=(-3, -1), keepdims=True)) * visible\n"
     "    weights = e / e.sum(axis=(-3, -1), keepdims=True)"),
    *wrong_weights(
        nan_rows="A query that sees nothing gets NaN, and `W_o` spreads it over all heads: give it "
        "weights 0."
    ),
    ("B28", "penalty-divided", SAID["penalty-divided"],
     "weights = softmax(np.where(visible, scores, scores - 100 / math.sqrt(Q.shape[-1])))"),
):  # fmt: skip
    mha.slip(
        code,
        name,
        message,
        "heads, weights = attention(Q, K, V, mask)  # (…, h, n, d_k), (…, h, n, n)",
        BY_HAND + lines + "\n    heads = weights @ V",
    )


@mha.misconception("A24", "Your function changes x in place: the caller's numbers are gone.")
def changes_x(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d = x.shape[-1]
    if not W_q.shape == W_k.shape == W_v.shape == W_o.shape == (d, d):
        raise ValueError("shapes")
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    heads, weights = attention(Q, K, V, mask)
    x[...] = merge_heads(heads)
    return linear(merge_heads(heads), W_o), weights


@mha.misconception("A24", "Your function scales W_q in place: every call scales it once more.")
def scales_the_matrix(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d = x.shape[-1]
    if not W_q.shape == W_k.shape == W_v.shape == W_o.shape == (d, d):
        raise ValueError("shapes")
    if W_q.dtype.kind != "f":
        W_q = W_q.astype(float)
    W_q *= 0.5
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (2 * W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    heads, weights = attention(Q, K, V, mask)
    return linear(merge_heads(heads), W_o), weights


@mha.misconception(
    "A26", "The heads are collected in an array of x's dtype: for integers the decimals are lost."
)
def collected_like_x(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d = x.shape[-1]
    if d % num_heads or not W_q.shape == W_k.shape == W_v.shape == W_o.shape == (d, d):
        raise ValueError("shapes")
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    heads, weights = attention(Q, K, V, mask)
    joined = np.zeros_like(x)
    joined[...] = merge_heads(heads)
    return linear(joined, W_o), weights


@mha.misconception("A47", SAID["in-single-precision"])
def in_single_precision(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    x, W_q, W_k, W_v, W_o = (np.asarray(a, dtype=np.float32) for a in (x, W_q, W_k, W_v, W_o))
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    heads, weights = attention(Q, K, V, mask)
    return linear(merge_heads(heads), W_o), weights


@mha.misconception("A48", SAID["first-item-only"])
def first_item_only(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    heads, weights = attention(Q, K, V, mask)
    output = linear(merge_heads(heads), W_o)
    if x.ndim > 2:
        output[1:], weights[1:] = 0, 0
    return output, weights


@mha.misconception("B64", SAID["two-axes-only"])
def two_axes_only(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    n, d = x.shape
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    heads, weights = attention(Q, K, V, mask)
    return linear(merge_heads(heads), W_o), weights


@mha.misconception("B64", SAID["one-batch-axis"])
def one_batch_axis(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    B, n, d = x.shape
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != 4:
        mask = np.broadcast_to(mask, (B, n, n))[:, None]
    heads, weights = attention(Q, K, V, mask)
    return linear(merge_heads(heads), W_o), weights


@mha.misconception("A03", SAID["transposed-all-axes"])
def transposed_all_axes(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    scores = Q @ K.T / math.sqrt(Q.shape[-1])
    visible = np.broadcast_to(True if mask is None else mask, scores.shape)
    weights = softmax(np.where(visible, scores, -1e9)) * visible.any(-1, keepdims=True)
    return linear(merge_heads(weights @ V), W_o), weights


@mha.misconception(
    "A03",
    "`K.T` turns the axes of heads around as well: head i then meets other heads' keys. "
    "Exchange the last two axes only.",
)
def keys_not_transposed(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    scores = Q @ np.swapaxes(np.moveaxis(K, -3, -1), -3, -2) / math.sqrt(Q.shape[-1])
    weights = softmax(scores)
    return linear(merge_heads(weights @ V), W_o), weights


@mha.misconception("X73", SAID["batch-as-one-sequence"])
def batch_as_one_sequence(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    flat = np.reshape(x, (-1, x.shape[-1])) if mask is None else x
    Q, K, V = (split_heads(linear(flat, W), num_heads) for W in (W_q, W_k, W_v))
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    heads, weights = attention(Q, K, V, mask)
    return linear(merge_heads(heads), W_o).reshape(x.shape), weights


@mha.misconception(
    "X126",
    "Positions are shared out among the heads: each head has to see all positions, in its "
    "slice of the columns.",
)
def positions_shared_out(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    n, d = x.shape[-2:]
    if d % num_heads:
        raise ValueError("heads")
    Q, K, V = (linear(x, W) for W in (W_q, W_k, W_v))
    i = np.arange(n) * num_heads // n
    visible = np.broadcast_to(i[:, None] == i, (*x.shape[:-2], n, n))
    if mask is not None and mask.ndim != x.ndim + 1:
        visible = visible & mask
    output, weights = attention(Q, K, V, visible)
    return linear(output, W_o), np.stack([weights] * num_heads, axis=-3)


@mha.alternative("a loop over the heads")
def by_a_loop(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    n, d = x.shape[-2], x.shape[-1]
    if d % num_heads:
        raise ValueError(f"{num_heads} heads, width {d}")
    d_k = d // num_heads
    if mask is not None:
        mask = np.asarray(mask)
        if mask.ndim <= x.ndim:
            mask = np.broadcast_to(mask, (*x.shape[:-2], n, n))[..., np.newaxis, :, :]
        mask = np.broadcast_to(mask, (*x.shape[:-2], num_heads, n, n))
    outputs, weights = [], []
    for i in range(num_heads):
        block = slice(i * d_k, (i + 1) * d_k)
        o, w = attention(
            x @ W_q[:, block],
            x @ W_k[:, block],
            x @ W_v[:, block],
            None if mask is None else mask[..., i, :, :],
        )
        outputs.append(o)
        weights.append(w)
    return np.concatenate(outputs, axis=-1) @ W_o, np.stack(weights, axis=-3)


@mha.alternative("einsum, −1e9, zeroed afterwards")
def by_einsum(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d = x.shape[-1]
    if d % num_heads != 0 or any(W.shape != (d, d) for W in (W_q, W_k, W_v, W_o)):
        raise ValueError("shapes")
    blocks = (d, num_heads, d // num_heads)
    q, k, v = (np.einsum("...nd,dhk->...hnk", x, W.reshape(blocks)) for W in (W_q, W_k, W_v))
    scores = np.einsum("...hik,...hjk->...hij", q, k) / (d // num_heads) ** 0.5
    if mask is None:
        mask = np.ones((1, 1), dtype=bool)
    if mask.ndim < x.ndim + 1:
        mask = np.broadcast_to(mask, x.shape[:-1] + x.shape[-2:-1])
        mask = np.expand_dims(mask, -3)
    visible = np.broadcast_to(mask, scores.shape)
    weights = softmax(np.where(visible, scores, -1e9), axis=-1)
    weights = np.where(visible.any(axis=-1, keepdims=True), weights, 0.0)
    output = np.einsum("...hij,...hjk,hkd->...id", weights, v, W_o.reshape(num_heads, -1, d))
    return output, weights


@mha.alternative("each head's part of W_o, summed")
def summed_over_heads(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    *batch, n, d = x.shape
    k, rest = divmod(d, num_heads)
    if rest or not (W_q.shape == W_k.shape == W_v.shape == W_o.shape == (d, d)):
        raise ValueError(f"{x.shape} {num_heads}")
    if mask is None:
        visible = np.ones((*batch, num_heads, n, n), dtype=bool)
    elif np.ndim(mask) == len(batch) + 3:
        visible = np.broadcast_to(mask, (*batch, num_heads, n, n))
    else:
        visible = np.stack([np.broadcast_to(mask, (*batch, n, n))] * num_heads, axis=-3)
    output, weights = 0, np.zeros(visible.shape)
    for i in range(num_heads):
        columns = np.arange(i * k, i * k + k)
        o, w = attention(
            x @ W_q[:, columns], x @ W_k[:, columns], x @ W_v[:, columns], visible[..., i, :, :]
        )
        output = output + o @ W_o[columns]
        weights[..., i, :, :] = w
    return output, weights


@mha.alternative("one product for queries, keys and values")
def one_big_product(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    d = x.shape[-1]
    for W in (W_q, W_k, W_v, W_o):
        if W.shape != (d, d):
            raise ValueError(f"a matrix is {W.shape}, x is {x.shape}")
    Q, K, V = np.split(x @ np.hstack([W_q, W_k, W_v]), 3, axis=-1)
    if mask is not None and np.ndim(mask) <= np.ndim(x):
        mask = np.reshape(mask, (*np.shape(mask)[:-2], 1, *np.shape(mask)[-2:]))
        np.broadcast_to(mask[..., 0, :, :], (*x.shape[:-1], x.shape[-2]))
    heads, weights = attention(
        split_heads(Q, num_heads), split_heads(K, num_heads), split_heads(V, num_heads), mask
    )
    return np.dot(merge_heads(heads), W_o), weights


@mha.alternative("loops over items and heads, lists out")
def loops_into_lists(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    x = np.asarray(x, dtype=float)
    n, d = x.shape[-2:]
    if d % num_heads:
        raise ValueError("d must be a multiple of num_heads")
    if any(np.shape(W) != (d, d) for W in (W_q, W_k, W_v, W_o)):
        raise ValueError("matrices")
    full = (*x.shape[:-2], num_heads, n, n)
    if mask is None:
        mask = np.ones(full, bool)
    elif mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(np.broadcast_to(mask, (*x.shape[:-2], n, n))[..., None, :, :], full)
    else:
        mask = np.broadcast_to(mask, full)
    if x.ndim > 2:
        pairs = [
            loops_into_lists(a, W_q, W_k, W_v, W_o, num_heads, m)
            for a, m in zip(x, mask, strict=True)
        ]
        return [p[0] for p in pairs], [p[1] for p in pairs]
    d_k = d // num_heads
    q, k, v = x @ W_q, x @ W_k, x @ W_v
    weights = [[[0.0] * n for _ in range(n)] for _ in range(num_heads)]
    joined = np.zeros((n, d))
    for h in range(num_heads):
        c = range(h * d_k, (h + 1) * d_k)
        for i in range(n):
            seen = [j for j in range(n) if mask[h][i][j]]
            scores = [sum(q[i, a] * k[j, a] for a in c) / math.sqrt(d_k) for j in seen]
            e = [math.exp(s - max(scores)) for s in scores]
            for j, value in zip(seen, e, strict=True):
                weights[h][i][j] = value / sum(e)
                for a in c:
                    joined[i, a] += weights[h][i][j] * v[j, a]
    return (joined @ W_o).tolist(), weights


@mha.alternative("heads folded into the batch, masked after the exponential")
def folded_into_the_batch(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    lead, n, d = x.shape[:-2], x.shape[-2], x.shape[-1]
    if d % num_heads:
        raise ValueError("heads")
    Q, K, V = (
        split_heads(linear(x, W), num_heads).reshape(-1, n, d // num_heads) for W in (W_q, W_k, W_v)
    )
    if mask is None:
        mask = np.array(True)
    elif mask.ndim == x.ndim + 1:
        mask = np.broadcast_to(mask, (*lead, num_heads, n, n))
    else:
        mask = np.repeat(np.broadcast_to(mask, (*lead, n, n))[..., None, :, :], num_heads, axis=-3)
    visible = np.broadcast_to(mask.reshape(-1, n, n) if mask.ndim else mask, (len(Q), n, n))
    scores = Q @ K.transpose(0, 2, 1) / math.sqrt(d // num_heads)
    top = np.max(scores, axis=-1, keepdims=True, initial=-1e30, where=visible)
    e = np.exp(np.minimum(scores - top, 0)) * visible
    total = e.sum(-1, keepdims=True)
    w = e / np.where(total > 0, total, 1)
    shape = (*lead, num_heads, n)
    return linear(merge_heads((w @ V).reshape(*shape, -1)), W_o), w.reshape(*shape, n)


@mha.alternative("bilinear forms, values pushed through W_o first")
def bilinear(x, W_q, W_k, W_v, W_o, num_heads, mask=None):
    W_q, W_k, W_v, W_o = (np.asarray(W, dtype=float) for W in (W_q, W_k, W_v, W_o))
    d = x.shape[-1]
    if not W_q.shape == W_k.shape == W_v.shape == W_o.shape == (d, d) or d % num_heads:
        raise ValueError
    q, k, v = (W.reshape(d, num_heads, -1).swapaxes(0, 1) for W in (W_q, W_k, W_v))  # (h, d, d_k)
    x_heads = x[..., None, :, :]
    scores = x_heads @ (q @ k.swapaxes(1, 2)) @ x_heads.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
    visible = np.broadcast_to(True if mask is None else mask, scores.shape)
    with np.errstate(all="ignore"):
        scores = np.where(visible, scores, -np.inf)
        weights = np.nan_to_num(softmax(scores))
    circuits = v @ W_o.reshape(num_heads, -1, d)  # (h, d, d)
    return (weights @ x_heads @ circuits).sum(axis=-3), weights


# --- MultiHeadAttention --------------------------------------------------------------------------

layer = exercise.function("MultiHeadAttention", uses=("multi_head_attention",))
MADE = "mha = MultiHeadAttention(d_model, num_heads, np.random.default_rng(seed))\n"
MATRICES = "W = np.array([mha.W_q, mha.W_k, mha.W_v, mha.W_o], dtype=float)\n"
DRAWN = MADE + MATRICES
SIZES = MADE + (
    "(mha.d_model, mha.num_heads, [np.shape(W) for W in (mha.W_q, mha.W_k, mha.W_v, mha.W_o)])"
)
# The same state gives the same matrices; the next object, and another state, give others.
REPEATED = (
    "def matrices(rng):\n"
    "    mha = MultiHeadAttention(4, 2, rng)\n"
    "    return [np.array(W) for W in (mha.W_q, mha.W_k, mha.W_v, mha.W_o)]\n"
    "one, other = np.random.default_rng(seed), np.random.default_rng(seed)\n"
    "first, again, following = matrices(one), matrices(other), matrices(one)\n"
    "another = matrices(np.random.default_rng(seed + 1))\n"
    "([np.array_equal(a, b) for a, b in zip(first, again)], [np.array_equal(a, b) for a, b in "
    "zip(first, following)], "
    "[np.array_equal(a, b) for a, b in zip(first, another)])"
)
SET = (
    "mha = MultiHeadAttention(x.shape[-1], num_heads, np.random.default_rng(1))\n"
    "mha.W_q, mha.W_k, mha.W_v, mha.W_o = W_q, W_k, W_v, W_o\n"
)
# The object's own matrices, used in the order of the contract, one head at a time.
OWN = MADE + (
    "k = d_model // num_heads\n"
    "heads = []\n"
    "for i in range(num_heads):\n"
    "    q, key, v = (x @ np.asarray(W)[:, i * k : (i + 1) * k] for W in (mha.W_q, mha.W_k, "
    "mha.W_v))\n"
    "    e = np.exp(q @ key.T / math.sqrt(k))\n"
    "    heads.append(e / e.sum(axis=1, keepdims=True) @ v)\n"
    "np.asarray(mha(x)[0]) - np.concatenate(heads, axis=1) @ np.asarray(mha.W_o)"
)
# Another object, and calls, leave the matrices of the first alone.
APART = (
    "mha = MultiHeadAttention(4, 2, np.random.default_rng(seed))\n"
    "before = [np.array(W) for W in (mha.W_q, mha.W_k, mha.W_v, mha.W_o)]\n"
    "other = MultiHeadAttention(4, 2, np.random.default_rng(seed + 1))\n"
    "other.W_q = np.zeros((4, 4))\n"
    "other(x), mha(x), mha(2 * x)\n"
    "[np.array_equal(a, b) for a, b in zip(before, (mha.W_q, mha.W_k, mha.W_v, mha.W_o))]"
)
# Each of these attributes, set after a call, changes the next one.
LATER = SET + "first = mha(x)\nmha.{0} = {0}2\nmha(x)"


NONE = (np.zeros(4, bool), np.zeros(4, bool))


def statistics(d_model, num_heads, seed):
    """The statistics of the four matrices of one object; the bounds lie six standard errors away."""
    size = {"d_model": d_model, "num_heads": num_heads, "seed": seed}
    count, std = d_model**2, math.sqrt(1 / d_model)
    each = {"rtol": 6 / math.sqrt(2 * count), "atol": 0, "once": True}
    yield Example("C1", DRAWN + "W.std(axis=(1, 2))", size, expect=np.full(4, std), **each)
    mean = {"rtol": 0, "atol": 6 * std / math.sqrt(count), "once": True}
    yield Example("C1", DRAWN + "W.mean(axis=(1, 2))", size, expect=np.zeros(4), **mean)
    bell = {"rtol": 0, "atol": 6 * 0.47 / math.sqrt(4 * count), "once": True}
    yield Example("C1", DRAWN + "np.mean(np.abs(W) < W.std())", size, expect=0.6827, **bell)
    # Every pair of matrices, also transposed: correlated entries are not drawn independently.
    pairs = (
        "rows = np.concatenate([W.reshape(4, -1), np.swapaxes(W, 1, 2).reshape(4, -1)])\n"
        "alike = np.abs(np.corrcoef(rows) - np.eye(8)) > 9 / d_model\n"
        "(alike[:4, :4].any(axis=0), alike[4:, :4].any(axis=0))"
    )
    yield Example("C1", DRAWN + pairs, size, expect=NONE, once=True)
    yield Example("C1", DRAWN + "np.unique(W).size > 0.9 * W.size", size, expect=True, once=True)


layer.witness("weights", "C1", SIZES, d_model=6, num_heads=2, seed=1)
layer.witness("weights", "C2", REPEATED, seed=5)
layer.witness("weights", "C2", APART, x=X34[:2], seed=5, options={"expect": [True] * 4})
for example in statistics(60, 3, 4):
    layer.witness(
        "weights",
        "C1",
        example.code,
        **example.inputs,
        options={
            "expect": example.expect,
            "rtol": example.rtol,
            "atol": example.atol,
            "once": True,
        },
    )
layer.witness("call", "C3", SET + "mha(x)", **PAIR)
layer.witness("call", "C3", SET + "mha(x, mask)", **PAIR, mask=PAST)
layer.witness("call", "C3", LATER.format("W_v"), **PAIR, W_v2=np.eye(2))
layer.witness("call", "C3", LATER.format("num_heads"), **PAIR, num_heads2=1)
layer.witness("errors", "C4", "MultiHeadAttention(4, 3, np.random.default_rng(1))", options=RAISES)


@layer.hidden("weights")
def _(rng):
    for d_model, num_heads in ((6, 3), (8, 1), (5, 5)):
        size = {"d_model": d_model, "num_heads": num_heads, "seed": int(rng.integers(1 << 30))}
        yield Example("C1", SIZES, size)
    seed = int(rng.integers(1 << 30))
    yield Example("C2", REPEATED, {"seed": seed})
    yield Example("C2", APART, {"x": rng.normal(size=(3, 4)), "seed": seed}, expect=[True] * 4)
    size = {"d_model": 64, "num_heads": 8, "seed": seed}
    yield from statistics(**size)
    tail = DRAWN + "np.abs(W).max() > 3.2 * W.std()"  # a truncated draw has no tail
    yield Example("C1", tail, size, expect=True, once=True)
    stretch = (
        DRAWN + "[np.linalg.norm(M, 2) > 1.5 for M in W]"
    )  # 2 for normal entries, 1 for a rotation
    yield Example("C1", stretch, size, expect=[True] * 4, once=True)


@layer.hidden("call")
def _(rng):
    for batch, n, d, h in (((), 5, 6, 3), ((3,), 4, 10, 5), ((2, 3), 4, 6, 2), ((), 3, 9, 3)):
        case = multi_head_case(rng, batch, n, d, h)
        yield Example("C3", SET + "mha(x)", case)
        yield Example("C3", SET + "mha(x, mask)", {**case, "mask": some_mask(rng, *batch, n, n)})
        yield Example(
            "C3", SET + "mha(x, mask=mask)", {**case, "mask": some_mask(rng, *batch, h, n, n)}
        )
    case = multi_head_case(rng, (), 5, 12, 3)
    for name in ("W_q", "W_k", "W_v", "W_o"):
        yield Example("C3", LATER.format(name), {**case, name + "2": rng.normal(size=(12, 12)) / 3})
    yield Example("C3", LATER.format("num_heads"), {**case, "num_heads2": 4})
    for d_model, num_heads in ((12, 3), (8, 4)):
        size = {"d_model": d_model, "num_heads": num_heads, "seed": int(rng.integers(1 << 30))}
        x = rng.normal(size=(5, d_model))
        yield Example("C3", OWN, {**size, "x": x}, expect=np.zeros((5, d_model)))
    mask = some_mask(rng, 5, 5)
    mask[3] = False
    yield Example("C3", SET + "mha(x, mask)", {**case, "mask": mask}, no_warning=True)


@layer.hidden("errors")
def _(rng):
    pairs = ((4, 8), (5, 2), (9, 6), (2 * int(rng.integers(3, 30)) + 1, 2), (7, 3))
    for d_model, num_heads in pairs:
        sizes = {"d_model": d_model, "num_heads": num_heads}
        code = "MultiHeadAttention(d_model, num_heads, np.random.default_rng(1))"
        yield Example("C4", code, sizes, raises="ValueError")
    code = "MultiHeadAttention(d_model=6, num_heads=4, rng=np.random.default_rng(1))"
    yield Example("C4", code, raises="ValueError")
    yield Example("C4", SIZES, {"d_model": 6, "num_heads": 6, "seed": 1})
    yield Example("C4", SIZES, {"d_model": 9, "num_heads": 3, "seed": 1})


DRAW = "xavier_normal(rng, d_model, d_model)"
NORMAL = "rng.normal(0.0, {}, size=(d_model, d_model))"
for code, name, message, new in (
    ("A40", "drawn-as-one-block",
     "Your matrices are too small by √2: √(1/(d + d)), or the spread of one block of 3·d columns. "
     "Here each matrix is drawn by itself, (d_model, d_model).",
     NORMAL.format("math.sqrt(2 / (4 * d_model))")),
    ("A40", "drawn-head-by-head",
     "Your matrices are too large: the spread is that of a head's block, (d_model, d_k). Here it "
     "is that of the whole matrix, (d_model, d_model).",
     NORMAL.format("math.sqrt(2 / (d_model + d_model // num_heads))")),
    ("A38", "he", "√(2/d) is He's start, for ReLU layers; Xavier's is √(2/(d + d)).",
     NORMAL.format("math.sqrt(2 / d_model)")),
    ("A37", "six",
     "√(6/(d + d)) is the bound of the uniform version, not the standard deviation of the normal "
     "one.",
     NORMAL.format("math.sqrt(3 / d_model)")),
    ("A41", "variance",
     "2/(d + d) is the variance; `normal` takes the standard deviation, its root.",
     NORMAL.format("1 / d_model")),
    ("A36", "missing-brackets", "√(2/d + d) lacks brackets: 2 is divided by the sum.",
     NORMAL.format("math.sqrt(2 / d_model + d_model)")),
    ("X50", "standard", "Your numbers are not scaled: their deviation is 1.", NORMAL.format("1.0")),
    ("X127", "a-fixed-small-number",
     "The deviation is 0.02 whatever the width (as in GPT-2 and BERT); Xavier's follows the width.",
     NORMAL.format("0.02")),
    ("A43", "uniform", "Your numbers are uniform with the right spread; normal ones are asked for.",
     "rng.uniform(-math.sqrt(3 / d_model), math.sqrt(3 / d_model), size=(d_model, d_model))"),
    ("A43", "truncated",
     "The tails are cut off: a normal distribution has numbers beyond two deviations.",
     "np.clip(rng.normal(0.0, math.sqrt(1 / d_model), size=(d_model, d_model)), -2 / "
     "math.sqrt(d_model), 2 / math.sqrt(d_model))"),
    ("X128", "orthogonal", "Your matrices are rotations: independent normal numbers are asked for.",
     "np.linalg.qr(rng.normal(size=(d_model, d_model)))[0]"),
    ("X53", "positive", "All your weights are positive: the mean has to be 0.",
     "np.abs(rng.normal(0.0, math.sqrt(1 / d_model), size=(d_model, d_model)))"),
    ("X129", "zeros", "Your matrices are zeros: they have to be drawn.",
     "np.zeros((d_model, d_model))"),
    ("X41", "global-generator",
     "The numbers come from np.random, not from rng: no seed repeats them.",
     "np.random.normal(0.0, math.sqrt(1 / d_model), size=(d_model, d_model))"),
    ("X42", "own-seed",
     "A generator of your own, with a fixed seed, gives the same matrices whatever rng is.",
     "xavier_normal(np.random.default_rng(int(np.random.SeedSequence(7).entropy)), d_model, "
     "d_model)"),
    ("X132", "as-wide-as-a-head",
     "Your matrices are as wide as one head; (d_model, d_model) is asked for: the heads' columns "
     "stand side by side in it.",
     "xavier_normal(rng, d_model, d_model // num_heads)"),
    ("X52", "one-row-repeated", "All rows are alike: every entry has to be drawn by itself.",
     "np.tile(xavier_normal(rng, d_model, d_model)[:1], (d_model, 1))"),
    ("X130", "one-block-repeated",
     "All heads have the same columns: every entry has to be drawn by itself.",
     "np.tile(xavier_normal(rng, d_model, d_model)[:, : d_model // num_heads], num_heads)"),
    ("X131", "symmetric", "Your matrices are symmetric: the entries have to be independent.",
     "(lambda W: (W + W.T) / math.sqrt(2))(xavier_normal(rng, d_model, d_model))"),
    ("X132", "stored-by-heads",
     "Your matrices are stored as (h, d, d_k); (d_model, d_model) is asked for, whose columns are "
     "the heads.",
     "xavier_normal(rng, d_model, d_model).reshape(d_model, num_heads, -1).swapaxes(0, 1)"),
):  # fmt: skip
    layer.slip(code, name, message, DRAW, new)

CALLED = (
    "return multi_head_attention(x, self.W_q, self.W_k, self.W_v, self.W_o, self.num_heads, mask)"
)
LAST = "self.W_o = xavier_normal(rng, d_model, d_model)"
for code, name, message, old, new in (
    ("X133", "one-matrix-for-all",
     "All four matrices are one and the same: each has to be drawn by itself.",
     LAST, "self.W_k = self.W_v = self.W_o = self.W_q"),
    ("X133", "queries-and-keys-share",
     "W_q and W_k are one and the same matrix: each has to be drawn by itself.",
     LAST, LAST + "\n        self.W_k = self.W_q"),
    ("X133", "output-undoes-values", "W_o is the transposed W_v: it has to be drawn by itself.",
     LAST, "self.W_o = self.W_v.T"),
    ("X134", "kept-by-the-class",
     "The matrices belong to the class, not to the object: a second object changes those of the "
     "first. Write self.W_q = ….",
     LAST,
     LAST + "\n        for name in ('W_q', 'W_k', 'W_v', 'W_o'):\n            "
     "setattr(MultiHeadAttention, name, self.__dict__.pop(name))"),
    ("X135", "drawn-at-every-call",
     "The matrices are drawn anew at every call: they are drawn once, and kept.",
     CALLED,
     "self.__init__(self.d_model, self.num_heads, np.random.default_rng(0))\n        " + CALLED),
    ("X136", "matrices-of-the-first-call",
     "Your object keeps the matrices of its first call: who sets one later is not heard. Read the "
     "attributes whenever you are called.",
     CALLED,
     "self.__dict__.setdefault('first', (self.W_q, self.W_k, self.W_v, self.W_o))\n        "
     + CALLED.replace("self.W_q, self.W_k, self.W_v, self.W_o", "*self.first")),
    ("X137", "heads-from-the-start",
     "Your calls use the number of heads of the start: read num_heads when you are called.",
     CALLED,
     "self.__dict__.setdefault('first', self.num_heads)\n        "
     + CALLED.replace("self.num_heads", "self.first")),
    ("B47", "mask-not-used", SAID["mask-not-used"], "self.num_heads, mask)", "self.num_heads)"),
    ("X67", "causal-without-a-mask",
     "Without a mask your object hides later positions: no mask means that every position sees "
     "all.",
     "self.num_heads, mask)",
     "self.num_heads, causal_mask(x.shape[-2]) if mask is None else mask)"),
    ("B61", "output-only", "Your object returns the output alone; (output, weights) is asked for.",
     CALLED, CALLED + "[0]"),
    ("C22", "no-output-matrix", SAID["no-output-matrix"],
     "self.W_v, self.W_o,", "self.W_v, np.eye(x.shape[-1]),"),
    ("C19", "keys-and-values-exchanged", "W_k and W_v are exchanged in the call.",
     "self.W_k, self.W_v,", "self.W_v, self.W_k,"),
    ("C19", "queries-and-keys-exchanged", "W_q and W_k are exchanged in the call.",
     "self.W_q, self.W_k,", "self.W_k, self.W_q,"),
    ("C17", "matrices-transposed",
     "The matrices are applied transposed, as PyTorch layers store them. Here they stand on the "
     "right as they are: x @ W.",
     CALLED,
     CALLED.replace(
     "self.W_q, self.W_k, self.W_v, self.W_o",
     "self.W_q.T, self.W_k.T, self.W_v.T, self.W_o.T",
     )),
    ("C26", "residual-added", SAID["residual-added"],
     CALLED,
     CALLED.replace("return ", "output, weights = ") + "\n        return output + x, weights"),
    ("X138", "called-forward",
     "The object itself can't be called: name the method __call__ (forward is PyTorch's name for "
     "it).",
     "def __call__", "def forward"),
    ("X42", "generator-made-anew",
     "Your object makes a generator of its own: every object has the same matrices. Draw from the "
     "rng that you were given.",
     "self.d_model = d_model", "rng = np.random.default_rng(0)\n        self.d_model = d_model"),
    ("X139", "attribute-missing",
     "An attribute is missing: d_model, num_heads, W_q, W_k, W_v and W_o are asked for.",
     "self.d_model = d_model", "self.width = d_model"),
    ("X140", "refused-when-called",
     "A width that the heads do not divide raises no ValueError when the object is made (only in "
     "the call, or never).",
     "if d_model % num_heads != 0:", "if False:"),
    ("X01", "assertion",
     "A width that the heads do not divide raises another error (an assertion, say); a ValueError "
     "is asked for.",
     'raise ValueError(f"{num_heads} heads do not divide a width of {d_model}")',
     'raise AssertionError("heads")'),
    ("C10", "division-the-wrong-way",
     "Sizes that fit are refused: d_model has to be a multiple of num_heads, so d_model % "
     "num_heads is 0, not num_heads % d_model.",
     "if d_model % num_heads != 0:", "if num_heads % d_model != 0:"),
):  # fmt: skip
    layer.slip(code, name, message, old, new)
layer.slip(
    "X136",
    "matrices-of-the-start",
    "Your calls use the matrices of the start: who sets W_q, W_k, W_v or W_o later is not "
    "heard. Read the attributes when you are called.",
    exercise.text.answers["MultiHeadAttention"],
    exercise.text.answers["MultiHeadAttention"]
    .replace(LAST, LAST + "\n        self.start = (self.W_q, self.W_k, self.W_v, self.W_o)")
    .replace(CALLED, CALLED.replace("self.W_q, self.W_k, self.W_v, self.W_o", "*self.start")),
)


@layer.alternative("a loop over the names")
class ByNames:
    def __init__(self, d_model, num_heads, rng):
        if d_model % num_heads:
            raise ValueError(f"{d_model} columns in {num_heads} heads")
        self.num_heads, self.d_model = num_heads, d_model
        for name in ("W_o", "W_v", "W_k", "W_q"):
            setattr(self, name, rng.normal(0, (2 / (d_model + d_model)) ** 0.5, (d_model, d_model)))

    def __call__(self, x, mask=None):
        matrices = [getattr(self, name) for name in ("W_q", "W_k", "W_v", "W_o")]
        return multi_head_attention(x, *matrices, num_heads=self.num_heads, mask=mask)


@layer.alternative("four matrices from one draw, attention by hand")
class OneDraw:
    def __init__(self, d_model, num_heads, rng):
        self.d_model = d_model
        self.num_heads = num_heads
        if self.d_model % self.num_heads != 0:
            raise ValueError("d_model must be a multiple of num_heads")
        draw = rng.standard_normal((4, d_model, d_model)) * np.sqrt(1 / d_model)
        self.W_q, self.W_k, self.W_v, self.W_o = draw

    def __call__(self, x, mask=None):
        Q, K, V = (split_heads(x @ W, self.num_heads) for W in (self.W_q, self.W_k, self.W_v))
        if mask is not None and mask.ndim <= x.ndim:
            mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))[..., None, :, :]
        heads, weights = attention(Q, K, V, mask)
        return merge_heads(heads) @ self.W_o, weights


@layer.alternative("properties over a dictionary, float32 matrices")
class Properties:
    def __init__(self, d_model, num_heads, rng):
        d_k, rest = divmod(d_model, num_heads)
        if rest > 0:
            raise ValueError(rest)
        self.d_model, self.num_heads = d_model, num_heads
        self.weights = {}
        for name in "qkvo":
            self.weights[name] = xavier_normal(rng, d_model, d_model).astype(np.float32)

    W_q = property(lambda self: self.weights["q"], lambda self, W: self.weights.update(q=W))
    W_k = property(lambda self: self.weights["k"], lambda self, W: self.weights.update(k=W))
    W_v = property(lambda self: self.weights["v"], lambda self, W: self.weights.update(v=W))
    W_o = property(lambda self: self.weights["o"], lambda self, W: self.weights.update(o=W))

    def forward(self, x, mask=None):
        return multi_head_attention(x, self.W_q, self.W_k, self.W_v, self.W_o, self.num_heads, mask)

    def __call__(self, x, mask=None):
        return self.forward(x, mask)


@layer.alternative("nothing kept but the attributes, entries drawn one by one")
class EntryByEntry:
    W_q = W_k = W_v = W_o = None

    def __init__(self, d_model, num_heads, rng):
        if not (d_model / num_heads).is_integer():
            raise ValueError("heads")
        self.__dict__.update(d_model=d_model, num_heads=num_heads)
        std = math.sqrt(2 / (2 * d_model))
        for name in ["W_k", "W_q", "W_o", "W_v"]:
            rows = [[rng.normal(scale=std) for _ in range(d_model)] for _ in range(d_model)]
            self.__dict__[name] = np.array(rows)

    def __call__(self, x, mask=None):
        n, k = x.shape[-2], x.shape[-1] // self.num_heads
        outputs, weights = 0, []
        for i in range(self.num_heads):
            part = slice(i * k, (i + 1) * k)
            if mask is None:
                seen = None
            elif mask.ndim == x.ndim + 1:
                seen = np.broadcast_to(mask, (*x.shape[:-2], self.num_heads, n, n))[..., i, :, :]
            else:
                seen = mask
            o, w = attention(
                x @ self.W_q[:, part], x @ self.W_k[:, part], x @ self.W_v[:, part], seen
            )
            outputs = outputs + o @ self.W_o[part]
            weights.append(w)
        return outputs, np.stack(weights, axis=-3)


# --- break_reshaped_heads ------------------------------------------------------------------------

found = BreakIt(exercise, "break_reshaped_heads", answer="C1", sentences=4)
ANSWERED = "sentence, x, num_heads, luck = break_reshaped_heads()\nx, luck = np.array(x, float), np.array(luck, float)\n"
LAYOUTS = ANSWERED + (
    "def right(x):\n"
    "    return x.reshape(len(x), num_heads, -1).swapaxes(0, 1)\n"
    "def reshaped(x):\n"
    "    return x.reshape(num_heads, len(x), -1)\n"
)
found.fits(
    ANSWERED + "[x.ndim == luck.ndim == 2 and max(*x.shape, *luck.shape) <= 6, "
    "num_heads >= 1 and x.shape[-1] % num_heads == luck.shape[-1] % num_heads == 0]",
    [True, True],
)
found.fits(ANSWERED + "len(x) > 1")
found.shows(  # whatever is added to all entries
    LAYOUTS + "bool((right(x + shift) != reshaped(x + shift)).any())",
    True,
    lambda rng: {"shift": float(rng.normal())},
)
found.spec.witness(
    "answer", "C3", ANSWERED + "[len(luck) > 1, num_heads > 1]", options={"expect": [True, True]}
)


@found.spec.hidden("answer")
def _(rng):
    agrees = LAYOUTS + "bool((right(luck + shift) == reshaped(luck + shift)).all())"
    yield Example("C3", agrees, {"shift": float(rng.normal())}, expect=True)


found.blames(
    "X141", "blames-the-batches", "C2",
    "Batch axes are not the point: x (n, d) comes out wrong already. Compare head 0 with the "
    "first columns of x.",
)  # fmt: skip
found.blames(
    "X141", "blames-the-numbers", "C3",
    "The numbers are the same, only their places differ. Which sentence says what head 0 holds?",
)  # fmt: skip
found.blames(
    "X141", "blames-the-error", "C4",
    "A width that the heads do not divide fails in reshape: with a ValueError, as it should. "
    "Which sentence says what head 0 holds?",
)  # fmt: skip
found.input(
    "X142", "one-head",
    "With one head there is nothing to cut, and reshape is right: take two.",
    "shows, 1, hides",
)  # fmt: skip
found.input(
    "X142", "one-position", "With one position reshape is right: take two.",
    "shows[:1], 2, hides",
)  # fmt: skip
found.input(
    "X142", "shows-nothing",
    "On your first input reshape is right by luck: choose numbers that tell their places, such as "
    "0, 1, 2, …",
    "hides, 2, hides",
)  # fmt: skip
found.input(
    "X142", "does-not-hide",
    "On your second input the mistake shows: choose numbers that do not tell their places.",
    "shows, 2, shows",
)  # fmt: skip
found.input(
    "X142", "hides-in-one-position",
    "Your second input has a single position: find one of two at least.",
    "shows, 2, hides[:1]",
)  # fmt: skip
found.input(
    "X142", "misfit", "num_heads does not divide the width of your input.",
    "shows, 3, hides",
)  # fmt: skip


@found.alternative("random numbers, zeros")
def random_and_zeros():
    return "C1", np.random.default_rng(3).normal(size=(5, 6)), 3, np.zeros((4, 6))


@found.alternative("a permutation that hides it")
def rows_of_blocks():
    return ["C1", [[1, 2], [3, 4]], 2, [[1, 1], [1, 1]]]


@found.alternative("luck with different numbers")
def different_numbers():
    luck = np.zeros((2, 4))
    luck[0, :2], luck[0, 2:], luck[1, :2], luck[1, 2:] = (1, 2), (7, 8), (7, 8), (5, 6)
    return " C1 ", np.arange(8).reshape(2, 4), 2, luck
