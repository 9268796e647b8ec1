"""Chapter 7: sinusoids, relative bias, ALiBi and rotations."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.positions import (
    alibi_bias,
    alibi_slopes,
    apply_rope,
    biased_attention,
    relative_position_bias,
    sinusoidal_encoding,
)
from manyheads.scaled_dot_product import attention

from .cases import FIXED, qkv, seeds, sizes, some, visible

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)
bases = st.sampled_from([10000.0, 500.0, 10000])


@quickly
@given(n=st.integers(1, 9), half=st.integers(1, 6), base=bases)
def test_the_sinusoids_agree_with_loops(n, half, base):
    table, d = sinusoidal_encoding(n, 2 * half, base), 2 * half
    assert table.shape == (n, d)
    for p in range(n):
        for i in range(half):
            angle = p / base ** (2 * i / d)
            np.testing.assert_allclose(table[p, 2 * i], np.sin(angle), atol=1e-12)
            np.testing.assert_allclose(table[p, 2 * i + 1], np.cos(angle), atol=1e-12)


def test_position_zero_is_zeros_and_ones():
    assert sinusoidal_encoding(3, 6)[0].tolist() == [0, 1, 0, 1, 0, 1]


def test_products_of_sinusoids_depend_on_the_distance_only():
    table = sinusoidal_encoding(40, 12)
    products = table @ table.T
    for offset in (0, 1, 7):
        np.testing.assert_allclose(np.diag(products, offset), products[0, offset], rtol=1e-12)


@quickly
@given(rng=seeds(), s=sizes(), k=st.integers(0, 4))
def test_the_relative_bias_agrees_with_loops(rng, s, k):
    table = some(rng, s.h, 2 * k + 1)
    bias = relative_position_bias(table, s.n, s.m)
    assert bias.shape == (s.h, s.n, s.m)
    for h, i, j in np.ndindex(bias.shape):
        assert bias[h, i, j] == table[h, max(-k, min(k, j - i)) + k]


@pytest.mark.parametrize("shape", [(3, 4), (3, 0), (5,), (1, 3, 5)])
def test_a_table_has_an_odd_number_of_columns(shape):
    with pytest.raises(ValueError, match="table"):
        relative_position_bias(np.ones(shape), 3, 4)


@quickly
@given(rng=seeds(), s=sizes())
def test_a_bias_of_zero_is_plain_attention_and_a_row_constant_too(rng, s):
    arrays, mask = qkv(rng, s, s.h), visible(rng, s.h, s.n, s.m)
    plain = attention(**arrays, mask=mask)
    for bias in (np.zeros((1, 1)), 50 * some(rng, s.n, 1), np.float64(3)):
        for have, want in zip(biased_attention(**arrays, bias=bias, mask=mask), plain, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)


def test_biased_attention_agrees_with_jax():
    rng, s = np.random.default_rng(0), FIXED
    arrays = qkv(rng, s, s.spare, s.h) | {"V": some(rng, s.spare, s.h, s.m, s.d_k)}
    bias, mask = some(rng, s.h, s.n, s.m), visible(rng, s.h, s.n, s.m)
    mask[..., 0] = True
    output, _ = biased_attention(**arrays, bias=bias, mask=mask)
    Q, K, V = (a.swapaxes(1, 2) for a in arrays.values())
    theirs = jax.nn.dot_product_attention(Q, K, V, bias=bias[None], mask=mask[None])
    np.testing.assert_allclose(output, np.asarray(theirs).swapaxes(1, 2), rtol=1e-6, atol=1e-7)


def test_the_mask_of_biased_attention_is_broadcast_as_it_is():
    arrays = qkv(np.random.default_rng(0), FIXED, 5)  # a head axis of size 5 = n
    mask = np.tri(5, 4, dtype=bool)[:, None, :]  # (5, 1, 4): one row for every query, per head
    _, weights = biased_attention(**arrays, bias=np.zeros((1, 1, 1)), mask=mask)
    assert not weights[~np.broadcast_to(mask, weights.shape)].any()


@pytest.mark.parametrize("shape", [(3, 5, 4), (2, 4), (1, 5, 4), (4, 5)])
def test_a_bias_that_would_enlarge_the_scores_is_an_error(shape):
    Q, K = np.ones((5, 2)), np.ones((4, 2))
    with pytest.raises(ValueError, match="bias"):
        biased_attention(Q, K, K, np.ones(shape))


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (4, [2, 4, 6, 8]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (16, [0.5 * i for i in range(1, 17)]),
    ],
)
def test_the_published_slopes(num_heads, exponents):
    np.testing.assert_allclose(alibi_slopes(num_heads), 2.0 ** -np.array(exponents), rtol=1e-15)
    np.testing.assert_array_equal(alibi_slopes(np.int64(num_heads)), alibi_slopes(num_heads))


@quickly
@given(h=st.integers(1, 40))
def test_slopes_fall_within_each_part_and_stay_below_one(h):
    slopes, power = alibi_slopes(h), 1 << (h.bit_length() - 1)
    assert slopes.shape == (h,)
    assert ((slopes > 0) & (slopes < 1)).all()
    assert (np.diff(slopes[:power]) < 0).all()
    assert len(set(slopes.tolist())) == h


@pytest.mark.parametrize("num_heads", [0, -1])
def test_slopes_need_a_head(num_heads):
    with pytest.raises(ValueError, match="head"):
        alibi_slopes(num_heads)


@quickly
@given(h=st.integers(1, 6), n=st.integers(1, 6), m=st.integers(1, 6))
def test_the_alibi_bias_is_aligned_at_the_end(h, n, m):
    bias, slopes = alibi_bias(h, n, m), alibi_slopes(h)
    for head, i, j in np.ndindex(h, n, m):
        np.testing.assert_allclose(bias[head, i, j], -slopes[head] * abs(i + (m - n) - j))
    assert (bias[:, -1, -1] == 0).all()


@quickly
@given(rng=seeds(), s=sizes(), base=bases)
def test_a_rotation_is_a_complex_product(rng, s, base):
    x, positions = some(rng, s.h, s.n, 2 * s.d_k), rng.integers(0, 5000, s.n)
    theta = positions[:, None] * base ** (-2 * np.arange(s.d_k) / (2 * s.d_k))
    turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * theta)
    got = apply_rope(x, positions, base)
    np.testing.assert_allclose(got[..., 0::2], turned.real, atol=1e-9)
    np.testing.assert_allclose(got[..., 1::2], turned.imag, atol=1e-9)


@quickly
@given(rng=seeds(), s=sizes(), shift=st.integers(-500, 500))
def test_rotated_products_depend_on_the_distance_only(rng, s, shift):
    q, k = some(rng, s.n, 2 * s.d_k), some(rng, s.m, 2 * s.d_k)
    i, j = rng.integers(0, 900, s.n), rng.integers(0, 900, s.m)
    here = apply_rope(q, i) @ apply_rope(k, j).T
    there = apply_rope(q, i + shift) @ apply_rope(k, j + shift).T
    np.testing.assert_allclose(there, here, rtol=1e-8, atol=1e-9)


@quickly
@given(rng=seeds(), s=sizes())
def test_rotations_keep_lengths_and_position_zero(rng, s):
    x = some(rng, s.n, 2 * s.d_k)
    np.testing.assert_array_equal(apply_rope(x, np.zeros(s.n, int)), x)
    turned = apply_rope(x, rng.integers(0, 900, s.n))
    np.testing.assert_allclose((turned**2).sum(-1), (x**2).sum(-1), rtol=1e-10)


def test_in_float32_large_positions_are_still_exact():
    x, positions = some(np.random.default_rng(0), 3, 8), np.array([997, 998, 999])
    single = apply_rope(x.astype(np.float32), positions)
    np.testing.assert_allclose(single, apply_rope(x, positions), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "positions"), [((4, 5), 4), ((4, 6), 3), ((4, 6), 1), ((2, 4, 6), 2), ((6,), 6)]
)
def test_odd_widths_and_other_numbers_of_positions_are_errors(shape, positions):
    with pytest.raises(ValueError):
        apply_rope(np.ones(shape), np.arange(positions))


@pytest.mark.parametrize("positions", [3, [[0, 1]], [[0], [1]]])
def test_positions_have_one_axis(positions):
    with pytest.raises(ValueError, match="positions"):
        apply_rope(np.ones((2, 6)), positions)


def test_an_odd_width_has_no_sinusoids():
    with pytest.raises(ValueError, match="odd"):
        sinusoidal_encoding(3, 5)
