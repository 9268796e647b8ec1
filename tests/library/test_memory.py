"""What the chapters on sparse and efficient attention promise about memory."""

import numpy as np
import pytest

from manyheads.efficient import (
    KVCache,
    grouped_query_attention,
    linear_attention,
    shifted_attention,
    tiled_attention,
)
from manyheads.scaled_dot_product import attention
from manyheads.sparse import block_sparse_attention, hash_attention, local_attention

from .cases import some
from .limits import peak_memory


def draw(n, m, d, dtype=float):
    rng = np.random.default_rng(0)
    return tuple(some(rng, rows, d).astype(dtype) for rows in (n, m, m))


def test_the_gauge_sees_a_dense_array():
    n = 1000
    assert peak_memory(lambda: attention(*draw(n, n, 4))) > 8 * n * n


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 3])
def test_local_attention_stays_near_its_window(causal, window):
    n = 2500
    arrays = draw(n, n, 4)
    assert peak_memory(lambda: local_attention(*arrays, window, causal)) < n * n / 8


def test_local_attention_grows_with_the_length_not_its_square():
    def peak(n):
        arrays = draw(n, n, 16)
        return peak_memory(lambda: local_attention(*arrays, 20))

    assert peak(16000) < 5 * peak(4000)


@pytest.mark.parametrize("causal", [False, True])
def test_tiled_attention_holds_a_tile_at_a_time(causal):
    n = 1024
    for d in (4, 16):
        arrays = draw(n, n, d)
        assert peak_memory(lambda a=arrays: tiled_attention(*a, 8, causal)) < n * n / 2


def test_tiled_attention_makes_no_boolean_array_of_all_pairs():
    n = 4096
    assert peak_memory(lambda: tiled_attention(*draw(n, n, 4), 32, causal=True)) < n * n / 4


def test_shifted_attention_holds_no_array_of_all_pairs():
    n = 4096
    assert peak_memory(lambda: shifted_attention(*draw(n, n, 16))) < n * n


def test_block_sparse_attention_pays_for_the_active_blocks():
    n, size = 2048, 16
    layout = np.eye(n // size, dtype=bool)
    layout[:, 0] = True
    arrays = draw(n, n, 4)
    assert peak_memory(lambda: block_sparse_attention(*arrays, layout, size)) < n * n / 8


@pytest.mark.parametrize("buckets", [1, 2, 32])
def test_hash_attention_pays_for_its_buckets_however_full(buckets):
    n = 2048
    rng = np.random.default_rng(0)
    arrays = draw(n, n, 4)
    names = [rng.integers(0, buckets, n) for _ in range(2)]
    assert peak_memory(lambda: hash_attention(*arrays, *names)) < n * n


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_holds_no_array_of_all_pairs(causal):
    n = 4096
    assert peak_memory(lambda: linear_attention(*draw(n, n, 8), causal)) < n * n / 4


def test_shared_keys_are_not_repeated():
    rng = np.random.default_rng(0)
    Q, K = some(rng, 16, 1, 64), some(rng, 1, 2000, 64)
    keys = K.nbytes
    assert peak_memory(lambda: grouped_query_attention(Q, K, K)) < keys


def test_a_token_from_the_cache_costs_a_row():
    cache = KVCache()
    cache.append(*draw(3000, 3000, 4)[1:])
    q = np.ones((1, 4))
    assert peak_memory(lambda: cache.attend(q)) < 3000 * 8 * 10


def test_dense_float32_attention_holds_two_arrays_of_all_pairs():
    n = 1000
    arrays = draw(n, n, 64, np.float32)
    assert peak_memory(lambda: attention(*arrays)) < 2.5 * 4 * n * n
