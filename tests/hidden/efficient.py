"""Hidden tests of chapter 09: online softmax, tiles, linear attention, shared heads, a cache."""

import numpy as np

from manyheads import efficient
from tests.hidden.spec import Example, Exercise

exercise = Exercise("09_efficient", efficient)
grade = exercise.grade
RAISES = {"raises": "ValueError"}


def draw(rng, batch=(), n=5, m=7, d_k=4, d_v=3, dtype=float):
    """Queries, keys and values with all sizes different and moderate scores."""
    Q = rng.normal(size=(*batch, n, d_k)) * 1.3
    K = rng.normal(size=(*batch, m, d_k)) * 1.3
    V = rng.normal(size=(*batch, m, d_v)) + 0.5
    return {"Q": Q.astype(dtype), "K": K.astype(dtype), "V": V.astype(dtype)}


# --- merge_partial -----------------------------------------------------------------------------------

merge = exercise.function("merge_partial")
MERGE = "merge_partial(m1, l1, o1, m2, l2, o2)"


def state(scores, values, number):
    """The state (m, l, o) of these scores, as inputs numbered 1 or 2."""
    m = scores.max(axis=-1)
    powers = np.exp(scores - m[..., None])
    parts = {"m": m, "l": powers.sum(axis=-1), "o": powers @ values}
    return {f"{name}{number}": value for name, value in parts.items()}


def nothing(shape, d_v, number, dtype=float):
    """The empty state."""
    parts = {"m": np.full(shape, -np.inf), "l": np.zeros(shape), "o": np.zeros((*shape, d_v))}
    return {f"{name}{number}": value.astype(dtype) for name, value in parts.items()}


ONE = {
    "m1": np.array([1.0, 0.0]),
    "l1": np.array([1.5, 1.0]),
    "o1": np.array([[2.0, 0.0, 1.0], [1.0, 1.0, 1.0]]),
}
TWO = {
    "m2": np.array([0.0, 2.0]),
    "l2": np.array([2.0, 1.0]),
    "o2": np.array([[1.0, 4.0, 0.0], [3.0, 0.0, 5.0]]),
}
FAR = {"m2": np.array([5000.0, -5000.0]), "l2": TWO["l2"], "o2": TWO["o2"]}

merge.witness("values", "C1", MERGE, **ONE, **TWO)
merge.witness("values", "C2", MERGE, **ONE, **FAR)
merge.witness("empty", "C3", MERGE, **nothing((2,), 3, 1), **TWO, options={"no_warning": True})
merge.witness("empty", "C3", MERGE, **ONE, **nothing((2,), 3, 2), options={"no_warning": True})
merge.witness(
    "empty", "C3", MERGE, **nothing((2,), 3, 1), **nothing((2,), 3, 2), options={"no_warning": True}
)


def two_states(rng, batch, n, m1, m2, d_v, lift=0.0, dtype=float):
    one = state(rng.normal(size=(*batch, n, m1)) * 2 + lift, rng.normal(size=(*batch, m1, d_v)), 1)
    two = state(rng.normal(size=(*batch, n, m2)) * 2, rng.normal(size=(*batch, m2, d_v)), 2)
    return {name: value.astype(dtype) for name, value in {**one, **two}.items()}


@merge.hidden("values")
def _(rng):
    for batch, n, m1, m2, d_v in (
        ((), 5, 3, 4, 2),
        ((3,), 4, 1, 6, 5),
        ((2, 3), 2, 5, 1, 7),
        ((), 4, 3, 3, 4),
    ):
        yield Example("C1", MERGE, two_states(rng, batch, n, m1, m2, d_v))
    for lift in (3000.0, -3000.0, 1e6):
        yield Example("C2", MERGE, two_states(rng, (2,), 3, 4, 2, 5, lift), no_warning=True)
    yield Example("C1", MERGE, two_states(rng, (3,), 4, 2, 3, 5, dtype=np.float32))


@merge.hidden("empty")
def _(rng):
    for batch, n, d_v in (((), 4, 3), ((2,), 3, 5)):
        full = two_states(rng, batch, n, 3, 2, d_v)
        one = {name: value for name, value in full.items() if name.endswith("1")}
        two = {name: value for name, value in full.items() if name.endswith("2")}
        left, right = nothing((*batch, n), d_v, 1), nothing((*batch, n), d_v, 2)
        yield Example("C3", MERGE, {**left, **two}, no_warning=True)
        yield Example("C3", MERGE, {**one, **right}, no_warning=True)
        yield Example("C3", MERGE, {**left, **right}, no_warning=True)
    some = two_states(rng, (), 4, 3, 2, 3)  # one row of each is empty, another row of both
    for number, rows in ((1, [0, 2]), (2, [1, 2])):
        some[f"m{number}"][rows] = -np.inf
        some[f"l{number}"][rows] = 0
        some[f"o{number}"][rows] = 0
    yield Example("C3", MERGE, some, no_warning=True)
    single = {**nothing((3,), 2, 1, np.float32), **nothing((3,), 2, 2, np.float32)}
    yield Example("C3", MERGE, single, no_warning=True)


RESULT = "return m, a1 * l1 + a2 * l2, a1[..., None] * o1 + a2[..., None] * o2"
FACTORS = "a1, a2 = np.exp(m1 - finite), np.exp(m2 - finite)"
for code, name, message, old, new in (
    ("G01", "not-rescaled", "The old sums are added as they are: bring each to the common maximum first.",
     RESULT, "return m, l1 + l2, o1 + o2"),
    ("G01", "first-not-rescaled", "Only the second state is brought to the new maximum; the first may need it as well.",
     FACTORS, "a1, a2 = np.ones_like(m), np.exp(m2 - finite)"),
    ("G01", "second-not-rescaled", "Only the first state is brought to the new maximum; the second may need it as well.",
     FACTORS, "a1, a2 = np.exp(m1 - finite), np.ones_like(m)"),
    ("G01", "output-not-rescaled", "The sums of exponentials are rescaled, the outputs are not.",
     RESULT, "return m, a1 * l1 + a2 * l2, o1 + o2"),
    ("G01", "sum-not-rescaled", "The outputs are rescaled, the sums of exponentials are not.",
     RESULT, "return m, l1 + l2, a1[..., None] * o1 + a2[..., None] * o2"),
    ("G02", "factors-inverted", "The factor is upside down: it is exp(old maximum − new maximum), at most 1.",
     FACTORS, "a1, a2 = np.exp(finite - m1), np.exp(finite - m2)"),
    ("G02", "factors-exchanged", "The factors are exchanged: each state has its own.",
     RESULT, "return m, a2 * l1 + a1 * l2, a2[..., None] * o1 + a1[..., None] * o2"),
    ("X80", "smaller-maximum", "The smaller of the two maxima is taken: then the larger one overflows.",
     "m = np.maximum(m1, m2)", "m = np.minimum(m1, m2)"),
    ("X81", "maximum-of-all", "One maximum for all queries is taken; each row has its own.",
     "m = np.maximum(m1, m2)", "m = np.full_like(m1, max(m1.max(), m2.max()))"),
    ("X82", "normalised", "The output is divided by l already; the state keeps it unnormalised.",
     RESULT, "l = a1 * l1 + a2 * l2\n    return m, l, (a1[..., None] * o1 + a2[..., None] * o2) / np.where(l > 0, l, 1)[..., None]"),
    ("X83", "normalised-states", "o is treated as a mean and weighted with l again; it is a sum already.",
     RESULT, "return m, a1 * l1 + a2 * l2, (a1 * l1)[..., None] * o1 + (a2 * l2)[..., None] * o2"),
    ("G06", "log-sum-exp", "The first result is the logarithm of the sum; the maximum is asked for.",
     RESULT, "l = a1 * l1 + a2 * l2\n    return np.where(l > 0, m + np.log(np.where(l > 0, l, 1)), m), l, a1[..., None] * o1 + a2[..., None] * o2"),
    ("G03", "nan-for-two-empty", "Two empty states give NaN: −inf − (−inf). Subtract 0 where the maximum is −inf.",
     "finite = np.where(np.isneginf(m), 0, m)", "finite = m"),
    ("X84", "empty-state-wins", "An empty state makes the result empty: its factor is 0, not the other's.",
     RESULT, "gone = np.isneginf(m1) | np.isneginf(m2)\n    a1, a2 = np.where(gone, 0, a1), np.where(gone, 0, a2)\n    " + RESULT),
    ("A11", "factors-on-the-wrong-axis", "The factors need a last axis of 1 to meet the outputs: a1[..., None].",
     RESULT, "return m, a1 * l1 + a2 * l2, a1 * o1 + a2 * o2"),
    ("X85", "averaged", "The two are averaged; the state is a sum.",
     RESULT, "return m, (a1 * l1 + a2 * l2) / 2, (a1[..., None] * o1 + a2[..., None] * o2) / 2"),
    ("X86", "another-order", "The results come as (m, o, l); (m, l, o) is asked for.",
     RESULT, "return m, a1[..., None] * o1 + a2[..., None] * o2, a1 * l1 + a2 * l2"),
    ("B31", "huge-number-for-empty", "The maximum of two empty states comes out as a number; it is −inf.",
     RESULT, "m = finite\n    " + RESULT),
):  # fmt: skip
    merge.slip(code, name, message, old, new)


@merge.misconception("A24", "Your function changes the first state in place.")
def in_place(m1, l1, o1, m2, l2, o2):
    m = np.maximum(m1, m2)
    finite = np.where(np.isneginf(m), 0, m)
    a1, a2 = np.exp(m1 - finite), np.exp(m2 - finite)
    l1 *= a1
    o1 *= a1[..., None]
    return m, l1 + a2 * l2, o1 + a2[..., None] * o2


@merge.alternative("logaddexp")
def by_logaddexp(m1, l1, o1, m2, l2, o2):
    m = np.where(m1 > m2, m1, m2)
    base = np.nan_to_num(m, neginf=0.0)
    l, o = 0, 0
    for mm, ll, oo in ((m1, l1, o1), (m2, l2, o2)):
        factor = np.exp(mm - base)
        l = l + factor * ll
        o = o + np.expand_dims(factor, -1) * oo
    return [m, l, o]


@merge.alternative("cases by np.where")
def by_cases(m1, l1, o1, m2, l2, o2):
    with np.errstate(invalid="ignore"):
        down1 = np.where(m2 > m1, np.exp(np.minimum(m1 - m2, 0)), 1.0)
        down2 = np.where(m1 > m2, np.exp(np.minimum(m2 - m1, 0)), 1.0)
    return (
        np.maximum(m1, m2),
        l1 * down1 + l2 * down2,
        o1 * down1[..., None] + o2 * down2[..., None],
    )


@merge.alternative("loops into lists")
def merged_by_loops(m1, l1, o1, m2, l2, o2):
    if np.ndim(m1) > 1:
        parts = [merged_by_loops(*rows) for rows in zip(m1, l1, o1, m2, l2, o2)]
        return tuple([part[k] for part in parts] for k in range(3))
    ms, ls, os = [], [], []
    for a, la, oa, b, lb, ob in zip(m1, l1, o1, m2, l2, o2):
        top = max(a, b)
        fa = math.exp(a - top) if a > -math.inf else 0.0
        fb = math.exp(b - top) if b > -math.inf else 0.0
        ms.append(float(top))
        ls.append(float(fa * la + fb * lb))
        os.append([float(fa * x + fb * y) for x, y in zip(oa, ob)])
    return ms, ls, os


@merge.alternative("stacked")
def stacked(m1, l1, o1, m2, l2, o2):
    m, l, o = np.stack([m1, m2]), np.stack([l1, l2]), np.stack([o1, o2])
    top = m.max(axis=0)
    with np.errstate(invalid="ignore"):
        factors = np.nan_to_num(np.exp(m - top), nan=0.0)
    return top, (factors * l).sum(0), (factors[..., None] * o).sum(0)


# --- tiled_attention ---------------------------------------------------------------------------------

tiled = exercise.function("tiled_attention", uses=("merge_partial",))
TILED = "tiled_attention(Q, K, V, tile)"
CAUSAL = "tiled_attention(Q, K, V, tile, causal=True)"
Q2 = np.array([[1.0, 0.0], [0.5, -1.0]])
K5 = np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5], [2.0, 0.0], [0.5, 0.5]])
V5 = np.array(
    [[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [2.0, 2.0, -1.0], [3.0, -1.0, 0.0], [0.0, 0.5, 1.0]]
)
LONG = (
    "t = np.arange(4096.0).reshape(1024, 4)\n"
    "Q, K, V = np.sin(t), np.cos(0.7 * t), np.sin(0.3 * t)\n"
)

tiled.witness("values", "C1", TILED, Q=Q2, K=K5, V=V5, tile=2)
tiled.witness("values", "C1", TILED, Q=Q2, K=K5, V=V5, tile=9)
tiled.witness("causal", "C2", CAUSAL, Q=K5[:3], K=K5[:3], V=V5[:3], tile=2)
tiled.witness("causal", "C2", CAUSAL, Q=Q2, K=K5, V=V5, tile=2)
tiled.witness("causal", "C2", CAUSAL, Q=K5[:3], K=K5[:2], V=V5[:2], tile=1)
tiled.witness("stability", "C3", TILED, Q=Q2 * [[4000.0], [1.0]], K=K5, V=V5, tile=2)
tiled.witness(
    "stability",
    "C3",
    TILED,
    Q=np.array([[1, 2]]),
    K=np.array([[1, 0], [0, 1], [1, 1]]),
    V=np.array([[1], [2], [4]]),
    tile=2,
)
tiled.witness(
    "memory",
    "C4",
    LONG + "np.mean(tiled_attention(Q, K, V, 8), axis=0)",
    options={"memory": 1024.0**2, "once": True},
)
tiled.witness("errors", "C5", TILED, Q=Q2, K=K5[:, :1], V=V5, tile=2, options=RAISES)
tiled.witness("errors", "C5", TILED, Q=Q2, K=K5, V=V5[:4], tile=2, options=RAISES)


@tiled.hidden("values")
def _(rng):
    for n, m, tile in (
        (5, 7, 1),
        (5, 7, 2),
        (5, 7, 3),
        (4, 7, 7),
        (5, 6, 3),
        (3, 5, 8),
        (1, 9, 4),
        (6, 1, 2),
    ):
        yield Example("C1", TILED, {**draw(rng, (), n, m), "tile": tile})
    yield Example("C1", TILED, {**draw(rng, (), 4, 4, 4, 4), "tile": 2})
    for batch in ((3,), (2, 3)):
        yield Example("C1", TILED, {**draw(rng, batch), "tile": 3})
    grows = draw(rng, (), 4, 9)
    grows["Q"], grows["K"] = (
        np.abs(grows["Q"]),
        np.sort(grows["K"], axis=0),
    )  # larger scores come later
    yield Example("C1", TILED, {**grows, "tile": 2})
    yield Example(
        "C1", "tiled_attention(Q, K, V, tile=tile, causal=False)", {**draw(rng), "tile": 3}
    )
    named = "tiled_attention(Q=Q, K=K, V=V, tile=tile)"
    yield Example("C1", named, {**draw(rng, (), 3, 5, 9, 2), "tile": 2})


@tiled.hidden("causal")
def _(rng):
    for n, m, tile in (
        (7, 7, 1),
        (7, 7, 2),
        (7, 7, 3),
        (6, 6, 3),
        (5, 5, 9),
        (3, 8, 3),
        (8, 3, 2),
        (1, 6, 4),
        (9, 4, 3),
    ):
        yield Example("C2", CAUSAL, {**draw(rng, (), n, m), "tile": tile}, no_warning=n > m)
    yield Example("C2", CAUSAL, {**draw(rng, (2, 3), 5, 5), "tile": 2})
    yield Example(
        "C2", "tiled_attention(Q, K, V, tile, True)", {**draw(rng, (3,), 4, 6), "tile": 4}
    )


@tiled.hidden("stability")
def _(rng):
    case = draw(rng, (3,), 5, 7)
    case["Q"][1, 2] *= 4000
    yield Example("C3", TILED, {**case, "tile": 3})
    case = draw(rng, (), 5, 7)
    case["Q"][:, 0], case["K"][:, 0] = 4000, -2 - 0.001 * rng.random(7)
    yield Example("C3", TILED, {**case, "tile": 2})
    case = draw(rng, (), 5, 6)  # each tile thousands above or below the one before
    case["Q"][:, 0], case["K"][:, 0] = (
        100,
        rng.permutation([-300.0, -100.0, 0.0, 50.0, 200.0, 201.0]),
    )
    yield Example("C3", TILED, {**case, "tile": 2})
    yield Example("C3", CAUSAL, {**case, "tile": 1})
    yield Example("C3", TILED, {**draw(rng, (2,), 5, 7, 16, dtype=np.float32), "tile": 3})
    whole = {name: np.round(value * 2).astype(int) for name, value in draw(rng).items()}
    yield Example("C3", TILED, {**whole, "tile": 3})
    other = {name: np.asfortranarray(value) for name, value in draw(rng, (2,)).items()}
    yield Example("C3", TILED, {**other, "tile": 3})


@tiled.hidden("memory")
def _(rng):
    long = draw(rng, (), 1024, 1024, 4, 4)
    for code in (TILED, CAUSAL):
        yield Example("C4", code, {**long, "tile": 8}, memory=1024.0**2, once=True)


@tiled.hidden("errors")
def _(rng):
    shapes = [
        ((4, 3), (5, 2), (5, 6)),
        ((4, 3), (5, 3), (6, 3)),
        ((4, 3), (5, 3), (1, 3)),
        ((4, 1), (5, 3), (5, 2)),
    ]
    shapes += [
        ((3, 4, 2), (2, 5, 2), (2, 5, 2)),
        ((3, 4, 2), (3, 5, 2), (2, 5, 2)),
        ((1, 4, 2), (3, 5, 2), (3, 5, 2)),
    ]
    shapes += [((4, 3), (6, 3), (4, 3))]
    for q, k, v in shapes:
        inputs = {
            "Q": rng.normal(size=q),
            "K": rng.normal(size=k),
            "V": rng.normal(size=v),
            "tile": 2,
        }
        yield Example("C5", TILED, inputs, raises="ValueError")


LOOP = "for start in range(0, m, tile):"
JOIN = "highest, total, mix = merge_partial(highest, total, mix, *state)"
LAST = "return mix / np.where(total > 0, total, 1)[..., None]"
SEEN = "position <= np.arange(n)[:, None] + m - n"
for code, name, message, old, new in (
    ("G05", "last-tile-ignored", "The last, short tile is left out: its keys never count.",
     LOOP, "for start in range(0, m - tile + 1, tile):"),
    ("F11", "one-tile-too-few", "The last tile is never read, full or short.",
     LOOP, "for start in range(0, max(m - tile, 1), tile):"),
    ("G05", "last-tile-filled-with-zeros", "The last tile is filled up with zeros, and the filling gets weight: exp(0) = 1.",
     "keys, values = K[..., start : start + tile, :], V[..., start : start + tile, :]",
     "keys, values = K[..., start : start + tile, :], V[..., start : start + tile, :]\n"
     "        gap = tile - keys.shape[-2]\n"
     "        wide = [(0, 0)] * (K.ndim - 2) + [(0, gap), (0, 0)]\n"
     "        keys, values = np.pad(keys, wide), np.pad(values, wide)"),
    ("G01", "not-rescaled", "A later tile with a larger maximum makes the old sums too heavy: rescale them.",
     JOIN, "highest, total, mix = np.maximum(highest, top), total + state[1], mix + state[2]"),
    ("X87", "mean-of-tiles", "Each tile gets a softmax of its own and the outputs are averaged: tiles with larger scores must count more.",
     JOIN, "mix = mix + np.divide(state[2], state[1][..., None], out=np.zeros_like(state[2]), where=state[1][..., None] > 0)\n"
     "        total = total + 1.0"),
    ("X88", "last-tile-normalises", "The output is divided by the last tile's sum; it has to be the sum over all tiles.",
     JOIN, JOIN + "\n        last = state[1]\n    total = last"),
    ("X89", "not-normalised", "The output is not divided by the sum of the exponentials.", LAST, "return mix"),
    ("X90", "normalised-every-tile", "The mix is divided by the sum after every tile, and again at the end.",
     JOIN, JOIN + "\n        mix = mix / np.where(total > 0, total, 1)[..., None]"),
    ("B01", "no-scale", "The scores are not divided by √d_k.",
     "scores = attention_scores(Q, keys)", "scores = attention_scores(Q, keys) * math.sqrt(Q.shape[-1])"),
    ("B39", "causal-ignored", "`causal` has no effect: later keys get weight.", "if causal:", "if causal and False:"),
    ("F12", "causal-by-tile", "Whole tiles are hidden or shown: inside a tile later keys can be seen.",
     SEEN, "start <= np.arange(n)[:, None] + m - n + 0 * position"),
    ("F12", "position-in-the-tile", "The position inside the tile is compared; add where the tile starts.",
     "position = start + np.arange(keys.shape[-2])", "position = np.arange(keys.shape[-2])"),
    ("B37", "top-left", "The causal mask is aligned at the start; the last query sees the last key.",
     SEEN, "position <= np.arange(n)[:, None]"),
    ("B34", "strict", "A query's own key is hidden.", SEEN, "position < np.arange(n)[:, None] + m - n"),
    ("B35", "one-too-far", "One later key can be seen.", SEEN, "position <= np.arange(n)[:, None] + m - n + 1"),
    ("G03", "nan-for-a-hidden-tile", "A tile in which a query sees nothing gives NaN: −inf − (−inf).",
     "finite = np.where(np.isneginf(top), 0, top)", "finite = top"),
    ("B31", "nan-for-nothing", "A query that sees no key at all gets 0/0; it should get 0.", LAST, "return mix / total[..., None]"),
    ("A09", "no-maximum", "exp overflows: subtract each row's maximum in each tile.",
     "finite = np.where(np.isneginf(top), 0, top)", "top = np.zeros_like(top)\n        finite = top"),
    ("A10", "maximum-of-the-tile", "One maximum for the whole tile: rows far below it vanish.",
     "top = scores.max(axis=-1)", "top = np.full(scores.shape[:-1], scores.max())"),
    ("A26", "result-like-values", "Integers are cut: the sums take their dtype from V.",
     LAST, "return (mix / np.where(total > 0, total, 1)[..., None]).astype(V.dtype)"),
    ("X16", "no-check-of-values", "Keys and values that do not belong together raise no ValueError.",
     "if V.shape[:-1] != K.shape[:-1]:", "V = np.resize(V, (*K.shape[:-1], V.shape[-1]))\n    if V.shape[:-1] != K.shape[:-1]:"),
):  # fmt: skip
    tiled.slip(code, name, message, old, new)


@tiled.misconception(
    "X93",
    "Somewhere a full n × m table is made: of scores, of weights or of a mask. Compute the scores, and the mask, of one tile "
    "at a time.",
)
def full_table(Q, K, V, tile, causal=False):
    mask = causal_mask(Q.shape[-2], K.shape[-2]) if causal else None
    return attention(Q, K, V, mask)[0]


@tiled.alternative("few queries at a time")
def few_queries(Q, K, V, tile, causal=False):
    n, m = Q.shape[-2], K.shape[-2]
    out = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for i in range(0, n, 8):
        q = Q[..., i : i + 8, :]
        mask = None
        if causal:
            mask = np.arange(m) <= np.arange(i, i + q.shape[-2])[:, None] + (m - n)
        out[..., i : i + 8, :] = attention(q, K, V, mask)[0]
    return out


@tiled.alternative("two passes over the keys")
def two_passes(Q, K, V, tile, causal=False):
    if K.shape[:-1] != V.shape[:-1] or Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    n, m = Q.shape[-2], K.shape[-2]

    def tiles():
        for s in range(0, m, tile):
            t = Q @ np.swapaxes(K[..., s : s + tile, :], -1, -2) * Q.shape[-1] ** -0.5
            if causal:
                hidden = np.arange(s, s + t.shape[-1]) > np.arange(m - n, m)[:, None]
                t = np.where(hidden, -1e9, t)
            yield s, t

    top = np.full((*Q.shape[:-1], 1), -np.inf)
    for _, t in tiles():
        top = np.maximum(top, t.max(-1, keepdims=True))
    total, out = 0, 0
    for s, t in tiles():
        e = np.exp(t - top) * (t > -5e8)
        total = total + e.sum(-1, keepdims=True)
        out = out + e @ V[..., s : s + tile, :]
    return out / np.where(total == 0, 1, total)


@tiled.alternative("recursion over halves")
def by_halves(Q, K, V, tile, causal=False):
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError("K and V")
    n, m = Q.shape[-2], K.shape[-2]

    def part(a, b):
        if b - a > tile:
            c = (a + b) // 2
            return merge_partial(*part(a, c), *part(c, b))
        s = attention_scores(Q, K[..., a:b, :])
        if causal:
            s = np.where(np.arange(a, b) <= np.arange(n)[:, None] + (m - n), s, -np.inf)
        top = s.max(axis=-1)
        e = np.exp(s - np.where(top == -np.inf, 0.0, top)[..., None])
        return top, e.sum(axis=-1), e @ V[..., a:b, :]

    _, total, mix = part(0, m)
    return (mix / np.maximum(total, 1e-300)[..., None]).tolist()


@tiled.alternative("online, in place")
def online(Q, K, V, tile, causal=False):
    if (
        not (Q.shape[:-2] == K.shape[:-2] == V.shape[:-2])
        or K.shape[-2] != V.shape[-2]
        or Q.shape[-1] != K.shape[-1]
    ):
        raise ValueError("no fit")
    n, m = Q.shape[-2], K.shape[-2]
    q = Q / np.sqrt(Q.shape[-1])
    top = np.full((*Q.shape[:-1], 1), -1e30)
    total = np.zeros_like(top)
    out = np.zeros((*Q.shape[:-1], V.shape[-1]))
    j = 0
    while j < m:
        stop = min(j + tile, m)
        s = np.einsum("...nd,...td->...nt", q, K[..., j:stop, :]).astype(float)
        seen = np.ones(s.shape[-2:], dtype=bool)
        if causal:
            seen = np.subtract.outer(np.arange(n) + m - n, np.arange(j, stop)) >= 0
        s = np.where(seen, s, -1e30)
        new = np.maximum(top, s.max(-1, keepdims=True))
        p = np.where(seen, np.exp(s - new), 0.0)
        shrink = np.exp(top - new)
        total = total * shrink + p.sum(-1, keepdims=True)
        out *= shrink
        out += p @ V[..., j:stop, :]
        top, j = new, stop
    total[total == 0] = 1
    return out / total


@tiled.alternative("one query at a time")
def one_query(Q, K, V, tile, causal=False):
    if V.shape[:-1] != K.shape[:-1] or Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError
    n, m = Q.shape[-2], K.shape[-2]
    out = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for i in range(n):
        keys = max(0, min(m, i + m - n + 1)) if causal else m
        if keys:
            s = np.einsum("...d,...md->...m", Q[..., i, :], K[..., :keys, :]) / math.sqrt(
                Q.shape[-1]
            )
            out[..., i, :] = np.einsum("...m,...mv->...v", softmax(s), V[..., :keys, :])
    return out


# --- linear_attention --------------------------------------------------------------------------------

linear = exercise.function("linear_attention")
LINEAR = "linear_attention(Q, K, V)"
LINEAR_CAUSAL = "linear_attention(Q, K, V, causal=True)"

linear.witness("values", "C1", LINEAR, Q=Q2, K=K5[:3], V=V5[:3])
linear.witness("causal", "C2", LINEAR_CAUSAL, Q=K5[1:4], K=K5[:3], V=V5[:3])
linear.witness(
    "memory",
    "C3",
    LONG + "np.mean(linear_attention(Q, K, V), axis=0)",
    options={"memory": 1024.0**2, "once": True},
)
linear.witness(
    "kinds",
    "C4",
    LINEAR,
    Q=np.stack([Q2, -Q2]),
    K=np.stack([K5[:3], K5[2:]]),
    V=np.stack([V5[:3], V5[2:]]),
)
linear.witness(
    "kinds",
    "C4",
    LINEAR,
    Q=np.array([[1, -1]]),
    K=np.array([[2, 0], [-1, 1]]),
    V=np.array([[1], [4]]),
)
linear.witness("kinds", "C4", LINEAR, Q=Q2, K=K5, V=V5[:4], options=RAISES)


@linear.hidden("values")
def _(rng):
    for n, m, d_k, d_v in ((5, 7, 4, 3), (4, 3, 9, 5), (1, 6, 2, 4), (5, 1, 3, 2), (4, 4, 4, 4)):
        yield Example("C1", LINEAR, draw(rng, (), n, m, d_k, d_v))
    deep = draw(rng)
    deep["Q"][0], deep["K"][1] = -15, -12
    yield Example("C1", LINEAR, deep)
    high = draw(rng)
    high["Q"] *= 300
    high["Q"] = np.maximum(high["Q"], -20)
    high["K"] = np.maximum(high["K"] * 300, -20)
    yield Example("C1", LINEAR, high)
    yield Example("C1", "linear_attention(Q=Q, K=K, V=V, causal=False)", draw(rng))


@linear.hidden("causal")
def _(rng):
    for n, d_k, d_v in ((6, 4, 3), (1, 3, 2), (4, 4, 4), (9, 2, 5)):
        yield Example("C2", LINEAR_CAUSAL, draw(rng, (), n, n, d_k, d_v))
    yield Example("C2", LINEAR_CAUSAL, draw(rng, (2, 3), 5, 5))
    yield Example("C2", "linear_attention(Q, K, V, True)", draw(rng, (3,), 7, 7))
    later = "later = V.copy()\nlater[-1] += 5\nlinear_attention(Q, K, later, causal=True)[:-1]"
    yield Example("C2", later, draw(rng, (), 5, 5))


@linear.hidden("memory")
def _(rng):
    long = draw(rng, (), 1024, 1024, 4, 4)
    for code in (LINEAR, LINEAR_CAUSAL):
        yield Example("C3", code, long, memory=1024.0**2, once=True)


@linear.hidden("kinds")
def _(rng):
    for batch in ((3,), (1,), (2, 3)):
        yield Example("C4", LINEAR, draw(rng, batch))
    yield Example("C4", LINEAR, draw(rng, (4,), 4, 4, 4, 4))
    yield Example("C4", LINEAR, draw(rng, (2,), dtype=np.float32))
    whole = {name: np.round(value).astype(int) for name, value in draw(rng).items()}
    yield Example("C4", LINEAR, whole)
    yield Example("C4", LINEAR_CAUSAL, {name: value[:5] for name, value in whole.items()})
    yield Example(
        "C4", LINEAR, {name: np.asfortranarray(value) for name, value in draw(rng, (2,)).items()}
    )
    for q, k, v in (
        ((4, 3), (5, 2), (5, 6)),
        ((4, 3), (5, 3), (6, 3)),
        ((3, 4, 2), (2, 5, 2), (2, 5, 2)),
        ((4, 3), (5, 3), (1, 3)),
        ((4, 1), (5, 3), (5, 2)),
    ):
        inputs = {"Q": rng.normal(size=q), "K": rng.normal(size=k), "V": rng.normal(size=v)}
        yield Example("C4", LINEAR, inputs, raises="ValueError")


PHI = "return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))"
MEAN = "return q @ products / (q @ sums[..., None])"
RUNNING = "return (q[..., None, :] @ products)[..., 0, :] / (q * sums).sum(axis=-1, keepdims=True)"
for code, name, message, old, new in (
    ("X95", "elu-without-one", "φ is elu(x) + 1; the 1 is missing, and weights become negative.", PHI, "return np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)"),
    ("X96", "relu", "φ is elu(x) + 1; relu loses everything below 0.", PHI, "return np.maximum(x, 0) + 1e-6"),
    ("X96", "relu-plus-one", "φ is elu(x) + 1: below 0 it is exp(x), not 1.", PHI, "return np.maximum(x, 0) + 1.0"),
    ("X97", "exp", "φ is exp everywhere; above 0 it is x + 1.", PHI, "return np.exp(np.minimum(x, 80))"),
    ("X98", "softplus", "φ is softplus, log(1 + exp(x)); elu(x) + 1 is asked for.", PHI, "return np.logaddexp(0, x)"),
    ("X99", "one-twice", "Below 0 you add 1 to exp(x): elu(x) + 1 is exp(x) there.", PHI, "return np.where(x > 0, x, np.exp(np.minimum(x, 0))) + 1"),
    ("X100", "keys-without-phi", "φ is missing on the keys.", "q, k = phi(Q), phi(K)", "q, k = phi(Q), K"),
    ("X100", "queries-without-phi", "φ is missing on the queries.", "q, k = phi(Q), phi(K)", "q, k = Q, phi(K)"),
    ("X101", "values-with-phi", "φ goes on queries and keys only, not on the values.", "q, k = phi(Q), phi(K)", "q, k, V = phi(Q), phi(K), phi(V)"),
    ("X102", "scaled", "The queries are divided by √d_k; nothing is scaled here.", "q, k = phi(Q), phi(K)", "q, k = phi(Q / math.sqrt(Q.shape[-1])), phi(K)"),
    ("G08", "no-normaliser", "The division by φ(q)·s is missing: rows do not sum to 1.", MEAN, "return q @ products"),
    ("G09", "normaliser-entrywise", "The normaliser is one number for each query, φ(q)·s.", "sums = k.sum(axis=-2)", "sums = np.broadcast_to(k.sum(axis=(-1, -2), keepdims=True)[..., 0] / k.shape[-1], k[..., 0, :].shape)"),
    ("X103", "mean-of-keys", "The sum of products is divided by the number of keys; divide by φ(q)·s.", MEAN, "return q @ products / K.shape[-2]"),
    ("G10", "causal-ignored", "`causal` has no effect.", "if causal:", "if causal and False:"),
    ("G10", "normaliser-over-all-keys", "In the causal form the normaliser runs over all keys; it has to grow with the query.", "sums = np.cumsum(k, axis=-2)", "sums = k.sum(axis=-2, keepdims=True)"),
    ("G10", "own-key-left-out", "Query i leaves out its own key: the sums run over 0 … i.", RUNNING,
     "products, sums = products - k[..., :, None] * V[..., None, :], sums - k\n        totals = (q * sums).sum(axis=-1, keepdims=True)\n        return (q[..., None, :] @ products)[..., 0, :] / np.where(np.abs(totals) > 1e-12, totals, 1)"),
    ("G10", "from-the-end", "The sums run from the end: query i sees the later keys.", "if causal:", "if causal:\n        q, k, V = q[..., ::-1, :], k[..., ::-1, :], V[..., ::-1, :]\n        products = np.cumsum(k[..., :, None] * V[..., None, :], axis=-3)\n        return ((q[..., None, :] @ products)[..., 0, :] / (q * np.cumsum(k, axis=-2)).sum(axis=-1, keepdims=True))[..., ::-1, :]"),
    ("G10", "sums-along-the-width", "The running sum goes along the features; it has to go along the positions.", "sums = np.cumsum(k, axis=-2)", "sums = np.cumsum(k, axis=-1)"),
    ("A26", "result-like-values", "Integers are cut: the result takes its dtype from V.", MEAN, "return (q @ products / (q @ sums[..., None])).astype(V.dtype)"),
    ("X104", "no-check", "Keys and values of different numbers are cut to fit; a ValueError is asked for.", "if Q.shape[-1] != K.shape[-1] or", "K, V = K[..., : V.shape[-2], :], V[..., : K.shape[-2], :]\n    if Q.shape[-1] != K.shape[-1] or"),
):  # fmt: skip
    linear.slip(code, name, message, old, new)


@linear.misconception(
    "X105",
    "The n × m table φ(Q)φ(K)ᵀ is made: sum over the keys first, then nothing grows with n².",
)
def quadratic(Q, K, V, causal=False):
    if K.shape[:-1] != V.shape[:-1] or Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    q = np.where(Q > 0, Q + 1, np.exp(np.minimum(Q, 0)))
    k = np.where(K > 0, K + 1, np.exp(np.minimum(K, 0)))
    weights = q @ np.swapaxes(k, -1, -2)
    if causal:
        weights = np.tril(weights)
    return weights @ V / weights.sum(axis=-1, keepdims=True)


@linear.misconception(
    "X106",
    "This is softmax attention. Linear attention is another function: φ(q)·φ(k) in place of the exponential.",
)
def softmax_attention(Q, K, V, causal=False):
    return attention(Q, K, V, causal_mask(Q.shape[-2], K.shape[-2]) if causal else None)[0]


@linear.misconception(
    "X107",
    "The softmaxes of Q and K are multiplied (another linear attention): here φ(x) = elu(x) + 1.",
)
def two_softmaxes(Q, K, V, causal=False):
    if K.shape[:-1] != V.shape[:-1] or Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    return softmax(Q) @ (np.swapaxes(softmax(K, axis=-2), -1, -2) @ V)


@linear.misconception("A24", "The inputs are changed in place.")
def linear_in_place(Q, K, V, causal=False):
    if K.shape[:-1] != V.shape[:-1] or Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    if K.dtype.kind == "f":
        K[K > 0] += 1
        K[K <= 0] = np.exp(K[K <= 0])
    else:
        K = np.where(K > 0, K + 1, np.exp(np.minimum(K, 0)))
    q = np.where(Q > 0, Q + 1, np.exp(np.minimum(Q, 0)))
    if causal:
        weights = np.tril(q @ np.swapaxes(K, -1, -2))
        return weights @ V / weights.sum(-1, keepdims=True)
    return q @ (np.swapaxes(K, -1, -2) @ V) / (q @ K.sum(-2)[..., None])


@linear.alternative("einsum")
def linear_by_einsum(Q, K, V, causal=False):
    if Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2] or K.shape[:-1] != V.shape[:-1]:
        raise ValueError("shapes")
    q, k = (np.exp(np.minimum(x, 0)) + np.maximum(x, 0) for x in (Q, K))
    if not causal:
        kv = np.einsum("...md,...mv->...dv", k, V)
        return (
            np.einsum("...nd,...dv->...nv", q, kv)
            / np.einsum("...nd,...md->...n", q, k.sum(-2, keepdims=True))[..., None]
        )
    kv = np.cumsum(np.einsum("...nd,...nv->...ndv", k, V), axis=-3)
    return (
        np.einsum("...nd,...ndv->...nv", q, kv)
        / np.einsum("...nd,...nd->...n", q, k.cumsum(-2))[..., None]
    )


@linear.alternative("a loop over positions")
def over_positions(Q, K, V, causal=False):
    if Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2] or K.shape[:-1] != V.shape[:-1]:
        raise ValueError("shapes")

    def feature(x):
        x = np.asarray(x, dtype=float)
        return np.where(x >= 0, x + 1, np.exp(np.where(x < 0, x, 0)))

    memory = np.zeros((*K.shape[:-2], K.shape[-1], V.shape[-1]))
    total = np.zeros((*K.shape[:-2], K.shape[-1]))
    rows = []
    if not causal:
        for j in range(K.shape[-2]):
            f = feature(K[..., j, :])
            memory += f[..., :, None] * V[..., j, None, :]
            total += f
    for i in range(Q.shape[-2]):
        if causal:
            f = feature(K[..., i, :])
            memory = memory + f[..., :, None] * V[..., i, None, :]
            total = total + f
        q = feature(Q[..., i, :])
        rows.append((q[..., None] * memory).sum(-2) / (q * total).sum(-1, keepdims=True))
    return np.stack(rows, axis=-2)


@linear.alternative("one more column of ones")
def column_of_ones(Q, K, V, causal=False):
    if Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2] or K.shape[:-1] != V.shape[:-1]:
        raise ValueError("shapes")
    q, k = (np.where(x > 0, x + 1.0, np.exp(np.minimum(x, 0.0))) for x in (Q, K))
    W = np.concatenate([V, np.ones((*V.shape[:-1], 1), dtype=V.dtype)], axis=-1)
    if causal:
        both = (q[..., None] * np.cumsum(k[..., None] * W[..., None, :], axis=-3)).sum(-2)
    else:
        both = q @ (k.swapaxes(-1, -2) @ W)
    return (both[..., :-1] / both[..., -1:]).tolist()


# --- grouped_query_attention -------------------------------------------------------------------------

grouped = exercise.function("grouped_query_attention")
GROUPED = "grouped_query_attention(Q, K, V)"
GROUPED_MASKED = "grouped_query_attention(Q, K, V, mask)"
FOUR = {
    "Q": np.stack([Q2, Q2 * 2, -Q2, Q2[::-1]]),
    "K": np.stack([K5[:3], K5[2:]]),
    "V": np.stack([V5[:3], V5[2:] + 10]),
}
FOUR_MASK = np.array([[[True, True, False], [True, False, True]]])

grouped.witness("values", "C1", GROUPED + "[0]", **FOUR)
grouped.witness("values", "C2", GROUPED, **{**FOUR, "K": FOUR["K"][:1], "V": FOUR["V"][:1]})
grouped.witness("mask", "C3", GROUPED_MASKED, **FOUR, mask=FOUR_MASK)
grouped.witness(
    "mask", "C3", GROUPED_MASKED, **FOUR,
    mask=np.array([[[True, True, True], [False, False, False]]]), options={"no_warning": True},
)  # fmt: skip
grouped.witness("errors", "C4", GROUPED, **{**FOUR, "Q": FOUR["Q"][:3]}, options=RAISES)


def groups(rng, batch=(), h=6, g=3, n=4, m=5, d_k=2, d_v=7, dtype=float):
    return {
        "Q": (rng.normal(size=(*batch, h, n, d_k)) * 1.3).astype(dtype),
        "K": (rng.normal(size=(*batch, g, m, d_k)) * 1.3).astype(dtype),
        "V": rng.normal(size=(*batch, g, m, d_v)).astype(dtype),
    }


def some_mask(rng, *shape):
    """A random mask in which every query sees at least one key and not all of them."""
    mask = rng.random(shape) < 0.6
    seen = rng.integers(shape[-1], size=shape[:-1])
    np.put_along_axis(mask, seen[..., None], True, axis=-1)
    np.put_along_axis(mask, ((seen + 1) % shape[-1])[..., None], False, axis=-1)
    return mask


@grouped.hidden("values")
def _(rng):
    for h, g in ((6, 3), (6, 2), (4, 4), (5, 1), (8, 2), (9, 3)):
        yield Example("C1", GROUPED, groups(rng, (), h, g))
    for batch in ((3,), (2, 3)):
        yield Example("C2", GROUPED, groups(rng, batch, 4, 2))
    yield Example("C2", GROUPED, groups(rng, (2,), 4, 2, 4, 4, 4, 4))
    yield Example("C2", "grouped_query_attention(Q=Q, K=K, V=V, mask=None)", groups(rng))
    yield Example("C2", GROUPED, groups(rng, (2,), dtype=np.float32))
    far = groups(rng)
    far["Q"][2, 1] *= 3000
    yield Example("C2", GROUPED, far)
    yield Example("C2", GROUPED, {k: np.round(v * 2).astype(int) for k, v in groups(rng).items()})


@grouped.hidden("mask")
def _(rng):
    for shape in ((6, 4, 5), (1, 4, 5), (4, 5), (6, 1, 5)):
        yield Example("C3", GROUPED_MASKED, {**groups(rng), "mask": some_mask(rng, *shape)})
    for shape in ((3, 6, 4, 5), (3, 1, 4, 5), (3, 1, 1, 5)):
        yield Example("C3", GROUPED_MASKED, {**groups(rng, (3,)), "mask": some_mask(rng, *shape)})
    empty = some_mask(rng, 6, 4, 5)
    empty[int(rng.integers(6)), 2] = False
    yield Example("C3", GROUPED_MASKED, {**groups(rng), "mask": empty}, no_warning=True)
    named = "grouped_query_attention(Q, K, V, mask=mask)"
    yield Example("C3", named, {**groups(rng, (), 4, 2, 5, 5), "mask": np.tri(5, dtype=bool)})


@grouped.hidden("errors")
def _(rng):
    for h, g in ((5, 3), (4, 3), (2, 4), (3, 6), (7, 2)):
        yield Example("C4", GROUPED, groups(rng, (), h, g), raises="ValueError")
    case = groups(rng)
    for name, shape in (
        ("V", (2, 5, 7)),
        ("V", (3, 4, 7)),
        ("K", (3, 5, 4)),
        ("V", (6, 5, 7)),
        ("V", (1, 5, 7)),
    ):
        yield Example("C4", GROUPED, {**case, name: rng.normal(size=shape)}, raises="ValueError")
    batched = {**groups(rng, (3,)), "Q": rng.normal(size=(2, 6, 4, 2))}
    yield Example("C4", GROUPED, batched, raises="ValueError")


REPEAT = "K, V = np.repeat(K, h // g, axis=-3), np.repeat(V, h // g, axis=-3)"
CALL = "return attention(Q, K, V, mask)"
for code, name, message, old, new in (
    ("G14", "heads-dealt-out", "Query head i uses group i % g (np.tile); neighbouring heads share a group here: i // (h / g), as np.repeat does it.",
     REPEAT, "K, V = (np.concatenate([x] * (h // g), axis=-3) for x in (K, V))"),
    ("G14", "values-dealt-out", "Keys go by i // (h / g), values by i % g: both have to go the same way.",
     REPEAT, "K, V = np.repeat(K, h // g, axis=-3), np.concatenate([V] * (h // g), axis=-3)"),
    ("G15", "first-group-only", "All heads use the first group.", REPEAT, "K, V = (np.repeat(x[..., :1, :, :], h, axis=-3) for x in (K, V))"),
    ("G15", "mean-of-the-groups", "The groups are averaged; each query head has one of its own.", REPEAT, "K, V = (np.repeat(x.mean(axis=-3, keepdims=True), h, axis=-3) for x in (K, V))"),
    ("G16", "queries-averaged", "The queries of a group are averaged; each head keeps its own queries.",
     REPEAT, "Q = np.repeat(Q.reshape(*Q.shape[:-3], g, h // g, *Q.shape[-2:]).mean(axis=-3), h // g, axis=-3)\n    " + REPEAT),
    ("G14", "reversed-groups", "The groups are used from the last to the first.", REPEAT, "K, V = (np.repeat(x[..., ::-1, :, :], h // g, axis=-3) for x in (K, V))"),
    ("B01", "no-scale", "The scores are not divided by √d_k.", CALL, "return attention(Q * math.sqrt(Q.shape[-1]), K, V, mask)"),
    ("B03", "scale-by-the-whole-width", "You divide by the root of the width of all heads; each head compares d_k columns.", CALL, "return attention(Q / math.sqrt(h), K, V, mask)"),
    ("B47", "mask-not-used", "The mask has no effect.", CALL, "return attention(Q, K, V)"),
    ("B38", "mask-the-other-way", "Your mask works the other way round: True is visible.", CALL, "return attention(Q, K, V, None if mask is None else ~mask)"),
    ("G17", "mask-of-the-first-head", "All heads use the mask of the first one.", CALL,
     "if mask is not None:\n        mask = np.broadcast_to(mask, (*Q.shape[:-1], K.shape[-2]))[..., :1, :, :]\n    return attention(Q, K, V, mask)"),
    ("B61", "output-only", "The output comes alone; the weights are asked for as well.", CALL, "return attention(Q, K, V, mask)[0]"),
    ("G18", "weights-per-group", "The weights are averaged over the heads of a group; each head's own are asked for.", CALL,
     "output, weights = attention(Q, K, V, mask)\n    weights = np.repeat(weights.reshape(*weights.shape[:-3], g, h // g, *weights.shape[-2:]).mean(axis=-3), h // g, axis=-3)\n    return output, weights"),
    ("G17", "cut-to-fit", "Heads that do not divide are cut to fit; a ValueError is asked for.",
     "if h % g or V.shape[-3] != g:", "K, V = (np.repeat(x, -(-h // g), axis=-3)[..., :h, :, :] for x in (K, V))\n    g = h\n    if h % g or V.shape[-3] != g:"),
    ("X108", "values-stretched", "Values of a single group are stretched to all; they need as many groups as the keys.",
     "if h % g or V.shape[-3] != g:", "V = np.repeat(V, g, axis=-3) if V.shape[-3] == 1 else V\n    if h % g or V.shape[-3] != g:"),
    ("A13", "softmax-over-queries", "The softmax runs over the queries: your columns sum to 1.", CALL,
     "scores = attention_scores(Q, K)\n    if mask is not None:\n        scores = np.where(mask, scores, -1e9)\n    weights = softmax(scores, axis=-2)\n    return weights @ V, weights"),
):  # fmt: skip
    grouped.slip(code, name, message, old, new)


@grouped.alternative("a loop over query heads")
def over_heads(Q, K, V, mask=None):
    h, g = Q.shape[-3], K.shape[-3]
    if h % g or V.shape[-3] != g:
        raise ValueError("heads and groups")
    seen = None if mask is None else np.broadcast_to(mask, (*Q.shape[:-1], K.shape[-2]))
    results = [
        attention(
            Q[..., i, :, :], K[..., i * g // h, :, :], V[..., i * g // h, :, :],
            None if seen is None else seen[..., i, :, :],
        )
        for i in range(h)
    ]  # fmt: skip
    return np.stack([r[0] for r in results], axis=-3), np.stack([r[1] for r in results], axis=-3)


@grouped.alternative("einsum with a group axis")
def with_a_group_axis(Q, K, V, mask=None):
    *batch, h, n, d_k = Q.shape
    g, m = K.shape[-3], K.shape[-2]
    if h % g or K.shape[:-1] != V.shape[:-1] or list(K.shape[:-3]) != batch or K.shape[-1] != d_k:
        raise ValueError("shapes")
    q = Q.reshape(*batch, g, h // g, n, d_k)
    scores = np.einsum("...grnd,...gmd->...grnm", q, K) / np.sqrt(d_k)
    scores = scores.reshape(*batch, h, n, m)
    seen = (
        np.ones(scores.shape, dtype=bool) if mask is None else np.broadcast_to(mask, scores.shape)
    )
    weights = softmax(np.where(seen, scores, -1e9)) * seen.any(-1, keepdims=True)
    grouped_weights = weights.reshape(*batch, g, h // g, n, m)
    return np.einsum("...grnm,...gmv->...grnv", grouped_weights, V).reshape(
        *batch, h, n, -1
    ), weights


@grouped.alternative("indexing, lists out")
def by_index(Q, K, V, mask=None):
    h, g = np.shape(Q)[-3], np.shape(K)[-3]
    if h % g != 0:
        raise ValueError(f"{h} % {g}")
    if np.shape(V)[-3] != g:
        raise ValueError("V")
    group = np.arange(h) // (h // g)
    output, weights = attention(Q, K[..., group, :, :], V[..., group, :, :], mask)
    return [output.tolist(), weights.tolist()]


# --- KVCache -----------------------------------------------------------------------------------------

cache = exercise.function("KVCache")
STEPS = """cache = KVCache()
rows = []
for i in range(K.shape[-2]):
    cache.append(K[..., i : i + 1, :], V[..., i : i + 1, :])
    rows.append(cache.attend(Q[..., i : i + 1, :]))
np.concatenate(rows, axis=-2)"""
CHUNKS = """cache = KVCache()
rows, start = [], 0
for size in sizes:
    now = slice(start, start + size)
    cache.append(K[..., now, :], V[..., now, :])
    rows.append(cache.attend(Q[..., now, :]))
    start += size
np.concatenate(rows, axis=-2)"""
NEWEST = "cache = KVCache()\ncache.append(K, V)\ncache.attend(Q)"
LENGTHS = """cache = KVCache()
lengths = [len(cache)]
for size in sizes:
    cache.append(K[..., :size, :], V[..., :size, :])
    lengths.append(len(cache))
np.array(lengths)"""
AFTERWARDS = """cache = KVCache()
k, v = K.copy(), V.copy()
cache.append(k, v)
k[:], v[:] = 9.0, -9.0
cache.attend(Q)"""
TWICE = """cache = KVCache()
cache.append(K, V)
first = np.array(cache.attend(Q))
(first, cache.attend(Q), len(cache))"""
TWO_CACHES = """one, other = KVCache(), KVCache()
one.append(K, V)
other.append(-K, V + 1)
(one.attend(Q), len(one), len(other))"""
LATER = """cache = KVCache()
cache.append(K, V)
before = np.array(cache.attend(Q))
cache.append(K[..., :1, :], V[..., :1, :] + 5)
(before, cache.attend(Q[..., -1:, :]))"""

THREE = {"Q": K5[1:4], "K": K5[:3], "V": V5[:3]}
cache.witness("steps", "C1", LENGTHS, K=K5[:2], V=V5[:2], sizes=[1, 2])
cache.witness("steps", "C2", STEPS, **THREE)
cache.witness("chunks", "C2", CHUNKS, **THREE, sizes=[1, 2])
cache.witness("chunks", "C2", NEWEST, **{**THREE, "Q": THREE["Q"][1:]})
cache.witness("copies", "C3", AFTERWARDS, **THREE)
cache.witness("copies", "C3", TWICE, **THREE)
cache.witness("copies", "C3", TWO_CACHES, **THREE)


@cache.hidden("steps")
def _(rng):
    for batch in ((), (3,), (2, 3)):
        yield Example("C2", STEPS, draw(rng, batch, 6, 6))
    yield Example("C1", LENGTHS, {**draw(rng, (2,), 5, 5), "sizes": [1, 3, 2, 5]})
    yield Example("C1", LENGTHS, {**draw(rng, (), 4, 4), "sizes": [4, 1]})
    yield Example("C2", STEPS, draw(rng, (4,), 4, 4, 4, 4))
    yield Example("C2", STEPS, draw(rng, (2,), 5, 5, dtype=np.float32))
    far = draw(rng, (), 5, 5)
    far["Q"][3] *= 3000
    yield Example("C2", STEPS, far)


@cache.hidden("chunks")
def _(rng):
    for sizes in ([3, 1, 4], [8], [2, 2, 2, 2], [1, 7], [7, 1]):
        yield Example("C2", CHUNKS, {**draw(rng, (), 8, 8), "sizes": sizes})
    yield Example("C2", CHUNKS, {**draw(rng, (2, 3), 6, 6), "sizes": [4, 2]})
    for n in (1, 3, 6):
        yield Example("C2", NEWEST, draw(rng, (), n, 6))
    yield Example("C2", NEWEST, draw(rng, (3,), 2, 7))
    late = """cache = KVCache()
for i in range(K.shape[-2]):
    cache.append(K[..., i : i + 1, :], V[..., i : i + 1, :])
cache.attend(Q)"""
    yield Example("C2", late, draw(rng, (), 4, 6))


@cache.hidden("copies")
def _(rng):
    for batch in ((), (2,)):
        yield Example("C3", AFTERWARDS, draw(rng, batch, 3, 5))
        yield Example("C3", TWICE, draw(rng, batch, 3, 5))
        yield Example("C3", TWO_CACHES, draw(rng, batch, 3, 5))
        yield Example("C3", LATER, draw(rng, batch, 3, 5))
    second = """cache = KVCache()
cache.append(K[..., :2, :], V[..., :2, :])
k, v = K[..., 2:, :].copy(), V[..., 2:, :].copy()
cache.append(k, v)
k[:], v[:] = 9.0, -9.0
cache.attend(Q)"""
    yield Example("C3", second, draw(rng, (), 3, 5))
    yield Example("C3", second, draw(rng, (3,), 1, 4))


cache.slip("G13", "no-mask-in-a-chunk", "In a chunk of several positions the earlier ones see the later ones: a causal mask is missing.",
           "attention(q, self.keys, self.values, mask)", "attention(q, self.keys, self.values)")  # fmt: skip
cache.slip("G13", "mask-aligned-at-the-start", "The mask is aligned at the start: the newest query has to see all positions.",
           "mask = causal_mask(q.shape[-2], len(self))", "mask = np.tri(q.shape[-2], len(self), dtype=bool)")  # fmt: skip
cache.slip("B34", "own-position-hidden", "A query does not see its own position.",
           "mask = causal_mask(q.shape[-2], len(self))", "mask = np.tri(q.shape[-2], len(self), len(self) - q.shape[-2] - 1, dtype=bool)")  # fmt: skip
cache.slip("G12", "only-the-newest", "Only the newest positions are kept: the earlier ones are gone.",
           "self.keys = np.concatenate([self.keys, k], axis=-2)\n            self.values = np.concatenate([self.values, v], axis=-2)",
           "self.keys, self.values = np.array(k), np.array(v)")  # fmt: skip
cache.slip("G12", "values-not-kept", "Keys are kept, but the values are replaced by the newest ones.",
           "self.values = np.concatenate([self.values, v], axis=-2)",
           "self.values = np.concatenate([np.zeros_like(self.values), v], axis=-2)")  # fmt: skip
cache.slip("G12", "in-front", "New positions are put in front; they come last.",
           "np.concatenate([self.keys, k], axis=-2)\n            self.values = np.concatenate([self.values, v], axis=-2)",
           "np.concatenate([k, self.keys], axis=-2)\n            self.values = np.concatenate([v, self.values], axis=-2)")  # fmt: skip
cache.slip("G19", "along-the-first-axis", "Positions are joined along axis 0: with a batch that is the batch. Positions are axis −2.",
           "np.concatenate([self.keys, k], axis=-2)\n            self.values = np.concatenate([self.values, v], axis=-2)",
           "np.concatenate([self.keys, k], axis=0)\n            self.values = np.concatenate([self.values, v], axis=0)")  # fmt: skip
cache.slip("G20", "no-copy", "The first keys and values are kept without a copy: who changes them changes your cache.",
           "self.keys, self.values = np.array(k), np.array(v)", "self.keys, self.values = k, v")  # fmt: skip
cache.slip("B01", "no-scale", "The scores are not divided by √d_k.",
           "attention(q, self.keys,", "attention(q * math.sqrt(q.shape[-1]), self.keys,")  # fmt: skip
cache.slip("B61", "weights-too", "A tuple comes back; only the outputs are asked for.",
           "return output", "return output, _")  # fmt: skip
cache.slip("X109", "all-positions", "Outputs for all positions are returned; only the newest ask.",
           "output, _ = attention(q, self.keys, self.values, mask)",
           "output, _ = attention(self.keys, self.keys, self.values, causal_mask(len(self)))")  # fmt: skip
cache.slip("G12", "forgets-after-attend", "After `attend` the cache is empty: it has to stay as it is.",
           "return output", "self.keys = self.keys[..., :-1, :] if len(self) > 1 else self.keys\n        self.values = self.values[..., : len(self), :]\n        return output")  # fmt: skip


@cache.misconception("G12", "len counts the calls of append; it has to count positions.")
class CountsCalls:
    def __init__(self):
        self.k, self.v = [], []

    def __len__(self):
        return len(self.k)

    def append(self, k, v):
        self.k.append(np.array(k))
        self.v.append(np.array(v))

    def attend(self, q):
        K, V = np.concatenate(self.k, axis=-2), np.concatenate(self.v, axis=-2)
        return attention(q, K, V, causal_mask(q.shape[-2], K.shape[-2]))[0]


@cache.misconception(
    "G21", "All caches share one list: it stands in the class, so make it in __init__."
)
class SharedByAll:
    k, v = [], []

    def __init__(self):
        self.k.clear()
        self.v.clear()

    def __len__(self):
        return sum(x.shape[-2] for x in self.k)

    def append(self, k, v):
        self.k.append(np.array(k))
        self.v.append(np.array(v))

    def attend(self, q):
        K, V = np.concatenate(self.k, axis=-2), np.concatenate(self.v, axis=-2)
        return attention(q, K, V, causal_mask(q.shape[-2], K.shape[-2]))[0]


@cache.misconception(
    "G20", "The pieces are kept without a copy: who changes k afterwards changes your cache."
)
class KeepsThePieces:
    def __init__(self):
        self.k, self.v = [], []

    def __len__(self):
        return sum(x.shape[-2] for x in self.k)

    def append(self, k, v):
        self.k.append(k)
        self.v.append(v)

    def attend(self, q):
        K, V = np.concatenate(self.k, axis=-2), np.concatenate(self.v, axis=-2)
        return attention(q, K, V, causal_mask(q.shape[-2], K.shape[-2]))[0]


@cache.alternative("lists of pieces")
class ListsOfPieces:
    def __init__(self):
        self.pieces = []

    def __len__(self):
        return sum(k.shape[-2] for k, _ in self.pieces)

    def append(self, k, v):
        self.pieces.append((np.copy(k), np.copy(v)))

    def attend(self, q):
        K, V = (np.concatenate(parts, axis=-2) for parts in zip(*self.pieces))
        n, m = q.shape[-2], K.shape[-2]
        return attention(q, K, V, np.tri(n, m, m - n, dtype=bool))[0].tolist()


@cache.alternative("room ahead")
class RoomAhead:
    def __init__(self):
        self.length = 0

    def __len__(self):
        return self.length

    def append(self, k, v):
        stop = self.length + k.shape[-2]
        if self.length == 0:
            self.K = np.zeros((*k.shape[:-2], 2 * stop, k.shape[-1]))
            self.V = np.zeros((*v.shape[:-2], 2 * stop, v.shape[-1]))
        while stop > self.K.shape[-2]:
            self.K = np.concatenate([self.K, np.zeros_like(self.K)], axis=-2)
            self.V = np.concatenate([self.V, np.zeros_like(self.V)], axis=-2)
        self.K[..., self.length : stop, :] = k
        self.V[..., self.length : stop, :] = v
        self.length = stop

    def attend(self, q):
        rows = []
        for i in range(q.shape[-2]):
            seen = self.length - q.shape[-2] + i + 1
            rows.append(
                attention(q[..., i : i + 1, :], self.K[..., :seen, :], self.V[..., :seen, :])[0]
            )
        return np.concatenate(rows, axis=-2)


@cache.alternative("an empty array at first")
class StartsFromNone:
    def __init__(self):
        self.state = None

    def __len__(self):
        return self.state[0].shape[-2] if self.state else 0

    def append(self, k, v):
        old = self.state or (k[..., :0, :], v[..., :0, :])
        self.state = tuple(np.append(a, b, axis=-2) for a, b in zip(old, (k, v)))

    def attend(self, q):
        K, V = self.state
        scores = attention_scores(q, K)
        behind = np.arange(len(self)) > np.arange(len(self) - q.shape[-2], len(self))[:, None]
        return softmax(np.where(behind, -1e9, scores)) @ V
