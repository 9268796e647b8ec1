"""Chapter 9: tiles, states, linear attention, shared keys and the cache."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads import efficient
from manyheads.efficient import (
    KVCache,
    grouped_query_attention,
    linear_attention,
    merge_partial,
    partial_softmax,
    shifted_attention,
    tiled_attention,
)
from manyheads.scaled_dot_product import attention, causal_mask

from .cases import FIXED, qkv, seeds, sizes, some, visible
from .limits import lowered

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


@quickly
@given(rng=seeds(), n=st.integers(1, 12), m=st.integers(1, 12), rows=st.integers(1, 13))
def test_every_tile_gives_dense_attention(rng, n, m, rows):
    Q, K, V = some(rng, 2, n, 3), some(rng, 2, m, 3), some(rng, 2, m, 4)
    for causal, mask in ((False, None), (True, causal_mask(n, m))):
        dense, _ = attention(Q, K, V, mask)
        for tile in (*range(1, m + 2), 1000):
            with lowered(efficient, ROWS=rows):
                got = tiled_attention(Q, K, V, tile, causal)
            np.testing.assert_allclose(got, dense, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("n", "m"), [(255, 256), (256, 256), (257, 256), (600, 300), (300, 600)])
def test_tiles_at_the_borders_of_the_row_blocks(n, m):
    rng = np.random.default_rng(0)
    Q, K, V = some(rng, n, 2), some(rng, m, 2), some(rng, m, 3)
    dense, _ = attention(Q, K, V, causal_mask(n, m))
    for tile in (7, 64, 300):
        np.testing.assert_allclose(
            tiled_attention(Q, K, V, tile, causal=True), dense, rtol=1e-9, atol=1e-12
        )


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tiles_with_ever_larger_or_smaller_scores(order, dtype):
    K = np.arange(12, dtype=dtype)[::order, None] * 1000
    Q, V = np.array([[1.0], [-1.0], [0.001]], dtype), np.eye(12, dtype=dtype)
    for tile in (1, 2, 5):
        got = tiled_attention(Q, K, V, tile)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, attention(Q, K, V)[0], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("tile", [0, -1])
def test_a_tile_holds_a_key(tile):
    Q = np.ones((4, 2))
    with pytest.raises(ValueError, match="tile"):
        tiled_attention(Q, Q, Q, tile)


@quickly
@given(rng=seeds(), s=sizes(2))
def test_states_of_two_halves_merge_to_the_whole(rng, s):
    Q, K, V = qkv(rng, s, s.h).values()
    mask, cut = visible(rng, s.h, s.n, s.m), int(rng.integers(1, s.m))
    halves = [
        partial_softmax(Q, K[:, part], V[:, part], mask[..., part])
        for part in (slice(cut), slice(cut, None))
    ]
    whole = partial_softmax(Q, K, V, mask)
    for first, second in (halves, halves[::-1]):
        for have, want in zip(merge_partial(*first, *second), whole, strict=True):
            np.testing.assert_allclose(have, want, rtol=1e-9, atol=1e-12)


@quickly
@given(rng=seeds(), s=sizes())
def test_the_empty_state_changes_nothing(rng, s):
    state = partial_softmax(**qkv(rng, s))
    empty = (np.full(s.n, -np.inf), np.zeros(s.n), np.zeros((s.n, s.d_v)))
    for merged in (merge_partial(*state, *empty), merge_partial(*empty, *state)):
        for have, want in zip(merged, state, strict=True):
            np.testing.assert_array_equal(have, want)
    for have, want in zip(merge_partial(*empty, *empty), empty, strict=True):
        np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize("gap", [1e3, 1e6])
def test_a_state_far_below_another_vanishes(gap):
    low = (np.array([-gap]), np.array([2.0]), np.array([[4.0]]))
    high = (np.array([gap]), np.array([1.5]), np.array([[3.0]]))
    for merged in (merge_partial(*low, *high), merge_partial(*high, *low)):
        assert [part.tolist() for part in merged] == [[gap], [1.5], [[3.0]]]


@quickly
@given(rng=seeds(), n=st.integers(1, 30), m=st.integers(1, 30), large=st.booleans())
def test_shifted_attention_is_dense_attention(rng, n, m, large):
    size = 1e3 if large else 1  # large: nearly every row falls below its bound
    Q, K, V = some(rng, 2, n, 3) * size, some(rng, 2, m, 3), some(rng, 2, m, 4)
    with lowered(efficient, SHIFTED_ROWS=7, SHIFTED_TILE=5):
        got = shifted_attention(Q, K, V)
    np.testing.assert_allclose(got, attention(Q, K, V)[0], rtol=1e-9, atol=1e-11)


def test_shifted_attention_in_float32_where_some_rows_lie_far_below_their_bound():
    rng = np.random.default_rng(0)
    Q = (some(rng, 900, 16) * rng.choice([0.1, 1, 8, 100], (900, 1))).astype(np.float32)
    K, V = some(rng, 1000, 16).astype(np.float32), some(rng, 1000, 5).astype(np.float32)
    exact, _ = attention(*(a.astype(float) for a in (Q, K, V)))
    np.testing.assert_allclose(shifted_attention(Q, K, V), exact, rtol=2e-4, atol=2e-4)


def test_shifted_attention_knows_that_its_scores_are_float32_where_the_values_are_not():
    rng = np.random.default_rng(0)
    Q, K = (some(rng, rows, 4).astype(np.float32) for rows in (50, 60))
    V, Q = some(rng, 60, 3), Q * np.linspace(1, 60, 50, dtype=np.float32)[:, None]
    exact, _ = attention(Q.astype(float), K.astype(float), V)
    np.testing.assert_allclose(shifted_attention(Q, K, V), exact, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("chunk", [1, 3, 128])
def test_linear_attention_in_chunks_of_any_size(causal, chunk):
    rng = np.random.default_rng(0)
    Q, K, V = 3 * some(rng, 2, 10, 3), 3 * some(rng, 2, 10, 3), some(rng, 2, 10, 4)
    phi = lambda x: np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))  # noqa: E731
    weights = phi(Q) @ phi(K).swapaxes(-1, -2)
    if causal:
        weights = np.tril(weights)
    dense = weights / weights.sum(axis=-1, keepdims=True) @ V
    with lowered(efficient, CHUNK=chunk):
        got = linear_attention(Q, K, V, causal)
    np.testing.assert_allclose(got, dense, rtol=1e-10, atol=1e-12)


def test_linear_attention_far_below_zero():
    x = np.full((5, 3), -20.0)
    V = some(np.random.default_rng(0), 5, 2)
    np.testing.assert_allclose(linear_attention(x, x, V), np.tile(V.mean(0), (5, 1)), rtol=1e-10)
    np.testing.assert_allclose(
        linear_attention(x, x, V, causal=True),
        V.cumsum(0) / np.arange(1, 6)[:, None],
        rtol=1e-10,
    )


def test_causal_linear_attention_needs_a_key_per_query():
    Q, K = np.ones((4, 2)), np.ones((5, 2))
    with pytest.raises(ValueError, match="causal"):
        linear_attention(Q, K, K, causal=True)


@quickly
@given(rng=seeds(), s=sizes())
def test_grouped_queries_agree_with_pytorch(torch, rng, s):
    Q, K, V = some(rng, 2, s.h * s.spare, s.n, s.d_k), *list(qkv(rng, s, 2, s.h).values())[1:]
    mask = visible(rng, 2, s.h * s.spare, s.n, s.m)
    mask[..., 0] = True
    output, _ = grouped_query_attention(Q, K, V, mask)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (Q, K, V)), attn_mask=torch.tensor(mask), enable_gqa=True
    )
    np.testing.assert_allclose(output, theirs, rtol=1e-9, atol=1e-12)


def test_grouped_queries_agree_with_jax():
    rng, s = np.random.default_rng(0), FIXED
    Q, K = some(rng, 2, 6, s.n, s.d_k), some(rng, 2, 3, s.m, s.d_k)
    V = some(rng, 2, 3, s.m, s.d_k)
    output, _ = grouped_query_attention(Q, K, V)
    theirs = jax.nn.dot_product_attention(*(a.swapaxes(1, 2) for a in (Q, K, V)))
    np.testing.assert_allclose(output, np.asarray(theirs).swapaxes(1, 2), rtol=1e-6, atol=1e-7)


@quickly
@given(rng=seeds(), s=sizes())
def test_with_as_many_groups_as_heads_it_is_plain_attention(rng, s):
    arrays = qkv(rng, s, s.spare, s.h)
    for shape in [(s.n, s.m), (1, s.m), (s.h, 1, s.m), (s.spare, 1, s.n, s.m)]:
        mask = visible(rng, *shape)
        for have, want in zip(
            grouped_query_attention(**arrays, mask=mask),
            attention(**arrays, mask=mask),
            strict=True,
        ):
            np.testing.assert_array_equal(have, want)


@pytest.mark.parametrize(("h", "g"), [(3, 2), (2, 4), (4, 3)])
def test_groups_divide_the_heads(h, g):
    K = np.ones((g, 5, 2))
    with pytest.raises(ValueError, match="heads"):
        grouped_query_attention(np.ones((h, 4, 2)), K, K)


@quickly
@given(rng=seeds(), s=sizes(), data=st.data())
def test_a_cache_filled_in_chunks_equals_the_full_pass(rng, s, data):
    total = s.m + s.n
    Q, K = some(rng, s.h, total, s.d_k), some(rng, s.h, total, s.d_k)
    V = some(rng, s.h, total, s.d_v)
    full, _ = attention(Q, K, V, causal_mask(total))
    cache, done = KVCache(), 0
    while done < total:
        stop = done + data.draw(st.integers(1, total - done))
        cache.append(K[:, done:stop], V[:, done:stop])
        assert len(cache) == stop
        first = data.draw(st.integers(0, stop - 1))  # also fewer or more queries than new keys
        got = cache.attend(Q[:, first:stop])
        np.testing.assert_allclose(got, full[:, first:stop], rtol=1e-9, atol=1e-12)
        done = stop


def test_what_happens_to_the_caller_s_arrays_does_not_reach_the_cache():
    rng = np.random.default_rng(0)
    cache, q = KVCache(), some(rng, 1, 3)
    for _ in range(2):
        k, v = some(rng, 2, 3), some(rng, 2, 4)
        cache.append(k, v)
        before = cache.attend(q)
        k[:] = v[:] = 99
        np.testing.assert_array_equal(cache.attend(q), before)


def test_caches_share_nothing():
    first, second = KVCache(), KVCache()
    first.append(np.ones((2, 3)), np.ones((2, 4)))
    assert (len(first), len(second)) == (2, 0)


def test_the_cache_keeps_float32_and_computes_integers():
    cache = KVCache()
    cache.append(np.ones((2, 3), np.float32), np.ones((2, 4), np.float32))
    assert cache.attend(np.ones((1, 3), np.float32)).dtype == np.float32
    cache = KVCache()
    cache.append([[0, 0], [0, 0]], [[0], [1]])
    assert cache.attend([[1, 1]]).tolist() == [[0.5]]


@pytest.mark.parametrize(
    ("k", "v"),
    [
        ((2, 1, 3), (2, 1, 5)),  # another width of v
        ((2, 1, 4), (2, 1, 4)),  # of k
        ((3, 1, 3), (3, 1, 4)),  # another batch
        ((1, 3), (1, 4)),  # none
        ((2, 1, 3), (2, 2, 4)),  # more values than keys
        ((3,), (4,)),
    ],
)
def test_what_does_not_fit_is_not_appended(k, v):
    cache = KVCache()
    cache.append(np.ones((2, 5, 3)), np.ones((2, 5, 4)))
    with pytest.raises(ValueError, match=r"k \(.*v \("):
        cache.append(np.ones(k), np.ones(v))
    assert len(cache) == 5
    assert cache.attend(np.ones((2, 5, 3))).shape == (2, 5, 4)


@pytest.mark.parametrize("q", [(2, 6, 3), (2, 1, 4), (1, 1, 3), (1, 3), (3,)])
def test_queries_that_do_not_fit_the_cache_are_an_error(q):
    cache = KVCache()
    cache.append(np.ones((2, 5, 3)), np.ones((2, 5, 4)))
    with pytest.raises(ValueError):
        cache.attend(np.ones(q))
    with pytest.raises(ValueError, match="0 positions"):
        KVCache().attend(np.ones(q[-2:]) if len(q) > 1 else np.ones((1, 3)))
