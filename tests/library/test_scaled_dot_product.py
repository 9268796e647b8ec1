"""Chapter 2: scores, masks and attention."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.scaled_dot_product import (
    attention,
    attention_scores,
    causal_mask,
    masked_softmax,
    padding_mask,
)

from . import loops
from .cases import FIXED, qkv, seeds, sizes, some, visible

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)
MASKS = ["none", "full", "one row", "one column", "causal", "shared"]


def draw_mask(kind, rng, batch, n, m):
    """A mask in which every query sees something, so that other libraries have an answer too."""
    if kind == "none":
        return None
    if kind == "causal":
        return causal_mask(n, m) | (np.arange(m) == 0)
    shape = {"one row": (*batch, 1, m), "one column": (n, 1), "shared": (n, m)}
    mask = visible(rng, *shape.get(kind, (*batch, n, m)))
    mask[..., 0] = True
    return mask


@quickly
@given(rng=seeds(), s=sizes(), kind=st.sampled_from(MASKS))
def test_attention_agrees_with_pytorch(torch, rng, s, kind):
    arrays, mask = qkv(rng, s, s.h, s.spare), draw_mask(kind, rng, (s.h, s.spare), s.n, s.m)
    output, weights = attention(**arrays, mask=mask)
    full = np.broadcast_to(True if mask is None else mask, weights.shape)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, arrays.values()), attn_mask=torch.tensor(full.copy())
    )
    np.testing.assert_allclose(output, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kind", MASKS)
def test_attention_agrees_with_jax(kind):
    rng, s = np.random.default_rng(0), FIXED
    arrays = qkv(rng, s, s.spare, s.h) | {"V": some(rng, s.spare, s.h, s.m, s.d_k)}
    mask = draw_mask(kind, rng, (s.spare, s.h), s.n, s.m)
    output, weights = attention(**arrays, mask=mask)
    full = np.broadcast_to(True if mask is None else mask, weights.shape)
    Q, K, V = (a.swapaxes(1, 2) for a in arrays.values())  # JAX has the heads behind the positions
    theirs = np.asarray(jax.nn.dot_product_attention(Q, K, V, mask=full)).swapaxes(1, 2)
    np.testing.assert_allclose(output, theirs, rtol=1e-6, atol=1e-7)  # their softmax is float32
    scores = attention_scores(arrays["Q"], arrays["K"])
    np.testing.assert_allclose(weights, jax.nn.softmax(scores, where=full), rtol=1e-10)


@quickly
@given(n=st.integers(1, 8), m=st.integers(1, 8))
def test_the_causal_mask_agrees_with_loops(n, m):
    mask = causal_mask(n, m)
    assert mask.dtype == bool
    assert mask.tolist() == loops.causal_mask(n, m)
    assert causal_mask(n).tolist() == loops.causal_mask(n, n)


def test_the_last_query_sees_the_last_key():
    assert causal_mask(3, 2).tolist() == [[False, False], [True, False], [True, True]]
    assert causal_mask(1, 4).all()


def test_the_padding_mask_counts_the_real_keys():
    mask = padding_mask([0, 2, 3], 3)
    assert mask.shape == (3, 1, 3)
    assert mask.dtype == bool
    assert mask[:, 0].tolist() == [[False] * 3, [True, True, False], [True] * 3]
    assert padding_mask(np.array([1], np.uint8), 2).tolist() == [[[True, False]]]


@pytest.mark.parametrize("lengths", [[[1, 2]], 2, [-1, 2], [1, 4], [1.0, 2.0], [True]])
def test_lengths_that_make_no_sense_are_errors(lengths):
    with pytest.raises(ValueError, match="lengths"):
        padding_mask(lengths, 3)


@quickly
@given(rng=seeds(), s=sizes())
def test_rows_sum_to_one_or_see_nothing(rng, s):
    mask = visible(rng, s.h, s.n, s.m)
    output, weights = attention(**qkv(rng, s, s.h), mask=mask)
    sees = mask.any(axis=-1)
    np.testing.assert_allclose(weights.sum(axis=-1), sees, atol=1e-12)
    assert not weights[~mask].any()
    assert not output[~sees].any()


@quickly
@given(rng=seeds(), s=sizes())
def test_values_of_one_give_one(rng, s):
    arrays = qkv(rng, s) | {"V": np.ones((s.m, s.d_v))}
    np.testing.assert_allclose(attention(**arrays)[0], 1, rtol=1e-12)


@quickly
@given(rng=seeds(), s=sizes())
def test_permuting_keys_with_values_changes_nothing(rng, s):
    arrays, order = qkv(rng, s), rng.permutation(s.m)
    moved = {"Q": arrays["Q"], "K": arrays["K"][order], "V": arrays["V"][order]}
    output, weights = attention(**arrays)
    np.testing.assert_allclose(attention(**moved)[0], output, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(attention(**moved)[1], weights[:, order], rtol=1e-9)


@quickly
@given(rng=seeds(), s=sizes())
def test_a_hidden_key_changes_nothing(rng, s):
    arrays = qkv(rng, s, 3)
    mask = padding_mask(rng.integers(0, s.m + 1, 3), s.m)
    hidden = ~mask[:, 0, :, None]  # (3, m, 1)
    other = arrays | {
        name: np.where(hidden, 100 * some(rng, *arrays[name].shape), arrays[name])
        for name in ("K", "V")
    }
    for got, expected in zip(
        attention(**other, mask=mask), attention(**arrays, mask=mask), strict=True
    ):
        np.testing.assert_array_equal(got, expected)


@quickly
@given(rng=seeds(), s=sizes())
def test_a_later_token_changes_no_earlier_output(rng, s):
    arrays = qkv(rng, s) | {"Q": some(rng, s.m, s.d_k)}
    j = int(rng.integers(s.m))
    later = {name: array.copy() for name, array in arrays.items()}
    later["K"][j] += 5
    later["V"][j] -= 5
    before, after = (attention(**a, mask=causal_mask(s.m))[0] for a in (arrays, later))
    np.testing.assert_array_equal(after[:j], before[:j])
    assert not np.allclose(after[j], before[j])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("gap", [80, 300, 5000])
def test_hidden_keys_far_above_the_visible_ones_get_no_weight(dtype, gap):
    scores = np.array([[0.0, 1.0, gap], [-1900.0, -1901.0, -1900.0 + gap]], dtype)
    weights = masked_softmax(scores, np.array([[True, True, False]]))
    e = np.e
    expected = [[1 / (1 + e), e / (1 + e), 0], [e / (1 + e), 1 / (1 + e), 0]]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1e3, 1e6])
def test_huge_scores_are_right(dtype, size):
    Q = np.array([[1.0], [-1.0], [0.0]], dtype)
    K = np.array([[size], [size - 1], [-size]], dtype)
    output, weights = attention(Q, K, np.eye(3, dtype=dtype))
    e = np.e
    expected = [[e / (1 + e), 1 / (1 + e), 0], [0, 0, 1], [1 / 3] * 3]
    np.testing.assert_allclose(weights, expected, rtol=1e-5)
    np.testing.assert_allclose(output, expected, rtol=1e-5)


def test_rows_thousands_apart_do_not_disturb_each_other():
    K = np.array([[1.0], [1.001], [0.999]])
    together = attention(np.array([[5000.0], [1.0], [-3000.0]]), K, K)[1]
    alone = [attention(np.array([[q]]), K, K)[1][0] for q in (5000.0, 1.0, -3000.0)]
    np.testing.assert_allclose(together, alone, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_query_that_sees_nothing_gets_zeros(dtype):
    ones = np.ones((2, 3, 4), dtype)
    mask = np.array([[True, False, True], [False] * 3, [False, False, True]])
    output, weights = attention(ones, ones, ones, mask)
    assert weights[:, 1].tolist() == [[0, 0, 0]] * 2
    assert output[:, 1].tolist() == [[0] * 4] * 2
    output, weights = attention(ones, ones, ones, np.zeros((1, 1), bool))
    assert not weights.any()
    assert not output.any()


@pytest.mark.parametrize("shape", [(3,), (1, 1, 2, 3), (2, 2), (4, 2, 3), (3, 2)])
def test_a_mask_of_another_shape_is_an_error(shape):
    Q, K = np.ones((2, 5)), np.ones((3, 5))
    with pytest.raises(ValueError, match=r"mask .*scores \(2, 3\)"):
        attention(Q, K, K, np.ones(shape, bool))


def test_errors_name_the_shapes():
    with pytest.raises(ValueError, match=r"Q \(2, 5\), K \(3, 4\)"):
        attention_scores(np.ones((2, 5)), np.ones((3, 4)))
    with pytest.raises(ValueError, match=r"K \(3, 5\), V \(1, 5\)"):
        attention(np.ones((2, 5)), np.ones((3, 5)), np.ones((1, 5)))
    with pytest.raises(ValueError, match=r"Q \(5,\)"):
        attention_scores(np.ones(5), np.ones((3, 5)))


def test_a_masked_softmax_of_integer_lists():
    assert masked_softmax([[3, 3, 9]], [[True, True, False]]).tolist() == [[0.5, 0.5, 0]]


def test_scores_of_width_64_stay_float32():
    Q = np.ones((2, 64), np.float32)
    assert attention_scores(Q, Q).dtype == np.float32
