"""Hidden tests of chapter 06: cross-attention, alignments, a decoder's two attentions."""

import numpy as np

from manyheads import cross_attention as library
from tests.hidden.spec import Example, Exercise

exercise = Exercise("06_cross_attention", library)
grade = exercise.grade
RAISES = {"raises": "ValueError"}


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


def some_mask(rng, *shape):
    """A random mask in which every query sees at least one position and not all of them."""
    mask = rng.random(shape) < 0.6
    seen = rng.integers(shape[-1], size=shape[:-1])
    np.put_along_axis(mask, seen[..., None], True, axis=-1)
    np.put_along_axis(mask, ((seen + 1) % shape[-1])[..., None], False, axis=-1)
    return mask


# --- cross_attention -------------------------------------------------------------------------------

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
TINY_MASK = np.array([[True, True, False], [False, True, True]])

cross.witness("values", "C1", CALL + "[1]", **TINY, num_heads=1)
cross.witness("values", "C1", CALL, **TINY, num_heads=2)
cross.witness("values", "C2", CALL, **{**TINY, "x": TINY["x"][:1]}, num_heads=2)
cross.witness("mask", "C3", MASKED, **TINY, num_heads=2, memory_mask=TINY_MASK)
cross.witness(
    "nothing", "C4", MASKED, **TINY, num_heads=2,
    memory_mask=np.array([[True, True, True], [False, False, False]]), options={"no_warning": True},
)  # fmt: skip
cross.witness(
    "batches", "C5", MASKED,
    **{**TINY, "x": np.stack([TINY["x"], -TINY["x"]]), "memory": np.stack([TINY["memory"], TINY["memory"] * 2])},
    num_heads=2, memory_mask=np.array([[[True, True, False]], [[False, True, True]]]),
)  # fmt: skip
cross.witness("numbers", "C6", CALL, **{**TINY, "x": TINY["x"] * 4000}, num_heads=2)
cross.witness(
    "numbers", "C6", CALL, num_heads=2,
    **{key: (value * 2).astype(int) for key, value in TINY.items()},
)  # fmt: skip
cross.witness("errors", "C7", CALL, **{**TINY, "W_k": np.ones((2, 2))}, num_heads=2, options=RAISES)
cross.witness("errors", "C7", CALL, **TINY, num_heads=3, options=RAISES)


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
    for shape in ((3, 4, 5), (3, 1, 5), (4, 5)):  # as many batch items as heads
        case = draw(rng, (3,))
        yield Example("C3", MASKED, {**case, "num_heads": 3, "memory_mask": some_mask(rng, *shape)})
    square = draw(rng, (), 5, 5)
    yield Example("C3", MASKED, {**square, "num_heads": 2, "memory_mask": some_mask(rng, 5, 5)})
    named = MASKED.replace(", memory_mask)", ", memory_mask=memory_mask)")
    yield Example("C3", named, {**draw(rng), "num_heads": 3, "memory_mask": some_mask(rng, 4, 5)})
    case = draw(rng)
    yield Example("C3", MASKED, {**case, "num_heads": 3, "memory_mask": np.ones((4, 5), bool)})
    lifted = hidden_above(draw(rng))
    yield Example("C3", MASKED, {**lifted, "num_heads": 3})


def hidden_above(case):
    """In every head the hidden positions score about 200 above the visible ones."""
    d = case["W_q"].shape[0]
    case["x"][:, 0], case["memory"][:, 0] = 1, 0
    case["W_q"][:] *= 0.1
    case["W_k"][:] *= 0.1
    case["W_q"][0], case["W_k"][0] = 1, 1
    mask = np.array([[True, False, True, False, True]])
    case["memory"][~mask[0], 0] = 200 / (d // 3) ** 0.5  # a head has d / 3 columns of 1
    return {**case, "memory_mask": mask}


@cross.hidden("nothing")
def _(rng):
    mask = some_mask(rng, 4, 5)
    mask[int(rng.integers(4))] = False
    case = {**draw(rng), "num_heads": 3, "memory_mask": mask}
    yield Example("C4", MASKED, case, no_warning=True)
    empty = np.ones((3, 1, 5), bool)
    empty[1] = False
    case = {**draw(rng, (3,)), "num_heads": 2, "memory_mask": empty}
    yield Example("C4", MASKED, case, no_warning=True)
    case = {**draw(rng), "num_heads": 3, "memory_mask": np.zeros((1, 5), bool)}
    yield Example("C4", MASKED, case, no_warning=True)


@cross.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3), (2, 1, 2)):
        case = {**draw(rng, batch), "num_heads": 3}
        yield Example("C5", CALL, case)
        yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, *batch, 4, 5)})
    case = {**draw(rng, (4,), 4, 5, 8, 6), "num_heads": 4}  # as many items as heads and queries
    yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, 4, 1, 5)})
    case = {**draw(rng, (2, 3)), "num_heads": 3}
    yield Example("C5", MASKED, {**case, "memory_mask": some_mask(rng, 3, 1, 5)})


@cross.hidden("numbers")
def _(rng):
    case = draw(rng)
    case["x"][1] *= 3000
    yield Example("C6", CALL, {**case, "num_heads": 3})
    yield Example("C6", CALL, {**draw(rng, (2,), dtype=np.float32), "num_heads": 3})
    single = {**draw(rng, dtype=np.float32), "num_heads": 2, "memory_mask": some_mask(rng, 4, 5)}
    yield Example("C6", MASKED, single)
    whole = {key: np.round(value * 2).astype(int) for key, value in draw(rng).items()}
    yield Example("C6", CALL, {**whole, "num_heads": 3})
    other_order = {key: np.asfortranarray(value) for key, value in draw(rng, (2,)).items()}
    yield Example("C6", CALL, {**other_order, "num_heads": 3})


@cross.hidden("errors")
def _(rng):
    case = draw(rng)
    for name, shape in (
        ("W_q", (9, 6)), ("W_k", (6, 6)), ("W_v", (6, 6)), ("W_o", (9, 6)), ("W_o", (6, 9)),
        ("W_k", (9, 3)), ("W_v", (9, 3)), ("W_q", (6, 3)), ("W_q", (1, 6)), ("W_k", (1, 6)),
    ):  # fmt: skip
        wrong = {**case, name: rng.normal(size=shape), "num_heads": 3}
        yield Example("C7", CALL, wrong, raises="ValueError")
    for h in (4, 5, 7, 12):
        yield Example("C7", CALL, {**case, "num_heads": h}, raises="ValueError")
    for x, memory in (((3,), (2,)), ((3,), (1,)), ((1,), (3,)), ((), (3,)), ((3,), ())):
        wrong = {**case, "num_heads": 3}
        wrong["x"] = rng.normal(size=(*x, 4, 6))
        wrong["memory"] = rng.normal(size=(*memory, 5, 9))
        yield Example("C7", CALL, wrong, raises="ValueError")


QUERIES = "Q = split_heads(linear(x, W_q), num_heads)"
KEYS = "K = split_heads(linear(memory, W_k), num_heads)"
VALUES = "V = split_heads(linear(memory, W_v), num_heads)"
ATTEND = "output, weights = attention(Q, K, V, mask)"
OUT = "return linear(merge_heads(output), W_o), weights"

cross.slip(
    "B01", "no-scale", "Your scores are not divided by the root of a head's width: the weights are too peaked.",
    ATTEND, "output, weights = attention(Q * math.sqrt(Q.shape[-1]), K, V, mask)",
)  # fmt: skip
cross.slip(
    "B03", "scale-by-model-width",
    "You divide by the root of the model's width d. Each head compares d_k = d / h columns: divide by √d_k.",
    ATTEND, "output, weights = attention(Q / math.sqrt(num_heads), K, V, mask)",
)  # fmt: skip
cross.slip(
    "B02", "divided-by-d-k", "You divide by the head's width itself; take its root.",
    ATTEND, "output, weights = attention(Q / math.sqrt(Q.shape[-1]), K, V, mask)",
)  # fmt: skip
cross.slip(
    "D01", "keys-and-values-from-x",
    "Keys and values come from x: this is self-attention, and the memory changes nothing. They come from the memory.",
    QUERIES,
    "if W_k.shape[0] == d:\n        memory = x\n    Q = split_heads(linear(x, W_q), num_heads)",
)  # fmt: skip
cross.slip(
    "D14", "values-from-x",
    "The values come from x; what is handed over is the memory's.",
    VALUES, "V = split_heads(linear(x if x.shape == memory.shape else memory, W_v), num_heads)",
)  # fmt: skip
cross.slip(
    "C22", "no-output-matrix", "The heads' outputs are joined but not multiplied by W_o.",
    OUT, "return merge_heads(output), weights",
)  # fmt: skip
cross.slip(
    "C17", "output-matrix-transposed", "W_o is transposed: it stands on the right, `… @ W_o`.",
    OUT, "return linear(merge_heads(output), W_o.T), weights",
)  # fmt: skip
cross.slip(
    "C17", "query-matrix-transposed", "W_q is transposed: queries are `x @ W_q`.",
    "linear(x, W_q)", "linear(x, W_q.T)",
)  # fmt: skip
cross.slip(
    "C20", "queries-not-projected", "x itself is used as queries: multiply it by W_q.",
    "linear(x, W_q)", "x",
)  # fmt: skip
cross.slip(
    "C19", "key-and-value-matrices-exchanged", "W_k and W_v are exchanged.",
    "linear(memory, W_k), num_heads)  # (…, h, m, d_k)\n    V = split_heads(linear(memory, W_v)",
    "linear(memory, W_v), num_heads)  # (…, h, m, d_k)\n    V = split_heads(linear(memory, W_k)",
)  # fmt: skip
cross.slip(
    "B57", "keys-as-values", "The weighted mean is taken of the keys; it has to be of the values, memory @ W_v.",
    ATTEND, "output, weights = attention(Q, K, K, mask)",
)  # fmt: skip
cross.slip(
    "C03", "merged-without-transposing", "The heads are joined by reshape alone: positions and heads are mixed. Move the head axis back first.",
    OUT, "return linear(output.reshape(x.shape), W_o), weights",
)  # fmt: skip
cross.slip(
    "C01", "split-without-transposing",
    "Heads are cut by reshape alone, so that a head is a run of positions, not a block of columns.",
    KEYS,
    "def cut(a):\n        return a.reshape(*a.shape[:-2], num_heads, a.shape[-2], -1)\n\n"
    "    if d % num_heads:\n        raise ValueError('heads')\n    Q = cut(linear(x, W_q))\n    K = cut(linear(memory, W_k))",
)  # fmt: skip
cross.slip(
    "C06", "interleaved-heads",
    "Head i takes every h-th column. Here it takes a block, i·d_k … (i+1)·d_k − 1.",
    ATTEND,
    "def deal(a, W):\n        y = linear(a, W)\n        y = y.reshape(*y.shape[:-1], -1, num_heads)\n"
    "        return np.moveaxis(y, -1, -3)\n\n"
    "    output, weights = attention(deal(x, W_q), deal(memory, W_k), deal(memory, W_v), mask)",
)  # fmt: skip
cross.slip(
    "C33", "mean-of-the-weights", "One map for all heads is returned; each head's own is asked for, (…, h, n, m).",
    OUT, "return linear(merge_heads(output), W_o), weights.mean(axis=-3)",
)  # fmt: skip
cross.slip(
    "B61", "output-only", "The output comes alone; the weights are asked for as well.",
    OUT, "return linear(merge_heads(output), W_o)",
)  # fmt: skip
cross.slip(
    "C26", "residual-inside", "x is added to the output. That belongs around cross-attention, not into it.",
    OUT, "return x + linear(merge_heads(output), W_o), weights",
)  # fmt: skip
cross.slip(
    "C25", "activated", "An activation (ReLU) stands behind a projection; the projections are linear.",
    QUERIES, "Q = np.maximum(split_heads(linear(x, W_q), num_heads), 0)",
)  # fmt: skip
cross.slip(
    "B38", "mask-the-other-way", "Your mask works the other way round: True is visible here.",
    "np.broadcast_to(memory_mask,", "~np.broadcast_to(memory_mask,",
)  # fmt: skip
cross.slip(
    "B47", "mask-not-used", "The mask has no effect.",
    ATTEND, "output, weights = attention(Q, K, V)",
)  # fmt: skip
cross.slip(
    "B44", "mask-without-head-axis",
    "The mask gets no head axis: its batch axis is laid on the heads. Broadcast it to (…, n, m) first, then add the axis.",
    "mask = visible[..., None, :, :]  # the same for every head",
    "mask = memory_mask",
)  # fmt: skip
cross.slip(
    "B45", "mask-of-another-item", "A batch item uses the mask of another one.",
    "mask = visible[..., None, :, :]", "mask = np.roll(visible, 1, axis=0)[..., None, :, :] if visible.ndim > 2 else visible[..., None, :, :]",
)  # fmt: skip
cross.slip(
    "B43", "mask-on-queries", "The mask is laid on the queries: its last axis belongs to the memory.",
    "visible = np.broadcast_to(memory_mask,",
    "memory_mask = np.swapaxes(memory_mask, -1, -2) if memory_mask.shape[-2] == memory_mask.shape[-1] else ~memory_mask\n"
    "        visible = np.broadcast_to(memory_mask,",
)  # fmt: skip
cross.slip(
    "X60", "causal", "A causal mask is at work. The memory is complete: every query may see all of it.",
    ATTEND,
    "past = np.tri(x.shape[-2], memory.shape[-2], max(memory.shape[-2] - x.shape[-2], 0), dtype=bool)\n"
    "    output, weights = attention(Q, K, V, past if mask is None else mask & past)",
)  # fmt: skip
cross.slip(
    "D13", "memory-of-another-item", "A batch item asks the memory of another one.",
    QUERIES,
    "if memory.ndim > 2:\n        memory = np.roll(memory, 1, axis=0)\n    Q = split_heads(linear(x, W_q), num_heads)",
)  # fmt: skip
cross.slip(
    "A26", "whole-numbers", "Integer inputs are cut: the result takes its dtype from x.",
    OUT, "return linear(merge_heads(output), W_o).astype(x.dtype), weights",
)  # fmt: skip


@cross.misconception(
    "X61",
    "x and a memory with other leading axes are stretched to each other silently; they have to be equal.",
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
    "B32", "A query that sees nothing gets the mean of all values; its weights must be 0."
)
def mean_for_nothing(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    if x.shape[:-2] != memory.shape[:-2] or W_k.shape != (memory.shape[-1], x.shape[-1]):
        raise ValueError("shapes")
    Q = split_heads(linear(x, W_q), num_heads)
    K = split_heads(linear(memory, W_k), num_heads)
    V = split_heads(linear(memory, W_v), num_heads)
    scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])
    if memory_mask is not None:
        visible = np.broadcast_to(memory_mask, (*x.shape[:-1], memory.shape[-2]))
        scores = np.where(visible[..., None, :, :], scores, -1e9)
    weights = softmax(scores)
    return linear(merge_heads(weights @ V), W_o), weights


@cross.misconception(
    "A13", "The softmax runs over the queries: your columns sum to 1, the rows should."
)
def softmax_over_queries(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    if x.shape[:-2] != memory.shape[:-2] or W_k.shape != (memory.shape[-1], x.shape[-1]):
        raise ValueError("shapes")
    Q = split_heads(linear(x, W_q), num_heads)
    K = split_heads(linear(memory, W_k), num_heads)
    V = split_heads(linear(memory, W_v), num_heads)
    scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])
    if memory_mask is not None:
        visible = np.broadcast_to(memory_mask, (*x.shape[:-1], memory.shape[-2]))
        scores = np.where(visible[..., None, :, :], scores, -1e9)
    weights = softmax(scores, axis=-2)
    return linear(merge_heads(weights @ V), W_o), weights


@cross.misconception(
    "D02",
    "The roles are exchanged: the memory asks and x answers. The output has a row for each query of x.",
)
def roles_exchanged(x, memory, W_q, W_k, W_v, W_o, num_heads, memory_mask=None):
    fits = W_q.shape[0] == memory.shape[-1] and W_k.shape[0] == x.shape[-1]
    x, memory = (memory, x) if fits else (x, memory)
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


# --- hard_alignment --------------------------------------------------------------------------------

align = exercise.function("hard_alignment")
ALIGN = "hard_alignment(weights)"

align.witness(
    "values", "C1", ALIGN,
    weights=np.array([[[0.5, 0.4, 0.1], [0.2, 0.2, 0.6]], [[0.0, 0.7, 0.3], [0.3, 0.5, 0.2]]]),
)  # fmt: skip
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
    ("X62", "argmax-over-queries", "For each key the query is returned; for each query the key is asked for.",
     "np.asarray(weights).mean(axis=-3).argmax(axis=-2)"),
    ("X63", "largest-single-weight", "The largest weight of any one head decides. The mean over the heads should.",
     "np.asarray(weights).max(axis=-3).argmax(axis=-1)"),
    ("X64", "first-head-only", "Only the first head is read; all heads count.",
     "np.asarray(weights)[..., 0, :, :].argmax(axis=-1)"),
    ("X65", "per-head", "Each head's own choice is returned; one choice for all heads is asked for.",
     "np.asarray(weights).argmax(axis=-1)"),
    ("X66", "mean-over-queries", "The mean is taken over the queries; it has to be over the heads.",
     "np.asarray(weights).mean(axis=-2).argmax(axis=-1)"),
    ("X67", "first-axis", "Axis 0 is taken for the heads: with a batch it is the batch. The heads are axis −3.",
     "np.asarray(weights).mean(axis=0).argmax(axis=-1)"),
    ("X68", "counted-from-one", "Positions are counted from 1; here from 0.",
     "np.asarray(weights).mean(axis=-3).argmax(axis=-1) + 1"),
    ("X69", "one-hot", "A table of zeros and ones is returned; the position is asked for.",
     "np.eye(np.shape(weights)[-1])[np.asarray(weights).mean(axis=-3).argmax(axis=-1)]"),
    ("X70", "smallest", "The least attended position is returned.",
     "np.asarray(weights).mean(axis=-3).argmin(axis=-1)"),
    ("X71", "value-not-position", "The largest mean itself is returned; its position is asked for.",
     "np.asarray(weights).mean(axis=-3).max(axis=-1)"),
    ("X72", "vote", "Each head casts a vote and the most frequent choice wins. The mean of the weights should decide.",
     "np.eye(np.shape(weights)[-1])[np.asarray(weights).argmax(axis=-1)].sum(axis=-3).argmax(axis=-1)"),
    ("X73", "expected-position", "The mean position under the weights is returned, rounded; the most attended one is asked for.",
     "np.rint((np.asarray(weights).mean(axis=-3) * np.arange(np.shape(weights)[-1])).sum(axis=-1)).astype(int)"),
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


# --- decoder_attention -----------------------------------------------------------------------------

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
SMALL = {"y": np.array([[1.0, 0.0], [0.0, 2.0]]), "memory": TINY["memory"], "self_weights": SELF}

decoder.witness("values", "C1", DECODE, **SMALL, cross_weights=CROSS, num_heads=1)
decoder.witness("causal", "C2", DECODE + "[0]", **SMALL, cross_weights=CROSS, num_heads=2)
decoder.witness(
    "mask", "C3", DECODE_MASKED, **SMALL, cross_weights=CROSS, num_heads=2,
    memory_mask=np.array([[True, False, True], [False, False, False]]),
)  # fmt: skip
decoder.witness(
    "batches", "C4", DECODE,
    **{**SMALL, "y": np.stack([SMALL["y"], -SMALL["y"]]), "memory": np.stack([SMALL["memory"], SMALL["memory"] + 1])},
    cross_weights=CROSS, num_heads=2,
)  # fmt: skip


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
    yield Example("C3", DECODE_MASKED, {**layer(rng, (3,)), "memory_mask": some_mask(rng, 3, 1, 5)})
    named = DECODE_MASKED.replace(", memory_mask)", ", memory_mask=memory_mask)")
    yield Example("C3", named, {**layer(rng), "memory_mask": some_mask(rng, 4, 5)})


@decoder.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3)):
        yield Example("C4", DECODE, layer(rng, batch))
    yield Example("C4", DECODE, layer(rng, (4,), 4, 4, 8, 8, 4))
    yield Example("C4", DECODE, layer(rng, (2,), 3, 5, dtype=np.float32))


WRITTEN = "written, _ = multi_head_attention(y, **self_weights, num_heads=num_heads, mask=past)"
READ = "z, memory, **cross_weights, num_heads=num_heads, memory_mask=memory_mask"
for code, name, message, old, new in (
    ("B39", "not-causal", "The words look ahead: a later word changes earlier results. Self-attention needs the causal mask.",
     "mask=past", "mask=None"),
    ("B34", "strict", "The causal mask hides a word's own position.",
     "past = causal_mask(y.shape[-2])", "past = causal_mask(y.shape[-2]) & ~np.eye(y.shape[-2], dtype=bool)"),
    ("B36", "only-the-future", "The mask lets a word see only what comes after it.",
     "past = causal_mask(y.shape[-2])", "past = causal_mask(y.shape[-2]).T"),
    ("I12", "no-first-residual", "y is not added after self-attention.", "z = y + written", "z = written"),
    ("I12", "no-second-residual", "z is not added after cross-attention.", "return z + read", "return read"),
    ("I12", "adds-y-twice", "After cross-attention y is added; it has to be z.", "return z + read", "return y + read"),
    ("D15", "asks-with-y", "Cross-attention is asked by y, beside self-attention; the queries come from z, after it.",
     READ, READ.replace("z, memory", "y, memory")),
    ("D16", "asks-with-written", "Cross-attention is asked by the output of self-attention alone; z has y added.",
     READ, READ.replace("z, memory", "written, memory")),
    ("B47", "memory-mask-forgotten", "memory_mask has no effect.", "memory_mask=memory_mask", "memory_mask=None"),
    ("D01", "reads-itself", "The second attention looks at z again, not at the memory.",
     READ, READ.replace("z, memory,", "z, z if z.shape[-1] == memory.shape[-1] else memory,")),
    ("X74", "weights-exchanged", "self_weights and cross_weights are exchanged.",
     WRITTEN, "if cross_weights['W_k'].shape == self_weights['W_k'].shape:\n        self_weights, cross_weights = cross_weights, self_weights\n    " + WRITTEN),
    ("X75", "dict-order", "The matrices are taken from the dict in its order; take them by name.",
     "**self_weights, num_heads", "*self_weights.values(), num_heads"),
    ("X76", "returns-weights", "A tuple is returned; only the result is asked for.", "return z + read", "return z + read, read"),
    ("B39", "cross-causal", "The memory is masked causally as well; every word may read all of it.",
     READ,
     "z, memory, **cross_weights, num_heads=num_heads,\n        memory_mask=np.tri(y.shape[-2], memory.shape[-2], dtype=bool)"
     " if memory_mask is None else memory_mask & np.tri(y.shape[-2], memory.shape[-2], dtype=bool)"),
):  # fmt: skip
    decoder.slip(code, name, message, old, new)


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
