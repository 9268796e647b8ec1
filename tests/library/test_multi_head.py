"""Chapter 4: splitting, merging, and attention in several heads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.multi_head import (
    MultiHeadAttention,
    merge_heads,
    multi_head_attention,
    split_heads,
)
from manyheads.scaled_dot_product import attention, causal_mask, padding_mask

from .cases import CASES, batches, draw_items, projections, seeds, sizes, some, stack, visible

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


@quickly
@given(rng=seeds(), s=sizes(), batch=batches())
def test_head_i_holds_its_own_columns(rng, s, batch):
    x = some(rng, *batch, s.n, s.h * s.d_k)
    heads = split_heads(x, s.h)
    assert heads.shape == (*batch, s.h, s.n, s.d_k)
    for i in range(s.h):
        np.testing.assert_array_equal(heads[..., i, :, :], x[..., i * s.d_k : (i + 1) * s.d_k])


@quickly
@given(rng=seeds(), s=sizes(), batch=batches())
def test_merging_undoes_splitting(rng, s, batch):
    x = some(rng, *batch, s.n, s.h * s.d_k)
    np.testing.assert_array_equal(merge_heads(split_heads(x, s.h)), x)
    heads = some(rng, *batch, s.h, s.n, s.d_k)
    np.testing.assert_array_equal(split_heads(merge_heads(heads), s.h), heads)


def test_splitting_copies_nothing():
    for x in (np.zeros((2, 5, 12)), np.zeros((2, 5, 24))[..., ::2], np.zeros((12, 5)).T):
        assert np.shares_memory(split_heads(x, 4), x)


@quickly
@given(rng=seeds(), s=sizes(), batch=st.sampled_from([(1,), (3,)]), hide=st.booleans())
def test_agrees_with_pytorchs_module(torch, rng, s, batch, hide):
    d = s.h * s.d_k
    x, W = some(rng, *batch, s.n, d), projections(rng, d)
    mask = causal_mask(s.n) if hide else None
    output, weights = multi_head_attention(x, **W, num_heads=s.h, mask=mask)

    theirs = torch.nn.MultiheadAttention(d, s.h, bias=False, batch_first=True, dtype=torch.float64)
    stacked = np.concatenate([W["W_q"].T, W["W_k"].T, W["W_v"].T])  # their matrices are transposed
    theirs.load_state_dict(
        {"in_proj_weight": torch.tensor(stacked), "out_proj.weight": torch.tensor(W["W_o"].T)}
    )
    X = torch.tensor(x)
    hidden = None if mask is None else torch.tensor(~mask)  # and their True hides
    with torch.no_grad():
        want, want_weights = theirs(X, X, X, attn_mask=hidden, average_attn_weights=False)
    np.testing.assert_allclose(output, want, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(weights, want_weights, rtol=1e-8, atol=1e-10)


@quickly
@given(rng=seeds(), s=sizes())
def test_one_big_product_equals_a_loop_over_heads(rng, s):
    d = s.h * s.d_k
    x, W = some(rng, s.n, d), projections(rng, d)
    output, _ = multi_head_attention(x, **W, num_heads=s.h)
    total = 0
    for i in range(s.h):
        own = slice(i * s.d_k, (i + 1) * s.d_k)
        Q, K, V = (x @ W[name][:, own] for name in ("W_q", "W_k", "W_v"))
        total = total + attention(Q, K, V)[0] @ W["W_o"][own]
    np.testing.assert_allclose(output, total, rtol=1e-9, atol=1e-11)


@quickly
@given(rng=seeds(), s=sizes(), batch=batches())
def test_a_mask_without_a_head_axis_holds_for_every_head(rng, s, batch):
    arguments = draw(rng, s, batch)
    full = (*batch, s.h, s.n, s.n)
    for shape in [(s.n, s.n), (1, s.n), (s.n, 1), (*batch, s.n, s.n), (*batch, 1, s.n)]:
        mask = visible(rng, *shape)
        every_head = np.broadcast_to(mask, (*batch, s.n, s.n))[..., None, :, :]
        got = multi_head_attention(**arguments, mask=mask)
        want = multi_head_attention(**arguments, mask=np.broadcast_to(every_head, full))
        np.testing.assert_array_equal(got[1], want[1])
        np.testing.assert_array_equal(got[0], want[0])


@quickly
@given(rng=seeds(), s=sizes(), batch=batches())
def test_a_mask_with_one_axis_more_than_x_has_a_head_axis(rng, s, batch):
    arguments = draw(rng, s, batch)
    ones = (1,) * len(batch)
    for shape in [(*batch, s.h, s.n, s.n), (*ones, s.h, 1, s.n), (*ones, 1, s.n, s.n)]:
        mask = visible(rng, *shape)
        _, weights = multi_head_attention(**arguments, mask=mask)
        hidden = ~np.broadcast_to(mask, weights.shape)
        assert not weights[hidden].any()
        assert (weights[~hidden] > 0).all()


def test_a_batch_of_masks_is_not_mistaken_for_heads():
    rng, h = np.random.default_rng(0), 3  # as many items as heads as positions
    x, W = some(rng, h, h, 2 * h), projections(rng, 2 * h)
    mask = padding_mask([1, 2, 3], h)
    _, weights = multi_head_attention(x, **W, num_heads=h, mask=mask)
    for item in range(h):
        assert not weights[item, :, :, item + 1 :].any()
        assert (weights[item, :, :, : item + 1] > 0).all()


@pytest.mark.parametrize("shape", [(5,), (1, 1, 1, 5, 5), (2, 5, 5), (3, 5, 5), (2, 4, 5, 5)])
def test_a_mask_that_does_not_fit_is_an_error(shape):
    x, W = np.ones((4, 5, 6)), np.eye(6)
    with pytest.raises(ValueError, match="mask"):
        multi_head_attention(x, W, W, W, W, 3, np.ones(shape, bool))


@pytest.mark.parametrize("num_heads", [4, 5, 7, 12, 0, -1])
def test_heads_that_do_not_divide_the_width_are_an_error(num_heads):
    x, W = np.ones((5, 6)), np.eye(6)
    for call in (
        lambda: split_heads(x, num_heads),
        lambda: multi_head_attention(x, W, W, W, W, num_heads),
        lambda: MultiHeadAttention(6, num_heads, np.random.default_rng(0)),
    ):
        with pytest.raises(ValueError, match="divide"):
            call()


def test_too_few_axes_are_an_error():
    for call in (
        lambda: split_heads(np.ones(6), 3),
        lambda: merge_heads(np.ones((5, 6))),
        lambda: multi_head_attention(np.ones(6), *[np.eye(6)] * 4, 3),
    ):
        with pytest.raises(ValueError, match="axes"):
            call()


def test_the_layer_draws_four_independent_matrices():
    layer = MultiHeadAttention(60, 3, np.random.default_rng(0))
    matrices = [layer.W_q, layer.W_k, layer.W_v, layer.W_o]
    assert [W.shape for W in matrices] == [(60, 60)] * 4
    correlations = np.corrcoef([W.ravel() for W in matrices])
    assert np.abs(correlations - np.eye(4)).max() < 0.1
    for W in matrices:
        assert abs(W.std() * np.sqrt(60) - 1) < 0.06  # sqrt(2 / (60 + 60))
    assert (layer.d_model, layer.num_heads) == (60, 3)


def test_layers_with_equal_seeds_are_equal_and_share_nothing():
    first, second = (MultiHeadAttention(6, 2, np.random.default_rng(4)) for _ in range(2))
    np.testing.assert_array_equal(first.W_o, second.W_o)
    first.W_o[:] = 0
    assert second.W_o.any()


def test_the_layer_uses_its_attributes_as_they_are():
    rng = np.random.default_rng(0)
    layer, x = MultiHeadAttention(6, 2, rng), some(rng, 4, 5, 6)
    W = projections(rng, 6)
    for name, matrix in W.items():
        setattr(layer, name, matrix)
    layer.num_heads = 3
    mask = causal_mask(5)
    for got, want in zip(
        layer(x, mask), multi_head_attention(x, **W, num_heads=3, mask=mask), strict=True
    ):
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(layer(x)[0], multi_head_attention(x, **W, num_heads=3)[0])


def draw(rng, s, batch):
    case = CASES["multi_head_attention"]
    arguments = stack(case, draw_items(case, rng, s, int(np.prod(batch))), batch)
    del arguments["mask"]
    return arguments
