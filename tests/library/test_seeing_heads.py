"""Chapter 5: entropy, distance, offsets and silent heads."""

import math

import numpy as np
import pytest
from hypothesis import given, settings

from manyheads.multi_head import multi_head_attention
from manyheads.seeing_heads import (
    ablate_heads,
    attention_distance,
    attention_entropy,
    offset_score,
)

from .cases import CASES, draw_items, projections, seeds, sizes, some, weights_of

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


@quickly
@given(rng=seeds(), s=sizes())
def test_entropy_lies_between_one_key_and_all_keys_alike(rng, s):
    entropy = attention_entropy(weights_of(rng, s.h, s.n, s.m))
    assert (entropy >= 0).all()
    assert (entropy <= math.log(s.m) + 1e-12).all()
    np.testing.assert_allclose(attention_entropy(np.full((s.n, s.m), 1 / s.m)), math.log(s.m))


def test_one_key_or_none_has_entropy_zero():
    entropy = attention_entropy([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert entropy.tolist() == [0, 0]
    assert not np.signbit(entropy).any()


def test_the_distance_of_known_heads():
    n = 6
    heads = np.stack([np.eye(n), np.eye(n)[::-1], np.full((n, n), 1 / n)])
    apart = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    np.testing.assert_allclose(attention_distance(heads), [0, 3, apart.mean()])


@pytest.mark.parametrize("offset", [-4, -2, -1, 0, 1, 3])
def test_a_head_that_looks_one_way_scores_there_only(offset):
    n = 5
    head = np.eye(n, k=offset)  # rows without that key are empty and do not count
    assert offset_score(head[None], offset).tolist() == [1]
    for other in {-3, -1, 0, 2} - {offset}:
        assert offset_score(head[None], other).tolist() == [0]


@pytest.mark.parametrize("offset", [5, -5, 9])
def test_an_offset_that_no_pair_has_is_an_error(offset):
    with pytest.raises(ValueError, match="offset"):
        offset_score(np.ones((2, 5, 5)), offset)


@quickly
@given(rng=seeds(), s=sizes())
def test_keeping_every_head_is_multi_head_attention(rng, s):
    [arguments] = draw_items(CASES["ablate_heads"], rng, s, 1)
    arguments["keep"] = np.ones(s.h, bool)
    got = ablate_heads(**arguments)
    del arguments["keep"]
    np.testing.assert_array_equal(got, multi_head_attention(**arguments)[0])


@quickly
@given(rng=seeds(), s=sizes())
def test_the_heads_one_by_one_add_up_to_all(rng, s):
    d = s.h * s.d_k
    arguments = {"x": some(rng, s.n, d), **projections(rng, d), "num_heads": s.h}
    alone = sum(ablate_heads(**arguments, keep=only) for only in np.eye(s.h, dtype=bool))
    np.testing.assert_allclose(alone, multi_head_attention(**arguments)[0], rtol=1e-9, atol=1e-11)
    assert not ablate_heads(**arguments, keep=np.zeros(s.h, bool)).any()


@pytest.mark.parametrize("keep", [[True], [True] * 4, [[True] * 3], [1, 0, 1], True])
def test_keep_is_one_boolean_per_head(keep):
    with pytest.raises(ValueError, match="keep"):
        ablate_heads(np.ones((2, 6)), *[np.eye(6)] * 4, 3, keep)


def test_too_few_axes_are_an_error():
    for function in (attention_distance, lambda w: offset_score(w, 0)):
        with pytest.raises(ValueError, match=r"\(4, 4\)"):
            function(np.ones((4, 4)))
        with pytest.raises(ValueError, match=r"\(2, 4, 3\)"):
            function(np.ones((2, 4, 3)))
    with pytest.raises(ValueError, match=r"\(4,\)"):
        attention_entropy(np.ones(4))
