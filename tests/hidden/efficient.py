"""Hidden tests of chapter 09: online softmax, tiles, linear attention, grouped queries, the cache."""

import itertools
import math

import numpy as np

from manyheads import efficient
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import (
    RAISES,
    fortran,
    integers,
    low,
    normal,
    peaked,
    qkv,
    qkv_misfits,
    some_mask,
)
from tests.hidden.common import SAID, filled
from tests.hidden.spec import Example, Exercise

exercise = Exercise("09_efficient", efficient)
grade = exercise.grade

QUIET = {"no_warning": True}

# Small, unequal numbers: three queries and four keys of width 2, values of width 2.
Q3 = np.array([[1.0, 0.0], [0.5, -1.0], [2.0, 1.0]])
K4 = np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5], [1.0, -1.0]])
V4 = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [-1.0, 3.0]])
QKV = {"Q": Q3, "K": K4, "V": V4}


def growing(case, step=3.0):
    """Scores that grow from key to key: each tile has a new maximum."""
    Q, K = case["Q"].copy(), case["K"].copy()
    Q[..., 0], K[..., 0] = 1, step * np.arange(K.shape[-2])
    return {**case, "Q": Q, "K": K}


# --- merge_partial ---------------------------------------------------------------------------------

merge = exercise.function("merge_partial")
MERGE = "merge_partial(m1, l1, o1, m2, l2, o2)"
FIRST = {"m1": np.array([2.0, 0.0]), "l1": np.array([1.5, 1.0]), "o1": np.array([[3.0, 0.0, 1.0], [1.0, 1.0, -1.0]])}  # fmt: skip
SECOND = {"m2": np.array([1.0, 3.0]), "l2": np.array([1.0, 2.0]), "o2": np.array([[0.0, 1.0, 2.0], [4.0, 0.0, -2.0]])}  # fmt: skip


def state(scores, values):
    """The state of these keys: scores (…, n, keys), values (…, keys, d_v)."""
    m = scores.max(axis=-1)
    powers = np.exp(scores - m[..., None])
    return m, powers.sum(axis=-1), powers @ values


def two_states(rng, batch=(), n=5, d_v=3, lift=0.0, dtype=float):
    """The states of three and of four keys; `lift` is added to the scores of the second."""
    parts = []
    for keys, more in ((3, 0.0), (4, lift)):
        scores = rng.normal(size=(*batch, n, keys)) * 2 + more
        parts += state(scores, rng.normal(size=(*batch, keys, d_v)))
    names = ("m1", "l1", "o1", "m2", "l2", "o2")
    return {name: part.astype(dtype) for name, part in zip(names, parts, strict=True)}


def emptied(case, half, rows=slice(None)):
    """The case with an empty state for some queries in one half, "1" or "2"."""
    case = {name: part.copy() for name, part in case.items()}
    case[f"m{half}"][..., rows], case[f"l{half}"][..., rows] = -np.inf, 0
    case[f"o{half}"][..., rows, :] = 0
    return case


merge.witness("values", "C1", MERGE, **FIRST, **SECOND)
merge.witness(
    "values", "C2", MERGE, **{k: np.stack([v, v[::-1]]) for k, v in (FIRST | SECOND).items()}
)
merge.witness("values", "C3", MERGE, **{**FIRST, "m1": np.array([4000.0, -3000.0])}, **SECOND)
merge.witness("empty", "C4", MERGE, **emptied(FIRST | SECOND, "1"), options=QUIET)
merge.witness("empty", "C4", MERGE, **emptied(FIRST | SECOND, "2", 0), options=QUIET)
merge.witness("empty", "C4", MERGE, **emptied(emptied(FIRST | SECOND, "1"), "2"), options=QUIET)


@merge.hidden("values")
def _(rng):
    for n, d_v in ((5, 3), (4, 7), (1, 4), (6, 1), (4, 4), (40, 2)):
        yield Example("C1", MERGE, two_states(rng, (), n, d_v))
    for lift in (9.0, -9.0):  # the maximum comes from the second, from the first
        yield Example("C1", MERGE, two_states(rng, lift=lift))
    keywords = "merge_partial(m1=m1, l1=l1, o1=o1, m2=m2, l2=l2, o2=o2)"
    yield Example("C1", keywords, two_states(rng, lift=1.0))
    chain = "merge_partial(*merge_partial(m1, l1, o1, m2, l2, o2), m1 + 1, l1, o1)"
    yield Example("C1", chain, two_states(rng))
    for batch in ((3,), (2, 3), (1,), (5,)):
        yield Example("C2", MERGE, two_states(rng, batch))
    yield Example("C2", MERGE, two_states(rng, (4,), 4, 4))
    for lift in (-5000.0, 5000.0, 3e5):
        yield Example("C3", MERGE, two_states(rng, lift=lift))
    far = two_states(rng)
    far["m1"] += rng.permutation([-9000.0, 4000.0, 0.0, 1200.0, -800.0])
    far["m2"] += rng.permutation([-2000.0, 4000.0, 0.0, 7000.0, -800.0])
    yield Example("C3", MERGE, far)
    yield Example("C3", MERGE, two_states(rng, (3,), dtype=np.float32))
    yield Example("C3", MERGE, two_states(rng, lift=-300, dtype=np.float32))


@merge.hidden("empty")
def _(rng):
    for half in "12":
        yield Example("C4", MERGE, emptied(two_states(rng), half), no_warning=True)
        rows = rng.permutation(5)[:2]
        yield Example("C4", MERGE, emptied(two_states(rng, (3,)), half, rows), no_warning=True)
        yield Example(
            "C4", MERGE, emptied(two_states(rng, lift=-4000), half, rows), no_warning=True
        )
    both = emptied(emptied(two_states(rng), "1"), "2")
    yield Example("C4", MERGE, both, no_warning=True)
    some = emptied(emptied(two_states(rng, (2,)), "1", [0, 3]), "2", [3, 4])
    yield Example("C4", MERGE, some, no_warning=True)
    single = emptied(emptied(two_states(rng, dtype=np.float32), "1", [0, 3]), "2", [3, 4])
    yield Example("C4", MERGE, single, no_warning=True)
    chain = "merge_partial(*merge_partial(m1, l1, o1, m1, l1, o1), m2, l2, o2)"
    yield Example("C4", chain, emptied(two_states(rng), "1"), no_warning=True)


SCALED = (
    "    l = l1 * scale1 + l2 * scale2\n    o = o1 * scale1[..., None] + o2 * scale2[..., None]\n"
)
merge.slip(
    "G01", "first-not-rescaled",
    "The first state is not rescaled: where the second has the larger maximum, the sums of the first belong to another m.",
    SCALED, "    l = l1 + l2 * scale2\n    o = o1 + o2 * scale2[..., None]\n",
)  # fmt: skip
merge.slip(
    "G01", "second-not-rescaled",
    "The second state is not rescaled: where the first has the larger maximum, the sums of the second belong to another m.",
    SCALED, "    l = l1 * scale1 + l2\n    o = o1 * scale1[..., None] + o2\n",
)  # fmt: skip
merge.slip(
    "G01", "nothing-rescaled", "The sums are added as they are: both belong to their own maximum, rescale them to the joint one.",
    SCALED, "    l = l1 + l2\n    o = o1 + o2\n",
)  # fmt: skip
merge.slip(
    "G01", "output-not-rescaled", "l is right, but o is added as it is: it needs the same factors.",
    "o1 * scale1[..., None] + o2 * scale2[..., None]", "o1 + o2",
)  # fmt: skip
merge.slip(
    "G01", "first-output-not-rescaled", "l is right, but the o of the first state is not rescaled.",
    "o1 * scale1[..., None]", "o1",
)  # fmt: skip
merge.slip(
    "G01", "sum-not-rescaled", "o is right, but the l's are added as they are: they need the same factors.",
    "l1 * scale1 + l2 * scale2", "l1 + l2",
)  # fmt: skip
merge.slip(
    "G01", "scaled-the-wrong-way", "Your factors are upside down: exp(old maximum − new maximum) makes the old sums smaller.",
    "    l = l1", "    scale1, scale2 = 1 / np.maximum(scale1, 1e-300), 1 / np.maximum(scale2, 1e-300)\n    l = l1",
)  # fmt: skip
merge.slip(
    "G02", "factors-exchanged", "Each state is multiplied by the other's factor.",
    "    l = l1", "    scale1, scale2 = scale2, scale1\n    l = l1",
)  # fmt: skip
merge.slip(
    "G02", "second-maximum", "m is the second state's; the larger of both is asked for.",
    "    return m, l, o", "    return m2, l, o",
)  # fmt: skip
merge.slip(
    "G02", "smaller-maximum", "You take the smaller of the two maxima: far scores overflow, and m is not the largest.",
    "m = np.maximum(m1, m2)", "m = np.minimum(m1, m2)",
)  # fmt: skip
merge.slip(
    "G02", "sum-of-the-maxima", "Your m is the sum of both maxima; it is the larger one.",
    "m = np.maximum(m1, m2)", "m = m1 + m2",
)  # fmt: skip
merge.slip(
    "A10", "maximum-of-all-queries", "You take one maximum for all queries: each query has its own.",
    "m = np.maximum(m1, m2)", "m = np.full(m1.shape, np.maximum(m1, m2).max())",
)  # fmt: skip
merge.slip(
    "G04", "normalised", "Your o is divided by l already: it stays unnormalised until the end, or it cannot be joined again.",
    "    return m, l, o", "    return m, l, o / np.where(l > 0, l, 1)[..., None]",
)  # fmt: skip
merge.slip(
    "G04", "outputs-averaged", "You treat o as an output and average; it is a sum, not yet divided by l.",
    "    return m, l, o", "    return m, l, (l1[..., None] * o1 + l2[..., None] * o2) / np.where(l1 + l2 > 0, l1 + l2, 1)[..., None]",
)  # fmt: skip
merge.slip(
    "G06", "log-sum", "Your l is the logarithm of the sum; the sum itself is asked for.",
    "    return m, l, o", "    return m, np.log(np.where(l > 0, l, 1)), o",
)  # fmt: skip
merge.slip(
    "G06", "log-sum-exp", "Your m is the log of the sum of exponentials (m + log l); the largest score is asked for.",
    "    return m, l, o", "    return m + np.log(np.where(l > 0, l, 1)), l, o",
)  # fmt: skip
merge.slip(
    "B61", "other-order", "All three are right but in another order: (m, l, o) is asked for.",
    "    return m, l, o", "    return o, m, l",
)  # fmt: skip
merge.slip(
    "B61", "output-only", "Three results are asked for, (m, l, o): the state goes on.",
    "    return m, l, o", "    return o / np.where(l > 0, l, 1)[..., None]",
)  # fmt: skip
merge.slip(
    "G03", "nan-for-empty", "Two empty states give NaN: −inf − (−inf) has no value. Subtract something finite there.",
    "np.where(np.isneginf(m), 0, m)", "m",
)  # fmt: skip
merge.slip(
    "G03", "warns", "The numbers are right, but −inf − (−inf) gives a warning: avoid it, or silence it there.",
    "    finite = np.where(np.isneginf(m), 0, m)  # -inf minus -inf would be NaN\n"
    "    scale1 = np.exp(m1 - finite)  # what the old sums are worth under the new maximum\n"
    "    scale2 = np.exp(m2 - finite)\n",
    "    scale1 = np.nan_to_num(np.exp(m1 - m))\n    scale2 = np.nan_to_num(np.exp(m2 - m))\n",
)  # fmt: skip
merge.slip(
    "G03", "finite-floor",
    "An empty state comes out with a finite maximum (−1e30 or the like): its m is −inf, and two empty states give such a state again.",
    "m = np.maximum(m1, m2)", "m = np.maximum(np.maximum(m1, m2), -1e30)",
)  # fmt: skip
merge.slip(
    "G03", "zero-for-empty", "Two empty states come out with the maximum 0: a later state with lower scores would be lost under it. Keep −inf.",
    "    return m, l, o", "    return finite, l, o",
)  # fmt: skip
merge.slip(
    "G03", "empty-counts-as-one", "An empty state counts like a key: its l is 0 and stays 0.",
    "    return m, l, o", "    return m, np.where(l > 0, l, 1), o",
)  # fmt: skip
merge.slip(
    "G03", "first-empty-forgotten", "Where the second state is empty, the first is lost.",
    "    return m, l, o", "    empty = np.isneginf(m2)\n    return m, np.where(empty, 0, l), np.where(empty[..., None], 0, o)",
)  # fmt: skip
merge.slip(
    "A09", "without-the-maximum", "You go back to exp of the scores themselves: for large scores that overflows.",
    "    l = l1 * scale1 + l2 * scale2\n",
    "    scale1, scale2 = np.exp(m1) / np.exp(finite), np.exp(m2) / np.exp(finite)\n    l = l1 * scale1 + l2 * scale2\n",
)  # fmt: skip
merge.slip(
    "X01", "no-axis-for-the-width",
    "The factors of the queries are laid over the columns of o: give them an axis (`scale[..., None]`).",
    "o1 * scale1[..., None] + o2 * scale2[..., None]", "o1 * scale1 + o2 * scale2",
)  # fmt: skip
merge.slip(
    "A24", "changes-inputs", "Your function changes l1 or o1 in place: the caller's state has other numbers afterwards.",
    SCALED, "    l1 *= scale1\n    l1 += l2 * scale2\n    l = l1\n    o = o1 * scale1[..., None] + o2 * scale2[..., None]\n",
)  # fmt: skip


@merge.misconception(
    "B64", "Your function takes one axis of queries only; any number of batch axes may lead."
)
def merge_in_a_loop(m1, l1, o1, m2, l2, o2):
    m, l, o = [], [], []
    for i in range(len(m1)):
        top = max(float(m1[i]), float(m2[i]))
        a = math.exp(m1[i] - top) if l1[i] > 0 else 0.0
        b = math.exp(m2[i] - top) if l2[i] > 0 else 0.0
        m.append(top)
        l.append(a * l1[i] + b * l2[i])
        o.append(a * o1[i] + b * o2[i])
    return np.array(m), np.array(l), np.array(o)


@merge.alternative("by the difference of the maxima")
def by_the_difference(m1, l1, o1, m2, l2, o2):
    first = m1 >= m2
    gap = np.where(np.isneginf(m1) & np.isneginf(m2), 0, np.where(first, m2, m1))
    top = np.where(np.isneginf(np.maximum(m1, m2)), 0, np.maximum(m1, m2))
    small = np.exp(gap - top)
    a, b = np.where(first, 1, small), np.where(first, small, 1)
    return np.maximum(m1, m2), a * l1 + b * l2, a[..., None] * o1 + b[..., None] * o2


@merge.alternative("silenced, then repaired")
def silenced(m1, l1, o1, m2, l2, o2):
    m = np.maximum(m1, m2)
    with np.errstate(invalid="ignore"):
        a = np.where(np.isneginf(m1), 0.0, np.exp(m1 - m))
        b = np.where(np.isneginf(m2), 0.0, np.exp(m2 - m))
    return [m, a * l1 + b * l2, np.einsum("...n,...nd->...nd", a, o1) + b[..., None] * o2]


@merge.alternative("loops into lists")
def merge_lists(m1, l1, o1, m2, l2, o2):
    if np.ndim(m1) > 1:
        items = [merge_lists(*item) for item in zip(m1, l1, o1, m2, l2, o2)]
        return tuple(list(part) for part in zip(*items))
    m, l, o = [], [], []
    for a, la, oa, b, lb, ob in zip(m1, l1, o1, m2, l2, o2):
        top = max(a, b)
        fa = 0.0 if a == -math.inf else math.exp(a - top)
        fb = 0.0 if b == -math.inf else math.exp(b - top)
        m.append(float(top))
        l.append(float(la * fa + lb * fb))
        o.append([float(x * fa + y * fb) for x, y in zip(oa, ob)])
    return m, l, o


@merge.alternative("stacked states")
def stacked_states(m1, l1, o1, m2, l2, o2):
    ms, ls, os = np.stack([m1, m2]), np.stack([l1, l2]), np.stack([o1, o2])
    m = ms.max(axis=0)
    factors = np.exp(ms - np.nan_to_num(m, neginf=0.0))
    return m, (factors * ls).sum(axis=0), (factors[..., None] * os).sum(axis=0)


@merge.alternative("in float64, row by index")
def by_index(m1, l1, o1, m2, l2, o2):
    m = np.array(m1, dtype=float)
    l, o = np.zeros(m.shape), np.zeros(o1.shape)
    for i in np.ndindex(m.shape):
        m[i] = m1[i] if m1[i] > m2[i] else m2[i]
        for top, total, mix in ((m1[i], l1[i], o1[i]), (m2[i], l2[i], o2[i])):
            if total > 0:
                l[i] += np.exp(top - m[i]) * total
                o[i] += np.exp(top - m[i]) * mix
    return m, l, o


# --- tiled_attention -------------------------------------------------------------------------------

tiled = exercise.function("tiled_attention", uses=("merge_partial",))
TILED = "tiled_attention(Q, K, V, tile)"
CAUSAL_TILED = "tiled_attention(Q, K, V, tile, causal=True)"
# Long inputs are made on the spot, so that a report stays short.
LONG_TILED = (
    "x = np.sin(np.arange(4.0 * n).reshape(n, 4) ** 1.5)\n"
    "np.array(tiled_attention(x, x[::-1], x[:, :2], 8, causal))[::512]"
)

tiled.witness("values", "C1", TILED, **QKV, tile=2)
tiled.witness("values", "C1", TILED, **QKV, tile=3)
tiled.witness("values", "C1", TILED, **QKV, tile=9)
tiled.witness("values", "C3", TILED, **peaked(QKV, 1), tile=2)
tiled.witness(
    "values", "C3", TILED,
    Q=np.stack([Q3[:2], -Q3[:2]]), K=np.stack([K4[:3], K4[1:]]), V=np.stack([V4[:3], V4[1:]]), tile=2,
)  # fmt: skip
tiled.witness("values", "C3", TILED, **{**QKV, "V": V4.astype(int)}, tile=3)
tiled.witness("causal", "C2", CAUSAL_TILED, Q=K4, K=K4 / 2, V=V4, tile=2)
tiled.witness(  # visible scores far below what some set hidden ones to
    "causal",
    "C2",
    CAUSAL_TILED,
    Q=np.array([[1.0, 0.0]] * 3),
    K=K4[:3] - [300.0, 0.0],
    V=V4[:3],
    tile=2,
)
tiled.witness("causal", "C2", CAUSAL_TILED, **QKV, tile=2)
tiled.witness("causal", "C2", CAUSAL_TILED, Q=Q3, K=K4[:2], V=V4[:2], tile=1, options=QUIET)
for causal in (False, True):
    tiled.witness(
        "memory", "C4", LONG_TILED, n=1024, causal=causal, options={"memory": float(1024**2)}
    )
tiled.witness("errors", "C5", TILED, **{**QKV, "K": np.ones((4, 3))}, tile=2, options=RAISES)
tiled.witness("errors", "C5", TILED, **{**QKV, "V": V4[:3]}, tile=2, options=RAISES)
tiled.witness(
    "errors", "C5", TILED, Q=Q3[None, :1], K=np.stack([K4[:2], K4[2:]]), V=V4[:2], tile=2, options=RAISES,
)  # fmt: skip


@tiled.hidden("values")
def _(rng):
    sizes = [(5, 7, 4, 3), (4, 3, 9, 5), (1, 6, 2, 4), (5, 1, 3, 2), (3, 8, 16, 1), (4, 4, 4, 4)]
    for n, m, d_k, d_v in sizes:
        case = qkv(rng, (), n, m, d_k, d_v)
        for tile in rng.permutation([1, 2, 3, 4, 5, m, m + 1, 100])[:3]:
            yield Example("C1", TILED, {**case, "tile": int(tile)})
    for tile in (1, 4, 7, 8):
        yield Example("C1", TILED, {**growing(qkv(rng)), "tile": tile})
    falling = growing(qkv(rng), -3.0)
    yield Example("C1", "tiled_attention(Q=Q, K=K, V=V, tile=tile)", {**falling, "tile": 3})
    yield Example(
        "C1", "tiled_attention(Q, K, V, tile, False)", {**qkv(rng, (), 30, 41), "tile": 6}
    )
    for batch in ((3,), (2, 3), (1,), (3, 1, 2)):
        yield Example("C3", TILED, {**qkv(rng, batch), "tile": 3})
    yield Example("C3", TILED, {**qkv(rng, (4,), 4, 4, 4, 4), "tile": 2})
    yield Example("C3", TILED, {**peaked(qkv(rng), 3), "tile": 2})
    yield Example("C3", TILED, {**low(qkv(rng)), "tile": 3})
    yield Example("C3", TILED, {**growing(qkv(rng), 2500.0), "tile": 2})
    yield Example("C3", TILED, {**integers(qkv(rng)), "tile": 3})
    yield Example("C3", TILED, {**qkv(rng, (3,), dtype=np.float32), "tile": 2})
    strided = fortran(qkv(rng, (3,)))
    yield Example("C3", TILED, {**strided, "tile": 4})


@tiled.hidden("causal")
def _(rng):
    for n, m, tile in (
        (6, 6, 2),
        (5, 5, 4),
        (7, 7, 9),
        (3, 8, 3),
        (4, 9, 4),
        (1, 6, 2),
        (30, 30, 7),
    ):
        yield Example("C2", CAUSAL_TILED, {**qkv(rng, (), n, m), "tile": tile})
    for n, m, tile in ((7, 4, 2), (8, 3, 5), (5, 1, 1)):
        yield Example("C2", CAUSAL_TILED, {**qkv(rng, (), n, m), "tile": tile}, no_warning=True)
    yield Example("C2", "tiled_attention(Q, K, V, tile, True)", {**qkv(rng, (3,), 6, 6), "tile": 4})
    batch = {**qkv(rng, (2, 3), 5, 4), "tile": 3}
    yield Example("C2", CAUSAL_TILED, batch, no_warning=True)
    later = growing(qkv(rng, (), 6, 6), 60.0)  # later keys score far above the earlier ones
    yield Example("C2", CAUSAL_TILED, {**later, "tile": 2})
    yield Example("C2", CAUSAL_TILED, {**low(qkv(rng, (), 6, 6)), "tile": 4})
    yield Example("C2", CAUSAL_TILED, {**integers(qkv(rng, (), 6, 7)), "tile": 3})
    single = qkv(rng, (), 7, 5, dtype=np.float32)
    yield Example("C2", CAUSAL_TILED, {**single, "tile": 2}, no_warning=True)


@tiled.hidden("memory")
def _(rng):
    inputs = {**qkv(rng, (), 1024, 1024), "tile": 8, "causal": bool(rng.integers(2))}
    code = "tiled_attention(Q, K, V, tile, causal)"
    yield Example("C4", code, inputs, memory=1024.0**2, once=True)


@tiled.hidden("errors")
def _(rng):
    for inputs in qkv_misfits(rng):
        yield Example("C5", TILED, {**inputs, "tile": 2}, raises="ValueError")
    long_values = {**qkv(rng), "V": rng.normal(size=(9, 3))}  # the tiles fit, the whole does not
    yield Example("C5", TILED, {**long_values, "tile": 7}, raises="ValueError")


JOIN = "        top, total, mix = map(np.asarray, merge_partial(top, total, mix, *state))\n"
tiled.slip(
    "G01", "old-sums-not-rescaled",
    "When a later tile has a larger maximum, the old sums are not rescaled: call merge_partial, which does it.",
    JOIN,
    "        new = np.maximum(top, highest)\n"
    "        now = np.exp(np.where(np.isneginf(highest), -np.inf, highest) - np.where(np.isneginf(new), 0, new))\n"
    "        top, total, mix = new, total + now * state[1], mix + now[..., None] * state[2]\n",
)  # fmt: skip
tiled.slip(
    "G01", "last-tile-only", "Only the last tile counts: join each tile's state with the one before.",
    JOIN, "        top, total, mix = state\n",
)  # fmt: skip
tiled.slip(
    "F09", "mean-of-tiles", "Each tile gets a softmax of its own, and the results are averaged: tiles with high scores should count more.",
    JOIN,
    "        parts = state[2] / np.where(state[1] > 0, state[1], 1)[..., None]\n"
    "        mix, total = mix + (state[1] > 0)[..., None] * parts, total + (state[1] > 0)\n",
)  # fmt: skip
tiled.slip(
    "G04", "tiles-normalised", "Each tile's output is divided by its own sum before it is joined: o is the sum of exp(score − m) · value, not yet divided.",
    "powers @ V[..., keys, :]",
    "powers @ V[..., keys, :] / np.where(np.isneginf(highest), 1, powers.sum(axis=-1))[..., None]",
)  # fmt: skip
tiled.slip(
    "G04", "not-normalised", "The division by the sum of exponentials is missing at the end.",
    "return mix / np.where(total > 0, total, 1)[..., None]", "return mix",
)  # fmt: skip
tiled.slip(
    "G05", "last-partial-tile-ignored", "Keys that do not fill a whole tile are left out.",
    "range(0, m, tile)", "range(0, max(m - tile + 1, 1 if m < tile else 0), tile)",
)  # fmt: skip
tiled.slip(
    "G05", "small-inputs-ignored", "Keys that do not fill a whole tile are left out; with a tile larger than the number of keys these are all.",
    "range(0, m, tile)", "range(0, m // tile * tile or 0, tile)",
)  # fmt: skip
tiled.slip(
    "G05", "tiles-overlap", "The last tile is moved back so that it is full: some keys are counted twice.",
    "keys = np.arange(start, min(start + tile, m))",
    "keys = np.arange(max(min(start, m - tile), 0), min(start + tile, m))",
)  # fmt: skip
tiled.slip(
    "G05", "one-key-skipped", "One key is lost at the end of every tile.",
    "keys = np.arange(start, min(start + tile, m))",
    "keys = np.arange(start, max(min(start + tile, m) - 1, start + 1))",
)  # fmt: skip
tiled.slip(
    "B01", "no-scale", SAID["no-scale"],
    "attention_scores(Q, K[..., keys, :])", "Q @ np.swapaxes(K[..., keys, :], -1, -2)",
)  # fmt: skip
tiled.slip(
    "B02", "scaled-twice", "Your scores are divided by √d_k twice: `attention_scores` does it already.",
    "attention_scores(Q, K[..., keys, :])", "attention_scores(Q, K[..., keys, :]) / math.sqrt(Q.shape[-1])",
)  # fmt: skip
tiled.slip(
    "B39", "causal-ignored", "`causal` has no effect: later keys are seen.",
    "        if causal:\n            scores = np.where(keys <= last[:, None], scores, -np.inf)\n", "",
)  # fmt: skip
tiled.slip(
    "B37", "aligned-at-the-start", "Your causal mask is aligned at the start: with n queries and m keys, query i sees the keys up to i + (m − n).",
    "np.arange(n) + (m - n)", "np.arange(n)",
)  # fmt: skip
tiled.slip(
    "B34", "causal-hides-itself", "With `causal` a query does not see its own position.",
    "keys <= last[:, None]", "keys < last[:, None]",
)  # fmt: skip
tiled.slip(
    "B35", "one-too-far", "With `causal` a query sees one key too many: the next one leaks.",
    "keys <= last[:, None]", "keys <= last[:, None] + 1",
)  # fmt: skip
tiled.slip(
    "B36", "looks-ahead", "With `causal` a query sees the later keys instead of the earlier ones.",
    "keys <= last[:, None]", "keys >= last[:, None]",
)  # fmt: skip
tiled.slip(
    "F12", "causal-by-whole-tiles", "A query sees its whole tile, later keys included: inside a tile the mask is needed as well.",
    "keys <= last[:, None]", "np.full(len(keys), start) <= last[:, None]",
)  # fmt: skip
tiled.slip(
    "F12", "own-tile-left-out", "A query only sees the tiles that lie wholly before it: of its own tile it sees the keys up to its position.",
    "keys <= last[:, None]", "np.full(len(keys), keys[-1]) <= last[:, None]",
)  # fmt: skip
tiled.slip(
    "X02", "places-in-the-tile", "The causal mask counts the keys of each tile from 0: their place in the whole text counts.",
    "keys <= last[:, None]", "keys - start <= last[:, None]",
)  # fmt: skip
tiled.slip(
    "B27", "filled-with-minus-100", filled(100),
    "np.where(keys <= last[:, None], scores, -np.inf)", "np.where(keys <= last[:, None], scores, -100)",
)  # fmt: skip
tiled.slip(
    "B32", "mean-for-nothing", "A query that sees nothing gets the mean of the values: a finite penalty makes all its scores equal. Its output is 0.",
    "np.where(keys <= last[:, None], scores, -np.inf)", "np.where(keys <= last[:, None], scores, -1e9)",
)  # fmt: skip
tiled.slip(
    "B31", "nan-for-nothing", "A query that sees nothing gets NaN (0/0): its output is 0.",
    "np.where(total > 0, total, 1)", "total",
)  # fmt: skip
tiled.slip(
    "X03", "warns", "The numbers are right, but a query that sees nothing gives a warning (0/0).",
    "return mix / np.where(total > 0, total, 1)[..., None]", "return np.nan_to_num(mix / total[..., None])",
)  # fmt: skip
tiled.slip(
    "G03", "hidden-tile-is-nan", "A tile in which a query sees nothing gives NaN: −inf − (−inf) has no value.",
    "np.where(np.isneginf(highest), 0, highest)", "highest",
)  # fmt: skip
tiled.slip(
    "B57", "keys-instead-of-values", SAID["keys-instead-of-values"],
    "powers @ V[..., keys, :]", "powers @ K[..., keys, :][..., np.arange(V.shape[-1]) % K.shape[-1]]",
)  # fmt: skip
tiled.slip(
    "X04", "values-of-the-first-tile", "Every tile uses the values of the first: keys and values are read together.",
    "V[..., keys, :]", "V[..., keys - start, :]",
)  # fmt: skip
tiled.slip(
    "A26", "output-like-values", SAID["output-like-values"],
    "return mix / np.where(total > 0, total, 1)[..., None]",
    "return (mix / np.where(total > 0, total, 1)[..., None]).astype(V.dtype)",
)  # fmt: skip
tiled.slip(
    "A21", "rounded", SAID["rounded"],
    "return mix / np.where(total > 0, total, 1)[..., None]",
    "return np.round(mix / np.where(total > 0, total, 1)[..., None], 4)",
)  # fmt: skip
tiled.slip(
    "A48", "first-item-only", "All batch items read the keys of the first one.",
    "    n, m = Q.shape[-2], K.shape[-2]\n",
    "    n, m = Q.shape[-2], K.shape[-2]\n    K = np.broadcast_to(K[(0,) * (K.ndim - 2)], K.shape)\n",
)  # fmt: skip
tiled.slip(
    "X05", "values-not-checked", "Keys and values that do not belong together raise no ValueError: the tiles fit, so test the whole shapes.",
    " or V.shape[:-1] != K.shape[:-1]", "",
)  # fmt: skip


@tiled.misconception(
    "F14",
    "The numbers are right, but you make the full table of queries × keys. Read the keys tile by tile, and keep only the state.",
)
def dense(Q, K, V, tile, causal=False):
    mask = causal_mask(Q.shape[-2], K.shape[-2]) if causal else None
    return attention(Q, K, V, mask)[0]


@tiled.misconception(
    "F14",
    "Without `causal` you need little memory; with it the mask has an entry for every pair. Make it tile by tile, from the positions.",
)
def full_causal_mask(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    mask = causal_mask(Q.shape[-2], K.shape[-2]) if causal else None
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for start in range(0, Q.shape[-2], 8):
        rows = slice(start, start + 8)
        output[..., rows, :] = attention(
            Q[..., rows, :], K, V, mask if mask is None else mask[rows]
        )[0]
    return output


@tiled.misconception(
    "X02",
    "Each tile gets a causal mask of its own, aligned at the end of the tile: only the last one fits.",
)
def mask_of_each_tile(Q, K, V, tile, causal=False):
    if Q.shape[-1] != K.shape[-1] or K.shape[:-1] != V.shape[:-1] or Q.shape[:-2] != K.shape[:-2]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    state = np.full(Q.shape[:-1], -np.inf), np.zeros(Q.shape[:-1]), 0.0 * Q[..., :1] * V[..., :1, :]
    for start in range(0, m, tile):
        k, v = K[..., start : start + tile, :], V[..., start : start + tile, :]
        scores = attention_scores(Q, k)
        if causal:
            scores = np.where(causal_mask(n, k.shape[-2]), scores, -np.inf)
        highest = scores.max(axis=-1)
        powers = np.exp(scores - np.where(np.isneginf(highest), 0, highest)[..., None])
        state = merge_partial(*state, highest, powers.sum(axis=-1), powers @ v)
    return state[2] / np.where(state[1] > 0, state[1], 1)[..., None]


@tiled.misconception(
    "A09",
    "exp of large scores overflows, and of very low ones vanishes: the state needs the largest score so far.",
)
def no_running_maximum(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    total = np.zeros((*Q.shape[:-1], 1))
    mix = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for start in range(0, m, tile):
        keys = np.arange(start, min(start + tile, m))
        powers = np.exp(attention_scores(Q, K[..., keys, :]))
        if causal:
            powers = powers * (keys <= np.arange(n)[:, None] + m - n)
        total += powers.sum(axis=-1, keepdims=True)
        mix += powers @ V[..., keys, :]
    return mix / np.where(total > 0, total, 1)


@tiled.misconception(
    "G05", "The last tile is filled up with zeros, and these get weight like keys: exp(0) = 1."
)
def zero_filled(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    sides = [(0, 0)] * (K.ndim - 2) + [(0, -m % tile), (0, 0)]
    K, V = np.pad(K, sides), np.pad(V, sides)
    if causal:
        return attention(Q, K[..., :m, :], V[..., :m, :], causal_mask(n, m))[0]
    return attention(Q, K, V)[0]


@tiled.misconception("B61", SAID["with-the-weights"])
def with_the_weights(Q, K, V, tile, causal=False):
    mask = causal_mask(Q.shape[-2], K.shape[-2]) if causal else None
    return attention(Q, K, V, mask)


@tiled.misconception("B64", SAID["two-axes-only"])
def two_axes_only(Q, K, V, tile, causal=False):
    n, d_k = Q.shape
    m, d_v = V.shape
    if K.shape != (m, d_k):
        raise ValueError("shapes")
    output = np.zeros((n, d_v))
    for i in range(n):
        seen = m if not causal else max(i + 1 + m - n, 0)
        if seen:
            output[i] = attention(Q[i : i + 1], K[:seen], V[:seen])[0][0]
    return output


@tiled.alternative("queries in chunks, all keys at once")
def chunks_of_queries(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for start in range(0, n, tile):
        rows = np.arange(start, min(start + tile, n))
        mask = np.arange(m) <= rows[:, None] + m - n if causal else None
        output[..., rows, :] = attention(Q[..., rows, :], K, V, mask)[0]
    return output


@tiled.alternative("query by query, the visible keys only")
def query_by_query(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    rows = []
    for i in range(n):
        seen = max(m - n + i + 1, 0) if causal else m
        if seen == 0:
            rows.append(np.zeros((*Q.shape[:-2], 1, V.shape[-1])))
        else:
            rows.append(attention(Q[..., i : i + 1, :], K[..., :seen, :], V[..., :seen, :])[0])
    return np.concatenate(rows, axis=-2)


@tiled.alternative("running maximum inline")
def running_maximum(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    top = np.full((*Q.shape[:-1], 1), -1e30)
    total, mix = np.zeros(top.shape), np.zeros((*Q.shape[:-1], V.shape[-1]))
    last = (np.arange(n) + m - n)[:, None]
    for start in range(0, m, tile):
        k, v = K[..., start : start + tile, :], V[..., start : start + tile, :]
        s = np.einsum("...id,...jd->...ij", Q, k) / np.sqrt(Q.shape[-1])
        visible = np.arange(start, start + k.shape[-2]) <= (last if causal else m)
        new = np.maximum(top, np.where(visible, s, -1e30).max(axis=-1, keepdims=True))
        e = np.exp(np.minimum(s - new, 0)) * visible
        old = np.exp(top - new)
        top, total, mix = new, total * old + e.sum(axis=-1, keepdims=True), mix * old + e @ v
    total[total == 0] = 1
    return mix / total


@tiled.alternative("two passes")
def two_passes(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    last = np.arange(n)[:, None] + m - n if causal else np.full((n, 1), m)

    def tiles():
        for start in range(0, m, tile):
            part = slice(start, min(start + tile, m))
            s = attention_scores(Q, K[..., part, :])
            yield part, np.where(np.arange(part.start, part.stop) <= last, s, -np.inf)

    top = np.full((*Q.shape[:-1], 1), -np.inf)
    for _, s in tiles():
        top = np.maximum(top, s.max(axis=-1, keepdims=True))
    top[np.isneginf(top)] = 0
    total = sum(np.exp(s - top).sum(axis=-1, keepdims=True) for _, s in tiles())
    mix = sum(np.exp(s - top) @ V[..., part, :] for part, s in tiles())
    return mix / np.maximum(total, 1e-300)


@tiled.alternative("tiles of queries and of keys, states in a list")
def states_in_a_list(Q, K, V, tile, causal=False):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]
    parts = []
    for i in range(0, n, 64):
        q = Q[..., i : i + 64, :]
        rows = np.arange(i, i + q.shape[-2])[:, None] + m - n
        joined = None
        for j in range(0, m, tile):
            s = attention_scores(q, K[..., j : j + tile, :]).astype(float)
            if causal:
                s[..., np.arange(j, j + s.shape[-1]) > rows] = -np.inf
            high = s.max(axis=-1)
            e = np.exp(s - np.where(high > -np.inf, high, 0)[..., None])
            now = (high, e.sum(axis=-1), e @ V[..., j : j + tile, :])
            joined = now if joined is None else merge_partial(*joined, *now)
        parts.append(np.asarray(joined[2]) / np.maximum(joined[1], 1e-300)[..., None])
    return np.concatenate(parts, axis=-2).tolist()


# --- linear_attention ------------------------------------------------------------------------------

linear = exercise.function("linear_attention")
LINEAR = "linear_attention(Q, K, V)"
CAUSAL_LINEAR = "linear_attention(Q, K, V, causal=True)"
LONG_LINEAR = (
    "x = np.sin(np.arange(4.0 * n).reshape(n, 4) ** 1.5)\n"
    "np.array(linear_attention(x, x[::-1], x[:, :2], causal))[::750]"
)

linear.witness("values", "C1", LINEAR, **QKV)
linear.witness("values", "C1", LINEAR, Q=Q3[:1], K=K4[:1], V=V4[2:3])
linear.witness(
    "values", "C3", LINEAR, Q=np.stack([Q3[:2], -Q3[:2]]), K=np.stack([K4[:3], K4[1:]]),
    V=np.stack([V4[:3], V4[1:]]),
)  # fmt: skip
linear.witness(
    "values", "C3", LINEAR, Q=np.array([[1, -2]]), K=np.array([[3, 0], [-1, 2]]),
    V=np.array([[1, 2, 3], [4, 5, 7]]),
)  # fmt: skip
linear.witness(
    "values", "C3", LINEAR, Q=Q3[:1], K=np.array([[-15.0, 2.0], [900.0, -3.0]]), V=V4[:2]
)
linear.witness("causal", "C2", CAUSAL_LINEAR, Q=K4 / 2, K=K4, V=V4)
linear.witness(
    "causal", "C3", CAUSAL_LINEAR,
    Q=np.stack([Q3[:2], -Q3[:2]]), K=np.stack([K4[:2], K4[2:]]), V=np.stack([V4[:2], V4[2:]]),
)  # fmt: skip
for causal in (False, True):
    linear.witness(
        "memory", "C4", LONG_LINEAR, n=1500, causal=causal, options={"memory": 1500**2 / 2}
    )


@linear.hidden("values")
def _(rng):
    sizes = [(5, 7, 4, 3), (4, 3, 9, 5), (1, 6, 2, 4), (5, 1, 3, 2), (3, 8, 16, 1), (4, 4, 4, 4)]
    for n, m, d_k, d_v in sizes:
        yield Example("C1", LINEAR, qkv(rng, (), n, m, d_k, d_v))
    yield Example("C1", "linear_attention(Q=Q, K=K, V=V)", qkv(rng, (), 6, 5))
    yield Example("C1", "linear_attention(Q, K, V, False)", qkv(rng, (), 6, 6))
    for batch in ((3,), (2, 3), (1,), (3, 1, 2)):
        yield Example("C3", LINEAR, qkv(rng, batch))
    yield Example("C3", LINEAR, qkv(rng, (4,), 4, 4, 4, 4))
    case = qkv(rng)
    case["Q"][1], case["K"][2:] = case["Q"][1] - 12, case["K"][2:] - 13
    yield Example("C3", LINEAR, case)
    case = qkv(rng)
    case["Q"][2, 1], case["K"][3, 0] = 2000, 1500
    yield Example("C3", LINEAR, case)
    yield Example("C3", LINEAR, integers(qkv(rng)))
    yield Example("C3", LINEAR, qkv(rng, (3,), dtype=np.float32))
    yield Example("C3", LINEAR, fortran(qkv(rng, (3,))))


@linear.hidden("causal")
def _(rng):
    for n, d_k, d_v in ((5, 4, 3), (8, 2, 5), (1, 3, 2), (7, 9, 1), (4, 4, 4), (150, 3, 2)):
        yield Example("C2", CAUSAL_LINEAR, qkv(rng, (), n, n, d_k, d_v))
    yield Example("C2", "linear_attention(Q, K, V, True)", qkv(rng, (), 6, 6))
    for batch in ((3,), (2, 3), (1,)):
        yield Example("C2", CAUSAL_LINEAR, qkv(rng, batch, 6, 6))
    yield Example("C2", CAUSAL_LINEAR, qkv(rng, (4,), 4, 4, 4, 4))
    case = qkv(rng, (), 6, 6)
    case["K"][4:] += 30  # later keys weigh far more than the earlier ones
    yield Example("C2", CAUSAL_LINEAR, case)
    yield Example("C2", CAUSAL_LINEAR, integers(qkv(rng, (), 6, 6)))
    yield Example("C2", CAUSAL_LINEAR, qkv(rng, (3,), 6, 6, dtype=np.float32))


@linear.hidden("memory")
def _(rng):
    for causal in (False, True):
        inputs = {**qkv(rng, (), 1500, 1500), "causal": causal}
        code = "linear_attention(Q, K, V, causal)"
        yield Example("C4", code, inputs, memory=1500**2 / 2, once=True)


PHI = "np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))"
linear.slip(
    "G08", "no-normaliser", "The division by the sum of φ(q)·φ(k) is missing: with values of 1 the result must be 1.",
    "return Q @ memory / (Q @ total[..., None])", "return Q @ memory",
)  # fmt: skip
linear.slip(
    "G08", "causal-no-normaliser", "With `causal` the division by the sum of φ(q)·φ(k) is missing: with values of 1 the result must be 1.",
    "return mixed / (Q * total).sum(axis=-1, keepdims=True)", "return mixed",
)  # fmt: skip
linear.slip(
    "G08", "divided-by-the-number-of-keys", "You divide by the number of keys; divide by the sum of φ(q)·φ(k).",
    "return Q @ memory / (Q @ total[..., None])", "return Q @ memory / K.shape[-2]",
)  # fmt: skip
linear.slip(
    "G09", "normaliser-by-feature", "The normaliser is taken feature by feature; it is one number for each query, the product φ(q)·Σφ(k).",
    "return Q @ memory / (Q @ total[..., None])",
    "return (Q / total[..., None, :]) @ memory",
)  # fmt: skip
linear.slip(
    "G08", "keys-normalised", "The keys are normalised on their own (each feature over the keys); the sum of φ(q)·φ(k) is one number per query.",
    "memory = np.swapaxes(K, -1, -2) @ V  # (…, d_k, d_v), the sum of φ(k) vᵀ",
    "K = K / K.sum(axis=-2, keepdims=True)\n        memory = np.swapaxes(K, -1, -2) @ V",
)  # fmt: skip
linear.slip(
    "G10", "causal-ignored", "`causal` has no effect: later keys count.",
    "if not causal:", "if True:",
)  # fmt: skip
linear.slip(
    "G10", "causal-normaliser-whole", "With `causal` the numerator is right, but the normaliser sums over all keys.",
    "total = np.cumsum(K, axis=-2)", "total = K.sum(axis=-2, keepdims=True)",
)  # fmt: skip
linear.slip(
    "G10", "causal-numerator-whole", "With `causal` the normaliser is right, but the numerator sums over all keys.",
    "memory = np.cumsum(pairs, axis=-3)", "memory = pairs.sum(axis=-3, keepdims=True)",
)  # fmt: skip
linear.slip(
    "G10", "cumulated-over-features", "Your running sum goes over the features: it goes over the positions.",
    "np.cumsum(K, axis=-2)", "np.cumsum(K, axis=-1)",
)  # fmt: skip
linear.slip(
    "G10", "cumulated-over-the-batch", "Your running sum goes over the first axis, which with a batch is the batch: name the axis from the end.",
    "np.cumsum(pairs, axis=-3)", "np.cumsum(pairs, axis=0)",
)  # fmt: skip
linear.slip(
    "B34", "causal-without-itself", "With `causal` a query does not see its own key: the sums run over j ≤ i.",
    "    mixed = ",
    "    memory, total = memory - pairs, total - K\n    total[..., 0, :] = 1\n    mixed = ",
)  # fmt: skip
linear.slip(
    "B36", "causal-backwards", "With `causal` the sums run over the later keys: they run over j ≤ i.",
    "    mixed = ",
    "    memory = pairs.sum(axis=-3, keepdims=True) - memory + pairs\n"
    "    total = K.sum(axis=-2, keepdims=True) - total + K\n    mixed = ",
)  # fmt: skip
linear.slip(
    "X06", "phi-is-relu", "Your φ is max(x, 0): some queries and keys become all 0. φ(x) = elu(x) + 1 is positive everywhere.",
    PHI, "np.maximum(x, 0) + 1e-9",
)  # fmt: skip
linear.slip(
    "X06", "phi-is-elu", "The + 1 is missing in φ: elu(x) can be negative.",
    PHI, PHI + " - 1",
)  # fmt: skip
linear.slip(
    "X06", "phi-is-exp", "Your φ is exp everywhere; for x > 0 it is x + 1.",
    PHI, "np.exp(np.minimum(x, 700))",
)  # fmt: skip
linear.slip(
    "X06", "phi-is-relu-plus-one", "Your φ is max(x, 0) + 1; for x ≤ 0 it is eˣ.",
    PHI, "np.maximum(x, 0) + 1",
)  # fmt: skip
linear.slip(
    "X06", "phi-without-one-above", "For x > 0 your φ is x; it is x + 1.",
    "x + 1", "x",
)  # fmt: skip
linear.slip(
    "X06", "phi-with-one-below", "For x ≤ 0 your φ is eˣ + 1; elu(x) is eˣ − 1 there, and with the + 1 that is eˣ.",
    "np.exp(np.minimum(x, 0)))", "np.exp(np.minimum(x, 0)) + 1)",
)  # fmt: skip
linear.slip(
    "X06", "no-phi", "Queries and keys are multiplied as they are: φ is missing.",
    "Q, K = phi(Q), phi(K)", "Q, K = Q * 1.0, K * 1.0",
)  # fmt: skip
linear.slip(
    "X06", "phi-on-queries-only", "φ is applied to the queries only; the keys need it, too.",
    "Q, K = phi(Q), phi(K)", "Q, K = phi(Q), K * 1.0",
)  # fmt: skip
linear.slip(
    "X06", "phi-on-keys-only", "φ is applied to the keys only; the queries need it, too.",
    "Q, K = phi(Q), phi(K)", "Q, K = Q * 1.0, phi(K)",
)  # fmt: skip
linear.slip(
    "X06", "phi-on-values", "φ is applied to the values as well: they stay as they are.",
    "Q, K = phi(Q), phi(K)", "Q, K, V = phi(Q), phi(K), phi(V)",
)  # fmt: skip
linear.slip(
    "X07", "scaled", "Queries are divided by a root of d_k before φ: here nothing is scaled.",
    "phi(Q), phi(K)", "phi(Q / math.sqrt(Q.shape[-1])), phi(K)",
)  # fmt: skip
linear.slip(
    "X08", "infinity-times-zero", "Large entries give NaN: both branches of φ are computed, and exp overflows before it is multiplied by 0. Choose with np.where.",
    PHI, "(x > 0) * (x + 1) + (x <= 0) * np.exp(1.0 * x)",
)  # fmt: skip
linear.slip(
    "A26", "phi-of-integers", "Integers are cut: φ took its dtype from x, and eˣ became 0.",
    "Q, K = phi(Q), phi(K)", "Q, K = phi(Q).astype(Q.dtype), phi(K).astype(K.dtype)",
)  # fmt: skip
linear.slip(
    "A48", "first-item-only", "All batch items use the keys of the first one.",
    "Q, K = phi(Q), phi(K)", "Q, K = phi(Q), np.broadcast_to(phi(K)[(0,) * (K.ndim - 2)], K.shape)",
)  # fmt: skip


@linear.misconception(
    "X09",
    "You compute softmax attention. Linear attention is another function: φ(q)·φ(k) takes the place of exp(q·k/√d_k).",
)
def softmax_attention(Q, K, V, causal=False):
    return attention(Q, K, V, causal_mask(Q.shape[-2]) if causal else None)[0]


@linear.misconception(
    "X09", "A softmax runs over the products φ(q)·φ(k); divide by their sum instead."
)
def softmax_of_phi(Q, K, V, causal=False):
    def phi(x):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    scale = math.sqrt(Q.shape[-1])
    return attention(phi(Q) * scale, phi(K), V, causal_mask(Q.shape[-2]) if causal else None)[0]


@linear.misconception(
    "F14",
    "The numbers are right, but you make the full table φ(Q) φ(K)ᵀ. Sum φ(k) vᵀ over the keys first, and multiply by φ(q) after.",
)
def quadratic(Q, K, V, causal=False):
    def phi(x):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))

    pairs = phi(Q) @ np.swapaxes(phi(K), -1, -2)
    if causal:
        pairs = np.tril(pairs)
    return pairs @ V / pairs.sum(axis=-1, keepdims=True)


@linear.misconception(
    "F14", "Without `causal` you are linear, but the causal branch makes the full table of pairs."
)
def quadratic_where_causal(Q, K, V, causal=False):
    Q, K = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (Q, K))
    if causal:
        pairs = np.tril(Q @ np.swapaxes(K, -1, -2))
        return pairs @ V / pairs.sum(axis=-1, keepdims=True)
    return Q @ (np.swapaxes(K, -1, -2) @ V) / (Q @ K.sum(axis=-2)[..., None])


@linear.misconception("B64", SAID["two-axes-only"])
def two_axes_only(Q, K, V, causal=False):
    Q, K = (np.where(x > 0, x + 1, np.exp(np.minimum(x, 0))) for x in (Q, K))
    memory, total = np.zeros((K.shape[1], V.shape[1])), np.zeros(K.shape[1])
    output = np.zeros((len(Q), V.shape[1]))
    if not causal:
        return Q @ (K.T @ V) / (Q @ K.sum(axis=0))[:, None]
    for i in range(len(Q)):
        memory += np.outer(K[i], V[i])
        total += K[i]
        output[i] = Q[i] @ memory / (Q[i] @ total)
    return output


@linear.alternative("position by position")
def position_by_position(Q, K, V, causal=False):
    Q, K = (np.where(x > 0, x, np.expm1(np.minimum(x, 0))) + 1 for x in (Q, K))
    if not causal:
        memory = np.einsum("...jd,...je->...de", K, V)
        return np.einsum("...id,...de->...ie", Q, memory) / (Q @ K.sum(-2)[..., None])
    memory = np.zeros((*K.shape[:-2], K.shape[-1], V.shape[-1]))
    total = np.zeros((*K.shape[:-2], K.shape[-1], 1))
    rows = []
    for i in range(Q.shape[-2]):
        q, k, v = Q[..., i : i + 1, :], K[..., i : i + 1, :], V[..., i : i + 1, :]
        memory = memory + np.swapaxes(k, -1, -2) @ v
        total = total + np.swapaxes(k, -1, -2)
        rows.append(q @ memory / (q @ total))
    return np.concatenate(rows, axis=-2)


@linear.alternative("values with a column of ones")
def column_of_ones(Q, K, V, causal=False):
    Q, K = (np.maximum(x, 0) + np.exp(np.minimum(x, 0)) for x in (Q, K))
    V = np.concatenate([V, np.ones((*V.shape[:-1], 1))], axis=-1)
    if causal:
        sums = np.cumsum(np.einsum("...jd,...je->...jde", K, V), axis=-3)
        both = np.einsum("...id,...ide->...ie", Q, sums)
    else:
        both = Q @ (np.swapaxes(K, -1, -2) @ V)
    return both[..., :-1] / both[..., -1:]


@linear.alternative("loops into lists")
def linear_lists(Q, K, V, causal=False):
    if Q.ndim > 2:
        return [linear_lists(q, k, v, causal) for q, k, v in zip(Q, K, V)]

    def phi(row):
        return np.array([float(x) + 1 if x > 0 else math.exp(x) for x in row])

    memory, total, done = 0.0, 0.0, 0
    rows = []
    for i, q in enumerate(Q):
        while done < (i + 1 if causal else len(K)):
            memory = memory + np.outer(phi(K[done]), V[done])
            total = total + phi(K[done])
            done += 1
        rows.append((phi(q) @ memory / (phi(q) @ total)).tolist())
    return rows


@linear.alternative("chunks of positions, exp overflowing unused")
def chunks_of_positions(Q, K, V, causal=False):
    with np.errstate(over="ignore"):
        Q, K = (np.where(x > 0, x + 1.0, np.exp(x)) for x in (Q, K))
    if not causal:
        return Q @ (K.swapaxes(-1, -2) @ V) / (Q * K.sum(axis=-2, keepdims=True)).sum(-1)[..., None]
    output = np.empty((*Q.shape[:-1], V.shape[-1]))
    memory = np.zeros((*K.shape[:-2], K.shape[-1], V.shape[-1]))
    total = np.zeros((*K.shape[:-2], K.shape[-1], 1))
    for start in range(0, Q.shape[-2], 20):
        part = np.s_[..., start : start + 20, :]
        pairs = np.tril(Q[part] @ K[part].swapaxes(-1, -2))
        output[part] = (Q[part] @ memory + pairs @ V[part]) / (
            Q[part] @ total + pairs.sum(axis=-1, keepdims=True)
        )
        memory += K[part].swapaxes(-1, -2) @ V[part]
        total += K[part].sum(axis=-2)[..., None]
    return output


# --- grouped_query_attention -----------------------------------------------------------------------

grouped = exercise.function("grouped_query_attention")
GROUPED = "grouped_query_attention(Q, K, V)"
MASKED = "grouped_query_attention(Q, K, V, mask)"
HEADS = {
    "Q": np.stack([Q3[:1], Q3[1:2], Q3[2:], -Q3[:1]]),
    "K": np.stack([K4[:2], K4[2:]]),
    "V": np.stack([V4[:2], V4[2:] + 1]),
}


def heads(rng, batch=(), h=6, g=3, n=5, m=7, d_k=4, d_v=2, dtype=float):
    Q = rng.normal(size=(*batch, h, n, d_k)) * 1.3
    K = rng.normal(size=(*batch, g, m, d_k)) * 1.3
    V = rng.normal(size=(*batch, g, m, d_v)) + 0.5
    return {"Q": Q.astype(dtype), "K": K.astype(dtype), "V": V.astype(dtype)}


grouped.witness("values", "C1", "grouped_query_attention(Q, K, V)[1]", **HEADS)
grouped.witness("values", "C2", GROUPED, **HEADS)
grouped.witness("values", "C2", GROUPED, Q=HEADS["Q"][:3], K=K4[None, :2], V=V4[None, :2])
grouped.witness("values", "C2", GROUPED, Q=HEADS["Q"][:2], K=HEADS["K"], V=HEADS["V"])
grouped.witness(
    "values", "C3", GROUPED,
    Q=np.stack([HEADS["Q"], -HEADS["Q"]]), K=np.stack([HEADS["K"], 1 - HEADS["K"]]),
    V=np.stack([HEADS["V"], -HEADS["V"]]),
)  # fmt: skip
grouped.witness("values", "C3", GROUPED, **peaked(HEADS, 0))
grouped.witness("mask", "C4", MASKED, **HEADS, mask=np.array([[False, True]]))
grouped.witness(
    "mask", "C4", MASKED, **HEADS,
    mask=np.array([[[True, False]], [[True, True]], [[False, True]], [[True, True]]]),
)  # fmt: skip
grouped.witness(
    "mask", "C4", MASKED, **HEADS,
    mask=np.array([[[True, True]], [[False, False]], [[False, True]], [[True, False]]]), options=QUIET,
)  # fmt: skip
grouped.witness("errors", "C5", GROUPED, **{**HEADS, "Q": HEADS["Q"][:3]}, options=RAISES)
grouped.witness("errors", "C5", GROUPED, **{**HEADS, "V": HEADS["V"][:1]}, options=RAISES)
grouped.witness("errors", "C5", GROUPED, **{**HEADS, "K": np.ones((2, 2, 3))}, options=RAISES)


@grouped.hidden("values")
def _(rng):
    for h, g in ((6, 3), (6, 2), (8, 4), (4, 1), (3, 3), (1, 1), (9, 3)):
        yield Example("C1", "grouped_query_attention(Q, K, V)[1]", heads(rng, (), h, g))
        yield Example("C2", GROUPED, heads(rng, (), h, g, 4, 3, 5, 6))
    yield Example("C2", "grouped_query_attention(Q=Q, K=K, V=V)", heads(rng, (), 6, 2, 1, 6))
    yield Example("C2", "grouped_query_attention(Q, K, V, None)", heads(rng, (), 4, 2, 3, 1))
    for batch in ((3,), (2, 3), (1,), (6,)):
        yield Example("C3", GROUPED, heads(rng, batch))
    yield Example("C3", GROUPED, heads(rng, (2,), 4, 2, 4, 4, 4, 4))
    yield Example("C3", GROUPED, heads(rng, (3,), 6, 1, 3, 3, 3, 3))
    yield Example("C3", GROUPED, peaked(heads(rng), 2))
    yield Example("C3", GROUPED, low(heads(rng)))
    yield Example("C3", GROUPED, integers(heads(rng)))
    yield Example("C3", GROUPED, heads(rng, (2,), dtype=np.float32))
    yield Example("C3", GROUPED, fortran(heads(rng)))


@grouped.hidden("mask")
def _(rng):
    for shape in ((5, 7), (1, 7), (6, 5, 7), (6, 1, 7), (1, 5, 7), (5, 1)):
        yield Example(
            "C4", MASKED, {**heads(rng), "mask": rng.random(shape) < 0.6}, no_warning=True
        )
    for shape in ((2, 1, 1, 7), (2, 6, 5, 7), (6, 1, 7), (2, 1, 5, 7), (5, 7)):
        case = {**heads(rng, (2,)), "mask": some_mask(rng, *shape) if shape[-1] > 1 else None}
        yield Example("C4", "grouped_query_attention(Q, K, V, mask=mask)", case)
    one = {**heads(rng, (), 4, 1), "mask": some_mask(rng, 4, 1, 7)}
    yield Example("C4", MASKED, one)
    each = {**heads(rng, (), 3, 3, 3, 3), "mask": some_mask(rng, 3, 3, 3)}
    yield Example("C4", MASKED, each)
    causal = {**heads(rng, (), 6, 2, 7, 5), "mask": np.tri(7, 5, -2, dtype=bool)}
    yield Example("C4", MASKED, causal, no_warning=True)
    nothing = {**heads(rng), "mask": np.zeros((1, 1), bool)}
    yield Example("C4", MASKED, nothing, no_warning=True)
    case = heads(rng)
    case["Q"][..., 0], case["K"][..., 0] = 1, 0
    hidden = ~some_mask(rng, 1, 7)
    case["K"][..., 0] = 150 * math.sqrt(4) * hidden  # hidden keys far above the visible ones
    yield Example("C4", MASKED, {**case, "mask": ~hidden})
    yield Example("C4", MASKED, {**low(heads(rng)), "mask": some_mask(rng, 5, 7)})


@grouped.hidden("errors")
def _(rng):
    for h, g in ((6, 4), (3, 2), (2, 4), (5, 3), (1, 2), (7, 6)):
        yield Example("C5", GROUPED, heads(rng, (), h, g), raises="ValueError")
    good = heads(rng, (2,), 6, 3)

    def but(**shapes):
        return {**good, **normal(rng, **shapes)}

    wrong = [but(K=(2, 3, 7, 5)), but(V=(2, 3, 6, 2)), but(V=(2, 1, 7, 2)), but(V=(2, 6, 7, 2))]
    wrong += [but(K=(2, 1, 7, 4)), but(K=(2, 3, 7, 1)), but(V=(2, 3, 1, 2)), but(V=(1, 3, 7, 2))]
    wrong += [but(Q=(3, 6, 5, 4)), but(Q=(1, 6, 5, 4)), but(K=(1, 3, 7, 4), V=(1, 3, 7, 2))]
    wrong += [but(Q=(6, 5, 4)), but(K=(3, 7, 4), V=(3, 7, 2))]
    for inputs in wrong:
        yield Example("C5", GROUPED, inputs, raises="ValueError")


REPEATED = (
    "    K = np.repeat(K, h // g, axis=-3)  # (…, g, m, d_k) -> (…, h, m, d_k)\n"
    "    V = np.repeat(V, h // g, axis=-3)\n"
)
grouped.slip(
    "G20", "groups-in-turn",
    "Your heads take the groups in turn (head i uses group i % g, as np.tile does it). Here neighbours share a group: i // (h / g).",
    REPEATED,
    "    index = np.arange(h) % g\n    K, V = K[..., index, :, :], V[..., index, :, :]\n",
)  # fmt: skip
grouped.slip(
    "G20", "values-in-turn", "Keys and values of different groups meet: the values are repeated in another order than the keys.",
    "V = np.repeat(V, h // g, axis=-3)", "V = V[..., np.arange(h) % g, :, :]",
)  # fmt: skip
grouped.slip(
    "G20", "keys-in-turn", "Keys and values of different groups meet: the keys are repeated in another order than the values.",
    "K = np.repeat(K, h // g, axis=-3)", "K = K[..., np.arange(h) % g, :, :]",
)  # fmt: skip
grouped.slip(
    "G20", "groups-backwards", "Your groups are assigned backwards: the first heads use group 0.",
    REPEATED,
    "    K, V = np.repeat(K[..., ::-1, :, :], h // g, axis=-3), np.repeat(V[..., ::-1, :, :], h // g, axis=-3)\n",
)  # fmt: skip
grouped.slip(
    "G20", "first-group-for-all", "All heads use the first group.",
    REPEATED,
    "    K, V = (np.repeat(x[..., :1, :, :], h, axis=-3) for x in (K, V))\n",
)  # fmt: skip
grouped.slip(
    "G20", "mean-of-the-groups", "The groups are averaged into one; each head uses its own.",
    REPEATED,
    "    K, V = (np.repeat(x.mean(axis=-3, keepdims=True), h, axis=-3) for x in (K, V))\n",
)  # fmt: skip
grouped.slip(
    "G20", "group-is-the-head-number",
    "Head i uses group i as long as there is one, and then the last: h / g neighbouring heads share a group.",
    REPEATED,
    "    index = np.minimum(np.arange(h), g - 1)\n    K, V = K[..., index, :, :], V[..., index, :, :]\n",
)  # fmt: skip
grouped.slip(
    "G20", "head-divided-by-g", "You take group i // g; the heads of a group are h / g, so it is i // (h / g).",
    REPEATED,
    "    index = np.minimum(np.arange(h) // g, g - 1)\n    K, V = K[..., index, :, :], V[..., index, :, :]\n",
)  # fmt: skip
grouped.slip(
    "G21", "repeated-in-the-batch", "The axis that you repeat is the first, which with a batch is the batch: heads are axis −3.",
    REPEATED,
    "    K, V = (np.repeat(x, h // g, axis=0).reshape(*x.shape[:-3], h, *x.shape[-2:]) for x in (K, V))\n",
)  # fmt: skip
grouped.slip(
    "G21", "positions-repeated",
    "Positions are repeated instead of heads: the reshape after the repetition mixes them. Repeat axis −3.",
    REPEATED,
    "    K, V = (np.repeat(x, h // g, axis=-2).reshape(*x.shape[:-3], h, *x.shape[-2:]) for x in (K, V))\n",
)  # fmt: skip
grouped.slip(
    "G22", "one-group-only", "Only one group works in your function (it broadcasts): with several, each belongs to h / g heads.",
    REPEATED,
    "    if g not in (1, h):\n        raise TypeError('groups')\n" + REPEATED,
)  # fmt: skip
grouped.slip(
    "B61", "weights-first", SAID["weights-first"],
    "return attention(Q, K, V, mask)", "return attention(Q, K, V, mask)[::-1]",
)  # fmt: skip
grouped.slip(
    "B61", "output-only", SAID["output-only"],
    "return attention(Q, K, V, mask)", "return attention(Q, K, V, mask)[0]",
)  # fmt: skip
grouped.slip(
    "G23", "heads-in-two-axes", "Your heads come in two axes, (g, h/g): bring them back to one, in order.",
    "return attention(Q, K, V, mask)",
    "return tuple(x.reshape(*x.shape[:-3], g, h // g, *x.shape[-2:]) for x in attention(Q, K, V, mask))",
)  # fmt: skip
grouped.slip(
    "J13", "heads-summed", "The heads are added up: each head's output is asked for.",
    "return attention(Q, K, V, mask)",
    "output, weights = attention(Q, K, V, mask)\n    return output.sum(axis=-3), weights",
)  # fmt: skip
grouped.slip(
    "B01", "no-scale", SAID["no-scale"],
    "attention(Q, K, V, mask)", "attention(Q * math.sqrt(Q.shape[-1]), K, V, mask)",
)  # fmt: skip
grouped.slip(
    "B02", "scaled-by-the-group", "Your scores are divided by the root of the number of heads in a group as well; only d_k counts.",
    "attention(Q, K, V, mask)", "attention(Q / math.sqrt(h // g), K, V, mask)",
)  # fmt: skip
grouped.slip(
    "B57", "keys-instead-of-values", SAID["keys-instead-of-values"],
    "return attention(Q, K, V, mask)",
    "weights = attention(Q, K, V, mask)[1]\n    return weights @ K, weights",
)  # fmt: skip
grouped.slip(
    "B47", "mask-not-used", SAID["mask-not-used"], "attention(Q, K, V, mask)", "attention(Q, K, V)",
)  # fmt: skip
grouped.slip(
    "B38", "mask-the-other-way", SAID["mask-the-other-way"],
    "attention(Q, K, V, mask)", "attention(Q, K, V, None if mask is None else ~mask)",
)  # fmt: skip
grouped.slip(
    "B45", "mask-by-group",
    "A mask with a head axis is read group by group: all heads of a group get the mask of its first head. Its head axis counts the query heads.",
    "return attention(Q, K, V, mask)",
    "if mask is not None and mask.ndim > 2 and mask.shape[-3] == h:\n"
    "        mask = np.repeat(mask[..., :: h // g, :, :], h // g, axis=-3)\n"
    "    return attention(Q, K, V, mask)",
)  # fmt: skip
grouped.slip(
    "B45", "mask-of-the-first-head", "All heads get the mask of the first one.",
    "return attention(Q, K, V, mask)",
    "if mask is not None and mask.ndim > 2:\n        mask = mask[..., :1, :, :]\n"
    "    return attention(Q, K, V, mask)",
)  # fmt: skip
grouped.slip(
    "B32", "mean-for-nothing", SAID["mean-for-nothing"],
    "return attention(Q, K, V, mask)",
    "scores = attention_scores(Q, K)\n"
    "    if mask is not None:\n        scores = np.where(mask, scores, -1e9)\n"
    "    e = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
    "    weights = e / e.sum(axis=-1, keepdims=True)\n    return weights @ V, weights",
)  # fmt: skip
grouped.slip(
    "B31", "nan-rows", SAID["nan-rows"],
    "return attention(Q, K, V, mask)",
    "scores = attention_scores(Q, K)\n"
    "    if mask is not None:\n        scores = np.where(mask, scores, -np.inf)\n"
    "    e = np.exp(scores - scores.max(axis=-1, keepdims=True))\n"
    "    weights = e / e.sum(axis=-1, keepdims=True)\n    return weights @ V, weights",
)  # fmt: skip
grouped.slip(
    "X10", "no-check",
    "An h that is no multiple of g raises no ValueError: h // g cuts the remainder, and some heads stay without a group or get a wrong one.",
    "    if h % g != 0 or V.shape[:-1] != K.shape[:-1]:\n"
    '        raise ValueError(f"queries {Q.shape}, keys {K.shape}, values {V.shape} do not fit")\n' + REPEATED,
    "    index = np.minimum(np.arange(h) // max(h // g, 1), g - 1)\n"
    "    K, V = K[..., index, :, :], V[..., index, :, :]\n",
)  # fmt: skip


@grouped.misconception(
    "X05",
    "Groups of keys and of values that differ raise no ValueError: head by head, the surplus ones are not noticed.",
)
def surplus_groups(Q, K, V, mask=None):
    h, g = Q.shape[-3], K.shape[-3]
    if h % g != 0 or Q.shape[:-3] != K.shape[:-3]:
        raise ValueError("heads")
    shape = (*Q.shape[:-1], K.shape[-2])
    full = np.broadcast_to(True if mask is None else mask, shape)
    results = []
    for i in range(h):
        j = i // (h // g)
        k, v = K[..., j, :, :], V[..., min(j, V.shape[-3] - 1), :, :]
        results.append(attention(Q[..., i, :, :], k, v, full[..., i, :, :]))
    return np.stack([r[0] for r in results], axis=-3), np.stack([r[1] for r in results], axis=-3)


@grouped.misconception(
    "B64", "Your function takes three axes only; any number of batch axes may lead."
)
def three_axes_only(Q, K, V, mask=None):
    h, n, _ = Q.shape
    g, m, _ = K.shape
    if h % g or V.shape[:2] != (g, m):
        raise ValueError("heads")
    if mask is not None:
        mask = np.broadcast_to(mask, (h, n, m))
    results = [
        attention(Q[i], K[i // (h // g)], V[i // (h // g)], None if mask is None else mask[i])
        for i in range(h)
    ]
    return np.stack([r[0] for r in results]), np.stack([r[1] for r in results])


@grouped.alternative("a longer list of queries")
def longer_list(Q, K, V, mask=None):
    *batch, h, n, d_k = Q.shape
    g, m = K.shape[-3:-1]
    if h % g or K.shape[:-1] != V.shape[:-1]:
        raise ValueError("groups")
    if mask is not None:
        mask = np.broadcast_to(mask, (*batch, h, n, m)).reshape(*batch, g, h // g * n, m)
    output, weights = attention(Q.reshape(*batch, g, h // g * n, d_k), K, V, mask)
    return output.reshape(*batch, h, n, -1), weights.reshape(*batch, h, n, m)


@grouped.alternative("head by head, index computed")
def head_by_head(Q, K, V, mask=None):
    h, g = Q.shape[-3], K.shape[-3]
    if h % g != 0:
        raise ValueError(f"{h} heads, {g} groups")
    if Q.shape[:-3] != K.shape[:-3] or K.shape[:-1] != V.shape[:-1]:
        raise ValueError("shapes")
    shape = (*Q.shape[:-1], K.shape[-2])
    full = np.broadcast_to(True if mask is None else mask, shape)
    outputs, weights = [], []
    for i in range(h):
        j = i // (h // g)
        o, w = attention(Q[..., i, :, :], K[..., j, :, :], V[..., j, :, :], full[..., i, :, :])
        outputs.append(o)
        weights.append(w)
    return np.stack(outputs, axis=-3), np.stack(weights, axis=-3)


@grouped.alternative("einsum over groups")
def einsum_over_groups(Q, K, V, mask=None):
    *batch, h, n, d_k = Q.shape
    *others, g, m, width = K.shape
    if others != batch or width != d_k or h % g or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("no fit")
    split = Q.reshape(*batch, g, h // g, n, d_k)
    scores = np.einsum("...grnd,...gmd->...grnm", split, K).reshape(*batch, h, n, m) * d_k**-0.5
    visible = np.broadcast_to(np.True_ if mask is None else mask, scores.shape)
    scores = np.where(visible, scores, -1e9)
    e = np.exp(scores - scores.max(-1, keepdims=True)) * visible.any(-1, keepdims=True)
    weights = e / np.maximum(e.sum(-1, keepdims=True), 1e-9)
    output = np.einsum("...grnm,...gme->...grne", weights.reshape(*batch, g, h // g, n, m), V)
    return [output.reshape(*batch, h, n, -1), weights]


@grouped.alternative("broadcast group axis")
def broadcast_group_axis(Q, K, V, mask=None):
    h, g = Q.shape[-3], K.shape[-3]
    if Q.shape[:-3] != K.shape[:-3] or V.shape[:-1] != K.shape[:-1] or h % g:
        raise ValueError(f"{Q.shape} {K.shape} {V.shape}")
    index = np.arange(h) // (h // g)
    return attention(Q, np.take(K, index, axis=-3), np.take(V, index, axis=-3), mask)


# --- KVCache ---------------------------------------------------------------------------------------

cache = exercise.function("KVCache")
ALL = "cache = KVCache()\ncache.append(K, V)\ncache.attend(Q)"
LENGTH = "cache = KVCache()\nempty = len(cache)\ncache.append(K, V)\n(empty, len(cache))"
CUT = (
    "cache = KVCache()\n"
    "for start, stop in cuts:\n"
    "    cache.append(K[..., start:stop, :], V[..., start:stop, :])\n"
)
CUT_LENGTH = CUT + "len(cache)"
IN_CHUNKS = CUT + "cache.attend(Q)"
STEP_BY_STEP = (
    "cache, rows = KVCache(), []\n"
    "for t in range(Q.shape[-2]):\n"
    "    cache.append(K[..., t : t + 1, :], V[..., t : t + 1, :])\n"
    "    rows.append(np.array(cache.attend(Q[..., t : t + 1, :])))\n"
    "np.concatenate(rows, axis=-2)"
)
GROWING = (
    "cache, rows = KVCache(), []\n"
    "for start, stop in cuts:\n"
    "    cache.append(K[..., start:stop, :], V[..., start:stop, :])\n"
    "    rows.append(np.array(cache.attend(Q[..., start:stop, :])))\n"
    "np.concatenate(rows, axis=-2)"
)
TWICE = CUT + "(cache.attend(Q), cache.attend(Q[..., 1:, :]), len(cache), cache.attend(Q))"
CHANGED = (
    "k, v, cache = K.copy(), V.copy(), KVCache()\n"
    "cache.append(k, v)\n"
    "k[...], v[...] = 0, 0\n"
    "cache.attend(Q)"
)
CHANGED_LATER = (
    "k, v, cache = K[..., 1:, :].copy(), V[..., 1:, :].copy(), KVCache()\n"
    "cache.append(K[..., :1, :], V[..., :1, :])\n"
    "cache.append(k, v)\n"
    "k[...], v[...] = 0, 0\n"
    "cache.attend(Q)"
)
REUSED = (
    "k, v, cache = np.zeros_like(K[..., :1, :]), np.zeros_like(V[..., :1, :]), KVCache()\n"
    "for t in range(K.shape[-2]):\n"
    "    k[...], v[...] = K[..., t : t + 1, :], V[..., t : t + 1, :]\n"
    "    cache.append(k, v)\n"
    "cache.attend(Q)"
)
INTEGERS_FIRST = (
    "cache = KVCache()\n"
    "cache.append(np.round(K[:2]).astype(int), np.round(V[:2]).astype(int))\n"
    "cache.append(K[2:], V[2:])\ncache.attend(Q)"
)
TWO_CACHES = (
    "one, two = KVCache(), KVCache()\n"
    "one.append(K, V)\n"
    "two.append(2 * K[..., :3, :], V[..., :3, :])\n"
    "(len(one), len(two), one.attend(Q), two.attend(Q[..., :1, :]))"
)
ONE_AFTER_ANOTHER = (
    "one = KVCache()\none.append(K, V)\ntwo = KVCache()\nbefore = len(two)\n"
    "two.append(K[..., :2, :], V[..., :2, :])\n(before, len(two), len(one), two.attend(Q[..., :2, :]))"
)
ADDED = CUT + "cache.append(k, v)"
ASKED = CUT + "cache.attend(q)"
NEXT = {"Q": np.array([[1.0, 0.5], [-1.0, 2.0]]), "K": K4, "V": V4}

cache.witness("attend", "C1", LENGTH, K=K4[:3], V=V4[:3])
cache.witness("attend", "C1", CUT_LENGTH, K=K4, V=V4, cuts=[(0, 1), (1, 4)])
cache.witness("attend", "C1", LENGTH, K=np.stack([K4[:3], K4[1:]]), V=np.stack([V4[:3], V4[1:]]))
cache.witness("attend", "C2", ALL, **{**NEXT, "Q": NEXT["Q"][:1]})
cache.witness("attend", "C2", ALL, **{**NEXT, "Q": Q3})
cache.witness(
    "attend", "C4", ALL, Q=np.stack([Q3[:2], -Q3[:2]]), K=np.stack([K4[:3], K4[1:]]),
    V=np.stack([V4[:3], V4[1:]]),
)  # fmt: skip
cache.witness("chunks", "C3", IN_CHUNKS, **NEXT, cuts=[(0, 1), (1, 4)])
cache.witness("chunks", "C3", STEP_BY_STEP, Q=Q3, K=K4[:3], V=V4[:3])
cache.witness(
    "chunks", "C4", IN_CHUNKS, Q=np.stack([Q3[:2], -Q3[:2]]), K=np.stack([K4[:3], K4[1:]]),
    V=np.stack([V4[:3], V4[1:]]), cuts=[(0, 1), (1, 3)],
)  # fmt: skip
cache.witness("chunks", "C4", INTEGERS_FIRST, **NEXT)
cache.witness("chunks", "C3", TWICE, **NEXT, cuts=[(0, 3), (3, 4)])
cache.witness("copies", "C5", CHANGED, **NEXT)
cache.witness("copies", "C5", CHANGED_LATER, **NEXT)
cache.witness("copies", "C5", ONE_AFTER_ANOTHER, **NEXT)
cache.witness("errors", "C6", "KVCache().append(k, v)", k=K4, v=V4[:3], options=RAISES)
cache.witness(
    "errors", "C6", ADDED, K=K4, V=V4, cuts=[(0, 4)], k=np.ones((1, 3)), v=np.ones((1, 2)),
    options=RAISES,
)  # fmt: skip
cache.witness("errors", "C6", ASKED, K=K4, V=V4, cuts=[(0, 2)], q=Q3, options=RAISES)
cache.witness("errors", "C6", "KVCache().attend(q)", q=Q3[:1], options=RAISES)


def some_cuts(rng, m):
    """Chunks of several sizes that cover m positions: one of them is a single position."""
    inner = sorted(int(c) for c in rng.permutation(np.arange(2, m))[:2])
    edges = [0, 1, *inner, m]
    return list(itertools.pairwise(edges))


@cache.hidden("attend")
def _(rng):
    for t, d_k in ((6, 3), (1, 4)):
        yield Example("C1", LENGTH, {"K": rng.normal(size=(t, d_k)), "V": rng.normal(size=(t, 2))})
    batch = {"K": rng.normal(size=(3, 5, 4)), "V": rng.normal(size=(3, 5, 2))}
    yield Example("C1", LENGTH, batch)
    yield Example("C1", CUT_LENGTH, {**batch, "cuts": [(0, 1), (1, 2), (2, 5)]})
    for n, m, d_k, d_v in (
        (1, 7, 4, 3),
        (4, 6, 3, 5),
        (5, 5, 2, 4),
        (1, 1, 3, 2),
        (2, 9, 16, 1),
        (4, 4, 4, 4),
    ):
        yield Example("C2", ALL, qkv(rng, (), n, m, d_k, d_v))
    for batch in ((3,), (2, 3), (1,)):
        yield Example("C4", ALL, qkv(rng, batch, 4, 6))
    yield Example("C4", ALL, qkv(rng, (4,), 4, 4, 4, 4))
    yield Example("C4", ALL, peaked(qkv(rng, (), 4, 6), 1))
    yield Example("C4", ALL, low(qkv(rng, (), 4, 6)))
    later = growing(qkv(rng, (), 4, 6), 60.0)  # later keys score far above the earlier ones
    yield Example("C4", ALL, later)
    yield Example("C4", ALL, integers(qkv(rng, (), 4, 6)))
    mixed = qkv(rng, (), 3, 6)
    yield Example("C4", INTEGERS_FIRST, mixed)
    yield Example("C4", ALL, qkv(rng, (2,), 3, 5, dtype=np.float32))


@cache.hidden("chunks")
def _(rng):
    for n, m in ((1, 7), (4, 8), (6, 6), (7, 9)):
        yield Example("C3", IN_CHUNKS, {**qkv(rng, (), n, m), "cuts": some_cuts(rng, m)})
        yield Example("C3", GROWING, {**qkv(rng, (), m, m), "cuts": some_cuts(rng, m)})
    yield Example("C3", STEP_BY_STEP, qkv(rng, (), 9, 9))
    long = {**qkv(rng, (), 2, 1300), "cuts": [(0, 1), (1, 700), (700, 1299), (1299, 1300)]}
    yield Example("C3", IN_CHUNKS, long)
    yield Example("C3", STEP_BY_STEP, qkv(rng, (2, 3), 4, 4, 3, 5))
    yield Example("C3", GROWING, {**qkv(rng, (3,), 8, 8), "cuts": some_cuts(rng, 8)})
    yield Example("C3", TWICE, {**qkv(rng, (), 5, 7), "cuts": some_cuts(rng, 7)})
    square = {**qkv(rng, (3,), 3, 6, 3, 3), "cuts": [(0, 3), (3, 6)]}
    yield Example("C3", IN_CHUNKS, square)
    yield Example("C3", TWICE, square)


@cache.hidden("copies")
def _(rng):
    for batch in ((), (3,)):
        yield Example("C5", CHANGED, qkv(rng, batch, 3, 6))
        yield Example("C5", CHANGED_LATER, qkv(rng, batch, 3, 6))
        yield Example("C5", REUSED, qkv(rng, batch, 3, 5))
        yield Example("C5", TWO_CACHES, qkv(rng, batch, 3, 6))
    yield Example("C5", ONE_AFTER_ANOTHER, qkv(rng, (), 2, 5))


@cache.hidden("errors")
def _(rng):
    def array(*shape):
        return rng.normal(size=shape)

    pairs = [
        ((4, 3), (5, 3)),
        ((4, 3), (1, 3)),
        ((1, 3), (4, 3)),
        ((2, 4, 3), (3, 4, 3)),
        ((2, 4, 3), (4, 3)),
    ]
    for k, v in (*pairs, ((2, 4, 3), (1, 4, 3)), ((4, 3), (2, 4, 3))):
        yield Example(
            "C6", "KVCache().append(k, v)", {"k": array(*k), "v": array(*v)}, raises="ValueError"
        )
    before = {"K": array(2, 5, 4), "V": array(2, 5, 3), "cuts": [(0, 3), (3, 5)]}
    for k, v in (
        ((2, 1, 3), (2, 1, 3)), ((2, 1, 4), (2, 1, 4)), ((2, 1, 1), (2, 1, 3)), ((2, 1, 4), (2, 1, 1)),
        ((3, 1, 4), (3, 1, 3)), ((1, 1, 4), (1, 1, 3)), ((1, 4), (1, 3)), ((2, 2, 4), (2, 1, 3)),
    ):  # fmt: skip
        yield Example("C6", ADDED, {**before, "k": array(*k), "v": array(*v)}, raises="ValueError")
    for q in ((2, 6, 4), (2, 9, 4), (2, 2, 3), (2, 2, 1), (3, 2, 4), (1, 2, 4), (2, 4)):
        yield Example("C6", ASKED, {**before, "q": array(*q)}, raises="ValueError")
    yield Example("C6", "KVCache().attend(q)", {"q": array(1, 4)}, raises="ValueError")
    yield Example("C6", "KVCache().attend(q)", {"q": array(3, 1, 4)}, raises="ValueError")


@cache.misconception(
    "G12", "You count the chunks; the positions are to be counted.", method="append"
)
def chunks_counted(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    self.chunks = getattr(self, "chunks", 0) + 1
    if self.keys is None:
        self.keys, self.values = k.copy(), v.copy()
    else:
        self.keys = np.concatenate([self.keys, k], axis=-2)
        self.values = np.concatenate([self.values, v], axis=-2)
    KVCache.__len__ = lambda cache: getattr(cache, "chunks", 0)


@cache.misconception(
    "G12",
    "`len(cache)` counts the first axis, which with a batch is the batch: positions are axis −2.",
    method="__len__",
)
def length_of_the_first_axis(self):
    return 0 if self.keys is None else len(self.keys)


@cache.misconception(
    "G12", "`len(cache)` fails on an empty cache: it has 0 positions.", method="__len__"
)
def empty_has_no_length(self):
    return self.keys.shape[-2]


@cache.misconception(
    "G13",
    "The mask is missing: with several new positions, the earlier ones see the later ones.",
    method="attend",
)
def no_mask(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    return attention(q, self.keys, self.values)[0]


@cache.misconception(
    "G13", "Your mask is aligned at the start, as if the queries were the first positions. They are the newest: causal_mask(t, len(cache)).",
    method="attend",
)  # fmt: skip
def aligned_at_the_start(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    mask = np.tri(q.shape[-2], len(self), dtype=bool)
    return attention(q, self.keys, self.values, mask)[0]


@cache.misconception(
    "B34", "A query does not see its own position: the newest key belongs to it.", method="attend"
)
def without_its_own_key(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    mask = np.tri(q.shape[-2], len(self), len(self) - q.shape[-2] - 1, dtype=bool)
    return attention(q, self.keys, self.values, mask)[0]


@cache.misconception(
    "B35", "A query sees one key too many: the next position leaks.", method="attend"
)
def next_position_leaks(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    mask = np.tri(q.shape[-2], len(self), len(self) - q.shape[-2] + 1, dtype=bool)
    return attention(q, self.keys, self.values, mask)[0]


@cache.misconception(
    "D11",
    "Only the newest positions are seen: the earlier ones are what the cache is for.",
    method="attend",
)
def newest_positions_only(self, q):
    t = q.shape[-2]
    if t > len(self):
        raise ValueError("too many queries")
    return attention(q, self.keys[..., -t:, :], self.values[..., -t:, :], causal_mask(t))[0]


@cache.misconception(
    "B61", "`attend` returns the weights as well; the output alone is asked for.", method="attend"
)
def attend_with_weights(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    return attention(q, self.keys, self.values, causal_mask(q.shape[-2], len(self)))


@cache.misconception(
    "X11",
    "Only the output of the newest position comes back; there is a row for each query.",
    method="attend",
)
def newest_row_only(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    return attention(q, self.keys, self.values, causal_mask(q.shape[-2], len(self)))[0][..., -1:, :]


@cache.misconception(
    "X12", "Asking empties the cache: positions stay until the end.", method="attend"
)
def asking_empties(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    keys, values = self.keys, self.values
    self.keys = self.values = None
    return attention(q, keys, values, causal_mask(q.shape[-2], keys.shape[-2]))[0]


@cache.misconception(
    "X12", "Asking changes the cache: the queries are kept as keys.", method="attend"
)
def queries_are_kept(self, q):
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    output = attention(q, self.keys, self.values, causal_mask(q.shape[-2], len(self)))[0]
    self.keys = np.concatenate([self.keys, q], axis=-2)
    self.values = np.concatenate([self.values, self.values[..., -q.shape[-2] :, :]], axis=-2)
    return output


@cache.misconception("X14", "Each chunk replaces the one before: append it.", method="append")
def chunk_replaces(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    self.keys, self.values = k.copy(), v.copy()


@cache.misconception(
    "X14", "New positions are put before the old ones: they belong behind them.", method="append"
)
def put_in_front(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    if self.keys is None:
        self.keys, self.values = k.copy(), v.copy()
    else:
        self.keys = np.concatenate([k, self.keys], axis=-2)
        self.values = np.concatenate([v, self.values], axis=-2)


@cache.misconception(
    "X14",
    "In a batch the chunks are joined along another axis than that of the positions, which is "
    "axis −2 (the first is the batch).",
    method="append",
)
def joined_along_the_first_axis(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    if self.keys is None:
        self.keys, self.values = k.copy(), v.copy()
    else:
        self.keys = np.concatenate([self.keys, k])
        self.values = np.concatenate([self.values, v])


@cache.misconception("X15", "Keys and values are exchanged in the cache.", method="append")
def keys_and_values_exchanged(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    if self.keys is None:
        self.keys, self.values = v.copy(), k.copy()
    else:
        self.keys = np.concatenate([self.keys, v], axis=-2)
        self.values = np.concatenate([self.values, k], axis=-2)


@cache.misconception(
    "G14",
    "The first chunk is kept without copying it: when the caller changes k or v, the cache changes with them.",
    method="append",
)
def first_chunk_not_copied(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    if self.keys is None:
        self.keys, self.values = k, v
    else:
        self.keys = np.concatenate([self.keys, k], axis=-2)
        self.values = np.concatenate([self.values, v], axis=-2)


@cache.misconception(
    "A26",
    "The cache took its dtype from the first chunk: later numbers are cut to integers.",
    method="append",
)
def dtype_of_the_first_chunk(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    if self.keys is None:
        self.keys, self.values = k.copy(), v.copy()
    else:
        self.keys = np.concatenate([self.keys, k], axis=-2, dtype=self.keys.dtype, casting="unsafe")
        self.values = np.concatenate(
            [self.values, v], axis=-2, dtype=self.values.dtype, casting="unsafe"
        )


@cache.misconception(
    "X16",
    "Keys and values of different lengths are taken; they must raise a ValueError.",
    method="append",
)
def lengths_not_checked(self, k, v):
    if self.keys is None:
        self.keys, self.values = k.copy(), v.copy()
    else:
        self.keys = np.concatenate([self.keys, k], axis=-2)
        self.values = np.concatenate([self.values, v], axis=-2)


@cache.misconception(
    "X16",
    "More queries than positions raise no ValueError: some of them stand before the first position.",
    method="attend",
)
def too_many_queries_answered(self, q):
    if self.keys is None:
        raise ValueError("empty")
    return attention(q, self.keys, self.values, causal_mask(q.shape[-2], len(self)))[0]


@cache.misconception(
    "X16",
    "An empty cache answers with zeros; without a position there is nothing to ask for: a ValueError.",
    method="attend",
)
def empty_cache_answers(self, q):
    if self.keys is None:
        return np.zeros(q.shape)
    if q.shape[-2] > len(self):
        raise ValueError("too many queries")
    return attention(q, self.keys, self.values, causal_mask(q.shape[-2], len(self)))[0]


@cache.misconception(
    "X16",
    "A chunk of another width than the positions before is taken; it must raise a ValueError.",
    method="append",
)
def any_width_taken(self, k, v):
    if k.shape[:-1] != v.shape[:-1]:
        raise ValueError("shapes")
    if self.keys is None:
        self.keys, self.values = k.copy(), v.copy()
        return
    k = np.broadcast_to(
        k[..., : self.keys.shape[-1]], (*self.keys.shape[:-2], *k.shape[-2:-1], self.keys.shape[-1])
    )
    v = np.broadcast_to(
        v[..., : self.values.shape[-1]],
        (*self.values.shape[:-2], *v.shape[-2:-1], self.values.shape[-1]),
    )
    self.keys = np.concatenate([self.keys, k], axis=-2)
    self.values = np.concatenate([self.values, v], axis=-2)


@cache.misconception(
    "G15",
    "All caches share one memory: it belongs to the class, not to the object. Say `self.keys`, in __init__ and everywhere.",
)
class SharedMemory:
    def __init__(self):
        SharedMemory.keys = SharedMemory.values = None

    def __len__(self):
        return 0 if SharedMemory.keys is None else SharedMemory.keys.shape[-2]

    def append(self, k, v):
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError("shapes")
        if SharedMemory.keys is None:
            SharedMemory.keys, SharedMemory.values = k.copy(), v.copy()
        else:
            SharedMemory.keys = np.concatenate([SharedMemory.keys, k], axis=-2)
            SharedMemory.values = np.concatenate([SharedMemory.values, v], axis=-2)

    def attend(self, q):
        if q.shape[-2] > len(self):
            raise ValueError("too many queries")
        mask = causal_mask(q.shape[-2], len(self))
        return attention(q, SharedMemory.keys, SharedMemory.values, mask)[0]


@cache.misconception(
    "G14",
    "Chunks are kept in a list without copying them: when the caller changes k or v, the cache changes with them.",
)
class ListOfChunks:
    def __init__(self):
        self.chunks = []

    def __len__(self):
        return sum(k.shape[-2] for k, _ in self.chunks)

    def append(self, k, v):
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError("shapes")
        if self.chunks:
            first_k, first_v = self.chunks[0]
            if (first_k.shape[:-2], first_k.shape[-1], first_v.shape[-1]) != (
                k.shape[:-2],
                k.shape[-1],
                v.shape[-1],
            ):
                raise ValueError("another chunk")
        self.chunks.append((k, v))

    def attend(self, q):
        if q.shape[-2] > len(self):
            raise ValueError("too many queries")
        keys, values = (np.concatenate(parts, axis=-2) for parts in zip(*self.chunks))
        return attention(q, keys, values, causal_mask(q.shape[-2], len(self)))[0]


@cache.misconception(
    "B64",
    "Your cache takes two axes only (np.vstack joins the first axis); any number of batch axes may lead.",
)
class VerticalStack:
    def __init__(self):
        self.k, self.v = None, None

    def __len__(self):
        return 0 if self.k is None else len(self.k)

    def append(self, k, v):
        if len(k) != len(v) or k.ndim != 2 or v.ndim != 2:
            raise ValueError("shapes")
        self.k = k.copy() if self.k is None else np.vstack([self.k, k])
        self.v = v.copy() if self.v is None else np.vstack([self.v, v])

    def attend(self, q):
        if len(q) > len(self):
            raise ValueError("too many queries")
        return attention(q, self.k, self.v, causal_mask(len(q), len(self)))[0]


@cache.alternative("a list of chunks")
class ChunksInAList:
    def __init__(self):
        self.chunks = []

    def __len__(self):
        return sum(k.shape[-2] for k, _ in self.chunks)

    def append(self, k, v):
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError("k and v")
        for old, new in zip(self.chunks[0] if self.chunks else (), (k, v)):
            if old.shape[:-2] != new.shape[:-2] or old.shape[-1] != new.shape[-1]:
                raise ValueError("another chunk")
        self.chunks.append((np.array(k), np.array(v)))

    def attend(self, q):
        if q.shape[-2] > len(self):
            raise ValueError("too many queries")
        keys = np.concatenate([k for k, _ in self.chunks], axis=-2)
        values = np.concatenate([v for _, v in self.chunks], axis=-2)
        return attention(q, keys, values, causal_mask(q.shape[-2], len(self)))[0]


@cache.alternative("a buffer that doubles")
class DoublingBuffer:
    def __init__(self):
        self.count = 0

    def __len__(self):
        return self.count

    def append(self, k, v):
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError("k and v")
        t = k.shape[-2]
        if self.count == 0:
            self.k = np.zeros((*k.shape[:-2], max(t, 4), k.shape[-1]))
            self.v = np.zeros((*v.shape[:-2], max(t, 4), v.shape[-1]))
        for buffer, new in ((self.k, k), (self.v, v)):
            if buffer.shape[:-2] != new.shape[:-2] or buffer.shape[-1] != new.shape[-1]:
                raise ValueError("another chunk")
        while self.count + t > self.k.shape[-2]:
            self.k = np.concatenate([self.k, np.zeros_like(self.k)], axis=-2)
            self.v = np.concatenate([self.v, np.zeros_like(self.v)], axis=-2)
        self.k[..., self.count : self.count + t, :] = k
        self.v[..., self.count : self.count + t, :] = v
        self.count += t

    def attend(self, q):
        t = q.shape[-2]
        if t > self.count:
            raise ValueError("too many queries")
        keys, values = self.k[..., : self.count, :], self.v[..., : self.count, :]
        rows = []
        for i in range(t):
            seen = self.count - t + i + 1
            rows.append(
                attention(q[..., i : i + 1, :], keys[..., :seen, :], values[..., :seen, :])[0]
            )
        return np.concatenate(rows, axis=-2)


@cache.alternative("positions in lists, lists out")
class PositionsInLists:
    def __init__(self):
        self.k = []
        self.v = []

    def __len__(self):
        return len(self.k)

    def append(self, k, v):
        if k.shape[:-1] != v.shape[:-1]:
            raise ValueError("k and v")
        if self.k and (self.k[0].shape, self.v[0].shape) != (
            k[..., 0, :].shape,
            v[..., 0, :].shape,
        ):
            raise ValueError("another chunk")
        for t in range(k.shape[-2]):
            self.k.append(np.array(k[..., t, :], dtype=float))
            self.v.append(np.array(v[..., t, :], dtype=float))

    def attend(self, q):
        t, m = q.shape[-2], len(self.k)
        if t > m:
            raise ValueError("too many queries")
        scores = attention_scores(q, np.stack(self.k, axis=-2))
        scores = scores + np.where(np.triu(np.ones((t, m)), k=m - t + 1) > 0, -1e9, 0)
        e = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (e / e.sum(axis=-1, keepdims=True) @ np.stack(self.v, axis=-2)).tolist()


# --- break_hasty_merge -----------------------------------------------------------------------------

found = BreakIt(exercise, "break_hasty_merge", answer="C1", sentences=4)
SHOWS = """_, first, second = break_hasty_merge()
s1, s2 = np.array(first, dtype=float) + shift, np.array(second, dtype=float) + shift
m1, m2 = s1.max(), s2.max()
l1, l2 = np.exp(s1 - m1).sum(), np.exp(s2 - m2).sum()
m = max(m1, m2)
hasty = l1 + l2 * np.exp(m2 - m)
wrong = abs(hasty - np.exp(np.concatenate([s1, s2]) - m).sum())
why = "the first maximum stays" if m1 >= m2 else "the difference is small"
"the sum is wrong" if wrong > 0.01 else why"""
found.fits("""_, first, second = break_hasty_merge()
tiles = [np.array(tile, dtype=float) for tile in (first, second)]
all(tile.ndim == 1 and 1 <= len(tile) <= 4 and abs(tile).max() <= 20 for tile in tiles)""")
found.fits(SHOWS, "the sum is wrong", shift=0)
found.shows(  # a number added to all scores changes no sum
    SHOWS, "the sum is wrong", lambda rng: {"shift": float(rng.integers(-9, 9))}
)

for name, sentence, message in (
    ("the-axes", "C2", "Any number of axes is fine with it: `scale2[..., None]` stands where it should. Which sentence says what the sums are?"),
    ("large-scores", "C3", "Large scores are not needed: on your small ones the sum is wrong already. Which sentence says what the sums are?"),
    ("the-empty-state", "C4", "Two empty states give NaN, true, but your input has a score in each tile. Which sentence says what the sums are?"),
):  # fmt: skip
    found.blames("X17", f"blames-{name}", sentence, message)
found.input(
    "X18", "first-maximum-larger",
    "In your input the first tile has the larger maximum (or an equal one), and then the old sums are right as they are. Let the second be larger.",
    "[1.0], [0.0]",
)  # fmt: skip
found.input(
    "X18", "hardly-larger", "The second maximum is hardly larger than the first, and the sums differ by less than 0.01.",
    "[0.0], [0.001]",
)  # fmt: skip
found.input("X19", "does-not-fit", "Each tile is a row of 1 to 4 scores between −20 and 20.", "[[0.0]], [[1.0]]")  # fmt: skip
found.returns(
    "X20", "without-the-sentence", "Three things are asked for: the sentence and the two tiles.", "[0.0], [1.0]"
)  # fmt: skip


@found.alternative("arrays")
def two_arrays():
    return "C1", np.array([-3.0, 2.0, 0.5]), np.array([5.0, 4.0])


@found.alternative("a list, integers")
def of_integers():
    return ["C1", [1, 2, 3, 4], (9,)]
