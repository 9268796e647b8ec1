"""Hidden tests of chapter 07: sinusoids, relative bias, ALiBi, rotary embedding."""

import math

import numpy as np

from manyheads import positions
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import RAISES, fortran, integers, normal, qkv_misfits, some_mask
from tests.hidden.common import SAID
from tests.hidden.spec import Example, Exercise

exercise = Exercise("07_positions", positions)
grade = exercise.grade


# Small, unequal numbers: two queries and three keys of width 2, values of width 4.
Q2 = np.array([[1.0, 0.0], [0.5, -1.0]])
K3 = np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5]])
V3 = np.array([[1.0, 0.0, 2.0, -1.0], [0.0, 1.0, 0.0, 3.0], [2.0, 2.0, -1.0, 0.0]])
BIAS = np.array([[0.0, 1.0, -1.0], [0.5, 0.0, 2.0]])


def draw(rng, batch=(), n=5, m=7, d_k=4, d_v=3, dtype=float):
    """Queries, keys, values and a bias for each pair, all sizes different."""
    Q = rng.normal(size=(*batch, n, d_k)) * 1.3
    K = rng.normal(size=(*batch, m, d_k)) * 1.3
    V = rng.normal(size=(*batch, m, d_v)) + 0.5
    case = {"Q": Q, "K": K, "V": V, "bias": rng.normal(size=(n, m))}
    return {name: value.astype(dtype) for name, value in case.items()}


# --- sinusoidal_encoding ---------------------------------------------------------------------------

waves = exercise.function("sinusoidal_encoding")
WAVES = "sinusoidal_encoding(n, d)"

waves.witness("values", "C1", WAVES, n=3, d=4)
waves.witness("values", "C1", WAVES, n=2, d=6)
waves.witness("base", "C2", "sinusoidal_encoding(n, d, base)", n=2, d=4, base=50.0)


@waves.hidden("values")
def _(rng):
    for n, d in ((5, 8), (7, 2), (1, 4), (6, 6), (4, 10), (3, 64)):
        yield Example("C1", WAVES, {"n": n, "d": d})
    n, d = int(rng.integers(20, 60)), 2 * int(rng.integers(6, 12))
    yield Example("C1", WAVES, {"n": n, "d": d})
    yield Example("C1", "sinusoidal_encoding(n=n, d=d)", {"n": n + 1, "d": d + 2})


@waves.hidden("base")
def _(rng):
    for n, d in ((5, 6), (4, 8), (9, 2)):
        base = float(rng.uniform(20, 5000))
        yield Example("C2", "sinusoidal_encoding(n, d, base)", {"n": n, "d": d, "base": base})
    base = int(rng.integers(50, 900))
    yield Example("C2", "sinusoidal_encoding(n, d, base=base)", {"n": 3, "d": 10, "base": base})


waves.slip(
    "E02", "exponent-positive",
    "Your angles are multiplied by base^(2i/d): they explode to the right. Divide, so that the waves get slower.",
    "positions / base", "positions * base",
)  # fmt: skip
waves.slip(
    "E07", "starts-at-one",
    "Your first row is position 1. Positions count from 0: the first row is 0, 1, 0, 1 …",
    "np.arange(n)", "np.arange(1, n + 1)",
)  # fmt: skip
waves.slip(
    "E05", "cosine-first",
    "Sine and cosine are exchanged: the sine stands in the even columns 0, 2, 4 …",
    "    encoding[:, 0::2] = np.sin(angles)\n    encoding[:, 1::2] = np.cos(angles)",
    "    encoding[:, 1::2] = np.sin(angles)\n    encoding[:, 0::2] = np.cos(angles)",
)  # fmt: skip
waves.slip(
    "E05", "sines-then-cosines",
    "You put all sines first and all cosines after them, as some libraries do. Here they alternate: sine, cosine, sine, cosine.",
    "    encoding[:, 0::2] = np.sin(angles)\n    encoding[:, 1::2] = np.cos(angles)",
    "    encoding[:, : d // 2] = np.sin(angles)\n    encoding[:, d // 2 :] = np.cos(angles)",
)  # fmt: skip
waves.slip(
    "E26", "exponent-without-the-two",
    "The waves slow down half as fast as they should: the exponent is 2i/d, where i counts the pairs.",
    "np.arange(0, d, 2) / d", "np.arange(d // 2) / d",
)  # fmt: skip
waves.slip(
    "E26", "exponent-doubled",
    "The waves slow down twice as fast as they should: i counts the pairs, not the columns, so column 2i gets the exponent 2i/d.",
    "np.arange(0, d, 2) / d", "2 * np.arange(0, d, 2) / d",
)  # fmt: skip
waves.slip(
    "E26", "pairs-counted-from-one",
    "Your pairs are counted from 1: the first pair has i = 0, its angle is the position itself.",
    "np.arange(0, d, 2) / d", "np.arange(2, d + 1, 2) / d",
)  # fmt: skip
waves.slip(
    "E26", "divided-by-the-last-pair",
    "Your exponents go up to 1: you divide by d − 2 (or by the last index). The contract divides by d.",
    "np.arange(0, d, 2) / d", "np.arange(0, d, 2) / max(d - 2, 1)",
)  # fmt: skip
waves.slip(
    "X01", "base-ignored", "The argument `base` has no effect: 10000 is only its default.",
    "base **", "10000.0 **",
)  # fmt: skip
waves.slip(
    "X02", "transposed", "Rows and columns are exchanged: a row belongs to a position.",
    "return encoding", "return encoding.T",
)  # fmt: skip
waves.slip(
    "X03", "batch-axis", "Your result has an axis more than (n, d): leave the batch to the caller.",
    "return encoding", "return encoding[None]",
)  # fmt: skip
waves.slip(
    "E09", "scaled-by-the-width",
    "Your waves are multiplied by √d. Some models scale the word vectors by it; the encoding itself stays between −1 and 1.",
    "return encoding", "return encoding * math.sqrt(d)",
)  # fmt: skip
waves.slip(
    "X04", "degrees", "Your angles are taken as degrees; sine and cosine want radians, no conversion.",
    "np.arange(0, d, 2) / d)", "np.arange(0, d, 2) / d) * (math.pi / 180)",
)  # fmt: skip
waves.slip(
    "X05", "turns", "Your angles have a factor 2π; the contract has none.",
    "np.arange(0, d, 2) / d)", "np.arange(0, d, 2) / d) * (2 * math.pi)",
)  # fmt: skip
waves.slip(
    "X06", "positions-scaled",
    "Your positions are divided by n: position 3 must get the same row in a short and in a long sequence.",
    "np.arange(n)[:, None]", "np.arange(n)[:, None] / n",
)  # fmt: skip
waves.slip(
    "A20", "one-angle-for-all-pairs",
    "All your waves are equally fast. From pair to pair they get slower: is the exponent 2i/d lost, perhaps by a division with //?",
    "np.arange(0, d, 2) / d", "np.arange(0, d, 2) // d",
)  # fmt: skip
waves.slip(
    "A21", "rounded", SAID["rounded"],
    "return encoding", "return np.round(encoding, 4)",
)  # fmt: skip


@waves.misconception(
    "E26",
    "The cosine in column 2i + 1 has an angle of its own, with the exponent (2i + 1)/d. Sine and cosine of a pair share one "
    "angle: both have the exponent 2i/d.",
)
def an_angle_for_each_column(n, d, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(d) / d)
    angles[:, 0::2] = np.sin(angles[:, 0::2])
    angles[:, 1::2] = np.cos(angles[:, 1::2])
    return angles


@waves.misconception(
    "E26",
    "Your exponent is 2j/d with the column j, also for the cosine. i counts the pairs: columns 2i and 2i + 1 share the "
    "exponent 2i/d.",
)
def columns_taken_for_pairs(n, d, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (2 * np.arange(d) / d)
    return np.where(np.arange(d) % 2 == 0, np.sin(angles), np.cos(angles))


@waves.misconception("X08", "Only sines are there: odd columns hold the cosine of the same angle.")
def sines_only(n, d, base=10000.0):
    angles = np.arange(n)[:, None] / base ** (np.arange(0, d, 2) / d)
    return np.sin(np.repeat(angles, 2, axis=1))


@waves.alternative("loops")
def by_loops(n, d, base=10000.0):
    rows = []
    for p in range(n):
        row = []
        for i in range(d // 2):
            angle = p / base ** (2 * i / d)
            row += [math.sin(angle), math.cos(angle)]
        rows.append(row)
    return rows


@waves.alternative("exp and log")
def by_exp_and_log(n, d, base=10000.0):
    encoding = np.empty((n, d))
    position = np.arange(0, n, dtype=float).reshape(-1, 1)
    rate = np.exp(np.arange(0, d, 2) * -(np.log(base) / d))
    encoding[:, ::2], encoding[:, 1::2] = np.sin(position * rate), np.cos(position * rate)
    return encoding


@waves.alternative("stacked")
def stacked(n, d, base=10000.0):
    angles = np.outer(np.arange(n), 1 / np.power(base, np.arange(d // 2) / (d // 2)))
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(n, d)


@waves.alternative("shifted sines")
def shifted_sines(n, d, base=10000.0):
    columns = np.arange(d)
    angles = np.arange(n)[:, None] * base ** (-(columns - columns % 2) / d)
    return np.sin(angles + (columns % 2) * np.pi / 2)


@waves.alternative("complex numbers")
def by_complex_numbers(n, d, base=10000.0):
    turns = np.exp(1j * np.arange(n)[:, None] * base ** (-2 * np.arange(d // 2) / d))
    encoding = np.zeros((n, d), order="F")
    encoding[:, 0::2], encoding[:, 1::2] = turns.imag, turns.real
    return encoding


# --- relative_position_bias ------------------------------------------------------------------------

relative = exercise.function("relative_position_bias")
TABLE = "relative_position_bias(table, n, m)"
TWO_HEADS = np.array([[10.0, 11.0, 12.0, 13.0, 14.0], [20.0, 21.0, 22.0, 23.0, 24.0]])

relative.witness("values", "C1", TABLE, table=TWO_HEADS, n=3, m=3)
relative.witness("values", "C1", TABLE, table=TWO_HEADS, n=2, m=3)
relative.witness("clip", "C2", TABLE, table=TWO_HEADS[:1], n=2, m=6)
relative.witness("clip", "C2", TABLE, table=TWO_HEADS[:1, 1:4], n=4, m=2)
relative.witness("errors", "C3", TABLE, table=TWO_HEADS[:, :4], n=2, m=2, options=RAISES)


@relative.hidden("values")
def _(rng):
    for h, k, n, m in ((3, 6, 4, 7), (2, 8, 9, 4), (5, 5, 6, 6), (1, 3, 1, 4), (4, 4, 5, 1)):
        yield Example("C1", TABLE, {"table": rng.normal(size=(h, 2 * k + 1)), "n": n, "m": m})
    yield Example("C1", TABLE, {"table": rng.normal(size=(7, 7)), "n": 4, "m": 3})
    table = np.asfortranarray(rng.normal(size=(3, 11))).astype(np.float32)
    yield Example("C1", "relative_position_bias(table, n=n, m=m)", {"table": table, "n": 4, "m": 6})
    yield Example("C1", TABLE, {"table": rng.integers(-9, 9, size=(3, 9)), "n": 3, "m": 5})


@relative.hidden("clip")
def _(rng):
    for h, k, n, m in ((3, 2, 4, 9), (2, 1, 8, 5), (4, 2, 6, 6), (3, 3, 5, 5), (3, 2, 13, 2)):
        yield Example("C2", TABLE, {"table": rng.normal(size=(h, 2 * k + 1)), "n": n, "m": m})
    yield Example("C2", TABLE, {"table": rng.normal(size=(3, 1)), "n": 4, "m": 5})
    yield Example("C2", TABLE, {"table": rng.normal(size=(1, 3)), "n": 2, "m": 11})


@relative.hidden("errors")
def _(rng):
    for h, width, n, m in ((3, 4, 2, 3), (2, 2, 3, 2), (3, 6, 4, 4), (5, 8, 2, 2), (4, 2, 1, 1)):
        inputs = {"table": rng.normal(size=(h, width)), "n": n, "m": m}
        yield Example("C3", TABLE, inputs, raises="ValueError")


relative.slip(
    "E11", "distance-mirrored",
    "Your bias is mirrored: you look up i − j, and the contract takes j − i, so that later keys use the right half of the table.",
    "np.arange(m) - np.arange(n)[:, None]", "np.arange(n)[:, None] - np.arange(m)",
)  # fmt: skip
relative.slip(
    "E11", "distance-without-sign",
    "You look up |i − j|: keys before and after the query get the same number. The table has a number for each side.",
    "np.clip(distance, -k, k)", "np.clip(np.abs(distance), -k, k)",
)  # fmt: skip
relative.slip(
    "E11", "negative-distance-without-sign",
    "You look up −|i − j|: keys after the query get the numbers for keys before it.",
    "np.clip(distance, -k, k)", "np.clip(-np.abs(distance), -k, k)",
)  # fmt: skip
relative.slip(
    "E12", "not-clipped",
    "Far distances are not clipped: an index beyond the table is an error, and a negative one counts from the other end.",
    "np.clip(distance, -k, k) + k", "distance + k",
)  # fmt: skip
relative.slip(
    "E12", "clipped-above-only",
    "Distances are clipped above only: below −k the index turns negative, and NumPy counts it from the other end.",
    "np.clip(distance, -k, k)", "np.minimum(distance, k)",
)  # fmt: skip
relative.slip(
    "E12", "clipped-below-only",
    "An index leaves the table: clip the distances on both sides, at −k and at k.",
    "np.clip(distance, -k, k)", "np.maximum(distance, -k)",
)  # fmt: skip
relative.slip(
    "E12", "clipped-one-short",
    "The outermost columns are never used: clip at −k and k, not one earlier.",
    "np.clip(distance, -k, k)", "np.clip(distance, -(k - 1), k - 1)",
)  # fmt: skip
relative.slip(
    "E12", "clipped-one-short-above",
    "The last column is never used: the upper bound is k itself (k − 1 is what a range would give).",
    "np.clip(distance, -k, k)", "np.clip(distance, -k, k - 1)",
)  # fmt: skip
relative.slip(
    "E12", "wrapped", "Far distances come round to the other end of the table (a modulo). They have to stay at −k or k.",
    "np.clip(distance, -k, k) + k", "(distance + k) % table.shape[1]",
)  # fmt: skip
relative.slip(
    "E12", "zero-beyond-the-table",
    "Distances beyond the table get 0 in your bias; they count as −k or k.",
    "    return table[:, np.clip(distance, -k, k) + k]",
    "    return np.where(np.abs(distance) <= k, table[:, np.clip(distance, -k, k) + k], 0)",
)  # fmt: skip
relative.slip(
    "E19", "aligned-at-the-end",
    "You count the queries from m − n, as for a cache, where they are the last ones. In this function queries and keys both count from 0.",
    "np.arange(n)[:, None]", "(np.arange(n)[:, None] + m - n)",
)  # fmt: skip
relative.slip(
    "B53", "axes-exchanged", "Rows and columns of each head are exchanged: rows are queries, columns are keys.",
    "    return table[:, np.clip(distance, -k, k) + k]",
    "    return np.swapaxes(table[:, np.clip(distance, -k, k) + k], -1, -2)",
)  # fmt: skip
relative.slip(
    "X09", "heads-last", "Your heads are the last axis; they are the first: (h, n, m).",
    "    return table[:, np.clip(distance, -k, k) + k]",
    "    return table.T[np.clip(distance, -k, k) + k]",
)  # fmt: skip
relative.slip(
    "X10", "first-head-for-all", "All heads get the numbers of the first one: each has a row of the table.",
    "    return table[:, np.clip(distance, -k, k) + k]",
    "    return np.array([table[0, np.clip(distance, -k, k) + k]] * len(table))",
)  # fmt: skip
relative.slip(
    "X11", "middle-at-zero",
    "You forget the + k: distance 0 stands in the middle of the table, not in its first column.",
    "np.clip(distance, -k, k) + k", "np.clip(distance, -k, k)",
)  # fmt: skip
relative.slip(
    "X12", "only-as-many-keys-as-queries", "Your bias is n × n: it needs a column for each of the m keys.",
    "np.arange(m) - np.arange(n)[:, None]", "np.arange(n) - np.arange(n)[:, None]",
)  # fmt: skip
relative.slip(
    "X13", "even-width-accepted", "A table with an even number of columns is taken; it has no middle and must raise a ValueError.",
    "if table.shape[1] % 2 == 0:", "if False:",
)  # fmt: skip
relative.slip(
    "X14", "heads-checked", "A table with an odd number of columns is refused: do you test the number of rows, the heads?",
    "if table.shape[1] % 2 == 0:", "if table.shape[0] % 2 == 0:",
)  # fmt: skip
relative.slip(
    "X15", "causal", "Keys after the query get −inf: this function hides nothing, that is the mask's part.",
    "    return table[:, np.clip(distance, -k, k) + k]",
    "    return np.where(distance <= 0, table[:, np.clip(distance, -k, k) + k], -np.inf)",
)  # fmt: skip


@relative.alternative("loops into lists")
def relative_by_loops(table, n, m):
    k, rest = divmod(len(table[0]), 2)
    if rest == 0:
        raise ValueError("even")
    bias = []
    for row in table:
        bias.append([[row[max(-k, min(k, j - i)) + k] for j in range(m)] for i in range(n)])
    return bias


@relative.alternative("np.take")
def relative_by_take(table, n, m):
    h, width = np.shape(table)
    if not width % 2:
        raise ValueError(f"width {width}")
    index = np.add.outer(-np.arange(n), np.arange(m)) + (width - 1) // 2
    return np.take(table, np.clip(index, 0, width - 1), axis=1)


@relative.alternative("take clips by itself")
def relative_take_clips(table, n, m):
    if table.shape[-1] % 2 != 1:
        raise ValueError("odd, please")
    i, j = np.mgrid[:n, :m]
    return table.take(j - i + table.shape[-1] // 2, axis=-1, mode="clip")


@relative.alternative("one-hot product")
def relative_by_one_hot(table, n, m):
    if table.shape[1] % 2 == 0:
        raise ValueError(table.shape)
    k = table.shape[1] // 2
    distance = np.arange(m)[None, :] - np.arange(n)[:, None]
    one_hot = np.maximum(np.minimum(distance, k), -k)[..., None] == np.arange(-k, k + 1)
    return np.einsum("nmw,hw->hnm", one_hot.astype(float), table)


@relative.alternative("padded table, sliding rows")
def relative_by_sliding(table, n, m):
    h, width = table.shape
    if width % 2 == 0:
        raise ValueError
    k = width // 2
    padded = np.pad(table, ((0, 0), (n + m, n + m)), mode="edge")
    return np.stack([padded[:, n + m + k - i : n + 2 * m + k - i] for i in range(n)], axis=1)


# --- biased_attention ------------------------------------------------------------------------------

biased = exercise.function("biased_attention")
QKVB = "biased_attention(Q, K, V, bias)"
QKVBM = "biased_attention(Q, K, V, bias, mask)"
SECOND = np.array([[True, False, True], [False, True, True]])
SMALL = {"Q": Q2, "K": K3, "V": V3, "bias": BIAS}

biased.witness("values", "C1", "biased_attention(Q, K, V, bias)[1]", **SMALL)
biased.witness("values", "C2", QKVB, **SMALL)
biased.witness("values", "C5", QKVB, **{**SMALL, "bias": BIAS + [[3000.0], [-3000.0]]})
biased.witness(
    "values", "C5", QKVB,
    Q=np.array([[1, 2]]), K=np.array([[1, 0], [0, 1]]), V=np.array([[1, 2, 3], [4, 5, 6]]), bias=np.array([[0, 1]]),
)  # fmt: skip
biased.witness(
    "batches", "C3", "biased_attention(Q, K, V, bias)[1]",
    Q=np.stack([Q2, -Q2]), K=np.stack([K3, K3 / 2]), V=np.stack([V3, -V3]), bias=np.stack([BIAS, -2 * BIAS]),
)  # fmt: skip
biased.witness("batches", "C3", "biased_attention(Q, K, V, bias)[1]", **{**SMALL, "bias": BIAS[:1]})
biased.witness("mask", "C4", QKVBM, **SMALL, mask=SECOND)
biased.witness(
    "mask", "C4", QKVBM, **{**SMALL, "bias": np.array([[90.0, 0.0, 0.0]])},
    mask=np.array([[False, True, True]]),
)  # fmt: skip
biased.witness(  # biases that pull the visible scores below what some set hidden ones to
    "mask", "C4", QKVBM, Q=np.zeros((3, 2)), K=K3, V=V3,
    bias=np.array([[-150.0, 0.0, -149.0], [-2e4, 0.0, -2e4], [-2e6, 0.0, -2e6]]), mask=np.array([[True, False, True]]),
)  # fmt: skip
biased.witness(
    "mask", "C4", QKVBM, **SMALL,
    mask=np.array([[True, True, False], [False, False, False]]), options={"no_warning": True},
)  # fmt: skip
biased.witness("errors", "C6", QKVB, **{**SMALL, "bias": np.ones((3, 2))}, options=RAISES)
biased.witness("errors", "C6", QKVB, **{**SMALL, "bias": np.ones((4, 2, 3))}, options=RAISES)
biased.witness("errors", "C6", QKVB, **{**SMALL, "V": V3[:2]}, options=RAISES)
biased.witness(
    "errors", "C6", QKVB, Q=np.stack([Q2, -Q2]), K=np.stack([K3, K3 / 2]), V=V3[None], bias=BIAS, options=RAISES,
)  # fmt: skip


@biased.hidden("values")
def _(rng):
    for n, m, d_k, d_v in ((5, 7, 4, 3), (4, 3, 9, 5), (1, 6, 2, 4), (5, 1, 3, 2), (3, 8, 16, 1)):
        yield Example("C2", QKVB, draw(rng, (), n, m, d_k, d_v))
    yield Example("C1", "biased_attention(Q, K, V, bias)[1]", draw(rng, (), 4, 4, 4, 4))
    case = draw(rng)
    yield Example("C2", "biased_attention(Q=Q, K=K, V=V, bias=bias)", case)
    yield Example("C2", "biased_attention(Q, K, V, bias, None)", {**case, "bias": case["bias"] * 3})
    shifts = rng.permutation([-9000.0, 5000.0, 0.0, -2500.0, 700.0])[:, None]
    yield Example("C5", QKVB, {**case, "bias": case["bias"] + shifts})
    case = draw(rng)
    case["Q"][2] *= 4000
    yield Example("C5", QKVB, case)
    yield Example("C5", QKVB, integers(draw(rng)))
    yield Example("C5", QKVB, draw(rng, (), d_k=16, dtype=np.float32))
    yield Example("C5", QKVB, fortran(draw(rng)))


@biased.hidden("batches")
def _(rng):
    biases = [
        ((3,), (3, 5, 7)),
        ((3,), (5, 7)),
        ((3,), (1, 7)),
        ((3,), (3, 1, 7)),
        ((3,), (3, 5, 1)),
    ]
    biases += [((2, 3), (3, 5, 7)), ((2, 3), (2, 1, 5, 7)), ((2, 3), (2, 3, 5, 7)), ((), (7,))]
    biases += [((1,), (5, 7)), ((2, 1, 3), (3, 5, 7)), ((5,), (5, 1, 7)), ((1,), (1, 5, 7))]
    for batch, shape in biases:
        yield Example("C3", QKVB, {**draw(rng, batch), "bias": rng.normal(size=shape) * 2})
    case = draw(rng, (4,), 4, 4, 4, 4)
    yield Example("C3", QKVB, {**case, "bias": rng.normal(size=(4, 4, 4))})
    for batch, shape in (
        ((3,), (3, 1, 7)),
        ((3,), (3, 5, 7)),
        ((3,), (5, 7)),
        ((2, 3), (3, 5, 7)),
        ((2, 3), (2, 1, 1, 7)),
    ):
        yield Example("C3", QKVBM, {**draw(rng, batch), "mask": some_mask(rng, *shape)})
    yield Example("C3", QKVB, fortran(draw(rng, (3,))))


@biased.hidden("mask")
def _(rng):
    for n, m in ((5, 7), (4, 4), (6, 3)):
        yield Example("C4", QKVBM, {**draw(rng, (), n, m), "mask": some_mask(rng, n, m)})
    keyword = "biased_attention(Q, K, V, bias, mask=mask)"
    yield Example("C4", keyword, {**draw(rng), "mask": some_mask(rng, 1, 7)})
    whole = integers(draw(rng))
    yield Example("C4", QKVBM, {**whole, "mask": some_mask(rng, 5, 7)})
    yield Example("C4", QKVBM, {**draw(rng, dtype=np.float32), "mask": some_mask(rng, 5, 7)})
    hidden = ~some_mask(rng, 1, 7)  # hidden keys whose bias is far above the visible ones
    for lift in (80, 280):
        case = draw(rng)
        yield Example("C4", QKVBM, {**case, "bias": case["bias"] + lift * hidden, "mask": ~hidden})
    for depth in (300, 3e4, 3e6, 2e7):  # visible scores below every usual penalty but -1e9
        case = draw(rng)
        case["bias"] -= depth
        yield Example("C4", QKVBM, {**case, "mask": some_mask(rng, 5, 7)})
    mask = some_mask(rng, 5, 7)
    mask[int(rng.integers(5))] = False
    yield Example("C4", QKVBM, {**draw(rng), "mask": mask}, no_warning=True)
    yield Example("C4", QKVBM, {**draw(rng), "mask": np.zeros((1, 7), bool)}, no_warning=True)


@biased.hidden("errors")
def _(rng):
    def inputs(q, k, v, b):
        shapes = {"Q": q, "K": k, "V": v, "bias": b}
        return normal(rng, **shapes)

    for case in qkv_misfits(rng):
        case["bias"] = rng.normal(size=(4, 5))
        yield Example("C6", QKVB, case, raises="ValueError")
    fits = ((3, 4, 2), (3, 5, 2), (3, 5, 6))
    for b in ((4, 4), (5, 4), (5, 5), (2, 4, 5), (2, 3, 4, 5), (1, 3, 4, 5), (4,), (3, 5)):
        yield Example("C6", QKVB, inputs(*fits, b), raises="ValueError")
    for b in ((3, 4, 5), (1, 4, 5)):  # an axis more than the scores have, be it of size 1
        yield Example("C6", QKVB, inputs((4, 2), (5, 2), (5, 3), b), raises="ValueError")
    one = ((1, 4, 2), (1, 5, 2), (1, 5, 2))
    yield Example("C6", QKVB, inputs(*one, (3, 4, 5)), raises="ValueError")


BIASED_SCORES = "scores = scores + np.broadcast_to(bias, scores.shape)"
biased.slip(
    "X16", "bias-not-used", "The bias has no effect: is the sum assigned?",
    BIASED_SCORES, "np.broadcast_to(bias, scores.shape)",
)  # fmt: skip
biased.slip(
    "E17", "bias-after-the-softmax",
    "The bias is added to the weights, after the softmax: your rows do not sum to 1. Add it to the scores.",
    "weights = masked_softmax(scores, mask)",
    "weights = masked_softmax(attention_scores(Q, K), mask) + np.broadcast_to(bias, scores.shape)",
)  # fmt: skip
biased.slip(
    "E18", "bias-scaled-too",
    "The bias is divided by √d_k together with the dot products. It is added after the division, as it is.",
    BIASED_SCORES, "scores = scores + np.broadcast_to(bias, scores.shape) / math.sqrt(Q.shape[-1])",
)  # fmt: skip
biased.slip(
    "B01", "no-scale",
    "The dot products are not divided by √d_k. Some models with a learned bias (T5) leave the division out; here it stays.",
    "scores = attention_scores(Q, K)", "scores = attention_scores(Q, K) * math.sqrt(Q.shape[-1])",
)  # fmt: skip
biased.slip(
    "B02", "divided-by-d-k", "The dot products are divided by d_k, not by its root.",
    "scores = attention_scores(Q, K)", "scores = attention_scores(Q, K) / math.sqrt(Q.shape[-1])",
)  # fmt: skip
biased.slip(
    "X17", "bias-subtracted", "The bias is subtracted; it is to be added.",
    BIASED_SCORES, "scores = scores - np.broadcast_to(bias, scores.shape)",
)  # fmt: skip
biased.slip(
    "X18", "bias-multiplied", "The scores are multiplied by the bias; it is to be added.",
    BIASED_SCORES, "scores = scores * np.broadcast_to(bias, scores.shape)",
)  # fmt: skip
biased.slip(
    "E15", "bias-instead-of-scores", "Your weights come from the bias alone: the scores are lost.",
    BIASED_SCORES, "scores = 1.0 * np.broadcast_to(bias, scores.shape)",
)  # fmt: skip
biased.slip(
    "X19", "bias-added-twice", "The bias is added twice.",
    BIASED_SCORES, "scores = scores + 2 * np.broadcast_to(bias, scores.shape)",
)  # fmt: skip
biased.slip(
    "X20", "bias-transposed",
    "The bias is transposed: its rows belong to queries, its columns to keys.",
    BIASED_SCORES,
    "scores = scores + np.swapaxes(np.atleast_2d(bias), -1, -2)",
)  # fmt: skip
biased.slip(
    "X21", "bias-of-the-first-item", "All batch items get the bias of the first one.",
    BIASED_SCORES,
    "scores = scores + np.broadcast_to(bias, scores.shape)[(0,) * (scores.ndim - 2)]",
)  # fmt: skip
biased.slip(
    "X22", "bias-of-the-first-query", "All queries get the bias of the first one: it has a row for each.",
    BIASED_SCORES, "scores = scores + np.broadcast_to(bias, scores.shape)[..., :1, :]",
)  # fmt: skip
biased.slip(
    "X23", "any-bias-accepted",
    "A bias with more axes or sizes than the scores is added, and the result grows: that must raise a ValueError (np.broadcast_to does).",
    BIASED_SCORES, "scores = scores + bias",
)  # fmt: skip
biased.slip(
    "X24", "bias-must-be-full",
    "Only a bias of exactly the scores' shape is taken; one that broadcasts to it is right, too.",
    BIASED_SCORES,
    "if np.shape(bias) != scores.shape:\n        raise ValueError('bias')\n    scores = scores + bias",
)  # fmt: skip
biased.slip(
    "B57", "keys-instead-of-values", SAID["keys-instead-of-values"],
    "return weights @ V, weights", "return weights @ K, weights",
)  # fmt: skip
biased.slip(
    "B61", "weights-first", SAID["weights-first"],
    "return weights @ V, weights", "return weights, weights @ V",
)  # fmt: skip
biased.slip(
    "B61", "output-only", SAID["output-only"],
    "return weights @ V, weights", "return weights @ V",
)  # fmt: skip
biased.slip(
    "X14", "scores-returned", SAID["scores-returned"],
    "return weights @ V, weights", "return weights @ V, scores",
)  # fmt: skip
biased.slip(
    "B47", "mask-not-used", SAID["mask-not-used"],
    "masked_softmax(scores, mask)", "masked_softmax(scores)",
)  # fmt: skip
biased.slip(
    "B38", "mask-the-other-way", SAID["mask-the-other-way"],
    "masked_softmax(scores, mask)", "masked_softmax(scores, None if mask is None else ~mask)",
)  # fmt: skip
biased.slip(
    "B19", "bias-after-the-mask",
    "The mask comes first and gives hidden scores a penalty of 100; the bias lifts them again. Hidden keys get weight 0 whatever their bias.",
    "    weights = masked_softmax(scores, mask)",
    "    if mask is not None:\n"
    "        weights = masked_softmax(np.where(mask, scores, scores - 100))\n"
    "        weights = weights * np.any(mask, axis=-1, keepdims=True)\n"
    "    else:\n"
    "        weights = masked_softmax(scores)",
)  # fmt: skip
for fill in ("100", "1e4", "1e6"):
    biased.slip(
        "B27", f"filled-with-minus-{fill}",
        f"Hidden scores become −{fill}. Where the bias pulls the visible ones below that, hidden keys win: use −inf.",
        "    weights = masked_softmax(scores, mask)",
        "    if mask is not None:\n"
        f"        weights = masked_softmax(np.where(mask, scores, -{fill}))\n"
        "        weights = weights * np.any(mask, axis=-1, keepdims=True)\n"
        "    else:\n"
        "        weights = masked_softmax(scores)",
    )  # fmt: skip
biased.slip(
    "B32", "mean-for-nothing",
    SAID["mean-for-nothing"],
    "masked_softmax(scores, mask)",
    "masked_softmax(scores if mask is None else np.where(mask, scores, -1e9))",
)  # fmt: skip
biased.slip(
    "B32", "mean-for-nothing-before-the-bias",
    "A finite penalty takes the place of the hidden scores, and then the bias is added: a query that "
    "sees nothing gets the weights of its bias. They must be 0.",
    "masked_softmax(scores, mask)",
    "masked_softmax(scores if mask is None else np.where(mask, attention_scores(Q, K), -1e9) + bias)",
)  # fmt: skip
biased.slip(
    "F08", "not-renormalised",
    SAID["not-renormalised"],
    "masked_softmax(scores, mask)",
    "masked_softmax(scores) * (1 if mask is None else mask)",
)  # fmt: skip
biased.slip(
    "X16", "values-not-checked", SAID["values-not-checked"],
    "if V.shape[:-1] != K.shape[:-1]:", "if V.shape[-2] != K.shape[-2]:",
)  # fmt: skip


@biased.misconception("B31", SAID["nan-rows"])
def nan_rows(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    scores = scores + np.broadcast_to(bias, scores.shape)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@biased.misconception("A09", SAID["no-maximum"])
def no_maximum(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    exponentials = np.exp(scores + np.broadcast_to(bias, scores.shape))
    if mask is not None:
        exponentials = exponentials * mask
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total > 0, total, 1)
    return weights @ V, weights


@biased.misconception(
    "A10",
    "You subtract the maximum of the whole array: rows far below it vanish. Each row has a maximum of its own.",
)
def maximum_of_all(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    scores = scores + np.broadcast_to(bias, scores.shape)
    exponentials = np.exp(scores - scores.max())
    if mask is not None:
        exponentials = exponentials * mask
    total = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(total > 0, total, 1)
    return weights @ V, weights


@biased.misconception("A13", SAID["softmax-over-queries"])
def softmax_over_queries(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    scores = scores + np.broadcast_to(bias, scores.shape)
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    exponentials = np.exp(scores - scores.max(axis=-2, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-2, keepdims=True)
    return weights @ V, weights


@biased.misconception("A24", "Your function changes the bias or another input in place.")
def changes_the_bias(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1] or np.broadcast(bias, scores).shape != scores.shape:
        raise ValueError("shapes")
    if bias.shape == scores.shape and bias.dtype.kind == "f":
        bias += scores
        scores = bias
    else:
        scores = scores + bias
    weights = masked_softmax(scores, mask)
    return weights @ V, weights


@biased.misconception("A26", SAID["output-like-values"])
def output_like_values(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    weights = masked_softmax(scores + np.broadcast_to(bias, scores.shape), mask)
    return (weights @ V).astype(V.dtype), weights


@biased.misconception(
    "X27",
    "The bias is cut to integers before it is added: the scores took its dtype from integer inputs, or it was converted.",
)
def bias_cut(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    weights = masked_softmax(scores + np.broadcast_to(bias, scores.shape).astype(int), mask)
    return weights @ V, weights


@biased.alternative("everything by hand, minus 1e9 and zero for nothing")
def biased_by_hand(Q, K, V, bias, mask=None):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or K.shape[:-1] != V.shape[:-1]:
        raise ValueError("shapes")
    scores = np.matmul(Q, np.swapaxes(K, -1, -2)) / np.sqrt(Q.shape[-1])
    if np.broadcast_shapes(np.shape(bias), scores.shape) != scores.shape:
        raise ValueError("bias")
    scores = scores + bias
    visible = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    scores = np.where(visible, scores, -1e9)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights = e / e.sum(axis=-1, keepdims=True) * visible.any(axis=-1, keepdims=True)
    return weights @ V, weights


@biased.alternative("loops over batch and queries")
def biased_by_loops(Q, K, V, bias, mask=None):
    Q, K, V = (np.asarray(x, dtype=float) for x in (Q, K, V))
    if Q.shape[:-2] != K.shape[:-2] or K.shape[:-1] != V.shape[:-1] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    shape = (*Q.shape[:-1], K.shape[-2])
    bias = np.broadcast_to(bias, shape)
    visible = np.broadcast_to(True if mask is None else mask, shape)
    weights = np.zeros(shape)
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    for index in np.ndindex(*Q.shape[:-1]):
        keys = np.flatnonzero(visible[index])
        if not keys.size:
            continue
        s = K[index[:-1]][keys] @ Q[index] / len(Q[index]) ** 0.5 + bias[index][keys]
        e = np.exp(s - s.max())
        weights[index][keys] = e / e.sum()
        output[index] = weights[index] @ V[index[:-1]]
    return output, weights


@biased.alternative("the bias as more columns of Q and K")
def bias_in_the_product(Q, K, V, bias, mask=None):
    attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    m = K.shape[-2]
    full = np.broadcast_to(bias, (*Q.shape[:-1], m)) * math.sqrt(Q.shape[-1] + m)
    Q = np.concatenate([Q * math.sqrt((Q.shape[-1] + m) / Q.shape[-1]), full], axis=-1)
    K = np.concatenate([K, np.broadcast_to(np.eye(m), (*K.shape[:-2], m, m))], axis=-1)
    weights = masked_softmax(attention_scores(Q, K), mask)
    return weights @ V, weights


@biased.alternative("masked after the exponential, renormalised, lists out")
def masked_exponentials(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError
    scores = scores + np.broadcast_to(bias, scores.shape)
    visible = (
        np.ones_like(scores, dtype=bool) if mask is None else np.broadcast_to(mask, scores.shape)
    )
    top = np.where(visible, scores, -1e30).max(axis=-1, keepdims=True)
    e = np.exp(np.minimum(scores - top, 0)) * visible
    total = e.sum(-1, keepdims=True)
    total[total == 0] = 1
    return [(e / total @ V).tolist(), (e / total).tolist()]


@biased.alternative("bias and mask as one matrix")
def bias_holds_the_mask(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError("K, V")
    extra = np.array(np.broadcast_to(bias, scores.shape), dtype=float)
    if mask is not None:
        extra[~np.broadcast_to(mask, scores.shape)] = -np.inf
    with np.errstate(invalid="ignore"):
        e = np.exp(scores + extra - (scores + extra).max(axis=-1, keepdims=True))
        weights = np.nan_to_num(e / e.sum(axis=-1, keepdims=True))
    return np.einsum("...ij,...jk->...ik", weights, V), weights


@biased.alternative("bias as exponentials' factor")
def bias_as_factor(Q, K, V, bias, mask=None):
    scores = attention_scores(Q, K)
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError("K, V")
    factor = np.broadcast_to(bias, scores.shape)
    top = (scores + factor).max(axis=-1, keepdims=True)
    log = scores - top + factor
    if mask is not None:
        log = np.ma.array(log, mask=~np.broadcast_to(mask, log.shape)).filled(-np.inf)
        top = np.where(np.isfinite(log), log, -1e300).max(axis=-1, keepdims=True)
        log = log - np.where(top > -1e299, top, 0)
    e = np.exp(log)
    total = e.sum(axis=-1, keepdims=True)
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return weights @ V, weights


# --- alibi_slopes ----------------------------------------------------------------------------------

slopes = exercise.function("alibi_slopes")
SLOPES = "alibi_slopes(num_heads)"

slopes.witness("powers", "C1", SLOPES, num_heads=4)
slopes.witness("powers", "C1", SLOPES, num_heads=1)
slopes.witness("powers", "C1", SLOPES, num_heads=16)
slopes.witness("others", "C2", SLOPES, num_heads=3)
slopes.witness("others", "C2", SLOPES, num_heads=6)


@slopes.hidden("powers")
def _(rng):
    for h in rng.permutation([2, 8, 16, 32, 64]):
        yield Example("C1", SLOPES, {"num_heads": int(h)})
    yield Example(
        "C1", "alibi_slopes(num_heads=num_heads)", {"num_heads": 2 ** int(rng.integers(3, 7))}
    )


@slopes.hidden("others")
def _(rng):
    few, many = rng.permutation([5, 7, 9, 10]), rng.permutation([12, 14, 15, 20, 25, 48])
    for h in (*few, *many[:4]):
        yield Example("C2", SLOPES, {"num_heads": int(h)})
    for low in (33, 65):
        h = int(rng.integers(low, 2 * low - 3))
        yield Example("C2", SLOPES, {"num_heads": h})


@slopes.misconception(
    "E20",
    "You use the formula for powers of two with every number of heads. For others the published rule interleaves two such series.",
)
def one_formula_for_all(num_heads):
    return 2.0 ** (-8 * (np.arange(num_heads) + 1) / num_heads)


slopes.slip(
    "E20", "sorted", "Your slopes are sorted. The published order is: those of the lower power of two, then the ones between.",
    "return np.array(slopes + between[: num_heads - power])",
    "return -np.sort(-np.array(slopes + between[: num_heads - power]))",
)  # fmt: skip
slopes.slip(
    "E20", "repeated",
    "Beyond the power of two your slopes start again from the first. From the slopes for 2p heads take i = 0, 2, 4 …: those "
    "of i = 1, 3, 5 … are there already.",
    "[0::2]", "[1::2]",
)  # fmt: skip
slopes.slip(
    "E20", "first-ones-of-the-larger-series",
    "From the slopes for 2p heads you take the first ones; take every other one.",
    "[0::2]", "",
)  # fmt: skip
slopes.slip(
    "E20", "between-first", "The slopes of the larger series come first in yours; they belong at the end.",
    "slopes + between[: num_heads - power]", "between[: num_heads - power] + slopes",
)  # fmt: skip
slopes.slip(
    "E20", "last-ones-between", "You take the last of the slopes between, and the first are asked for.",
    "between[: num_heads - power]", "between[len(between) - (num_heads - power) :]",
)  # fmt: skip
slopes.slip(
    "E20", "cut-from-the-next-power",
    "You take the series of the next higher power of two and cut it. The rule starts from the next lower one.",
    "return np.array(slopes + between[: num_heads - power])",
    "larger = slopes_for_a_power_of_two(power if power == num_heads else 2 * power)\n"
    "    return np.array(larger[:num_heads])",
)  # fmt: skip
slopes.slip(
    "E20", "wrong-power",
    "A power of two takes the next lower power, too: for 4 heads p is 4 itself, and nothing is interleaved.",
    "while 2 * power <= num_heads:", "while 2 * power < num_heads:",
)  # fmt: skip
slopes.slip(
    "E20", "one-series-for-the-rest",
    "The slopes between come from 2h heads, with h itself. The rule takes 2p heads, with the power of two.",
    "slopes_for_a_power_of_two(2 * power)", "slopes_for_a_power_of_two(2 * num_heads)",
)  # fmt: skip
slopes.slip(
    "E21", "exponent-from-zero", "Your slopes start at 1: the exponent is −8(i + 1)/h, with i + 1.",
    "2 ** (-8 * (i + 1) / count)", "2 ** (-8 * i / count)",
)  # fmt: skip
slopes.slip(
    "E21", "halves", "Your slopes are 1/2, 1/4, 1/8 … for any number of heads. That is the case of 8 heads; the exponent is −8(i + 1)/h.",
    "2 ** (-8 * (i + 1) / count)", "2.0 ** -(i + 1)",
)  # fmt: skip
slopes.slip(
    "E21", "integer-exponent", "Your exponent is divided without remainder (//): slopes repeat.",
    "2 ** (-8 * (i + 1) / count)", "2.0 ** (-8 * (i + 1) // count)",
)  # fmt: skip
slopes.slip(
    "X28", "positive-exponent", "Your slopes grow from head to head: the exponent is negative.",
    "2 ** (-8 * (i + 1) / count)", "2 ** (8 * (i + 1) / count)",
)  # fmt: skip
slopes.slip(
    "X29", "natural-base", "Your slopes are powers of e; the base is 2.",
    "2 ** (-8 * (i + 1) / count)", "math.exp(-8 * (i + 1) / count)",
)  # fmt: skip
slopes.slip(
    "X30", "reversed", "Your slopes rise from head to head: the first head has the steepest.",
    "return np.array(slopes + between[: num_heads - power])",
    "return np.array(slopes + between[: num_heads - power])[::-1]",
)  # fmt: skip
slopes.slip(
    "X31", "negative", "Your slopes are negative; the minus sign stands in the bias.",
    "return np.array(slopes", "return -np.array(slopes",
)  # fmt: skip
slopes.slip(
    "X32", "extra-axes", "Your slopes have the axes (h, 1, 1); (h,) is asked for.",
    "return np.array(slopes + between[: num_heads - power])",
    "return np.array(slopes + between[: num_heads - power])[:, None, None]",
)  # fmt: skip
slopes.slip(
    "X33", "linear", "Your slopes fall linearly; they are a geometric series: each is a fixed fraction of the one before.",
    "2 ** (-8 * (i + 1) / count)", "1 - (i + 1) / (count + 1)",
)  # fmt: skip


@slopes.alternative("recursion")
def by_recursion(num_heads):
    p = 2 ** math.floor(math.log2(num_heads))
    if p == num_heads:
        start = 2 ** (-(2 ** -(math.log2(num_heads) - 3)))
        return [start * start**i for i in range(num_heads)]
    return by_recursion(p) + by_recursion(2 * p)[0::2][: num_heads - p]


@slopes.alternative("NumPy")
def by_numpy(num_heads):
    p = 1 << (int(num_heads).bit_length() - 1)
    first = np.exp2(-8 / p * np.arange(1, p + 1))
    rest = np.exp2(-4 / p * np.arange(1, 2 * (num_heads - p), 2))
    return np.append(first, rest)


@slopes.alternative("geometric means between neighbours")
def by_means(num_heads):
    p = max(q for q in (2**e for e in range(20)) if q <= num_heads)
    ratio = 0.5 ** (8 / p)
    found = []
    for i in range(num_heads):
        found.append(ratio ** (i + 1) if i < p else ratio ** (i - p + 0.5))
    return tuple(found)


# --- alibi_bias ------------------------------------------------------------------------------------

falling = exercise.function("alibi_bias", uses=("alibi_slopes",))
ALIBI = "alibi_bias(num_heads, n, m)"

falling.witness("values", "C1", ALIBI, num_heads=3, n=2, m=2)
falling.witness("values", "C1", ALIBI, num_heads=1, n=2, m=4)
falling.witness("values", "C1", ALIBI, num_heads=1, n=3, m=2)
falling.witness("values", "C2", "np.array(alibi_bias(num_heads, n, m)) <= 0", num_heads=1, n=2, m=3)


@falling.hidden("values")
def _(rng):
    for h, n, m in ((4, 3, 7), (2, 5, 5), (3, 6, 6), (1, 1, 6), (8, 7, 4), (5, 2, 9), (6, 4, 1)):
        yield Example("C1", ALIBI, {"num_heads": h, "n": n, "m": m})
    n, m = int(rng.integers(5, 20)), int(rng.integers(21, 40))
    yield Example("C1", ALIBI, {"num_heads": 12, "n": n, "m": m})
    yield Example(
        "C1", "alibi_bias(num_heads=num_heads, n=n, m=m)", {"num_heads": 4, "n": m, "m": n}
    )
    square = {"num_heads": 2, "n": n, "m": n}
    yield Example("C2", "np.triu(alibi_bias(num_heads, n, m)[0])", square)
    yield Example("C2", "np.isfinite(alibi_bias(num_heads, n, m))", square)


falling.slip(
    "X34", "aligned-at-the-start",
    "Your queries are counted from 0. They are the last n of the m positions: query i stands at i + (m − n).",
    "np.arange(n) + (m - n)", "np.arange(n)",
)  # fmt: skip
falling.slip(
    "X35", "aligned-with-the-wrong-sign", "Your queries are shifted the wrong way: query i stands at i + (m − n).",
    "np.arange(n) + (m - n)", "np.arange(n) + (n - m)",
)  # fmt: skip
falling.slip(
    "X36", "never-shifted-back",
    "With more queries than keys your shift stops at 0; it may be negative, as in causal_mask.",
    "np.arange(n) + (m - n)", "np.arange(n) + max(m - n, 0)",
)  # fmt: skip
falling.slip(
    "X37", "bias-positive", "Your bias rises with the distance: the sign is wrong, far keys should lose.",
    "return -np.asarray", "return np.asarray",
)  # fmt: skip
falling.slip(
    "X38", "distance-signed",
    "Keys after the query get a positive bias: you take i − j where |i − j| is asked for. (Under a causal mask both would do.)",
    "np.abs(positions[:, None] - np.arange(m))", "positions[:, None] - np.arange(m)",
)  # fmt: skip
falling.slip(
    "X39", "zero-after-the-query",
    "Keys after the query get the bias 0; they count by distance like the ones before. (Under a causal mask both would do.)",
    "np.abs(positions[:, None] - np.arange(m))", "np.maximum(positions[:, None] - np.arange(m), 0)",
)  # fmt: skip
falling.slip(
    "X40", "hidden-after-the-query", "Keys after the query get −inf: hiding them is the causal mask's part, not the bias's.",
    "    return -np.asarray(alibi_slopes(num_heads))[:, None, None] * distances",
    "    ahead = np.arange(m) > positions[:, None]\n"
    "    return np.where(ahead, -np.inf, -np.asarray(alibi_slopes(num_heads))[:, None, None] * distances)",
)  # fmt: skip
falling.slip(
    "X41", "position-of-the-key-only",
    "Your bias grows with the key's position (slope · j). That differs from −slope · distance by a number per row, and only for keys before the "
    "query; the contract asks for the distance itself.",
    "    return -np.asarray(alibi_slopes(num_heads))[:, None, None] * distances",
    "    return np.asarray(alibi_slopes(num_heads))[:, None, None] * np.broadcast_to(np.arange(m), (n, m))",
)  # fmt: skip
falling.slip(
    "X42", "no-slope", "Your bias is the distance alone: multiply it by each head's slope.",
    "-np.asarray(alibi_slopes(num_heads))[:, None, None]", "-np.ones(num_heads)[:, None, None]",
)  # fmt: skip
falling.slip(
    "X43", "one-slope-for-all", "All heads have the slope of the first.",
    "-np.asarray(alibi_slopes(num_heads))[:, None, None]", "-np.full(num_heads, np.asarray(alibi_slopes(num_heads))[0])[:, None, None]",
)  # fmt: skip
falling.slip(
    "E20", "slopes-of-one-formula",
    "For numbers of heads that are no power of two your slopes follow one formula; use alibi_slopes.",
    "alibi_slopes(num_heads)", "(2.0 ** (-8 * (np.arange(num_heads) + 1) / num_heads))",
)  # fmt: skip
falling.slip(
    "X44", "divided-by-the-slope", "You divide by the slope: near heads become far ones. Multiply.",
    "-np.asarray(alibi_slopes(num_heads))[:, None, None] * distances",
    "-distances / np.asarray(alibi_slopes(num_heads))[:, None, None]",
)  # fmt: skip
falling.slip(
    "X45", "squared-distance", "Your bias falls with the square of the distance.",
    "* distances", "* distances**2",
)  # fmt: skip
falling.slip(
    "B53", "axes-exchanged", "Rows and columns of each head are exchanged: rows are queries, columns are keys.",
    "[:, None, None] * distances", "[:, None, None] * distances.T",
)  # fmt: skip
falling.slip(
    "X09", "heads-last", "Your heads are the last axis; they are the first: (h, n, m).",
    "-np.asarray(alibi_slopes(num_heads))[:, None, None] * distances", "-alibi_slopes(num_heads) * distances[..., None]",
)  # fmt: skip
falling.slip(
    "X46", "batch-axis", "Your bias has an axis more than (h, n, m).",
    "return -np.asarray(alibi_slopes(num_heads))[:, None, None]", "return -np.asarray(alibi_slopes(num_heads))[None, :, None, None]",
)  # fmt: skip
falling.slip(
    "X47", "distance-from-one", "A word's distance to itself is 1 in your bias; it is 0.",
    "np.abs(positions[:, None] - np.arange(m))", "np.abs(positions[:, None] - np.arange(m)) + 1",
)  # fmt: skip


@falling.alternative("loops into lists")
def alibi_by_loops(num_heads, n, m):
    bias = []
    for slope in alibi_slopes(num_heads):
        bias.append([[-slope * abs(i + m - n - j) for j in range(m)] for i in range(n)])
    return bias


@falling.alternative("einsum")
def alibi_by_einsum(num_heads, n, m):
    i, j = np.ogrid[m - n : m, 0:m]
    return np.einsum("h,nm->hnm", alibi_slopes(num_heads), -np.abs(i - j))


@falling.alternative("the smaller of both differences")
def alibi_by_minimum(num_heads, n, m):
    ahead = np.subtract.outer(np.arange(m), np.arange(m - n, m)).T
    return np.multiply.outer(alibi_slopes(num_heads), np.minimum(ahead, -ahead))


@falling.alternative("the last rows of the square case")
def alibi_from_the_square(num_heads, n, m):
    size = max(n, m)
    square = -np.abs(np.arange(size)[:, None] - np.arange(size)[None, :])
    rows = square[size - n :, size - m :]
    return np.stack([float(slope) * rows for slope in alibi_slopes(num_heads)])


# --- apply_rope ------------------------------------------------------------------------------------

rope = exercise.function("apply_rope")
ROPE = "apply_rope(x, positions)"
ONES = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0]])

rope.witness("values", "C1", ROPE, x=ONES, positions=np.array([0, 1]))
rope.witness("values", "C1", ROPE, x=np.array([[1.0, 2.0, 3.0, 4.0]]), positions=np.array([2]))
rope.witness(
    "values", "C1", "apply_rope(x, positions, base)", x=ONES, positions=np.array([0, 1]), base=100.0
)
rope.witness(
    "values", "C2", ROPE, x=np.array([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]]),
    positions=np.array([5, 0, 3]),
)  # fmt: skip
rope.witness("values", "C4", ROPE, x=np.array([[3, 1, 2, 5]]), positions=np.array([1]))
rope.witness("batches", "C3", ROPE, x=np.stack([ONES, -2 * ONES]), positions=np.array([1, 4]))
rope.witness("errors", "C5", ROPE, x=np.ones((2, 3)), positions=np.array([0, 1]), options=RAISES)
rope.witness("errors", "C5", ROPE, x=np.ones((3, 2)), positions=np.array([1]), options=RAISES)
rope.witness("errors", "C5", ROPE, x=np.ones((2, 4)), positions=np.array([0, 1, 2]), options=RAISES)


def some_positions(rng, n, top=60):
    """Distinct positions in no order, none of them where it would stand by itself."""
    return rng.permutation(np.arange(n, top))[:n]


@rope.hidden("values")
def _(rng):
    for n, d in ((5, 8), (3, 2), (4, 6), (1, 10), (6, 4), (7, 12)):
        x = rng.normal(size=(n, d))
        yield Example("C1", ROPE, {"x": x, "positions": np.arange(n)})
        yield Example("C2", ROPE, {"x": x, "positions": some_positions(rng, n)})
    x = rng.normal(size=(4, 6))
    inputs = {"x": x, "positions": some_positions(rng, 4), "base": float(rng.uniform(50, 3000))}
    yield Example("C1", "apply_rope(x, positions, base)", inputs)
    yield Example("C1", "apply_rope(x=x, positions=positions, base=base)", {**inputs, "base": 500})
    yield Example("C2", ROPE, {"x": x, "positions": np.array([3, 3, 0, 3])})
    yield Example("C2", ROPE, {"x": x, "positions": np.array([40_000, 9, 2, 100])})
    yield Example("C4", ROPE, {**inputs, "x": (x * 5).astype(int)} | {"positions": np.arange(4)})
    single = rng.normal(size=(5, 8)).astype(np.float32)
    yield Example("C4", ROPE, {"x": single, "positions": some_positions(rng, 5, 20)})
    yield Example("C4", ROPE, {"x": np.asfortranarray(x), "positions": some_positions(rng, 4)})


@rope.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3), (3, 1, 2), (5,)):
        x = rng.normal(size=(*batch, 5, 6))
        yield Example("C3", ROPE, {"x": x, "positions": some_positions(rng, 5)})
    yield Example(
        "C3", ROPE, {"x": rng.normal(size=(4, 4, 4)), "positions": some_positions(rng, 4)}
    )
    x = rng.normal(size=(3, 7, 4, 2)).swapaxes(1, 2)
    yield Example("C3", ROPE, {"x": x, "positions": some_positions(rng, 7)})


@rope.hidden("errors")
def _(rng):
    shapes = [((4, 5), 4), ((4, 1), 4), ((2, 4, 7), 4), ((1, 3), 1)]
    shapes += [((4, 6), 1), ((4, 6), 3), ((4, 6), 6), ((1, 6), 4), ((3, 4, 2), 3), ((3, 4, 2), 1)]
    for shape, count in shapes:
        inputs = {"x": rng.normal(size=shape), "positions": rng.permutation(9)[:count]}
        yield Example("C5", ROPE, inputs, raises="ValueError")


TURN = "    turned[..., 0::2] = u * cos - v * sin\n    turned[..., 1::2] = u * sin + v * cos\n"  # the two lines of the rotation
rope.slip(
    "E30", "turned-backwards", "Your pairs turn the other way: the minus sign belongs to the first of the two.",
    TURN, TURN.replace("u * cos - v", "u * cos + v").replace("u * sin + v", "v").replace("v * cos", "v * cos - u * sin"),
)  # fmt: skip
rope.slip(
    "E30", "both-plus", "Both lines have a plus: u cos θ + v sin θ is no rotation, lengths change. The first line has a minus.",
    "u * cos - v * sin", "u * cos + v * sin",
)  # fmt: skip
rope.slip(
    "E30", "both-minus", "Both lines have a minus: u sin θ − v cos θ is a reflection. The second line has a plus.",
    "u * sin + v * cos", "u * sin - v * cos",
)  # fmt: skip
rope.slip(
    "X48", "sine-and-cosine-exchanged", "Sine and cosine are exchanged: at position 0 nothing may change.",
    "cos, sin = np.cos(angles), np.sin(angles)", "sin, cos = np.cos(angles), np.sin(angles)",
)  # fmt: skip
rope.slip(
    "X49", "in-place-too-early",
    "The second line of the rotation uses a u that the first has changed already: keep both old values until both new ones are there.",
    TURN,
    "    turned[...] = x\n    u, v = turned[..., 0::2], turned[..., 1::2]\n"
    "    u[...] = u * cos - v * sin\n    v[...] = u * sin + v * cos\n",
)  # fmt: skip
rope.slip(
    "E02", "exponent-positive", "Your angles grow from pair to pair: the exponent −2i/d is negative, later pairs turn slower.",
    "-np.arange(0, d, 2) / d", "np.arange(0, d, 2) / d",
)  # fmt: skip
rope.slip(
    "E26", "exponent-without-the-two", "Your later pairs turn too fast: the exponent is −2i/d, where i counts the pairs.",
    "-np.arange(0, d, 2) / d", "-np.arange(d // 2) / d",
)  # fmt: skip
rope.slip(
    "E26", "exponent-doubled", "Your later pairs turn too slowly: i counts the pairs, so the exponents are 0, −2/d, −4/d …",
    "-np.arange(0, d, 2) / d", "-2 * np.arange(0, d, 2) / d",
)  # fmt: skip
rope.slip(
    "E26", "pairs-counted-from-one", "Your pairs are counted from 1: the first pair turns by the position itself.",
    "-np.arange(0, d, 2) / d", "-np.arange(2, d + 1, 2) / d",
)  # fmt: skip
rope.slip(
    "E28", "no-turn", "Nothing turns: x comes out as it was.",
    "    return turned", "    return x * 1.0",
)  # fmt: skip
rope.slip(
    "E28", "same-angle-for-all-pairs", "All pairs turn by the position itself: later pairs have to turn slower.",
    "base ** (-np.arange(0, d, 2) / d)", "base ** np.zeros(d // 2)",
)  # fmt: skip
rope.slip(
    "X01", "base-ignored", "The argument `base` has no effect: 10000 is only its default.",
    "* base **", "* 10000.0 **",
)  # fmt: skip
rope.slip(
    "X50", "positions-ignored", "You count the rows from 0 and ignore `positions`.",
    "np.asarray(positions)[:, None]", "np.arange(n)[:, None]",
)  # fmt: skip
rope.slip(
    "E07", "positions-from-one", "Every row stands one position too late: position 0 does not turn.",
    "np.asarray(positions)[:, None]", "(np.asarray(positions)[:, None] + 1)",
)  # fmt: skip
rope.slip(
    "X51", "positions-from-the-first", "You count from the first position; the positions are to be taken as they are.",
    "np.asarray(positions)[:, None]", "(np.asarray(positions) - positions[0])[:, None]",
)  # fmt: skip
rope.slip(
    "X52", "positions-sorted", "The positions are sorted; they stand in the order of the rows.",
    "np.asarray(positions)[:, None]", "np.sort(positions)[:, None]",
)  # fmt: skip
rope.slip(
    "E29", "turned-twice", "Every pair turns by twice its angle: is the rotation applied two times?",
    "np.asarray(positions)[:, None]", "(2 * np.asarray(positions)[:, None])",
)  # fmt: skip
rope.slip(
    "X04", "degrees", "Your angles are taken as degrees; sine and cosine want radians.",
    "base ** (-np.arange(0, d, 2) / d)", "base ** (-np.arange(0, d, 2) / d) * (math.pi / 180)",
)  # fmt: skip
rope.slip(
    "E32", "cut-to-integers", "Integers stay integers: the result took its dtype from x and lost its decimals.",
    "np.zeros(x.shape)", "np.zeros(x.shape, dtype=x.dtype)",
)  # fmt: skip
rope.slip(
    "E05", "halves-together",
    "You turn the right pairs but return all first partners, then all second ones: put each back in its own column.",
    "    return turned", "    return np.concatenate([turned[..., 0::2], turned[..., 1::2]], axis=-1)",
)  # fmt: skip
rope.slip(
    "X53", "a-number-added", "The encoding is added to x; a rotation multiplies.",
    TURN,
    "    turned[..., 0::2] = u + sin\n    turned[..., 1::2] = v + cos\n",
)  # fmt: skip
rope.slip(
    "A21", "rounded", SAID["rounded"],
    "    return turned", "    return np.round(turned, 4)",
)  # fmt: skip
rope.slip(
    "X54", "one-position-stretched", "A single position is used for all rows: unless x has one row, it must raise a ValueError.",
    "if d % 2 or len(positions) != n:", "if d % 2 or len(positions) not in (1, n):",
)  # fmt: skip
rope.slip(
    "X55", "odd-width-accepted", "An odd width is not refused with a ValueError: its last column has no partner.",
    "    if d % 2 or len(positions) != n:",
    "    if d % 2 and len(positions) == n:\n        return np.concatenate([x[..., :-1], x[..., -1:]], axis=-1)\n"
    "    if len(positions) != n:",
)  # fmt: skip
rope.slip(
    "X56", "positions-not-checked",
    "Positions whose number is not that of the rows raise no ValueError: too many are cut, or one is stretched.",
    "    if d % 2 or len(positions) != n:",
    "    if len(positions) > n:\n        positions = positions[:n]\n    if d % 2 or len(positions) not in (1, n):",
)  # fmt: skip


@rope.misconception(
    "E31",
    "You pair column i with column i + d/2 (the halves of the width), as some libraries do. Here neighbours are a pair: columns 2i and 2i + 1.",
)
def halves_paired(x, positions, base=10000.0):
    n, d = x.shape[-2:]
    if d % 2 or len(positions) != n:
        raise ValueError("shapes")
    angles = np.asarray(positions)[:, None] * base ** (-np.arange(0, d, 2) / d)
    cos, sin = np.cos(angles), np.sin(angles)
    u, v = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([u * cos - v * sin, u * sin + v * cos], axis=-1)


@rope.misconception(
    "E31",
    "Your pairs are neighbours, but the angles are laid out for halves (repeated as a block): columns 2i and 2i + 1 share one angle.",
)
def angles_for_halves(x, positions, base=10000.0):
    n, d = x.shape[-2:]
    if d % 2 or len(positions) != n:
        raise ValueError("shapes")
    angles = np.asarray(positions)[:, None] * base ** (-np.arange(0, d, 2) / d)
    angles = np.concatenate([angles, angles], axis=-1)
    rotated = np.stack([-x[..., 1::2], x[..., 0::2]], axis=-1).reshape(x.shape)
    return x * np.cos(angles) + rotated * np.sin(angles)


@rope.misconception(
    "E26",
    "Each column has an angle of its own; the two columns of a pair share one, with the exponent −2i/d.",
)
def an_angle_for_each_column_of_x(x, positions, base=10000.0):
    n, d = x.shape[-2:]
    if d % 2 or len(positions) != n:
        raise ValueError("shapes")
    angles = np.asarray(positions)[:, None] * base ** (-np.arange(d) / d)
    rotated = np.stack([-x[..., 1::2], x[..., 0::2]], axis=-1).reshape(x.shape)
    return x * np.cos(angles) + rotated * np.sin(angles)


@rope.misconception(
    "X57",
    "The angles are laid along the wrong axis: with batches, the positions belong to the axis before the last.",
)
def positions_on_the_first_axis(x, positions, base=10000.0):
    n, d = x.shape[0], x.shape[-1]
    if d % 2 or len(positions) != n:
        raise ValueError("shapes")
    shape = (n,) + (1,) * (x.ndim - 2)
    angles = np.asarray(positions).reshape(*shape, 1) * base ** (-np.arange(0, d, 2) / d)
    turned = np.zeros(x.shape)
    turned[..., 0::2] = x[..., 0::2] * np.cos(angles) - x[..., 1::2] * np.sin(angles)
    turned[..., 1::2] = x[..., 0::2] * np.sin(angles) + x[..., 1::2] * np.cos(angles)
    return turned


@rope.misconception(
    "B64", "Your function takes two axes only; any number of batch axes may lead (`x[..., 0::2]`)."
)
def rope_two_axes(x, positions, base=10000.0):
    n, d = x.shape
    if d % 2 or len(positions) != n:
        raise ValueError("shapes")
    turned = np.zeros((n, d))
    for r, p in enumerate(positions):
        for i in range(d // 2):
            angle = p * base ** (-2 * i / d)
            u, v = x[r, 2 * i], x[r, 2 * i + 1]
            turned[r, 2 * i] = u * math.cos(angle) - v * math.sin(angle)
            turned[r, 2 * i + 1] = u * math.sin(angle) + v * math.cos(angle)
    return turned


@rope.misconception("A48", "Only the first batch item is turned.")
def first_item_turned(x, positions, base=10000.0):
    n, d = x.shape[-2:]
    if d % 2 or len(positions) != n:
        raise ValueError("shapes")
    angles = np.asarray(positions)[:, None] * base ** (-np.arange(0, d, 2) / d)
    turned = np.array(x, dtype=float)
    first = (0,) * (x.ndim - 2)
    u, v = x[first][:, 0::2], x[first][:, 1::2]
    turned[first][:, 0::2] = u * np.cos(angles) - v * np.sin(angles)
    turned[first][:, 1::2] = u * np.sin(angles) + v * np.cos(angles)
    return turned


@rope.misconception("A24", "x is changed in place: the caller's queries are turned afterwards.")
def turns_in_place(x, positions, base=10000.0):
    n, d = x.shape[-2:]
    if d % 2 or len(positions) != n:
        raise ValueError("shapes")
    angles = np.asarray(positions)[:, None] * base ** (-np.arange(0, d, 2) / d)
    u, v = np.array(x[..., 0::2]), np.array(x[..., 1::2])
    turned = x if x.dtype.kind == "f" else x.astype(float)
    turned[..., 0::2] = u * np.cos(angles) - v * np.sin(angles)
    turned[..., 1::2] = u * np.sin(angles) + v * np.cos(angles)
    return turned


@rope.alternative("complex numbers")
def rope_complex(x, positions, base=10000.0):
    if x.shape[-1] % 2 == 1 or np.shape(positions) != (x.shape[-2],):
        raise ValueError("shapes")
    pairs = x[..., 0::2] + 1j * x[..., 1::2]
    d = x.shape[-1]
    turned = pairs * np.exp(1j * np.outer(positions, base ** (-2 * np.arange(d // 2) / d)))
    return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)


@rope.alternative("loops into lists")
def rope_by_loops(x, positions, base=10000.0):
    if x.ndim > 2:
        return [rope_by_loops(item, positions, base) for item in x]
    n, d = x.shape
    if d % 2 != 0 or n != len(positions):
        raise ValueError(f"{x.shape}, {len(positions)}")
    rows = []
    for row, p in zip(x.tolist(), positions, strict=True):
        turned = []
        for i in range(d // 2):
            c, s = math.cos(p / base ** (2 * i / d)), math.sin(p / base ** (2 * i / d))
            u, v = row[2 * i : 2 * i + 2]
            turned += [u * c - v * s, u * s + v * c]
        rows.append(turned)
    return rows


@rope.alternative("x times cosine plus turned x times sine")
def rope_with_rotated(x, positions, base=10000.0):
    x = np.asarray(x)
    *_, n, d = x.shape
    positions = np.asarray(positions)
    if d % 2 or positions.shape[0] != n:
        raise ValueError
    angles = np.repeat(positions[:, None] / base ** (np.arange(d // 2) / (d / 2)), 2, axis=1)
    swapped = x.reshape(*x.shape[:-1], d // 2, 2)[..., ::-1].reshape(x.shape)
    return x * np.cos(angles) + swapped * np.sin(angles) * np.tile([-1, 1], d // 2)


@rope.alternative("rotation matrices")
def rope_by_matrices(x, positions, base=10000.0):
    n, d = x.shape[-2], x.shape[-1]
    if d % 2 or len(positions) != n:
        raise ValueError("no fit")
    result = np.empty(x.shape)
    for r in range(n):
        matrix = np.zeros((d, d))
        for i in range(0, d, 2):
            angle = positions[r] * math.exp(-i / d * math.log(base))
            c, s = math.cos(angle), math.sin(angle)
            matrix[i : i + 2, i : i + 2] = [[c, s], [-s, c]]
        result[..., r, :] = x[..., r, :] @ matrix
    return result


@rope.alternative("all in the precision of x")
def rope_in_single(x, positions, base=10000.0):
    if x.shape[-1] % 2 or len(positions) != x.shape[-2]:
        raise ValueError("x and positions")
    x = x if x.dtype.kind == "f" else x.astype(float)
    rates = (base ** (-np.arange(0, x.shape[-1], 2) / x.shape[-1])).astype(x.dtype)
    angles = np.asarray(positions, dtype=x.dtype)[:, None] * rates
    u, v = x[..., 0::2], x[..., 1::2]
    turned = np.empty_like(x)
    np.subtract(u * np.cos(angles), v * np.sin(angles), out=turned[..., 0::2])
    np.add(u * np.sin(angles), v * np.cos(angles), out=turned[..., 1::2])
    return turned


@rope.alternative("on a copy, in place")
def rope_on_a_copy(x, positions, base=10000.0):
    if x.shape[-1] % 2 or len(positions) != x.shape[-2]:
        raise ValueError("x and positions")
    x = np.array(x, dtype=np.float32 if x.dtype == np.float32 else float)
    for column in range(0, x.shape[-1], 2):
        angle = positions * base ** (-column / x.shape[-1])
        u = x[..., column].copy()
        x[..., column] = u * np.cos(angle) - x[..., column + 1] * np.sin(angle)
        x[..., column + 1] = u * np.sin(angle) + x[..., column + 1] * np.cos(angle)
    return x


# --- break_rope ------------------------------------------------------------------------------------

found = BreakIt(exercise, "break_rope", answer="C1", sentences=5)
SHOWS = """_, x, positions = break_rope()
x, positions = scale * np.array(x, dtype=float), np.array(positions)
n, d = x.shape
angles = positions[:, None] * 10000.0 ** (-np.arange(d // 2) / (d // 2))
u, v = x[:, : d // 2], x[:, d // 2 :]
cos, sin = np.cos(angles), np.sin(angles)
turned = np.concatenate([u * cos - v * sin, u * sin + v * cos], axis=1)
before, after = (np.hypot(y[:, 0::2], y[:, 1::2]) for y in (x, turned))
change = np.abs(after - before).max()
why = "only one pair" if d == 2 else "nothing turns" if not positions.any() else "too little"
"lengths change" if change > 0.01 else why"""
found.fits("""_, x, positions = break_rope()
x, positions = np.array(x, dtype=float), np.array(positions)
n, d = x.shape
largest = max(abs(x).max(), abs(positions).max())
bool(positions.shape == (n,) and n <= 4 and d <= 8 and d % 2 == 0 and largest <= 100)""")
found.fits(SHOWS, "lengths change", scale=1)
found.shows(  # what is turned may be longer: the change only grows
    SHOWS, "lengths change", lambda rng: {"scale": float(rng.uniform(1, 3))}
)

found.input(
    "X58", "one-pair",
    "With d = 2 there is one pair, and the halves are neighbours: both conventions agree. Take a wider x.",
    "np.array([[1.0, 2.0]]), np.array([3])",
)  # fmt: skip
found.input(
    "X59", "at-position-zero",
    "At position 0 nothing turns, in either convention. Take another position.",
    "np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([0])",
)  # fmt: skip
found.input(
    "X60", "nothing-to-turn",
    "Whatever turns in your x, its lengths hardly change: with zeros, or in halves that are alike, the conventions agree.",
    "np.zeros((1, 4)), np.array([3])",
)  # fmt: skip
found.blames(
    "X61", "about-positions", "C2",
    "`found_rope` reads the positions as it should: it is not their order that goes wrong. Which columns are a pair?",
)  # fmt: skip
found.blames(
    "X61", "about-batches", "C3",
    "`found_rope` takes leading axes as it should. Which columns are a pair?",
)  # fmt: skip
found.blames(
    "X61", "about-numbers", "C4",
    "`found_rope` computes integers in floating point and leaves its inputs alone. Which columns are a pair?",
)  # fmt: skip
found.blames(
    "X61", "about-errors", "C5",
    "True, `found_rope` raises no ValueError of its own for an odd width. But the numbers are wrong where the shapes are right: "
    "which columns are a pair?",
)  # fmt: skip
found.returns(
    "X62", "without-the-sentence", "Three things are asked for: the sentence, x, and the positions.",
    "x, np.array([1])",
)  # fmt: skip
found.input(
    "X63", "does-not-fit",
    "Your input does not fit: x (n, d) with n up to 4 and an even d up to 8, and one position for each of the n rows.",
    "x, np.array([0, 1])",
)  # fmt: skip


@found.alternative("lists")
def a_list():
    return ["C1", [[0.5, -2.0, 1.0, 3.0, 0.0, 1.0]], [7]]


@found.alternative("random numbers")
def random_numbers():
    return "C1", np.random.default_rng(3).normal(size=(4, 8)), np.arange(4)


@found.alternative("every column of one row")
def every_column():
    return "C1", np.ones((2, 4)) * [[1], [3]], np.array([50, -9])
