"""Random arguments for every array function of the library, with sizes that differ from each other.

A case makes the arguments for one item; `stack` puts several items along leading batch axes. What
all items share (weight matrices, tables, layouts) stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from hypothesis import strategies as st

from . import loops

CHAPTERS = (
    "matrices",
    "scaled_dot_product",
    "self_attention",
    "multi_head",
    "seeing_heads",
    "cross_attention",
    "positions",
    "sparse",
    "efficient",
    "gradients_and_debugging",
    "transformer",
)
MODULES = [import_module(f"manyheads.{chapter}") for chapter in CHAPTERS]
LIBRARY = {name: value for module in MODULES for name, value in vars(module).items()}

Arguments = dict[str, Any]


@dataclass(frozen=True)
class Sizes:
    """n queries, m keys, d_k and d_v columns, h heads and a spare one."""

    n: int
    m: int
    d_k: int
    d_v: int
    h: int
    spare: int


@dataclass(frozen=True)
class Case:
    """One function: how to make its arguments, and what is particular about them."""

    function: Callable
    loop: Callable
    make: Callable[[np.random.Generator, Sizes], Arguments]
    shared: frozenset[str] = frozenset()  # arguments without batch axes
    free: frozenset[tuple[str, int]] = frozenset()  # axes that may change size alone
    broadcast: frozenset[str] = frozenset({"mask", "memory_mask", "bias"})


CASES: dict[str, Case] = {}

# Where sizes are not drawn: all different, none of them 1, none hidden in another.
FIXED = Sizes(n=5, m=4, d_k=6, d_v=7, h=3, spare=2)


def case(of: str | None = None, **about: Any) -> Callable:
    """Register the decorated maker, for the function `of` or else the one with the maker's name."""

    def register(make: Callable) -> Callable:
        name = of or make.__name__
        sets = {key: frozenset(value) for key, value in about.items()}
        CASES[make.__name__] = Case(LIBRARY[name], getattr(loops, name), make, **sets)
        return make

    return register


def sizes(smallest: int = 1, largest: int = 7) -> st.SearchStrategy[Sizes]:
    """Sizes that are all different, so that no two axes can be confused unseen."""
    return st.permutations(range(smallest, largest + 1)).map(lambda s: Sizes(*s[:6]))


def seeds() -> st.SearchStrategy[np.random.Generator]:
    """Generators that Hypothesis can repeat."""
    return st.integers(0, 2**32 - 1).map(np.random.default_rng)


def batches() -> st.SearchStrategy[tuple[int, ...]]:
    """Leading axes: none, one, two, and ones of size 1."""
    return st.sampled_from([(), (3,), (1,), (2, 3), (1, 2)])


def stack(case: Case, items: list[Arguments], batch: tuple[int, ...]) -> Arguments:
    """The arguments of all items at once, along the leading axes `batch`."""
    joined = dict(items[0])
    for name, value in items[0].items():
        if isinstance(value, np.ndarray) and name not in case.shared:
            every = np.stack([item[name] for item in items])
            joined[name] = every.reshape(*batch, *value.shape)
    return joined


def draw_items(case: Case, rng: np.random.Generator, sizes: Sizes, count: int) -> list[Arguments]:
    """Different arguments for each item, except those that the items share."""
    items = [case.make(rng, sizes) for _ in range(count)]
    kept = {
        name: value
        for name, value in items[0].items()
        if name in case.shared or not isinstance(value, np.ndarray)
    }
    return [item | kept for item in items]


def some(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape)


def weight(rng: np.random.Generator, d_in: int, d_out: int) -> np.ndarray:
    """A weight matrix that leaves the size of its input as it is."""
    return rng.normal(size=(d_in, d_out)) / np.sqrt(d_in)


def visible(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """A mask; now and then a row of it is empty."""
    return rng.random(shape) < 0.6


def weights_of(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """Rows that sum to 1, some of them one-hot."""
    weights = rng.dirichlet(np.ones(shape[-1]), size=shape[:-1])
    return np.where(rng.random((*shape[:-1], 1)) < 0.2, np.eye(shape[-1])[0], weights)


def projections(rng: np.random.Generator, d: int, d_mem: int | None = None) -> Arguments:
    d_mem = d if d_mem is None else d_mem
    return {
        "W_q": weight(rng, d, d),
        "W_k": weight(rng, d_mem, d),
        "W_v": weight(rng, d_mem, d),
        "W_o": weight(rng, d, d),
    }


def qkv(rng: np.random.Generator, s: Sizes, *heads: int) -> Arguments:
    return {
        "Q": some(rng, *heads, s.n, s.d_k),
        "K": some(rng, *heads, s.m, s.d_k),
        "V": some(rng, *heads, s.m, s.d_v),
    }


WEIGHTS = {"W_q", "W_k", "W_v", "W_o"}


@case(free={("x", -1), ("x", -2)})
def softmax(rng, s):
    return {"x": some(rng, s.n, s.m)}


@case(shared={"W", "b"}, free={("x", -2)})
def linear(rng, s):
    return {"x": some(rng, s.n, s.m), "W": some(rng, s.m, s.d_v), "b": some(rng, s.d_v)}


@case(free={("Q", -2), ("K", -2)})
def attention_scores(rng, s):
    return {"Q": some(rng, s.n, s.d_k), "K": some(rng, s.m, s.d_k)}


@case(free={("V", -1)})
def attention(rng, s):
    return qkv(rng, s) | {"mask": visible(rng, s.n, s.m)}


@case(shared={"W_q", "W_k", "W_v"}, free={("W_v", -1)})
def self_attention(rng, s):
    return {
        "x": some(rng, s.n, s.m),
        "W_q": weight(rng, s.m, s.d_k),
        "W_k": weight(rng, s.m, s.d_k),
        "W_v": weight(rng, s.m, s.d_v),
        "mask": visible(rng, s.n, s.n),
    }


@case(free={("x", -2)})
def split_heads(rng, s):
    return {"x": some(rng, s.n, s.h * s.d_k), "num_heads": s.h}


@case(free={("x", -1), ("x", -2), ("x", -3)})
def merge_heads(rng, s):
    return {"x": some(rng, s.h, s.n, s.d_k)}


@case(shared=WEIGHTS)
def multi_head_attention(rng, s):
    d = s.h * s.d_k
    return {
        "x": some(rng, s.n, d),
        **projections(rng, d),
        "num_heads": s.h,
        "mask": visible(rng, s.n, s.n),
    }


@case(free={("weights", -1), ("weights", -2)})
def attention_entropy(rng, s):
    return {"weights": weights_of(rng, s.n, s.m)}


@case(free={("weights", -3)})
def attention_distance(rng, s):
    return {"weights": weights_of(rng, s.h, s.n, s.n)}


@case(free={("weights", -3)})
def offset_score(rng, s):
    offset = int(rng.integers(-s.n + 1, s.n))
    return {"weights": weights_of(rng, s.h, s.n, s.n), "offset": offset}


@case(shared={*WEIGHTS, "keep"}, free={("x", -2)})
def ablate_heads(rng, s):
    d = s.h * s.d_k
    keep = rng.random(s.h) < 0.5
    return {"x": some(rng, s.n, d), **projections(rng, d), "num_heads": s.h, "keep": keep}


@case(shared=WEIGHTS)
def cross_attention(rng, s):
    d = s.h * s.d_k
    return {
        "x": some(rng, s.n, d),
        "memory": some(rng, s.m, s.spare),
        **projections(rng, d, s.spare),
        "num_heads": s.h,
        "memory_mask": visible(rng, s.n, s.m),
    }


@case(free={("weights", -1), ("weights", -2), ("weights", -3)})
def hard_alignment(rng, s):
    return {"weights": weights_of(rng, s.h, s.n, s.m)}


@case()
def decoder_attention(rng, s):
    d = s.h * s.d_k
    return {
        "y": some(rng, s.n, d),
        "memory": some(rng, s.m, s.spare),
        "self_weights": projections(rng, d),
        "cross_weights": projections(rng, d, s.spare),
        "num_heads": s.h,
        "memory_mask": visible(rng, s.n, s.m),
    }


@case(free={("V", -1)})
def biased_attention(rng, s):
    return qkv(rng, s) | {"bias": some(rng, s.n, s.m), "mask": visible(rng, s.n, s.m)}


@case(shared={"positions"})
def apply_rope(rng, s):
    return {"x": some(rng, s.n, 2 * s.d_k), "positions": rng.integers(0, 900, size=s.n)}


@case(free={("V", -1)})
def local_attention(rng, s):
    return same_length(rng, s) | {"window": int(rng.integers(0, s.n + 2)), "causal": flip(rng)}


@case(shared={"layout"}, free={("Q", -2), ("V", -1)})
def block_sparse_attention(rng, s):
    size = s.spare
    layout = visible(rng, -(-s.n // size), -(-s.m // size))
    return qkv(rng, s) | {"layout": layout, "block_size": size}


@case(shared={"rotations"}, free={("x", -2), ("rotations", -1)})
def hash_buckets(rng, s):
    return {"x": some(rng, s.n, s.d_k), "rotations": some(rng, s.d_k, s.h)}


@case(free={("V", -1)})
def hash_attention(rng, s):
    buckets = {"q_buckets": rng.integers(-2, 3, s.n), "k_buckets": rng.integers(-2, 3, s.m)}
    return qkv(rng, s) | buckets


@case(shared={"W_r"}, free={("x", -2), ("W_r", -1)})
def route_heads(rng, s):
    return {
        "x": some(rng, s.n, s.d_k),
        "W_r": some(rng, s.d_k, s.h),
        "top_k": 1 + int(rng.integers(s.h)),
    }


@case(shared={*WEIGHTS, "W_r"}, free={("x", -2)})
def routed_multi_head_attention(rng, s):
    d = s.h * s.d_k
    return {
        "x": some(rng, s.n, d),
        **projections(rng, d),
        "W_r": some(rng, d, s.h),
        "num_heads": s.h,
        "top_k": 1 + int(rng.integers(s.h)),
    }


@case()
def merge_partial(rng, s):
    first, second = partial_state(rng, s), partial_state(rng, s)
    names = ("m1", "l1", "o1", "m2", "l2", "o2")
    return dict(zip(names, (*first, *second), strict=True))


@case(free={("Q", -2), ("V", -1)})
def tiled_attention(rng, s):
    return qkv(rng, s) | {"tile": s.spare, "causal": flip(rng)}


@case(free={("Q", -2), ("V", -1)})
def shifted_attention(rng, s):
    return qkv(rng, s)


@case(free={("Q", -2), ("V", -1)})
def linear_attention(rng, s):
    return qkv(rng, s)


@case(of="linear_attention", free={("V", -1)})
def causal_linear_attention(rng, s):
    return same_length(rng, s) | {"causal": True}


@case(free={("V", -1)})
def grouped_query_attention(rng, s):
    queries = some(rng, s.h * s.spare, s.n, s.d_k)
    mask = visible(rng, s.h * s.spare, s.n, s.m)
    return qkv(rng, s, s.h) | {"Q": queries, "mask": mask}


@case()
def softmax_backward(rng, s):
    return {"weights": weights_of(rng, s.n, s.m), "d_weights": some(rng, s.n, s.m)}


@case()
def attention_backward(rng, s):
    d_output = some(rng, s.n, s.d_v)
    return qkv(rng, s) | {"d_output": d_output, "mask": visible(rng, s.n, s.m)}


@case(shared={"gamma", "beta"}, free={("x", -2)})
def layer_norm(rng, s):
    return {"x": some(rng, s.n, s.m), "gamma": some(rng, s.m), "beta": some(rng, s.m), "eps": 1e-3}


@case(free={("x", -1), ("x", -2)})
def gelu(rng, s):
    return {"x": 3 * some(rng, s.n, s.m)}


@case(shared={"W_1", "b_1", "W_2", "b_2"}, free={("x", -2)})
def feed_forward(rng, s):
    return {"x": some(rng, s.n, s.m), **feed_forward_weights(rng, s.m, s.spare)}


@case()
def encoder_layer(rng, s):
    d = s.h * s.d_k
    params = {
        **projections(rng, d),
        **{name: some(rng, d) for name in ("b_q", "b_k", "b_v", "b_o")},
        **feed_forward_weights(rng, d, s.spare),
        **{name: some(rng, d) for name in ("gamma_1", "beta_1", "gamma_2", "beta_2")},
    }
    return {
        "x": some(rng, s.n, d),
        "params": params,
        "num_heads": s.h,
        "mask": visible(rng, s.n, s.n),
    }


@case(broadcast=(), free={("hidden", -1)})
def sentence_embedding(rng, s):
    mask = visible(rng, s.n)
    mask[rng.integers(s.n)] = True
    return {"hidden": 0.5 + rng.random((s.n, s.d_k)), "mask": mask}


def flip(rng: np.random.Generator) -> bool:
    return bool(rng.random() < 0.5)


def same_length(rng: np.random.Generator, s: Sizes) -> Arguments:
    """As many keys as queries."""
    return {
        "Q": some(rng, s.n, s.d_k),
        "K": some(rng, s.n, s.d_k),
        "V": some(rng, s.n, s.d_v),
    }


def partial_state(rng: np.random.Generator, s: Sizes) -> tuple[np.ndarray, ...]:
    """The softmax state of m random scores; now and then of none."""
    scores = 5 * some(rng, s.n, s.m)
    if rng.random() < 0.3:
        return np.full(s.n, -np.inf), np.zeros(s.n), np.zeros((s.n, s.d_v))
    top = scores.max(axis=-1)
    powers = np.exp(scores - top[:, None])
    return top, powers.sum(axis=-1), powers @ some(rng, s.m, s.d_v)


def feed_forward_weights(rng: np.random.Generator, d: int, hidden: int) -> Arguments:
    return {
        "W_1": weight(rng, d, hidden),
        "b_1": some(rng, hidden),
        "W_2": weight(rng, hidden, d),
        "b_2": some(rng, d),
    }
