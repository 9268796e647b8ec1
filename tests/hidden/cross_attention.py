"""Hidden tests of chapter 06: cross-attention, alignments, a decoder's two attentions."""

import numpy as np

from manyheads import cross_attention as library
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import COARSE, RAISES, fortran, integers, some_mask
from tests.hidden.common import SAID, wrong_weights
from tests.hidden.spec import Example, Exercise

exercise = Exercise("06_cross_attention", library)
grade = exercise.grade


def draw(rng, batch=(), n=4, m=5, d=6, d_mem=9, dtype=float):
    """A sequence that asks, one that answers, and the four matrices; moderate scores."""
    case = {
        "x": rng.normal(size=(*batch, n, d)),
        "memory": rng.normal(size=(*batch, m, d_mem)),
        "W_q": rng.normal(size=(d, d)) * 1.4 / d**0.5,
        "W_k": rng.normal(size=(d_mem, d)) * 1.4 / d_mem**0.5,
        "W_v": rng.normal(size=(d_mem, d)),
        "W_o": rng.normal(size=(d, d)),
    }
    return {key: value.astype(dtype) for key, value in case.items()}


# --- cross_attention -----------------------------------------------------------------------------

cross = exercise.function("cross_attention")
CALL = "cross_attention(x, memory, W_q, W_k, W_v, W_o, num_heads)"
MASKED = "cross_attention(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask)"

# Two queries of width 2, three positions of width 3, two heads of width 1.
TINY = {
    "x": np.array([[1.0, 2.0], [0.0, -1.0]]),
    "memory": np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [1.0, 1.0, -1.0]]),
    "W_q": np.array([[1.0, 0.5], [0.0, 1.0]]),
    "W_k": np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.0]]),
    "W_v": np.array([[1.0, 2.0], [3.0, 0.0], [0.0, -1.0]]),
    "W_o": np.array([[1.0, 1.0], [0.0, 2.0]]),
}
# As many positions and columns on both sides: here a memory taken for x keeps every shape.
SQUARE = {
    "x": np.array([[1.0, -1.0], [0.5, 0.5]]),
    "memory": np.array([[1.0, 0.0], [-1.0, 1.0]]),
    "W_q": np.array([[1.0, 0.5], [0.0, 1.0]]),
    "W_k": np.array([[1.0, 1.0], [0.0, -1.0]]),
    "W_v": np.array([[1.0, 3.0], [-1.0, 1.0]]),
    "W_o": np.array([[2.0, 0.0], [1.0, -1.0]]),
}
# One query of width 4 in two heads of width 2.
WIDER = {
    "x": np.array([[1.0, 0.5, -1.0, 0.0]]),
    "memory": np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]),
    "W_q": np.array([[1.0, 0, 2, 0], [0, 1, 0, 1], [0, 1, 1, 0], [1, 0, 0, 1]]),
    "W_k": np.array([[1.0, 0, -1, 2], [0, 1, 0, 1]]),
    "W_v": np.array([[1.0, 2, 0, -1], [3, 0, 1, 0]]),
    "W_o": np.array([[1.0, 2, 0, 0], [0, 1, 0, -1], [0, 0, 1, 0], [1, 0, 0, 3]]),
}
TWICE = {
    **TINY,
    "x": np.stack([TINY["x"], -TINY["x"]]),
    "memory": np.stack([TINY["memory"], TINY["memory"] * 2]),
}
PAST = np.tri(2, dtype=bool)
# Position 1 of the memory is hidden; as a key it scores far above the others.
FAR = {
    "x": np.array([[1.0, 0.0], [0.5, 0.0]]),
    "memory": np.array([[-150.0, 0.0], [100.0, 0.0], [-149.0, 0.0]]),
    **{name: np.eye(2) for name in ("W_q", "W_k", "W_v", "W_o")},
    "num_heads": 1,
    "memory_mask": np.array([[True, False, True]]),
}
FIRST_SEES = np.array([[True, False, True], [False, False, False]])

cross.witness("values", "C1", CALL, **SQUARE, num_heads=1)
cross.witness("values", "C1", CALL + "[0]", **WIDER, num_heads=2)
cross.witness("values", "C2", CALL, **{**TINY, "x": TINY["x"][:1]}, num_heads=2)
cross.witness(
    "mask", "C3", MASKED + "[1]", **TINY, num_heads=2,
    memory_mask=np.array([[True, True, False], [False, True, True]]),
)  # fmt: skip
cross.witness("mask", "C3", MASKED, **SQUARE, num_heads=1, memory_mask=PAST)
cross.witness("mask", "C3", MASKED + "[1]", **FAR)
cross.witness(
    "nothing", "C4", MASKED + "[0]", **TINY, num_heads=2, memory_mask=FIRST_SEES,
    options={"no_warning": True},
)  # fmt: skip
cross.witness(
    "nothing", "C4", MASKED + "[1]", **TINY, num_heads=1, memory_mask=FIRST_SEES,
    options={"no_warning": True},
)  # fmt: skip
cross.witness(
    "batches", "C5", MASKED + "[0]", **TWICE, num_heads=2,
    memory_mask=np.array([[[True, True, False]], [[False, True, True]]]),
)  # fmt: skip
cross.witness("batches", "C5", CALL + "[1]", **TWICE, num_heads=2)
cross.witness("numbers", "C6", CALL + "[1]", **{**TINY, "x": TINY["x"] * 4000}, num_heads=1)
cross.witness(
    "numbers", "C6", CALL + "[0]", num_heads=1, x=np.array([[1, 0], [0, 1]]),
    memory=np.array([[1, 0], [0, 2]]), W_q=np.array([[1, 1], [0, -1]]),
    W_k=np.array([[0, 1], [1, 0]]), W_v=np.array([[3, 1], [0, 2]]), W_o=np.array([[1, 2], [0, 1]]),
)  # fmt: skip
cross.witness("errors", "C7", CALL, **{**TINY, "W_k": np.ones((2, 2))}, num_heads=2, options=RAISES)
cross.witness("errors", "C7", CALL, **TINY, num_heads=3, options=RAISES)
cross.witness(
    "errors", "C7", MASKED, **TINY, num_heads=1, memory_mask=np.ones((2, 2), bool), options=RAISES
)
cross.witness(
    "errors", "C7", CALL, **{**TWICE, "memory": TINY["memory"][None]}, num_heads=2, options=RAISES
)


@cross.hidden("values")
def _(rng):
    for n, m, d, d_mem, h in (
        (4, 7, 6, 9, 3),
        (5, 3, 8, 5, 2),
        (3, 5, 12, 7, 4),
        (1, 4, 6, 6, 3),
        (4, 1, 6, 8, 2),
    ):
        case = draw(rng, (), n, m, d, d_mem)
        yield Example("C2", CALL, {**case, "num_heads": h})
    yield Example("C1", CALL, {**draw(rng, (), 6, 6, 6, 6), "num_heads": 3})  # everything square
    yield Example("C1", CALL, {**draw(rng), "num_heads": 1})
    yield Example("C1", CALL, {**draw(rng), "num_heads": 6})
    named = (
        "cross_attention(x=x, memory=memory, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o, "
        "num_heads=num_heads, memory_mask=None)"
    )
    yield Example("C1", named, {**draw(rng), "num_heads": 3})
    changed = (
        "changed = memory.copy()\nchanged[1] += 1\n"
        "cross_attention(x, changed, W_q, W_k, W_v, W_o, num_heads)"
    )
    yield Example("C1", changed, {**draw(rng), "num_heads": 3})


@cross.hidden("mask")
def _(rng):
    for shape in ((4, 7), (1, 7)):
        case = draw(rng, (), 4, 7)
        yield Example("C3", MASKED, {**case, "num_heads": 3, "memory_mask": some_mask(rng, *shape)})
    square = draw(rng, (), 5, 5)
    yield Example("C3", MASKED, {**square, "num_heads": 2, "memory_mask": some_mask(rng, 5, 5)})
    named = MASKED.replace(", memory_mask)", ", memory_mask=memory_mask)")
    yield Example("C3", named, {**draw(rng), "num_heads": 3, "memory_mask": some_mask(rng, 4, 5)})
    case = draw(rng)
    yield Example("C3", MASKED, {**case, "num_heads": 3, "memory_mask": np.ones((4, 5), bool)})
    for lift in (75, 200, 290):  # hidden positions far above the visible ones expose weak penalties
        yield Example("C3", MASKED, hidden_above(draw(rng), lift))
    case = hidden_above(draw(rng, dtype=np.float32), 70)
    yield Example("C3", MASKED, case, **COARSE)
    case = all_scores_at(draw(rng), -120.0)
    yield Example("C3", MASKED, {**case, "memory_mask": some_mask(rng, 4, 5)})


def first_columns(case, num_heads):
    """The first column of every head."""
    return np.arange(num_heads) * (case["W_q"].shape[0] // num_heads)


def hidden_above(case, lift, num_heads=3):
    """In every head the hidden positions score about `lift` above the visible ones."""
    columns = first_columns(case, num_heads)
    mask = np.array([[True, False, True, False, True]])
    case["x"][:, 0], case["memory"][:, 0] = 1, ~mask[0]
    for name in ("W_q", "W_k"):
        case[name] *= 0.3
        case[name][0], case[name][:, columns] = 0, 0
    case["W_q"][0, columns] = 1
    case["W_k"][0, columns] = lift * (case["W_q"].shape[0] // num_heads) ** 0.5
    return {**case, "memory_mask": mask, "num_heads": num_heads}


def all_scores_at(case, level, num_heads=3):
    """The case with all its scores moved to about `level`, in every head."""
    d_k = case["W_q"].shape[0] // num_heads
    columns = first_columns(case, num_heads)
    case["x"][..., 0], case["memory"][..., 0] = 1, 1
    case["W_q"][:, columns], case["W_k"][:, columns] = 0, 0
    case["W_q"][0, columns], case["W_k"][0, columns] = 100, level * d_k**0.5 / 100
    return {**case, "num_heads": num_heads}


@cross.hidden("nothing")
def _(rng):
    mask = some_mask(rng, 4, 5)
    mask[int(rng.integers(4))] = False
    case = {**draw(rng), "num_heads": 3, "memory_mask": mask}
    yield Example("C4", MASKED, case, no_warning=True)
    case = {**draw(rng), "num_heads": 3, "memory_mask": np.zeros((1, 5), bool)}
    yield Example("C4", MASKED, case, no_warning=True)
    single = {**draw(rng, dtype=np.float32), "num_heads": 2}
    single["memory_mask"] = np.tri(4, 5, -2, dtype=bool)
    yield Example("C4", MASKED, single, no_warning=True)
    far = {**draw(rng), "num_heads": 3, "memory_mask": np.tri(4, 5, -1, dtype=bool)}
    far["W_q"] *= 15
    yield Example("C4", MASKED, far, no_warning=True)
    square = {**draw(rng, (), 4, 4, 6, 6), "num_heads": 3, "memory_mask": some_mask(rng, 4, 4)}
    square["memory_mask"][2] = False
    yield Example("C4", MASKED, square, no_warning=True)


@cross.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3), (2, 1, 2)):
        case = {**draw(rng, batch), "num_heads": 3}
        yield Example("C5", CALL, case)
        yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, *batch, 4, 5)})
    case = {**draw(rng, (4,), 4, 5, 8, 6), "num_heads": 4}  # as many items as heads and queries
    yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, 4, 1, 5)})
    case = {**draw(rng, (3,), 3, 3, 9, 9), "num_heads": 3}  # all sizes agree
    yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, 3, 3, 3)})
    case = {**draw(rng, (2, 3)), "num_heads": 3}
    yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, 3, 1, 5)})
    for shape in ((3, 4, 5), (3, 1, 5), (4, 5)):  # as many batch items as heads
        case = {**draw(rng, (3,)), "num_heads": 3}
        yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, *shape)})


@cross.hidden("numbers")
def _(rng):
    case = draw(rng)
    case["x"][1] *= 3000
    yield Example("C6", CALL, {**case, "num_heads": 3})
    for level in (-2500.0, 1e6):
        case = all_scores_at(draw(rng), level)
        yield Example("C6", CALL, case)
        yield Example("C6", MASKED, {**case, "memory_mask": some_mask(rng, 4, 5)})
    yield Example("C6", CALL, {**draw(rng, dtype=np.float32), "num_heads": 3})
    single = {**draw(rng, dtype=np.float32), "num_heads": 2, "memory_mask": some_mask(rng, 4, 5)}
    yield Example("C6", MASKED, single)
    whole = integers(draw(rng))
    yield Example("C6", CALL, {**whole, "num_heads": 3})
    yield Example("C6", CALL, {**draw(rng), "x": whole["x"], "num_heads": 3})
    other_order = fortran(draw(rng))
    yield Example("C6", CALL, {**other_order, "num_heads": 3})


@cross.hidden("errors")
def _(rng):
    case = draw(rng)
    for name, shape in (
        ("W_q", (9, 6)),
        ("W_k", (6, 6)),
        ("W_v", (6, 6)),
        ("W_o", (9, 6)),
        ("W_k", (9, 3)),
        ("W_v", (9, 3)),
        ("W_q", (6, 3)),
        ("W_q", (1, 6)),
        ("W_k", (1, 6)),
    ):
        wrong = {**case, name: rng.normal(size=shape), "num_heads": 3}
        yield Example("C7", CALL, wrong, raises="ValueError")
    for size in ((5, 5), (4, 4), (2, 1, 5)):
        wrong = {**case, "num_heads": 3, "memory_mask": np.ones(size, bool)}
        yield Example("C7", MASKED, wrong, raises="ValueError")
    for h in (4, 5, 7, 12):
        yield Example("C7", CALL, {**case, "num_heads": h}, raises="ValueError")
    for x, memory in (((3,), (2,)), ((3,), (1,)), ((1,), (3,)), ((), (3,)), ((3,), ())):
        wrong = {**case, "num_heads": 3}
        wrong["x"] = rng.normal(size=(*x, 4, 6))
        wrong["memory"] = rng.normal(size=(*memory, 5, 9))
        yield Example("C7", CALL, wrong, raises="ValueError")


# What only forgets the error comes first: where an error is asked for, all that returns is alike.
@cross.misconception("X75", SAID["cuts-to-size"])
def cuts_to_size(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    k = max(1, x.shape[-1] // num_heads)
    x, memory = x[..., : len(W_q)], memory[..., : min(len(W_k), len(W_v))]
    if x.ndim != memory.ndim or x.shape[:-2] != memory.shape[:-2]:
        memory = np.broadcast_to(
            memory[(0,) * (memory.ndim - 2)], (*x.shape[:-2], *memory.shape[-2:])
        )
    outputs, weights = [], []
    for i in range(num_heads):
        part = slice(i * k, (i + 1) * k)
        Q = x @ W_q[: x.shape[-1], part]
        K, V = (memory @ W[: memory.shape[-1], part] for W in (W_k, W_v))
        width = min(Q.shape[-1], K.shape[-1])
        o, w = attention(Q[..., :width], K[..., :width], V, memory_mask)
        outputs.append(o), weights.append(w)
    joined = np.concatenate(outputs, axis=-1)
    width = min(joined.shape[-1], len(W_o))
    return joined[..., :width] @ W_o[:width], np.stack(weights, axis=-3)


@cross.misconception("X01", SAID["asserts"])
def asserts(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    d, d_mem = x.shape[-1], memory.shape[-1]
    assert d % num_heads == 0 and x.shape[:-2] == memory.shape[:-2]
    assert W_q.shape == W_o.shape == (d, d) and W_k.shape == W_v.shape == (d_mem, d)
    if memory_mask is not None:
        memory_mask = np.broadcast_to(memory_mask, (*x.shape[:-1], memory.shape[-2]))[
            ..., None, :, :
        ]
    Q, K, V = (split_heads(a @ W, num_heads) for a, W in ((x, W_q), (memory, W_k), (memory, W_v)))
    heads, weights = attention(Q, K, V, memory_mask)
    return merge_heads(heads) @ W_o, weights


QUERIES = "Q = split_heads(linear(x, W_q), num_heads)"
KEYS = "K = split_heads(linear(memory, W_k), num_heads)"
VALUES = "V = split_heads(linear(memory, W_v), num_heads)"
ATTEND = "output, weights = attention(Q, K, V, mask)"
OUT = "return linear(merge_heads(output), W_o), weights"

cross.slip(
    "B01",
    "no-scale",
    SAID["no-scale"],
    ATTEND,
    "output, weights = attention(Q * math.sqrt(Q.shape[-1]), K, V, mask)",
)
cross.slip(
    "B03",
    "scale-by-model-width",
    "You divide by the root of the model's width d. Each head compares d_k = d / h columns: "
    "divide by √d_k.",
    ATTEND,
    "output, weights = attention(Q / math.sqrt(num_heads), K, V, mask)",
)
cross.slip(
    "B02",
    "divided-by-d-k",
    SAID["divided-by-d-k"],
    ATTEND,
    "output, weights = attention(Q / math.sqrt(Q.shape[-1]), K, V, mask)",
)
cross.slip(
    "D01",
    "keys-and-values-from-x",
    "Keys and values come from x: this is self-attention, and the memory changes nothing. They "
    "come from the memory.",
    QUERIES,
    "memory = x\n    " + QUERIES,
)
cross.slip(
    "D02",
    "queries-from-the-memory",
    "The queries come from the memory, which asks itself: x asks, x @ W_q.",
    QUERIES,
    "x = memory\n    " + QUERIES,
)
cross.slip(
    "D14",
    "values-from-x",
    "The values come from x; what is handed over is the memory's.",
    VALUES,
    VALUES.replace("memory", "x"),
)
cross.slip(
    "C22", "no-output-matrix", SAID["no-output-matrix"], OUT, "return merge_heads(output), weights"
)
cross.slip(
    "C17",
    "output-matrix-transposed",
    "W_o is transposed: it stands on the right, `… @ W_o`.",
    OUT,
    "return linear(merge_heads(output), W_o.T), weights",
)
cross.slip(
    "C17",
    "query-matrix-transposed",
    "W_q is transposed: queries are `x @ W_q`.",
    "linear(x, W_q)",
    "linear(x, W_q.T)",
)
cross.slip(
    "C20",
    "queries-not-projected",
    "x itself is used as queries: multiply it by W_q.",
    "linear(x, W_q)",
    "x",
)
cross.slip(
    "C19",
    "key-and-value-matrices-exchanged",
    "W_k and W_v are exchanged.",
    "linear(memory, W_k), num_heads)  # (…, h, m, d_k)\n    V = split_heads(linear(memory, W_v)",
    "linear(memory, W_v), num_heads)  # (…, h, m, d_k)\n    V = split_heads(linear(memory, W_k)",
)
cross.slip(
    "B57",
    "keys-instead-of-values",
    SAID["keys-instead-of-values"],
    ATTEND,
    "output, weights = attention(Q, K, K, mask)",
)
cross.slip(
    "C03",
    "joined-by-reshape",
    SAID["joined-by-reshape"],
    OUT,
    "return linear(output.reshape(x.shape), W_o), weights",
)
cross.slip(
    "C01",
    "cut-by-reshape",
    SAID["cut-by-reshape"],
    KEYS,
    "def cut(a):\n        return a.reshape(*a.shape[:-2], num_heads, a.shape[-2], -1)\n\n"
    "    if d % num_heads:\n        raise ValueError('heads')\n    Q = cut(linear(x, W_q))\n   "
    " K = cut(linear(memory, W_k))",
)
cross.slip(
    "C06",
    "interleaved",
    SAID["interleaved"],
    ATTEND,
    "def deal(a, W):\n        y = linear(a, W)\n        y = y.reshape(*y.shape[:-1], -1, "
    "num_heads)\n"
    "        return np.moveaxis(y, -1, -3)\n\n"
    "    output, weights = attention(deal(x, W_q), deal(memory, W_k), deal(memory, W_v), mask)",
)
cross.slip(
    "C33",
    "mean-of-the-weights",
    "One map for all heads is returned; each head's own is asked for, (…, h, n, m).",
    OUT,
    "return linear(merge_heads(output), W_o), weights.mean(axis=-3)",
)
cross.slip(
    "B61", "output-only", SAID["output-only"], OUT, "return linear(merge_heads(output), W_o)"
)
cross.slip(
    "C26",
    "residual-added",
    SAID["residual-added"],
    OUT,
    "return x + linear(merge_heads(output), W_o), weights",
)
cross.slip(
    "C25",
    "activated",
    "An activation (ReLU) stands behind a projection; the projections are linear.",
    QUERIES,
    "Q = np.maximum(split_heads(linear(x, W_q), num_heads), 0)",
)
cross.slip(
    "B38",
    "mask-the-other-way",
    SAID["mask-the-other-way"],
    "np.broadcast_to(memory_mask,",
    "~np.broadcast_to(memory_mask,",
)
cross.slip(
    "B47", "mask-not-used", SAID["mask-not-used"], ATTEND, "output, weights = attention(Q, K, V)"
)
cross.slip(
    "B44",
    "mask-without-head-axis",
    "The mask gets no head axis: its batch axis is laid on the heads. Broadcast it to (…, n, "
    "m) first, then add the axis.",
    "mask = visible[..., None, :, :]  # the same for every head",
    "mask = memory_mask",
)
cross.slip(
    "B45",
    "mask-of-another-item",
    "A batch item uses the mask of another one.",
    "mask = visible[..., None, :, :]",
    "mask = np.roll(visible, 1, axis=0)[..., None, :, :] if visible.ndim > 2 else visible[..., "
    "None, :, :]",
)
cross.slip(
    "B43",
    "mask-on-queries",
    SAID["mask-on-queries"],
    "visible = np.broadcast_to(memory_mask,",
    "memory_mask = np.swapaxes(memory_mask, -1, -2) if memory_mask.shape[-2] == "
    "memory_mask.shape[-1] else ~memory_mask\n"
    "        visible = np.broadcast_to(memory_mask,",
)
cross.slip(
    "X60",
    "causal",
    "A causal mask is at work. The memory is complete: every query may see all of it.",
    ATTEND,
    "past = np.tri(x.shape[-2], memory.shape[-2], max(memory.shape[-2] - x.shape[-2], 0), "
    "dtype=bool)\n"
    "    output, weights = attention(Q, K, V, past if mask is None else mask & past)",
)
cross.slip(
    "D13",
    "memory-of-another-item",
    "A batch item asks the memory of another one.",
    QUERIES,
    "if memory.ndim > 2:\n        memory = np.roll(memory, 1, axis=0)\n    Q = "
    "split_heads(linear(x, W_q), num_heads)",
)
cross.slip(
    "A26",
    "output-like-x",
    SAID["output-like-x"],
    OUT,
    "return linear(merge_heads(output), W_o).astype(x.dtype), weights",
)


@cross.misconception(
    "X61",
    "x and a memory with other leading axes are stretched to each other silently; they have to "
    "be equal.",
)
def stretches_the_batch(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    if (
        W_k.shape != (memory.shape[-1], x.shape[-1])
        or W_v.shape != W_k.shape
        or W_q.shape != W_o.shape
    ):
        raise ValueError("matrices")
    Q = split_heads(linear(x, W_q), num_heads)
    K = split_heads(linear(memory, W_k), num_heads)
    V = split_heads(linear(memory, W_v), num_heads)
    scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])
    seen = np.ones(scores.shape, dtype=bool)
    if memory_mask is not None:
        seen = np.broadcast_to(
            np.expand_dims(np.broadcast_to(memory_mask, (*x.shape[:-1], memory.shape[-2])), -3),
            scores.shape,
        )
    weights = softmax(np.where(seen, scores, -1e9)) * seen.any(-1, keepdims=True)
    return linear(merge_heads(weights @ V), W_o), weights


@cross.misconception(
    "D02",
    "The roles are exchanged: the memory asks and x answers. The output has a row for each "
    "query of x.",
)
def roles_exchanged(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    x, memory = memory, x
    if x.shape[:-2] != memory.shape[:-2]:
        raise ValueError("leading axes")
    Q = split_heads(linear(x, W_q), num_heads)
    K = split_heads(linear(memory, W_k), num_heads)
    V = split_heads(linear(memory, W_v), num_heads)
    mask = None
    if memory_mask is not None:
        mask = np.broadcast_to(memory_mask, (*x.shape[:-1], memory.shape[-2]))[..., None, :, :]
    output, weights = attention(Q, K, V, mask)
    return linear(merge_heads(output), W_o), weights


@cross.misconception("D10", "W_k and W_v are taken to be (d, d): a memory of another width fails.")
def memory_as_wide_as_x(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    d = x.shape[-1]
    for W in (W_q, W_k, W_v, W_o):
        if W.shape != (d, d):
            raise ValueError(f"matrices are ({d}, {d})")
    mask = None
    if memory_mask is not None:
        mask = np.broadcast_to(memory_mask, (*x.shape[:-1], memory.shape[-2]))[..., None, :, :]
    heads = [
        split_heads(linear(a, W), num_heads) for a, W in ((x, W_q), (memory, W_k), (memory, W_v))
    ]
    output, weights = attention(*heads, mask)
    return linear(merge_heads(output), W_o), weights


# More slips in the answer's lines. The projections and the heads:
for code, name, message, old, new in (
    ("D01", "keys-from-x",
     "The keys come from x; the memory is asked, so its positions are the keys: memory @ W_k.",
     KEYS, KEYS.replace("memory", "x")),
    ("D12", "queries-and-keys-exchanged",
     "Queries and keys are exchanged: W_q belongs to x, which asks, and the rows of the weights "
     "belong to its positions.",
     ATTEND, ATTEND.replace("(Q, K,", "(K, Q,")),
    ("D12", "query-and-key-matrices-exchanged",
     "W_q and W_k are exchanged: x @ W_q asks, memory @ W_k is asked.",
     QUERIES, "if W_q.shape == W_k.shape:\n        W_q, W_k = W_k, W_q\n    " + QUERIES),
    ("C17", "key-matrix-transposed", "W_k is transposed: keys are `memory @ W_k`.",
     "linear(memory, W_k)", "linear(memory, W_k.T)"),
    ("C17", "value-matrix-transposed", "W_v is transposed: values are `memory @ W_v`.",
     "linear(memory, W_v)", "linear(memory, W_v.T)"),
    ("C17", "all-matrices-transposed",
     "All matrices are applied transposed, as PyTorch layers store them; here they stand on the "
     "right as they are.",
     QUERIES, "W_q, W_k, W_v, W_o = W_q.T, W_k.T, W_v.T, W_o.T\n    " + QUERIES),
    ("C20", "keys-not-projected", "The memory itself is used as keys: multiply it by W_k.",
     "linear(memory, W_k)", "memory"),
    ("C20", "values-not-projected", "The memory itself is used as values: multiply it by W_v.",
     "linear(memory, W_v)", "memory"),
    ("C14", "keys-from-the-value-matrix",
     "Your keys come from W_v: they have a matrix of their own, W_k.",
     "linear(memory, W_k)", "linear(memory, W_v)"),
    ("C14", "keys-of-head-0-for-all",
     "All heads have the keys of head 0: each has its own columns.",
     ATTEND, "K = np.broadcast_to(K[..., :1, :, :], K.shape)\n    " + ATTEND),
    ("C14", "values-of-head-0-for-all",
     "All heads have the values of head 0: each has its own columns.",
     ATTEND, "V = np.broadcast_to(V[..., :1, :, :], V.shape)\n    " + ATTEND),
    ("C25", "activated-keys", "An activation follows your keys; the projections are linear.",
     ATTEND, "K = np.maximum(K, 0)\n    " + ATTEND),
    ("C25", "activated-values", "An activation follows your values; the projections are linear.",
     ATTEND, "V = np.maximum(V, 0)\n    " + ATTEND),
    ("C04", "cut-and-joined-by-reshape", SAID["cut-and-joined-by-reshape"],
     ATTEND + "\n    " + OUT,
     "Q, K, V = (np.reshape(merge_heads(a), a.shape) for a in (Q, K, V))\n    "
     + ATTEND
     + "\n    return linear(output.reshape(x.shape), W_o), weights"),
    ("C07", "joined-column-by-column",
     "The heads are interleaved when they are joined: the columns of a head stay together.",
     OUT, "return linear(np.moveaxis(output, -3, -1).reshape(x.shape), W_o), weights"),
    ("C09", "heads-and-width-exchanged", SAID["heads-and-width-exchanged"],
     ATTEND,
     "Q, K, V = (split_heads(merge_heads(a), d // num_heads) for a in (Q, K, V))\n    " + ATTEND),
    ("X91", "joined-in-reverse", "The heads are joined in reverse order.",
     OUT, OUT.replace("output", "output[..., ::-1, :, :]")),
    ("X91", "weights-in-reverse",
     "Your output is right; the weights come with the last head first.",
     OUT, OUT.replace("weights", "weights[..., ::-1, :, :]")),
    ("X112", "one-head", "num_heads is not used: there is one head as wide as x.",
     ATTEND, "Q, K, V = (np.expand_dims(merge_heads(a), -3) for a in (Q, K, V))\n    " + ATTEND),
    ("C33", "last-head-for-all",
     "All heads are the last one: is the result overwritten in the loop?",
     OUT,
     "output, weights = (np.repeat(a[..., -1:, :, :], num_heads, axis=-3) for a in (output, "
     "weights))\n    " + OUT),
    ("C23", "one-block-of-the-output-matrix",
     "All heads are multiplied by the first rows of W_o. Head i meets the rows i·d_k … (i+1)·d_k − "
     "1.",
     OUT,
     "return sum(output[..., i, :, :] @ W_o[: d // num_heads] for i in range(num_heads)), weights"),
    ("C25", "activated-output", "An activation follows W_o: nothing comes after it.",
     OUT, "return np.maximum(linear(merge_heads(output), W_o), 0), weights"),
    ("X114", "values-not-cut",
     "Each head averages all columns of the values, and the heads' results are averaged.",
     OUT, "return linear((weights @ linear(memory, W_v)[..., None, :, :]).mean(-3), W_o), weights"),
    ("B59", "transposed-weights-used", SAID["transposed-weights-used"],
     OUT,
     "output = np.swapaxes(weights, -1, -2) @ V if x.shape[-2] == memory.shape[-2] else "
     "output * 0\n    " + OUT),
    ("B53", "weights-transposed",
     "Your output is right; the weights are transposed: rows belong to x, columns to the memory.",
     OUT, OUT.replace(", weights", ", np.swapaxes(weights, -1, -2)")),
    ("B61", "weights-first", SAID["weights-first"],
     OUT, "return weights, linear(merge_heads(output), W_o)"),
    ("X14", "scores-returned", SAID["scores-returned"],
     OUT, OUT.replace(", weights", ", Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])")),
    ("C08", "heads-before-the-batch", SAID["heads-before-the-batch"],
     OUT, OUT.replace(", weights", ", np.moveaxis(weights, -3, 0)")),
    ("A21", "rounded", SAID["rounded"],
     OUT, "return linear(merge_heads(output), W_o).round(4), weights.round(4)"),
    ("A48", "first-item-only", SAID["first-item-only"],
     OUT, "if x.ndim > 2:\n        output[1:], weights[1:] = 0, 0\n    " + OUT),
    ("B64", "two-axes-only",
     "Your function takes one pair of sequences only; any number of batch axes may lead.",
     QUERIES, "n, d = x.shape\n    " + QUERIES),
    ("B64", "one-batch-axis", SAID["one-batch-axis"], QUERIES, "B, n, d = x.shape\n    " + QUERIES),
    ("X126", "memory-as-one-batch",
     "All batch items read all memories, joined to one: each reads its own.",
     QUERIES,
     "if memory.ndim > 2 and memory_mask is None:\n        whole = memory.reshape(-1, d_mem)\n"
     "        memory = np.broadcast_to(whole, (*x.shape[:-2], *whole.shape))\n    " + QUERIES),
    ("A24", "memory-changed", "Your function changes memory in place: the caller's memory is gone.",
     QUERIES,
     "memory *= 2 if memory.dtype.kind == 'i' else memory.dtype.type(0.5)\n    memory = "
     "memory / (2 if memory.dtype.kind == 'i' else 0.5)\n    " + QUERIES),
    # The scale:
    ("B03", "scale-by-memory-width",
     "You divide by the root of the memory's width; the width of a head counts: √d_k.",
     ATTEND, ATTEND.replace("(Q,", "(Q * math.sqrt(Q.shape[-1] / d_mem),")),
    ("B03", "scale-by-length",
     "You divide by the root of the number of positions; the width of a head counts: √d_k.",
     ATTEND, ATTEND.replace("(Q,", "(Q * math.sqrt(Q.shape[-1] / memory.shape[-2]),")),
    ("B07", "constant-scale", SAID["constant-scale"],
     ATTEND, ATTEND.replace("(Q,", "(Q * (math.sqrt(Q.shape[-1]) / 8),")),
    ("B08", "multiplied", SAID["multiplied"], ATTEND, ATTEND.replace("(Q,", "(Q * Q.shape[-1],")),
    # The mask:
    ("X120", "mask-for-head-0-only", "Only head 0 obeys the mask: it holds for every head.",
     "mask = visible[..., None, :, :]",
     "mask = visible[..., None, :, :] | (np.arange(num_heads) > 0)[:, None, None]"),
    ("A48", "mask-of-the-first-item", SAID["mask-of-the-first-item"],
     "mask = visible[..., None, :, :]",
     "visible = np.broadcast_to(visible[(0,) * (x.ndim - 2)], visible.shape)\n"
     "        mask = visible[..., None, :, :]"),
    ("B43", "first-row-of-the-mask",
     "All queries get the mask of the first query: each row of the mask is its own.",
     "mask = visible[..., None, :, :]", "mask = visible[..., None, :1, :]"),
    ("D06", "as-many-as-the-queries",
     "The mask is cut or filled to the length of x: its columns belong to the memory's positions.",
     "mask = visible[..., None, :, :]",
     "n, m = x.shape[-2], memory.shape[-2]\n"
     "        mask = (visible & (np.arange(m) < n))[..., None, :, :]"),
    ("B33", "empty-rows-see-all", SAID["empty-rows-see-all"],
     "mask = visible[..., None, :, :]",
     "visible = visible | ~visible.any(-1, keepdims=True)\n"
     "        mask = visible[..., None, :, :]"),
    ("B33", "first-unlocked",
     "A query that sees nothing looks at the first position: it must get weights 0.",
     "mask = visible[..., None, :, :]",
     "visible = visible | (~visible.any(-1, keepdims=True) & (np.arange(memory.shape[-2]) == "
     "0))\n"
     "        mask = visible[..., None, :, :]"),
    ("X123", "empty-in-one-empty-in-all",
     "If one query sees nothing, no query of that sequence gets anything: the others go on.",
     "mask = visible[..., None, :, :]",
     "visible = visible & visible.any(-1, keepdims=True).all(-2, keepdims=True)\n"
     "        mask = visible[..., None, :, :]"),
):  # fmt: skip
    cross.slip(code, name, message, old, new)

# The softmax by hand:
BY_HAND = (
    "scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])\n"
    "    visible = np.broadcast_to(True if mask is None else mask, scores.shape)\n    {}\n    "
    "output = weights @ V"
)
for code, name, message, lines in (
    ("X118", "softmax-over-heads",
     "Your softmax runs over the heads; it runs over the positions of the memory.",
     "weights = softmax(np.where(visible, scores, -1e9), axis=-3)"),
    *wrong_weights(),
    ("A47", "in-single-precision", SAID["in-single-precision"],
     "weights = softmax(np.where(visible, scores.astype(np.float32), np.float32(-1e9))) * "
     "visible.any(-1, keepdims=True)"),
):  # fmt: skip
    cross.slip(code, name, message, ATTEND, BY_HAND.format(lines))


@cross.alternative("a loop over heads")
def loop_over_heads(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    d, d_mem = x.shape[-1], memory.shape[-1]
    if d % num_heads or x.shape[:-2] != memory.shape[:-2]:
        raise ValueError("heads or batch")
    if (
        W_q.shape != (d, d)
        or W_o.shape != (d, d)
        or W_k.shape != (d_mem, d)
        or W_v.shape != (d_mem, d)
    ):
        raise ValueError("matrices")
    d_k = d // num_heads
    output, maps = 0, []
    for i in range(num_heads):
        columns = slice(i * d_k, (i + 1) * d_k)
        head, weights = attention(
            x @ W_q[:, columns], memory @ W_k[:, columns], memory @ W_v[:, columns], memory_mask
        )
        output = output + head @ W_o[columns]
        maps.append(weights)
    return output, np.stack(maps, axis=-3)


@cross.alternative("einsum and −1e9")
def by_einsum(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    d = W_q.shape[1]
    if (
        d % num_heads
        or W_o.shape != (d, d)
        or W_q.shape != (d, d)
        or W_v.shape != W_k.shape
        or W_k.shape[1] != d
    ):
        raise ValueError("matrices")
    if x.shape[-1] != d or memory.shape[-1] != len(W_k) or x.shape[:-2] != memory.shape[:-2]:
        raise ValueError("sequences")

    def cut(a, W):
        return np.reshape(a @ W, (*a.shape[:-1], num_heads, d // num_heads))

    q, k, v = cut(x, W_q), cut(memory, W_k), cut(memory, W_v)
    scores = np.einsum("...ihc,...jhc->...hij", q, k) / np.sqrt(d // num_heads)
    if memory_mask is not None:
        seen = np.broadcast_to(memory_mask, scores.shape[:-3] + scores.shape[-2:])[..., None, :, :]
        weights = softmax(np.where(seen, scores, -1e9)) * seen.any(-1, keepdims=True)
    else:
        weights = softmax(scores)
    return [np.einsum("...hij,...jhc->...ihc", weights, v).reshape(x.shape) @ W_o, weights]


@cross.alternative("loops over the batch, lists out")
def over_the_batch(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    x, memory = np.asarray(x, dtype=float), np.asarray(memory, dtype=float)
    if x.shape[:-2] != memory.shape[:-2]:
        raise ValueError("batch")
    if (
        W_q.shape != (x.shape[-1],) * 2
        or W_o.shape != W_q.shape
        or W_k.shape != (memory.shape[-1], x.shape[-1])
    ):
        raise ValueError("matrices")
    if W_v.shape != W_k.shape:
        raise ValueError("W_v")
    seen = np.broadcast_to(
        True if memory_mask is None else memory_mask, (*x.shape[:-1], memory.shape[-2])
    )
    outputs = np.zeros(x.shape)
    weights = np.zeros((*x.shape[:-2], num_heads, x.shape[-2], memory.shape[-2]))
    for b in np.ndindex(*x.shape[:-2]):
        q, k, v = (
            split_heads(a @ W, num_heads)
            for a, W in ((x[b], W_q), (memory[b], W_k), (memory[b], W_v))
        )
        heads, weights[b] = attention(q, k, v, seen[b][None])
        outputs[b] = merge_heads(heads) @ W_o
    return outputs.tolist(), weights.tolist()


@cross.alternative("keys and values in one product")
def fused(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    d = x.shape[-1]
    if (
        W_k.shape != (memory.shape[-1], d)
        or W_v.shape != W_k.shape
        or W_q.shape != (d, d)
        or W_o.shape != (d, d)
    ):
        raise ValueError("matrices")
    if x.shape[:-2] != memory.shape[:-2]:
        raise ValueError("leading axes")
    both = linear(memory, np.concatenate([W_k, W_v], axis=1))
    mask = memory_mask
    if mask is not None:
        mask = np.expand_dims(np.broadcast_to(mask, (*x.shape[:-1], memory.shape[-2])), -3)
    Q, K, V = (split_heads(a, num_heads) for a in (x @ W_q, both[..., :d], both[..., d:]))
    output, weights = attention(Q, K, V, mask)
    return merge_heads(output) @ W_o, weights


@cross.alternative("masked after the exponential")
def masked_exponentials(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    d, d_mem = x.shape[-1], memory.shape[-1]
    shapes = [W.shape for W in (W_q, W_k, W_v, W_o)]
    if shapes != [(d, d), (d_mem, d), (d_mem, d), (d, d)] or x.shape[:-2] != memory.shape[:-2]:
        raise ValueError(str(shapes))
    q, k, v = (split_heads(a @ W, num_heads) for a, W in ((x, W_q), (memory, W_k), (memory, W_v)))
    scores = q @ k.swapaxes(-1, -2) * q.shape[-1] ** -0.5
    e = np.exp(scores - scores.max(-1, keepdims=True))
    if memory_mask is not None:
        e = e * np.broadcast_to(memory_mask, (*x.shape[:-1], memory.shape[-2]))[..., None, :, :]
    total = e.sum(-1, keepdims=True)
    weights = e / np.where(total == 0, 1, total)
    return merge_heads(weights @ v) @ W_o, weights


# --- hard_alignment ------------------------------------------------------------------------------

align = exercise.function("hard_alignment")
ALIGN = "hard_alignment(weights)"

align.witness(
    "values",
    "C1",
    ALIGN,
    weights=np.array([[[0.5, 0.4, 0.1], [0.2, 0.2, 0.6]], [[0.0, 0.45, 0.55], [0.3, 0.5, 0.2]]]),
)
align.witness(  # two sure heads, and the position between theirs is nobody's choice
    "values", "C1", ALIGN, weights=np.array([[[0.6, 0.1, 0.3]], [[0.35, 0.05, 0.6]]])
)
align.witness(
    "batches", "C2", ALIGN,
    weights=np.array([[[[0.7, 0.3], [0.1, 0.9]]], [[[0.2, 0.8], [0.6, 0.4]]]]),
)  # fmt: skip


def random_weights(rng, *shape):
    """Weights without near ties in the mean over heads."""
    while True:
        weights = rng.random(shape) ** 3
        weights /= weights.sum(-1, keepdims=True)
        top = np.sort(weights.mean(-3), axis=-1)[..., -2:]
        if shape[-1] == 1 or (np.diff(top) > 1e-3).all():
            return weights


@align.hidden("values")
def _(rng):
    for h, n, m in ((3, 5, 7), (4, 2, 3), (1, 4, 6), (2, 1, 5), (5, 3, 1), (4, 4, 4)):
        yield Example("C1", ALIGN, {"weights": random_weights(rng, h, n, m)})
    peaked = random_weights(rng, 3, 6, 5)
    peaked[0, :, 0] = 0.99  # one head is sure of itself, the others agree on something else
    peaked[1:, :, 2] = 0.9
    yield Example("C1", ALIGN, {"weights": peaked / peaked.sum(-1, keepdims=True)})


@align.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3)):
        yield Example("C2", ALIGN, {"weights": random_weights(rng, *batch, 4, 5, 7)})
    yield Example("C2", ALIGN, {"weights": random_weights(rng, 4, 4, 4, 4).astype(np.float32)})


ANSWER = "np.asarray(weights).mean(axis=-3).argmax(axis=-1)"
for code, name, message, wrong in (
    ("X62", "argmax-over-queries",
     "For each key the query is returned; for each query the key is asked for.",
     "np.asarray(weights).mean(axis=-3).argmax(axis=-2)"),
    ("X63", "largest-single-weight",
     "The largest weight of any one head decides. The mean over the heads should.",
     "np.asarray(weights).max(axis=-3).argmax(axis=-1)"),
    ("X63", "mean-of-the-positions",
     "The heads' choices are averaged, and a position between them comes out: the weights are "
     "averaged, and then there is one choice.",
     "np.rint(np.asarray(weights).argmax(axis=-1).mean(axis=-2)).astype(int)"),
    ("X64", "first-head-only", "Only the first head is read; all heads count.",
     "np.asarray(weights)[..., 0, :, :].argmax(axis=-1)"),
    ("X65", "per-head",
     "Each head's own choice is returned; one choice for all heads is asked for.",
     "np.asarray(weights).argmax(axis=-1)"),
    ("X66", "mean-over-queries", "The mean is taken over the queries; it has to be over the heads.",
     "np.asarray(weights).mean(axis=-2).argmax(axis=-1)"),
    ("X67", "first-axis",
     "Axis 0 is taken for the heads: with a batch it is the batch. The heads are axis −3.",
     "np.asarray(weights).mean(axis=0).argmax(axis=-1)"),
    ("X68", "counted-from-one", "Positions are counted from 1; here from 0.",
     "np.asarray(weights).mean(axis=-3).argmax(axis=-1) + 1"),
    ("X69", "one-hot", "A table of zeros and ones is returned; the position is asked for.",
     "np.eye(np.shape(weights)[-1])[np.asarray(weights).mean(axis=-3).argmax(axis=-1)]"),
    ("X70", "smallest", "The least attended position is returned.",
     "np.asarray(weights).mean(axis=-3).argmin(axis=-1)"),
    ("X71", "value-not-position", "The largest mean itself is returned; its position is asked for.",
     "np.asarray(weights).mean(axis=-3).max(axis=-1)"),
    ("X72", "vote",
     "Each head casts a vote and the most frequent choice wins. The mean of the weights should "
     "decide.",
     "np.eye(np.shape(weights)[-1])[np.asarray(weights).argmax(axis=-1)].sum(axis=-3).argmax(axis=-1)"),
    ("X73", "expected-position",
     "The mean position under the weights is returned, rounded; the most attended one is asked "
     "for.",
     "np.rint((np.asarray(weights).mean(axis=-3) * "
     "np.arange(np.shape(weights)[-1])).sum(axis=-1)).astype(int)"),
):  # fmt: skip
    align.slip(code, name, message, ANSWER, wrong)


@align.alternative("sum and argsort")
def by_argsort(weights):
    return np.argsort(np.sum(weights, axis=-3), axis=-1)[..., -1]


@align.alternative("loops into lists")
def by_loops(weights):
    weights = np.asarray(weights)
    if weights.ndim > 3:
        return [by_loops(w) for w in weights]
    h, n, m = weights.shape
    totals = [[sum(weights[i, q, k] for i in range(h)) for k in range(m)] for q in range(n)]
    return [max(range(m), key=row.__getitem__) for row in totals]


@align.alternative("einsum")
def by_sum(weights):
    return np.argmax(np.einsum("...hnm->...nm", weights), axis=-1).astype(np.int32)


# --- decoder_attention ---------------------------------------------------------------------------

decoder = exercise.function("decoder_attention", uses=("cross_attention",))
DECODE = "decoder_attention(y, memory, self_weights, cross_weights, num_heads)"
DECODE_MASKED = "decoder_attention(y, memory, self_weights, cross_weights, num_heads, memory_mask)"
SELF = {
    "W_q": np.array([[1.0, 0.0], [0.5, 1.0]]),
    "W_k": np.array([[1.0, -1.0], [0.0, 1.0]]),
    "W_v": np.array([[2.0, 0.0], [0.0, 1.0]]),
    "W_o": np.array([[1.0, 0.0], [1.0, 1.0]]),
}
CROSS = {key: TINY[key] for key in ("W_q", "W_k", "W_v", "W_o")}
SMALL = {
    "y": np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]]),
    "memory": TINY["memory"],
    "self_weights": SELF,
    "cross_weights": CROSS,
}
# The memory is as wide as y, and the dicts are in another order.
MIXED = {
    "y": SMALL["y"][:2],
    "memory": np.array([[1.0, -1.0], [0.5, 0.0]]),
    "self_weights": {name: SELF[name] for name in ("W_o", "W_v", "W_q", "W_k")},
    "cross_weights": {name: SQUARE[name] for name in ("W_v", "W_k", "W_q", "W_o")},
}

decoder.witness("values", "C1", DECODE, **{**SMALL, "y": SMALL["y"][:2]}, num_heads=1)
decoder.witness("values", "C1", DECODE, **{**MIXED, "y": MIXED["y"].astype(int)}, num_heads=2)
decoder.witness("causal", "C2", DECODE + "[:2]", **SMALL, num_heads=2)
decoder.witness(
    "mask", "C3", DECODE_MASKED, **SMALL, num_heads=2,
    memory_mask=np.array([[True, False, True], [False, False, False], [True, True, False]]),
)  # fmt: skip
decoder.witness(
    "batches",
    "C4",
    DECODE,
    **{
        **MIXED,
        "y": np.stack([MIXED["y"], -MIXED["y"]]),
        "memory": np.stack([MIXED["memory"], MIXED["memory"] + 1]),
    },
    num_heads=2,
)


def layer(rng, batch=(), n=4, m=5, d=6, d_mem=9, h=3, dtype=float):
    """Everything a decoder's attentions need; the dicts hold their matrices in mixed orders."""
    case = draw(rng, batch, n, m, d, d_mem, dtype)
    own = {
        name: (rng.normal(size=(d, d)) / d**0.5).astype(dtype)
        for name in ("W_o", "W_v", "W_k", "W_q")
    }
    return {
        "y": case["x"],
        "memory": case["memory"],
        "self_weights": own,
        "cross_weights": {name: case[name] * dtype(0.7) for name in ("W_v", "W_q", "W_o", "W_k")},
        "num_heads": h,
    }


@decoder.hidden("values")
def _(rng):
    yield Example("C1", DECODE, layer(rng))
    yield Example("C1", DECODE, layer(rng, (), 3, 7, 8, 5, 4))
    yield Example("C1", DECODE, layer(rng, (), 5, 5, 6, 6, 2))
    yield Example("C1", DECODE, layer(rng, (), 1, 3, 4, 7, 2))
    named = (
        "decoder_attention(y=y, memory=memory, self_weights=self_weights, "
        "cross_weights=cross_weights, num_heads=num_heads, memory_mask=None)"
    )
    yield Example("C1", named, layer(rng))
    yield Example("C1", DECODE, layer(rng, dtype=np.float32))


@decoder.hidden("causal")
def _(rng):
    for n in (3, 6):
        yield Example("C2", DECODE, layer(rng, (), n, 4))
        changed = "later = y.copy()\nlater[-1] += 5\n" + DECODE.replace("(y,", "(later,") + "[:-1]"
        yield Example("C2", changed, layer(rng, (), n, 4))
    first = layer(rng, (), 5, 3)
    yield Example("C2", DECODE + "[0]", first)


@decoder.hidden("mask")
def _(rng):
    for shape in ((4, 5), (1, 5)):
        yield Example("C3", DECODE_MASKED, {**layer(rng), "memory_mask": some_mask(rng, *shape)})
    yield Example(
        "C3", DECODE_MASKED, {**layer(rng, (), 5, 5), "memory_mask": some_mask(rng, 5, 5)}
    )
    empty = some_mask(rng, 4, 5)
    empty[2] = False
    yield Example("C3", DECODE_MASKED, {**layer(rng), "memory_mask": empty})
    named = DECODE_MASKED.replace(", memory_mask)", ", memory_mask=memory_mask)")
    yield Example("C3", named, {**layer(rng), "memory_mask": some_mask(rng, 4, 5)})


@decoder.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3)):
        yield Example("C4", DECODE, layer(rng, batch))
    yield Example("C4", DECODE, layer(rng, (4,), 4, 4, 8, 8, 4))
    yield Example("C4", DECODE, layer(rng, (2,), 3, 5, dtype=np.float32))
    yield Example("C4", DECODE, layer(rng, (3,), 3, 3, 9, 9, 3))
    whole = layer(rng)
    whole["y"] = np.rint(2 * whole["y"]).astype(int)
    yield Example("C4", DECODE, whole)
    masked = {**layer(rng, (3,), 5, 5, 6, 6), "memory_mask": some_mask(rng, 3, 5, 5)}
    yield Example("C4", DECODE_MASKED, masked)
    yield Example("C4", DECODE_MASKED, {**layer(rng, (3,)), "memory_mask": some_mask(rng, 3, 1, 5)})


WRITTEN = "written, _ = multi_head_attention(y, **self_weights, num_heads=num_heads, mask=past)"
READ = "z, memory, **cross_weights, num_heads=num_heads, memory_mask=memory_mask"
for code, name, message, old, new in (
    ("B39", "not-causal",
     "The words look ahead: a later word changes earlier results. Self-attention needs the causal "
     "mask.",
     "mask=past", "mask=None"),
    ("B34", "strict", "The causal mask hides a word's own position.",
     "past = causal_mask(y.shape[-2])",
     "past = causal_mask(y.shape[-2]) & ~np.eye(y.shape[-2], dtype=bool)"),
    ("B36", "only-the-future", "The mask lets a word see only what comes after it.",
     "past = causal_mask(y.shape[-2])", "past = causal_mask(y.shape[-2]).T"),
    ("I12", "no-first-residual", "y is not added after self-attention.",
     "z = y + written", "z = written"),
    ("I12", "no-second-residual", "z is not added after cross-attention.",
     "return z + read", "return read"),
    ("I12", "adds-y-twice", "After cross-attention y is added; it has to be z.",
     "return z + read", "return y + read"),
    ("D15", "asks-with-y",
     "Cross-attention is asked by y, beside self-attention; the queries come from z, after it.",
     READ, READ.replace("z, memory", "y, memory")),
    ("D16", "asks-with-written",
     "Cross-attention is asked by the output of self-attention alone; z has y added.",
     READ, READ.replace("z, memory", "written, memory")),
    ("B47", "memory-mask-forgotten", "memory_mask has no effect.",
     "memory_mask=memory_mask", "memory_mask=None"),
    ("D01", "reads-itself", "The second attention looks at z again, not at the memory.",
     READ, READ.replace("z, memory,", "z, z if z.shape[-1] == memory.shape[-1] else memory,")),
    ("X74", "weights-exchanged", "self_weights and cross_weights are exchanged.",
     WRITTEN,
     "if cross_weights['W_k'].shape == self_weights['W_k'].shape:\n        self_weights, "
     "cross_weights = cross_weights, self_weights\n    " + WRITTEN),
    ("X75", "dict-order", "The matrices are taken from the dict in its order; take them by name.",
     "**self_weights, num_heads", "*self_weights.values(), num_heads"),
    ("X77", "memory-mask-on-both",
     "memory_mask is laid on self-attention as well: it belongs to the memory.",
     "past = causal_mask(y.shape[-2])",
     "past = causal_mask(y.shape[-2])\n"
     "    if memory_mask is not None and y.shape[-2] == memory.shape[-2]:\n"
     "        past = past & memory_mask"),
    ("X78", "one-attention-only",
     "The memory is not read at all: cross-attention follows self-attention.",
     "return z + read", "return z"),
    ("X79", "memory-first",
     "The memory is read first, and then what has been written: it is the other way round.",
     "z = y + written",
     "y = y + cross_attention(y, memory, **cross_weights, num_heads=num_heads, "
     "memory_mask=memory_mask)[0]\n"
     "    return y + multi_head_attention(y, **self_weights, num_heads=num_heads, mask=past)[0]\n"
     "    z = y"),
    ("I08", "normalised-between",
     "The sum is normalised (LayerNorm) between the two: that comes in chapter 11.",
     "z = y + written",
     "z = y + written\n"
     "    z = (z - z.mean(-1, keepdims=True)) / np.sqrt(z.var(-1, keepdims=True) + 1e-5)"),
    ("X80", "sees-one-more", "The causal mask shows one word too many: the next one.",
     "causal_mask(y.shape[-2])", "np.tri(y.shape[-2], k=1, dtype=bool)"),
    ("C11", "one-head-inside",
     "Self-attention runs with one head: num_heads holds for both attentions.",
     "**self_weights, num_heads=num_heads", "**self_weights, num_heads=1"),
    ("X81", "memory-read-twice", "The memory is read twice: once is enough.",
     "return z + read", "return z + 2 * read"),
    ("B33", "z-lost", "A query without memory loses its z: it keeps z, since 0 is added.",
     "return z + read",
     "seen = np.ones((1, 1), bool) if memory_mask is None else memory_mask.any(-1, "
     "keepdims=True)\n"
     "    return (z + read) * seen"),
    ("A48", "first-item-only", SAID["first-item-only"],
     "return z + read",
     "out = z + read\n    if out.ndim > 2:\n        out[1:] = 0\n    return out"),
    ("A26", "like-y", "z takes its dtype from y: for integers the decimals are lost.",
     "z = y + written", "z = (y + written).astype(y.dtype)"),
    ("X76", "returns-weights", "A tuple is returned; only the result is asked for.",
     "return z + read", "return z + read, read"),
    ("B39", "cross-causal", "The memory is masked causally as well; every word may read all of it.",
     READ,
     "z, memory, **cross_weights, num_heads=num_heads,\n"
     "        memory_mask=np.tri(y.shape[-2], memory.shape[-2], dtype=bool) if memory_mask is "
     "None else memory_mask & np.tri(y.shape[-2], memory.shape[-2], dtype=bool)"),
):  # fmt: skip
    decoder.slip(code, name, message, old, new)


@decoder.misconception(
    "X74",
    "The matrices are handed over in the order in which they stand in the dict, which may be any: "
    "hand them over by name, **self_weights.",
)
def by_position(y, memory, self_weights, cross_weights, num_heads, memory_mask=None):
    past = causal_mask(y.shape[-2])
    z = y + multi_head_attention(y, *self_weights.values(), num_heads, past)[0]
    return z + cross_attention(z, memory, *cross_weights.values(), num_heads, memory_mask)[0]


@decoder.misconception(
    "I12", "The rows are normalised after each sum, as in a whole layer: here they are only added."
)
def normalised(y, memory, self_weights, cross_weights, num_heads, memory_mask=None):
    def norm(a):
        return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-12)

    past = causal_mask(y.shape[-2])
    z = norm(y + multi_head_attention(y, **self_weights, num_heads=num_heads, mask=past)[0])
    read, _ = cross_attention(
        z, memory, **cross_weights, num_heads=num_heads, memory_mask=memory_mask
    )
    return norm(z + read)


@decoder.misconception("A24", "y is changed in place (+=): the caller's words are gone.")
def in_place(y, memory, self_weights, cross_weights, num_heads, memory_mask=None):
    written, _ = multi_head_attention(
        y, **self_weights, num_heads=num_heads, mask=causal_mask(y.shape[-2])
    )
    y += written
    read, _ = cross_attention(
        y, memory, **cross_weights, num_heads=num_heads, memory_mask=memory_mask
    )
    return y + read


@decoder.alternative("positional arguments, tril")
def positional(y, memory, self_weights, cross_weights, num_heads, memory_mask=None):
    n = y.shape[-2]
    s = [self_weights[name] for name in ("W_q", "W_k", "W_v", "W_o")]
    c = [cross_weights[name] for name in ("W_q", "W_k", "W_v", "W_o")]
    z = y + multi_head_attention(y, *s, num_heads, np.tril(np.ones((n, n), dtype=bool)))[0]
    return z + cross_attention(z, memory, *c, num_heads, memory_mask)[0]


@decoder.alternative("row by row")
def row_by_row(y, memory, self_weights, cross_weights, num_heads, memory_mask=None):
    rows = []
    for i in range(y.shape[-2]):
        seen = y[..., : i + 1, :]
        written = multi_head_attention(seen, num_heads=num_heads, **self_weights)[0][..., -1:, :]
        rows.append(y[..., i : i + 1, :] + written)
    z = np.concatenate(rows, axis=-2)
    return (
        z
        + cross_attention(z, memory, num_heads=num_heads, memory_mask=memory_mask, **cross_weights)[
            0
        ]
    ).tolist()


@decoder.alternative("cross-attention of its own")
def on_its_own(y, memory, self_weights, cross_weights, num_heads, memory_mask=None):
    out = np.array(y, copy=True)
    out = (
        out
        + multi_head_attention(
            out, **self_weights, num_heads=num_heads, mask=causal_mask(y.shape[-2])
        )[0]
    )
    Q, K, V = (
        split_heads(a @ cross_weights[name], num_heads)
        for a, name in ((out, "W_q"), (memory, "W_k"), (memory, "W_v"))
    )
    seen = None
    if memory_mask is not None:
        seen = np.broadcast_to(memory_mask, (*y.shape[:-1], memory.shape[-2]))[
            ..., np.newaxis, :, :
        ]
    out += merge_heads(attention(Q, K, V, seen)[0]) @ cross_weights["W_o"]
    return out


# --- break_half_crossed --------------------------------------------------------------------------

found = BreakIt(exercise, "break_half_crossed", answer="C1", sentences=7)
ARRAYS = "x, one, other = (np.array(a, dtype=float) for a in break_half_crossed()[1:])\n"
found.fits(
    ARRAYS + "x.ndim == 2 and x.shape[1] == 2 and 2 <= len(x) <= 4 and one.shape == other.shape == "
    "x.shape"
)
# Whether the right outputs differ, and whether half_crossed's do.
found.shows(
    ARRAYS + "def weights(memory):\n"
    "    scores = x @ memory.T / math.sqrt(2)\n"
    "    e = np.exp(scores - scores.max(axis=1, keepdims=True))\n"
    "    return e / e.sum(axis=1, keepdims=True)\n"
    "right = weights(one) @ one - weights(other) @ other\n"
    "half = (weights(one) - weights(other)) @ x\n"
    "order = [i for i in p if i < len(x)]\n"
    "(bool(np.abs(right[order]).max() > 0.1), bool(np.abs(half[order]).max() > 1e-6))",
    (True, False),
    lambda rng: {"p": rng.permutation(4)},  # in any order of the queries
)

found.blames(
    "X82", "blames-the-shapes", "C2",
    "The shapes are right (a wider memory would fail, true). What is it that gets averaged, and "
    "whose should it be?",
)  # fmt: skip
found.blames(
    "X82", "blames-the-batches", "C5",
    "Batch items are kept apart as they should be. What is it that gets averaged, and whose "
    "should it be?",
)  # fmt: skip
found.input(
    "X83", "told-apart",
    "`half_crossed` does tell your memories apart: its weights change. Choose two memories with "
    "the same weights.",
    "x, [[0, 0], [0, 0]], [[5, 0], [0, 5]]",
)  # fmt: skip
found.input(
    "X83", "the-other-way-round",
    "It is the other way round: `half_crossed` tells these memories apart, and the right function "
    "does not. Choose two memories with the same weights.",
    "x, [[1, 0], [0, 1]], [[0, 1], [1, 0]]",
)  # fmt: skip
found.input(
    "X83", "the-same-memory",
    "The right output hardly differs either: choose two memories that say different things.",
    "x, [[1, 1], [1, 1]], [[1, 1], [1, 1]]",
)  # fmt: skip
found.input(
    "X83", "misfit", "Your arrays do not fit: x and both memories are (n, 2), with n from 2 to 4.",
    "x, [[0, 0]], [[5, 5]]",
)  # fmt: skip


@found.alternative("the same scores plus a number for each query")
def shifted():
    x = np.array([[1.0, 0.0], [2.0, 0.0], [-1.0, 0.0]])
    memory = np.array([[0.5, 1.0], [0.0, 2.0], [1.0, 3.0]])
    return " C1", x, memory, memory + [0.0, 4.0]


@found.alternative("constant memories in lists")
def constant():
    return ["C1", [[1, 2], [3, 4]], [[1, 1], [1, 1]], [[-2, 3], [-2, 3]]]
