"""Chapter 6: cross-attention, alignment and a decoder's two attentions."""

import numpy as np
import pytest
from hypothesis import given, settings

from manyheads.cross_attention import cross_attention, decoder_attention, hard_alignment
from manyheads.multi_head import multi_head_attention
from manyheads.scaled_dot_product import padding_mask

from .cases import CASES, draw_items, projections, seeds, sizes, some, stack

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


def draw(name, rng, s, batch=(3,), mask=False):
    case = CASES[name]
    arguments = stack(case, draw_items(case, rng, s, int(np.prod(batch))), batch)
    if not mask:
        del arguments["memory_mask"]
    return arguments


@quickly
@given(rng=seeds(), s=sizes())
def test_agrees_with_pytorchs_module(torch, rng, s):
    arguments = draw("cross_attention", rng, s)
    mask = padding_mask(rng.integers(1, s.m + 1, 3), s.m)
    output, weights = cross_attention(**arguments, memory_mask=mask)

    d, d_mem = s.h * s.d_k, s.spare
    theirs = torch.nn.MultiheadAttention(
        d, s.h, bias=False, kdim=d_mem, vdim=d_mem, batch_first=True, dtype=torch.float64
    )
    W_q, W_k, W_v, W_o = (torch.tensor(arguments[f"W_{role}"].T) for role in "qkvo")
    inner = {"q_proj_weight": W_q, "k_proj_weight": W_k, "v_proj_weight": W_v}
    if d == d_mem:  # then they keep the three in one matrix
        inner = {"in_proj_weight": torch.cat([W_q, W_k, W_v])}
    theirs.load_state_dict(inner | {"out_proj.weight": W_o})
    x, memory = torch.tensor(arguments["x"]), torch.tensor(arguments["memory"])
    with torch.no_grad():
        want, want_weights = theirs(
            x,
            memory,
            memory,
            key_padding_mask=torch.tensor(~mask[:, 0]),
            average_attn_weights=False,
        )
    np.testing.assert_allclose(output, want, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(weights, want_weights, rtol=1e-8, atol=1e-10)


@quickly
@given(rng=seeds(), s=sizes())
def test_attending_to_oneself_is_self_attention(rng, s):
    d = s.h * s.d_k
    x, W = some(rng, 2, s.n, d), projections(rng, d)
    got = cross_attention(x, x, **W, num_heads=s.h)
    for have, want in zip(got, multi_head_attention(x, **W, num_heads=s.h), strict=True):
        np.testing.assert_array_equal(have, want)


@quickly
@given(rng=seeds(), s=sizes())
def test_padding_in_the_memory_changes_nothing(rng, s):
    arguments = draw("cross_attention", rng, s)
    lengths = rng.integers(0, s.m + 1, 3)
    mask = padding_mask(lengths, s.m)
    before = cross_attention(**arguments, memory_mask=mask)
    padded = np.where(mask.swapaxes(-1, -2), arguments["memory"], 1e3)
    after = cross_attention(**arguments | {"memory": padded}, memory_mask=mask)
    for have, want in zip(after, before, strict=True):
        np.testing.assert_array_equal(have, want)
    assert not before[0][lengths == 0].any()


@quickly
@given(rng=seeds(), s=sizes(2))
def test_the_memory_answers(rng, s):
    arguments = draw("cross_attention", rng, s)
    before, _ = cross_attention(**arguments)
    after, _ = cross_attention(**arguments | {"memory": arguments["memory"] + 1})
    assert not np.allclose(after, before)


def test_the_alignment_follows_the_mean_over_heads():
    weights = np.array([[[0.9, 0.1, 0.0]], [[0.0, 0.45, 0.55]], [[0.0, 0.45, 0.55]]])
    assert hard_alignment(weights).tolist() == [2]  # two heads of three, by weight, not by vote
    weights[0] = [[1.0, 0.0, 0.0]]
    weights[1:] = [[0.3, 0.36, 0.34]]
    assert hard_alignment(weights).tolist() == [0]


@quickly
@given(rng=seeds(), s=sizes())
def test_the_decoder_writes_without_seeing_later_tokens(rng, s):
    arguments = draw("decoder_attention", rng, s, batch=())
    later = arguments["y"].copy()
    later[-1] += 1
    before, after = (decoder_attention(**arguments | {"y": y}) for y in (arguments["y"], later))
    np.testing.assert_array_equal(after[:-1], before[:-1])


@quickly
@given(rng=seeds(), s=sizes())
def test_a_query_without_memory_keeps_what_self_attention_gave(rng, s):
    arguments = draw("decoder_attention", rng, s, batch=())
    got = decoder_attention(**arguments, memory_mask=np.zeros((s.n, 1), bool))
    past = np.tri(s.n, dtype=bool)
    own = arguments["self_weights"]
    written, _ = multi_head_attention(arguments["y"], **own, num_heads=s.h, mask=past)
    np.testing.assert_array_equal(got, arguments["y"] + written)


def test_the_order_of_the_weights_in_their_dicts_does_not_matter():
    rng = np.random.default_rng(0)
    y, memory = some(rng, 4, 6), some(rng, 5, 3)
    own, other = projections(rng, 6), projections(rng, 6, 3)
    backwards = [dict(reversed(W.items())) for W in (own, other)]
    np.testing.assert_array_equal(
        decoder_attention(y, memory, *backwards, 2), decoder_attention(y, memory, own, other, 2)
    )


@pytest.mark.parametrize("shape", [(5,), (2, 1, 4, 5), (3, 4, 5), (2, 5, 4), (4, 4), (2, 3, 4, 5)])
def test_a_memory_mask_has_no_head_axis(shape):
    x, memory, W = np.ones((2, 4, 6)), np.ones((2, 5, 6)), np.eye(6)
    with pytest.raises(ValueError, match="mask"):
        cross_attention(x, memory, W, W, W, W, 3, np.ones(shape, bool))


@pytest.mark.parametrize("shape", [(4, 3), (1, 4, 3), (3,), (3, 4, 3)])
def test_a_memory_with_other_leading_axes_is_an_error(shape):
    W_m = np.ones((3, 6))
    with pytest.raises(ValueError, match=r"memory \("):
        cross_attention(np.ones((2, 5, 6)), np.ones(shape), np.eye(6), W_m, W_m, np.eye(6), 2)
