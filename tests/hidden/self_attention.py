"""Hidden tests of chapter 03: self-attention."""

import math

import numpy as np

from manyheads import self_attention as library
from manyheads.matrices import linear, softmax
from manyheads.scaled_dot_product import attention
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import (
    COARSE,
    RAISES,
    all_scores_at,
    fortran,
    hidden_above,
    integers,
    normal,
    some_mask,
)
from tests.hidden.common import SAID, wrong_weights
from tests.hidden.spec import Example, Exercise

exercise = Exercise("03_self_attention", library)
grade = exercise.grade


# --- self_attention ------------------------------------------------------------------------------

self_attention = exercise.function("self_attention")
CALL = "self_attention(x, W_q, W_k, W_v)"
MASKED = "self_attention(x, W_q, W_k, W_v, mask)"
WEIGHTS = CALL + "[1]"
# Undo the change of places on the output's rows and on both axes of the weights: nothing is left.
MOVED = (
    f"output, weights = {CALL}\n"
    "moved, moved_weights = self_attention(x[..., p, :], W_q, W_k, W_v)\n"
    "(np.asarray(moved) - np.asarray(output)[..., p, :], "
    "np.asarray(moved_weights) - np.asarray(weights)[..., p, :][..., p])"
)
# Change one position and ask which outputs notice.
NOTICED = (
    f"before = np.asarray({CALL}[0])\n"
    "changed = np.array(x, dtype=float)\n"
    "changed[..., j, :] = -changed[..., j, :]\n"
    "after = np.asarray(self_attention(changed, W_q, W_k, W_v)[0])\n"
    "(np.abs(after - before) > 1e-7).any(axis=-1)"
)

# Three positions of width 2; square projections first, so that a transposed one keeps its shape.
X3 = np.array([[1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]])
W_Q = np.array([[1.0, 2.0], [0.0, 0.5]])
W_K = np.array([[1.0, -1.0], [0.5, 0.0]])  # W_q W_kᵀ is not symmetric
W_V = np.array([[2.0, 0.0], [1.0, -1.0]])
SMALL = {"x": X3, "W_q": W_Q, "W_k": W_K, "W_v": W_V}
THIN = {**SMALL, "W_v": W_V[:, :1]}
PAIR = {**THIN, "x": X3[:2]}
PAST = np.tri(3, dtype=bool)
# Position 1 is hidden; as a key it scores far above the others.
FAR = {
    "x": np.array([[1.0, -150.0], [1.0, 100.0], [0.5, -149.0]]),
    "W_q": np.array([[1.0], [0.0]]),
    "W_k": np.array([[0.0], [1.0]]),
    "W_v": np.array([[0.0], [1.0]]),
    "mask": np.array([[True, False, True]]),
}


def draw(rng, batch=(), n=5, d=6, d_k=4, d_v=3, dtype=float):
    """A sequence and its matrices, all sizes different, with moderate scores."""
    sizes = {"x": (*batch, n, d), "W_q": (d, d_k), "W_k": (d, d_k), "W_v": (d, d_v)}
    case = normal(rng, **sizes)
    case["x"] += 0.3
    for name in ("W_q", "W_k", "W_v"):
        case[name] *= 1.2 / math.sqrt(d)
    return {name: value.astype(dtype) for name, value in case.items()}


# First without projections, so that what is wrong with the weights is told as C2.
self_attention.witness(
    "values", "C2", CALL, **{**SMALL, "W_q": np.eye(2), "W_k": np.eye(2), "W_v": np.eye(2)}
)
self_attention.witness("values", "C1", CALL, **SMALL)
self_attention.witness("values", "C1", CALL, **{**SMALL, "x": X3[:2]})  # square, all of it
self_attention.witness(
    "values", "C2", CALL, x=np.array([[1.0, 2.0, -1.0], [0.0, 1.0, 1.0]]),
    W_q=np.array([[1.0], [0.0], [0.0]]), W_k=np.array([[0.0], [1.0], [2.0]]),
    W_v=np.array([[1.0, 0.0], [2.0, 1.0], [0.0, -1.0]]),
)  # fmt: skip
self_attention.witness("mask", "C3", MASKED, **THIN, mask=PAST)
self_attention.witness("mask", "C3", MASKED, **PAIR, mask=np.array([[False, True]]))
self_attention.witness("mask", "C3", MASKED, **FAR)
self_attention.witness(
    "nothing", "C4", MASKED, **PAIR, mask=np.array([[False, True], [False, False]]),
    options={"no_warning": True},
)  # fmt: skip
self_attention.witness("order", "C5", MOVED, **THIN, p=np.array([1, 2, 0]))
self_attention.witness("order", "C5", NOTICED, **THIN, j=2)
self_attention.witness("stability", "C6", CALL, **{**PAIR, "x": X3[:2] * [[3000.0], [1.0]]})
self_attention.witness(
    "stability", "C6", CALL, **all_scores_at({**PAIR, "W_k": np.eye(2)}, -4000.0)
)
self_attention.witness(
    "batches", "C7", MASKED, **{**PAIR, "x": np.stack([X3[:2], X3[1:]])},
    mask=np.array([[[True, True]], [[False, True]]]),
)  # fmt: skip
self_attention.witness("batches", "C7", CALL, **{**PAIR, "x": np.stack([X3[:2], X3[1:]])})
self_attention.witness(
    "numbers", "C8", CALL, x=np.array([[1, 2], [0, 1]]), W_q=np.array([[1, 0], [0, 1]]),
    W_k=np.array([[0, 1], [1, 1]]), W_v=np.array([[1], [2]]),
)  # fmt: skip
self_attention.witness("errors", "C9", CALL, **{**SMALL, "W_q": np.ones((3, 2))}, options=RAISES)
self_attention.witness("errors", "C9", CALL, **{**SMALL, "W_k": np.ones((2, 1))}, options=RAISES)
self_attention.witness("errors", "C9", CALL, **{**SMALL, "W_v": np.ones((1, 2))}, options=RAISES)
self_attention.witness("errors", "C9", MASKED, **SMALL, mask=np.ones((3, 2), bool), options=RAISES)


@self_attention.hidden("values")
def _(rng):
    for n, d, d_k, d_v in (
        (5, 6, 4, 3),
        (4, 3, 7, 5),
        (1, 4, 2, 3),
        (6, 1, 2, 5),
        (5, 8, 64, 1),
        (7, 5, 1, 2),
    ):
        yield Example("C2", CALL, draw(rng, (), n, d, d_k, d_v))
    yield Example(
        "C1", CALL, draw(rng, (), 4, 4, 4, 4)
    )  # square: a missing transpose keeps its shape
    yield Example("C1", CALL, draw(rng, (), 3, 5, 5, 5))
    case = draw(rng, (), 5, 6, 4, 4)
    yield Example("C1", WEIGHTS, case)
    yield Example("C1", "self_attention(x=x, W_q=W_q, W_k=W_k, W_v=W_v)", case)
    yield Example("C2", "self_attention(x, W_q, W_k, W_v, None)", case)
    yield Example("C1", CALL, {**case, "W_v": np.zeros((6, 4))})
    yield Example("C1", CALL, {**case, "W_q": case["W_k"], "W_k": case["W_q"]})
    yield Example("C1", CALL, {**case, "x": -case["x"]})


@self_attention.hidden("mask")
def _(rng):
    case = draw(rng, (), 7, 5, 4, 3)
    yield Example("C3", MASKED, {**case, "mask": some_mask(rng, 7, 7)})
    yield Example("C3", MASKED, {**case, "mask": np.tri(7, dtype=bool)})
    yield Example("C3", MASKED, {**case, "mask": np.ones((7, 7), bool)})
    yield Example("C3", MASKED, {**case, "mask": ~np.eye(7, dtype=bool)})
    yield Example(
        "C3", "self_attention(x, W_q, W_k, W_v, mask=mask)", {**case, "mask": some_mask(rng, 1, 7)}
    )
    square = draw(rng, (), 4, 4, 4, 4)
    yield Example("C3", MASKED, {**square, "mask": some_mask(rng, 4, 4)})
    hidden = np.array([False, True, False, False, True])
    for lift in (75, 290):  # hidden keys far above the visible ones expose weak penalties
        yield Example("C3", MASKED, hidden_above(draw(rng, (), 5, 6), hidden, lift))
    case = hidden_above(draw(rng, (), 5, 6, dtype=np.float32), hidden, 70)
    yield Example("C3", MASKED, case, **COARSE)
    case = all_scores_at(draw(rng, (), 5, 6), -120.0)
    yield Example("C3", MASKED, {**case, "mask": some_mask(rng, 5, 5)})


@self_attention.hidden("nothing")
def _(rng):
    for n in (5, 7):
        mask = some_mask(rng, n, n)
        mask[int(rng.integers(n))] = False
        yield Example("C4", MASKED, {**draw(rng, (), n), "mask": mask}, no_warning=True)
    yield Example("C4", MASKED, {**draw(rng), "mask": np.zeros((1, 5), bool)}, no_warning=True)
    single = draw(rng, (), 5, 6, dtype=np.float32)
    yield Example("C4", MASKED, {**single, "mask": np.tri(5, 5, -2, dtype=bool)}, no_warning=True)
    case = draw(rng)
    case["W_q"] *= 15
    yield Example("C4", MASKED, {**case, "mask": np.tri(5, 5, -1, dtype=bool)}, no_warning=True)


@self_attention.hidden("order")
def _(rng):
    for n in (5, 7, 4):
        p = np.roll(np.arange(n), 1)
        case = draw(rng, (), n, 6)
        case["W_q"] *= 0.3  # so that no weight is too small to be noticed
        yield Example("C5", MOVED, {**case, "p": p})
        yield Example("C5", MOVED, {**case, "p": p[::-1].copy()})
        yield Example("C5", NOTICED, {**case, "j": int(rng.integers(n))})
    case = draw(rng, (), 6, 5)
    case["W_q"] *= 0.3
    yield Example("C5", NOTICED, {**case, "j": 0})
    yield Example("C5", NOTICED, {**case, "j": 5})
    case["x"][4] = case["x"][1]  # equal positions get equal outputs
    twins = f"output = np.asarray({CALL}[0])\noutput[4] - output[1]"
    yield Example("C5", twins, case)


@self_attention.hidden("stability")
def _(rng):
    case = draw(rng, (), 5, 6)
    case["x"][2] *= 2000  # one row of scores thousands above the others
    yield Example("C6", CALL, case)
    for level in (-2500.0, -1e6, 1e6):
        case = all_scores_at(draw(rng), level)
        yield Example("C6", CALL, case)
        yield Example("C6", MASKED, {**case, "mask": some_mask(rng, 5, 5)})
    case = draw(rng)
    case["W_q"] *= 1e6
    yield Example("C6", CALL, case)
    case = draw(rng, (), 5, 6, dtype=np.float32)
    case["W_k"] *= 20
    yield Example("C6", CALL, case, **COARSE)


@self_attention.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3), (3, 1, 2)):
        case = draw(rng, batch, 5, 6)
        yield Example("C7", CALL, case)
        yield Example("C7", MASKED, {**case, "mask": some_mask(rng, *batch, 5, 5)})
    case = draw(rng, (4,), 4, 4, 4, 4)
    yield Example("C7", MASKED, {**case, "mask": some_mask(rng, 4, 1, 4)})
    yield Example("C7", MASKED, {**draw(rng, (5,), 5, 3), "mask": some_mask(rng, 5, 1, 5)})
    yield Example("C7", MASKED, {**draw(rng, (2, 3), 4, 5), "mask": some_mask(rng, 3, 4, 4)})
    yield Example("C7", MASKED, {**draw(rng, (2, 3), 4, 5), "mask": some_mask(rng, 2, 1, 1, 4)})
    yield Example("C7", MASKED, {**draw(rng, (3,), 5, 6), "mask": some_mask(rng, 5, 5)})
    yield Example("C7", MASKED, {**draw(rng, (3,), 5, 6), "mask": some_mask(rng, 3, 1, 5)})
    yield Example("C7", CALL, fortran(draw(rng, (3,), 5, 7)))


@self_attention.hidden("numbers")
def _(rng):
    case = draw(rng)
    yield Example("C8", MASKED, {**case, "mask": some_mask(rng, 5, 5)})
    whole = integers(case)
    yield Example("C8", CALL, whole)
    yield Example("C8", CALL, {**case, "x": whole["x"]})
    yield Example("C8", CALL, {**case, "W_v": (case["W_v"] * 7).astype(int)})
    yield Example("C8", CALL, draw(rng, (), 5, 6, 16, dtype=np.float32))
    single = draw(rng, (), 5, 6, dtype=np.float32)
    yield Example("C8", MASKED, {**single, "mask": some_mask(rng, 5, 5)})
    yield Example("C8", CALL, fortran(draw(rng, (), 5, 7)))
    yield Example("C8", CALL, {**case, "x": np.ascontiguousarray(case["x"][::-1])[::-1]})


@self_attention.hidden("errors")
def _(rng):
    good = {"x": (5, 4), "W_q": (4, 3), "W_k": (4, 3), "W_v": (4, 6)}
    misfits = [{"W_q": (5, 3)}, {"W_k": (3, 3)}, {"W_v": (6, 4)}, {"W_q": (1, 3)}, {"W_v": (1, 6)}]
    misfits += [{"W_k": (4, 2)}, {"W_q": (4, 1)}, {"W_k": (4, 1)}, {"x": (5, 3)}, {"x": (2, 5, 1)}]
    misfits += [{"W_q": (3, 4), "W_k": (3, 4)}, {"W_k": (1, 3)}]
    for misfit in misfits:
        inputs = normal(rng, **good | misfit)
        yield Example("C9", CALL, inputs, raises="ValueError")
    inputs = normal(rng, **good)
    for size in ((5, 4), (4, 5), (3, 5)):
        yield Example("C9", MASKED, {**inputs, "mask": np.ones(size, bool)}, raises="ValueError")
    batch = {**inputs, "x": rng.normal(size=(3, 5, 4)), "mask": np.ones((2, 1, 5), bool)}
    yield Example("C9", MASKED, batch, raises="ValueError")


# Where an error is asked for, all that returns is alike: what only forgets the error comes first.
@self_attention.misconception("X75", SAID["cuts-to-size"])
def cuts_to_size(x, W_q, W_k, W_v, mask=None):
    d = min(x.shape[-1], len(W_q), len(W_k), len(W_v))
    d_k = min(W_q.shape[1], W_k.shape[1])
    Q, K = x[..., :d] @ W_q[:d, :d_k], x[..., :d] @ W_k[:d, :d_k]
    if mask is not None:
        mask = np.asarray(mask)[..., : x.shape[-2], : x.shape[-2]]
    return attention(Q, K, x[..., :d] @ W_v[:d], mask)


@self_attention.misconception("X01", SAID["asserts"])
def asserts(x, W_q, W_k, W_v, mask=None):
    assert x.shape[-1] == len(W_q) == len(W_k) == len(W_v)
    assert W_q.shape == W_k.shape
    return attention(x @ W_q, x @ W_k, x @ W_v, mask)


@self_attention.misconception("X76", SAID["ignores-a-misfit"])
def ignores_a_misfit(x, W_q, W_k, W_v, mask=None):
    try:
        return attention(linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)
    except ValueError:
        return attention(linear(x, W_q), linear(x, W_k), linear(x, W_v))


@self_attention.misconception(
    "X02",
    "Sizes of 1 are stretched silently: a width of 1 does not fit a width of 3, and a "
    "ValueError has to say so.",
)
def stretches(x, W_q, W_k, W_v, mask=None):
    Q, K, V = ((x[..., :, None] * W).sum(-2) for W in (W_q, W_k, W_v))
    scores = (Q[..., :, None, :] * K[..., None, :, :]).sum(-1) / math.sqrt(
        max(Q.shape[-1], K.shape[-1])
    )
    visible = np.broadcast_to(True if mask is None else mask, scores.shape)
    weights = softmax(np.where(visible, scores, -1e30)) * visible.any(-1, keepdims=True)
    return weights @ V, weights


@self_attention.misconception(
    "X02",
    "An axis of size 1 is stretched silently (np.einsum and `*` do that): queries of width 1 do "
    "not fit keys of width 3, and a ValueError has to say so.",
)
def einsum_stretches(x, W_q, W_k, W_v, mask=None):
    Q, K, V = x @ W_q, x @ W_k, x @ W_v
    scores = np.einsum("...ik,...jk->...ij", Q, K) / math.sqrt(Q.shape[-1])
    visible = np.broadcast_to(True if mask is None else mask, scores.shape)
    weights = softmax(np.where(visible, scores, -1e30)) * visible.any(-1, keepdims=True)
    return weights @ V, weights


# Slips in the answer's lines. The projections:
for name, line, matrix in (
    ("queries", "Q = linear(x, W_q)", "W_q"),
    ("keys", "K = linear(x, W_k)", "W_k"),
    ("values", "V = linear(x, W_v)", "W_v"),
):
    self_attention.slip(
        "C17",
        f"{name}-by-the-transposed-matrix",
        f"Your {name} are x times the transposed {matrix}. Here a matrix stands on the right "
        f"as it is: x @ {matrix}.",
        line,
        line.replace(matrix, f"{matrix}.T"),
    )
    self_attention.slip(
        "C25",
        f"activated-{name}",
        f"An activation follows your {name} (negative entries have become 0): the projection "
        "alone is asked for.",
        line,
        f"{line}\n    {line[0]} = np.maximum({line[0]}, 0)",
    )
for code, name, message, old, new in (
    ("C14", "keys-from-the-query-matrix", SAID["keys-from-the-query-matrix"],
     "K = linear(x, W_k)", "K = linear(x, W_q + 0 * W_k)"),
    ("C14", "queries-from-the-key-matrix",
     "Your queries come from W_k, as the keys do: they have a matrix of their own, W_q.",
     "Q = linear(x, W_q)", "Q = linear(x, W_k + 0 * W_q)"),
    ("C19", "queries-and-keys-exchanged", SAID["queries-and-keys-exchanged"],
     "attention(Q, K, V, mask)", "attention(K, Q, V, mask)"),
    ("C19", "keys-and-values-exchanged",
     "Keys and values are exchanged: W_k makes what is compared, W_v what is averaged.",
     "attention(Q, K, V, mask)", "attention(Q, V, K, mask)"),
    ("C19", "queries-and-values-exchanged",
     "Queries and values are exchanged: W_q makes the queries, W_v what is averaged.",
     "attention(Q, K, V, mask)", "attention(V, K, Q, mask)"),
    ("B57", "keys-averaged",
     "Your output is a mean of the keys; the values x @ W_v are to be averaged.",
     "attention(Q, K, V, mask)", "attention(Q, K, K + 0 * V[..., :1], mask)"),
    ("B57", "queries-averaged",
     "Your output is a mean of the queries; the values x @ W_v are to be averaged.",
     "attention(Q, K, V, mask)", "attention(Q, K, Q + 0 * V[..., :1], mask)"),
    ("B56", "x-averaged", "Your output is a mean of x itself: the values are x @ W_v.",
     "attention(Q, K, V, mask)", "attention(Q, K, x + 0 * V[..., :1], mask)"),
    ("B56", "x-for-queries", "Your queries are x itself: they are x @ W_q.",
     "Q = linear(x, W_q)", "Q = x + 0 * linear(x, W_q)[..., :1]"),
    ("B56", "x-for-keys", "Your keys are x itself: they are x @ W_k.",
     "K = linear(x, W_k)", "K = x + 0 * linear(x, W_k)[..., :1]"),
    ("X60", "projected-twice",
     "Your values are projected twice: the second projection takes the result of the first, not x.",
     "V = linear(x, W_v)", "V = linear(x, W_v)\n    V = linear(V, W_v)"),
    ("X61", "one-after-the-other",
     "Your keys are a projection of the queries: each of the three projections takes x itself.",
     "K = linear(x, W_k)", "K = linear(Q, W_k)"),
    ("X62", "centred",
     "x is centred before the projections (its mean over the width is subtracted): nothing of the "
     "kind is asked for.",
     "Q = linear(x, W_q)", "x = x - np.mean(x, axis=-1, keepdims=True)\n    Q = linear(x, W_q)"),
    ("X63", "normalised",
     "x is normalised before the projections (LayerNorm): that belongs to chapter 11, not here.",
     "Q = linear(x, W_q)",
     "x = (x - np.mean(x, -1, keepdims=True)) / np.sqrt(np.var(x, -1, keepdims=True) + 1e-5)\n"
     "    Q = linear(x, W_q)"),
    ("X64", "unit-queries-and-keys",
     "Queries and keys are brought to length 1: their lengths belong to the scores.",
     "return attention(",
     "Q = Q / np.linalg.norm(Q, axis=-1, keepdims=True)\n"
     "    K = K / np.linalg.norm(K, axis=-1, keepdims=True)\n"
     "    return attention("),
):  # fmt: skip
    self_attention.slip(code, name, message, old, new)

# The scale:
for code, name, message, factor in (
    ("B01", "no-scale", SAID["no-scale"], "math.sqrt(Q.shape[-1])"),
    ("B02", "divided-by-d-k", SAID["divided-by-d-k"], "1 / math.sqrt(Q.shape[-1])"),
    ("B11", "scaled-twice", "The scores are scaled twice: `attention` divides by √d_k already.",
     "1 / np.sqrt(Q.shape[-1])"),
    ("B08", "multiplied", SAID["multiplied"], "Q.shape[-1]"),
    ("B03", "scaled-by-the-width-of-x",
     "The scores are divided by √d, the root of the width of x. The width that counts is that of "
     "the queries and keys: √d_k.",
     "math.sqrt(Q.shape[-1] / x.shape[-1])"),
    ("B03", "scaled-by-the-width-of-the-values",
     "The scores are divided by √d_v, the root of the values' width. The width that counts is that "
     "of the queries and keys: √d_k.",
     "math.sqrt(Q.shape[-1] / V.shape[-1])"),
    ("B03", "scaled-by-the-length",
     "The scores are divided by √n, the root of the number of positions. The width of queries and "
     "keys counts: √d_k.",
     "math.sqrt(Q.shape[-1] / x.shape[-2])"),
    ("B07", "constant-scale", SAID["constant-scale"], "math.sqrt(Q.shape[-1]) / 8"),
):  # fmt: skip
    if name != "scaled-twice":  # the same numbers as divided-by-d-k
        self_attention.slip(
            code,
            name,
            message,
            "attention(Q, K, V, mask)",
            f"attention(Q * ({factor}), K, V, mask)",
        )

# What is returned:
for code, name, message, new in (
    ("B61", "output-only", SAID["output-only"], "attention(Q, K, V, mask)[0]"),
    ("B61", "weights-only",
     "Your function returns the weights alone; (output, weights) is asked for.",
     "attention(Q, K, V, mask)[1]"),
    ("B61", "weights-first", SAID["weights-first"], "attention(Q, K, V, mask)[::-1]"),
    ("X14", "scores-returned", SAID["scores-returned"],
     "attention(Q, K, V, mask)[0], attention_scores(Q, K)"),
    ("C26", "residual-added", SAID["residual-added"],
     "(lambda o, w: (o + x[..., : o.shape[-1]] if o.shape[-1] <= x.shape[-1] else o + x[..., :1], "
     "w))(*attention(Q, K, V, mask))"),
    ("C26", "values-added",
     "Each position's own value is added to its output once more: the weighted mean alone is asked "
     "for.",
     "(lambda o, w: (o + V, w))(*attention(Q, K, V, mask))"),
    ("A21", "rounded", SAID["rounded"],
     "tuple(np.round(part, 4) for part in attention(Q, K, V, mask))"),
    ("J08", "softmax-twice", SAID["softmax-twice"],
     "(lambda o, w: (softmax(w) @ V, softmax(w)))(*attention(Q, K, V, mask))"),
    ("B59", "transposed-weights-used", SAID["transposed-weights-used"],
     "(lambda o, w: (np.swapaxes(w, -1, -2) @ V, w))(*attention(Q, K, V, mask))"),
    ("A26", "output-like-x", SAID["output-like-x"],
     "(lambda o, w: (o.astype(x.dtype), w))(*attention(Q, K, V, mask))"),
    ("X65", "mean-pooled",
     "Your output is one vector for the whole sequence; one for each position is asked for.",
     "(lambda o, w: (o.mean(-2), w))(*attention(Q, K, V, mask))"),
    ("X66", "rows-normalised-again",
     "Your output rows are brought to length 1: the weighted mean itself is asked for.",
     "(lambda o, w: (o / (np.linalg.norm(o, axis=-1, keepdims=True) + 1e-9), w))(*attention(Q, K, "
     "V, mask))"),
):  # fmt: skip
    self_attention.slip(code, name, message, "attention(Q, K, V, mask)", new)

# The mask:
for code, name, message, new in (
    ("B47", "mask-not-used", SAID["mask-not-used"], "attention(Q, K, V)"),
    ("B38", "mask-the-other-way", SAID["mask-the-other-way"],
     "attention(Q, K, V, None if mask is None else ~mask)"),
    ("B43", "mask-on-queries", SAID["mask-on-queries"],
     "attention(Q, K, V, mask if mask is None else np.swapaxes(np.broadcast_to(mask, "
     "(*x.shape[:-2], x.shape[-2], x.shape[-2])), -1, -2))"),
    ("B36", "mask-squared",
     "The mask hides queries too (mask times its transpose): only the keys that it marks are "
     "hidden.",
     "attention(Q, K, V, mask if mask is None else np.broadcast_to(mask, (*x.shape[:-2], "
     "x.shape[-2], x.shape[-2])) & np.swapaxes(np.broadcast_to(mask, (*x.shape[:-2], x.shape[-2], "
     "x.shape[-2])), -1, -2))"),
    ("A48", "mask-of-the-first-item", SAID["mask-of-the-first-item"],
     "attention(Q, K, V, mask if mask is None or np.ndim(mask) < 3 else np.asarray(mask)[(0,) * "
     "(np.ndim(mask) - 2)])"),
    ("X18", "always-causal", SAID["always-causal"],
     "attention(Q, K, V, causal_mask(x.shape[-2]) if mask is None else causal_mask(x.shape[-2]) & "
     "mask)"),
    ("X67", "causal-without-a-mask", SAID["causal-without-a-mask"],
     "attention(Q, K, V, causal_mask(x.shape[-2]) if mask is None else mask)"),
    ("X68", "not-itself",
     "A position does not see itself in your function: nothing but the mask may hide a key.",
     "attention(Q, K, V, ~np.eye(x.shape[-2], dtype=bool) if mask is None else mask & "
     "~np.eye(x.shape[-2], dtype=bool))"),
    ("X69", "always-itself", SAID["always-itself"],
     "attention(Q, K, V, mask if mask is None else mask | np.eye(x.shape[-2], dtype=bool))"),
    ("B33", "empty-rows-see-all", SAID["empty-rows-see-all"],
     "attention(Q, K, V, mask if mask is None else mask | ~np.any(mask, -1, keepdims=True))"),
    ("B33", "empty-rows-see-themselves",
     "A query that sees nothing looks at itself: it must get weights 0 and output 0.",
     "attention(Q, K, V, mask if mask is None else np.where(np.any(mask, -1, keepdims=True), "
     "mask, np.eye(x.shape[-2], dtype=bool)))"),
    ("X70", "hidden-positions-zeroed",
     "x is set to 0 at hidden positions and no score is hidden: a key of zeros has the score 0, "
     "and exp(0) = 1.",
     "attention(Q, K, V) if mask is None else attention(Q, K * np.any(mask, axis=-2)[..., None], "
     "V * np.any(mask, axis=-2)[..., None])"),
):  # fmt: skip
    self_attention.slip(code, name, message, "attention(Q, K, V, mask)", new)

BY_HAND = (
    "scores = attention_scores(Q, K)\n"
    "    visible = np.broadcast_to(True if mask is None else mask, scores.shape)\n    "
)
for code, name, message, lines in wrong_weights():
    self_attention.slip(
        code,
        name,
        message,
        "return attention(Q, K, V, mask)",
        BY_HAND + lines + "\n    return weights @ V, weights",
    )
self_attention.slip(
    "X71",
    "distance-decay",
    "Near positions get more weight than far ones: nothing in self-attention knows how far apart "
    "two positions are.",
    "return attention(Q, K, V, mask)",
    BY_HAND + "i = np.arange(x.shape[-2])\n"
    "    weights = softmax(np.where(visible, scores - 0.1 * abs(i[:, None] - i), -1e9))\n"
    "    return weights @ V, weights",
)


@self_attention.misconception(
    "C17",
    "The matrices stand on the left of x: they are (d_in, d_out) and stand on the right, x @ W.",
)
def matrices_on_the_left(x, W_q, W_k, W_v, mask=None):
    return attention(W_q @ x, W_k @ x, W_v @ x, mask)


@self_attention.misconception(
    "C17",
    "The matrices stand on the left of x: they are (d_in, d_out) and stand on the right, x @ W.",
)
def matrices_on_the_left(x, W_q, W_k, W_v, mask=None):
    return attention(W_q @ x, W_k @ x, W_v @ x, mask)


@self_attention.misconception(
    "C20", "There is no projection: queries, keys and values are all x itself."
)
def no_projections(x, W_q, W_k, W_v, mask=None):
    return attention(x, x, x, mask)


@self_attention.misconception(
    "X72",
    "Positions are added to x before the projections: that is chapter 07. Here nothing may "
    "know the order.",
)
def with_positions(x, W_q, W_k, W_v, mask=None):
    x = x + np.sin(np.arange(x.shape[-2]))[:, None]
    return attention(linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)


@self_attention.misconception(
    "A35",
    "Your function draws random numbers (dropout): some weights are 0 and the others too large.",
)
def with_dropout(x, W_q, W_k, W_v, mask=None):
    output, weights = attention(linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)
    weights = weights * (np.random.default_rng(0).random(weights.shape) > 0.1) / 0.9
    return weights @ linear(x, W_v), weights


@self_attention.misconception("A47", SAID["in-single-precision"])
def in_single_precision(x, W_q, W_k, W_v, mask=None):
    x, W_q, W_k, W_v = (np.asarray(a, dtype=np.float32) for a in (x, W_q, W_k, W_v))
    return attention(x @ W_q, x @ W_k, x @ W_v, mask)


@self_attention.misconception(
    "A24", "Your function changes x in place: the caller's numbers are gone."
)
def changes_x(x, W_q, W_k, W_v, mask=None):
    if x.dtype.kind != "f":
        x = x.astype(float)
    Q = linear(x, W_q) / np.sqrt(W_q.shape[1])
    K = linear(x, W_k)
    V = linear(x, W_v)
    x /= math.sqrt(W_q.shape[1])
    return attention(Q * np.sqrt(W_q.shape[1]), K, V, mask)


@self_attention.misconception(
    "A24", "Your function scales W_q in place: the second call scales it once more."
)
def scales_the_matrix(x, W_q, W_k, W_v, mask=None):
    if W_q.dtype.kind != "f":
        W_q = W_q.astype(float)
    W_q *= 0.5
    return attention(2 * linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)


@self_attention.misconception("A48", SAID["first-item-only"])
def first_item_only(x, W_q, W_k, W_v, mask=None):
    Q, K, V = linear(x, W_q), linear(x, W_k), linear(x, W_v)
    output, weights = (np.array(part) for part in attention(Q, K, V, mask))
    if x.ndim > 2:
        output[1:], weights[1:] = 0, 0
    return output, weights


@self_attention.misconception("B64", SAID["two-axes-only"])
def two_axes_only(x, W_q, W_k, W_v, mask=None):
    n, d = x.shape
    return attention(linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)


@self_attention.misconception("B64", SAID["one-batch-axis"])
def one_batch_axis(x, W_q, W_k, W_v, mask=None):
    B, n, d = x.shape
    return attention(linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)


@self_attention.misconception("A03", SAID["transposed-all-axes"])
def transposed_all_axes(x, W_q, W_k, W_v, mask=None):
    Q, K, V = linear(x, W_q), linear(x, W_k), linear(x, W_v)
    if W_q.shape != W_k.shape:
        raise ValueError("shapes")
    scores = Q @ K.T / math.sqrt(Q.shape[-1])
    if mask is None:
        weights = softmax(scores)
        return weights @ V, weights
    visible = np.broadcast_to(mask, scores.shape)
    weights = softmax(np.where(visible, scores, -1e9)) * visible.any(-1, keepdims=True)
    return weights @ V, weights


@self_attention.misconception("B52", SAID["keys-not-transposed"])
def keys_not_transposed(x, W_q, W_k, W_v, mask=None):
    Q, K, V = linear(x, W_q), linear(x, W_k), linear(x, W_v)
    scores = Q @ K / math.sqrt(Q.shape[-1])
    weights = softmax(scores if mask is None else np.where(mask, scores, -1e9))
    return weights @ V, weights


@self_attention.misconception(
    "B54",
    "Features are compared with features (QᵀK): your weights have a row for each feature, not "
    "for each position.",
)
def features_attend(x, W_q, W_k, W_v, mask=None):
    Q, K, V = linear(x, W_q), linear(x, W_k), linear(x, W_v)
    weights = softmax(np.swapaxes(Q, -1, -2) @ K / math.sqrt(Q.shape[-1]))
    return np.swapaxes(weights @ np.swapaxes(V, -1, -2), -1, -2), weights


@self_attention.misconception("X73", SAID["batch-as-one-sequence"])
def batch_as_one_sequence(x, W_q, W_k, W_v, mask=None):
    flat = np.reshape(x, (-1, x.shape[-1]))
    if mask is not None or x.ndim == 2:
        return attention(linear(x, W_q), linear(x, W_k), linear(x, W_v), mask)
    output, weights = attention(linear(flat, W_q), linear(flat, W_k), linear(flat, W_v))
    return np.reshape(output, (*x.shape[:-1], -1)), weights


@self_attention.alternative("through exercise 02's attention, with @")
def by_matmul(x, W_q, W_k, W_v, mask=None):
    return attention(x @ W_q, x @ W_k, x @ W_v, mask=mask)


@self_attention.alternative("one big projection, then slices")
def one_big_projection(x, W_q, W_k, W_v, mask=None):
    if W_q.shape != W_k.shape:
        raise ValueError("queries and keys differ in width")
    everything = x @ np.concatenate([W_q, W_k, W_v], axis=1)
    d_k = W_q.shape[1]
    Q, K, V = np.split(everything, [d_k, 2 * d_k], axis=-1)
    return attention(Q, K, V, mask)


@self_attention.alternative("the bilinear form x W_q W_kᵀ xᵀ")
def bilinear(x, W_q, W_k, W_v, mask=None):
    W_q, W_k = np.asarray(W_q, dtype=float), np.asarray(W_k, dtype=float)
    scores = x @ (W_q @ W_k.T) @ np.swapaxes(x, -1, -2) / math.sqrt(W_q.shape[1])
    visible = np.broadcast_to(True if mask is None else mask, scores.shape)
    scores = np.where(visible, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    e = np.where(visible, e, 0)
    total = e.sum(axis=-1, keepdims=True)
    weights = e / np.where(total == 0, 1, total)
    return weights @ x @ W_v, weights


@self_attention.alternative("loops over positions, lists out")
def by_loops(x, W_q, W_k, W_v, mask=None):
    x = np.asarray(x, dtype=float)
    n, d = x.shape[-2:]
    if not (len(W_q) == len(W_k) == len(W_v) == d) or W_q.shape[1] != W_k.shape[1]:
        raise ValueError(f"{x.shape} {W_q.shape} {W_k.shape} {W_v.shape}")
    visible = np.broadcast_to(True if mask is None else mask, (*x.shape[:-2], n, n))
    if x.ndim > 2:
        pairs = [by_loops(item, W_q, W_k, W_v, seen) for item, seen in zip(x, visible, strict=True)]
        return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    queries, keys, values = ([row @ W for row in x] for W in (W_q, W_k, W_v))
    output, weights = [], []
    for i, q in enumerate(queries):
        seen = [j for j in range(n) if visible[i, j]]
        scores = {j: float(q @ keys[j]) / W_q.shape[1] ** 0.5 for j in seen}
        top = max(scores.values(), default=0.0)
        e = {j: math.exp(s - top) for j, s in scores.items()}
        row = [e[j] / sum(e.values()) if j in e else 0.0 for j in range(n)]
        weights.append(row)
        output.append(
            [
                sum(w * float(v[c]) for w, v in zip(row, values, strict=True))
                for c in range(W_v.shape[1])
            ]
        )
    return output, weights


@self_attention.alternative("einsum, −1e9, zeroed afterwards")
def by_einsum(x, W_q, W_k, W_v, mask=None):
    if W_q.shape != W_k.shape:
        raise ValueError("W_q and W_k")
    if {x.shape[-1]} != {W_q.shape[0], W_v.shape[0]}:
        raise ValueError("the width of x")
    q = np.einsum("...nd,dk->...nk", x, W_q)
    k = np.einsum("...nd,dk->...nk", x, W_k)
    v = np.einsum("...nd,dv->...nv", x, W_v)
    scores = np.einsum("...ik,...jk->...ij", q, k) * W_q.shape[1] ** -0.5
    if mask is None:
        mask = np.ones((1, 1), dtype=bool)
    visible = np.broadcast_to(mask, scores.shape)
    weights = softmax(np.where(visible, scores, -1e9), axis=-1)
    weights = np.where(visible.any(-1, keepdims=True), weights, 0.0)
    return np.einsum("...ij,...jv->...iv", weights, v), weights


@self_attention.alternative("the scale folded into W_q, masked after the exponential")
def scale_folded_in(x, W_q, W_k, W_v, mask=None):
    Q, K, V = x @ (W_q / math.sqrt(W_q.shape[1])), x @ W_k, x @ W_v
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError("d_k")
    scores = Q @ K.swapaxes(-1, -2)
    visible = np.broadcast_to(mask if mask is not None else True, scores.shape)
    top = np.max(scores, axis=-1, keepdims=True, initial=-1e30, where=visible)
    e = np.exp(np.minimum(scores - top, 0)) * visible
    total = e.sum(-1, keepdims=True)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return np.asfortranarray(weights @ V), weights


@self_attention.alternative("always four axes inside")
def four_axes_inside(x, W_q, W_k, W_v, mask=None):
    x = np.asarray(x)
    n = x.shape[-2]
    flat = x.reshape(-1, n, x.shape[-1])
    visible = None
    if mask is not None:
        visible = np.broadcast_to(mask, (*x.shape[:-2], n, n)).reshape(-1, n, n)
    parts = [
        attention(item @ W_q, item @ W_k, item @ W_v, None if visible is None else visible[b])
        for b, item in enumerate(flat)
    ]
    output = np.stack([part[0] for part in parts]).reshape(*x.shape[:-1], -1)
    weights = np.stack([part[1] for part in parts]).reshape(*x.shape[:-1], n)
    return output, weights


# --- break_tied_attention ------------------------------------------------------------------------

found = BreakIt(exercise, "break_tied_attention", answer="C1", sentences=9)
ARRAYS = (
    "sentence, x, W_q, W_k, W_v = break_tied_attention()\n"
    "x, W_q, W_k, W_v = (np.asarray(a, dtype=float) for a in (x, W_q, W_k, W_v))\n"
)
found.fits(
    ARRAYS + "(x.ndim == W_q.ndim == W_k.ndim == W_v.ndim == 2 and x.shape[1] == len(W_q) == "
    "len(W_v) and W_q.shape == W_k.shape and max(*x.shape, *W_q.shape, *W_v.shape) <= 4)"
)
# Several positions, two matrices, different values, a visible difference: the last needs the rest.
found.shows(
    ARRAYS + "x = x[[i for i in p if i < len(x)]]\n"
    "def result(K):\n"
    "    scores = x @ W_q @ K.T / math.sqrt(W_q.shape[1])\n"
    "    e = np.exp(scores - scores.max(axis=1, keepdims=True))\n"
    "    return e / e.sum(axis=1, keepdims=True) @ x @ W_v\n"
    "difference = np.abs(result(x @ W_k) - result(x @ W_q)).max()\n"
    "(len(x) > 1, bool((W_q != W_k).any()), bool(np.ptp(x @ W_v, axis=0).any()), "
    "bool(difference > 0.01))",
    (True, True, True, True),
    lambda rng: {"p": rng.permutation(4)},  # in any order of its positions
)

found.blames(
    "X80", "blames-the-weights", "C2",
    "The softmax and the scale are as they should be, given queries and keys. Look at what the "
    "keys are made of.",
)  # fmt: skip
found.blames(
    "X80", "blames-the-mask", "C3",
    "The mask is handed on as it should be. Look at what the keys are made of.",
)  # fmt: skip
found.blames(
    "X80", "blames-the-order", "C5",
    "`tied_attention` does not know the order either: move the positions, and its output moves "
    "with them. Look at what the keys are made of.",
)  # fmt: skip
found.blames(
    "X80", "blames-the-shapes", "C9",
    "A W_k that does not fit is not noticed, true, but the numbers are wrong before that: what "
    "are the keys made of?",
)  # fmt: skip
found.input(
    "X81", "one-position", "With one position every weight is 1, whatever the keys are: take two.",
    "x[:1], W_q, W_k, W_v",
)  # fmt: skip
found.input(
    "X81", "equal-matrices",
    "Your W_q and W_k are equal, and then `tied_attention` is right: choose two matrices.",
    "x, W_q, W_q, W_v",
)  # fmt: skip
found.input(
    "X81", "equal-values",
    "All values are alike, so every weighted mean of them is the same: choose values that differ.",
    "x, W_q, W_k, [[0], [0]]",
)  # fmt: skip
found.input(
    "X81", "too-small-a-difference",
    "On your input the two outputs differ by less than 0.01: take larger numbers.",
    "x, W_q, W_k, [[0], [0.001]]",
)  # fmt: skip
found.input(
    "X81", "shapes-do-not-fit",
    "Your arrays do not fit `self_attention`, or are larger than 4: compare their shapes with the "
    "contract.",
    "x, W_q, W_k, [[0], [1], [2]]",
)  # fmt: skip


@found.alternative("random numbers")
def random_input():
    rng = np.random.default_rng(1)
    return (
        "C1",
        rng.normal(size=(4, 3)),
        rng.normal(size=(3, 2)),
        rng.normal(size=(3, 2)),
        rng.normal(size=(3, 4)),
    )


@found.alternative("a dictionary's values, a list")
def from_a_dictionary():
    inputs = {"x": np.eye(3), "W_q": np.zeros((3, 1)), "W_k": np.zeros((3, 1)), "W_v": np.eye(3)}
    inputs["W_q"][0], inputs["W_k"][1] = 2, 3.0
    return ["C1", *inputs.values()]
