"""Hidden tests of chapter 11: the encoder layer, sentence vectors, and a real model on student's code."""

import math

import numpy as np

from manyheads import minilm, transformer
from manyheads.matrices import linear, softmax
from manyheads.multi_head import merge_heads, split_heads
from manyheads.scaled_dot_product import attention
from manyheads.transformer import encoder_layer, feed_forward, gelu, layer_norm, sentence_embedding
from tests.hidden.break_it import BreakIt
from tests.hidden.cases import RAISES, fortran, integers, normal, some_mask
from tests.hidden.common import SAID
from tests.hidden.spec import Example, Exercise

exercise = Exercise("11_transformer", transformer)
grade = exercise.grade


# --- layer_norm ----------------------------------------------------------------------------------

norm = exercise.function("layer_norm")
NORM = "layer_norm(x, gamma, beta)"
NORM_EPS = "layer_norm(x, gamma, beta, eps)"


def rows(rng, *shape):
    """Rows of unlike means and spreads, with a scale and a shift of their own for each column."""
    d = shape[-1]
    x = rng.normal(size=shape) * rng.uniform(0.5, 3, size=(*shape[:-1], 1))
    return {
        "x": x + rng.normal(size=(*shape[:-1], 1)) * 2,
        "gamma": rng.normal(size=d) + 1.5,
        "beta": rng.normal(size=d) - 0.5,
    }


X23 = np.array([[1.0, 2.0, 6.0], [4.0, 0.0, -1.0]])
PLAIN = {"gamma": np.ones(3), "beta": np.zeros(3)}

norm.witness("values", "C1", NORM, x=np.array([1.0, 3.0]), gamma=np.ones(2), beta=np.zeros(2))
norm.witness("values", "C1", NORM, x=np.array([1.0, 2.0, 6.0]), **PLAIN)
norm.witness(
    "values", "C2", NORM, x=np.array([1.0, 2.0, 6.0]), gamma=np.array([1.0, 2.0, -1.0]),
    beta=np.array([0.0, 0.5, 10.0]),
)  # fmt: skip
norm.witness(
    "values", "C3", NORM, x=X23, gamma=np.array([2.0, 1.0, 1.0]), beta=np.array([0.0, 1.0, 0.0])
)
norm.witness(
    "values", "C3", NORM, x=np.array([[[1.0, 3.0], [2.0, 8.0]], [[0.0, 1.0], [5.0, 4.0]]]),
    gamma=np.array([1.0, 2.0]), beta=np.array([0.0, 1.0]),
)  # fmt: skip
norm.witness(
    "values", "C3", NORM, x=np.array([[1, 2], [5, 1]]), gamma=np.array([1, 2]),
    beta=np.array([0, 1]),
)  # fmt: skip
SCALED = {"gamma": np.array([1.0, 2.0, 1.0]), "beta": np.array([5.0, 6.0, 7.0])}
norm.witness("scale", "C4", NORM_EPS, x=np.array([1.0, 4.0, -2.0]), **SCALED, eps=3.0)
norm.witness("scale", "C4", NORM, x=np.array([[3.0, 3.0, 3.0], [1e-6, -1e-6, 0.0]]), **SCALED)
norm.witness("scale", "C4", NORM, x=np.array([1000.5, 999.5, 1000.0]), **SCALED)
norm.witness("errors", "C5", NORM, x=X23, gamma=np.ones(2), beta=np.zeros(2), options=RAISES)
norm.witness("errors", "C5", NORM, x=X23, gamma=np.ones(1), beta=np.zeros(3), options=RAISES)


@norm.hidden("values")
def _(rng):
    for shape in ((5,), (4, 3), (3, 7), (4, 4), (2, 3, 5), (3, 3, 3), (2, 1, 4, 6), (1, 8), (3, 2)):
        yield Example("C3", NORM, rows(rng, *shape))
    case = rows(rng, 6, 5)
    yield Example("C2", "layer_norm(x=x, gamma=gamma, beta=beta)", case)
    yield Example("C1", NORM, {**case, "gamma": np.ones(5), "beta": np.zeros(5)})
    yield Example("C2", NORM, {**case, "gamma": np.zeros(5)})
    yield Example(
        "C3",
        NORM,
        {"x": rng.integers(-9, 9, size=(4, 6)), "gamma": np.arange(6), "beta": np.arange(6) % 3},
    )
    yield Example("C3", NORM, {**case, "x": np.asfortranarray(case["x"])})
    outlier = rows(rng, 2, 12)
    outlier["x"][1, int(rng.integers(12))] = -90.0
    yield Example("C1", NORM, outlier)
    case["x"] *= np.array([1e-3, 1, 1e3, 1, 50, 1e5])[:, None]  # rows of unlike scales
    yield Example("C1", NORM, case)


@norm.hidden("scale")
def _(rng):
    for eps in (1e-5, 0.5, 20.0):
        case = rows(rng, 3, 5)
        yield Example("C4", NORM_EPS, {**case, "eps": eps})
    yield Example("C4", "layer_norm(x, gamma, beta, eps=eps)", {**rows(rng, 4), "eps": 2.0})
    case = rows(rng, 4, 6)
    case["x"] *= np.array([1e-5, 1e-6, 1e-7, 1.0])[:, None]  # variances around the default eps
    case["x"] -= case["x"].mean(axis=-1, keepdims=True)
    yield Example("C4", NORM, case)
    case = rows(rng, 3, 5)
    case["x"][1] = case["x"][1, 0]  # a row of equal numbers
    case["x"][2] = 0
    yield Example("C4", NORM, case)
    yield Example("C4", NORM, rows(rng, 3, 1))
    case = rows(rng, 4, 7)
    case["x"] += np.array([100.0, -1000.0, 3000.0, 0.0])[:, None]
    yield Example("C4", NORM, case)


@norm.hidden("errors")
def _(rng):
    shapes = [
        ((4, 3), (4,), (4,)),
        ((4, 3), (3,), (2,)),
        ((4, 3), (1,), (3,)),
        ((4, 3), (3,), (1,)),
    ]
    shapes += [
        ((3, 5), (3,), (3,)),
        ((4, 3), (4, 3), (3,)),
        ((4, 3), (3,), (4, 1)),
        ((4, 1), (3,), (3,)),
    ]
    shapes += [((2, 4, 3), (2,), (2,)), ((5,), (4,), (4,)), ((4, 3), (1, 3), (1, 3))]
    for x, gamma, beta in shapes:
        inputs = {
            "x": rng.normal(size=x),
            "gamma": rng.normal(size=gamma),
            "beta": rng.normal(size=beta),
        }
        yield Example("C5", NORM, inputs, raises="ValueError")


norm.slip(
    "X01", "no-check",
    "A gamma or beta of another shape than (d,) raises no ValueError: NumPy stretches it silently, so compare the shapes.",
    "if not gamma.shape == beta.shape == x.shape[-1:]:", "if gamma.shape[-1] > 1 and gamma.shape[-1] != x.shape[-1] > 1:",
)  # fmt: skip
norm.slip(
    "I02", "one-less",
    "You divide by d − 1 (the sample's variance, ddof=1). Here the variance is the mean of the squares, divided by d.",
    "(centred**2).mean(axis=-1, keepdims=True)", "(centred**2).sum(axis=-1, keepdims=True) / max(x.shape[-1] - 1, 1)",
)  # fmt: skip
norm.slip(
    "X10", "eps-outside-the-root",
    "You add eps to the standard deviation. It is added to the variance, inside the root.",
    "np.sqrt(variance + eps)", "(np.sqrt(variance) + eps)",
)  # fmt: skip
norm.slip(
    "X10", "eps-squared",
    "You add eps² to the variance; the contract adds eps.",
    "variance + eps", "variance + eps**2",
)  # fmt: skip
norm.slip(
    "X11", "without-eps",
    "eps has no effect. It keeps a row of equal numbers from 0/0, and where the variance is small it counts.",
    "variance + eps", "variance",
)  # fmt: skip
norm.slip(
    "X11", "eps-of-pytorch",
    "Your eps is always 1e-5, PyTorch's default. Here it is an argument, and 1e-12 by default, as in BERT.",
    "variance + eps", "variance + 1e-5",
)  # fmt: skip
norm.slip(
    "X11", "eps-at-least",
    "You take eps as a smallest variance. It is added to the variance.",
    "variance + eps", "np.maximum(variance, eps)",
)  # fmt: skip
norm.slip(
    "X12", "divided-by-variance",
    "You divide by the variance. Divide by its square root, the standard deviation.",
    "np.sqrt(variance + eps)", "(variance + eps)",
)  # fmt: skip
norm.slip(
    "X13", "mean-kept",
    "You divide by the standard deviation without subtracting the mean.",
    "gamma * centred", "gamma * x",
)  # fmt: skip
norm.slip(
    "X13", "root-mean-square",
    "This is RMSNorm: it leaves the mean in the row. LayerNorm subtracts it first.",
    "centred = x - x.mean(axis=-1, keepdims=True)", "centred = x * 1.0",
)  # fmt: skip
norm.slip(
    "X13", "only-centred",
    "You subtract the mean and stop. The row also has to be divided by its standard deviation.",
    " / np.sqrt(variance + eps)", "",
)  # fmt: skip
norm.slip(
    "X14", "over-positions",
    "Mean and variance run over the positions, so every column is normalised. LayerNorm takes each row by itself, along the last axis.",
    "axis=-1", "axis=0 if x.ndim == 1 else -2",
)  # fmt: skip
norm.slip(
    "X14", "first-axis",
    "Mean and variance run over the first axis (that is batch normalisation). LayerNorm takes each row by itself, along the last axis.",
    "axis=-1", "axis=0",
)  # fmt: skip
norm.slip(
    "X14", "whole-array",
    "You take one mean and variance for the whole array. Every row has its own.",
    "(axis=-1, keepdims=True)", "()",
)  # fmt: skip
norm.slip(
    "X14", "whole-matrix",
    "You take one mean and variance for all positions of a sentence together. Every row has its own.",
    "axis=-1", "axis=tuple(range(x.ndim))[-2:]",
)  # fmt: skip
norm.slip(
    "X14", "variance-of-everything",
    "Your mean is the row's, but your variance is that of the whole array.",
    "(centred**2).mean(axis=-1, keepdims=True)", "(centred**2).mean()",
)  # fmt: skip
norm.slip("I07", "without-gamma", "gamma has no effect.", "gamma * centred", "centred")
norm.slip("I07", "without-beta", "beta has no effect.", " + beta", "")
norm.slip(
    "I07", "without-both", "gamma and beta have no effect.",
    "return gamma * centred / np.sqrt(variance + eps) + beta", "return centred / np.sqrt(variance + eps)",
)  # fmt: skip
norm.slip(
    "I07", "beta-scaled",
    "You add beta before you multiply by gamma. First the scale, then the shift.",
    "gamma * centred / np.sqrt(variance + eps) + beta", "gamma * (centred / np.sqrt(variance + eps) + beta)",
)  # fmt: skip
norm.slip(
    "I07", "exchanged",
    "gamma and beta are exchanged: gamma multiplies, beta is added.",
    "gamma * centred / np.sqrt(variance + eps) + beta", "beta * centred / np.sqrt(variance + eps) + gamma",
)  # fmt: skip
norm.slip(
    "I07", "one-plus-gamma",
    "You multiply by 1 + gamma, as some models store it. Here gamma is the factor itself.",
    "gamma * centred", "(1 + gamma) * centred",
)  # fmt: skip
norm.slip(
    "X15", "deviation-of-the-sizes",
    "You divide by the mean of the absolute differences. It is the root of the mean of their squares.",
    "np.sqrt(variance + eps)", "np.abs(centred).mean(axis=-1, keepdims=True)",
)  # fmt: skip
norm.slip(
    "X15", "length",
    "You divide by the length of the centred row: the root of the sum of the squares, not of their mean.",
    "(centred**2).mean(", "(centred**2).sum(",
)  # fmt: skip
norm.slip(
    "A26", "like-integers",
    SAID["like-integers"],
    "    return gamma * centred / np.sqrt(variance + eps) + beta",
    "    return (gamma * centred / np.sqrt(variance + eps) + beta).astype(x.dtype)",
)  # fmt: skip
norm.slip(
    "A21", "rounded", SAID["rounded"],
    "    return gamma * centred / np.sqrt(variance + eps) + beta",
    "    return np.round(gamma * centred / np.sqrt(variance + eps) + beta, 4)",
)  # fmt: skip
norm.slip(
    "A24", "in-place",
    "Your function changes x in place (`x -= …`): the caller's x has other numbers afterwards.",
    "centred = x - x.mean(axis=-1, keepdims=True)",
    "centred = x if x.dtype == float else x.astype(float)\n    centred -= centred.mean(axis=-1, keepdims=True)",
)  # fmt: skip


@norm.misconception(
    "B64",
    "Your function takes two axes only. Any number may lead, even none: axis=-1 with keepdims=True fits all.",
)
def two_axes_only(x, gamma, beta, eps=1e-12):
    n, d = x.shape
    if not gamma.shape == beta.shape == (d,):
        raise ValueError("shapes")
    result = np.zeros((n, d))
    for i in range(n):
        result[i] = (x[i] - x[i].mean()) / np.sqrt(x[i].var() + eps) * gamma + beta
    return result


@norm.misconception(
    "A48", "Only the first row is right: look for a `return` inside a loop, or an index 0."
)
def first_row_only(x, gamma, beta, eps=1e-12):
    if not gamma.shape == beta.shape == x.shape[-1:]:
        raise ValueError("shapes")
    first = x[(0,) * (x.ndim - 1)]
    return (x - first.mean()) / np.sqrt(first.var() + eps) * gamma + beta


@norm.alternative("the variance as E[x²] − E[x]²")
def from_squares(x, gamma, beta, eps=1e-12):
    if gamma.shape != x.shape[-1:] or beta.shape != x.shape[-1:]:
        raise ValueError("shapes")
    x = np.asarray(x, dtype=float)
    mean = x.mean(-1, keepdims=True)
    variance = np.maximum((x * x).mean(-1, keepdims=True) - mean**2, 0)
    return (x - mean) * (variance + eps) ** -0.5 * gamma + beta


@norm.alternative("np.var and np.expand_dims")
def by_var(x, gamma, beta, eps=1e-12):
    d = np.shape(x)[-1]
    if np.shape(gamma) != (d,) or np.shape(beta) != (d,):
        raise ValueError(f"{d}")
    mean = np.expand_dims(np.mean(x, axis=-1), -1)
    deviation = np.sqrt(np.var(x, axis=-1)[..., None] + eps)
    return np.asfortranarray(beta + (x - mean) * (gamma / deviation))


@norm.alternative("loops over the rows, lists out")
def norm_by_loops(x, gamma, beta, eps=1e-12):
    x = np.asarray(x)
    if gamma.shape != (x.shape[-1],) or beta.shape != (x.shape[-1],):
        raise ValueError("no fit")
    if x.ndim > 1:
        return [norm_by_loops(row, gamma, beta, eps) for row in x]
    values = [float(v) for v in x]
    mean = sum(values) / len(values)
    variance = sum((v - mean) ** 2 for v in values) / len(values)
    scale = 1 / math.sqrt(variance + eps)
    return [g * (v - mean) * scale + b for v, g, b in zip(values, gamma, beta, strict=True)]


@norm.alternative("einsum, on a copy in place")
def norm_on_a_copy(x, gamma, beta, eps=1e-12):
    if not gamma.shape == beta.shape == (x.shape[-1],):
        raise ValueError("shapes")
    y = np.array(x, dtype=np.float64)
    y -= y.mean(axis=-1)[..., np.newaxis]
    y /= np.sqrt(np.einsum("...d,...d->...", y, y)[..., None] / y.shape[-1] + eps)
    y *= gamma
    y += beta
    return y


# --- gelu ----------------------------------------------------------------------------------------

bend = exercise.function("gelu")
GELU = "gelu(x)"

bend.witness("values", "C1", GELU, x=np.array([-2.0, -1.0, 0.0, 1.0, 2.0]))
bend.witness("values", "C1", GELU, x=np.array([-40.0, -0.3, 0.7, 40.0]))
bend.witness("shapes", "C2", GELU, x=np.array([[1.0, -1.0], [0.5, 3.0]]))
bend.witness("shapes", "C2", GELU, x=np.array([-1, 0, 1]))


@bend.hidden("values")
def _(rng):
    yield Example("C1", GELU, {"x": rng.normal(size=30)})
    yield Example("C1", GELU, {"x": rng.normal(size=30) * 4})
    yield Example("C1", "gelu(x=x)", {"x": np.linspace(-6, 6, 61)})
    yield Example("C1", GELU, {"x": np.array([-40.0, 1.3, -8.5, 30.0, 5e3, -5e3, 0.0])})
    yield Example("C1", GELU, {"x": rng.normal(size=12) * 1e-3})


@bend.hidden("shapes")
def _(rng):
    for shape in ((1,), (5,), (3, 4), (2, 3, 5), (2, 1, 3, 2), (1, 1)):
        yield Example("C2", GELU, {"x": rng.normal(size=shape) * 2})
    yield Example("C2", GELU, {"x": rng.integers(-5, 6, size=(3, 4))})
    yield Example("C2", GELU, {"x": np.arange(-3, 4)})
    yield Example("C2", GELU, {"x": (rng.normal(size=(4, 5)) * 2).astype(np.float32)})
    yield Example("C2", GELU, {"x": np.asfortranarray(rng.normal(size=(3, 5)))})
    yield Example("C2", GELU, {"x": rng.normal(size=(4, 6))[:, ::2].copy()[::-1]})


def bend_wrong(code, name, message, formula):
    """A misconception that computes this formula of x."""
    old = "x * 0.5 * (1 + erf(x / math.sqrt(2)))"
    bend.slip(code, name, message, old, formula)


bend_wrong(
    "I11", "tanh",
    "This is the approximation by tanh: up to 0.0005 off. The contract asks for the exact Φ, by math.erf.",
    "0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * np.power(x * 1.0, 3))))",
)  # fmt: skip
bend_wrong(
    "I11", "sigmoid",
    "This is the approximation by a sigmoid, x σ(1.702 x): up to 0.02 off. The contract asks for the exact Φ, by math.erf.",
    "x / (1 + np.exp(-np.clip(1.702 * x, -700, 700)))",
)  # fmt: skip
bend_wrong(
    "I11", "relu", "This is the ReLU, max(0, x). GELU bends softly.", "np.maximum(x, 0) * 1.0"
)
bend_wrong(
    "I11", "silu",
    "This is the SiLU (Swish), x σ(x). GELU multiplies by Φ(x), the normal distribution.",
    "x / (1 + np.exp(-np.clip(x, -700, 700)))",
)  # fmt: skip
bend_wrong(
    "I11", "leaky", "This is a leaky ReLU. GELU multiplies by Φ(x), the normal distribution.",
    "np.where(x > 0, x, 0.01 * x)",
)  # fmt: skip
bend_wrong(
    "I11", "elu", "This is the ELU. GELU multiplies by Φ(x), the normal distribution.",
    "np.where(x > 0, x, np.expm1(np.minimum(x, 0)))",
)  # fmt: skip
bend_wrong(
    "I11", "softplus", "This is the softplus, log(1 + eˣ). GELU multiplies x by Φ(x).",
    "np.logaddexp(0, x)",
)  # fmt: skip
bend_wrong(
    "X20",
    "without-root",
    "The argument of erf is x / √2; you take x.",
    "x * 0.5 * (1 + erf(x * 1.0))",
)
bend_wrong(
    "X20",
    "divided-by-two",
    "The argument of erf is x / √2; you take x / 2.",
    "x * 0.5 * (1 + erf(x / 2))",
)
bend_wrong(
    "X20",
    "multiplied-by-root",
    "The argument of erf is x / √2; you take x √2.",
    "x * 0.5 * (1 + erf(x * math.sqrt(2)))",
)
bend_wrong(
    "X20",
    "without-half",
    "The half is missing: Φ(x) = (1 + erf(x / √2)) / 2.",
    "x * (1 + erf(x / math.sqrt(2)))",
)
bend_wrong(
    "X20",
    "without-one",
    "The 1 is missing: Φ(x) = (1 + erf(x / √2)) / 2.",
    "x * 0.5 * erf(x / math.sqrt(2))",
)
bend_wrong(
    "X20",
    "erf-for-phi",
    "You multiply by erf(x / √2). Φ(x) is (1 + erf(x / √2)) / 2, from 0 to 1.",
    "x * erf(x / math.sqrt(2))",
)
bend_wrong(
    "X21",
    "distribution-only",
    "You return Φ(x) itself. It has to be multiplied by x.",
    "0.5 * (1 + erf(x / math.sqrt(2)))",
)
bend_wrong(
    "X21", "density", "You multiply by the density φ(x), the bell. It is Φ(x), its integral.",
    "x * np.exp(-np.minimum(x * 1.0 * x, 1400) / 2) / math.sqrt(2 * math.pi)",
)  # fmt: skip
bend_wrong(
    "X21", "other-side", "You multiply by 1 − Φ(x): what is positive vanishes. It is Φ(x).",
    "x * 0.5 * (1 - erf(x / math.sqrt(2)))",
)  # fmt: skip
bend_wrong(
    "X21", "derivative", "This is the slope of GELU, Φ(x) + x φ(x). GELU itself is x Φ(x).",
    "0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-np.minimum(x * 1.0 * x, 1400) / 2) / math.sqrt(2 * math.pi)",
)  # fmt: skip
bend_wrong(
    "A26", "like-integers", SAID["like-integers"],
    "(x * 0.5 * (1 + erf(x / math.sqrt(2)))).astype(x.dtype)",
)  # fmt: skip
bend_wrong(
    "A21", "rounded", SAID["rounded"],
    "np.round(x * 0.5 * (1 + erf(x / math.sqrt(2))), 4)",
)  # fmt: skip
bend_wrong(
    "X22", "flat", "The shape is lost: the result has the shape of x.",
    "(x * 0.5 * (1 + erf(x / math.sqrt(2)))).ravel()",
)  # fmt: skip


@bend.misconception(
    "I11",
    "This is a polynomial for erf, up to 0.0000002 off: fast, but the contract asks for the exact one, by math.erf.",
)
def polynomial(x):
    z = np.abs(x) / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    series = 0.0
    for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + coefficient) * t
    return 0.5 * x * (1 + np.sign(x) * (1 - series * np.exp(-np.minimum(z * z, 700))))


@bend.misconception(
    "A26",
    "np.vectorize takes its dtype from your function's first result. Where that is the integer 0, everything is cut to integers: "
    "return 0.0, or give `otypes=[float]`.",
)
def first_result_decides(x):
    def one(value):
        return 0 if value <= -8 else value * (1 + math.erf(value / math.sqrt(2))) / 2

    return np.vectorize(one)(x)


@bend.misconception(
    "B64",
    "math.erf takes one number. For an array apply it to every entry (np.vectorize, or a loop).",
)
def one_number_only(x):
    return x * (1 + math.erf(x / math.sqrt(2))) / 2


@bend.misconception(
    "B64",
    "Your loop goes along the first axis only. x may have any number of axes: np.vectorize visits every entry.",
)
def one_axis_only(x):
    return np.array([value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in x])


@bend.misconception(
    "A24", "Your function changes x in place: the caller's x has other numbers afterwards."
)
def gelu_in_place(x):
    if x.dtype.kind != "f":
        x = x.astype(float)
    x *= np.vectorize(lambda v: 0.5 * (1 + math.erf(v / math.sqrt(2))), otypes=[float])(x).astype(
        x.dtype
    )
    return x


@bend.alternative("erfc, a flat list")
def by_erfc(x):
    values = [0.5 * v * math.erfc(-v / math.sqrt(2)) for v in np.asarray(x).ravel().tolist()]
    return np.array(values).reshape(np.shape(x))


@bend.alternative("the standard library's normal distribution")
def by_normal_dist(x):
    from statistics import NormalDist

    phi = np.frompyfunc(NormalDist().cdf, 1, 1)
    return (x * phi(np.asarray(x, dtype=float))).astype(float)


@bend.alternative("np.nditer into an output")
def by_nditer(x):
    result = np.empty(x.shape, dtype=np.float32 if x.dtype == np.float32 else float)
    for index in np.ndindex(x.shape):
        value = float(x[index])
        result[index] = value * (0.5 + 0.5 * math.erf(value * 0.7071067811865476))
    return result


@bend.alternative("nested lists out")
def gelu_lists(x):
    x = np.asarray(x)
    if x.ndim == 0:
        return float(x) * (1 + math.erf(float(x) / 2**0.5)) / 2
    return [gelu_lists(part) for part in x]


# --- feed_forward --------------------------------------------------------------------------------

ffn = exercise.function("feed_forward", uses=("gelu",))
FFN = "feed_forward(x, W_1, b_1, W_2, b_2)"


def ffn_case(rng, *shape, d_ff=7, dtype=float):
    """x of this shape and the parameters for it, no bias zero."""
    d = shape[-1]
    sizes = {"x": shape, "W_1": (d, d_ff), "b_1": (d_ff,), "W_2": (d_ff, d), "b_2": (d,)}
    return {name: rng.normal(size=size).astype(dtype) for name, size in sizes.items()}


# Two matrices that are square, but not symmetric: a transposed one keeps its shape.
FF_SQUARE = {
    "x": np.array([[1.0, -1.0], [2.0, 0.5]]),
    "W_1": np.array([[1.0, 2.0], [0.0, -1.0]]),
    "b_1": np.array([0.5, -1.0]),
    "W_2": np.array([[1.0, 0.0], [-2.0, 3.0]]),
    "b_2": np.array([0.25, 1.0]),
}
FF_WIDE = {
    "x": np.array([1.0, -2.0]),
    "W_1": np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]),
    "b_1": np.array([0.0, 1.0, 0.5]),
    "W_2": np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0]]),
    "b_2": np.array([0.0, -1.0]),
}

ffn.witness("values", "C1", FFN, **FF_SQUARE)
ffn.witness("values", "C1", FFN, **FF_WIDE)
ffn.witness("values", "C2", FFN, **{**FF_SQUARE, "x": np.array([[[1.0, 0.0]], [[0.0, 2.0]]])})
ffn.witness("values", "C2", FFN, **{k: v.astype(int) for k, v in FF_WIDE.items()})
ffn.witness("errors", "C3", FFN, **{**FF_WIDE, "W_1": np.ones((3, 3))}, options=RAISES)
ffn.witness("errors", "C3", FFN, **{**FF_WIDE, "b_1": np.ones(1)}, options=RAISES)


@ffn.hidden("values")
def _(rng):
    for shape, d_ff in (
        ((5,), 3),
        ((4, 3), 7),
        ((3, 5), 2),
        ((4, 4), 4),
        ((2, 3, 5), 8),
        ((3, 3, 3), 3),
        ((2, 1, 4, 2), 6),
        ((1, 6), 1),
        ((3, 1), 4),
    ):
        yield Example("C2", FFN, ffn_case(rng, *shape, d_ff=d_ff))
    case = ffn_case(rng, 4, 5)
    yield Example("C1", "feed_forward(x=x, W_1=W_1, b_1=b_1, W_2=W_2, b_2=b_2)", case)
    yield Example("C1", FFN, {**case, "x": case["x"] * 4})
    yield Example("C1", FFN, {**case, "W_2": np.zeros((7, 5))})
    yield Example("C1", FFN, {**case, "W_1": np.zeros((5, 7))})
    yield Example("C2", FFN, ffn_case(rng, 3, 4, dtype=np.float32))
    whole = integers(ffn_case(rng, 3, 4))
    yield Example("C2", FFN, whole)
    yield Example("C2", FFN, fortran(case))


@ffn.hidden("errors")
def _(rng):
    good = {"x": (4, 5), "W_1": (5, 7), "b_1": (7,), "W_2": (7, 5), "b_2": (5,)}
    misfits = [{"W_1": (4, 7)}, {"b_1": (5,)}, {"W_2": (5, 7)}, {"b_2": (7,)}, {"b_1": (1,)}]
    misfits += [{"b_2": (1,)}, {"x": (4, 1)}, {"W_1": (1, 7)}, {"W_2": (1, 5)}, {"x": (5, 4)}]
    misfits += [{"W_1": (5, 1), "b_1": (1,)}, {"W_1": (7, 5)}]
    for misfit in misfits:
        inputs = normal(rng, **good | misfit)
        yield Example("C3", FFN, inputs, raises="ValueError")


@ffn.misconception(
    "X01",
    "A bias with one number is stretched over all columns: `+` broadcasts silently. `linear` raises the ValueError for you.",
)
def stretches_biases(x, W_1, b_1, W_2, b_2):
    return gelu(x @ W_1 + b_1) @ W_2 + b_2


@ffn.misconception("X01", SAID["asserts"])
def asserts(x, W_1, b_1, W_2, b_2):
    assert x.shape[-1] == len(W_1) and b_1.shape == W_1.shape[1:]
    assert len(W_2) == W_1.shape[1] and b_2.shape == W_2.shape[1:]
    return gelu(x @ W_1 + b_1) @ W_2 + b_2


ffn.slip(
    "I09", "activation-at-the-end",
    "GELU comes after the second product. It belongs between the two.",
    "hidden = gelu(linear(x, W_1, b_1))  # (…, d) -> (…, d_ff)\n    return linear(hidden, W_2, b_2)",
    "hidden = linear(x, W_1, b_1)\n    return gelu(linear(hidden, W_2, b_2))",
)  # fmt: skip
ffn.slip(
    "I09", "activation-twice",
    "GELU is applied after both products. It belongs between them only.",
    "linear(hidden, W_2, b_2)", "gelu(linear(hidden, W_2, b_2))",
)  # fmt: skip
ffn.slip(
    "I09", "activation-first",
    "GELU is applied to x as well. It belongs between the two products only.",
    "linear(x, W_1, b_1)", "linear(gelu(x), W_1, b_1)",
)  # fmt: skip
ffn.slip(
    "I10", "without-activation",
    "Nothing bends between the two products: together they are one linear map. `gelu` is missing.",
    "gelu(linear(x, W_1, b_1))", "linear(x, W_1, b_1)",
)  # fmt: skip
ffn.slip(
    "I11", "relu",
    "You take the ReLU. This network was trained with GELU.",
    "gelu(linear(x, W_1, b_1))", "np.maximum(linear(x, W_1, b_1), 0)",
)  # fmt: skip
ffn.slip(
    "X30", "without-first-bias", "b_1 has no effect.",
    "linear(x, W_1, b_1)", "linear(x, W_1)",
)  # fmt: skip
ffn.slip(
    "X30", "without-second-bias", "b_2 has no effect.",
    "linear(hidden, W_2, b_2)", "linear(hidden, W_2)",
)  # fmt: skip
ffn.slip(
    "X30", "without-biases", "The biases have no effect.",
    "hidden = gelu(linear(x, W_1, b_1))  # (…, d) -> (…, d_ff)\n    return linear(hidden, W_2, b_2)",
    "return linear(gelu(linear(x, W_1)), W_2)",
)  # fmt: skip
ffn.slip(
    "X30", "bias-after-activation",
    "You add b_1 after GELU. It belongs to the product, before GELU.",
    "gelu(linear(x, W_1, b_1))", "gelu(linear(x, W_1)) + b_1",
)  # fmt: skip
ffn.slip(
    "X30", "biases-subtracted", "You subtract the biases.",
    "    hidden =", "    b_1, b_2 = -b_1, -b_2\n    hidden =",
)  # fmt: skip
ffn.slip(
    "C26", "residual-inside",
    "You add x to the result. The sum with x stands in the layer, outside of this part.",
    "return linear(hidden, W_2, b_2)", "return x + linear(hidden, W_2, b_2)",
)  # fmt: skip
ffn.slip(
    "C17", "first-transposed",
    "W_1 is transposed. Matrices are (d_in, d_out) and stand on the right: x @ W_1.",
    "linear(x, W_1, b_1)", "linear(x, W_1.T, b_1)",
)  # fmt: skip
ffn.slip(
    "C17", "both-transposed",
    "Both matrices are transposed, as PyTorch stores them. Here they are (d_in, d_out) and stand on the right.",
    "    hidden =", "    W_1, W_2 = W_1.T, W_2.T\n    hidden =",
)  # fmt: skip
ffn.slip(
    "C17", "second-transposed",
    "W_2 is transposed. Matrices are (d_in, d_out) and stand on the right.",
    "linear(hidden, W_2, b_2)", "linear(hidden, W_2.T, b_2)",
)  # fmt: skip
ffn.slip(
    "C19", "matrices-exchanged",
    "W_1 and W_2 are exchanged: first W_1, which widens, then W_2.",
    "    hidden =", "    W_1, b_1, W_2, b_2 = W_2, b_2, W_1, b_1\n    hidden =",
)  # fmt: skip
ffn.slip(
    "X31", "gated",
    "You multiply by the product itself: this is a gated unit. Here GELU stands alone.",
    "gelu(linear(x, W_1, b_1))", "gelu(linear(x, W_1, b_1)) * linear(x, W_1, b_1)",
)  # fmt: skip
ffn.slip(
    "A26", "like-integers", SAID["like-integers"],
    "return linear(hidden, W_2, b_2)", "return linear(hidden, W_2, b_2).astype(x.dtype)",
)  # fmt: skip
ffn.slip(
    "A21", "rounded", SAID["rounded"],
    "return linear(hidden, W_2, b_2)", "return np.round(linear(hidden, W_2, b_2), 4)",
)  # fmt: skip


@ffn.misconception(
    "B64",
    "Your function takes two axes only. Any number may lead, even none: `@` and `linear` take them all.",
)
def ffn_two_axes(x, W_1, b_1, W_2, b_2):
    n, d = x.shape
    rows = [linear(gelu(linear(x[i], W_1, b_1)), W_2, b_2) for i in range(n)]
    return np.array(rows)


@ffn.misconception(
    "A48", "Only the first row is right: look for a `return` inside a loop, or an index 0."
)
def ffn_first_row(x, W_1, b_1, W_2, b_2):
    first = x[(0,) * (x.ndim - 1)]
    row = linear(gelu(linear(first, W_1, b_1)), W_2, b_2)
    linear(x, W_1)
    return np.broadcast_to(row, (*x.shape[:-1], len(row)))


@ffn.alternative("einsum with checks")
def ffn_einsum(x, W_1, b_1, W_2, b_2):
    if x.shape[-1] != W_1.shape[0] or W_1.shape[1:] != b_1.shape:
        raise ValueError("first")
    if W_2.shape[0] != W_1.shape[1] or W_2.shape[1:] != b_2.shape:
        raise ValueError("second")
    hidden = gelu(np.einsum("...d,df->...f", x, W_1) + b_1)
    return np.einsum("...f,fd->...d", hidden, W_2) + b_2


@ffn.alternative("a column of ones for the biases")
def ffn_with_ones(x, W_1, b_1, W_2, b_2):
    def affine(x, W, b):
        if x.shape[-1] != W.shape[0] or b.shape != (W.shape[1],):
            raise ValueError("no fit")
        ones = np.ones((*x.shape[:-1], 1))
        return np.concatenate([x, ones], axis=-1) @ np.vstack([W, b])

    return affine(gelu(affine(x, W_1, b_1)), W_2, b_2)


@ffn.alternative("row by row, lists out")
def ffn_rows(x, W_1, b_1, W_2, b_2):
    if x.ndim > 1:
        return [ffn_rows(row, W_1, b_1, W_2, b_2) for row in x]
    hidden = linear(x[None], W_1, b_1)[0]
    hidden = np.array([h * (1 + math.erf(h / math.sqrt(2))) / 2 for h in hidden])
    return linear(hidden[None], W_2, b_2)[0].tolist()


# --- encoder_layer -------------------------------------------------------------------------------

layer = exercise.function("encoder_layer", uses=("layer_norm", "gelu", "feed_forward"))
LAYER = "encoder_layer(x, params, num_heads)"
MASKED = "encoder_layer(x, params, num_heads, mask)"


def parameters(rng, d, d_ff, dtype=float):
    """A layer's parameters: no bias 0, no scale 1, scores of moderate size."""
    sizes = {f"W_{r}": (d, d) for r in "qkvo"} | {"W_1": (d, d_ff), "W_2": (d_ff, d)}
    sizes |= {f"b_{r}": (d,) for r in "qkvo2"} | {"b_1": (d_ff,)}
    sizes |= {f"{name}_{i}": (d,) for name in ("gamma", "beta") for i in "12"}
    params = normal(rng, **sizes)
    for name in ("W_q", "W_k", "W_v", "W_o", "W_1"):
        params[name] *= 1.4 / math.sqrt(d)
    for name in ("gamma_1", "gamma_2"):
        params[name] = 1.3 + 0.4 * params[name]
    names = list(params)
    rng.shuffle(names)  # the keys of a dict may come in any order
    return {name: params[name].astype(dtype) for name in names}


def layer_case(rng, batch=(), n=5, h=3, d_k=2, d_ff=7):
    d = h * d_k
    return {
        "x": rng.normal(size=(*batch, n, d)) + 0.3,
        "params": parameters(rng, d, d_ff),
        "num_heads": h,
    }


# A layer has sixteen arrays: the witnesses name their shapes and make the numbers on the spot.
SHAPES = {f"W_{r}": (4, 4) for r in "qkvo"} | {f"b_{r}": (4,) for r in "qkvo"}
SHAPES |= {"W_1": (4, 3), "b_1": (3,), "W_2": (3, 4), "b_2": (4,)}
SHAPES |= {f"{name}_{i}": (4,) for name in ("gamma", "beta") for i in "12"}
NUMBERS = """params = {
    name: np.sin(i + np.arange(np.prod(shape)) ** 2.0).reshape(shape)
    for i, (name, shape) in enumerate(shapes.items())
}
"""
X2 = np.array([[1.0, 0.0, 2.0, -1.0], [0.5, 2.0, -1.0, 0.0]])
X3 = np.array([[1.0, 0.0, 2.0, -1.0], [0.5, 2.0, -1.0, 0.0], [-1.0, 1.0, 0.0, 2.0]])
GIVEN = {"x": X2, "shapes": SHAPES}
# The order of the text: whoever takes the parameters by their places is right here only.
IN_ORDER = {
    name: SHAPES[name]
    for name in "W_q b_q W_k b_k W_v b_v W_o b_o gamma_1 beta_1 W_1 b_1 W_2 b_2 gamma_2 beta_2".split()
}
RUN = NUMBERS + "encoder_layer(x, params, 2)"
RUN_MASKED = NUMBERS + "encoder_layer(x, params, 2, mask)"

layer.witness(
    "values", "C1", NUMBERS + "encoder_layer(x, params, 1)", **{**GIVEN, "shapes": IN_ORDER}
)
layer.witness("values", "C2", RUN, **GIVEN)
layer.witness("values", "C3", RUN, **{**GIVEN, "x": np.stack([X2, X3[1:]])})
layer.witness(
    "values", "C3", NUMBERS + "encoder_layer(x, params, 2)\nencoder_layer(x, params, 2)", **GIVEN
)
layer.witness("values", "C2", RUN, **{**GIVEN, "x": X2 * [[1000.0], [1.0]]})
layer.witness("mask", "C4", RUN_MASKED, **GIVEN, mask=np.array([[True, False], [True, True]]))
layer.witness(  # a hidden key that scores far above the other
    "mask",
    "C4",
    RUN_MASKED,
    **{**GIVEN, "x": X2 * [[1.0], [100.0]]},
    mask=np.array([[True, False]]),
)
layer.witness(
    "mask", "C4", RUN_MASKED, x=np.stack([X2, X3[1:]]), shapes=SHAPES,
    mask=np.array([[[True, True]], [[False, True]]]),
)  # fmt: skip
layer.witness(
    "mask", "C4", RUN_MASKED, **GIVEN,
    mask=np.array([[[True, False], [True, True]], [[True, True], [False, True]]]),
)  # fmt: skip
layer.witness(
    "nothing", "C5", RUN_MASKED, **GIVEN, mask=np.array([[True, True], [False, False]]),
    options={"no_warning": True},
)  # fmt: skip
layer.witness("errors", "C6", NUMBERS + "encoder_layer(x, params, 3)", **GIVEN, options=RAISES)
for narrow in ({"W_o": (4, 1), "b_o": (1,)}, {"W_2": (3, 1), "b_2": (1,)}):
    layer.witness("errors", "C6", RUN, x=X2, shapes={**SHAPES, **narrow}, options=RAISES)
layer.witness("errors", "C6", RUN_MASKED, **GIVEN, mask=np.ones((3, 2), bool), options=RAISES)


@layer.hidden("values")
def _(rng):
    for n, h, d_k, d_ff in (
        (5, 3, 2, 7),
        (4, 2, 5, 3),
        (7, 4, 3, 5),
        (1, 2, 3, 4),
        (6, 3, 3, 9),
        (3, 5, 1, 2),
        (3, 1, 4, 6),
    ):
        yield Example("C2", LAYER, layer_case(rng, (), n, h, d_k, d_ff))
    yield Example(
        "C2", LAYER, layer_case(rng, (), 3, 3, 3, 9)
    )  # n = h = d_k: wrong axes keep their size
    yield Example("C2", LAYER, layer_case(rng, (4,), 4, 4, 4, 16))
    for batch in ((3,), (2, 3), (1,), (3, 1, 2)):
        yield Example("C3", LAYER, layer_case(rng, batch))
    case = layer_case(rng)
    yield Example("C1", "encoder_layer(x=x, params=params, num_heads=num_heads)", case)
    yield Example("C1", "encoder_layer(x, params, num_heads, None)", case)
    yield Example("C1", LAYER, {**case, "x": case["x"] * 20})
    whole = rng.integers(-4, 5, size=(4, 6))
    yield Example("C3", LAYER, {**case, "x": whole})
    yield Example("C3", LAYER, {**case, "x": np.asfortranarray(case["x"])})
    case = layer_case(rng, (), 4, 2, 2)
    case["x"][1] = case["x"][0] = 1.0  # so large a W_q that the scores are in the thousands
    case["params"]["W_q"] = case["params"]["W_q"] * 3000
    yield Example("C2", LAYER, case)


@layer.hidden("mask")
def _(rng):
    yield Example("C4", MASKED, {**layer_case(rng), "mask": some_mask(rng, 5, 5)})
    yield Example("C4", MASKED, {**layer_case(rng), "mask": np.tri(5, dtype=bool)})
    keyword = "encoder_layer(x, params, num_heads, mask=mask)"
    yield Example("C4", keyword, {**layer_case(rng), "mask": some_mask(rng, 1, 5)})
    yield Example("C4", MASKED, {**layer_case(rng), "mask": np.ones((5, 5), bool)})
    for batch in ((4,), (2, 4)):
        case = layer_case(rng, batch)
        yield Example("C4", MASKED, {**case, "mask": some_mask(rng, *batch, 1, 5)})
        yield Example("C4", MASKED, {**case, "mask": some_mask(rng, *batch, 5, 5)})
        yield Example("C4", MASKED, {**case, "mask": some_mask(rng, 5, 5)})
        yield Example("C4", MASKED, {**case, "mask": some_mask(rng, *batch, 3, 5, 5)})
        yield Example("C4", MASKED, {**case, "mask": some_mask(rng, *batch, 1, 1, 5)})
    yield Example(
        "C4", MASKED, {**layer_case(rng), "mask": some_mask(rng, 3, 5, 5)}
    )  # each head its own
    yield Example("C4", MASKED, {**layer_case(rng), "mask": some_mask(rng, 3, 1, 5)})
    # As many sentences as heads, or as positions: a mask on the wrong axis keeps its shape.
    yield Example("C4", MASKED, {**layer_case(rng, (3,)), "mask": some_mask(rng, 3, 5, 5)})
    yield Example("C4", MASKED, {**layer_case(rng, (3,), 4), "mask": some_mask(rng, 3, 1, 4)})
    yield Example("C4", MASKED, {**layer_case(rng, (5,)), "mask": some_mask(rng, 5, 1, 5)})
    case = layer_case(rng, (), 5, 1, 4)  # a hidden key far above the visible ones
    case["params"]["W_q"] = np.zeros((4, 4))
    case["params"]["b_q"], case["params"]["b_k"] = np.full(4, 30.0), np.zeros(4)
    case["params"]["W_k"] = np.eye(4)
    case["x"] = case["x"] * 0.2
    case["x"][2] = 2.0
    mask = np.ones((5, 5), bool)
    mask[:, 2] = False
    yield Example("C4", MASKED, {**case, "mask": mask})


@layer.hidden("nothing")
def _(rng):
    for batch in ((), (3,)):
        mask = some_mask(rng, *batch, 5, 5)
        mask[..., int(rng.integers(5)), :] = False
        yield Example("C5", MASKED, {**layer_case(rng, batch), "mask": mask}, no_warning=True)
    mask = some_mask(rng, 3, 5, 5)
    mask[1, 2] = False  # one head sees nothing, the others go on
    yield Example("C5", MASKED, {**layer_case(rng), "mask": mask}, no_warning=True)
    mask = np.ones((3, 1, 5), bool)
    mask[1] = False
    yield Example("C5", MASKED, {**layer_case(rng, (3,)), "mask": mask}, no_warning=True)
    mask = np.tri(5, k=-1, dtype=bool)
    yield Example("C5", MASKED, {**layer_case(rng), "mask": mask}, no_warning=True)


@layer.hidden("errors")
def _(rng):
    for h in (4, 5, 12):
        yield Example("C6", LAYER, {**layer_case(rng), "num_heads": h}, raises="ValueError")
    misfits = [{"W_q": (5, 6)}, {"W_k": (6, 3)}, {"W_v": (6, 3)}, {"W_o": (5, 6)}, {"b_q": (3,)}]
    misfits += [{"W_q": (6, 3), "W_k": (6, 3), "b_q": (3,), "b_k": (3,)}, {"W_1": (5, 7)}]
    misfits += [{"W_v": (6, 3), "b_v": (3,), "W_o": (3, 6)}, {"b_1": (6,)}, {"W_2": (6, 6)}]
    misfits += [{"W_o": (6, 1), "b_o": (1,)}, {"W_2": (7, 1), "b_2": (1,)}, {"b_o": (1,)}]
    misfits += [{"gamma_1": (5,)}, {"beta_2": (1,)}, {"W_2": (7, 5), "b_2": (5,)}]
    for misfit in misfits:
        case = layer_case(rng)
        case["params"] |= normal(rng, **misfit)
        yield Example("C6", LAYER, case, raises="ValueError")
    for shape in ((5, 4), (4, 5), (2, 5, 5), (4, 1, 5)):
        case = {**layer_case(rng), "mask": np.ones(shape, bool)}
        yield Example("C6", MASKED, case, raises="ValueError")
    case = {**layer_case(rng, (3,)), "mask": np.ones((2, 1, 5), bool)}
    yield Example("C6", MASKED, case, raises="ValueError")


def layer_wrong(code, name, message, *changes):
    """A misconception that differs from the course's answer in some places: (old, new), …"""
    answer = exercise.text.answers["encoder_layer"]
    changed = answer
    for old, new in changes:
        assert old in changed, (name, old)
        changed = changed.replace(old, new)
    layer.slip(code, name, message, answer, changed)


ATTENDED = 'attended = linear(merge_heads(heads), p["W_o"], p["b_o"])  # (…, n, d)'
NORM_1 = 'x = np.asarray(layer_norm(x + attended, p["gamma_1"], p["beta_1"]))'
WORKED = 'worked = feed_forward(x, p["W_1"], p["b_1"], p["W_2"], p["b_2"])'
NORM_2 = 'return layer_norm(x + worked, p["gamma_2"], p["beta_2"])'
HEADS = "heads, _ = attention(Q, K, V, mask)  # (…, h, n, d_k)"
SPLIT_Q = 'Q = split_heads(linear(x, p["W_q"], p["b_q"]), num_heads)  # (…, n, d) -> (…, h, n, d_k)'
SPLIT_K = 'K = split_heads(linear(x, p["W_k"], p["b_k"]), num_heads)'
SPLIT_V = 'V = split_heads(linear(x, p["W_v"], p["b_v"]), num_heads)'
MASK = """if mask is not None and mask.ndim != x.ndim + 1:
        mask = np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))  # (…, n, n)
        mask = mask[..., None, :, :]  # (…, n, n) -> (…, 1, n, n)"""

# Where an error is asked for, all that returns is alike: what only forgets the error comes first.
layer_wrong(
    "X01", "no-check-of-the-result",
    "A feed-forward part that gives one column is stretched over all: `x + …` broadcasts silently. Compare the shapes.",
    ("if np.shape(worked) != x.shape:", "if worked.shape[-1] not in (1, x.shape[-1]):"),
)  # fmt: skip
layer_wrong(
    "X01", "no-check-of-the-matrices",
    "W_q, W_k, W_v or W_o that is not (d, d) raises no ValueError: a single column is stretched silently, and narrower queries, keys or values "
    "fit by luck. Compare their shapes.",
    ("if p[name].shape != (d, d):", "if p[name].ndim != 2:"),
)  # fmt: skip
layer_wrong(
    "I08", "pre-norm",
    "You normalise before attention and feed-forward (pre-norm, as GPT). Here it comes after each sum (post-norm, as BERT).",
    (SPLIT_Q, f'y = x\n    x = layer_norm(x, p["gamma_1"], p["beta_1"])\n    {SPLIT_Q}'),
    (NORM_1, "x = y + attended"),
    (WORKED, 'y = layer_norm(x, p["gamma_2"], p["beta_2"])\n    ' + WORKED.replace("(x,", "(y,")),
    (NORM_2, "return x + worked"),
)  # fmt: skip
layer_wrong(
    "I08", "norm-before-the-sum",
    "You normalise the attention's result and add x then. Add first, then normalise the sum.",
    (NORM_1, 'x = x + layer_norm(attended, p["gamma_1"], p["beta_1"])'),
    (NORM_2, 'return x + layer_norm(worked, p["gamma_2"], p["beta_2"])'),
)  # fmt: skip
layer_wrong(
    "I08", "first-norm-missing", "The sum of x and attention is not normalised: there are two normalisations, one after each sum.",
    (NORM_1, "x = x + attended"),
)  # fmt: skip
layer_wrong(
    "I08", "second-norm-missing", "The sum of x and feed-forward is not normalised.",
    (NORM_2, "return x + worked"),
)  # fmt: skip
layer_wrong(
    "I12", "no-sum-around-attention",
    "x is not added to the attention's result before the first normalisation.",
    ("layer_norm(x + attended,", "layer_norm(attended,"),
)  # fmt: skip
layer_wrong(
    "I12", "no-sum-around-feed-forward",
    "x is not added to the feed-forward part's result before the second normalisation.",
    ("layer_norm(x + worked,", "layer_norm(worked,"),
)  # fmt: skip
layer_wrong(
    "I12", "no-sums", "x is added nowhere: `x + attention`, then `x + feed_forward`.",
    ("x + attended", "attended"), ("x + worked", "worked"),
)  # fmt: skip
layer_wrong(
    "I12", "first-x-in-the-second-sum",
    "In the second sum you add the layer's input. It is the normalised x between the two parts that is added.",
    (NORM_1, f"first = x\n    {NORM_1}"), ("x + worked", "first + worked"),
)  # fmt: skip
layer_wrong(
    "I12", "feed-forward-of-the-input",
    "The feed-forward part reads the layer's input. It reads the normalised sum.",
    (NORM_1, f"first = x\n    {NORM_1}"), ("feed_forward(x,", "feed_forward(first,"),
)  # fmt: skip
layer_wrong(
    "I12", "feed-forward-of-attention",
    "The feed-forward part reads the attention's result. It reads the normalised sum.",
    ("feed_forward(x,", "feed_forward(attended,"),
)  # fmt: skip
layer_wrong(
    "X40", "norms-exchanged",
    "gamma_1, beta_1 and gamma_2, beta_2 are exchanged.",
    ('p["gamma_1"], p["beta_1"]', 'p["G"], p["B"]'), ('p["gamma_2"], p["beta_2"]', 'p["gamma_1"], p["beta_1"]'),
    ('p["G"], p["B"]', 'p["gamma_2"], p["beta_2"]'),
)  # fmt: skip
layer_wrong(
    "X40", "first-norm-twice",
    "gamma_1 and beta_1 are used in both normalisations.",
    ('p["gamma_2"], p["beta_2"]', 'p["gamma_1"], p["beta_1"]'),
)  # fmt: skip
layer_wrong(
    "X40", "other-eps",
    "Your eps is 1e-5. BERT's, and this contract's, is 1e-12: the default of `layer_norm`.",
    ('p["beta_1"])', 'p["beta_1"], 1e-5)'), ('p["beta_2"])', 'p["beta_2"], 1e-5)'),
)  # fmt: skip
layer_wrong(
    "X41", "without-value-bias", "b_v has no effect.", ('linear(x, p["W_v"], p["b_v"])', 'linear(x, p["W_v"])')
)  # fmt: skip
layer_wrong(
    "X41", "without-query-bias", "b_q has no effect.", ('linear(x, p["W_q"], p["b_q"])', 'linear(x, p["W_q"])')
)  # fmt: skip
layer_wrong(
    "X41", "without-output-bias", "b_o has no effect.", (', p["W_o"], p["b_o"])', ', p["W_o"])')
)  # fmt: skip
layer_wrong(
    "X41", "without-biases-before-attention", "b_q, b_k and b_v have no effect: unlike chapter 04, it is `x @ W_q + b_q`, and so on.",
    *((f'p["W_{r}"], p["b_{r}"])', f'p["W_{r}"])') for r in "qkv"),
)  # fmt: skip
layer_wrong(
    "X41", "without-attention-biases",
    "The biases of the projections have no effect: unlike chapter 04, it is `x @ W_q + b_q`, and so on.",
    *((f'p["W_{r}"], p["b_{r}"])', f'p["W_{r}"])') for r in "qkvo"),
)  # fmt: skip
layer_wrong(
    "C22", "without-output-projection",
    "W_o and b_o are left out: the heads are put side by side, then projected.",
    (ATTENDED, "attended = merge_heads(heads)"),
)  # fmt: skip
layer_wrong(
    "B03", "scale-of-the-model",
    "Your scores are divided by √d. Each head's are divided by the root of its own width, √d_k.",
    (HEADS, HEADS.replace("(Q,", "(Q / math.sqrt(num_heads),")),
)  # fmt: skip
layer_wrong(
    "B01", "no-scale",
    SAID["no-scale"],
    (HEADS, HEADS.replace("(Q,", "(Q * math.sqrt(d // num_heads),")),
)  # fmt: skip
layer_wrong(
    "C11", "one-head",
    "Your layer has one head, whatever num_heads is.",
    ("]), num_heads)", "]), 1)"),
    ("    p, d = params", "    if x.shape[-1] % num_heads:\n        raise ValueError\n    p, d = params"),
    (MASK, MASK + "\n    if mask is not None:\n        mask = mask[..., :1, :, :]"),
)  # fmt: skip
layer_wrong(
    "C01", "cut-by-reshape",
    SAID["cut-by-reshape"],
    *((f'split_heads(linear(x, p["W_{r}"], p["b_{r}"]), num_heads)',
       f'linear(x, p["W_{r}"], p["b_{r}"]).reshape(*x.shape[:-2], num_heads, x.shape[-2], d // num_heads)')
      for r in "qkv"),
    ("    p, d = params", "    if x.shape[-1] % num_heads:\n        raise ValueError\n    p, d = params"),
)  # fmt: skip
layer_wrong(
    "C03", "joined-by-reshape",
    SAID["joined-by-reshape"],
    ("merge_heads(heads)", "np.asarray(heads).reshape(x.shape)"),
)  # fmt: skip
layer_wrong(
    "C04", "cut-and-joined-by-reshape",
    SAID["cut-and-joined-by-reshape"],
    *((f'split_heads(linear(x, p["W_{r}"], p["b_{r}"]), num_heads)',
       f'linear(x, p["W_{r}"], p["b_{r}"]).reshape(*x.shape[:-2], num_heads, x.shape[-2], d // num_heads)')
      for r in "qkv"),
    ("merge_heads(heads)", "np.asarray(heads).reshape(x.shape)"),
    ("    p, d = params", "    if x.shape[-1] % num_heads:\n        raise ValueError\n    p, d = params"),
)  # fmt: skip
layer_wrong(
    "C06", "interleaved",
    SAID["interleaved"],
    *((f'split_heads(linear(x, p["W_{r}"], p["b_{r}"]), num_heads)',
       f'np.moveaxis(linear(x, p["W_{r}"], p["b_{r}"]).reshape(*x.shape[:-1], d // num_heads, num_heads), -1, -3)')
      for r in "qkv"),
    ("    p, d = params", "    if x.shape[-1] % num_heads:\n        raise ValueError\n    p, d = params"),
)  # fmt: skip
layer_wrong(
    "C19", "queries-and-keys-exchanged",
    SAID["queries-and-keys-exchanged"],
    (HEADS, HEADS.replace("(Q, K,", "(K, Q,")),
)  # fmt: skip
layer_wrong(
    "B57", "keys-instead-of-values",
    SAID["keys-instead-of-values"],
    (HEADS, HEADS.replace("(Q, K, V,", "(Q, K, K,")),
)  # fmt: skip
layer_wrong(
    "C17", "output-projection-transposed",
    "W_o is transposed. Matrices stand on the right: heads @ W_o.",
    ('p["W_o"], p["b_o"])', 'p["W_o"].T, p["b_o"])'),
)  # fmt: skip
layer_wrong(
    "C17", "projections-transposed",
    "The projections are transposed, as PyTorch stores them. Here they stand on the right: x @ W_q.",
    *((f'linear(x, p["W_{r}"],', f'linear(x, p["W_{r}"].T,') for r in "qkv"),
)  # fmt: skip
layer_wrong(
    "I10", "without-activation",
    "Nothing bends in your feed-forward part: GELU is missing.",
    (WORKED, 'worked = linear(linear(x, p["W_1"], p["b_1"]), p["W_2"], p["b_2"])'),
)  # fmt: skip
layer_wrong(
    "I11", "relu",
    "Your feed-forward part takes the ReLU. It is GELU here: call your `feed_forward`.",
    (WORKED, 'worked = linear(np.maximum(linear(x, p["W_1"], p["b_1"]), 0), p["W_2"], p["b_2"])'),
)  # fmt: skip
layer_wrong(
    "B47", "mask-not-used", SAID["mask-not-used"],
    (HEADS, HEADS.replace(", mask)", ")")),
)  # fmt: skip
layer_wrong(
    "B38", "mask-the-other-way", SAID["mask-the-other-way"],
    (MASK, "if mask is not None:\n        mask = ~mask\n    " + MASK),
)  # fmt: skip
layer_wrong(
    "X18", "always-causal", SAID["always-causal"],
    (MASK, "if mask is None:\n        mask = np.tri(x.shape[-2], dtype=bool)\n    " + MASK),
)  # fmt: skip
layer_wrong(
    "B44", "no-axis-for-the-heads",
    "A mask without an axis of heads goes to `attention` as it is: its batch axis meets the heads. Give it an axis of heads, the third from the end.",
    (MASK, "mask = mask"),
)  # fmt: skip
layer_wrong(
    "B44", "no-mask-of-heads",
    "A mask with an axis of heads gets one more. Where it has one axis more than x, it has it already.",
    ("mask is not None and mask.ndim != x.ndim + 1", "mask is not None"),
    ("np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2]))", "np.asarray(mask)"),
)  # fmt: skip
layer_wrong(
    "B43", "mask-on-queries",
    SAID["mask-on-queries"],
    (MASK, MASK + "\n    if mask is not None:\n        mask = np.swapaxes(np.broadcast_to(mask, (*mask.shape[:-2], *2 * x.shape[-2:-1])), -1, -2)"),
)  # fmt: skip
layer_wrong(
    "A48", "mask-of-the-first-item", SAID["mask-of-the-first-item"],
    (MASK, MASK + "\n    if mask is not None and x.ndim > 2:\n        mask = np.broadcast_to(mask, (*x.shape[:-2], *mask.shape[-3:]))[(0,) * (x.ndim - 2)]"),
)  # fmt: skip

SCORES = (
    "scores = Q @ np.swapaxes(K, -1, -2) / math.sqrt(d // num_heads)\n"
    "    visible = np.broadcast_to(True if mask is None else mask, scores.shape)\n    "
)
layer_wrong(
    "B31", "nan-rows",
    SAID["nan-rows"],
    (HEADS, SCORES + "heads = softmax(np.where(visible, scores, -np.inf)) @ V"),
)  # fmt: skip
layer_wrong(
    "X15", "warns",
    "The numbers are right, but a query that sees nothing gives a warning (0/0): `attention` does without.",
    (HEADS, SCORES + "heads = np.nan_to_num(softmax(np.where(visible, scores, -np.inf))) @ V"),
)  # fmt: skip
layer_wrong(
    "B32", "mean-for-nothing",
    SAID["mean-for-nothing"],
    (HEADS, SCORES + "heads = softmax(np.where(visible, scores, -1e9)) @ V"),
)  # fmt: skip
layer_wrong(
    "B32", "nothing-at-all",
    "A query that sees nothing gets 0 from attention as a whole, without b_o. The heads give 0, then comes the projection with its bias.",
    (ATTENDED, ATTENDED + "\n    if mask is not None:\n        attended = attended * np.broadcast_to(mask, (*mask.shape[:-2], *2 * x.shape[-2:-1])).any(axis=(-1, -3))[..., None]"),
)  # fmt: skip
layer_wrong(
    "B16", "mask-multiplied",
    SAID["mask-multiplied"],
    (HEADS, SCORES + "heads = softmax(np.where(visible, scores, 0)) @ V"),
)  # fmt: skip
layer_wrong(
    "B27", "weak-penalty",
    "A hidden key with a large score still gets weight: the penalty is too small. `attention` hides it whatever its score.",
    (HEADS, SCORES + "heads = (softmax(np.where(visible, scores, scores - 20)) * visible.any(-1, keepdims=True)) @ V"),
)  # fmt: skip
layer_wrong(
    "A09", "no-maximum",
    "exp of large scores overflows. `attention` is stable.",
    (HEADS, SCORES + "e = np.exp(scores) * visible\n    heads = e / np.where(visible.any(-1, keepdims=True), e.sum(-1, keepdims=True), 1) @ V"),
)  # fmt: skip
layer_wrong(
    "X42", "in-the-order-of-the-dict",
    "You take the parameters in the order of the dict. Its keys may come in any order: take them by name.",
    ("    p, d = params", "    names = 'W_q b_q W_k b_k W_v b_v W_o b_o gamma_1 beta_1 W_1 b_1 W_2 b_2 gamma_2 beta_2'.split()\n"
     "    params = dict(zip(names, params.values(), strict=True))\n    p, d = params"),
)  # fmt: skip
layer_wrong(
    "A24", "empties-the-dict",
    "Your function changes `params`: it takes entries out, and a second call misses them.",
    (NORM_2, NORM_2.replace('p["gamma_2"]', 'p.pop("gamma_2")')),
)  # fmt: skip
layer_wrong(
    "A24", "adds-in-place",
    "Your function changes x in place (`x += …`): the caller's x has other numbers afterwards.",
    (NORM_1, "if x.dtype != float:\n        x = x.astype(float)\n    x += attended\n    " + NORM_1.replace("x + attended", "x")),
)  # fmt: skip
layer_wrong(
    "A21", "rounded", SAID["rounded"],
    (NORM_2, NORM_2.replace("layer_norm(", "np.round(layer_norm(") + ", 4)"),
)  # fmt: skip
layer_wrong(
    "X43", "weights-too",
    "Only the output is asked for; you return a pair.",
    (NORM_2, NORM_2 + ", heads"),
)  # fmt: skip


@layer.misconception("B64", SAID["two-axes-only"])
def two_axes_only(x, params, num_heads, mask=None):
    n, d = x.shape
    p = params
    if d % num_heads or any(p[f"W_{r}"].shape != (d, d) for r in "qkvo") or p["W_2"].shape[1] != d:
        raise ValueError("shapes")
    Q, K, V = (linear(x, p[f"W_{r}"], p[f"b_{r}"]) for r in "qkv")
    if mask is not None:
        mask = np.broadcast_to(mask, (num_heads, n, n))
    heads = []
    for i in range(num_heads):
        columns = slice(i * d // num_heads, (i + 1) * d // num_heads)
        seen = None if mask is None else mask[i]
        heads.append(attention(Q[:, columns], K[:, columns], V[:, columns], seen)[0])
    attended = linear(np.hstack(heads), p["W_o"], p["b_o"])
    x = layer_norm(x + attended, p["gamma_1"], p["beta_1"])
    worked = feed_forward(x, p["W_1"], p["b_1"], p["W_2"], p["b_2"])
    return layer_norm(x + worked, p["gamma_2"], p["beta_2"])


@layer.alternative("a loop over the heads, rows of W_o added up")
def layer_by_heads(x, params, num_heads, mask=None):
    d = x.shape[-1]
    if d % num_heads or any(params[f"W_{r}"].shape != (d, d) for r in "qkvo"):
        raise ValueError("shapes")
    if params["W_2"].shape[-1] != d:
        raise ValueError("feed-forward")
    has_heads = mask is not None and mask.ndim == x.ndim + 1
    if has_heads:
        mask = np.broadcast_to(mask, (*x.shape[:-2], num_heads, x.shape[-2], x.shape[-2]))
    attended = linear(np.zeros(x.shape), params["W_o"], params["b_o"])
    for i in range(num_heads):
        c = slice(i * (d // num_heads), (i + 1) * (d // num_heads))
        Q, K, V = (linear(x, params["W_" + r][:, c], params["b_" + r][c]) for r in "qkv")
        output, _ = attention(Q, K, V, mask[..., i, :, :] if has_heads else mask)
        attended = attended + output @ params["W_o"][c]
    y = layer_norm(x + attended, params["gamma_1"], params["beta_1"])
    z = y + feed_forward(y, params["W_1"], params["b_1"], params["W_2"], params["b_2"])
    return layer_norm(z, params["gamma_2"], params["beta_2"])


@layer.alternative("one product for queries, keys and values; no bias for the keys, which cancels")
def layer_one_product(x, params, num_heads, mask=None):
    p, d = params, x.shape[-1]
    for name in p:
        if name in ("W_q", "W_k", "W_v", "W_o") and p[name].shape != (d, d):
            raise ValueError(name)
        if name in ("b_q", "b_k", "b_v", "b_o", "b_2") and p[name].shape != (d,):
            raise ValueError(name)
    W = np.concatenate([p["W_q"], p["W_k"], p["W_v"]], axis=1)
    b = np.concatenate([p["b_q"], np.zeros(d), p["b_v"]])
    Q, K, V = np.split(x @ W + b, 3, axis=-1)
    Q, K, V = (split_heads(part, num_heads) for part in (Q, K, V))
    if mask is not None and mask.ndim == x.ndim + 1:
        visible = mask
    elif mask is not None:
        visible = np.expand_dims(np.broadcast_to(mask, (*x.shape[:-1], x.shape[-2])), -3)
    else:
        visible = np.ones((1, 1), bool)
    heads = attention(Q, K, V, visible)[0]
    x = layer_norm(x + merge_heads(heads) @ p["W_o"] + p["b_o"], p["gamma_1"], p["beta_1"])
    x = layer_norm(
        x + feed_forward(x, p["W_1"], p["b_1"], p["W_2"], p["b_2"]), p["gamma_2"], p["beta_2"]
    )
    return np.asfortranarray(x)


@layer.alternative("einsum, its own softmax with −1e9, its own normalisation, lists out")
def layer_by_einsum(x, params, num_heads, mask=None):
    p, (n, d) = params, x.shape[-2:]
    if d % num_heads or p["W_2"].shape[-1:] != (d,):
        raise ValueError("width")
    if any(p[f"W_{r}"].shape != (d, d) or p[f"b_{r}"].shape != (d,) for r in "qkvo"):
        raise ValueError("attention")
    h, d_k = num_heads, d // num_heads

    def normalised(x, gamma, beta):
        if gamma.shape != (d,) or beta.shape != (d,):
            raise ValueError("norm")
        y = x - x.mean(-1, keepdims=True)
        return y / np.sqrt(y.var(-1, keepdims=True) + 1e-12) * gamma + beta

    cut = [(x @ p[f"W_{r}"] + p[f"b_{r}"]).reshape(*x.shape[:-1], h, d_k) for r in "qkv"]
    scores = np.einsum("...nhk,...mhk->...hnm", cut[0] * d_k**-0.5, cut[1])
    weights = softmax(scores)
    if mask is not None:
        if mask.ndim != x.ndim + 1:
            mask = np.broadcast_to(mask, (*x.shape[:-2], n, n))[..., None, :, :]
        visible = np.broadcast_to(mask, scores.shape)
        weights = softmax(np.where(visible, scores, -1e9)) * visible.any(-1, keepdims=True)
    mixed = np.einsum("...hnm,...mhk->...nhk", weights, cut[2]).reshape(x.shape)
    x = normalised(x + (mixed @ p["W_o"] + p["b_o"]), p["gamma_1"], p["beta_1"])
    hidden = gelu(linear(x, p["W_1"], p["b_1"]))
    return normalised(x + linear(hidden, p["W_2"], p["b_2"]), p["gamma_2"], p["beta_2"]).tolist()


@layer.alternative("batch item by batch item")
def layer_by_items(x, params, num_heads, mask=None):
    n, d = x.shape[-2:]
    p = dict(params)
    if {p[f"W_{r}"].shape for r in "qkvo"} != {(d, d)} or p["W_2"].shape[1] != d:
        raise ValueError("(d, d)")
    visible = np.ones((*x.shape[:-2], num_heads, n, n), bool)
    if mask is not None and mask.ndim == x.ndim + 1:
        visible = visible & np.broadcast_to(mask, visible.shape)
    elif mask is not None:
        visible = visible & np.broadcast_to(mask, (*x.shape[:-1], n))[..., None, :, :]
    result = np.zeros(x.shape)
    for item in np.ndindex(*x.shape[:-2]):
        y = x[item]
        parts = [split_heads(linear(y, p["W_" + r], p["b_" + r]), num_heads) for r in "qkv"]
        heads = [attention(q, k, v, m)[0] for q, k, v, m in zip(*parts, visible[item], strict=True)]
        y = y + linear(np.concatenate(heads, axis=-1), p["W_o"], p["b_o"])
        y = layer_norm(y, p["gamma_1"], p["beta_1"])
        y = y + feed_forward(y, p["W_1"], p["b_1"], p["W_2"], p["b_2"])
        result[item] = layer_norm(y, p["gamma_2"], p["beta_2"])
    return result


# --- sentence_embedding --------------------------------------------------------------------------

pool = exercise.function("sentence_embedding")
POOL = "sentence_embedding(hidden, mask)"


def sentences(rng, *shape, dtype=float):
    """Hidden states, with large numbers where a sentence is padded, and the masks of their words."""
    n = shape[-2]
    lengths = rng.integers(1, n + 1, size=shape[:-2])
    mask = np.arange(n) < np.asarray(lengths)[..., None]
    hidden = rng.normal(size=shape) + rng.normal(size=shape[-1])
    return {"hidden": np.where(mask[..., None], hidden, 50 * hidden).astype(dtype), "mask": mask}


pool.witness(
    "values", "C1", POOL, hidden=np.array([[3.0, 0.0], [3.0, 8.0]]), mask=np.array([True, True])
)
pool.witness(
    "values", "C2", POOL, hidden=np.array([[0.0, 5.0], [-100.0, 70.0], [6.0, 3.0]]),
    mask=np.array([True, False, True]),
)  # fmt: skip
pool.witness("values", "C4", POOL, hidden=np.array([[3, 0], [0, 4]]), mask=np.array([True, True]))
pool.witness(
    "batches",
    "C3",
    POOL,
    hidden=np.array([[[3.0, 4.0], [3.0, 4.0], [9.0, 9.0]], [[1.0, 0.0], [1.0, 1.0], [1.0, 8.0]]]),
    mask=np.array([[True, True, False], [True, True, True]]),
)
pool.witness(
    "batches", "C3", POOL, hidden=np.array([[[3.0, 4.0], [9.0, 1.0]], [[1.0, 0.0], [1.0, 2.0]]]),
    mask=np.array([[True, False], [True, True]]),
)  # fmt: skip
pool.witness(
    "errors", "C5", POOL, hidden=np.ones((2, 3, 2)), mask=np.ones((2, 1), bool), options=RAISES
)
pool.witness("errors", "C5", POOL, hidden=np.ones((3, 2)), mask=np.ones(2, bool), options=RAISES)


@pool.hidden("values")
def _(rng):
    for n, d in ((5, 3), (3, 7), (4, 4), (1, 6), (6, 1)):
        yield Example(
            "C1", POOL, {"hidden": rng.normal(size=(n, d)) + 0.2, "mask": np.ones(n, bool)}
        )
        yield Example("C2", POOL, sentences(rng, n + 1, d))
    case = sentences(rng, 7, 3)
    case["mask"] = np.array(
        [False, True, True, False, True, False, False]
    )  # words need not come first
    yield Example("C2", "sentence_embedding(hidden=hidden, mask=mask)", case)
    yield Example("C2", POOL, {**case, "mask": np.arange(7) == 3})
    yield Example(
        "C2", POOL, {**case, "hidden": np.where(case["mask"][:, None], case["hidden"], -1e6)}
    )
    yield Example("C1", POOL, {**case, "hidden": case["hidden"] * 1e3})
    yield Example("C4", POOL, {**case, "hidden": rng.integers(1, 9, size=(7, 3))})
    yield Example("C4", POOL, sentences(rng, 6, 5, dtype=np.float32))
    yield Example("C4", POOL, {**case, "hidden": np.asfortranarray(case["hidden"])})


@pool.hidden("batches")
def _(rng):
    for shape in ((4, 5, 3), (3, 3, 3), (2, 3, 5, 4), (1, 4, 2), (2, 1, 3, 5), (5, 2, 7)):
        yield Example("C3", POOL, sentences(rng, *shape))
    case = sentences(rng, 4, 5, 3)
    case["hidden"] = case["hidden"] * np.array([1e-2, 1.0, 30.0, 1e3])[:, None, None]
    yield Example("C3", POOL, case)
    yield Example("C3", POOL, {**case, "mask": np.ones((4, 5), bool)})


@pool.hidden("errors")
def _(rng):
    pairs = [((3, 5, 4), (3, 1)), ((3, 5, 4), (1, 5)), ((3, 5, 4), (5,)), ((3, 5, 4), (5, 3))]
    pairs += [
        ((3, 5, 4), (3, 4)),
        ((5, 4), (4,)),
        ((5, 4), (1,)),
        ((5, 4), (1, 5)),
        ((5, 4), (5, 1)),
    ]
    pairs += [((3, 5, 4), (3, 5, 1)), ((3, 5, 4), (3, 5, 4)), ((3, 3, 4), (3,))]
    for hidden, mask in pairs:
        inputs = {"hidden": rng.normal(size=hidden), "mask": np.ones(mask, bool)}
        yield Example("C5", POOL, inputs, raises="ValueError")


pool.slip(
    "X01", "no-check",
    "A mask of another shape than (…, n) raises no ValueError: it is stretched silently, so compare the shapes.",
    "if mask.shape != hidden.shape[:-1]:", "if mask.ndim == 0:",
)  # fmt: skip
pool.slip(
    "X50", "padding-counts",
    "Padding is averaged with the words: the mask has no effect.",
    "np.where(mask[..., None], hidden, 0).sum(axis=-2)", "hidden.sum(axis=-2)",
)  # fmt: skip
pool.slip(
    "X50", "padding-only",
    "You average the padding: True marks the words.",
    "np.where(mask[..., None], hidden, 0)", "np.where(mask[..., None], 0, hidden)",
)  # fmt: skip
pool.slip(
    "X51", "first-word",
    "You take the first vector ([CLS], as BERT's classifiers do). This model averages all words.",
    "    mean = total / mask.sum(axis=-1, keepdims=True)", "    mean = hidden[..., 0, :] * 1.0",
)  # fmt: skip
pool.slip(
    "X51", "last-word",
    "You take the vector at the last position. All words are averaged.",
    "    mean = total / mask.sum(axis=-1, keepdims=True)", "    mean = hidden[..., -1, :] * 1.0",
)  # fmt: skip
pool.slip(
    "X51", "largest",
    "You take the largest number in each column (max pooling). All words are averaged.",
    "    mean = total / mask.sum(axis=-1, keepdims=True)",
    "    mean = np.where(mask[..., None], hidden, -np.inf).max(axis=-2)",
)  # fmt: skip
pool.slip(
    "X52", "not-of-length-1",
    "The mean is right, but it is not brought to the length 1.",
    "return mean / np.linalg.norm(mean, axis=-1, keepdims=True)", "return mean",
)  # fmt: skip
pool.slip(
    "X52", "words-of-length-1",
    "You bring the words to the length 1 and average then. First the mean, then its length.",
    "np.where(mask[..., None], hidden, 0)",
    "np.where(mask[..., None], hidden / np.maximum(np.linalg.norm(hidden, axis=-1, keepdims=True), 1e-12), 0)",
)  # fmt: skip
pool.slip(
    "X52", "words-of-length-1-only",
    "You bring the words to the length 1 and leave their mean as it is. First the mean, then its length.",
    "    return mean / np.linalg.norm(mean, axis=-1, keepdims=True)",
    "    unit = hidden / np.maximum(np.linalg.norm(hidden, axis=-1, keepdims=True), 1e-12)\n"
    "    return np.where(mask[..., None], unit, 0).sum(axis=-2) / mask.sum(axis=-1, keepdims=True)",
)  # fmt: skip
pool.slip(
    "X52", "length-of-all",
    "You divide by the length of all vectors together: np.linalg.norm needs axis=-1 and keepdims=True.",
    "np.linalg.norm(mean, axis=-1, keepdims=True)", "np.linalg.norm(mean)",
)  # fmt: skip
pool.slip(
    "X52", "length-over-sentences",
    "You divide by lengths taken over the sentences: each vector's own length lies along the last axis.",
    "np.linalg.norm(mean, axis=-1, keepdims=True)", "np.linalg.norm(mean, axis=0, keepdims=True)",
)  # fmt: skip
pool.slip(
    "X52", "square-of-the-length",
    "You divide by the square of the length: the root is missing.",
    "np.linalg.norm(mean, axis=-1, keepdims=True)", "(mean**2).sum(axis=-1, keepdims=True)",
)  # fmt: skip
pool.slip(
    "X52", "sum-of-sizes",
    "Your numbers' absolute values sum to 1. The length is the root of the sum of the squares.",
    "np.linalg.norm(mean, axis=-1, keepdims=True)", "np.abs(mean).sum(axis=-1, keepdims=True)",
)  # fmt: skip
pool.slip(
    "X52", "largest-is-1",
    "You divide by the largest number. The length is the root of the sum of the squares.",
    "np.linalg.norm(mean, axis=-1, keepdims=True)", "np.abs(mean).max(axis=-1, keepdims=True)",
)  # fmt: skip


@pool.misconception(
    "B64",
    "Your function takes one sentence only. Any number of axes may lead: work along axis=-2 and axis=-1.",
)
def one_sentence_only(hidden, mask):
    n, d = hidden.shape
    if mask.shape != (n,):
        raise ValueError("mask")
    mean = hidden[mask].mean(axis=0)
    return mean / np.linalg.norm(mean)


@pool.misconception(
    "B64",
    "Your function needs a batch. A single sentence, (n, d) with a mask (n,), is right as well.",
)
def three_axes_only(hidden, mask):
    B, n, d = hidden.shape
    if mask.shape != (B, n):
        raise ValueError("mask")
    means = np.stack([h[m].mean(axis=0) for h, m in zip(hidden, mask, strict=True)])
    return means / np.linalg.norm(means, axis=1, keepdims=True)


pool.slip(
    "X53", "over-features",
    "You average over the features. The words are the second axis from the end.",
    ".sum(axis=-2)  # (…, n, d) -> (…, d)\n    mean = total / mask.sum(axis=-1, keepdims=True)",
    ".sum(axis=-1)\n    mean = total * 1.0",
)  # fmt: skip
pool.slip(
    "X53", "over-the-first-axis",
    "You average over the first axis. Where a batch leads, the words are the second axis from the end.",
    ".sum(axis=-2)", ".sum(axis=0)",
)  # fmt: skip
pool.slip(
    "X53", "one-vector-for-all",
    "You average over all sentences together. Each has its own vector.",
    ".sum(axis=-2)  # (…, n, d) -> (…, d)\n    mean = total / mask.sum(axis=-1, keepdims=True)",
    ".sum(axis=tuple(range(hidden.ndim - 1)))\n    mean = total / mask.sum()",
)  # fmt: skip
pool.slip(
    "A48", "mask-of-the-first", "All sentences get the mask of the first one.",
    "    total =", "    mask = np.broadcast_to(mask[(0,) * (mask.ndim - 1)], mask.shape)\n    total =",
)  # fmt: skip
pool.slip(
    "X54", "softmax",
    "You make the numbers sum to 1 by a softmax. Divide by the length.",
    "return mean / np.linalg.norm(mean, axis=-1, keepdims=True)", "return softmax(mean)",
)  # fmt: skip
pool.slip(
    "A26", "like-integers", SAID["like-integers"],
    "return mean / np.linalg.norm(mean, axis=-1, keepdims=True)",
    "return (mean / np.linalg.norm(mean, axis=-1, keepdims=True)).astype(hidden.dtype)",
)  # fmt: skip
pool.slip(
    "A24", "padding-set-in-place",
    "Your function writes zeros into hidden: the caller's array has other numbers afterwards.",
    "    total =", "    hidden[~mask] = 0\n    total =",
)  # fmt: skip
pool.slip(
    "A21", "rounded", SAID["rounded"],
    "return mean / np.linalg.norm(mean, axis=-1, keepdims=True)",
    "return np.round(mean / np.linalg.norm(mean, axis=-1, keepdims=True), 4)",
)  # fmt: skip


@pool.alternative("a sum: the length takes care of the rest")
def sum_is_enough(hidden, mask):
    if mask.shape != hidden.shape[:-1]:
        raise ValueError("mask")
    total = np.einsum("...nd,...n->...d", hidden, mask.astype(hidden.dtype))
    return total / np.sqrt(np.einsum("...d,...d->...", total, total))[..., None]


@pool.alternative("loops over the sentences, lists out")
def pool_by_loops(hidden, mask):
    if np.shape(mask) != np.shape(hidden)[:-1]:
        raise ValueError
    if hidden.ndim > 2:
        return [pool_by_loops(h, m) for h, m in zip(hidden, mask, strict=True)]
    words = [row for row, word in zip(hidden.tolist(), mask, strict=True) if word]
    mean = [sum(column) / len(words) for column in zip(*words, strict=True)]
    length = math.sqrt(sum(value * value for value in mean))
    return [value / length for value in mean]


@pool.alternative("np.mean with where, a smallest length")
def mean_where(hidden, mask):
    if mask.shape != hidden.shape[:-1]:
        raise ValueError("mask")
    mean = np.mean(hidden, axis=-2, where=np.expand_dims(mask, -1))
    return mean / np.maximum(np.linalg.norm(mean, axis=-1)[..., None], 1e-12)


@pool.alternative("weights and a product")
def pool_by_product(hidden, mask):
    if hidden.shape[:-1] != mask.shape:
        raise ValueError(f"{hidden.shape} {mask.shape}")
    weights = mask / mask.sum(-1, keepdims=True)
    mean = (weights[..., None, :] @ hidden)[..., 0, :]
    return np.asfortranarray(mean / np.sqrt((mean**2).sum(-1, keepdims=True)))


# --- sentence_encoder ----------------------------------------------------------------------------

encoder = exercise.question("sentence_encoder")
encoder.uses = ("encoder_layer", "sentence_embedding", "layer_norm", "gelu", "feed_forward")
ENCODE = "sentence_encoder(x, mask, layers, num_heads)"
# The model is far larger than an example's inputs may be, so the code fetches it by itself.
CARRIED = """from manyheads import minilm
model = minilm.load()
x, mask = model.embed(sentences)
E = sentence_encoder(x, mask, model.layers, model.num_heads)"""
COSINES = CARRIED + "\nnp.inner(E, E[0])"  # of all sentences with the first
EMBEDDINGS = CARRIED + "\nE"


def encoder_case(rng, lengths, n, h=3, d_k=2, layers=2, d_ff=5):
    d, B = h * d_k, len(lengths)
    return {
        "x": rng.normal(size=(B, n, d)) + 0.3,
        "mask": np.arange(n) < np.array(lengths)[:, None],
        "layers": [parameters(rng, d, d_ff) for _ in range(layers)],
        "num_heads": h,
    }


LAYERS = """layers = [
    {
        name: np.sin(k + i + np.arange(np.prod(shape)) ** 2.0).reshape(shape)
        for i, (name, shape) in enumerate(shapes.items())
    }
    for k in range(3)
]
sentence_encoder(x, mask, layers, 2)"""
encoder.witness("layers", "C1", LAYERS, x=X2[None], mask=np.ones((1, 2), bool), shapes=SHAPES)
encoder.witness(
    "layers", "C2", LAYERS, x=np.stack([X3, X3[::-1]]),
    mask=np.array([[True, True, False], [True, True, True]]), shapes=SHAPES,
)  # fmt: skip
PUBLISHED, EXPECTED, _ = minilm.reference()
BANKS = [1, 3, 8]  # of a stream, of a river, of money
encoder.witness(
    "model",
    "C3",
    COSINES,
    sentences=[PUBLISHED[i] for i in BANKS],
    options={
        "expect": EXPECTED[BANKS].astype(float) @ EXPECTED[BANKS[0]],
        "rtol": 0,
        "atol": 1e-4,
        "once": True,
    },
)


@encoder.hidden("layers")
def _(rng):
    yield Example("C1", ENCODE, encoder_case(rng, [5, 5, 5], 5))
    yield Example("C1", ENCODE, encoder_case(rng, [4, 4], 4, 2, 3, layers=3))
    yield Example("C1", ENCODE, encoder_case(rng, [6], 6, 2, 2, layers=1))
    yield Example("C2", ENCODE, encoder_case(rng, [2, 5, 3, 4], 5))
    keyword = "sentence_encoder(x=x, mask=mask, layers=layers, num_heads=num_heads)"
    yield Example("C2", keyword, encoder_case(rng, [1, 7, 4], 7, 4, 2))
    # As many sentences as positions, or as heads: a mask on the wrong axis keeps its shape.
    yield Example("C2", ENCODE, encoder_case(rng, [2, 4, 3, 1], 4))
    yield Example("C2", ENCODE, encoder_case(rng, [2, 4, 3], 4))
    case = encoder_case(rng, [3, 2], 5)
    case["x"][~case["mask"]] *= 30
    yield Example("C2", ENCODE, case)


@encoder.hidden("model")
def _(rng):
    i = int(rng.integers(len(PUBLISHED)))
    inputs = {"sentences": [PUBLISHED[i]]}
    yield Example("C3", EMBEDDINGS, inputs, expect=EXPECTED[[i]], rtol=0, atol=1e-4, once=True)


encoder.slip(
    "B47", "padding-seen",
    "Padded keys are seen: hand the mask on to `encoder_layer`, with an axis for the queries.",
    "num_heads, visible))", "num_heads))",
)  # fmt: skip
encoder.slip(
    "X50", "padding-averaged",
    "Padding counts in the embedding: hand the mask on to `sentence_embedding`.",
    "sentence_embedding(x, mask)", "sentence_embedding(x, np.ones_like(mask))",
)  # fmt: skip
encoder.slip(
    "B44", "mask-without-an-axis-for-queries",
    "The mask (B, n) goes to `encoder_layer` as it is: its first axis would be read as queries. Make it (B, 1, n).",
    "mask[:, None, :]", "mask",
)  # fmt: skip
encoder.slip(
    "B43", "mask-on-the-queries",
    "The mask is laid on the queries, (B, n, 1). It hides keys: (B, 1, n).",
    "mask[:, None, :]", "mask[:, :, None]",
)  # fmt: skip
encoder.slip(
    "B25", "mask-opposite",
    "You hide the words and show the padding: True in the mask means a word, and that it may be seen.",
    "mask[:, None, :]", "~mask[:, None, :]",
)  # fmt: skip
encoder.slip(
    "X60", "first-layer-always",
    "All layers get the parameters of the first one.",
    "encoder_layer(x, params,", "encoder_layer(x, layers[0],",
)  # fmt: skip
encoder.slip(
    "X60", "backwards", "The layers run backwards.", "in layers:", "in layers[::-1]:"
)  # fmt: skip
encoder.slip(
    "X60", "last-layer-only",
    "Every layer reads the first x again, so only the last one counts: each reads what the one before it gives.",
    "    for params in layers:",
    "    first = x\n    for params in layers:\n        x = first",
)  # fmt: skip
encoder.slip(
    "A48", "one-layer", "Only the first layer runs: look for a `return` inside the loop.",
    "in layers:", "in layers[:1]:",
)  # fmt: skip
encoder.slip(
    "X60", "without-the-last", "The last layer does not run.", "in layers:", "in layers[: len(layers) - 1]:"
)  # fmt: skip
encoder.slip(
    "X60", "layers-added",
    "You add x to each layer's result. The layer adds it already.",
    "x = np.asarray(", "x = x + np.asarray(",
)  # fmt: skip
encoder.slip(
    "X51", "first-word",
    "You take the first vector ([CLS]). This model averages all words: `sentence_embedding`.",
    "sentence_embedding(x, mask)", "x[:, 0] / np.linalg.norm(x[:, 0], axis=-1, keepdims=True)",
)  # fmt: skip
encoder.slip(
    "X52", "not-of-length-1",
    "The mean of the words is right, but it is not brought to the length 1: `sentence_embedding` does both.",
    "sentence_embedding(x, mask)", "np.where(mask[..., None], x, 0).sum(axis=1) / mask.sum(axis=1, keepdims=True)",
)  # fmt: skip
encoder.slip(
    "X61", "hidden-states",
    "You return the vectors of all words. One per sentence is asked for: `sentence_embedding`.",
    "return sentence_embedding(x, mask)", "return x",
)  # fmt: skip
encoder.slip(
    "C11", "one-head", "Your layers have one head, whatever num_heads is.",
    "num_heads, visible", "1, visible",
)  # fmt: skip


@encoder.alternative("a mask with an axis for the heads, reduce")
def by_reduce(x, mask, layers, num_heads):
    from functools import reduce

    visible = mask[:, np.newaxis, np.newaxis, :]
    last = reduce(lambda x, p: encoder_layer(x, p, num_heads, visible), layers, x)
    return sentence_embedding(last, mask)


@encoder.alternative("one sentence at a time, without its padding")
def one_at_a_time(x, mask, layers, num_heads):
    result = []
    for sentence, words in zip(x, mask, strict=True):
        sentence = sentence[words]
        for params in layers:
            sentence = encoder_layer(sentence, params, num_heads)
        mean = sentence.mean(axis=0)
        result.append(mean / np.sqrt(mean @ mean))
    return result


# --- break_embedding -----------------------------------------------------------------------------

found = BreakIt(exercise, "break_embedding", answer="C3", sentences=5)
found.fits(
    """_, hidden, mask = break_embedding()
hidden, mask = np.array(hidden, dtype=float), np.array(mask)
fits = mask.dtype == bool and mask.ndim > 0 and mask.shape == hidden.shape[:-1]
small = max((1, *hidden.shape)) <= 4 and (abs(hidden) <= 100).all()
"no fit" if not fits else "too large" if not small else "fits" if mask.any(-1).all() else "no words" """,
    "fits",
)
found.shows(  # the lengths of both results do not depend on the scale
    """_, hidden, mask = break_embedding()
hidden, mask = scale * np.array(hidden, dtype=float), np.array(mask)
mean = (hidden * mask[..., None]).sum(-2) / mask.shape[-1]
right = mean / np.linalg.norm(mean, axis=-1, keepdims=True)
found = mean / np.linalg.norm(mean)
"one sentence" if mean.size == mean.shape[-1] else "differs" if np.abs(right - found).max() > 0.01 else "too little" """,
    "differs",
    lambda rng: {"scale": float(rng.uniform(1, 3))},
)

found.blames(
    "X70", "blames-the-mean", "C1",
    "For one sentence it keeps C1: dividing by n instead of the number of words only changes the length, and the length becomes 1 afterwards. "
    "What happens with two sentences?",
)  # fmt: skip
found.blames(
    "X70", "blames-the-padding", "C2",
    "Padding becomes 0 and adds nothing; dividing by n instead of the number of words only changes the length, which becomes 1 afterwards. "
    "What happens with two sentences?",
)  # fmt: skip
found.blames(
    "X70", "blames-the-numbers", "C4",
    "Integers and float32 come out as they should. What happens with two sentences?",
)  # fmt: skip
found.blames(
    "X70", "blames-the-errors", "C5",
    "True, it does not compare the shapes. But the numbers are wrong where the shapes are right: what happens with two sentences?",
)  # fmt: skip
found.input(
    "X71", "one-sentence",
    "With one sentence there is nothing wrong with it: look at how np.linalg.norm is called, and take two.",
    "np.array([[[1.0]]]), np.array([[True]])",
)  # fmt: skip
found.input(
    "X72", "too-large",
    "No axis may be longer than 4, and no number beyond ±100: a smaller input can show it.",
    "np.array([[[1000.0]], [[1.0]]]), np.array([[True], [True]])",
)  # fmt: skip
found.input(
    "X72", "does-not-fit",
    "Your mask does not fit: boolean, with a True or False for each position of each sentence.",
    "np.array([[[1.0]], [[1.0]]]), np.array([[1], [1]])",
)  # fmt: skip
found.input(
    "X72", "no-words",
    "A sentence without words has no mean: each needs at least one True in its mask.",
    "np.array([[[1.0]], [[1.0]]]), np.array([[True], [False]])",
)  # fmt: skip


@found.alternative("random numbers")
def random_sentences():
    rng = np.random.default_rng(3)
    return "C3", rng.normal(size=(2, 3, 4)), np.array([[True, True, False], [True, False, False]])


@found.alternative("nested lists, two batch axes")
def two_batch_axes():
    return ["C3", [[[[3, 4]], [[0, 2]]]], [[[True], [True]]]]
