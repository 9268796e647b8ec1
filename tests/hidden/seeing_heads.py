"""Hidden tests of chapter 05: numbers that sum heads up, and heads taken away."""

import math

import numpy as np

from manyheads import seeing_heads as library
from manyheads.matrices import linear, softmax
from manyheads.multi_head import merge_heads, multi_head_attention, split_heads
from manyheads.scaled_dot_product import attention
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import RAISES, fortran, integers, multi_head_case
from tests.hidden.common import SAID
from tests.hidden.spec import Example, Exercise

exercise = Exercise("05_seeing_heads", library)
grade = exercise.grade


def some_weights(rng, *shape, scale=1.5, hide=0.0):
    """Attention weights (…, n, m): each row sums to 1; some are hidden, but never a whole row."""
    scores = rng.normal(size=shape) * scale
    hidden = rng.random(shape) < hide
    np.put_along_axis(hidden, rng.integers(shape[-1], size=(*shape[:-1], 1)), False, axis=-1)
    return softmax(np.where(hidden, -np.inf, scores))


def some_empty(rng, weights):
    """The same weights with a row of zeros in every matrix."""
    weights = weights.copy()
    weights[..., int(rng.integers(weights.shape[-2])), :] = 0
    return weights


# Two heads over three positions; head 1 always looks at the position before.
HEADS = np.array(
    [[[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]], [[0.0, 0.5, 0.5], [1, 0, 0], [0, 1, 0]]]
)

# --- attention_entropy ---------------------------------------------------------------------------

entropy = exercise.function("attention_entropy")
ENTROPY = "attention_entropy(weights)"
LOOSE = {"atol": 1e-6}  # so that a tiny number inside the logarithm costs nothing

entropy.witness(
    "values", "C1", ENTROPY, weights=np.array([[0.5, 0.5], [0.25, 0.75]]), options=LOOSE
)
entropy.witness(
    "values", "C1", ENTROPY, weights=np.array([[0.2, 0.3, 0.5], [0.1, 0.8, 0.1]]), options=LOOSE
)
entropy.witness("zeros", "C2", ENTROPY, weights=np.array([[0.0, 1.0], [0.0, 0.0]]), options=LOOSE)
entropy.witness("zeros", "C2", ENTROPY, weights=np.array([[0.5, 0.0, 0.5]]), options=LOOSE)
entropy.witness(
    "batches", "C3", ENTROPY,
    weights=np.array([[[0.5, 0.5], [0.1, 0.9]], [[0.4, 0.6], [0.2, 0.8]]]), options=LOOSE,
)  # fmt: skip
entropy.witness("batches", "C3", ENTROPY, weights=np.array([[0.25, 0.75]]), options=LOOSE)


@entropy.hidden("values")
def _(rng):
    for n, m in ((5, 7), (4, 3), (6, 6), (1, 5), (7, 1)):
        yield Example("C1", ENTROPY, {"weights": some_weights(rng, n, m)}, **LOOSE)
    yield Example(
        "C1", "attention_entropy(weights=weights)", {"weights": some_weights(rng, 3, 9)}, **LOOSE
    )
    yield Example("C1", ENTROPY, {"weights": some_weights(rng, 4, 30, scale=0.2)}, **LOOSE)
    yield Example("C1", ENTROPY, {"weights": np.full((2, 11), 1 / 11)}, **LOOSE)
    yield Example("C1", ENTROPY, {"weights": some_weights(rng, 4, 6, scale=6.0)}, **LOOSE)


@entropy.hidden("zeros")
def _(rng):
    for n, m in ((5, 7), (6, 4), (3, 3)):
        yield Example("C2", ENTROPY, {"weights": some_weights(rng, n, m, hide=0.5)}, **LOOSE)
        weights = some_empty(rng, some_weights(rng, n, m, hide=0.3))
        yield Example("C2", ENTROPY, {"weights": weights}, **LOOSE)
    yield Example("C2", ENTROPY, {"weights": np.eye(5)[rng.integers(5, size=4)]}, **LOOSE)
    yield Example("C2", ENTROPY, {"weights": np.zeros((2, 4))}, **LOOSE)
    causal = np.tril(some_weights(rng, 6, 6))
    yield Example("C2", ENTROPY, {"weights": causal / causal.sum(-1, keepdims=True)}, **LOOSE)


@entropy.hidden("batches")
def _(rng):
    for shape in ((3, 5, 7), (2, 3, 4, 6), (4, 4, 4), (1, 3, 2), (5, 1, 3, 1), (2, 1, 3, 2, 5)):
        yield Example("C3", ENTROPY, {"weights": some_weights(rng, *shape)}, **LOOSE)
    single = some_weights(rng, 3, 5, 7).astype(np.float32)
    yield Example("C3", ENTROPY, {"weights": single})
    whole = np.eye(6, dtype=int)[rng.integers(6, size=(3, 4))]
    yield Example("C3", ENTROPY, {"weights": whole}, **LOOSE)
    yield Example(
        "C3", ENTROPY, {"weights": some_empty(rng, some_weights(rng, 3, 5, 4, hide=0.4))}, **LOOSE
    )
    yield Example(
        "C3", ENTROPY, {"weights": np.asfortranarray(some_weights(rng, 3, 5, 4))}, **LOOSE
    )


ENTROPY_LOGS = (
    "logs = np.log(np.where(weights > 0, weights, 1))  # log 1 = 0 where there is no weight"
)
ENTROPY_SUM = "return -(weights * logs).sum(axis=-1)"
for code, name, message, old, new in (
    ("J03", "bits", "Your entropies are in bits (base 2); the natural logarithm is asked for.",
     "np.log(", "np.log2("),
    ("J03", "base-ten", "Your logarithm has the base 10; the natural one is asked for.",
     "np.log(", "np.log10("),
    ("J04", "sign", "The sign is missing: your entropies are negative.", "return -(", "return ("),
    ("J01", "nan-for-zeros", "A weight of 0 gives NaN (0 · log 0): leave such weights out.",
     "np.log(np.where(weights > 0, weights, 1))", "np.log(weights)"),
    ("J01", "zero-for-the-whole-row",
     "NaN is turned to 0 after the sum, and a row with one zero loses the entropy of all its "
     "weights: leave out the zeros, not the row.",
     "return -(weights * logs).sum(axis=-1)",
     "return np.where((weights > 0).all(axis=-1), -(weights * logs).sum(axis=-1), 0)"),
    ("J02", "a-thousandth-inside",
     "The small number inside your logarithm is too large: it shifts the entropies. Leave zeros "
     "out instead.",
     "np.log(np.where(weights > 0, weights, 1))", "np.log(weights + 1e-3)"),
    ("J02", "clipped",
     "Small weights are lifted to 0.01 before the logarithm and in front of it: zeros add "
     "something. Leave them out.",
     "logs = ", "weights = np.maximum(weights, 0.01)\n    logs = "),
    ("X150", "over-queries",
     "Your sum runs over the queries: the entropy is one query's, over its keys (the last axis).",
     "sum(axis=-1)", "sum(axis=-2)"),
    ("J13", "one-number-a-head",
     "You return one number for each matrix; one for each query is asked for.",
     ".sum(axis=-1)", ".sum(axis=-1).mean(axis=-1)"),
    ("J13", "one-number", "You return one number for everything: give the sum its axis.",
     ".sum(axis=-1)", ".sum()"),
    ("X151", "mean-over-keys", "You take the mean over the keys; their sum is asked for.",
     ".sum(axis=-1)", ".mean(axis=-1)"),
    ("X152", "divided-by-the-largest",
     "Your entropies are divided by log m, so that 1 is the largest: the entropy itself is asked "
     "for, in nats.",
     ".sum(axis=-1)", ".sum(axis=-1) / np.log(max(weights.shape[-1], 2))"),
    ("X153", "perplexity",
     "You return exp of the entropy (the number of keys looked at, so to speak); the entropy "
     "itself is asked for.",
     ENTROPY_SUM, "return np.exp(-(weights * logs).sum(axis=-1))"),
    ("X154", "one-minus-squares", "You return 1 − Σw² (Gini); the entropy is −Σ w·log w.",
     ENTROPY_SUM, "return 1 - (weights**2).sum(axis=-1)"),
    ("X155", "largest-weight",
     "You return −log of the largest weight; the entropy is a mean over all weights.",
     ENTROPY_SUM, "return -np.log(np.where(weights.max(-1) > 0, weights.max(-1), 1))"),
    ("X156", "weight-forgotten", "You sum −log w; each has to be multiplied by its weight w.",
     ENTROPY_SUM, "return -logs.sum(axis=-1)"),
    ("X157", "two-sided",
     "You add −(1 − w)·log(1 − w) as well, as for yes or no: the keys are one distribution, −Σ "
     "w·log w.",
     ENTROPY_SUM,
     "rest = 1 - weights\n"
     "    return -(weights * logs + rest * np.log(np.where(rest > 0, rest, 1))).sum(axis=-1)"),
    ("J08", "softmax-again",
     "The softmax is applied to the weights once more: they are weights already.",
     "logs = ", "weights = softmax(weights)\n    logs = "),
    ("X158", "rows-normalised",
     "A row of zeros gives NaN: you divide by its sum. Weights are normalised already.",
     "logs = ", "weights = weights / weights.sum(axis=-1, keepdims=True)\n    logs = "),
    ("X159", "uniform-for-nothing",
     "A row of zeros gets the entropy log m: a query that sees nothing has entropy 0.",
     "return -(weights * logs).sum(axis=-1)",
     "return np.where(weights.any(axis=-1), -(weights * logs).sum(axis=-1), "
     "np.log(weights.shape[-1]))"),
    ("A21", "rounded", SAID["rounded"],
     ENTROPY_SUM, "return np.round(-(weights * logs).sum(axis=-1), 3)"),
    ("A48", "first-matrix-only", "Only the first batch item (or head) is right, the others are 0.",
     ENTROPY_SUM,
     "result = -(weights * logs).sum(axis=-1)\n"
     "    if result.ndim > 1:\n"
     "        result[1:] = 0\n"
     "    return result"),
    ("B64", "axis-one",
     "Your sum runs over axis 1, whatever weights is: the keys are the last axis, −1.",
     "sum(axis=-1)", "sum(axis=1)"),
    ("B64", "two-axes-only", "Your function takes a single matrix; any number of axes may lead.",
     "logs = ", "n, m = weights.shape\n    logs = "),
    ("X160", "keepdims", "The axis of the keys is still there, with size 1: the result is (…, n).",
     "sum(axis=-1)", "sum(axis=-1, keepdims=True)"),
):  # fmt: skip
    entropy.slip(code, name, message, old, new)


@entropy.misconception(
    "A24", "Your function writes into weights (zeros become ones): work on a copy, or use np.where."
)
def writes_ones(weights):
    logs = np.zeros(weights.shape)
    where = weights > 0
    logs[where] = np.log(weights[where])
    result = -(weights * logs).sum(axis=-1)
    weights[~where] = 1
    return result


@entropy.alternative("a tiny number inside the logarithm")
def tiny_inside(weights):
    return -np.sum(weights * np.log(weights + 1e-12), axis=-1)


@entropy.alternative("log with where and out")
def log_where(weights):
    weights = np.asarray(weights, dtype=float)
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -np.einsum("...m,...m->...", weights, logs)


@entropy.alternative("nan_to_num with the warnings off")
def with_warnings_off(weights):
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = weights * np.log(weights)
    return -np.nan_to_num(terms).sum(-1)


@entropy.alternative("loops over math.log")
def by_loops(weights):
    if weights.ndim > 1:
        return [by_loops(part) for part in weights]
    return -sum(float(w) * math.log(w) for w in weights if w > 0)


@entropy.alternative("logarithm of the inverse, weights of zero warn")
def inverse(weights):
    bounded = np.clip(weights, 1e-300, None)
    return (weights * np.log(1 / bounded)).sum(axis=weights.ndim - 1)


# --- attention_distance --------------------------------------------------------------------------

distance = exercise.function("attention_distance")
DISTANCE = "attention_distance(weights)"

distance.witness("values", "C1", DISTANCE, weights=HEADS)
distance.witness(
    "values", "C1", DISTANCE, weights=np.array([[[0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0, 0]]])
)
distance.witness("batches", "C2", DISTANCE, weights=np.stack([HEADS, HEADS[::-1, ::-1]]))
distance.witness("batches", "C2", DISTANCE, weights=np.eye(3, dtype=int)[None, ::-1])


@distance.hidden("values")
def _(rng):
    for h, n in ((3, 5), (5, 7), (2, 2), (4, 1), (1, 6), (4, 4)):
        yield Example("C1", DISTANCE, {"weights": some_weights(rng, h, n, n)})
        yield Example("C1", DISTANCE, {"weights": some_weights(rng, h, n, n, hide=0.4)})
    yield Example(
        "C1", "attention_distance(weights=weights)", {"weights": some_weights(rng, 3, 6, 6)}
    )
    yield Example("C1", DISTANCE, {"weights": some_empty(rng, some_weights(rng, 3, 6, 6))})
    yield Example("C1", DISTANCE, {"weights": np.zeros((2, 4, 4))})
    yield Example(
        "C1", DISTANCE, {"weights": np.eye(7, k=-2)[None] + np.eye(7)[None] * (np.arange(7) < 2)}
    )


# Weights (…, h, n, n) with several batch axes, also with as many items as heads and positions.
BATCHES = [
    (3, 2, 5, 5),
    (1, 3, 4, 4),
    (2, 3, 4, 6, 6),
    (4, 4, 4, 4),
    (3, 3, 3, 3),
    (2, 1, 3, 2, 5, 5),
]


@distance.hidden("batches")
def _(rng):
    for shape in BATCHES:
        yield Example("C2", DISTANCE, {"weights": some_weights(rng, *shape)})
    whole = np.eye(5, dtype=int)[rng.integers(5, size=(3, 5))]
    yield Example("C2", DISTANCE, {"weights": whole})
    yield Example("C2", DISTANCE, {"weights": some_weights(rng, 2, 3, 5, 5).astype(np.float32)})
    yield Example("C2", DISTANCE, {"weights": np.asfortranarray(some_weights(rng, 2, 3, 5, 5))})


SPREAD = "return (weights * abs(i - j)).sum(axis=(-2, -1)) / n"
for code, name, message, new in (
    ("X161", "with-sign",
     "Your distances have a sign, so that looking back and looking ahead cancel: take |i − j|.",
     "return (weights * (i - j)).sum(axis=(-2, -1)) / n"),
    ("X161", "looking-back-only",
     "Only keys before the query count in your mean: |i − j| counts those behind it as well.",
     "return (weights * np.maximum(i - j, 0)).sum(axis=(-2, -1)) / n"),
    ("X161", "looking-ahead-only",
     "Only keys behind the query count in your mean: |i − j| counts those before it as well.",
     "return (weights * np.maximum(j - i, 0)).sum(axis=(-2, -1)) / n"),
    ("X162", "absolute-mean",
     "You take the absolute value of the mean of i − j: take |i − j| before you average.",
     "return abs((weights * (i - j)).sum(axis=-1)).mean(axis=-1)"),
    ("X163", "squared", "You average (i − j)²; |i − j| is asked for.",
     "return (weights * (i - j) ** 2).sum(axis=(-2, -1)) / n"),
    ("X163", "root-mean-square",
     "You take the root of the mean of (i − j)²; the mean of |i − j| is asked for.",
     "return np.sqrt((weights * (i - j) ** 2).sum(axis=(-2, -1)) / n)"),
    ("X164", "summed-over-queries",
     "You sum over the queries; their mean is asked for: divide by n.",
     "return (weights * abs(i - j)).sum(axis=(-2, -1))"),
    ("X164", "mean-over-pairs",
     "You divide by n·n: the weights of a query sum to 1 already, so that only the n queries are "
     "averaged.",
     "return (weights * abs(i - j)).mean(axis=(-2, -1))"),
    ("X165", "one-query-a-number",
     "You return a number for each query; their mean, one number for each head, is asked for.",
     "return (weights * abs(i - j)).sum(axis=-1)"),
    ("J13", "heads-averaged",
     "You average over the heads as well: one number for each head is asked for.",
     "return (weights * abs(i - j)).sum(axis=(-2, -1)).mean(axis=-1) / n"),
    ("X166", "largest-weight-only",
     "You take the distance of the key with the largest weight; all keys count, by their weights.",
     "return abs(weights.argmax(axis=-1) - np.arange(n)).mean(axis=-1) + 0.0"),
    ("X167", "relative",
     "Your distances are divided by the length once more (or by n − 1): they are counted in "
     "positions.",
     "return (weights * abs(i - j)).sum(axis=(-2, -1)) / n / max(n - 1, 1)"),
    ("X168", "counted-from-one",
     "A position is at distance 1 from itself in your function: |i − j| is 0 there.",
     "return (weights * (abs(i - j) + 1)).sum(axis=(-2, -1)) / n"),
    ("X169", "empty-queries-left-out",
     "You average over the queries that see something; a query that sees nothing counts as well, "
     "with distance 0.",
     "seeing = np.maximum(weights.any(axis=-1).sum(axis=-1), 1)\n"
     "    return (weights * abs(i - j)).sum(axis=(-2, -1)) / seeing"),
    ("X170", "diagonal-left-out",
     "You average over the other positions only: the weight on the position itself counts as well, "
     "with distance 0.",
     "away = np.where(i == j, 0, weights)\n"
     "    return (away * abs(i - j)).sum(axis=(-2, -1)) / np.maximum(away.sum(axis=(-2, -1)), "
     "1e-9)"),
    ("X171", "keys-from-the-start",
     "You average the position j of the key; its distance from the query i is asked for.",
     "return (weights * (j + 0 * i)).sum(axis=(-2, -1)) / n"),
    ("X172", "around-a-circle",
     "Your positions lie on a circle, so that the first and the last are neighbours: the distance "
     "is |i − j|.",
     "return (weights * np.minimum(abs(i - j), n - abs(i - j))).sum(axis=(-2, -1)) / n"),
    ("A20", "whole-numbers",
     "The decimals are lost: your division is //, or the result has an integer type.",
     "return (weights * abs(i - j)).sum(axis=(-2, -1)) // n"),
    ("A26", "like-weights",
     "Your result takes its dtype from weights: for integers the decimals are lost.",
     "return ((weights * abs(i - j)).sum(axis=(-2, -1)) / n).astype(weights.dtype)"),
    ("A48", "first-head-only", "Only head 0 is right; the others are 0.",
     "result = (weights * abs(i - j)).sum(axis=(-2, -1)) / n\n"
     "    result[..., 1:] = 0\n"
     "    return result"),
    ("A24", "multiplied-in-place",
     "Your function multiplies weights in place: the caller's weights are gone.",
     "np.multiply(weights, abs(i - j), out=weights)\n    return weights.sum(axis=(-2, -1)) / n"),
    ("B64", "three-axes-only",
     "Your function takes (h, n, n) only; any number of batch axes may lead.",
     "h, n, m = weights.shape\n    return (weights * abs(i - j)).sum(axis=(1, 2)) / n"),
    ("B64", "axes-one-and-two",
     "Your sum runs over the axes 1 and 2, whatever weights is: count from the end (−2 and −1).",
     "return (weights * abs(i - j)).sum(axis=(1, 2)) / n"),
    ("B64", "one-batch-axis", SAID["one-batch-axis"],
     "B, h, n, m = weights.shape\n    return (weights * abs(i - j)).sum(axis=(2, 3)) / n"),
    ("X173", "batch-averaged", "The batch items are averaged; each has distances of its own.",
     "result = (weights * abs(i - j)).sum(axis=(-2, -1)) / n\n"
     "    return result.reshape(-1, result.shape[-1]).mean(axis=0)"),
):  # fmt: skip
    distance.slip(code, name, message, SPREAD, new)


@distance.alternative("einsum")
def distance_by_einsum(weights):
    n = weights.shape[-1]
    far = np.abs(np.subtract.outer(np.arange(n), np.arange(n))).astype(float)
    return np.einsum("...ij,ij->...", weights, far) / n


@distance.alternative("diagonal by diagonal")
def by_diagonals(weights):
    n = weights.shape[-1]
    total = 0.0
    for k in range(1 - n, n):
        total = total + abs(k) * np.diagonal(weights, k, axis1=-2, axis2=-1).sum(axis=-1)
    return total / n


@distance.alternative("loops into lists")
def distance_by_loops(weights):
    if weights.ndim > 2:
        return [distance_by_loops(part) for part in weights]
    n = len(weights)
    return sum(float(weights[i, j]) * abs(i - j) for i in range(n) for j in range(n)) / n


@distance.alternative("mean over the queries last")
def mean_last(weights):
    steps = np.arange(weights.shape[-2]).reshape(-1, 1) - np.arange(weights.shape[-1]).reshape(
        1, -1
    )
    return np.mean(np.sum(np.multiply(weights, np.fabs(steps)), axis=-1), axis=-1)


# --- offset_score --------------------------------------------------------------------------------

offset = exercise.function("offset_score")
SCORE = "offset_score(weights, offset)"

offset.witness("values", "C1", SCORE, weights=HEADS, offset=-1)
offset.witness("values", "C1", SCORE, weights=HEADS, offset=2)
offset.witness("values", "C1", SCORE, weights=HEADS, offset=0)
offset.witness("batches", "C2", SCORE, weights=np.stack([HEADS, HEADS[::-1, ::-1]]), offset=-1)
offset.witness("batches", "C2", SCORE, weights=np.eye(3, dtype=int)[None, [1, 0, 2]], offset=-1)


@offset.hidden("values")
def _(rng):
    for h, n in ((3, 5), (5, 7), (4, 4)):
        weights = some_weights(rng, h, n, n)
        for step in (
            -1,
            1,
            0,
            1 - n,
            n - 1,
            int(rng.integers(2, n - 1)),
            -int(rng.integers(2, n - 1)),
        ):
            yield Example("C1", SCORE, {"weights": weights, "offset": step})
    yield Example(
        "C1",
        "offset_score(weights=weights, offset=offset)",
        {"weights": some_weights(rng, 3, 6, 6), "offset": -2},
    )
    yield Example("C1", SCORE, {"weights": some_weights(rng, 2, 1, 1), "offset": 0})
    yield Example(
        "C1", SCORE, {"weights": some_empty(rng, some_weights(rng, 2, 6, 6)), "offset": -1}
    )
    before = np.eye(6, k=-1)
    before[0, 5] = 1
    yield Example("C1", SCORE, {"weights": np.stack([before, before.T]), "offset": -1})


@offset.hidden("batches")
def _(rng):
    for shape in BATCHES:
        for step in (-1, 2):
            yield Example("C2", SCORE, {"weights": some_weights(rng, *shape), "offset": step})
    whole = np.eye(5, dtype=int)[rng.integers(5, size=(3, 5))]
    yield Example("C2", SCORE, {"weights": whole, "offset": -1})
    yield Example(
        "C2", SCORE, {"weights": some_weights(rng, 2, 3, 5, 5).astype(np.float32), "offset": 1}
    )
    yield Example(
        "C2", SCORE, {"weights": np.asfortranarray(some_weights(rng, 2, 3, 5, 5)), "offset": -1}
    )


DIAGONAL = "return np.diagonal(weights, offset, axis1=-2, axis2=-1).mean(axis=-1)"
for code, name, message, new in (
    ("E11", "sign-reversed",
     "The sign of the offset is reversed: query i looks at key i + offset, so −1 is the position "
     "before.",
     "return np.diagonal(weights, -offset, axis1=-2, axis2=-1).mean(axis=-1)"),
    ("X174", "averaged-over-all-queries",
     "You divide by n: the queries without such a key (at an end of the sequence) must not count. "
     "Divide by n − |offset|.",
     "return np.diagonal(weights, offset, axis1=-2, axis2=-1).sum(axis=-1) / weights.shape[-1]"),
    ("X174", "divided-by-n-minus-the-offset",
     "You divide by n − offset. Before the start as after the end |offset| positions are missing: "
     "divide by n − |offset|.",
     "return np.diagonal(weights, offset, axis1=-2, axis2=-1).sum(axis=-1) / (weights.shape[-1] - "
     "offset)"),
    ("X175", "around-the-end",
     "Your offset runs around the end: the first position gets the last as the one before it. It "
     "has none, and does not count.",
     "n = weights.shape[-1]\n"
     "    return (weights * np.roll(np.eye(n), offset, axis=1)).sum(axis=(-2, -1)) / n"),
    ("X175", "around-the-end-then-averaged",
     "Your offset runs around the end, with the right number of queries in the mean: the position "
     "before the first does not exist.",
     "n = weights.shape[-1]\n"
     "    return (weights * np.roll(np.eye(n), offset, axis=1)).sum(axis=(-2, -1)) / (n - "
     "abs(offset))"),
    ("X176", "always-the-previous",
     "The offset is ignored: you always look at the position before.",
     "n = weights.shape[-1]\n"
     "    return np.diagonal(weights, -1 if n > 1 else 0, axis1=-2, axis2=-1).mean(axis=-1)"),
    ("X176", "always-itself", "The offset is ignored: you look at the diagonal.",
     "return np.diagonal(weights, 0, axis1=-2, axis2=-1).mean(axis=-1)"),
    ("X176", "absolute-offset",
     "The sign of the offset is lost: −1 is the position before, 1 the one after.",
     "return np.diagonal(weights, abs(offset), axis1=-2, axis2=-1).mean(axis=-1)"),
    ("X177", "summed", "You sum over the queries; their mean is asked for.",
     "return np.diagonal(weights, offset, axis1=-2, axis2=-1).sum(axis=-1)"),
    ("X178", "one-query-a-number",
     "You return a number for each query; their mean, one for each head, is asked for.",
     "return np.diagonal(weights, offset, axis1=-2, axis2=-1)"),
    ("J13", "heads-averaged",
     "You average over the heads as well: one number for each head is asked for.",
     "return np.diagonal(weights, offset, axis1=-2, axis2=-1).mean(axis=(-2, -1))"),
    ("X166", "share-of-largest",
     "You count the queries whose largest weight lies there; the mean of the weights is asked for.",
     "n = weights.shape[-1]\n"
     "    i = np.arange(max(0, -offset), min(n, n - offset))\n"
     "    return (weights[..., i, :].argmax(axis=-1) == i + offset).mean(axis=-1)"),
    ("X179", "largest", "You take the largest weight there; their mean is asked for.",
     "return np.diagonal(weights, offset, axis1=-2, axis2=-1).max(axis=-1)"),
    ("X180", "over-the-first-axes",
     "np.diagonal takes the first two axes if you do not say which: axis1=-2, axis2=-1.",
     "return np.diagonal(weights, min(max(offset, 1 - len(weights)), weights.shape[1] - "
     "1)).mean(axis=-1)"),
    ("X181", "one-too-far", "You are one key off: offset −1 is the key directly before.",
     "n = weights.shape[-1]\n"
     "    k = offset - 1 if offset > 1 - n else offset\n"
     "    return np.diagonal(weights, k, axis1=-2, axis2=-1).mean(axis=-1)"),
    ("X182", "rows-and-columns-exchanged",
     "Rows and columns are exchanged: rows are queries, and query i looks at key i + offset.",
     "return np.diagonal(np.swapaxes(weights, -1, -2), offset, axis1=-2, axis2=-1).mean(axis=-1)"),
    ("X183", "all-up-to-there", "You sum all keys from the offset on; only key i + offset counts.",
     "n = weights.shape[-1]\n"
     "    return np.tril(weights, offset).sum(axis=(-2, -1)) / (n - abs(offset))"),
    ("X184", "last-left-out", "The last (or first) pair is left out: check where your range ends.",
     "d = np.diagonal(weights, offset, axis1=-2, axis2=-1)\n"
     "    return (d[..., :-1] if d.shape[-1] > 1 else d).mean(axis=-1)"),
    ("X169", "empty-queries-left-out",
     "You leave out the queries whose weight there is 0: they count.",
     "d = np.diagonal(weights, offset, axis1=-2, axis2=-1)\n"
     "    return d.sum(axis=-1) / np.maximum((d > 0).sum(axis=-1), 1)"),
    ("A26", "like-weights",
     "Your result takes its dtype from weights: for integers the decimals are lost.",
     "return np.diagonal(weights, offset, axis1=-2, axis2=-1).mean(axis=-1).astype(weights.dtype)"),
    ("A48", "first-head-only", "Only head 0 is right; the others are 0.",
     "result = np.array(np.diagonal(weights, offset, axis1=-2, axis2=-1).mean(axis=-1))\n"
     "    result[..., 1:] = 0\n"
     "    return result"),
    ("B64", "three-axes-only",
     "Your function takes (h, n, n) only; any number of batch axes may lead.",
     "h, n, m = weights.shape\n"
     "    return np.diagonal(weights, offset, axis1=1, axis2=2).mean(axis=-1)"),
    ("B64", "axes-one-and-two",
     "You take the axes 1 and 2 whatever weights is: count from the end (−2 and −1).",
     "k = min(max(offset, 1 - weights.shape[1]), weights.shape[2] - 1)\n"
     "    return np.diagonal(weights, k, axis1=1, axis2=2).mean(axis=-1)"),
):  # fmt: skip
    if name != "rows-and-columns-exchanged":  # the same numbers as with the sign reversed
        offset.slip(code, name, message, DIAGONAL, new)


@offset.alternative("pairs of positions")
def by_pairs(weights, offset):
    n = weights.shape[-1]
    i = np.array([i for i in range(n) if 0 <= i + offset < n])
    return weights[..., i, i + offset].mean(axis=-1)


@offset.alternative("a shifted identity")
def shifted_identity(weights, offset):
    n = weights.shape[-1]
    return (weights * np.eye(n, k=offset)).sum(axis=(-2, -1)) / (n - abs(offset))


@offset.alternative("loops")
def offset_by_loops(weights, offset):
    if weights.ndim > 2:
        return [offset_by_loops(part, offset) for part in weights]
    found = [float(row[i + offset]) for i, row in enumerate(weights) if 0 <= i + offset < len(row)]
    return sum(found) / len(found)


@offset.alternative("trace of a slice")
def by_trace(weights, offset):
    part = weights[..., max(0, -offset) :, max(0, offset) :]
    return np.trace(part, axis1=-2, axis2=-1) / min(part.shape[-2:])


# --- ablate_heads --------------------------------------------------------------------------------

ablate = exercise.function("ablate_heads")
CALL = "ablate_heads(x, W_q, W_k, W_v, W_o, num_heads, keep)"

X24 = np.array([[1.0, 0.0, 2.0, -1.0], [0.0, 1.0, -1.0, 1.0]])
FOUR = {
    "x": X24,
    "W_q": np.array([[1.0, 0, 0, 1], [0, 1, 1, 0], [0, -1, 1, 0], [1, 0, 0, 0]]),
    "W_k": np.array([[0.0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0], [-1, 0, 1, 0]]),
    "W_v": np.array([[1.0, 0, 2, 0], [0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, -1]]),
    "W_o": np.array([[1.0, 2, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [1, 0, 0, 3]]),
    "num_heads": 2,
}
PAIR = {
    "x": np.array([[1.0, -1.0], [0.5, 1.0]]),
    "W_q": np.array([[1.0, 0.5], [0.0, 1.0]]),
    "W_k": np.array([[1.0, 0.0], [-1.0, 1.0]]),
    "W_v": np.array([[1.0, 2.0], [0.0, 1.0]]),
    "W_o": np.array([[2.0, 0.0], [1.0, 1.0]]),
    "num_heads": 2,
}
WHOLE = {
    "x": np.array([[1, 0], [0, 1]]),
    "W_q": np.array([[1, 1], [0, -1]]),
    "W_k": np.array([[0, 1], [1, 0]]),
    "W_v": np.array([[3, 1], [0, 2]]),
    "W_o": np.array([[1, 2], [0, 1]]),
    "num_heads": 2,
}


def some_kept(rng, h):
    """One head at least is kept, and one is not."""
    keep = rng.random(h) < 0.5
    one, other = rng.choice(h, size=2, replace=False)
    keep[one], keep[other] = True, False
    return keep


ablate.witness("values", "C1", CALL, **FOUR, keep=np.array([True, False]))
ablate.witness("values", "C1", CALL, **FOUR, keep=np.array([False, True]))
ablate.witness("values", "C2", CALL, **FOUR, keep=np.array([True, True]))
ablate.witness("values", "C2", CALL, **PAIR, keep=np.array([False, False]))
ablate.witness(
    "batches", "C3", CALL, **{**PAIR, "x": np.stack([PAIR["x"], PAIR["x"] - 1.0])},
    keep=np.array([True, False]),
)  # fmt: skip
ablate.witness("numbers", "C4", CALL, **WHOLE, keep=np.array([False, True]))
ablate.witness(
    "numbers", "C4", CALL, **{**PAIR, "x": PAIR["x"] * [[2000.0], [1.0]]},
    keep=np.array([False, True]),
)  # fmt: skip
ablate.witness("errors", "C5", CALL, **PAIR, keep=np.array([True]), options=RAISES)
ablate.witness("errors", "C5", CALL, **PAIR, keep=np.array([True, False, True]), options=RAISES)
ablate.witness(
    "errors", "C5", CALL, **{**PAIR, "num_heads": 3}, keep=np.array([True, False, True]),
    options=RAISES,
)  # fmt: skip


@ablate.hidden("values")
def _(rng):
    for n, d, h in ((5, 12, 3), (4, 15, 5), (7, 6, 3), (1, 6, 3), (5, 4, 4), (2, 14, 2)):
        yield Example("C1", CALL, {**multi_head_case(rng, (), n, d, h), "keep": some_kept(rng, h)})
    for n, d, h in (
        (3, 9, 3),
        (4, 16, 4),
        (6, 6, 2),
    ):  # sizes that agree: a wrong axis keeps the shape
        yield Example("C1", CALL, {**multi_head_case(rng, (), n, d, h), "keep": some_kept(rng, h)})
    case = multi_head_case(rng)
    for i in range(3):
        yield Example("C1", CALL, {**case, "keep": np.arange(3) == i})
        yield Example("C2", CALL, {**case, "keep": np.arange(3) != i})
    yield Example("C2", CALL, {**case, "keep": np.ones(3, bool)})
    yield Example("C2", CALL, {**case, "keep": np.zeros(3, bool)})
    yield Example("C2", CALL, {**multi_head_case(rng, (), 4, 5, 1), "keep": np.array([True])})
    names = ("x", "W_q", "W_k", "W_v", "W_o", "num_heads", "keep")
    keywords = f"ablate_heads({', '.join(f'{name}={name}' for name in names)})"
    yield Example("C1", keywords, {**case, "keep": np.array([True, False, True])})


@ablate.hidden("batches")
def _(rng):
    for batch in ((4,), (1,), (2, 3), (3, 1, 2)):
        yield Example(
            "C3", CALL, {**multi_head_case(rng, batch, 5, 6, 3), "keep": some_kept(rng, 3)}
        )
    # As many items as heads, and as positions: a misplaced axis keeps the shape.
    yield Example("C3", CALL, {**multi_head_case(rng, (3,), 4, 6, 3), "keep": some_kept(rng, 3)})
    yield Example("C3", CALL, {**multi_head_case(rng, (3,), 3, 9, 3), "keep": some_kept(rng, 3)})


@ablate.hidden("numbers")
def _(rng):
    case = multi_head_case(rng)
    whole = integers(case)
    yield Example("C4", CALL, {**whole, "keep": some_kept(rng, 3)})
    yield Example("C4", CALL, {**case, "x": whole["x"], "keep": some_kept(rng, 3)})
    single = multi_head_case(rng, (2,), 5, 16, 4, dtype=np.float32)
    yield Example("C4", CALL, {**single, "keep": some_kept(rng, 4)})
    yield Example("C4", CALL, {**case, "keep": some_kept(rng, 3)})
    large = multi_head_case(rng, (3,), 5, 6, 2)
    large["x"][1, 2] *= 1000
    yield Example("C4", CALL, {**large, "keep": some_kept(rng, 2)})
    strided = fortran(multi_head_case(rng, (3,), 5, 8, 4))
    yield Example("C4", CALL, {**strided, "keep": some_kept(rng, 4)})


@ablate.hidden("errors")
def _(rng):
    case = multi_head_case(rng, (2,), 4, 12, 3)
    for length in (1, 2, 4, 12, 6):
        yield Example("C5", CALL, {**case, "keep": np.arange(length) > 0}, raises="ValueError")
    square = multi_head_case(rng, (), 4, 16, 4)
    for length in (1, 5, 3):
        yield Example("C5", CALL, {**square, "keep": np.arange(length) == 0}, raises="ValueError")
    yield Example(
        "C5",
        CALL,
        {**multi_head_case(rng, (), 4, 6, 4), "keep": np.arange(4) > 0},
        raises="ValueError",
    )
    yield Example(
        "C5",
        CALL,
        {**multi_head_case(rng, (), 3, 5, 2), "keep": np.arange(2) > 0},
        raises="ValueError",
    )
    for name in ("W_q", "W_k", "W_v", "W_o"):
        misfit = {**case, name: rng.normal(size=(9, 12)), "keep": np.arange(3) > 0}
        yield Example("C5", CALL, misfit, raises="ValueError")


@ablate.misconception(
    "X185",
    "A keep of another length than num_heads raises no ValueError (a length of 1 is stretched, "
    "a longer one cut): compare it with num_heads.",
)
def length_not_compared(x, W_q, W_k, W_v, W_o, num_heads, keep):
    heads, _ = attention(*(split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v)))
    heads = heads.copy()
    for i, kept in zip(range(num_heads), keep):
        if not kept:
            heads[..., i, :, :] = 0
    return linear(merge_heads(heads), W_o)


@ablate.misconception(
    "J05",
    "The silent heads are left out, and what is merged is too narrow for W_o: put zeros in their "
    "place.",
)
def left_out(x, W_q, W_k, W_v, W_o, num_heads, keep):
    heads, _ = attention(*(split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v)))
    return linear(merge_heads(heads[..., keep, :, :]), W_o)


@ablate.misconception(
    "X185", "A keep of length 1 is stretched over all heads; compare its length with num_heads."
)
def length_one_stretched(x, W_q, W_k, W_v, W_o, num_heads, keep):
    heads, _ = attention(*(split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v)))
    return linear(merge_heads(heads * keep[:, None, None]), W_o)


@ablate.misconception(
    "X01",
    "A keep of another length raises another error than ValueError (an assertion, an IndexError).",
)
def asserted(x, W_q, W_k, W_v, W_o, num_heads, keep):
    assert len(keep) == num_heads
    heads, _ = attention(*(split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v)))
    return linear(merge_heads(heads * keep[:, None, None]), W_o)


SILENCED = "heads = heads * keep[:, None, None]  # (h,) -> (h, 1, 1), over positions and columns"
RUN = "heads, _ = attention(Q, K, V)"
for code, name, message, old, new in (
    ("J05", "the-other-heads",
     "You silence the heads that are to be kept: True means that the head stays.",
     SILENCED, "heads = heads * ~keep[:, None, None]"),
    ("J05", "keep-ignored", "keep has no effect: the result is that of all heads.",
     SILENCED, "pass"),
    ("X186", "mean-instead-of-zero",
     "A silent head gives its mean over the positions. That is mean ablation, another convention; "
     "here it gives zero.",
     SILENCED, "heads = np.where(keep[:, None, None], heads, heads.mean(axis=-2, keepdims=True))"),
    ("X187", "uniform-instead-of-zero",
     "A silent head looks at all positions alike (its scores are 0) and still contributes: its "
     "output has to be zero.",
     SILENCED, "heads, _ = attention(Q * keep[:, None, None], K, V)"),
    ("J12", "weights-hidden-and-restored",
     "A silent head still sees the position itself, or its own values: its output has to be zero.",
     SILENCED, "heads = np.where(keep[:, None, None], heads, V)"),
    ("X188", "columns-of-the-output",
     "Columns of the output are 0 (or of W_o, which is the same). But W_o mixes the heads: they "
     "have to be silenced before it.",
     SILENCED + "\n    return linear(merge_heads(heads), W_o)",
     "return linear(merge_heads(heads), W_o) * np.repeat(keep, x.shape[-1] // num_heads)"),
    ("X189", "rescaled",
     "The heads that are kept are scaled up (by h over their number), as dropout does: they do "
     "what they always do.",
     SILENCED, "heads = heads * keep[:, None, None] * (num_heads / max(keep.sum(), 1))"),
    ("X190", "positions-silenced",
     "keep is laid on the positions; it belongs to the axis of heads, (h, 1, 1).",
     SILENCED,
     "heads = heads * (keep[:, None] if heads.shape[-2] == num_heads else keep[:, None, None])"),
    ("X190", "batch-items-silenced", "keep is laid on the batch; it belongs to the axis of heads.",
     SILENCED,
     "heads = heads * (keep[:, None, None, None] if x.ndim == 3 and len(x) == num_heads else "
     "keep[:, None, None])"),
    ("C06", "interleaved",
     "You silence every h-th column; head i holds the neighbouring columns i·d_k … (i+1)·d_k − 1.",
     SILENCED + "\n    return linear(merge_heads(heads), W_o)",
     "return linear(merge_heads(heads) * np.tile(keep, x.shape[-1] // num_heads), W_o)"),
    ("X191", "closed-up",
     "The heads that are kept close up: each stays in its own columns, and zeros stand where a "
     "silent one was.",
     SILENCED,
     "kept = heads[..., keep, :, :]\n"
     "    heads = np.zeros_like(heads)\n"
     "    heads[..., : kept.shape[-3], :, :] = kept"),
    ("X192", "first-heads-kept",
     "You keep as many heads as keep has True entries, but the first ones: keep says which.",
     SILENCED, "heads = heads * (np.arange(num_heads) < keep.sum())[:, None, None]"),
    ("X193", "one-head-only", "You keep a single head; all those that keep names stay.",
     SILENCED,
     "heads = heads * (np.arange(num_heads) == keep.argmax())[:, None, None] * keep.any()"),
    ("X194", "in-reverse", "keep is read from the end: keep[0] belongs to head 0.",
     SILENCED, "heads = heads * keep[::-1, None, None]"),
    ("X195", "difference",
     "You return what the silent heads have contributed; what remains is asked for.",
     SILENCED, "heads = heads * ~keep[:, None, None]"),
    ("C22", "no-output-matrix", SAID["no-output-matrix"],
     "return linear(merge_heads(heads), W_o)", "return merge_heads(heads)"),
    ("C26", "residual-added", SAID["residual-added"],
     "return linear(merge_heads(heads), W_o)", "return x + linear(merge_heads(heads), W_o)"),
    ("B61", "with-the-weights", SAID["with-the-weights"],
     "return linear(merge_heads(heads), W_o)", "return linear(merge_heads(heads), W_o), _"),
    ("B03", "scaled-by-the-width-of-the-model",
     "The scores are divided by √d; the width of a head counts, √d_k.",
     RUN, "heads, _ = attention(Q * num_heads**-0.5, K, V)"),
    ("C01", "cut-by-reshape", SAID["cut-by-reshape"],
     RUN,
     "heads, _ = attention(*(np.reshape(linear(x, W), (*x.shape[:-2], num_heads, x.shape[-2], "
     "-1)) for W in (W_q, W_k, W_v)))"),
    ("C03", "joined-by-reshape", SAID["joined-by-reshape"],
     "merge_heads(heads)", "np.reshape(heads, x.shape)"),
    ("C19", "queries-and-keys-exchanged", SAID["queries-and-keys-exchanged"],
     RUN, "heads, _ = attention(K, Q, V)"),
    ("X67", "causal", "Your attention hides later positions: there is no mask here.",
     RUN, "heads, _ = attention(Q, K, V, causal_mask(x.shape[-2]))"),
    ("A24", "output-matrix-changed",
     "Your function sets rows of W_o to 0 in the caller's array: work on a copy.",
     SILENCED, "W_o[~np.repeat(keep, x.shape[-1] // num_heads)] = 0"),
    ("A26", "output-like-x", SAID["output-like-x"],
     "return linear(merge_heads(heads), W_o)",
     "return linear(merge_heads(heads), W_o).astype(x.dtype)"),
    ("A21", "rounded", SAID["rounded"],
     "return linear(merge_heads(heads), W_o)", "return linear(merge_heads(heads), W_o).round(4)"),
    ("A48", "first-item-only", SAID["first-item-only"],
     "return linear(merge_heads(heads), W_o)",
     "output = linear(merge_heads(heads), W_o)\n"
     "    if x.ndim > 2:\n"
     "        output[1:] = 0\n"
     "    return output"),
    ("B64", "two-axes-only",
     "Your function takes one sequence only; any number of batch axes may lead.",
     "Q = split", "n, d = x.shape\n    Q = split"),
    ("B64", "one-batch-axis", SAID["one-batch-axis"],
     "Q = split", "B, n, d = x.shape\n    Q = split"),
):  # fmt: skip
    if name != "difference":  # the same numbers as the-other-heads
        ablate.slip(code, name, message, old, new)


@ablate.alternative("rows of W_o set to zero, in a copy")
def rows_of_a_copy(x, W_q, W_k, W_v, W_o, num_heads, keep):
    if np.shape(keep) != (num_heads,):
        raise ValueError(f"keep {np.shape(keep)}")
    d_k = x.shape[-1] // num_heads
    W = W_o.copy()
    for i in range(num_heads):
        if not keep[i]:
            W[i * d_k : (i + 1) * d_k] = 0
    return multi_head_attention(x, W_q, W_k, W_v, W, num_heads)[0]


@ablate.alternative("columns of W_v set to zero")
def columns_of_the_values(x, W_q, W_k, W_v, W_o, num_heads, keep):
    if len(keep) != num_heads or x.shape[-1] % num_heads:
        raise ValueError("keep")
    W_v = W_v * np.repeat(keep, x.shape[-1] // num_heads)
    output, _ = multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads)
    return output


@ablate.alternative("the kept heads' parts summed")
def kept_parts(x, W_q, W_k, W_v, W_o, num_heads, keep):
    keep = list(keep)
    d = x.shape[-1]
    if (
        len(keep) != num_heads
        or d % num_heads
        or any(W.shape != (d, d) for W in (W_q, W_k, W_v, W_o))
    ):
        raise ValueError("misfit")
    d_k = d // num_heads
    output = np.zeros(x.shape)
    for i, kept in enumerate(keep):
        if kept:
            c = slice(i * d_k, i * d_k + d_k)
            output += attention(x @ W_q[:, c], x @ W_k[:, c], x @ W_v[:, c])[0] @ W_o[c]
    return output


@ablate.alternative("the weights of silent heads set to zero")
def weights_set_to_zero(x, W_q, W_k, W_v, W_o, num_heads, keep):
    if keep.size != num_heads:
        raise ValueError(keep.size)
    Q, K, V = (split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))
    weights = softmax(attention_scores(Q, K))
    weights[..., ~keep, :, :] = 0
    return (merge_heads(weights @ V) @ W_o).tolist()


@ablate.alternative("all minus the silent ones")
def all_minus_silent(x, W_q, W_k, W_v, W_o, num_heads, keep):
    if len(keep) != num_heads:
        raise ValueError("length")
    everything, _ = multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads)
    rows = np.repeat(np.where(keep, 0, 1), x.shape[-1] // num_heads)
    silent, _ = multi_head_attention(x, W_q, W_k, W_v, W_o * rows[:, None], num_heads)
    return everything - silent


@ablate.alternative("a mask of the heads")
def mask_of_the_heads(x, W_q, W_k, W_v, W_o, num_heads, keep):
    if keep.shape[0] != num_heads:
        raise ValueError(f"{keep.shape[0]} and {num_heads}")
    seen = np.reshape(keep, (num_heads, 1, 1))
    for _ in range(x.ndim - 2):
        seen = seen[None]
    return multi_head_attention(x, W_q, W_k, W_v, W_o, num_heads, mask=seen)[0]


# --- break_rolled_offset -------------------------------------------------------------------------

found = BreakIt(exercise, "break_rolled_offset", answer="C1", sentences=2)
ARRAY = "w = np.array(break_rolled_offset()[1], dtype=float)\n"
found.fits(
    ARRAY + "w.ndim == 3 and len(w) == 1 and 2 <= w.shape[1] == w.shape[2] <= 5 "
    "and bool((w >= 0).all() and np.allclose(w.sum(axis=-1), 1))"
)
# The right score, and whether rolling raises an alarm; the patterns are counted, not multiplied.
found.shows(
    ARRAY + "n = w.shape[-1]\n"
    "right = sum(w[0, i, i - 1] for i in range(1, n)) / max(n - 1, 1)\n"
    "rolled = sum(w[0, i, i - 1] for i in range(n)) / n\n"
    "(bool(right * factor < 1e-9), bool(rolled * factor > 0.199 * factor))",
    (True, True),
    lambda rng: {"factor": float(1 + rng.random())},
)

found.blames(
    "X196", "blames-the-batches", "C2",
    "Heads and batch items are kept apart as they should be. Which sentence says which queries "
    "count?",
)  # fmt: skip
found.input(
    "X197", "looks-back",
    "Your head does look at the position before, at least sometimes: `offset_score` is not 0.",
    "[[[0, 0, 1], [1, 0, 0], [0, 1, 0]]]",
)  # fmt: skip
found.input(
    "X197", "no-alarm",
    "`rolled_offset` raises no alarm on your weights: what does the pattern that it rolls look "
    "like in row 0?",
    "[[[1, 0, 0], [0, 1, 0], [0, 0, 1]]]",
)  # fmt: skip
found.input(
    "X197", "rows-do-not-sum-to-one",
    "Your array is not the weights of one head: (1, n, n), n from 2 to 5, each row with the sum 1, "
    "none negative.",
    "[[[0, 0, 1], [0, 0, 0], [0, 0, 1]]]",
)  # fmt: skip


@found.alternative("an array of two positions")
def two_positions():
    return "C1", np.array([[[0.5, 0.5], [0.0, 1.0]]])


@found.alternative("five positions")
def five_positions():
    w = np.eye(5)
    w[0] = [0, 0, 0, 0, 1]
    return ["C1", w[None].tolist()]
