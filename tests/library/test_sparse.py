"""Chapter 8: windows, blocks, buckets and routed heads, each against a dense mask."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads import sparse
from manyheads.multi_head import multi_head_attention
from manyheads.scaled_dot_product import attention
from manyheads.sparse import (
    block_sparse_attention,
    global_window_mask,
    hash_attention,
    hash_buckets,
    local_attention,
    route_heads,
    routed_multi_head_attention,
    window_mask,
)

from . import loops
from .cases import CASES, FIXED, draw_items, projections, seeds, sizes, some
from .limits import lowered

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


@quickly
@given(n=st.integers(1, 9), window=st.integers(0, 12), causal=st.booleans())
def test_the_window_mask_agrees_with_loops(n, window, causal):
    mask = window_mask(n, window, causal)
    assert mask.dtype == bool
    assert mask.tolist() == loops.window_mask(n, window, causal)


@quickly
@given(n=st.integers(1, 9), window=st.integers(0, 4), data=st.data())
def test_global_positions_see_all_and_are_seen_by_all(n, window, data):
    chosen = data.draw(st.lists(st.integers(0, n - 1)))
    for given_as in (chosen, np.array(chosen, dtype=np.int32)):
        mask = global_window_mask(n, window, given_as)
        for i, j in np.ndindex(n, n):
            assert mask[i, j] == (abs(i - j) <= window or i in chosen or j in chosen)


@pytest.mark.parametrize("positions", [[5], [-1], [0, 9], [0.0, 1.0], [True, False]])
def test_global_positions_that_do_not_exist_are_an_error(positions):
    with pytest.raises(ValueError, match="global positions"):
        global_window_mask(5, 1, positions)


@quickly
@given(
    rng=seeds(),
    n=st.integers(1, 40),
    window=st.integers(0, 45),
    causal=st.booleans(),
    block=st.integers(1, 9),
)
def test_local_attention_is_dense_attention_under_the_window(rng, n, window, causal, block):
    Q, K, V = some(rng, 2, n, 3), some(rng, 2, n, 3), some(rng, 2, n, 4)
    dense, _ = attention(Q, K, V, window_mask(n, window, causal))
    with lowered(sparse, BLOCK=block):
        got = local_attention(Q, K, V, window, causal)
    np.testing.assert_allclose(got, dense, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
def test_local_attention_agrees_with_jax(causal):
    rng = np.random.default_rng(0)
    Q, K, V = (some(rng, 3, 70, 6) for _ in range(3))
    theirs = jax.nn.dot_product_attention(
        *(a.swapaxes(0, 1) for a in (Q, K, V)), local_window_size=5, is_causal=causal
    )
    got = local_attention(Q, K, V, 5, causal)
    np.testing.assert_allclose(got, np.asarray(theirs).swapaxes(0, 1), rtol=1e-6, atol=1e-7)


def test_a_window_wider_than_the_text_sees_all():
    Q, K, V = some(np.random.default_rng(0), 3, 7, 4)
    np.testing.assert_allclose(local_attention(Q, K, V, 10**9), attention(Q, K, V)[0], rtol=1e-12)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("window", [0, 3, 70])
def test_local_attention_at_the_borders_of_its_blocks(n, window):
    Q, K, V = some(np.random.default_rng(n), 3, n, 2)
    dense, _ = attention(Q, K, V, window_mask(n, window))
    np.testing.assert_allclose(local_attention(Q, K, V, window), dense, rtol=1e-10, atol=1e-13)


def test_a_negative_window_is_an_error():
    Q = np.ones((4, 2))
    for call in (
        lambda: window_mask(4, -1),
        lambda: global_window_mask(4, -1, []),
        lambda: local_attention(Q, Q, Q, -1),
    ):
        with pytest.raises(ValueError, match="window"):
            call()


@quickly
@given(rng=seeds(), n=st.integers(1, 20), m=st.integers(1, 20), size=st.integers(1, 22))
def test_block_sparse_attention_is_dense_attention_under_its_layout(rng, n, m, size):
    Q, K, V = some(rng, 3, n, 2), some(rng, 3, m, 2), some(rng, 3, m, 4)
    layout = rng.random((-(-n // size), -(-m // size))) < 0.5
    mask = layout[np.arange(n) // size][:, np.arange(m) // size]
    got = block_sparse_attention(Q, K, V, layout, size)
    np.testing.assert_allclose(got, attention(Q, K, V, mask)[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layout", [(2, 3), (3, 2), (1, 1), (6,), (1, 3, 3), (4, 3)])
def test_a_layout_of_another_shape_is_an_error(layout):
    Q, K = np.ones((5, 2)), np.ones((6, 2))  # in blocks of 2: 3 by 3
    with pytest.raises(ValueError, match=r"layout .*\(3, 3\)"):
        block_sparse_attention(Q, K, K, np.ones(layout, bool), 2)


def test_a_block_holds_something():
    Q = np.ones((5, 2))
    with pytest.raises(ValueError, match="block size"):
        block_sparse_attention(Q, Q, Q, np.ones((5, 5), bool), 0)


@quickly
@given(rng=seeds(), s=sizes())
def test_opposite_vectors_land_in_opposite_buckets(rng, s):
    x, rotations = some(rng, 2, s.n, s.d_k), some(rng, s.d_k, s.h)
    buckets = hash_buckets(x, rotations)
    assert ((buckets >= 0) & (buckets < 2 * s.h)).all()
    np.testing.assert_array_equal(hash_buckets(3 * x, rotations), buckets)
    np.testing.assert_array_equal(hash_buckets(-x, rotations), (buckets + s.h) % (2 * s.h))


@quickly
@given(rng=seeds(), n=st.integers(1, 40), m=st.integers(1, 40), block=st.integers(1, 9))
def test_hash_attention_is_dense_attention_inside_the_buckets(rng, n, m, block):
    Q, K, V = some(rng, 2, 2, n, 3), some(rng, 2, 2, m, 3), some(rng, 2, 2, m, 5)
    names = rng.integers(-(2**40), 2**40, size=5)  # any integers, with gaps
    q_buckets, k_buckets = (
        names[rng.integers(0, 5, (2, 2, n))],
        names[rng.integers(1, 5, (2, 2, m))],
    )
    mask = q_buckets[..., :, None] == k_buckets[..., None, :]
    with lowered(sparse, BLOCK=block):
        got = hash_attention(Q, K, V, q_buckets, k_buckets)
    np.testing.assert_allclose(got, attention(Q, K, V, mask)[0], rtol=1e-9, atol=1e-12)


def test_a_query_alone_in_its_bucket_gets_zeros():
    Q = np.ones((2, 3))
    got = hash_attention(Q, Q, Q, np.array([7, 8]), np.array([7, 9]))
    assert got.tolist() == [[1, 1, 1], [0, 0, 0]]


def test_buckets_are_integers():
    Q = np.ones((2, 3))
    with pytest.raises(ValueError, match="buckets"):
        hash_attention(Q, Q, Q, np.array([0.0, 1.0]), np.array([0, 1]))


@quickly
@given(rng=seeds(), s=sizes())
def test_gates_are_a_softmax_over_the_largest_logits(rng, s):
    x, W_r = some(rng, 2, s.n, s.d_k), some(rng, s.d_k, s.h)
    for top_k in range(1, s.h + 1):
        gates = route_heads(x, W_r, top_k)
        assert ((gates > 0).sum(axis=-1) == top_k).all()
        np.testing.assert_allclose(gates.sum(axis=-1), 1, rtol=1e-12)
        kept = np.where(gates > 0, x @ W_r, np.inf).min(axis=-1)
        left_out = np.where(gates > 0, -np.inf, x @ W_r).max(axis=-1)
        assert (kept >= left_out).all()


@quickly
@given(rng=seeds(), s=sizes())
def test_equal_gates_for_all_heads_scale_the_whole_output(rng, s):
    d = s.h * s.d_k
    x, W = some(rng, s.n, d), projections(rng, d)
    got = routed_multi_head_attention(x, **W, W_r=np.zeros((d, s.h)), num_heads=s.h, top_k=s.h)
    plain, _ = multi_head_attention(x, **W, num_heads=s.h)
    np.testing.assert_allclose(got, plain / s.h, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("top_k", [0, 4, -1])
def test_top_k_counts_heads(top_k):
    with pytest.raises(ValueError, match="top_k"):
        route_heads(np.ones((2, 6)), np.ones((6, 3)), top_k)
    with pytest.raises(ValueError, match="top_k"):
        routed_multi_head_attention(
            np.ones((2, 6)), *[np.eye(6)] * 4, np.ones((6, 3)), num_heads=3, top_k=top_k
        )


@pytest.mark.parametrize("name", ["local_attention", "block_sparse_attention", "hash_attention"])
def test_huge_scores_are_right_here_too(name):
    case = CASES[name]
    rng = np.random.default_rng(1)
    [small] = draw_items(case, rng, FIXED, 1)
    huge = small | {"Q": small["Q"] * 1e4, "K": small["K"] * 1e2}
    got = case.function(**huge)
    np.testing.assert_allclose(got, np.array(case.loop(**huge)), rtol=1e-9)
