"""Chapter 11: normalisation, feed-forward, the encoder layer and sentence vectors."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.transformer import encoder_layer, feed_forward, gelu, layer_norm, sentence_embedding

from .cases import CASES, FIXED, draw_items, seeds, sizes, some, stack

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


def draw(rng, s, batch=(3,)):
    case = CASES["encoder_layer"]
    arguments = stack(case, draw_items(case, rng, s, int(np.prod(batch))), batch)
    del arguments["mask"]
    return arguments


@quickly
@given(rng=seeds(), s=sizes(2), eps=st.sampled_from([1e-12, 1e-5, 0.1]))
def test_layer_norm_agrees_with_pytorch(torch, rng, s, eps):
    x, gamma, beta = 5 + 3 * some(rng, s.n, s.m), some(rng, s.m), some(rng, s.m)
    X, *affine = map(torch.tensor, (x, gamma, beta))
    theirs = torch.nn.functional.layer_norm(X, (s.m,), *affine, eps)
    np.testing.assert_allclose(layer_norm(x, gamma, beta, eps), theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("mean", [0, 1e3, -1e4])
def test_a_large_mean_does_not_spoil_the_variance(mean):
    x = some(np.random.default_rng(0), 4, 6)
    ones, zeros = np.ones(6), np.zeros(6)
    np.testing.assert_allclose(
        layer_norm(x + mean, ones, zeros), layer_norm(x, ones, zeros), rtol=1e-7, atol=1e-9
    )


def test_equal_entries_become_beta():
    assert layer_norm([[3.0, 3.0]], [1, 1], [5, 6]).tolist() == [[5, 6]]


def test_gelu_agrees_with_jax_and_pytorch(torch):
    x = np.linspace(-40, 40, 333).reshape(3, 3, 37)
    np.testing.assert_allclose(gelu(x), jax.nn.gelu(x, approximate=False), rtol=1e-9, atol=1e-13)
    np.testing.assert_allclose(
        gelu(x), torch.nn.functional.gelu(torch.tensor(x)), rtol=1e-9, atol=1e-13
    )
    assert gelu(0.0) == 0


def test_gelu_is_not_the_tanh_approximation():
    x = np.linspace(-4, 4, 101)
    assert 1e-4 < np.abs(gelu(x) - jax.nn.gelu(x, approximate=True)).max() < 1e-3


def test_the_feed_forward_part_works_on_each_position_alone():
    rng = np.random.default_rng(0)
    x, weights = some(rng, 5, 3), (some(rng, 3, 7), some(rng, 7), some(rng, 7, 3), some(rng, 3))
    together = feed_forward(x, *weights)
    np.testing.assert_allclose(together, [feed_forward(row, *weights) for row in x], rtol=1e-12)


@quickly
@given(rng=seeds(), s=sizes(2), hide=st.booleans())
def test_the_encoder_layer_agrees_with_pytorchs(torch, rng, s, hide):
    arguments = draw(rng, s)
    p, d = arguments["params"], s.h * s.d_k
    theirs = torch.nn.TransformerEncoderLayer(
        d, s.h, s.spare, 0, "gelu", 1e-12, batch_first=True, dtype=torch.float64
    ).eval()
    tensors = {
        "self_attn.in_proj_weight": np.concatenate([p["W_q"].T, p["W_k"].T, p["W_v"].T]),
        "self_attn.in_proj_bias": np.concatenate([p["b_q"], p["b_k"], p["b_v"]]),
        "self_attn.out_proj.weight": p["W_o"].T,
        "self_attn.out_proj.bias": p["b_o"],
        "linear1.weight": p["W_1"].T,
        "linear1.bias": p["b_1"],
        "linear2.weight": p["W_2"].T,
        "linear2.bias": p["b_2"],
        "norm1.weight": p["gamma_1"],
        "norm1.bias": p["beta_1"],
        "norm2.weight": p["gamma_2"],
        "norm2.bias": p["beta_2"],
    }
    theirs.load_state_dict({name: torch.tensor(array) for name, array in tensors.items()})
    mask = np.tri(s.n, dtype=bool) if hide else None
    want = theirs(torch.tensor(arguments["x"]), None if mask is None else torch.tensor(~mask))
    got = encoder_layer(**arguments, mask=mask)
    np.testing.assert_allclose(got, want.detach(), rtol=1e-6, atol=1e-7)


@quickly
@given(rng=seeds(), s=sizes(2))
def test_the_encoder_layer_knows_no_order(rng, s):
    arguments, order = draw(rng, s, ()), rng.permutation(s.n)
    moved = encoder_layer(**arguments | {"x": arguments["x"][order]})
    np.testing.assert_allclose(moved, encoder_layer(**arguments)[order], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("change", ["larger", "shorter", "one"])
def test_parameters_of_another_size_are_an_error(change):
    arguments = draw(np.random.default_rng(0), FIXED)
    for name, array in arguments["params"].items():
        for axis in range(array.ndim):
            size = array.shape[axis]
            index = {"larger": [0, *range(size)], "shorter": range(size - 1), "one": [0]}[change]
            params = arguments["params"] | {name: array.take(index, axis)}
            with pytest.raises(ValueError, match=r"\("):
                encoder_layer(**arguments | {"params": params})


@quickly
@given(rng=seeds(), s=sizes())
def test_embeddings_have_length_one_and_do_not_see_padding(rng, s):
    hidden = 0.5 + rng.random((3, s.n, s.d_k))
    mask = np.arange(s.n) < rng.integers(1, s.n + 1, (3, 1))
    vectors = sentence_embedding(hidden, mask)
    np.testing.assert_allclose((vectors**2).sum(axis=-1), 1, rtol=1e-12)
    padded = np.where(mask[..., None], hidden, 1e9)
    np.testing.assert_allclose(sentence_embedding(padded, mask), vectors, rtol=1e-12)
    np.testing.assert_allclose(sentence_embedding(7 * hidden, mask), vectors, rtol=1e-12)


@pytest.mark.parametrize(
    "mask",
    [
        np.zeros((2, 3), bool),
        np.array([[True] * 3, [False] * 3]),
        np.ones((2, 3)),
        np.ones((1, 3), bool),
        np.ones(3, bool),
        np.ones((2, 3, 1), bool),
    ],
)
def test_every_sentence_has_words(mask):
    with pytest.raises(ValueError):
        sentence_embedding(np.ones((2, 3, 4)), mask)
