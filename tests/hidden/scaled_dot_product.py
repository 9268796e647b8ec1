"""Hidden tests of chapter 02: scores, masks, scaled dot-product attention."""

import math

import numpy as np

from manyheads import scaled_dot_product
from manyheads.matrices import softmax
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import RAISES, fortran, integers, qkv, qkv_misfits, some_mask
from tests.hidden.common import SAID, filled, subtracted
from tests.hidden.spec import Example, Exercise

exercise = Exercise("02_scaled_dot_product", scaled_dot_product)
grade = exercise.grade

# Small, unequal numbers: two queries and three keys of width 2, values of width 4.
Q2 = np.array([[1.0, 0.0], [0.5, -1.0]])
K3 = np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5]])
V3 = np.array([[1.0, 0.0, 2.0, -1.0], [0.0, 1.0, 0.0, 3.0], [2.0, 2.0, -1.0, 0.0]])


# --- attention_scores ----------------------------------------------------------------------------

scores = exercise.function("attention_scores")
QK = "attention_scores(Q, K)"

scores.witness("values", "C1", QK, Q=Q2, K=K3)
scores.witness("values", "C1", QK, Q=Q2, K=K3[:2])  # square: whatever is exchanged keeps the shape
scores.witness("values", "C1", QK, Q=np.eye(3)[:2] * 3, K=np.arange(6.0).reshape(2, 3))
scores.witness("values", "C3", QK, Q=np.array([[1, 2, 3]]), K=np.array([[1, 0, 1], [2, 1, 0]]))
scores.witness("batches", "C2", QK, Q=np.stack([Q2, -Q2, Q2 + 1]), K=np.stack([K3, K3 * 2, 1 - K3]))
scores.witness("errors", "C4", QK, Q=np.ones((2, 3)), K=np.ones((2, 4)), options=RAISES)
# The last two stretch without an error of NumPy's, by broadcasting and in einsum.
for q, k in (((2, 2, 3), (3, 2, 3)), ((1, 2, 3), (3, 2, 3)), ((2, 1), (2, 3))):
    scores.witness("errors", "C4", QK, Q=np.ones(q), K=np.ones(k), options=RAISES)


@scores.hidden("values")
def _(rng):
    for n, m, d_k in ((5, 7, 4), (3, 2, 9), (4, 4, 4), (1, 6, 5), (6, 1, 1)):
        case = qkv(rng, (), n, m, d_k)
        yield Example("C1", QK, {"Q": case["Q"], "K": case["K"]})
    case = qkv(rng, (), 5, 7, 16, dtype=np.float32)
    yield Example("C3", QK, {"Q": case["Q"], "K": case["K"]})
    Q, K = rng.integers(-9, 9, size=(5, 3)), rng.integers(-9, 9, size=(4, 3))
    yield Example("C3", QK, {"Q": Q, "K": K})
    yield Example("C1", QK, {"Q": Q * 1e3, "K": K * 1e2})


@scores.hidden("batches")
def _(rng):
    for batch in ((3,), (2, 3), (5, 1), (1,), (2, 1, 3)):
        case = qkv(rng, batch, 4, 6, 5)
        yield Example("C2", QK, {"Q": case["Q"], "K": case["K"]})
    case = qkv(rng, (4,), 4, 4, 4)
    yield Example("C2", QK, {"Q": case["Q"], "K": case["K"]})


@scores.hidden("errors")
def _(rng):
    pairs = [((4, 3), (5, 2)), ((4, 1), (5, 3)), ((3, 4, 2), (2, 4, 2)), ((1, 4, 2), (3, 5, 2))]
    pairs += [((4, 2), (3, 5, 2)), ((4, 3), (5, 1)), ((3, 4, 2), (5, 2)), ((5, 3), (3, 5))]
    for q, k in pairs:
        inputs = {"Q": rng.normal(size=q), "K": rng.normal(size=k)}
        yield Example("C4", QK, inputs, raises="ValueError")


@scores.misconception(
    "B01", "Your scores are the plain dot products: the division by √d_k is missing."
)
def no_scale(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    return Q @ np.swapaxes(K, -1, -2)


scores.slip(
    "B02", "divided-by-d-k",
    "You divide by d_k itself; the contract divides by its square root.",
    "math.sqrt(Q.shape[-1])", "Q.shape[-1]",
)  # fmt: skip
scores.slip(
    "B08", "multiplied",
    SAID["multiplied"],
    "/ math.sqrt", "* math.sqrt",
)  # fmt: skip
scores.slip(
    "B07", "constant-scale",
    "You divide by a fixed number. It has to be the square root of the width of these queries and keys.",
    "math.sqrt(Q.shape[-1])", "8.0",
)  # fmt: skip
scores.slip(
    "B03", "scale-by-number-of-queries",
    "You divide by the root of the number of queries. The root to take is that of the last axis, the width.",
    "math.sqrt(Q.shape[-1])", "math.sqrt(Q.shape[-2])",
)  # fmt: skip
scores.slip(
    "B03", "scale-by-number-of-keys",
    "You divide by the root of the number of keys. The root to take is that of the last axis, the width.",
    "math.sqrt(Q.shape[-1])", "math.sqrt(K.shape[-2])",
)  # fmt: skip


@scores.misconception("B52", SAID["keys-not-transposed"])
def keys_not_transposed(Q, K):
    return Q @ K / math.sqrt(Q.shape[-1])


@scores.misconception(
    "B53", "Queries and keys are exchanged: rows should belong to queries and columns to keys."
)
def exchanged(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    return K @ np.swapaxes(Q, -1, -2) / math.sqrt(Q.shape[-1])


@scores.misconception("A03", SAID["transposed-all-axes"])
def transposed_all_axes(Q, K):
    if Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2]:
        raise ValueError("shapes")
    return Q @ K.T / math.sqrt(Q.shape[-1])


@scores.misconception(
    "A05",
    "np.dot pairs every batch item of Q with every one of K. Use @ or np.matmul, which go item by item.",
)
def dot_over_batch(Q, K):
    if Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2]:
        raise ValueError("shapes")
    return np.dot(Q, np.swapaxes(K, -1, -2)) / math.sqrt(Q.shape[-1])


@scores.misconception(
    "B54",
    "You compare features with features (QᵀK): the result has a row for each feature, not for each query.",
)
def features_first(Q, K):
    return np.swapaxes(Q, -1, -2) @ K / math.sqrt(Q.shape[-1])


@scores.misconception("A48", SAID["first-item-only"])
def first_item_only(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    result = np.zeros((*Q.shape[:-1], K.shape[-2]))
    index = (0,) * (Q.ndim - 2)
    result[index] = Q[index] @ K[index].T / math.sqrt(Q.shape[-1])
    return result


@scores.misconception(
    "X01",
    "Shapes that do not fit raise no ValueError: some of them broadcast silently, so test them yourself.",
)
def no_check(Q, K):
    return Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])


@scores.misconception(
    "X02",
    "An axis of size 1 is stretched silently (np.einsum and `*` do that): widths 1 and 3 do not "
    "fit, and nothing says so.",
)
def einsum_stretches(Q, K):
    if Q.shape[:-2] != K.shape[:-2]:
        raise ValueError("shapes")
    return (Q[..., :, None, :] * K[..., None, :, :]).sum(-1) / math.sqrt(Q.shape[-1])


@scores.misconception(
    "A24", "Your function scales its input in place: the caller's Q has other numbers afterwards."
)
def scales_in_place(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    Q = np.asarray(Q, dtype=np.result_type(Q, np.float32) if Q.dtype.kind != "i" else float)
    Q /= math.sqrt(Q.shape[-1])
    return Q @ np.swapaxes(K, -1, -2)


@scores.misconception(
    "A26", "Your scores are cut to integers: the result takes its dtype from integer queries."
)
def truncated(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    return (Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1])).astype(Q.dtype)


@scores.misconception("A21", SAID["rounded"])
def rounded(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    return np.round(Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1]), 4)


@scores.misconception(
    "X03", "You compare by cosine: the lengths of queries and keys belong to the score."
)
def cosine(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    Q = Q / np.linalg.norm(Q, axis=-1, keepdims=True)
    K = K / np.linalg.norm(K, axis=-1, keepdims=True)
    return Q @ np.swapaxes(K, -1, -2)


@scores.misconception(
    "X04", "The softmax comes later, in `attention`: here the scores themselves are asked for."
)
def softmax_already(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("shapes")
    return softmax(Q @ np.swapaxes(K, -1, -2) / math.sqrt(Q.shape[-1]))


@scores.misconception(
    "B64", "Your function only takes arrays with a certain number of axes; any number may lead."
)
def exactly_one_batch_axis(Q, K):
    B, n, d_k = Q.shape
    if K.shape[0] != B or K.shape[-1] != d_k:
        raise ValueError("shapes")
    return Q @ K.transpose(0, 2, 1) / math.sqrt(d_k)


@scores.alternative("einsum")
def scores_by_einsum(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError
    return np.einsum("...id,...jd->...ij", Q, K) / np.sqrt(K.shape[-1])


@scores.alternative("quarter power on both sides")
def quarter_powers(Q, K):
    if Q.shape[-1] != K.shape[-1]:
        raise ValueError("widths")
    if Q.shape[:-2] != K.shape[:-2]:
        raise ValueError("batches")
    s = Q.shape[-1] ** -0.25
    return (Q * s) @ np.moveaxis(K * s, -1, -2)


@scores.alternative("scaled queries, matmul into an output")
def scaled_queries(Q, K):
    if Q.shape[:-2] + Q.shape[-1:] != K.shape[:-2] + K.shape[-1:]:
        raise ValueError("shapes")
    out = np.empty((*Q.shape[:-1], K.shape[-2]), dtype=np.result_type(Q, K, np.float32))
    np.matmul(Q * Q.shape[-1] ** -0.5, K.swapaxes(-2, -1), out=out, casting="same_kind")
    return out


@scores.alternative("broadcast and sum")
def scores_by_broadcast(Q, K):
    if Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2]:
        raise ValueError("no fit")
    products = np.expand_dims(Q, -2) * np.expand_dims(K, -3)
    return np.asfortranarray(products.sum(axis=-1) / math.sqrt(products.shape[-1]))


@scores.alternative("loops into lists")
def scores_by_loops(Q, K):
    Q, K = np.asarray(Q, dtype=float), np.asarray(K, dtype=float)
    if Q.ndim != K.ndim or Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2]:
        raise ValueError(f"{Q.shape} {K.shape}")
    if Q.ndim > 2:
        return [scores_by_loops(q, k) for q, k in zip(Q, K, strict=True)]
    return [[sum(a * b for a, b in zip(q, k, strict=True)) / len(q) ** 0.5 for k in K] for q in Q]


# --- causal_mask -----------------------------------------------------------------------------------

causal = exercise.function("causal_mask")

causal.witness("square", "C1", "causal_mask(n)", n=3)
causal.witness("square", "C1", "causal_mask(n)", n=1)
causal.witness("aligned", "C2", "causal_mask(n, m)", n=2, m=4)
causal.witness("aligned", "C2", "causal_mask(n, m)", n=3, m=2)


@causal.hidden("square")
def _(rng):
    for n in (2, 5, int(rng.integers(6, 40))):
        yield Example("C1", "causal_mask(n)", {"n": n})
        yield Example("C1", "causal_mask(n, n)", {"n": n})
        yield Example("C1", "causal_mask(n, m=None)", {"n": n})


@causal.hidden("aligned")
def _(rng):
    a, b = int(rng.integers(2, 20)), int(rng.integers(21, 40))
    for n, m in ((1, 1), (1, 7), (7, 1), (a, b), (b, a), (4, 5), (5, 4), (5, 5)):
        yield Example("C2", "causal_mask(n, m)", {"n": n, "m": m})
    yield Example("C2", "causal_mask(n, m=m)", {"n": 3, "m": a})


@causal.misconception(
    "B36", "Your mask lets a query see only itself and what comes after: tril where you used triu."
)
def looks_ahead(n, m=None):
    m = n if m is None else m
    return np.triu(np.ones((n, m), dtype=bool), k=m - n)


@causal.misconception(
    "B34", "Your mask hides a query's own position: the diagonal belongs to the visible keys."
)
def strict(n, m=None):
    m = n if m is None else m
    return np.tril(np.ones((n, m), dtype=bool), k=m - n - 1)


@causal.misconception("B35", "Your mask shows one key too many: the next word can be seen.")
def one_too_far(n, m=None):
    m = n if m is None else m
    return np.tril(np.ones((n, m), dtype=bool), k=m - n + 1)


@causal.misconception(
    "B38",
    "Your mask is the opposite: True marks what is hidden (as in PyTorch's MultiheadAttention). Here True is visible.",
)
def opposite(n, m=None):
    m = n if m is None else m
    return np.triu(np.ones((n, m), dtype=bool), k=m - n + 1)


@causal.misconception(
    "B37",
    "Your mask is aligned at the start (top left), as `is_causal` in PyTorch does it. Here it is aligned at the end: the "
    "last query sees the last key.",
)
def top_left(n, m=None):
    return np.tril(np.ones((n, n if m is None else m), dtype=bool))


@causal.misconception(
    "B37", "Your mask is shifted the wrong way where n and m differ: with m − n more keys the diagonal moves right."
)  # fmt: skip
def shifted_the_other_way(n, m=None):
    m = n if m is None else m
    return np.tril(np.ones((n, m), dtype=bool), k=n - m)


@causal.misconception(
    "X05", "The second size is ignored: the mask must have a column for every key."
)
def square_only(n, m=None):
    return np.tril(np.ones((n, n), dtype=bool))


@causal.misconception(
    "B22",
    "Your mask holds 0 and −inf, to be added to the scores. Here a mask is boolean: True where the query may look.",
)
def additive(n, m=None):
    m = n if m is None else m
    return np.where(np.tril(np.ones((n, m), dtype=bool), k=m - n), 0.0, -np.inf)


@causal.misconception(
    "A27", "Your mask holds the numbers 0 and 1; it has to be boolean (dtype=bool)."
)
def zeros_and_ones(n, m=None):
    m = n if m is None else m
    return np.tril(np.ones((n, m)), k=m - n)


@causal.misconception("B53", "Rows and columns are exchanged: rows are queries, columns are keys.")
def exchanged_axes(n, m=None):
    m = n if m is None else m
    return np.tril(np.ones((n, m), dtype=bool), k=m - n).T


@causal.misconception(
    "X06",
    "The first query sees a key although there are more queries than keys: the alignment must not stop at zero.",
)
def never_empty(n, m=None):
    m = n if m is None else m
    return np.tril(np.ones((n, m), dtype=bool), k=max(m - n, 0))


@causal.misconception("X07", "Your mask has an extra axis; (n, m) is asked for.")
def extra_axis(n, m=None):
    m = n if m is None else m
    return np.tril(np.ones((1, n, m), dtype=bool), k=m - n)


@causal.alternative("comparison of positions")
def by_positions(n, m=None):
    m = n if m is None else m
    return np.arange(m) <= np.arange(n)[:, None] + (m - n)


@causal.alternative("nested lists")
def lists_of_bool(n, m=None):
    if m is None:
        m = n
    return [[j - i <= m - n for j in range(m)] for i in range(n)]


@causal.alternative("not triu")
def not_triu(n, m=None):
    if m is None:
        m = n
    return np.logical_not(np.triu(np.ones((n, m)), k=m - n + 1))


@causal.alternative("np.tri")
def by_tri(n, m=None):
    m = n if m is None else m
    return np.tri(n, m, m - n, dtype=bool)


@causal.alternative("filled row by row")
def row_by_row(n, m=None):
    m = n if m is None else m
    mask = np.zeros((n, m), dtype=bool)
    for i in range(n):
        mask[i, : max(0, i + m - n + 1)] = True
    return mask


# --- padding_mask ----------------------------------------------------------------------------------

padding = exercise.function("padding_mask")
LENGTHS = "padding_mask(lengths, m)"

padding.witness("values", "C1", LENGTHS, lengths=np.array([2, 3, 1]), m=4)
padding.witness("values", "C2", LENGTHS, lengths=np.array([3, 0]), m=3)


@padding.hidden("values")
def _(rng):
    for B, m in ((3, 7), (5, 5), (1, 4), (7, 3), (4, 1)):
        yield Example("C1", LENGTHS, {"lengths": rng.integers(0, m + 1, size=B), "m": m})
    yield Example("C1", LENGTHS, {"lengths": rng.integers(1, 9, size=6), "m": 8})
    yield Example("C2", LENGTHS, {"lengths": np.array([0, 5, 2, 1]), "m": 5})
    yield Example("C2", LENGTHS, {"lengths": np.array([4, 4]), "m": 4})


@padding.misconception(
    "B38", "Your mask marks the filling with True. Here True marks the words, which may be seen."
)
def opposite_padding(lengths, m):
    return (np.arange(m) >= np.asarray(lengths)[:, None])[:, None, :]


@padding.misconception(
    "B44", "Your mask is (B, m). It needs an axis for the queries between them: (B, 1, m)."
)
def no_query_axis(lengths, m):
    return np.arange(m) < np.asarray(lengths)[:, None]


@padding.misconception(
    "B43", "Your mask lies on the query axis, (B, m, 1): keys are to be hidden, not queries."
)
def on_the_queries(lengths, m):
    return (np.arange(m) < np.asarray(lengths)[:, None])[:, :, None]


@padding.misconception(
    "X08", "One key too many is visible: a sentence of length 2 has the positions 0 and 1."
)
def one_too_many(lengths, m):
    return (np.arange(m) <= np.asarray(lengths)[:, None])[:, None, :]


@padding.misconception(
    "X09", "One word too few is visible: a sentence of length 2 has the positions 0 and 1."
)
def one_too_few(lengths, m):
    return (np.arange(m) < np.asarray(lengths)[:, None] - 1)[:, None, :]


@padding.misconception(
    "X09",
    "A sentence without filling loses all its words: `-0` as a start counts from the front. Count from the start: lengths[b].",
)
def minus_zero(lengths, m):
    mask = np.ones((len(lengths), 1, m), dtype=bool)
    for b, length in enumerate(lengths):
        mask[b, 0, -(m - length) :] = False
    return mask


@padding.misconception("X10", "The filling stands at the end of a sentence, not at its start.")
def filled_at_the_start(lengths, m):
    return (np.arange(m) >= m - np.asarray(lengths)[:, None])[:, None, :]


@padding.misconception("A27", "Your mask holds the numbers 0 and 1; it has to be boolean.")
def padding_numbers(lengths, m):
    return (np.arange(m) < np.asarray(lengths)[:, None])[:, None, :].astype(int)


@padding.misconception(
    "X11",
    "Your mask is square, (B, m, m), with filled queries hidden as well: only keys are hidden.",
)
def hides_queries_too(lengths, m):
    valid = np.arange(m) < np.asarray(lengths)[:, None]
    return valid[:, :, None] & valid[:, None, :]


@padding.misconception(
    "X12", "Your mask is as wide as the longest sentence; it has to have m columns."
)
def as_wide_as_the_longest(lengths, m):
    lengths = np.asarray(lengths)
    return (np.arange(lengths.max()) < lengths[:, None])[:, None, :]


@padding.misconception(
    "B22", "Your mask holds 0 and −inf, to be added to the scores. Here a mask is boolean."
)
def additive_padding(lengths, m):
    return np.where(np.arange(m) < np.asarray(lengths)[:, None], 0.0, -np.inf)[:, None, :]


@padding.misconception("X13", "All sentences get the mask of the first one.")
def first_length_only(lengths, m):
    row = np.arange(m) < lengths[0]
    return np.repeat(row[None, None, :], len(lengths), axis=0)


@padding.alternative("loop")
def padding_loop(lengths, m):
    mask = np.zeros((len(lengths), 1, m), dtype=bool)
    for b, length in enumerate(lengths):
        mask[b, 0, :length] = True
    return mask


@padding.alternative("lists")
def padding_lists(lengths, m):
    return [[[j < length for j in range(m)]] for length in lengths]


@padding.alternative("reshape")
def padding_reshape(lengths, m):
    return np.arange(m).reshape(1, 1, m) < np.reshape(lengths, (-1, 1, 1))


@padding.alternative("np.less.outer")
def padding_outer(lengths, m):
    return np.greater.outer(lengths, np.arange(m))[:, np.newaxis]


@padding.alternative("row of words, row of filling")
def padding_concatenated(lengths, m):
    return np.array([[[True] * int(k) + [False] * (m - int(k))] for k in lengths])


# --- attention -------------------------------------------------------------------------------------

attention = exercise.function("attention", uses=("attention_scores",))
QKV = "attention(Q, K, V)"
QKVM = "attention(Q, K, V, mask)"
SECOND = np.array([[True, False, True], [False, True, True]])

attention.witness("values", "C1", "attention(Q, K, V)[1]", Q=Q2, K=K3, V=V3)
attention.witness("values", "C2", QKV, Q=Q2, K=K3, V=V3)
attention.witness(  # as many keys as queries, so that exchanged axes keep the shape
    "values", "C2", QKV, Q=Q2, K=K3[:2], V=V3[:2]
)
attention.witness("mask", "C3", QKVM, Q=Q2, K=K3[:2], V=V3[:2], mask=np.tri(2, dtype=bool))
attention.witness("mask", "C3", QKVM, Q=Q2, K=K3, V=V3, mask=SECOND)
attention.witness(  # a hidden key that scores far above the others
    "mask", "C3", QKVM, Q=np.array([[1.0, 0.0], [0.5, 0.0]]),
    K=np.array([[-200.0, 0.0], [100.0, 0.0], [-199.0, 0.0]]), V=V3, mask=np.array([[True, False, True]]),
)  # fmt: skip
attention.witness(
    "nothing", "C4", QKVM, Q=Q2, K=K3, V=V3,
    mask=np.array([[True, True, False], [False, False, False]]), options={"no_warning": True},
)  # fmt: skip
attention.witness("stability", "C5", QKV, Q=Q2 * [[4000.0], [1.0]], K=K3, V=V3)
attention.witness("stability", "C5", QKV, Q=np.array([[-3000.0, 0.0]]), K=K3 + [[3.0, 0.0]], V=V3)
attention.witness(  # visible scores far below what some set hidden ones to
    "stability", "C5", QKVM, Q=np.array([[0.0, 1.0], [0.0, 100.0]]),
    K=np.array([[0.0, -20000.0], [0.0, -20000.0], [0.0, -20000.01]]), V=V3, mask=np.array([[True, False, True]]),
)  # fmt: skip
attention.witness(
    "batches", "C6", QKVM,
    Q=np.stack([Q2, -Q2]), K=np.stack([K3, K3 * 2]), V=np.stack([V3, -V3]),
    mask=np.array([[[True, True, False]], [[False, True, True]]]),
)  # fmt: skip
attention.witness(
    "numbers", "C7", QKV, Q=np.array([[1, 2]]), K=np.array([[1, 0], [0, 1]]),
    V=np.array([[1, 2, 3], [4, 5, 6]]),
)  # fmt: skip
attention.witness("numbers", "C7", QKVM, Q=Q2, K=K3, V=V3, mask=SECOND)
for q, k, v in (
    ((2, 3), (4, 2), (4, 5)),
    ((2, 3), (4, 3), (5, 5)),
    ((2, 2, 3), (2, 4, 3), (1, 4, 5)),
):
    attention.witness("errors", "C8", QKV, Q=np.ones(q), K=np.ones(k), V=np.ones(v), options=RAISES)


@attention.hidden("values")
def _(rng):
    for n, m, d_k, d_v in ((5, 7, 4, 3), (4, 3, 9, 5), (1, 6, 2, 4), (5, 1, 3, 2), (3, 8, 64, 1)):
        yield Example("C2", QKV, qkv(rng, (), n, m, d_k, d_v))
    yield Example("C2", QKV, qkv(rng, (), 4, 4, 4, 4))  # a missing transpose keeps this shape
    case = qkv(rng)
    yield Example("C1", "attention(Q, K, V)[1]", case)
    yield Example("C2", "attention(Q=Q, K=K, V=V)", case)
    yield Example("C2", "attention(Q, K, V, None)", case)


@attention.hidden("mask")
def _(rng):
    for n, m in ((5, 7), (4, 4), (6, 3)):
        yield Example("C3", QKVM, {**qkv(rng, (), n, m), "mask": some_mask(rng, n, m)})
    yield Example("C3", "attention(Q, K, V, mask=mask)", {**qkv(rng), "mask": some_mask(rng, 1, 7)})
    yield Example("C3", QKVM, {**qkv(rng), "mask": np.ones((5, 7), bool)})
    yield Example("C3", QKVM, {**qkv(rng, (3,), 5, 7), "mask": some_mask(rng, 5, 7)})
    yield Example("C3", QKVM, {**qkv(rng, (3,), 5, 7), "mask": some_mask(rng, 3, 1, 7)})
    yield Example("C3", QKVM, {**qkv(rng, (), 7, 7), "mask": np.tril(np.ones((7, 7), bool))})
    case = qkv(rng, (), 5, 7)
    case["Q"][:, 0], case["K"][:, 0] = 50, -4  # visible scores near -100
    yield Example("C3", QKVM, {**case, "mask": some_mask(rng, 5, 7)})
    case = qkv(rng, (), 4, 6, 4)
    for lift in (75, 290):  # hidden keys far above the visible ones expose weak penalties
        yield Example("C3", QKVM, _hidden_above(rng, case, lift))
    yield Example("C3", QKVM, _hidden_above(rng, qkv(rng, (), 4, 6, 4, dtype=np.float32), 70))


def _hidden_above(rng, case, lift):
    """The hidden keys score `lift` above the visible ones."""
    Q, K = np.abs(case["Q"]) * 0.1, np.abs(case["K"]) * 0.1
    Q[:, 0] = 1
    mask = np.array([[True, False, True, True, False, True]])
    K[~mask[0], 0] += lift * math.sqrt(Q.shape[-1])
    return {"Q": Q, "K": K, "V": case["V"], "mask": mask}


@attention.hidden("nothing")
def _(rng):
    for batch in ((), (3,)):
        mask = some_mask(rng, *batch, 5, 7)
        mask[..., int(rng.integers(5)), :] = False
        yield Example("C4", QKVM, {**qkv(rng, batch), "mask": mask}, no_warning=True)
    yield Example("C4", QKVM, {**qkv(rng), "mask": np.zeros((1, 7), bool)}, no_warning=True)
    mask = np.ones((3, 1, 7), bool)
    mask[1] = False
    yield Example("C4", QKVM, {**qkv(rng, (3,)), "mask": mask}, no_warning=True)
    case = qkv(rng, (), 5, 7, dtype=np.float32)
    yield Example("C4", QKVM, {**case, "mask": np.tri(5, 7, -2, dtype=bool)}, no_warning=True)
    case = qkv(rng, (), 3, 4)
    case["Q"] *= 30
    yield Example("C4", QKVM, {**case, "mask": np.tri(3, 4, -1, dtype=bool)}, no_warning=True)


@attention.hidden("stability")
def _(rng):
    case = qkv(rng, (3,), 5, 7)
    case["Q"][1, 2] *= 4000  # one row thousands above the others
    yield Example("C5", QKV, case)
    case = qkv(rng, (), 5, 7)
    case["Q"][:, 0] = 4000
    case["K"][:, 0] = -(2 + rng.random(7) * 0.001)  # all scores below -1800
    yield Example("C5", QKV, case)
    case = qkv(rng, (), 5, 7)
    case["Q"][2] *= 1e6
    yield Example("C5", QKV, case)
    for depth in (4000, 4e4, 4e6):  # visible scores below -1800 (and far below), some keys hidden
        case = qkv(rng, (), 5, 7)
        case["Q"][:, 0], case["K"][:, 0] = depth, -2
        yield Example("C5", QKVM, {**case, "mask": some_mask(rng, 5, 7)})
    case = qkv(rng, (), 4, 6, dtype=np.float32)
    case["Q"][1] *= 1000
    yield Example("C5", QKV, case)


@attention.hidden("batches")
def _(rng):
    for batch in ((3,), (1,), (2, 3), (3, 1, 2)):
        case = qkv(rng, batch, 5, 7)
        yield Example("C6", QKV, case)
        yield Example("C6", QKVM, {**case, "mask": some_mask(rng, *batch, 5, 7)})
    case = qkv(rng, (3,), 4, 4, 4, 4)
    yield Example("C6", QKVM, {**case, "mask": some_mask(rng, 3, 1, 4)})
    yield Example("C6", QKVM, {**qkv(rng, (5,), 5, 5), "mask": some_mask(rng, 5, 1, 5)})
    yield Example("C6", QKVM, {**qkv(rng, (2, 3), 4, 5), "mask": some_mask(rng, 3, 4, 5)})


@attention.hidden("numbers")
def _(rng):
    case = qkv(rng, (), 5, 7)
    yield Example("C7", QKVM, {**case, "mask": some_mask(rng, 5, 7)})
    yield Example("C7", QKV, integers(case))
    yield Example("C7", QKV, {**case, "V": (case["V"] * 5).astype(int)})
    yield Example("C7", QKV, qkv(rng, (3,), 5, 7, 16, dtype=np.float32))
    single = qkv(rng, (), 5, 7, dtype=np.float32)
    yield Example("C7", QKVM, {**single, "mask": some_mask(rng, 5, 7)})
    strided = fortran(qkv(rng, (3,), 5, 7))
    yield Example("C7", QKV, strided)


@attention.hidden("errors")
def _(rng):
    for inputs in qkv_misfits(rng):
        yield Example("C8", QKV, inputs, raises="ValueError")


# Slips in the answer's lines, by what they do to the numbers.
attention.slip(
    "B01", "no-scale", SAID["no-scale"],
    "attention_scores(Q, K)",
    "attention_scores(Q, K) * math.sqrt(Q.shape[-1])",
)  # fmt: skip
attention.slip(
    "B02", "divided-by-d-k", SAID["divided-by-d-k"],
    "attention_scores(Q, K)",
    "attention_scores(Q, K) / math.sqrt(Q.shape[-1])",
)  # fmt: skip
attention.slip(
    "B08", "multiplied", SAID["multiplied"],
    "attention_scores(Q, K)",
    "attention_scores(Q, K) * Q.shape[-1]",
)  # fmt: skip
attention.slip(
    "B03", "scale-by-value-width",
    "The scale is taken from the width of the values; it has to be the width of queries and keys.",
    "attention_scores(Q, K)",
    "attention_scores(Q, K) * math.sqrt(Q.shape[-1] / V.shape[-1])",
)  # fmt: skip
attention.slip(
    "B03", "scale-by-keys",
    "The scale is taken from the number of keys; it has to be the width of queries and keys.",
    "attention_scores(Q, K)",
    "attention_scores(Q, K) * math.sqrt(Q.shape[-1] / K.shape[-2])",
)  # fmt: skip
attention.slip(
    "B07", "constant-scale", SAID["constant-scale"],
    "attention_scores(Q, K)",
    "attention_scores(Q, K) * math.sqrt(Q.shape[-1]) / 8",
)  # fmt: skip
attention.slip(
    "B57", "keys-instead-of-values", SAID["keys-instead-of-values"],
    "weights @ V, weights", "weights @ K, weights",
)  # fmt: skip
attention.slip(
    "B61", "weights-first", SAID["weights-first"],
    "weights @ V, weights", "weights, weights @ V",
)  # fmt: skip
attention.slip(
    "B61", "output-only", SAID["output-only"],
    "weights @ V, weights", "weights @ V",
)  # fmt: skip
attention.slip(
    "X14", "scores-returned", SAID["scores-returned"],
    "weights @ V, weights", "weights @ V, scores",
)  # fmt: skip
attention.slip(
    "B59", "transposed-weights-used",
    SAID["transposed-weights-used"],
    "weights @ V, weights", "np.swapaxes(weights, -1, -2) @ V, weights",
)  # fmt: skip
attention.slip(
    "B38", "mask-the-other-way",
    SAID["mask-the-other-way"],
    "visible = np.broadcast_to(mask, scores.shape)",
    "visible = ~np.broadcast_to(mask, scores.shape)",
)  # fmt: skip
attention.slip(
    "B16", "mask-multiplied",
    SAID["mask-multiplied"],
    "scores = np.where(visible, scores, -np.inf)", "scores = np.where(visible, scores, 0.0)",
)  # fmt: skip
attention.slip(
    "B22", "mask-added", SAID["mask-added"],
    "scores = np.where(visible, scores, -np.inf)", "scores = scores + visible",
)  # fmt: skip
attention.slip(
    "B32", "mean-for-nothing",
    SAID["mean-for-nothing"],
    "    weights = exponentials / np.where(total > 0, total, 1)",
    "    weights = softmax(np.where(visible, scores, -1e9))",
)  # fmt: skip
attention.slip(
    "B32", "nothing-seen-unmasked",
    "A query that sees nothing gets weights as if there were no mask: the same penalty on all its scores changes nothing. "
    "Its weights must be 0.",
    "    weights = exponentials / np.where(total > 0, total, 1)",
    "    weights = softmax(attention_scores(Q, K) - 1e4 * ~visible)",
)  # fmt: skip
for penalty in ("5", "100"):
    attention.slip(
        "B27", f"penalty-{penalty}",
        subtracted(penalty),
        "scores = np.where(visible, scores, -np.inf)",
        f"scores = np.where(visible, scores, scores - {penalty})",
    )  # fmt: skip
for fill in ("5", "100", "1e4", "1e6"):
    attention.slip(
        "B27", f"filled-with-minus-{fill}",
        filled(fill),
        "scores = np.where(visible, scores, -np.inf)", f"scores = np.where(visible, scores, -{fill})",
    )  # fmt: skip
attention.slip(
    "A29", "infinity-times-zero",
    "The mask is built as 0 · −inf, and that is NaN: choose with np.where.",
    "scores = np.where(visible, scores, -np.inf)",
    "scores = scores + np.multiply(~visible, -np.inf, where=np.ones_like(visible))",
)  # fmt: skip
attention.slip(
    "B25", "plus-infinity", SAID["plus-infinity"],
    "scores = np.where(visible, scores, -np.inf)", "scores = np.where(visible, scores, 1e9)",
)  # fmt: skip
attention.slip(
    "B47", "mask-not-used", SAID["mask-not-used"],
    "scores = np.where(visible, scores, -np.inf)", "np.where(visible, scores, -np.inf)",
)  # fmt: skip
attention.slip(
    "A30", "mask-in-a-condition", "`if mask` asks an array for its truth: write `if mask is not None`.",
    "    if mask is None:", "    if not mask:",
)  # fmt: skip
attention.slip(
    "F08", "not-renormalised",
    SAID["not-renormalised"],
    "    weights = exponentials / np.where(total > 0, total, 1)",
    "    weights = np.where(visible, softmax(attention_scores(Q, K)), 0)",
)  # fmt: skip
attention.slip(
    "B31", "nan-rows", SAID["nan-rows"],
    "    weights = exponentials / np.where(total > 0, total, 1)",
    "    weights = softmax(scores)",
)  # fmt: skip
attention.slip(
    "X15", "warns", SAID["warns"],
    "    weights = exponentials / np.where(total > 0, total, 1)",
    "    weights = np.nan_to_num(exponentials / total)",
)  # fmt: skip
attention.slip(
    "B33", "last-key-unlocked", "A query that sees nothing looks at the last key. It must get weights 0.",
    "    scores = np.where(visible, scores, -np.inf)",
    "    visible = visible.copy()\n        visible[..., -1] |= ~visible.any(-1)\n"
    "        scores = np.where(visible, scores, -np.inf)",
)  # fmt: skip
attention.slip(
    "A48", "mask-of-the-first-item", SAID["mask-of-the-first-item"],
    "visible = np.broadcast_to(mask, scores.shape)",
    "visible = np.broadcast_to(mask, scores.shape)\n"
    "        visible = np.broadcast_to(visible[(0,) * (scores.ndim - 2)], scores.shape)",
)  # fmt: skip
attention.slip(
    "B43", "mask-on-queries", SAID["mask-on-queries"],
    "visible = np.broadcast_to(mask, scores.shape)",
    "mask = np.swapaxes(mask, -1, -2) if mask.shape[-2] in (1, mask.shape[-1]) else mask\n"
    "        visible = np.broadcast_to(mask, scores.shape)",
)  # fmt: skip
attention.slip(
    "X16", "values-not-checked", SAID["values-not-checked"],
    "if V.shape[:-1] != K.shape[:-1]:", "if V.shape[-2] != K.shape[-2]:",
)  # fmt: skip


@attention.misconception(
    "B44",
    "The mask is used as an index, and an index is not stretched: broadcast it to the scores' shape first, or use np.where.",
)
def mask_as_an_index(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("K and V")
    if mask is None:
        weights = softmax(scores)
        return weights @ V, weights
    scores[~mask] = -1e9
    weights = np.where(mask, softmax(scores), 0)
    return weights @ V, weights


@attention.misconception("A13", SAID["softmax-over-queries"])
def softmax_over_queries(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores, axis=-2)
    return weights @ V, weights


@attention.misconception("A15", SAID["softmax-over-all"])
def softmax_over_all(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    exponentials = np.exp(scores - scores.max(axis=(-1, -2), keepdims=True))
    weights = exponentials / exponentials.sum(axis=(-1, -2), keepdims=True)
    return weights @ V, weights


@attention.misconception("B15", SAID["hard-argmax"])
def hard_argmax(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = np.eye(scores.shape[-1])[scores.argmax(-1)]
    return weights @ V, weights


@attention.misconception("A18", SAID["no-exponential"])
def no_exponential(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        scores = np.where(mask, scores, 0)
    weights = scores / scores.sum(axis=-1, keepdims=True)
    return weights @ V, weights


@attention.misconception("A19", SAID["sigmoid"])
def sigmoid(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    weights = 1 / (1 + np.exp(-scores))
    return weights @ V, weights


@attention.misconception("A09", SAID["no-maximum"])
def no_maximum(Q, K, V, mask=None):
    exponentials = np.exp(attention_scores(Q, K))
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        exponentials = np.where(mask, exponentials, 0)
    sums = exponentials.sum(axis=-1, keepdims=True)
    seen = exponentials.any(-1, keepdims=True) if mask is None else np.any(mask, -1, keepdims=True)
    weights = exponentials / np.where(seen, sums, 1)
    return weights @ V, weights


@attention.misconception("A10", SAID["maximum-of-all"])
def maximum_of_all(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    visible = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    top = np.where(visible, scores, -np.inf).max(initial=-1e300)
    exponentials = np.where(visible, np.exp(np.where(visible, scores, -np.inf) - top), 0)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(visible.any(-1, keepdims=True), sums, 1)
    return weights @ V, weights


@attention.misconception("X17", SAID["epsilon"])
def epsilon(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    top = np.where(np.isfinite(scores), scores, -1e300).max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - top)
    weights = exponentials / (exponentials.sum(axis=-1, keepdims=True) + 1e-4)
    return weights @ V, weights


@attention.misconception(
    "A24", "Your function changes its inputs (an in-place operation such as Q /= …)."
)
def changes_inputs(Q, K, V, mask=None):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if Q.dtype.kind != "f":
        Q = Q.astype(float)
    Q /= math.sqrt(Q.shape[-1])
    scores = Q @ np.swapaxes(K, -1, -2)
    if mask is None:
        mask = np.ones(scores.shape, dtype=bool)
    scores = np.where(mask, scores, -np.inf)
    top = np.where(np.isfinite(scores), scores, -1e300).max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - top)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(sums > 0, sums, 1)
    return weights @ V, weights


@attention.misconception("A26", SAID["output-like-values"])
def output_like_values(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    visible = np.ones(scores.shape, bool) if mask is None else np.broadcast_to(mask, scores.shape)
    scores = np.where(visible, scores, -np.inf)
    top = np.where(np.isfinite(scores), scores, -1e300).max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - top)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(sums > 0, sums, 1)
    output = np.zeros((*scores.shape[:-1], V.shape[-1]), dtype=V.dtype)
    output[...] = weights @ V
    return output, weights


@attention.misconception("A21", SAID["rounded"])
def rounded(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = np.round(softmax(scores), 4)
    return weights @ V, weights


@attention.misconception("A03", SAID["transposed-all-axes"])
def transposed_all_axes(Q, K, V, mask=None):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    scores = Q @ K.T / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores)
    return weights @ V, weights


@attention.misconception("B52", SAID["keys-not-transposed"])
def keys_not_transposed(Q, K, V, mask=None):
    scores = Q @ K / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores)
    return weights @ V, weights


@attention.misconception(
    "B53", "Queries and keys are exchanged: the rows of the weights belong to queries."
)
def queries_and_keys_exchanged(Q, K, V, mask=None):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    scores = K @ np.swapaxes(Q, -1, -2) / math.sqrt(Q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores)
    return weights @ V, weights


@attention.misconception("X18", SAID["always-causal"])
def always_causal(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if V.shape[:-1] != K.shape[:-1]:
        raise ValueError("shapes")
    n, m = scores.shape[-2:]
    visible = np.broadcast_to(np.tri(n, m, max(m - n, 0), dtype=bool), scores.shape)
    if mask is not None:
        visible = visible & mask
    scores = np.where(visible, scores, -1e9)
    weights = softmax(scores)
    return weights @ V, weights


@attention.misconception("B64", SAID["two-axes-only"])
def two_axes_only(Q, K, V, mask=None):
    n, d_k = Q.shape
    m, d_v = V.shape
    if K.shape != (m, d_k):
        raise ValueError("shapes")
    scores = Q @ K.T / math.sqrt(d_k)
    visible = np.ones((n, m), bool) if mask is None else np.broadcast_to(mask, (n, m))
    scores = np.where(visible, scores, -np.inf)
    top = np.where(np.isfinite(scores), scores, -1e300).max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - top)
    sums = exponentials.sum(axis=-1, keepdims=True)
    weights = exponentials / np.where(sums > 0, sums, 1)
    return weights @ V, weights


@attention.alternative("minus 1e9, then zero for rows that see nothing")
def minus_1e9(Q, K, V, mask=None):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1] or K.shape[:-1] != V.shape[:-1]:
        raise ValueError("shapes do not fit")
    scores = np.matmul(Q, np.swapaxes(K, -1, -2)) / np.sqrt(K.shape[-1])
    if mask is not None:
        mask = np.broadcast_to(mask, scores.shape)
        scores = np.where(mask, scores, -1e9)
    weights = softmax(scores, axis=-1)
    if mask is not None:
        weights = weights * mask.any(axis=-1, keepdims=True)
    return np.matmul(weights, V), weights


@attention.alternative("masked after the exponential, renormalised")
def masked_exponentials(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError
    visible = (
        np.ones_like(scores, dtype=bool) if mask is None else np.broadcast_to(mask, scores.shape)
    )
    top = np.where(visible, scores, -1e30).max(axis=-1, keepdims=True)
    e = np.exp(np.minimum(scores - top, 0)) * visible
    total = e.sum(-1, keepdims=True)
    total[total == 0] = 1
    w = e / total
    return [w @ V, w]


@attention.alternative("masked after the softmax, renormalised")
def masked_weights(Q, K, V, mask=None):
    weights = softmax(attention_scores(Q, K))
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError("keys and values")
    if mask is not None:
        weights = weights * mask
        sums = weights.sum(axis=-1, keepdims=True)
        weights = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    return weights @ V, weights


@attention.alternative("loops over batch and queries")
def loops_over_queries(Q, K, V, mask=None):
    Q, K, V = (np.asarray(x, dtype=float) for x in (Q, K, V))
    if Q.shape[:-2] != K.shape[:-2] or K.shape[:-1] != V.shape[:-1] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("bad shapes")
    weights = np.zeros((*Q.shape[:-1], K.shape[-2]))
    output = np.zeros((*Q.shape[:-1], V.shape[-1]))
    visible = np.broadcast_to(True if mask is None else mask, weights.shape)
    for index in np.ndindex(*Q.shape[:-1]):
        batch = index[:-1]
        keys = np.flatnonzero(visible[index])
        if len(keys) == 0:
            continue
        s = np.array([Q[index] @ K[(*batch, j)] for j in keys]) / Q.shape[-1] ** 0.5
        e = np.exp(s - s.max())
        weights[index][keys] = e / e.sum()
        output[index] = sum(w * V[(*batch, j)] for j, w in zip(keys, e / e.sum(), strict=True))
    return output, weights


@attention.alternative("einsum, masked in place, errors silenced")
def einsum_in_place(Q, K, V, mask=None):
    if Q.shape[-1] != K.shape[-1] or Q.shape[:-2] != K.shape[:-2] or K.shape[:-1] != V.shape[:-1]:
        raise ValueError(f"{Q.shape} {K.shape} {V.shape}")
    s = np.einsum("...nd,...md->...nm", Q, K) * K.shape[-1] ** -0.5
    if mask is not None:
        s[~np.broadcast_to(mask, s.shape)] = -np.inf
    with np.errstate(invalid="ignore"):
        w = np.exp(s - s.max(-1, keepdims=True))
        w = np.nan_to_num(w / w.sum(-1, keepdims=True))
    return np.einsum("...nm,...md->...nd", w, V), w


@attention.alternative("finfo.min, lists out")
def lists_out(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError("K and V")
    hidden = np.zeros(scores.shape, bool) if mask is None else ~np.broadcast_to(mask, scores.shape)
    scores = np.ma.masked_array(scores, hidden).filled(np.finfo(scores.dtype).min)
    weights = softmax(scores)
    weights[hidden] = 0.0
    return (weights @ V).tolist(), weights.tolist()


# --- break_clever_attention ------------------------------------------------------------------------

found = BreakIt(exercise, "break_clever_attention", answer="C4", sentences=8)
MASK = "mask = np.array(break_clever_attention()[1])\n"
found.fits(MASK + "bool(mask.dtype == bool and mask.shape == (3, 3))")
found.shows(  # the order of the queries and of the keys does not matter
    MASK + "mask = mask[order][:, order]\n"
    'why = "nothing is hidden" if mask.all() else "every query sees a key"\n'
    '"a query sees nothing" if (~mask).all(axis=1).any() else why',
    "a query sees nothing",
    lambda rng: {"order": rng.permutation(3)},
)
for name, sentence, message in (
    ("the-softmax", "C1", "Every row of its weights sums to 1. For one kind of query that is too much: which sentence is about it?"),
    ("the-results", "C2", "Two results of the right shapes come back, and the output is weights @ V. Which sentence says what these weights are to be for a query without a key?"),
    ("hidden-scores", "C3", "A hidden score is 1000 below all others, and exp(−1000) is 0 for a computer: it works, as long as there are others. Which sentence is about the case where there are none?"),
    ("large-scores", "C5", "The hidden scores go below the smallest, however large the others are, and the softmax is stable. Which sentence is about a row without a visible score?"),
    ("the-batch", "C6", "The smallest score of a whole batch is low enough for each of its items. Which sentence is about a query that sees nothing?"),
    ("the-numbers", "C7", "Integers and float32 come out right, and np.where makes a new array. Which sentence is about a query that sees nothing?"),
    ("the-shapes", "C8", "It compares the shapes as yours should. Which sentence is about a query that sees nothing?"),
):  # fmt: skip
    found.blames("X20", f"blames-{name}", sentence, message)
found.input(
    "X21", "every-query-sees-a-key",
    "In your mask every query still sees some key. (A column that is all False hides one key from everybody; queries are rows.)",
    "np.array([[True, True, False]] * 3)",
)  # fmt: skip
found.input("X21", "nothing-hidden", "Your mask hides nothing.", "np.ones((3, 3), dtype=bool)")
found.input("X22", "numbers", "A mask is boolean and (3, 3) here.", "np.tri(3, k=-1)")
found.returns(
    "X23", "without-the-mask", "Two things are asked for: the sentence and the mask.", '"C4"'
)


@found.alternative("a list")
def a_list():
    return ["C4", [[False, False, False], [True, True, True], [True, True, True]]]


@found.alternative("nobody sees anything")
def nobody_sees():
    return "C4", np.zeros((3, 3), dtype=bool)
