"""Chapter 3: self-attention knows no order, and learns it from a mask only."""

import numpy as np
import pytest
from hypothesis import given, settings

from manyheads.scaled_dot_product import causal_mask
from manyheads.self_attention import self_attention

from .cases import CASES, draw_items, seeds, sizes, some

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


def draw(rng, s):
    [arguments] = draw_items(CASES["self_attention"], rng, s, 1)
    del arguments["mask"]
    return arguments


@quickly
@given(rng=seeds(), s=sizes())
def test_permuting_the_positions_permutes_the_output(rng, s):
    arguments, order = draw(rng, s), rng.permutation(s.n)
    output, weights = self_attention(**arguments)
    moved = self_attention(**arguments | {"x": arguments["x"][order]})
    np.testing.assert_allclose(moved[0], output[order], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(moved[1], weights[np.ix_(order, order)], rtol=1e-9)


@quickly
@given(rng=seeds(), s=sizes(2))
def test_under_a_causal_mask_earlier_outputs_do_not_see_later_tokens(rng, s):
    arguments = draw(rng, s)
    changed = arguments["x"].copy()
    changed[-1] += some(rng, changed.shape[1])
    before, after = (
        self_attention(**arguments | {"x": x}, mask=causal_mask(s.n))[0]
        for x in (arguments["x"], changed)
    )
    np.testing.assert_array_equal(after[:-1], before[:-1])
    assert not np.allclose(after[-1], before[-1])


def test_with_two_matrices_the_scores_need_not_be_symmetric():
    x = np.eye(2)
    W = np.array([[0.0, 1.0], [0.0, 0.0]])  # the first word asks for the second, not the reverse
    _, weights = self_attention(x, np.eye(2), W.T, x)
    assert weights[0, 1] > 0.6
    assert weights[1, 0] == 0.5


def test_a_single_vector_is_an_error():
    with pytest.raises(ValueError):
        self_attention(np.ones(3), np.eye(3), np.eye(3), np.eye(3))
