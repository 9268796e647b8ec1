"""Hidden tests of chapter 08: windows, blocks, hash buckets, routed heads."""

import math

import numpy as np

from manyheads import sparse
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import RAISES, fortran, integers, low, peaked, qkv, qkv_misfits
from tests.hidden.common import SAID, subtracted
from tests.hidden.spec import Example, Exercise

exercise = Exercise("08_sparse", sparse)
grade = exercise.grade


# Small, unequal numbers: five queries and keys of width 2, values of width 2.
Q5 = np.array([[1.0, 0.0], [0.5, -1.0], [2.0, 1.0], [0.0, 1.0], [-1.0, 0.5]])
K5 = np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5], [0.5, 0.5], [1.0, -1.0]])
V5 = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [-1.0, 3.0], [0.0, 5.0]])
FIVE = {"Q": Q5, "K": K5, "V": V5}


def within(sentence, code, inputs, pairs):
    """The contract's bound, half a byte a pair; and six bytes, to tell a table of booleans, which
    fails the first alone, from a table of numbers."""
    for bound in (pairs / 2, pairs * 6):
        yield Example(sentence, code, inputs, memory=bound, once=True)


# --- window_mask -----------------------------------------------------------------------------------

window_ = exercise.function("window_mask")
WINDOW = "window_mask(n, window)"
CAUSAL_WINDOW = "window_mask(n, window, causal)"

window_.witness("values", "C1", WINDOW, n=5, window=1)
window_.witness("values", "C1", WINDOW, n=3, window=0)
window_.witness("values", "C1", WINDOW, n=3, window=5)
window_.witness("values", "C2", CAUSAL_WINDOW, n=5, window=2, causal=True)


@window_.hidden("values")
def _(rng):
    for n, w in ((7, 2), (6, 5), (6, 6), (4, 3), (1, 0), (1, 3), (9, 0), (2, 1)):
        yield Example("C1", WINDOW, {"n": n, "window": w})
        yield Example("C2", CAUSAL_WINDOW, {"n": n, "window": w, "causal": True})
    n, w = int(rng.integers(20, 40)), int(rng.integers(3, 9))
    yield Example("C1", WINDOW, {"n": n, "window": w})
    yield Example("C1", CAUSAL_WINDOW, {"n": n, "window": w + 1, "causal": False})
    yield Example("C2", "window_mask(n=n, window=window, causal=True)", {"n": n, "window": w})


window_.slip(
    "F01", "window-exclusive", "Your window is one too narrow: |i − j| ≤ window, the position at distance `window` included.",
    "np.abs(ahead) <= window", "np.abs(ahead) < window",
)  # fmt: skip
window_.slip(
    "F01", "window-counts-all",
    "Your window counts the keys on both sides together (window // 2 to each). Here it counts each side by itself.",
    "np.abs(ahead) <= window", "np.abs(ahead) <= window // 2",
)  # fmt: skip
window_.slip(
    "F01", "window-one-too-wide", "Your window is one too wide: distance window + 1 is outside.",
    "np.abs(ahead) <= window", "np.abs(ahead) <= window + 1",
)  # fmt: skip
window_.slip(
    "F03", "looks-back-only", "Your window looks back even without `causal`: by default it goes to both sides.",
    "mask = np.abs(ahead) <= window", "mask = (np.abs(ahead) <= window) & (ahead <= 0)",
)  # fmt: skip
window_.slip(
    "F03", "looks-ahead-only", "Your window looks ahead: keys before the query (j < i) are the lower left half.",
    "mask = np.abs(ahead) <= window", "mask = (np.abs(ahead) <= window) & (ahead >= 0)",
)  # fmt: skip
window_.slip(
    "F03", "causal-ignored", "`causal=True` has no effect.",
    "    if causal:\n        mask = mask & (ahead <= 0)\n", "",
)  # fmt: skip
window_.slip(
    "F03", "causal-hides-the-past", "With `causal` you hide the earlier keys: the later ones are to be hidden.",
    "mask & (ahead <= 0)", "mask & (ahead >= 0)",
)  # fmt: skip
window_.slip(
    "F04", "causal-by-or", "Window and causal mask are joined by OR: the whole past becomes visible. A key must pass both.",
    "mask & (ahead <= 0)", "mask | (ahead <= 0)",
)  # fmt: skip
window_.slip(
    "F04", "causal-replaces-the-window", "With `causal` the window is lost: the whole past is visible.",
    "mask = mask & (ahead <= 0)", "mask = ahead <= 0",
)  # fmt: skip
window_.slip(
    "B34", "causal-hides-itself", "With `causal` a position does not see itself: j ≤ i includes j = i.",
    "mask & (ahead <= 0)", "mask & (ahead < 0)",
)  # fmt: skip
window_.slip(
    "F02", "one-sided-bound", "The other side is not bounded: you compare the difference, not its absolute value.",
    "np.abs(ahead) <= window", "ahead <= window",
)  # fmt: skip
window_.slip(
    "B38", "opposite", "Your mask is the opposite: True marks what is hidden. Here True is visible.",
    "    return mask", "    return ~mask",
)  # fmt: skip
window_.slip(
    "A27", "zeros-and-ones", "Your mask holds the numbers 0 and 1; it has to be boolean.",
    "    return mask", "    return mask.astype(float)",
)  # fmt: skip
window_.slip(
    "B22", "additive", "Your mask holds 0 and −inf, to be added to scores. Here a mask is boolean.",
    "    return mask", "    return np.where(mask, 0.0, -np.inf)",
)  # fmt: skip
window_.slip(
    "X01", "round-the-ends", "Your window goes round the ends: the first position sees the last. A text is no ring.",
    "np.abs(ahead) <= window", "np.minimum(np.abs(ahead), n - np.abs(ahead)) <= window",
)  # fmt: skip
window_.slip(
    "X02", "extra-axis", "Your mask has an axis more than (n, n).", "    return mask", "    return mask[None]",
)  # fmt: skip
window_.slip(
    "F12", "blocks-of-the-window",
    "Positions see their own block of `window` neighbours, wherever they stand in it. The window is to be centred on each position.",
    "np.abs(ahead) <= window",
    "(np.arange(n) // (window + 1))[:, None] == np.arange(n) // (window + 1)",
)  # fmt: skip


@window_.alternative("tril and triu")
def by_triangles(n, window, causal=False):
    full = np.ones((n, n), dtype=bool)
    return np.tril(full, k=0 if causal else window) & np.triu(full, k=-window)


@window_.alternative("nested lists")
def window_lists(n, window, causal=False):
    rows = [[abs(i - j) <= window for j in range(n)] for i in range(n)]
    if causal:
        rows = [[seen and j <= i for j, seen in enumerate(row)] for i, row in enumerate(rows)]
    return rows


@window_.alternative("row by row")
def window_row_by_row(n, window, causal=False):
    mask = np.zeros((n, n), dtype=bool)
    for i in range(n):
        mask[i, max(0, i - window) : i + 1 if causal else i + window + 1] = True
    return mask


@window_.alternative("sum of diagonals")
def window_diagonals(n, window, causal=False):
    total = np.zeros((n, n))
    for k in range(-window, 1 if causal else window + 1):
        total = total + np.eye(n, k=k)
    return total > 0


# --- global_window_mask ----------------------------------------------------------------------------

everywhere = exercise.function("global_window_mask", uses=("window_mask",))
GLOBAL = "global_window_mask(n, window, global_positions)"

everywhere.witness("values", "C1", GLOBAL, n=5, window=1, global_positions=[0])
everywhere.witness("values", "C1", GLOBAL, n=6, window=0, global_positions=[1, 4])
everywhere.witness("values", "C2", GLOBAL, n=4, window=1, global_positions=np.array([3]))
everywhere.witness("values", "C2", GLOBAL, n=3, window=1, global_positions=[])


@everywhere.hidden("values")
def _(rng):
    for n, w, count in ((8, 1, 2), (7, 0, 3), (9, 2, 1), (6, 3, 2), (11, 1, 4), (5, 9, 1)):
        chosen = rng.permutation(n)[:count]
        yield Example("C1", GLOBAL, {"n": n, "window": w, "global_positions": chosen})
    last = {"n": 12, "window": 2, "global_positions": [11, int(rng.integers(3, 9)), 0]}
    yield Example("C2", GLOBAL, last)
    keywords = "global_window_mask(n=n, window=window, global_positions=global_positions)"
    yield Example("C2", keywords, {**last, "window": 1})
    yield Example("C2", GLOBAL, {"n": 5, "window": 1, "global_positions": []})
    yield Example("C2", GLOBAL, {"n": 4, "window": 0, "global_positions": np.array([], dtype=int)})
    yield Example("C1", GLOBAL, {"n": 1, "window": 0, "global_positions": [0]})


everywhere.slip(
    "F15", "sees-all-only", "Global positions see all, but they are not seen by all: their columns belong to it as well.",
    "        mask[:, p] = True\n", "",
)  # fmt: skip
everywhere.slip(
    "F15", "seen-by-all-only", "Global positions are seen by all, but they do not see all: their rows belong to it as well.",
    "        mask[p, :] = True\n", "",
)  # fmt: skip
everywhere.slip(
    "X03", "only-each-other",
    "Global positions only see each other: their whole rows and columns become True.",
    "    for p in global_positions:\n        mask[p, :] = True\n        mask[:, p] = True\n",
    "    for p in global_positions:\n        mask[p, list(global_positions)] = True\n",
)  # fmt: skip
everywhere.slip(
    "X04", "window-lost", "The window is lost where there are global positions: they come besides it.",
    "mask = np.array(window_mask(n, window))", "mask = np.zeros((n, n), dtype=bool)",
)  # fmt: skip
everywhere.slip(
    "X05", "and-instead-of-or", "You keep only what is near and global at once; near or global is enough.",
    "    return mask",
    "    rows = np.isin(np.arange(n), global_positions)\n"
    "    return window_mask(n, window) & (rows[:, None] | rows)",
)  # fmt: skip
everywhere.slip(
    "X06", "first-only", "Only the first global position counts.",
    "for p in global_positions:", "for p in global_positions[:1]:",
)  # fmt: skip
everywhere.slip(
    "X07", "a-number-of-positions",
    "You take the first positions, as many as there are global ones. The list says which positions are meant.",
    "for p in global_positions:", "for p in range(len(global_positions)):",
)  # fmt: skip
everywhere.slip(
    "X08", "counted-from-one", "Your global positions are one too early: positions count from 0.",
    "        mask[p, :] = True\n        mask[:, p] = True\n",
    "        mask[p - 1, :] = True\n        mask[:, p - 1] = True\n",
)  # fmt: skip
everywhere.slip(
    "X09", "causal-window", "The window here goes to both sides.",
    "window_mask(n, window)", "window_mask(n, window, True)",
)  # fmt: skip
everywhere.slip(
    "X10", "global-window-too", "Global positions lend their reach to their neighbours; only they themselves see all.",
    "    for p in global_positions:\n",
    "    for p in {q for p in global_positions for q in range(max(p - window, 0), min(p + window + 1, n))}:\n",
)  # fmt: skip
everywhere.slip(
    "X11", "empty-list-refused", "An empty list fails: NumPy makes an array of floats of it, which is no index.",
    "    for p in global_positions:\n        mask[p, :] = True\n        mask[:, p] = True\n",
    "    p = np.array(global_positions)\n    mask[p, :] = True\n    mask[:, p] = True\n",
)  # fmt: skip
everywhere.slip(
    "B38", "opposite", "Your mask is the opposite: True marks what is hidden. Here True is visible.",
    "    return mask", "    return ~mask",
)  # fmt: skip
everywhere.slip(
    "A27", "zeros-and-ones", "Your mask holds the numbers 0 and 1; it has to be boolean.",
    "    return mask", "    return mask.astype(int)",
)  # fmt: skip


@everywhere.alternative("isin")
def global_by_isin(n, window, global_positions):
    chosen = np.isin(np.arange(n), global_positions)
    return window_mask(n, window) | chosen[:, None] | chosen[None, :]


@everywhere.alternative("index arrays")
def global_by_index(n, window, global_positions):
    index = np.asarray(global_positions, dtype=int)
    i = np.arange(n)
    mask = abs(i[:, None] - i) <= window
    mask[index] = True
    mask[:, index] = True
    return mask


@everywhere.alternative("nested lists")
def global_lists(n, window, global_positions):
    chosen = {int(p) for p in global_positions}
    return [
        [abs(i - j) <= window or i in chosen or j in chosen for j in range(n)] for i in range(n)
    ]


# --- local_attention -------------------------------------------------------------------------------

local = exercise.function("local_attention", uses=("window_mask",))
LOCAL = "local_attention(Q, K, V, window)"
CAUSAL_LOCAL = "local_attention(Q, K, V, window, causal=True)"
# Long inputs are made on the spot, so that a report stays short.
LONG_LOCAL = (
    "x = np.sin(np.arange(4.0 * n).reshape(n, 4) ** 1.5)\n"
    "np.array(local_attention(x, x[::-1], x[:, :2], window, causal))[::1250]"
)


def long_case(rng, n, d_k=4, d_v=3):
    return qkv(rng, (), n, n, d_k, d_v)


local.witness("values", "C1", LOCAL, **FIVE, window=1)
local.witness("values", "C1", LOCAL, **FIVE, window=0)
local.witness("values", "C1", LOCAL, **FIVE, window=3)
local.witness("values", "C1", LOCAL, **{k: v[:3] for k, v in FIVE.items()}, window=4)
local.witness(
    "values", "C3", LOCAL,
    Q=np.stack([Q5[:3], -Q5[:3]]), K=np.stack([K5[:3], K5[2:]]), V=np.stack([V5[:3], V5[2:]]), window=1,
)  # fmt: skip
local.witness(
    "values", "C3", LOCAL, Q=Q5[:3] * [[1.0], [4000.0], [1.0]], K=K5[:3], V=V5[:3], window=1
)
local.witness(
    "values", "C3", LOCAL, Q=np.ones((3, 2)), K=K5[:3] + [3000.0, 0.0], V=V5[:3], window=1
)
local.witness("values", "C3", LOCAL, **integers(FIVE), window=1)
local.witness("causal", "C2", CAUSAL_LOCAL, **FIVE, window=2)
for causal in (False, True):
    local.witness(
        "memory", "C4", LONG_LOCAL, n=2500, window=2, causal=causal, options={"memory": 2500**2 / 2}
    )
local.witness("errors", "C5", LOCAL, **{**FIVE, "Q": Q5[:4]}, window=1, options=RAISES)
local.witness("errors", "C5", LOCAL, **{**FIVE, "V": V5[:4]}, window=1, options=RAISES)
local.witness("errors", "C5", LOCAL, **{**FIVE, "K": np.ones((5, 3))}, window=1, options=RAISES)


@local.hidden("values")
def _(rng):
    sizes = [(7, 2, 4, 3), (5, 0, 3, 2), (4, 9, 3, 5), (1, 2, 3, 4), (6, 5, 2, 1), (11, 3, 9, 2)]
    for n, w, d_k, d_v in (*sizes, (4, 1, 4, 4), (9, 1, 1, 3), (139, 3, 3, 2)):
        yield Example("C1", LOCAL, {**qkv(rng, (), n, n, d_k, d_v), "window": w})
    case = qkv(rng, (), 8, 8)
    yield Example("C1", "local_attention(Q=Q, K=K, V=V, window=window)", {**case, "window": 3})
    yield Example("C1", "local_attention(Q, K, V, window, False)", {**case, "window": 2})
    for batch in ((3,), (2, 3), (1,), (3, 1, 2)):
        yield Example("C3", LOCAL, {**qkv(rng, batch, 6, 6), "window": 2})
    yield Example("C3", LOCAL, {**qkv(rng, (5,), 5, 5, 5, 5), "window": 1})
    yield Example("C3", LOCAL, {**peaked(qkv(rng, (), 7, 7), 3), "window": 2})
    yield Example("C3", LOCAL, {**low(qkv(rng, (), 7, 7)), "window": 2})
    yield Example("C3", LOCAL, {**integers(qkv(rng, (), 7, 7)), "window": 1})
    yield Example("C3", LOCAL, {**qkv(rng, (3,), 7, 7, dtype=np.float32), "window": 2})
    strided = fortran(qkv(rng, (3,), 6, 6))
    yield Example("C3", LOCAL, {**strided, "window": 1})


@local.hidden("causal")
def _(rng):
    for n, w, d_k, d_v in ((7, 2, 4, 3), (5, 0, 3, 2), (4, 9, 3, 5), (6, 5, 2, 1), (139, 3, 3, 2)):
        yield Example("C2", CAUSAL_LOCAL, {**qkv(rng, (), n, n, d_k, d_v), "window": w})
    yield Example(
        "C2", "local_attention(Q, K, V, window, True)", {**qkv(rng, (3,), 6, 6), "window": 2}
    )
    case = peaked(qkv(rng, (), 6, 6), 2)
    yield Example("C2", CAUSAL_LOCAL, {**case, "window": 1})
    case = qkv(rng, (), 6, 6)  # later keys score far above the earlier ones
    case["Q"][:, 0], case["K"][:, 0] = 1, 80 * math.sqrt(4) * np.arange(6)
    yield Example("C2", CAUSAL_LOCAL, {**case, "window": 2})
    yield Example("C2", CAUSAL_LOCAL, {**integers(qkv(rng, (), 5, 5)), "window": 1})


@local.hidden("memory")
def _(rng):
    n = 2500 + int(rng.integers(90))
    inputs = {
        **long_case(rng, n),
        "window": int(rng.integers(1, 4)),
        "causal": bool(rng.integers(2)),
    }
    yield from within("C4", "local_attention(Q, K, V, window, causal)", inputs, n * n)


@local.hidden("errors")
def _(rng):
    for inputs in qkv_misfits(rng, 4, 4):
        yield Example("C5", LOCAL, {**inputs, "window": 1}, raises="ValueError")
    for n, m in ((4, 5), (5, 4), (1, 4), (6, 1)):
        case = qkv(rng, (), n, m)
        yield Example("C5", LOCAL, {**case, "window": 1}, raises="ValueError")
        yield Example("C5", CAUSAL_LOCAL, {**case, "window": 0}, raises="ValueError")


local.slip(
    "F01", "window-exclusive", "Your window is one too narrow: the key at distance `window` belongs to it.",
    "np.arange(-window, window + 1)", "np.arange(-max(window - 1, 0), max(window, 1))",
)  # fmt: skip
local.slip(
    "F01", "window-ends-early", "The last key of each window is missing: a range ends before its second bound.",
    "np.arange(-window, window + 1)", "np.arange(-window, max(window, 1))",
)  # fmt: skip
local.slip(
    "F01", "window-counts-all", "Your window counts both sides together; here it counts each side by itself.",
    "np.arange(-window, window + 1)", "np.arange(-(window // 2), window // 2 + 1)",
)  # fmt: skip
local.slip(
    "F01", "window-one-too-wide", "Your window is one too wide on both sides.",
    "np.arange(-window, window + 1)", "np.arange(-window - 1, window + 2)",
)  # fmt: skip
local.slip(
    "F03", "looks-back-only", "Your window looks back only, even without `causal`.",
    "np.arange(-window, window + 1)", "np.arange(-window, 1)",
)  # fmt: skip
local.slip(
    "F03", "causal-ignored", "`causal` has no effect: keys after the query still count.",
    "    if causal:\n        visible = visible & (j <= i)\n", "",
)  # fmt: skip
local.slip(
    "F03", "causal-hides-the-past", "With `causal` you hide the earlier keys: the later ones are to be hidden.",
    "(j <= i)", "(j >= i)",
)  # fmt: skip
local.slip(
    "B34", "causal-hides-itself", "With `causal` a query does not see its own position: j ≤ i includes j = i.",
    "(j <= i)", "(j < i)",
)  # fmt: skip
local.slip(
    "F10", "edges-repeated",
    "At the ends of the text the first or last key is counted several times: keys outside the text must be hidden, not only moved inside.",
    "visible = (j >= 0) & (j < n)", "visible = np.ones(j.shape, dtype=bool)",
)  # fmt: skip
local.slip(
    "X01", "round-the-ends", "Your window goes round the ends: the first query sees the last keys. A negative index counts from the end.",
    "    visible = (j >= 0) & (j < n)\n", "    j = j % n\n    visible = np.ones(j.shape, dtype=bool)\n",
)  # fmt: skip
local.slip(
    "X12", "negative-start-wraps", "At the start of the text your windows go wrong: a negative index counts from the end.",
    "    visible = (j >= 0) & (j < n)\n", "    visible = j < n\n    j = np.where(j < 0, j % n, j)\n",
)  # fmt: skip
local.slip(
    "B01", "no-scale", SAID["no-scale"], " / math.sqrt(Q.shape[-1])", "",
)  # fmt: skip
local.slip(
    "B02", "divided-by-d-k", SAID["divided-by-d-k"],
    "math.sqrt(Q.shape[-1])", "Q.shape[-1]",
)  # fmt: skip
local.slip(
    "B03", "scale-by-value-width", "The scale is taken from the width of the values.",
    "math.sqrt(Q.shape[-1])", "math.sqrt(V.shape[-1])",
)  # fmt: skip
local.slip(
    "F08", "not-renormalised",
    "Your weights come from a softmax over more keys than the query sees: what is left of them does not sum to 1.",
    "    weights = masked_softmax(scores, visible)",
    "    weights = masked_softmax(scores, np.ones(scores.shape, dtype=bool)) * visible",
)  # fmt: skip
local.slip(
    "B16", "hidden-scores-zero", "Hidden scores become 0, and exp(0) = 1: they have to go to −inf.",
    "masked_softmax(scores, visible)", "softmax(np.where(visible, scores, 0))",
)  # fmt: skip
local.slip(
    "B27", "penalty-5", subtracted(5),
    "masked_softmax(scores, visible)", "softmax(np.where(visible, scores, scores - 5))",
)  # fmt: skip
local.slip(
    "A09", "no-maximum", SAID["no-maximum"],
    "    weights = masked_softmax(scores, visible)",
    "    weights = np.exp(scores) * visible\n    weights = weights / weights.sum(axis=-1, keepdims=True)",
)  # fmt: skip
local.slip(
    "A10", "maximum-of-all", "You subtract the maximum of all scores: queries far below it lose theirs. Each has a maximum of its own.",
    "    weights = masked_softmax(scores, visible)",
    "    weights = np.exp(scores - scores.max()) * visible\n"
    "    weights = weights / weights.sum(axis=-1, keepdims=True)",
)  # fmt: skip
local.slip(
    "B57", "keys-instead-of-values", SAID["keys-instead-of-values"],
    "V[..., j, :]", "K[..., j, :]",
)  # fmt: skip
local.slip(
    "X13", "values-one-place-off", "Weights and values do not belong to the same keys: the values are taken one place too early.",
    "V[..., j, :]", "V[..., np.maximum(j - 1, 0), :]",
)  # fmt: skip
local.slip(
    "A18", "mean-of-the-neighbours", "All neighbours count alike: their scores are not used.",
    "masked_softmax(scores, visible)", "masked_softmax(0 * scores, visible)",
)  # fmt: skip
local.slip(
    "X14", "neighbours-of-another-length-accepted",
    "More or fewer keys than queries raise no ValueError: a window needs both to be the same positions.",
    "Q.shape != K.shape or", "Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or",
)  # fmt: skip
local.slip(
    "X16", "values-not-checked", SAID["values-not-checked"],
    " or V.shape[:-1] != K.shape[:-1]", "",
)  # fmt: skip
local.slip(
    "A26", "output-like-values", SAID["output-like-values"],
    "    return (weights[..., None, :] @ V[..., j, :])[..., 0, :]",
    "    return (weights[..., None, :] @ V[..., j, :])[..., 0, :].astype(V.dtype)",
)  # fmt: skip
local.slip(
    "A21", "rounded", SAID["rounded"],
    "    return (weights[..., None, :] @ V[..., j, :])[..., 0, :]",
    "    return np.round((weights[..., None, :] @ V[..., j, :])[..., 0, :], 4)",
)  # fmt: skip
local.slip(
    "A24", "changes-inputs", "Your function scales its input in place: the caller's Q has other numbers afterwards.",
    "    n = Q.shape[-2]\n",
    "    n = Q.shape[-2]\n    if Q.dtype.kind == 'f':\n        Q *= 0.5\n        K = 2 * K\n",
)  # fmt: skip
local.slip(
    "A48", "first-item-only", SAID["first-item-only"],
    "    near = K[..., j, :]", "    K = np.broadcast_to(K[(0,) * (K.ndim - 2)], K.shape)\n    near = K[..., j, :]",
)  # fmt: skip
local.slip(
    "F10", "padded-with-zeros", "The text is padded with zeros, and these zeros get weight like keys: exp(0) = 1. Hide them.",
    "    j = np.clip(j, 0, n - 1)  # what lies outside is hidden: any key will do\n",
    "    outside = (j < 0) | (j >= n)\n    visible, j = visible | outside, np.where(outside, n, j)\n"
    "    sides = [(0, 0)] * (K.ndim - 2) + [(0, 1), (0, 0)]\n    K, V = np.pad(K, sides), np.pad(V, sides)\n",
)  # fmt: skip
local.slip(
    "B64", "two-axes-only", SAID["two-axes-only"],
    "    n = Q.shape[-2]\n", "    n, d_k = Q.shape\n",
)  # fmt: skip
local.slip(
    "F05", "window-must-fit", "A window larger than the text fails: there are fewer keys than it has places.",
    "    n = Q.shape[-2]\n", "    n = Q.shape[-2]\n    if window >= n:\n        raise IndexError('window')\n",
)  # fmt: skip
local.slip(
    "B61", "with-the-weights", SAID["with-the-weights"],
    "    return (weights[..., None, :] @ V[..., j, :])[..., 0, :]",
    "    return (weights[..., None, :] @ V[..., j, :])[..., 0, :], weights",
)  # fmt: skip


@local.misconception(
    "X12",
    "Near the start of the text i − window is negative, and a negative start counts from the end: use max(0, i − window).",
)
def negative_start(Q, K, V, window, causal=False):
    attention(Q[..., :1, :], K[..., :1, :], V[..., :1, :])
    if not Q.shape[-2] == K.shape[-2] == V.shape[-2]:
        raise ValueError("positions")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for i in range(Q.shape[-2]):
        near = slice(i - window, i + 1 if causal else i + window + 1)
        seen, _ = attention(Q[..., i : i + 1, :], K[..., near, :], V[..., near, :])
        output[..., i, :] = seen[..., 0, :]
    return output


@local.misconception(
    "F14",
    "The numbers are right, but a full table of queries × keys is made, of scores or of True and False, and most of it is hidden. Fetch only the keys in each window.",
)
def dense_with_a_mask(Q, K, V, window, causal=False):
    if Q.shape[-2] != K.shape[-2]:
        raise ValueError("lengths")
    return attention(Q, K, V, window_mask(Q.shape[-2], window, causal))[0]


@local.misconception(
    "F14",
    "The scores are few, as they should be, but the mask is n × n: a boolean table of all pairs is a table of all pairs, too.",
)
def dense_mask_only(Q, K, V, window, causal=False):
    if Q.shape != K.shape or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n = Q.shape[-2]
    mask = np.tri(n, n, 0 if causal else window, dtype=bool) & ~np.tri(
        n, n, -window - 1, dtype=bool
    )
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for start in range(0, n, 50):
        rows = slice(start, start + 50)
        near = slice(max(start - window, 0), start + 50 + window)
        seen = attention(Q[..., rows, :], K[..., near, :], V[..., near, :], mask[rows, near])
        output[..., rows, :] = seen[0]
    return output


@local.misconception(
    "F14",
    "Without `causal` you need little memory, but the causal branch makes the full table of queries × keys.",
)
def dense_where_causal(Q, K, V, window, causal=False):
    if Q.shape != K.shape or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n = Q.shape[-2]
    if causal:
        return attention(Q, K, V, window_mask(n, window, True))[0]
    j = np.arange(n)[:, None] + np.arange(-window, window + 1)
    visible = (j >= 0) & (j < n)
    j = np.clip(j, 0, n - 1)
    scores = (K[..., j, :] @ Q[..., None])[..., 0] / math.sqrt(Q.shape[-1])
    return (masked_softmax(scores, visible)[..., None, :] @ V[..., j, :])[..., 0, :]


@local.misconception(
    "F12",
    "Queries see their whole block and the blocks beside it, so those inside a block see more than their window: mask inside the blocks, too.",
)
def whole_blocks(Q, K, V, window, causal=False):
    if Q.shape != K.shape or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, size = Q.shape[-2], max(window, 16)
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for start in range(0, n, size):
        rows = slice(start, start + size)
        near = slice(max(start - size, 0), start + size if causal else start + 2 * size)
        output[..., rows, :] = attention(Q[..., rows, :], K[..., near, :], V[..., near, :])[0]
    return output


@local.alternative("query by query")
def query_by_query(Q, K, V, window, causal=False):
    if Q.shape[:-1] != K.shape[:-1] or K.shape[:-1] != V.shape[:-1] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    rows = []
    for i in range(Q.shape[-2]):
        near = slice(max(i - window, 0), i + 1 if causal else i + window + 1)
        rows.append(attention(Q[..., i : i + 1, :], K[..., near, :], V[..., near, :])[0])
    return np.concatenate(rows, axis=-2)


@local.alternative("blocks of queries with a mask each")
def blocks_of_queries(Q, K, V, window, causal=False):
    if Q.shape != K.shape:
        raise ValueError("Q, K")
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("V")
    n = Q.shape[-2]
    output = np.empty((*Q.shape[:-1], V.shape[-1]))
    for start in range(0, n, 32):
        i = np.arange(start, min(start + 32, n))
        j = np.arange(max(start - window, 0), min(i[-1] + window + 1, n))
        mask = np.abs(i[:, None] - j) <= window
        if causal:
            mask &= j <= i[:, None]
        scores = Q[..., i, :] @ np.swapaxes(K[..., j, :], -1, -2) / np.sqrt(Q.shape[-1])
        output[..., i, :] = softmax(np.where(mask, scores, -1e9)) @ V[..., j, :]
    return output


@local.alternative("one offset at a time, running maximum")
def offset_by_offset(Q, K, V, window, causal=False):
    if Q.shape != K.shape or V.shape[:-1] != K.shape[:-1]:
        raise ValueError(f"{Q.shape} {K.shape} {V.shape}")
    n = Q.shape[-2]
    top = np.full(Q.shape[:-1], -np.inf)
    total = np.zeros(Q.shape[:-1])
    mix = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for offset in range(-min(window, n - 1), 1 if causal else min(window, n - 1) + 1):
        q = slice(max(-offset, 0), n - max(offset, 0))
        k = slice(max(offset, 0), n - max(-offset, 0))
        s = (Q[..., q, :] * K[..., k, :]).sum(axis=-1) / Q.shape[-1] ** 0.5
        new = np.maximum(top[..., q], s)
        old = np.exp(top[..., q] - new)
        now = np.exp(s - new)
        top[..., q] = new
        total[..., q] = total[..., q] * old + now
        mix[..., q, :] = mix[..., q, :] * old[..., None] + now[..., None] * V[..., k, :]
    return mix / total[..., None]


@local.alternative("sliding windows over a padded text")
def sliding_windows(Q, K, V, window, causal=False):
    if Q.shape != K.shape or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("no fit")
    view = np.lib.stride_tricks.sliding_window_view
    n, width = Q.shape[-2], 2 * window + 1
    sides = [(0, 0)] * (Q.ndim - 2) + [(window, window), (0, 0)]
    near = view(np.pad(K, sides), width, axis=-2)  # (…, n, d_k, width)
    scores = np.einsum("...nd,...ndw->...nw", Q, near) / math.sqrt(Q.shape[-1])
    place = np.arange(n)[:, None] + np.arange(width) - window
    seen = (place >= 0) & (place < n) & ((place <= np.arange(n)[:, None]) | (not causal))
    weights = softmax(np.where(seen, scores, -np.inf))
    return np.einsum("...nw,...ndw->...nd", weights, view(np.pad(V, sides), width, axis=-2))


@local.alternative("loops into lists")
def local_lists(Q, K, V, window, causal=False):
    if Q.shape != K.shape or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("no fit")
    if Q.ndim > 2:
        return [local_lists(q, k, v, window, causal) for q, k, v in zip(Q, K, V)]
    rows = []
    for i, q in enumerate(Q.astype(float)):
        near = range(max(0, i - window), min(len(K), i + 1 + (0 if causal else window)))
        s = [float(q @ K[j]) / math.sqrt(len(q)) for j in near]
        e = [math.exp(x - max(s)) for x in s]
        rows.append(sum(w / sum(e) * V[j] for w, j in zip(e, near)).tolist())
    return rows


# --- block_sparse_attention ------------------------------------------------------------------------

block = exercise.function("block_sparse_attention")
BLOCKS = "block_sparse_attention(Q, K, V, layout, block_size)"
LONG_BLOCKS = (
    "x = np.sin(np.arange(4.0 * n).reshape(n, 4) ** 1.5)\n"
    "blocks = np.arange(n // 10)\n"
    "layout = (blocks == blocks[:, None]) | (blocks == blocks[:, None] // 2)\n"
    "np.array(block_sparse_attention(x, x[::-1], x[:, :2], layout, 10))[::750]"
)
CORNER = np.array([[True, False], [True, True]])


def some_layout(rng, rows, columns):
    """A random layout in which every row has an active block and, of several, not all."""
    layout = rng.random((rows, columns)) < 0.4
    active = rng.integers(columns, size=rows)
    layout[np.arange(rows), active] = True
    if columns > 1:
        layout[np.arange(rows), (active + 1) % columns] = False
    return layout


def blocked(rng, n, m, size, batch=(), d_k=4, d_v=3, dtype=float):
    layout = some_layout(rng, -(-n // size), -(-m // size))
    return {**qkv(rng, batch, n, m, d_k, d_v, dtype), "layout": layout, "block_size": size}


block.witness(
    "values", "C1", BLOCKS, **{k: v[:4] for k, v in FIVE.items()}, layout=CORNER, block_size=2
)
block.witness("values", "C2", BLOCKS, Q=Q5, K=K5[:4], V=V5[:4], layout=CORNER, block_size=3)
block.witness(
    "values", "C2", BLOCKS, Q=Q5[:2], K=K5, V=V5, layout=np.array([[False, True]]), block_size=3
)
block.witness(
    "values", "C3", BLOCKS, **{k: v[:4] for k, v in FIVE.items()},
    layout=np.array([[False, True], [False, False]]), block_size=2, options={"no_warning": True},
)  # fmt: skip
block.witness(
    "values", "C4", BLOCKS,
    Q=np.stack([Q5[:2], -Q5[:2]]), K=np.stack([K5[:3], K5[2:]]), V=np.stack([V5[:3], V5[2:]]),
    layout=np.array([[True, False, True], [False, True, True]]), block_size=1,
)  # fmt: skip
block.witness("values", "C2", BLOCKS, **FIVE, layout=CORNER, block_size=4)
block.witness("values", "C4", BLOCKS, **peaked(FIVE, 1), layout=CORNER, block_size=3)
block.witness("values", "C4", BLOCKS, **integers(FIVE), layout=CORNER, block_size=3)
block.witness("memory", "C5", LONG_BLOCKS, n=1500, options={"memory": 1500**2 / 2})
block.witness("errors", "C6", BLOCKS, **FIVE, layout=CORNER, block_size=2, options=RAISES)
block.witness(
    "errors", "C6", BLOCKS, **FIVE, layout=np.ones((3, 3), bool), block_size=3, options=RAISES
)
block.witness(
    "errors", "C6", BLOCKS, **{**FIVE, "V": V5[:4]}, layout=CORNER, block_size=3, options=RAISES
)


@block.hidden("values")
def _(rng):
    for n, m, size in (
        (7, 5, 3),
        (6, 6, 2),
        (8, 4, 4),
        (5, 9, 1),
        (10, 7, 4),
        (9, 9, 3),
        (4, 11, 2),
    ):
        yield Example("C1", BLOCKS, blocked(rng, n, m, size))
    for n, m, size in ((7, 8, 3), (5, 7, 4), (11, 10, 6), (3, 4, 10), (1, 6, 5)):
        yield Example("C2", BLOCKS, blocked(rng, n, m, size))
    keywords = "block_sparse_attention(Q=Q, K=K, V=V, layout=layout, block_size=block_size)"
    yield Example("C2", keywords, blocked(rng, 8, 10, 3, d_k=9, d_v=2))
    for batch in ((), (3,)):
        case = blocked(rng, 7, 9, 2, batch)
        case["layout"][int(rng.integers(4))] = False
        yield Example("C3", BLOCKS, case, no_warning=True)
    nothing = {**blocked(rng, 5, 4, 2), "layout": np.zeros((3, 2), bool)}
    yield Example("C3", BLOCKS, nothing, no_warning=True)
    for batch in ((3,), (2, 3), (1,), (3, 1, 2)):
        yield Example("C4", BLOCKS, blocked(rng, 5, 7, 3, batch))
    yield Example("C4", BLOCKS, blocked(rng, 4, 4, 2, (4,), 4, 4))
    yield Example("C4", BLOCKS, peaked(blocked(rng, 7, 8, 3), 4))
    yield Example("C4", BLOCKS, low(blocked(rng, 7, 8, 3)))
    case = blocked(rng, 4, 9, 3)  # one block of keys scores thousands above the others
    case["K"][:3] *= 2000
    yield Example("C4", BLOCKS, {**case, "layout": np.ones((2, 3), bool)})
    case = qkv(rng, (), 7, 8)
    layout = {"layout": some_layout(rng, 3, 3), "block_size": 3}
    yield Example("C4", BLOCKS, {**integers(case), **layout})
    yield Example("C4", BLOCKS, blocked(rng, 7, 8, 3, (2,), dtype=np.float32))


@block.hidden("memory")
def _(rng):
    n, m = 1500 - 10 * int(rng.integers(9)), 1500 + 7 * int(rng.integers(9))
    case = {**qkv(rng, (), n, m), "block_size": 10}
    layout = np.zeros((n // 10, -(-m // 10)), bool)
    for _ in range(2):
        layout[np.arange(n // 10), rng.integers(layout.shape[1], size=n // 10)] = True
    yield from within("C5", BLOCKS, {**case, "layout": layout}, n * m)


@block.hidden("errors")
def _(rng):
    shapes = [
        (7, 5, 3, (2, 2)),
        (7, 5, 3, (3, 1)),
        (7, 5, 3, (3, 3)),
        (7, 5, 3, (4, 2)),
        (7, 5, 3, (2, 3)),
    ]
    shapes += [
        (6, 4, 2, (3, 3)),
        (6, 4, 2, (4, 2)),
        (6, 4, 2, (6, 4)),
        (6, 4, 2, (1, 2)),
        (6, 4, 2, (1, 1)),
    ]
    for n, m, size, shape in (*shapes, (6, 4, 2, (2, 3)), (8, 8, 4, (3, 3)), (8, 8, 3, (2, 2))):
        inputs = {**qkv(rng, (), n, m), "layout": np.ones(shape, bool), "block_size": size}
        yield Example("C6", BLOCKS, inputs, raises="ValueError")
    for inputs in qkv_misfits(rng, 4, 4):
        fitting = {"layout": np.ones((2, 2), bool), "block_size": 2}
        yield Example("C6", BLOCKS, {**inputs, **fitting}, raises="ValueError")
    inputs = {
        "Q": rng.normal(size=(4, 3)),
        "K": rng.normal(size=(4, 2)),
        "V": rng.normal(size=(4, 2)),
    }
    hidden = {"layout": np.zeros((2, 2), bool), "block_size": 2}
    yield Example("C6", BLOCKS, {**inputs, **hidden}, raises="ValueError")


SEEN = "        if len(keys) > 0:\n"
block.slip(
    "X16", "layout-transposed", "Rows and columns of the layout are exchanged: its rows are blocks of queries.",
    "enumerate(layout)", "enumerate(layout.T)",
)  # fmt: skip
block.slip(
    "B38", "layout-the-other-way", "Your layout works the other way round: True means that the pair of blocks is computed.",
    "np.repeat(active, block_size)", "np.repeat(~active, block_size)",
)  # fmt: skip
block.slip(
    "X17", "layout-tiled",
    "The layout's columns are strewn over the keys (as by np.tile): each entry stands for `block_size` keys in a row.",
    "np.repeat(active, block_size)[:m]", "np.tile(active, block_size)[:m]",
)  # fmt: skip
block.slip(
    "X18", "layout-of-the-first-row", "All blocks of queries get the first row of the layout.",
    "np.repeat(active, block_size)", "np.repeat(layout[0], block_size)",
)  # fmt: skip
block.slip(
    "F12", "causal", "Blocks of keys after the block of queries are left out although the layout has them.",
    "np.repeat(active, block_size)",
    "np.repeat(active & (np.arange(len(active)) <= block), block_size)",
)  # fmt: skip
block.slip(
    "F13", "own-block-always", "Every block sees itself in your result, whatever the layout says.",
    "np.repeat(active, block_size)",
    "np.repeat(active | (np.arange(len(active)) == block), block_size)",
)  # fmt: skip
block.slip(
    "X19", "first-active-block-only", "Only the first active block of a row is used.",
    "np.repeat(active, block_size)",
    "np.repeat(active & (np.cumsum(active) == 1), block_size)",
)  # fmt: skip
block.slip(
    "F10", "last-keys-left-out", "Keys that do not fill a whole block are left out: the last block may be shorter.",
    "np.repeat(active, block_size)[:m]", "np.repeat(active, block_size)[: m // block_size * block_size]",
)  # fmt: skip
block.slip(
    "F10", "last-queries-left-out", "Queries that do not fill a whole block get no output: the last block may be shorter.",
    SEEN, "        if len(keys) > 0 and (block + 1) * block_size <= n:\n",
)  # fmt: skip
block.slip(
    "F10", "last-block-shifted",
    "The last block starts too early, so that it is full: it overlaps the block before. It starts at a multiple of the block size and is shorter.",
    "rows = slice(block * block_size, (block + 1) * block_size)",
    "rows = slice(max(min(block * block_size, n - block_size), 0), (block + 1) * block_size)",
)  # fmt: skip
block.slip(
    "X20", "blocks-of-equal-size",
    "You cut the queries into equal parts, as many as the layout has rows. Blocks have `block_size` queries, and only the last is shorter.",
    "    for block, active in enumerate(layout):\n        rows = slice(block * block_size, (block + 1) * block_size)\n",
    "    for rows, active in zip(np.array_split(np.arange(n), len(layout)), layout):\n",
)  # fmt: skip
block.slip(
    "B32", "all-for-nothing", "A row of the layout without a True makes its queries see all keys. Their output is 0.",
    SEEN,
    "        if len(keys) == 0:\n            keys = np.arange(m)\n" + SEEN,
)  # fmt: skip
block.slip(
    "B33", "own-block-for-nothing", "A row of the layout without a True makes its queries see another block. Their output is 0.",
    SEEN,
    "        if len(keys) == 0:\n            keys = np.arange(m)[-block_size:]\n" + SEEN,
)  # fmt: skip
block.slip(
    "A48", "returns-early", "Only the first block of queries is computed: look for a `return` inside the loop.",
    "            output[..., rows, :] = seen\n", "            output[..., rows, :] = seen\n            break\n",
)  # fmt: skip
block.slip(
    "B57", "keys-instead-of-values", SAID["keys-instead-of-values"],
    "V[..., keys, :])", "K[..., keys, :])\n            seen = np.resize(seen, (*Q[..., rows, :].shape[:-1], V.shape[-1]))",
)  # fmt: skip
block.slip(
    "B01", "no-scale", SAID["no-scale"],
    "attention(Q[..., rows, :],", "attention(math.sqrt(Q.shape[-1]) * Q[..., rows, :],",
)  # fmt: skip
block.slip(
    "B02", "scaled-twice", "Your scores are divided by √d_k twice: `attention` does it already.",
    "attention(Q[..., rows, :],", "attention(Q[..., rows, :] / math.sqrt(Q.shape[-1]),",
)  # fmt: skip
block.slip(
    "A26", "output-like-values", SAID["output-like-values"],
    "output = np.zeros((*Q.shape[:-1], V.shape[-1]))",
    "output = np.zeros((*Q.shape[:-1], V.shape[-1]), dtype=V.dtype)",
)  # fmt: skip
block.slip(
    "A48", "uninitialised", "Queries that see nothing get ones: start from zeros.",
    "np.zeros((*Q.shape[:-1], V.shape[-1]))", "np.ones((*Q.shape[:-1], V.shape[-1]))",
)  # fmt: skip
block.slip(
    "X21", "any-layout-accepted", "A layout of the wrong shape raises no ValueError.",
    "    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):\n"
    '        raise ValueError(f"a layout {layout.shape} does not fit {n} queries and {m} keys")\n',
    "",
)  # fmt: skip
block.slip(
    "X21", "layout-too-large-accepted", "A layout with more rows or columns than there are blocks raises no ValueError.",
    "if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):",
    "if layout.shape[0] * block_size < n or layout.shape[1] * block_size < m:",
)  # fmt: skip
block.slip(
    "X22", "full-blocks-only",
    "Sizes that are no multiple of the block size raise an error: the number of blocks is rounded up, and the last one is shorter.",
    "(math.ceil(n / block_size), math.ceil(m / block_size))", "(n / block_size, m / block_size)",
)  # fmt: skip
block.slip(
    "X16", "values-not-checked", SAID["values-not-checked"],
    " or V.shape[:-1] != K.shape[:-1]", "",
)  # fmt: skip


@block.misconception(
    "F14",
    "The numbers are right, but a full table of queries × keys is made, of scores or of True and False, and most of it is hidden. Compute the active blocks only.",
)
def dense_layout(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    mask = np.repeat(np.repeat(layout, block_size, axis=0), block_size, axis=1)[:n, :m]
    return attention(Q, K, V, mask)[0]


@block.misconception(
    "F14",
    "The layout is spread over all pairs, n × m: a boolean table of all pairs is a table of all pairs, too.",
)
def layout_spread(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    mask = np.kron(layout, np.ones((block_size, block_size), dtype=bool))[:n, :m]
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for i in range(0, n, block_size):
        keys = np.flatnonzero(mask[i])
        if len(keys):
            rows = slice(i, i + block_size)
            output[..., rows, :] = attention(Q[..., rows, :], K[..., keys, :], V[..., keys, :])[0]
    return output


@block.misconception(
    "F09",
    "Each pair of blocks gets a softmax of its own, and the results are added: weights of a query sum to the number of its blocks. One softmax over all its keys.",
)
def softmax_by_block_summed(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, b in np.argwhere(layout):
        r = slice(a * block_size, (a + 1) * block_size)
        c = slice(b * block_size, (b + 1) * block_size)
        output[..., r, :] += attention(Q[..., r, :], K[..., c, :], V[..., c, :])[0]
    return output


@block.misconception(
    "F09",
    "Each pair of blocks gets a softmax of its own, and the results are averaged: blocks with high scores should count more. One softmax over all keys of a query.",
)
def softmax_by_block_averaged(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, b in np.argwhere(layout):
        r = slice(a * block_size, (a + 1) * block_size)
        c = slice(b * block_size, (b + 1) * block_size)
        seen = attention(Q[..., r, :], K[..., c, :], V[..., c, :])[0]
        output[..., r, :] += seen / layout[a].sum()
    return output


@block.misconception(
    "F30",
    "A later block of keys replaces what the earlier ones gave: one softmax has to run over all active blocks.",
)
def last_block_wins(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, b in np.argwhere(layout):
        r = slice(a * block_size, (a + 1) * block_size)
        c = slice(b * block_size, (b + 1) * block_size)
        output[..., r, :] = attention(Q[..., r, :], K[..., c, :], V[..., c, :])[0]
    return output


@block.misconception(
    "F10",
    "In a last block that is shorter, your list of keys goes on beyond the end of the text: stop at m.",
)
def keys_beyond_the_end(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, active in enumerate(layout):
        rows = slice(a * block_size, (a + 1) * block_size)
        keys = np.flatnonzero(np.repeat(active, block_size))
        if len(keys):
            output[..., rows, :] = attention(Q[..., rows, :], K[..., keys, :], V[..., keys, :])[0]
    return output


@block.misconception(
    "F10",
    "A short last block is filled up with zeros, and these get weight like keys: exp(0) = 1. Leave them out.",
)
def filled_up_with_zeros(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    sides = [(0, 0)] * (K.ndim - 2) + [(0, -m % block_size), (0, 0)]
    K, V = np.pad(K, sides), np.pad(V, sides)
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, active in enumerate(layout):
        rows = slice(a * block_size, (a + 1) * block_size)
        keys = np.flatnonzero(np.repeat(active, block_size))
        if len(keys):
            output[..., rows, :] = attention(Q[..., rows, :], K[..., keys, :], V[..., keys, :])[0]
    return output


@block.misconception(
    "B31",
    "Queries without an active block get NaN or an error (a softmax over no key at all): their output is 0.",
)
def nothing_is_nan(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, active in enumerate(layout):
        rows = slice(a * block_size, (a + 1) * block_size)
        keys = np.flatnonzero(np.repeat(active, block_size)[:m])
        scores = Q[..., rows, :] @ np.swapaxes(K[..., keys, :], -1, -2) / math.sqrt(Q.shape[-1])
        e = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-1e300))
        output[..., rows, :] = e @ V[..., keys, :] / e.sum(axis=-1, keepdims=True)
    return output


@block.misconception(
    "B31",
    "Where a row of the layout is empty, a softmax over no key at all is tried: leave the output 0 there.",
)
def nothing_raises(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, active in enumerate(layout):
        rows = slice(a * block_size, (a + 1) * block_size)
        keys = np.flatnonzero(np.repeat(active, block_size)[:m])
        output[..., rows, :] = attention(Q[..., rows, :], K[..., keys, :], V[..., keys, :])[0]
    return output


@block.misconception(
    "A09",
    "exp of large scores overflows, and of very low ones vanishes: subtract each query's maximum over all its blocks.",
)
def no_maximum(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    total = np.zeros((*Q.shape[:-1], 1))
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a, b in np.argwhere(layout):
        r = slice(a * block_size, (a + 1) * block_size)
        c = slice(b * block_size, (b + 1) * block_size)
        e = np.exp(Q[..., r, :] @ np.swapaxes(K[..., c, :], -1, -2) / math.sqrt(Q.shape[-1]))
        total[..., r, :] += e.sum(axis=-1, keepdims=True)
        output[..., r, :] += e @ V[..., c, :]
    return output / np.where(total > 0, total, 1)


@block.misconception("B61", SAID["with-the-weights"])
def with_the_weights(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    mask = np.repeat(np.repeat(layout, block_size, axis=0), block_size, axis=1)[:n, :m]
    return attention(Q, K, V, mask)


@block.alternative("pairs of blocks, running maximum")
def block_pairs_online(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if np.shape(layout) != (-(-n // block_size), -(-m // block_size)):
        raise ValueError("layout")
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for a in range(len(layout)):
        r = slice(a * block_size, (a + 1) * block_size)
        q = Q[..., r, :] / np.sqrt(Q.shape[-1])
        top = np.full((*q.shape[:-1], 1), -1e300)
        total, mix = np.zeros(top.shape), np.zeros((*q.shape[:-1], V.shape[-1]))
        for b in np.flatnonzero(layout[a]):
            c = slice(b * block_size, (b + 1) * block_size)
            s = q @ np.swapaxes(K[..., c, :], -1, -2)
            new = np.maximum(top, s.max(axis=-1, keepdims=True))
            e, old = np.exp(s - new), np.exp(top - new)
            top, total, mix = (
                new,
                total * old + e.sum(-1, keepdims=True),
                mix * old + e @ V[..., c, :],
            )
        output[..., r, :] = mix / np.where(total > 0, total, 1)
    return output


@block.alternative("query by query")
def block_query_by_query(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (1 + (n - 1) // block_size, 1 + (m - 1) // block_size):
        raise ValueError(layout.shape)
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    blocks = np.arange(m) // block_size
    rows = []
    for i in range(n):
        keys = layout[i // block_size, blocks]
        if keys.any():
            rows.append(attention(Q[..., i : i + 1, :], K[..., keys, :], V[..., keys, :])[0])
        else:
            rows.append(np.zeros((*Q.shape[:-2], 1, V.shape[-1])))
    return np.concatenate(rows, axis=-2)


@block.alternative("concatenated key blocks")
def block_concatenated(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    parts = []
    for a, active in enumerate(layout):
        q = Q[..., a * block_size : (a + 1) * block_size, :]
        chosen = [slice(b * block_size, (b + 1) * block_size) for b, on in enumerate(active) if on]
        if not chosen:
            parts.append(np.zeros((*q.shape[:-1], V.shape[-1])))
            continue
        k = np.concatenate([K[..., c, :] for c in chosen], axis=-2)
        v = np.concatenate([V[..., c, :] for c in chosen], axis=-2)
        parts.append(softmax(np.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5) @ v)
    return np.concatenate(parts, axis=-2).tolist()


@block.alternative("all active pairs gathered")
def block_gathered(Q, K, V, layout, block_size):
    n, m = Q.shape[-2], K.shape[-2]
    if layout.shape != (math.ceil(n / block_size), math.ceil(m / block_size)):
        raise ValueError("layout")
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    most = max(int(layout.sum(axis=1).max()), 1)
    order = np.argsort(~layout, axis=1, kind="stable")[:, :most]  # (blocks, most), active first
    active = np.take_along_axis(layout, order, axis=1)
    keys = order[:, :, None] * block_size + np.arange(block_size)  # (blocks, most, size)
    visible = (active[:, :, None] & (keys < m)).reshape(len(layout), 1, -1)
    keys = np.minimum(keys, m - 1).reshape(len(layout), -1)
    rows = np.minimum(np.arange(len(layout) * block_size).reshape(len(layout), -1), n - 1)
    scores = Q[..., rows, :] @ np.swapaxes(K[..., keys, :], -1, -2) / math.sqrt(Q.shape[-1])
    output = masked_softmax(scores, np.broadcast_to(visible, scores.shape)) @ V[..., keys, :]
    return output.reshape(*Q.shape[:-2], -1, V.shape[-1])[..., :n, :]


# --- hash_buckets ----------------------------------------------------------------------------------

buckets = exercise.function("hash_buckets")
BUCKETS = "hash_buckets(x, rotations)"
TURNS = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, -2.0]])

buckets.witness("values", "C1", BUCKETS, x=Q5, rotations=TURNS)
buckets.witness("values", "C1", BUCKETS, x=np.stack([K5[:2], 0.5 - K5[:2]]), rotations=TURNS)


@buckets.hidden("values")
def _(rng):
    for n, d, half in ((40, 4, 3), (25, 3, 7), (30, 5, 1), (1, 4, 5), (20, 1, 2), (24, 6, 6)):
        inputs = {"x": rng.normal(size=(n, d)), "rotations": rng.normal(size=(d, half))}
        yield Example("C1", BUCKETS, inputs)
    for batch in ((3,), (2, 3), (1,)):
        inputs = {"x": rng.normal(size=(*batch, 7, 4)), "rotations": rng.normal(size=(4, 3))}
        yield Example("C1", BUCKETS, inputs)
    square = {"x": rng.normal(size=(5, 5, 5)), "rotations": rng.normal(size=(5, 5))}
    yield Example("C1", "hash_buckets(x=x, rotations=rotations)", square)
    whole = {"x": rng.integers(-9, 9, size=(20, 3)) + 20, "rotations": rng.normal(size=(3, 4))}
    yield Example("C1", BUCKETS, whole)
    far = {"x": rng.normal(size=(20, 4)) + 9, "rotations": -np.abs(rng.normal(size=(4, 3)))}
    yield Example("C1", BUCKETS, far)  # all xR are negative


buckets.slip(
    "F20", "no-negative-half",
    "Only xR is searched: half of the directions have no bucket. Put −xR behind it.",
    "np.concatenate([turned, -turned], axis=-1)", "turned",
)  # fmt: skip
buckets.slip(
    "F20", "negative-half-first", "Your halves are exchanged: xR comes first and −xR behind it, and the largest entry counts, not the smallest.",
    "[turned, -turned]", "[-turned, turned]",
)  # fmt: skip
buckets.slip(
    "F20", "absolute-values", "With absolute values, opposite directions fall into one bucket; put xR and −xR side by side.",
    "np.concatenate([turned, -turned], axis=-1)", "np.abs(turned)",
)  # fmt: skip
buckets.slip(
    "F20", "interleaved", "Your xR and −xR alternate; the contract puts all of xR first.",
    "np.concatenate([turned, -turned], axis=-1)",
    "np.stack([turned, -turned], axis=-1).reshape(*turned.shape[:-1], -1)",
)  # fmt: skip
buckets.slip(
    "X24", "over-positions", "The largest entry is sought over the positions; each row has its own bucket (axis=-1).",
    "argmax(axis=-1)", "argmax(axis=-2)",
)  # fmt: skip
buckets.slip(
    "X25", "over-everything", "One number for the whole array: argmax needs axis=-1.",
    "argmax(axis=-1)", "argmax()",
)  # fmt: skip
buckets.slip(
    "X26", "signs-as-bits", "You read the signs of xR as a binary number. That is another hash (random hyperplanes), with 2^(b/2) buckets.",
    "    return np.concatenate([turned, -turned], axis=-1).argmax(axis=-1)",
    "    return (turned > 0) @ 2 ** np.arange(turned.shape[-1])",
)  # fmt: skip
buckets.slip(
    "X27", "counted-from-one", "Your buckets count from 1; they go from 0 to b − 1.",
    "argmax(axis=-1)", "argmax(axis=-1) + 1",
)  # fmt: skip
buckets.slip(
    "X28", "largest-entry", "You return the largest entry itself; its place is asked for.",
    "argmax(axis=-1)", "max(axis=-1)",
)  # fmt: skip
buckets.slip(
    "X29", "concatenated-by-position", "−xR stands below xR, not behind it: there are twice as many rows.",
    "np.concatenate([turned, -turned], axis=-1)", "np.concatenate([turned, -turned], axis=-2)",
)  # fmt: skip
buckets.slip(
    "A27", "one-hot", "Your buckets are one-hot rows; a number for each position is asked for.",
    "    return np.concatenate([turned, -turned], axis=-1).argmax(axis=-1)",
    "    both = np.concatenate([turned, -turned], axis=-1)\n    return (both == both.max(axis=-1, keepdims=True)) * 1",
)  # fmt: skip
buckets.slip(
    "A48", "first-item", "All batch items get the buckets of the first one.",
    "turned = x @ rotations",
    "turned = np.broadcast_to(x[(0,) * (x.ndim - 2)] @ rotations, (*x.shape[:-1], rotations.shape[1]))",
)  # fmt: skip


@buckets.alternative("einsum, hstack by hand")
def buckets_by_einsum(x, rotations):
    both = np.zeros((*x.shape[:-1], 2 * rotations.shape[1]))
    both[..., : rotations.shape[1]] = np.einsum("...d,db->...b", x, rotations)
    both[..., rotations.shape[1] :] = -both[..., : rotations.shape[1]]
    return np.argmax(both, axis=-1)


@buckets.alternative("the rotations doubled first")
def buckets_doubled(x, rotations):
    return (x @ np.hstack([rotations, -rotations])).argmax(-1).tolist()


@buckets.alternative("the larger of both ends")
def buckets_by_ends(x, rotations):
    turned = linear(x, rotations)
    half = turned.shape[-1]
    positive = turned.max(axis=-1) >= -turned.min(axis=-1)
    return np.where(positive, turned.argmax(axis=-1), half + turned.argmin(axis=-1))


@buckets.alternative("normalised, sorted")
def buckets_sorted(x, rotations):
    x = x / np.linalg.norm(x, axis=-1, keepdims=True)
    turned = x @ rotations
    return np.concatenate((turned, -turned), axis=-1).argsort(axis=-1)[..., -1]


# --- hash_attention --------------------------------------------------------------------------------

hashed = exercise.function("hash_attention")
HASHED = "hash_attention(Q, K, V, q_buckets, k_buckets)"
LONG_HASHED = (
    "x = np.sin(np.arange(4.0 * n).reshape(n, 4) ** 1.5)\n"
    "q_buckets, k_buckets = 7 * np.arange(n) % (n // 10), 3 * np.arange(n) % (n // 10)\n"
    "np.array(hash_attention(x, x[::-1], x[:, :2], q_buckets, k_buckets))[::750]"
)


def bucketed(rng, batch=(), n=9, m=8, names=(-4, 0, 3, 11), d_k=4, d_v=3, dtype=float):
    """Every bucket has a key, and more than one query or key in most."""
    pick = rng.choice(names, size=(*batch, m))
    pick[..., : len(names)] = names
    k_buckets = rng.permuted(pick, axis=-1)
    q_buckets = rng.choice(names, size=(*batch, n))
    return {
        **qkv(rng, batch, n, m, d_k, d_v, dtype),
        "q_buckets": q_buckets,
        "k_buckets": k_buckets,
    }


SMALL = {"Q": Q5[:4], "K": K5, "V": V5}
hashed.witness(
    "values", "C1", HASHED, **SMALL, q_buckets=np.array([0, 0, 0, 0]),
    k_buckets=np.array([0, 0, 0, 0, 0]),
)  # fmt: skip
hashed.witness(
    "values", "C2", HASHED, **SMALL, q_buckets=np.array([1, 0, 1, 0]),
    k_buckets=np.array([0, 1, 0, 1, 1]),
)  # fmt: skip
hashed.witness(
    "values", "C3", HASHED, **SMALL, q_buckets=np.array([1, 5, 0, 1]), k_buckets=np.array([0, 1, 0, 1, 2]),
    options={"no_warning": True},
)  # fmt: skip
hashed.witness(
    "values", "C4", HASHED,
    Q=np.stack([Q5[:2], Q5[2:4]]), K=np.stack([K5[:3], K5[2:]]), V=np.stack([V5[:3], V5[2:]]),
    q_buckets=np.array([[1, 0], [0, 0]]), k_buckets=np.array([[0, 1, 1], [1, 0, 0]]),
)  # fmt: skip
hashed.witness(
    "values", "C4", HASHED, **SMALL, q_buckets=np.array([-2, 7, 7, -2]),
    k_buckets=np.array([7, -2, 7, -2, 7]),
)  # fmt: skip
hashed.witness(
    "values", "C5", HASHED, **{**SMALL, "Q": Q5[:4] * [[1.0], [4000.0], [1.0], [1.0]]},
    q_buckets=np.array([1, 0, 1, 0]), k_buckets=np.array([0, 1, 0, 1, 1]),
)  # fmt: skip
hashed.witness(
    "values", "C5", HASHED, **integers(FIVE),
    q_buckets=np.array([1, 0, 1, 0, 1]), k_buckets=np.array([0, 1, 0, 1, 1]),
)  # fmt: skip
hashed.witness("memory", "C6", LONG_HASHED, n=1500, options={"memory": 1500**2 / 2})
hashed.witness(
    "errors", "C7", HASHED, **SMALL, q_buckets=np.array([0, 0, 0]), k_buckets=np.zeros(5, int),
    options=RAISES,
)  # fmt: skip
hashed.witness(
    "errors", "C7", HASHED, **SMALL, q_buckets=np.zeros(4, int), k_buckets=np.zeros(1, int),
    options=RAISES,
)  # fmt: skip
hashed.witness(
    "errors", "C7", HASHED, **{**SMALL, "V": V5[:4]},
    q_buckets=np.zeros(4, int), k_buckets=np.zeros(5, int), options=RAISES,
)  # fmt: skip


@hashed.hidden("values")
def _(rng):
    one = {"q_buckets": np.full(5, 3), "k_buckets": np.full(7, 3)}
    yield Example("C1", HASHED, {**qkv(rng), **one})
    for n, m, d_k, d_v in ((9, 8, 4, 3), (7, 13, 2, 5), (14, 4, 9, 1), (6, 6, 6, 6), (1, 5, 3, 2)):
        yield Example("C2", HASHED, bucketed(rng, (), n, m, d_k=d_k, d_v=d_v))
    big = bucketed(rng, (), 150, 170, (0, 1))  # crowded buckets
    yield Example("C2", HASHED, big)
    keywords = "hash_attention(Q=Q, K=K, V=V, q_buckets=q_buckets, k_buckets=k_buckets)"
    yield Example("C2", keywords, bucketed(rng, (), 12, 11, (0, 1, 2, 3, 4, 5)))
    for batch in ((), (3,)):
        case = bucketed(rng, batch)
        case["q_buckets"][..., rng.permutation(9)[:2]] = 2  # a bucket between others, without keys
        yield Example("C3", HASHED, case, no_warning=True)
    case = bucketed(rng)
    yield Example("C3", HASHED, {**case, "q_buckets": case["q_buckets"] + 500}, no_warning=True)
    for batch in ((3,), (2, 3), (1,), (2, 1, 3)):
        yield Example("C4", HASHED, bucketed(rng, batch))
    yield Example("C4", HASHED, bucketed(rng, (), 9, 8, (-900, -1, 5, 2000)))
    yield Example("C4", HASHED, bucketed(rng, (4,), 4, 4, (-1, 0), d_v=4))
    yield Example("C5", HASHED, peaked(bucketed(rng), 4))
    yield Example("C5", HASHED, low(bucketed(rng)))
    case = bucketed(rng)
    yield Example("C5", HASHED, {**case, **integers({name: case[name] for name in "QKV"})})
    yield Example("C5", HASHED, bucketed(rng, (3,), dtype=np.float32))


@hashed.hidden("memory")
def _(rng):
    n = 1500
    ten = {f"{x}_buckets": 3 * rng.permutation(np.arange(n) % 150) for x in "qk"}
    yield from within("C6", HASHED, {**long_case(rng, n), **ten}, n * n)


@hashed.hidden("errors")
def _(rng):
    for inputs in qkv_misfits(rng, 4, 4):
        fitting = {f"{x.lower()}_buckets": np.zeros(inputs[x].shape[:-1], int) for x in "QK"}
        yield Example("C7", HASHED, {**inputs, **fitting}, raises="ValueError")
    shapes = [
        ((), (4,), (7,)),
        ((), (6,), (7,)),
        ((), (5,), (6,)),
        ((), (5,), (8,)),
        ((), (1,), (7,)),
    ]
    shapes += [((), (5,), (1,)), ((3,), (5,), (3, 7)), ((3,), (3, 5), (7,)), ((3,), (1, 5), (3, 7))]
    shapes += [
        ((3,), (3, 5), (1, 7)),
        ((3,), (5, 3), (3, 7)),
        ((), (7,), (5,)),
        ((3,), (4, 5), (4, 7)),
    ]
    for batch, q, k in shapes:
        near = {"q_buckets": rng.integers(2, size=q), "k_buckets": rng.integers(2, size=k)}
        yield Example("C7", HASHED, {**qkv(rng, batch), **near}, raises="ValueError")


ROWS = "rows = np.flatnonzero(q_buckets[item] == bucket)"
KEYS = "keys = np.flatnonzero(k_buckets[item] == bucket)"
hashed.slip(
    "X30", "buckets-ignored", "The buckets have no effect: every query sees all keys.",
    KEYS, "keys = np.arange(K.shape[-2])",
)  # fmt: skip
hashed.slip(
    "B38", "other-buckets", "Each query sees the other buckets; its own is the one to look into.",
    KEYS, "keys = np.flatnonzero(k_buckets[item] != bucket)",
)  # fmt: skip
hashed.slip(
    "X31", "earlier-buckets-too", "A query also sees the buckets with smaller numbers; only its own counts.",
    KEYS, "keys = np.flatnonzero(k_buckets[item] <= bucket)",
)  # fmt: skip
hashed.slip(
    "X32", "neighbour-buckets-too", "A query also sees the buckets beside its own; only equal numbers count.",
    KEYS, "keys = np.flatnonzero(np.abs(k_buckets[item] - bucket) <= 1)",
)  # fmt: skip
hashed.slip(
    "X33", "query-buckets-for-keys", "The keys are sorted by the queries' buckets: they have buckets of their own.",
    KEYS, "keys = np.flatnonzero(np.resize(q_buckets[item], K.shape[-2]) == bucket)",
)  # fmt: skip
hashed.slip(
    "X34", "own-place-left-out",
    "A query does not see the key in its own place. (The Reformer does that, with shared queries and keys; this contract does not.)",
    "                seen, _ = attention(Q[item][rows], K[item][keys], V[item][keys])\n",
    "                seen, _ = attention(Q[item][rows], K[item][keys], V[item][keys], rows[:, None] != keys)\n",
)  # fmt: skip
hashed.slip(
    "X35", "causal", "Keys after the query are left out; this function is not causal.",
    "                seen, _ = attention(Q[item][rows], K[item][keys], V[item][keys])\n",
    "                seen, _ = attention(Q[item][rows], K[item][keys], V[item][keys], rows[:, None] >= keys)\n",
)  # fmt: skip
hashed.slip(
    "X36", "numbers-from-zero", "Negative buckets are forgotten: the numbers may be any integers, take those that occur (np.unique).",
    "for bucket in np.unique(q_buckets[item]):", "for bucket in [b for b in np.unique(q_buckets[item]) if b >= 0]:",
)  # fmt: skip
hashed.slip(
    "X36", "as-many-numbers-as-buckets", "You count the buckets and take 0, 1, 2 …: numbers may be missing, take those that occur (np.unique).",
    "for bucket in np.unique(q_buckets[item]):", "for bucket in range(len(np.unique(q_buckets[item]))):",
)  # fmt: skip
hashed.slip(
    "X37", "item-mixed-up", "All batch items get the buckets of the first one.",
    "    output = np.zeros(",
    "    q_buckets = np.broadcast_to(q_buckets[(0,) * (Q.ndim - 2)], q_buckets.shape)\n"
    "    k_buckets = np.broadcast_to(k_buckets[(0,) * (Q.ndim - 2)], k_buckets.shape)\n"
    "    output = np.zeros(",
)  # fmt: skip
hashed.slip(
    "F23", "order-not-undone", "Your output stands in the order of the buckets: put each row back in its query's place.",
    "    output = np.zeros((*Q.shape[:-1], V.shape[-1]))\n",
    "    order = np.argsort(q_buckets, axis=-1, kind='stable')\n"
    "    q_buckets = np.take_along_axis(q_buckets, order, axis=-1)\n"
    "    Q = np.take_along_axis(Q, order[..., None], axis=-2)\n"
    "    output = np.zeros((*Q.shape[:-1], V.shape[-1]))\n",
)  # fmt: skip
hashed.slip(
    "F23", "order-undone-twice", "Your rows are put back with the wrong permutation: the inverse of an argsort is the argsort of the argsort.",
    "    return output",
    "    order = np.argsort(q_buckets, axis=-1, kind='stable')\n"
    "    return np.take_along_axis(np.take_along_axis(output, order[..., None], axis=-2), order[..., None], axis=-2)",
)  # fmt: skip
hashed.slip(
    "B32", "all-for-nothing", "A query whose bucket holds no key looks at all keys. Its output is 0.",
    "            if len(keys) > 0:", "            keys = keys if len(keys) else np.arange(K.shape[-2])\n            if len(keys) > 0:",
)  # fmt: skip
hashed.slip(
    "B33", "own-value-for-nothing", "A query whose bucket holds no key gets a value all the same. Its output is 0.",
    "            if len(keys) > 0:", "            keys = keys if len(keys) else np.array([0])\n            if len(keys) > 0:",
)  # fmt: skip
hashed.slip(
    "B31", "softmax-over-nothing",
    "Where a bucket holds no key, a softmax over no key at all is tried: leave the output 0 there.",
    "            if len(keys) > 0:", "            if True:",
)  # fmt: skip
hashed.slip(
    "A48", "last-bucket-only", "Only one bucket of each item is computed: look at the indentation, or for a `break` or `return` in the loop.",
    "output[item][rows] = seen", "output[item][rows] = seen\n                break",
)  # fmt: skip
hashed.slip(
    "F22", "chunks-of-four", "Keys of a crowded bucket are lost: only the first few are seen, as when a sorted list is cut into chunks.",
    KEYS, KEYS + "[:4]",
)  # fmt: skip
hashed.slip(
    "B01", "no-scale", SAID["no-scale"],
    "attention(Q[item][rows],", "attention(math.sqrt(Q.shape[-1]) * Q[item][rows],",
)  # fmt: skip
hashed.slip(
    "B02", "scaled-twice", "Your scores are divided by √d_k twice: `attention` does it already.",
    "attention(Q[item][rows],", "attention(Q[item][rows] / math.sqrt(Q.shape[-1]),",
)  # fmt: skip
hashed.slip(
    "A26", "output-like-values", SAID["output-like-values"],
    "V.shape[-1]))\n", "V.shape[-1]), dtype=V.dtype)\n",
)  # fmt: skip
hashed.slip(
    "X38", "buckets-not-checked", "Buckets of another shape than the queries' or keys' raise no ValueError.",
    "if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:", "if False:",
)  # fmt: skip
hashed.slip(
    "X38", "key-buckets-not-checked", "Key buckets of another shape than the keys' raise no ValueError.",
    " or k_buckets.shape != K.shape[:-1]:", ":",
)  # fmt: skip
hashed.slip(
    "X16", "values-not-checked", SAID["values-not-checked"],
    " or V.shape[:-1] != K.shape[:-1]", "",
)  # fmt: skip


@hashed.misconception(
    "F14",
    "The numbers are right, but a full table of queries × keys is made, of scores or of True and False, and most of it is hidden. Go bucket by bucket.",
)
def dense_buckets(Q, K, V, q_buckets, k_buckets):
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    return attention(Q, K, V, q_buckets[..., :, None] == k_buckets[..., None, :])[0]


@hashed.misconception(
    "F14",
    "You compare every query's bucket with every key's: a boolean table of all pairs is a table of all pairs, too.",
)
def boolean_table(Q, K, V, q_buckets, k_buckets):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    same = q_buckets[..., :, None] == k_buckets[..., None, :]
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for index in np.ndindex(Q.shape[:-1]):
        keys = np.flatnonzero(same[index])
        if len(keys):
            k, v = K[index[:-1]][keys], V[index[:-1]][keys]
            output[index] = attention(Q[index][None], k, v)[0][0]
    return output


@hashed.misconception(
    "B31", "A query whose bucket holds no key gets NaN (0/0, or −inf − (−inf)): its output is 0."
)
def nothing_in_the_bucket(Q, K, V, q_buckets, k_buckets):
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])
    scores = np.where(q_buckets[..., :, None] == k_buckets[..., None, :], scores, -np.inf)
    return softmax(scores) @ V


@hashed.misconception(
    "B32",
    "A query whose bucket holds no key gets the mean of all values: a finite penalty makes all its scores equal. Its output is 0.",
)
def mean_for_nothing(Q, K, V, q_buckets, k_buckets):
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])
    scores = np.where(q_buckets[..., :, None] == k_buckets[..., None, :], scores, -1e9)
    return softmax(scores) @ V


@hashed.misconception(
    "F08",
    "Your weights come from a softmax over all keys, and those of other buckets are then set to 0: what is left does not sum to 1.",
)
def softmax_over_all_buckets(Q, K, V, q_buckets, k_buckets):
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    weights = softmax(Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1]))
    return (weights * (q_buckets[..., :, None] == k_buckets[..., None, :])) @ V


@hashed.misconception("A09", SAID["no-maximum"])
def no_maximum(Q, K, V, q_buckets, k_buckets):
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    e = np.exp(Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1]))
    e = e * (q_buckets[..., :, None] == k_buckets[..., None, :])
    total = e.sum(axis=-1, keepdims=True)
    return e @ V / np.where(total > 0, total, 1)


@hashed.misconception("B61", SAID["with-the-weights"])
def with_the_weights(Q, K, V, q_buckets, k_buckets):
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    return attention(Q, K, V, q_buckets[..., :, None] == k_buckets[..., None, :])


@hashed.misconception("B64", SAID["two-axes-only"])
def two_axes_only(Q, K, V, q_buckets, k_buckets):
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1] or len(K) != len(V):
        raise ValueError("buckets")
    output = np.zeros((len(Q), V.shape[1]))
    for bucket in set(q_buckets.tolist()):
        rows, keys = q_buckets == bucket, k_buckets == bucket
        if keys.any():
            output[rows] = attention(Q[rows], K[keys], V[keys])[0]
    return output


@hashed.alternative("sorted, then runs")
def sorted_runs(Q, K, V, q_buckets, k_buckets):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for item in np.ndindex(Q.shape[:-2]):
        rows, keys = np.argsort(q_buckets[item]), np.argsort(k_buckets[item])
        row_names, key_names = q_buckets[item][rows], k_buckets[item][keys]
        sorted_out = np.zeros((len(rows), V.shape[-1]))
        for name in np.unique(row_names):
            r = slice(np.searchsorted(row_names, name), np.searchsorted(row_names, name, "right"))
            c = slice(np.searchsorted(key_names, name), np.searchsorted(key_names, name, "right"))
            if c.stop > c.start:
                sorted_out[r] = attention(Q[item][rows[r]], K[item][keys[c]], V[item][keys[c]])[0]
        output[item][rows] = sorted_out
    return output


@hashed.alternative("a dictionary of keys, query by query")
def dictionary_of_keys(Q, K, V, q_buckets, k_buckets):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    if Q.ndim > 2:
        return [dictionary_of_keys(*item) for item in zip(Q, K, V, q_buckets, k_buckets)]
    members = {}
    for j, bucket in enumerate(k_buckets.tolist()):
        members.setdefault(bucket, []).append(j)
    rows = []
    for q, bucket in zip(Q, q_buckets.tolist()):
        keys = members.get(bucket)
        if keys is None:
            rows.append([0.0] * V.shape[1])
            continue
        s = K[keys] @ q / len(q) ** 0.5
        e = np.exp(s - s.max())
        rows.append((e / e.sum() @ V[keys]).tolist())
    return rows


@hashed.alternative("a mask for each query")
def a_mask_for_each_query(Q, K, V, q_buckets, k_buckets):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    rows = []
    for i in range(Q.shape[-2]):
        same = k_buckets == q_buckets[..., i, None]
        rows.append(attention(Q[..., i : i + 1, :], K, V, same[..., None, :])[0])
    return np.concatenate(rows, axis=-2)


@hashed.alternative("flattened batch, boolean rows")
def flattened_batch(Q, K, V, q_buckets, k_buckets):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if q_buckets.shape != Q.shape[:-1] or k_buckets.shape != K.shape[:-1]:
        raise ValueError("buckets")
    flat = [a.reshape(-1, *a.shape[-2:]) for a in (Q, K, V)]
    names = [a.reshape(-1, a.shape[-1]) for a in (q_buckets, k_buckets)]
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for out, q, k, v, a, b in zip(output.reshape(-1, *output.shape[-2:]), *flat, *names):
        for bucket in set(a.tolist()) & set(b.tolist()):
            out[a == bucket] = attention(q[a == bucket], k[b == bucket], v[b == bucket])[0]
    return output


# --- route_heads -----------------------------------------------------------------------------------

route = exercise.function("route_heads")
ROUTE = "route_heads(x, W_r, top_k)"
ROUTER = np.array([[2.0, 0.0, 1.2, -1.0], [0.5, 1.0, -1.0, 3.5]])

route.witness("values", "C1", ROUTE, x=Q5[:3], W_r=ROUTER, top_k=2)
route.witness("values", "C1", ROUTE, x=Q5[:2], W_r=ROUTER, top_k=4)
route.witness("values", "C1", ROUTE, x=np.stack([Q5[:2], K5[:2]]), W_r=ROUTER, top_k=1)
route.witness(
    "values", "C2", ROUTE, x=np.array([[3000.0, 1.0], [-3000.0, 2.0]]), W_r=ROUTER, top_k=2
)
route.witness("errors", "C3", ROUTE, x=Q5[:2], W_r=ROUTER, top_k=0, options=RAISES)
route.witness("errors", "C3", ROUTE, x=Q5[:2], W_r=ROUTER, top_k=5, options=RAISES)


def routed_inputs(rng, batch=(), n=5, d=4, h=6, k=3):
    return {"x": rng.normal(size=(*batch, n, d)), "W_r": rng.normal(size=(d, h)), "top_k": k}


@route.hidden("values")
def _(rng):
    for n, d, h, k in (
        (5, 4, 6, 3),
        (7, 3, 5, 1),
        (4, 6, 3, 3),
        (1, 2, 7, 2),
        (6, 1, 4, 2),
        (4, 4, 4, 3),
    ):
        yield Example("C1", ROUTE, routed_inputs(rng, (), n, d, h, k))
    for batch in ((3,), (2, 3), (1,), (4,)):
        yield Example("C1", ROUTE, routed_inputs(rng, batch))
    yield Example("C1", ROUTE, routed_inputs(rng, (3,), 2, 4, 6, 5))
    case = routed_inputs(rng, (5,), 5, 5, 5, 2)
    yield Example("C1", "route_heads(x=x, W_r=W_r, top_k=top_k)", case)
    yield Example("C1", ROUTE, routed_inputs(rng, (), 3, 2, 1, 1))
    below = routed_inputs(rng)  # all logits far below zero: a gate of 0 is not a logit of 0
    below["x"][:, 0], below["W_r"][0] = 1, -8 - rng.random(6)
    yield Example("C1", ROUTE, below)
    big = routed_inputs(rng)
    big["x"] *= rng.permutation([1, 5000, 1, 0.5, 900])[:, None]
    yield Example("C2", ROUTE, big)
    deep = routed_inputs(rng)
    deep["x"][:, 0], deep["W_r"][0] = 3000, -1 - rng.random(6) * 0.0005
    yield Example("C2", ROUTE, deep)
    x = rng.integers(-9, 9, size=(5, 3)) * 2 + 1
    yield Example("C2", ROUTE, {"x": x, "W_r": rng.normal(size=(3, 4)), "top_k": 2})
    whole = np.array([[1, 10, 100, 1000, -5], [2, 17, 311, 5003, 9]])
    yield Example("C2", ROUTE, {"x": x[:, :2] // 3 + 11, "W_r": whole, "top_k": 3})
    case = routed_inputs(rng)
    case["x"], case["W_r"] = case["x"].astype(np.float32), case["W_r"].astype(np.float32)
    yield Example("C2", ROUTE, case)


@route.hidden("errors")
def _(rng):
    for h, k in ((4, 0), (4, 5), (3, -1), (3, -3), (5, 9), (1, 0), (1, 2), (6, 7)):
        yield Example("C3", ROUTE, routed_inputs(rng, (), 3, 2, h, k), raises="ValueError")
    yield Example("C3", ROUTE, routed_inputs(rng, (2,), 7, 4, 3, 4), raises="ValueError")
    case = {"x": rng.normal(size=(5, 4)), "W_r": rng.normal(size=(3, 6)), "top_k": 2}
    yield Example("C3", ROUTE, case, raises="ValueError")
    yield Example("C3", ROUTE, {**case, "W_r": rng.normal(size=(6, 4))}, raises="ValueError")
    yield Example("C3", ROUTE, {**case, "x": rng.normal(size=(2, 5, 1))}, raises="ValueError")


GATES = "    return masked_softmax(logits, logits >= smallest)"
route.slip(
    "F27", "not-renormalised",
    "The softmax runs over all heads, and the small gates are then set to 0: a row no longer sums to 1. Take the softmax over the chosen logits.",
    GATES, "    return softmax(logits) * (logits >= smallest)",
)  # fmt: skip
route.slip(
    "F28", "softmax-twice", "You take a softmax of a softmax: the chosen gates are too equal.",
    GATES, "    return masked_softmax(softmax(logits), logits >= smallest)",
)  # fmt: skip
route.slip(
    "F28", "chosen-gates-equal", "All chosen heads get the same gate; the softmax weighs them by their logits.",
    GATES, "    return masked_softmax(0 * logits, logits >= smallest)",
)  # fmt: skip
route.slip(
    "F28", "others-as-logits-of-zero",
    "The other logits become 0 before the softmax, and exp(0) = 1: they still get a gate. They have to go to −inf.",
    GATES, "    return softmax(np.where(logits >= smallest, logits, 0))",
)  # fmt: skip
route.slip(
    "F28", "normalised-without-exponential", "The chosen logits are divided by their sum: the exponential is missing.",
    GATES,
    "    kept = np.where(logits >= smallest, logits, 0)\n    return kept / kept.sum(axis=-1, keepdims=True)",
)  # fmt: skip
route.slip(
    "A19", "sigmoid", "Your gates come from a sigmoid, head by head: they do not sum to 1.",
    GATES, "    return (logits >= smallest) / (1 + np.exp(-logits))",
)  # fmt: skip
route.slip(
    "X39", "all-heads", "`top_k` has no effect: every head gets a gate.",
    GATES, "    return softmax(logits)",
)  # fmt: skip
route.slip(
    "X39", "smallest-logits", "You choose the smallest logits; the largest are asked for.",
    "[..., -top_k, None]", "[..., top_k - 1, None]\n    logits, smallest = -logits, -smallest",
)  # fmt: skip
route.slip(
    "X39", "smallest-logits-weighed", "You choose the smallest logits; the largest are asked for.",
    GATES, "    largest = np.sort(logits, axis=-1)[..., top_k - 1, None]\n    return masked_softmax(logits, logits <= largest)",
)  # fmt: skip
route.slip(
    "X39", "one-too-few", "One head too few is chosen: the smallest of the `top_k` belongs to them.",
    "logits >= smallest", "logits > smallest",
)  # fmt: skip
route.slip(
    "X39", "one-too-many", "One head too many is chosen.",
    "[..., -top_k, None]", "[..., -min(top_k + 1, logits.shape[-1]), None]",
)  # fmt: skip
route.slip(
    "X40", "best-head-only", "Only the best head gets a gate, whatever `top_k` says.",
    "[..., -top_k, None]", "[..., -1, None]",
)  # fmt: skip
route.slip(
    "F29", "tokens-chosen-by-heads",
    "You choose the best tokens for each head; here each token chooses its heads (axis −1).",
    GATES,
    "    smallest = np.sort(logits, axis=-2)[..., -min(top_k, logits.shape[-2]), None, :]\n" + GATES,
)  # fmt: skip
route.slip(
    "A13", "softmax-over-tokens", "Your softmax runs over the tokens: the gates of each token should sum to 1.",
    GATES,
    "    kept = np.exp(logits - logits.max(axis=-2, keepdims=True)) * (logits >= smallest)\n"
    "    return kept / np.maximum(kept.sum(axis=-2, keepdims=True), 1e-300)",
)  # fmt: skip
route.slip(
    "X41", "sorted-gates", "Your gates stand in order of size: each belongs in the place of its head.",
    GATES, "    return np.sort(masked_softmax(logits, logits >= smallest), axis=-1)[..., ::-1]",
)  # fmt: skip
route.slip(
    "X41", "only-the-chosen", "Your result has `top_k` columns; it has one for each head, with 0 where none was chosen.",
    GATES, "    return softmax(np.sort(logits, axis=-1)[..., -top_k:])",
)  # fmt: skip
route.slip(
    "X42", "heads-first", "Your gates have the axes (…, h, n); (…, n, h) is asked for.",
    GATES, "    return np.swapaxes(masked_softmax(logits, logits >= smallest), -1, -2)",
)  # fmt: skip
route.slip(
    "X43", "zero-or-one", "Your gates are True and False: the softmax over the chosen logits is missing.",
    GATES, "    return logits >= smallest",
)  # fmt: skip
route.slip(
    "A09", "no-maximum", "exp of large logits overflows: subtract each row's maximum, or call softmax.",
    GATES,
    "    kept = np.exp(logits) * (logits >= smallest)\n    return kept / kept.sum(axis=-1, keepdims=True)",
)  # fmt: skip
route.slip(
    "X44", "scaled-logits", "Your logits are divided by a root of a width; the contract takes x W_r as it is.",
    "linear(x, W_r)", "linear(x, W_r) / math.sqrt(x.shape[-1])",
)  # fmt: skip
route.slip(
    "B15", "penalty-1", "The other heads keep small gates: a finite penalty is not enough, exactly 0 is asked for.",
    GATES, "    return softmax(np.where(logits >= smallest, logits, logits - 10))",
)  # fmt: skip
route.slip(
    "X45", "top-k-clamped", "A `top_k` outside 1 … h is brought inside silently; it must raise a ValueError.",
    "    if not 1 <= top_k <= logits.shape[-1]:\n"
    '        raise ValueError(f"top_k is {top_k}, and there are {logits.shape[-1]} heads")\n',
    "    top_k = min(max(top_k, 1), logits.shape[-1])\n",
)  # fmt: skip
route.slip(
    "X45", "zero-accepted", "A `top_k` of 0 or less raises no ValueError.",
    "if not 1 <= top_k <= logits.shape[-1]:", "if top_k > logits.shape[-1]:",
)  # fmt: skip
route.slip(
    "X45", "too-many-accepted", "A `top_k` above the number of heads ends in another error than ValueError, or in none.",
    "if not 1 <= top_k <= logits.shape[-1]:", "if top_k < 1:",
)  # fmt: skip


@route.alternative("argsort and put back")
def by_argsort(x, W_r, top_k):
    logits = np.asarray(x @ W_r, dtype=float)
    if top_k < 1 or top_k > W_r.shape[1]:
        raise ValueError("top_k")
    index = np.argsort(logits, axis=-1)[..., -top_k:]
    chosen = np.take_along_axis(logits, index, axis=-1)
    gates = np.zeros_like(logits)
    np.put_along_axis(gates, index, softmax(chosen), axis=-1)
    return gates


@route.alternative("softmax over all, renormalised")
def softmax_renormalised(x, W_r, top_k):
    logits = np.matmul(x, W_r)
    if not 0 < top_k <= logits.shape[-1]:
        raise ValueError(top_k)
    gates = softmax(np.where(logits < np.sort(logits)[..., [-top_k]], -1e9, logits))
    return gates / gates.sum(axis=-1, keepdims=True)


@route.alternative("token by token")
def token_by_token(x, W_r, top_k):
    if x.shape[-1] != W_r.shape[0] or not 1 <= top_k <= W_r.shape[-1]:
        raise ValueError("no fit")
    if x.ndim > 2:
        return [token_by_token(item, W_r, top_k) for item in x]
    rows = []
    for token in x:
        logits = [float(token @ column) for column in W_r.T]
        best = sorted(range(len(logits)), key=lambda i: -logits[i])[:top_k]
        total = sum(math.exp(logits[i] - logits[best[0]]) for i in best)
        rows.append([0.0] * len(logits))
        for i in best:
            rows[-1][i] = math.exp(logits[i] - logits[best[0]]) / total
    return rows


@route.alternative("partition, minus infinity")
def by_partition(x, W_r, top_k):
    logits = np.matmul(x, W_r)
    h = logits.shape[-1]
    if top_k not in range(1, h + 1):
        raise ValueError(f"{top_k} of {h}")
    rest = np.argpartition(logits, h - top_k, axis=-1)[..., : h - top_k]
    kept = logits.astype(float)
    np.put_along_axis(kept, rest, -np.inf, axis=-1)
    return softmax(kept)


# --- routed_multi_head_attention -------------------------------------------------------------------

routed = exercise.function("routed_multi_head_attention", uses=("route_heads",))
ROUTED = "routed_multi_head_attention(x, W_q, W_k, W_v, W_o, W_r, num_heads, top_k)"
KEYWORDS = (
    "routed_multi_head_attention(x=x, W_q=W_q, W_k=W_k, W_v=W_v, W_o=W_o, W_r=W_r, "
    "num_heads=num_heads, top_k=top_k)"
)
X3 = np.array([[1.0, 0.0, 2.0, -1.0], [0.5, 1.0, 0.0, 1.0], [-1.0, 2.0, 1.0, 0.0]])
PAIR = np.array([[1.0, -1.0], [0.0, 1.0], [0.5, 0.0], [1.0, 2.0]])


def weights_for_witness():
    """Four different matrices with small entries."""
    grid = np.arange(16.0).reshape(4, 4)
    return {f"W_{c}": np.round(np.sin(grid * (k + 1) + k), 1) for k, c in enumerate("qkvo")}


def routed_case(rng, batch=(), n=5, h=3, d_k=4, k=2):
    d = h * d_k
    weights = {f"W_{c}": rng.normal(size=(d, d)) / math.sqrt(d) * 1.4 for c in "qkvo"}
    sizes = {"W_r": rng.normal(size=(d, h)) / math.sqrt(d) * 1.5, "num_heads": h, "top_k": k}
    return {"x": rng.normal(size=(*batch, n, d)), **weights, **sizes}


CHOSEN = {"x": X3, **weights_for_witness(), "W_r": PAIR, "num_heads": 2, "top_k": 2}
WHOLE = np.array([[1, 0, 2, -1], [0, 1, -1, 1]])
one_head = {"W_r": np.zeros((4, 1)), "num_heads": 1, "top_k": 1}
routed.witness("values", "C1", ROUTED, **{**CHOSEN, **one_head})
# Both heads first: gates of 1 and 0 make too many mistakes look alike.
routed.witness("values", "C2", ROUTED, **CHOSEN)
routed.witness("values", "C2", ROUTED, **{**CHOSEN, "top_k": 1})
routed.witness("values", "C3", ROUTED, **{**CHOSEN, "x": np.stack([X3[:2], X3[1:]])})
routed.witness("values", "C3", ROUTED, **{**CHOSEN, "x": WHOLE})
for misfit in (
    {"W_r": np.ones((4, 3)), "num_heads": 3, "top_k": 1},
    {"top_k": 3},
    {"W_r": np.ones((4, 4))},
    {"W_r": np.ones((4, 1)), "top_k": 1},
):
    routed.witness("errors", "C4", ROUTED, **{**CHOSEN, **misfit}, options=RAISES)


@routed.hidden("values")
def _(rng):
    yield Example("C1", ROUTED, routed_case(rng, (), 5, 1, 6, 1))
    same = routed_case(rng, (), 5, 3, 4, 3)  # equal gates: multi-head attention, divided by h
    same["W_r"][:] = 0
    yield Example("C1", ROUTED, same)
    for n, h, d_k, k in (
        (5, 3, 4, 2),
        (4, 2, 5, 1),
        (7, 5, 2, 3),
        (1, 4, 3, 2),
        (6, 4, 2, 4),
        (3, 3, 3, 2),
    ):
        yield Example("C2", ROUTED, routed_case(rng, (), n, h, d_k, k))
    yield Example("C2", KEYWORDS, routed_case(rng, (), 6, 4, 1, 2))
    for batch in ((3,), (2, 3), (1,)):
        yield Example("C3", ROUTED, routed_case(rng, batch))
    yield Example("C3", ROUTED, routed_case(rng, (3,), 3, 3, 3, 1))
    case = routed_case(rng)
    yield Example("C3", ROUTED, {**case, "x": (case["x"] * 3).round().astype(int)})
    single = {k: v.astype(np.float32) if k[0] in "xW" else v for k, v in routed_case(rng).items()}
    yield Example("C3", ROUTED, single)


@routed.hidden("errors")
def _(rng):
    for h, heads in ((3, 5), (4, 3), (2, 8)):  # widths 12, 16 and 6 with as many columns as heads
        case = routed_case(rng, (), 5, h, {3: 4, 4: 4, 2: 3}[h], 1)
        case["W_r"] = rng.normal(size=(case["x"].shape[-1], heads))
        yield Example("C4", ROUTED, {**case, "num_heads": heads}, raises="ValueError")
    for columns in (2, 4, 6, 1, 12):
        case = routed_case(rng, (), 5, 3, 4, 1)
        yield Example(
            "C4", ROUTED, {**case, "W_r": rng.normal(size=(12, columns))}, raises="ValueError"
        )
    for k in (0, 4, -1, 12):
        yield Example("C4", ROUTED, {**routed_case(rng), "top_k": k}, raises="ValueError")


GATED = "gated = heads * np.swapaxes(gates, -1, -2)[..., None]"
routed.slip(
    "X46", "no-gates", "The gates have no effect: your result is plain multi-head attention.",
    GATED, "gated = heads",
)  # fmt: skip
routed.slip(
    "X46", "gates-as-switches", "A chosen head counts fully: scale it by its gate.",
    GATED, "gated = heads * (np.swapaxes(gates, -1, -2)[..., None] > 0)",
)  # fmt: skip
routed.slip(
    "X47", "gates-at-the-keys",
    "The values are scaled by the gates of their own tokens before attention. It is the query token that chooses: scale what each head gives it.",
    "heads, _ = attention(Q, K, V)\n    " + GATED,
    "gated, _ = attention(Q, K, V * np.swapaxes(gates, -1, -2)[..., None])",
)  # fmt: skip
routed.slip(
    "X47", "gates-at-the-queries",
    "The queries are scaled by the gates: that changes the weights inside a head. Scale the head's output.",
    "heads, _ = attention(Q, K, V)\n    " + GATED,
    "gated, _ = attention(Q * np.swapaxes(gates, -1, -2)[..., None], K, V)",
)  # fmt: skip
routed.slip(
    "X48", "gates-of-the-first-token", "All tokens use the gates of the first one.",
    GATED, "gated = heads * np.swapaxes(gates, -1, -2)[..., :1, None]",
)  # fmt: skip
routed.slip(
    "X48", "mean-gates", "All tokens use the mean of the gates; each token has its own.",
    GATED, "gated = heads * np.swapaxes(gates, -1, -2).mean(axis=-1, keepdims=True)[..., None]",
)  # fmt: skip
routed.slip(
    "X49", "gates-by-column",
    "The gates are laid over the columns in turn (as by np.tile): head i owns d_k columns in a row.",
    "    return linear(merge_heads(gated), W_o)",
    "    return linear(merge_heads(heads) * np.tile(gates, heads.shape[-1]), W_o)",
)  # fmt: skip
routed.slip(
    "X49", "gates-reshaped",
    "The gates (…, n, h) are brought to (…, h, n) by a reshape, which mixes tokens and heads: exchange the two axes.",
    GATED, "gated = heads * np.reshape(gates, heads.shape[:-1])[..., None]",
)  # fmt: skip
routed.slip(
    "X48", "gates-from-the-heads",
    "The router looks at what the heads gave. It looks at the tokens: route_heads(x, W_r, top_k).",
    GATED,
    "gates = route_heads(merge_heads(heads), W_r, top_k)\n    " + GATED,
)  # fmt: skip
routed.slip(
    "X50", "gates-after-the-output", "The gates scale the columns of the result: they belong before W_o, while the heads are apart.",
    "    return linear(merge_heads(gated), W_o)",
    "    return linear(merge_heads(heads), W_o) * np.repeat(gates, heads.shape[-1], axis=-1)",
)  # fmt: skip
routed.slip(
    "X51", "gates-times-heads", "The gated heads are scaled up again by the number of chosen heads; the contract does not.",
    GATED, "gated = top_k * heads * np.swapaxes(gates, -1, -2)[..., None]",
)  # fmt: skip
routed.slip(
    "X51", "gates-times-all-heads", "The gated heads are scaled up again by the number of heads; the contract does not.",
    GATED, "gated = num_heads * heads * np.swapaxes(gates, -1, -2)[..., None]",
)  # fmt: skip
routed.slip(
    "F27", "gates-of-all-heads", "Your gates come from a softmax over all heads, so they do not sum to 1 over the chosen ones: call route_heads.",
    GATED, "gated = heads * np.swapaxes(softmax(linear(x, W_r)) * (gates > 0), -1, -2)[..., None]",
)  # fmt: skip
routed.slip(
    "X52", "other-heads-chosen", "Gates and heads do not match: the order of the heads is reversed.",
    GATED, "gated = heads * np.swapaxes(gates[..., ::-1], -1, -2)[..., None]",
)  # fmt: skip
routed.slip(
    "C22", "no-output-matrix", SAID["no-output-matrix"],
    "linear(merge_heads(gated), W_o)", "merge_heads(gated)",
)  # fmt: skip
routed.slip(
    "C03", "joined-by-reshape", SAID["joined-by-reshape"],
    "merge_heads(gated)", "gated.reshape(x.shape)",
)  # fmt: skip
routed.slip(
    "C06", "interleaved", SAID["interleaved"],
    "(split_heads(linear(x, W), num_heads) for W in (W_q, W_k, W_v))",
    "(np.moveaxis(linear(x, W).reshape(*x.shape[:-1], -1, num_heads), -1, -3) for W in (W_q, W_k, W_v))",
)  # fmt: skip
routed.slip(
    "C19", "queries-and-keys-exchanged", SAID["queries-and-keys-exchanged"],
    "in (W_q, W_k, W_v)", "in (W_k, W_q, W_v)",
)  # fmt: skip
routed.slip(
    "C17", "weights-transposed", "Your weights are transposed: they apply on the right, x @ W.",
    "linear(x, W)", "linear(x, W.T)",
)  # fmt: skip
routed.slip(
    "B57", "keys-as-values", "W_v is not used: the values come from it.",
    "in (W_q, W_k, W_v)", "in (W_q, W_k, W_k)",
)  # fmt: skip
routed.slip(
    "B03", "scale-by-the-width", "Your scores are divided by the root of the whole width d: a head's own width d_k is meant.",
    "attention(Q, K, V)", "attention(Q / math.sqrt(num_heads), K, V)",
)  # fmt: skip
routed.slip(
    "C26", "residual-added", SAID["residual-added"],
    "    return linear(merge_heads(gated), W_o)", "    return x + linear(merge_heads(gated), W_o)",
)  # fmt: skip
routed.slip(
    "B61", "with-the-gates", "Your function returns the gates as well; the output alone is asked for.",
    "    return linear(merge_heads(gated), W_o)", "    return linear(merge_heads(gated), W_o), gates",
)  # fmt: skip
routed.slip(
    "X53", "router-not-checked", "A W_r with more or fewer columns than heads raises no ValueError: it may broadcast.",
    "if W_r.shape[1] != num_heads:", "if W_r.shape[1] not in (1, num_heads):",
)  # fmt: skip
routed.slip(
    "A26", "output-like-x", SAID["output-like-x"],
    "    return linear(merge_heads(gated), W_o)", "    return linear(merge_heads(gated), W_o).astype(x.dtype)",
)  # fmt: skip


@routed.misconception(
    "X54",
    "The heads are taken from the input's columns before the projections: project first, with the whole matrices.",
)
def split_before_projecting(x, W_q, W_k, W_v, W_o, W_r, num_heads, top_k):
    if W_r.shape[1] != num_heads:
        raise ValueError("router")
    gates = np.swapaxes(route_heads(x, W_r, top_k), -1, -2)[..., None]
    parts = split_heads(x, num_heads)
    d_k = parts.shape[-1]
    heads, _ = attention(*(parts @ W[:d_k, :d_k] for W in (W_q, W_k, W_v)))
    return linear(merge_heads(heads * gates), W_o)


@routed.alternative("head by head, products summed")
def head_by_head(x, W_q, W_k, W_v, W_o, W_r, num_heads, top_k):
    d = x.shape[-1]
    if d % num_heads or W_r.shape != (d, num_heads):
        raise ValueError("heads")
    gates = np.asarray(route_heads(x, W_r, top_k))
    d_k = d // num_heads
    result = np.zeros(x.shape)
    for i in range(num_heads):
        own = slice(i * d_k, (i + 1) * d_k)
        head, _ = attention(x @ W_q[:, own], x @ W_k[:, own], x @ W_v[:, own])
        result += gates[..., i, None] * (head @ W_o[own])
    return result


@routed.alternative("gates repeated over the merged columns")
def gates_repeated(x, W_q, W_k, W_v, W_o, W_r, num_heads, top_k):
    if x.shape[-1] % num_heads != 0 or W_r.shape[-1] != num_heads:
        raise ValueError
    Q, K, V = [split_heads(x @ W, num_heads) for W in (W_q, W_k, W_v)]
    merged = merge_heads(attention(Q, K, V)[0])
    gates = np.repeat(route_heads(x, W_r, top_k), x.shape[-1] // num_heads, axis=-1)
    return (merged * gates) @ W_o


@routed.alternative("einsum over everything")
def by_einsum(x, W_q, W_k, W_v, W_o, W_r, num_heads, top_k):
    *_, d = x.shape
    if d % num_heads or W_r.shape[1] != num_heads or top_k < 1 or top_k > num_heads:
        raise ValueError("sizes")
    W_q, W_k, W_v = (W.reshape(d, num_heads, -1) for W in (W_q, W_k, W_v))
    q, k, v = (np.einsum("...nd,dhk->...hnk", x, W) for W in (W_q, W_k, W_v))
    weights = softmax(np.einsum("...hik,...hjk->...hij", q, k) / np.sqrt(q.shape[-1]))
    logits = x @ W_r
    kept = np.where(logits >= np.sort(logits)[..., [num_heads - top_k]], logits, -np.inf)
    heads = np.einsum("...hij,...hjk,...ih->...ihk", weights, v, softmax(kept))
    return np.einsum("...nhk,hkd->...nd", heads, W_o.reshape(num_heads, -1, d)).tolist()


# --- break_chunked_hash_attention ------------------------------------------------------------------

found = BreakIt(exercise, "break_chunked_hash_attention", answer="C2", sentences=7)
SHOWS = """buckets = np.array(break_chunked_hash_attention()[1]) + shift
chunk = np.zeros(len(buckets), dtype=int)
chunk[np.argsort(buckets, kind="stable")] = np.arange(len(buckets)) // 4
same = buckets[:, None] == buckets
lost = same & (chunk[:, None] != chunk)
why = "one chunk holds them all" if len(buckets) <= 4 else "every bucket lies within a chunk"
"a query loses keys" if lost.any() else why"""
found.fits(
    "buckets = np.array(break_chunked_hash_attention()[1])\n"
    "bool(buckets.ndim == 1 and 1 <= len(buckets) <= 12 and np.all(buckets == np.floor(buckets)))"
)
found.fits(SHOWS, "a query loses keys", shift=0)
found.shows(  # the numbers of the buckets do not matter
    SHOWS, "a query loses keys", lambda rng: {"shift": int(rng.integers(-9, 9))}
)

for name, sentence, message in (
    ("the-softmax", "C1", "The softmax is right for the keys that a query sees. Which sentence says which keys these are?"),
    ("the-empty-bucket", "C3", "Queries and keys have the same buckets here, so no bucket is without a key. Which sentence says what a query sees?"),
    ("the-batch", "C4", "It takes any integers, and the numbers are wrong without a batch, too. Which sentence says what a query sees?"),
    ("the-numbers", "C5", "Large scores and integers come out right. Which sentence says what a query sees?"),
    ("the-memory", "C6", "It needs little memory, even less than it should: which sentence says what a query sees?"),
    ("the-shapes", "C7", "The shapes fit here. Which sentence says what a query sees?"),
):  # fmt: skip
    found.blames("X55", f"blames-{name}", sentence, message)
found.input(
    "X56", "one-chunk", "Up to four positions are one chunk, and nothing is lost: take more.",
    "np.array([0, 1, 0, 1])",
)  # fmt: skip
found.input(
    "X56", "chunks-fit",
    "In sorted order every one of your buckets lies within a chunk of four: nothing is lost. Let a bucket reach over the end of a chunk.",
    "np.array([0, 1, 0, 1, 0, 1, 0, 1])",
)  # fmt: skip
found.input(
    "X57", "too-long", "At most 12 positions are asked for, in one row of integers: a shorter input can show it.",
    "np.zeros(20, dtype=int)",
)  # fmt: skip
found.returns(
    "X58", "without-the-sentence", "Two things are asked for: the sentence and the buckets.", "np.array([0, 0, 0, 0, 0])",
)  # fmt: skip


@found.alternative("a list, a bucket over the end of a chunk")
def over_the_end():
    return ["C2", [3, 3, 3, -1, -1, -1]]


@found.alternative("many small buckets")
def many_small():
    return "C2", np.arange(12) // 3
