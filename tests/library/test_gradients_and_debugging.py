"""Chapter 10: backward passes against automatic differentiation, and diagnoses of known heads."""

import math

import jax
import numpy as np
import pytest
from hypothesis import given, settings

from manyheads.gradients_and_debugging import (
    attention_backward,
    dead_heads,
    diagnose_weights,
    head_norms,
    numerical_gradient,
    softmax_backward,
)
from manyheads.matrices import softmax
from manyheads.scaled_dot_product import attention, causal_mask

from .cases import FIXED, qkv, seeds, sizes, some, visible

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


def test_softmax_backward_agrees_with_jax():
    rng = np.random.default_rng(0)
    x, d_weights = some(rng, 2, 3, 4), some(rng, 2, 3, 4)
    weights, pull_back = jax.vjp(jax.nn.softmax, x)
    [want] = pull_back(jax.numpy.asarray(d_weights))
    got = softmax_backward(np.asarray(weights), d_weights)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12)


@quickly
@given(rng=seeds(), s=sizes())
def test_softmax_backward_agrees_with_differences(rng, s):
    x, d_weights = some(rng, s.n, s.m), some(rng, s.n, s.m)
    want = numerical_gradient(lambda x: (softmax(x) * d_weights).sum(), x)
    got = softmax_backward(softmax(x), d_weights)
    np.testing.assert_allclose(got, want, atol=1e-8)
    np.testing.assert_allclose(got.sum(axis=-1), 0, atol=1e-12)  # a shift of a row changes nothing


@quickly
@given(rng=seeds(), s=sizes())
def test_attention_backward_agrees_with_pytorch(torch, rng, s):
    arrays, d_output = qkv(rng, s, s.h), some(rng, s.h, s.n, s.d_v)
    mask = visible(rng, s.h, s.n, s.m)
    mask[..., 0] = True
    leaves = [torch.tensor(a, requires_grad=True) for a in arrays.values()]
    theirs = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=torch.tensor(mask))
    theirs.backward(torch.tensor(d_output))
    got = attention_backward(**arrays, d_output=d_output, mask=mask)
    for have, leaf in zip(got, leaves, strict=True):
        np.testing.assert_allclose(have, leaf.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("masked", [False, True])
def test_attention_backward_agrees_with_jax(masked):
    rng, s = np.random.default_rng(0), FIXED
    arrays, d_output = qkv(rng, s, s.h), some(rng, s.h, s.n, s.d_v)
    mask = np.broadcast_to(causal_mask(s.n, s.m) | (np.arange(s.m) == 0), (s.h, s.n, s.m))

    def loss(Q, K, V):
        scores = Q @ K.swapaxes(-1, -2) / math.sqrt(s.d_k)
        scores = jax.numpy.where(mask, scores, -jax.numpy.inf) if masked else scores
        return (jax.nn.softmax(scores) @ V * d_output).sum()

    want = jax.grad(loss, argnums=(0, 1, 2))(*map(jax.numpy.asarray, arrays.values()))
    got = attention_backward(**arrays, d_output=d_output, mask=mask if masked else None)
    for have, gradient in zip(got, want, strict=True):
        np.testing.assert_allclose(have, gradient, rtol=1e-9, atol=1e-11)


@quickly
@given(rng=seeds(), s=sizes())
def test_attention_backward_agrees_with_differences_where_rows_are_empty(rng, s):
    arrays, d_output = qkv(rng, s), some(rng, s.n, s.d_v)
    mask = visible(rng, s.n, s.m)
    got = attention_backward(**arrays, d_output=d_output, mask=mask)
    for have, name in zip(got, arrays, strict=True):
        want = numerical_gradient(
            lambda x, name=name: (attention(**arrays | {name: x}, mask=mask)[0] * d_output).sum(),
            arrays[name],
        )
        np.testing.assert_allclose(have, want, atol=1e-7)
    assert not got[0][~mask.any(axis=-1)].any()


def test_a_gradient_for_another_output_is_an_error():
    Q, V = np.ones((3, 2)), np.ones((3, 4))
    for shape in [(3, 2), (1, 4), (4, 4), (3, 1), (2, 3, 4)]:
        with pytest.raises(ValueError, match="d_output"):
            attention_backward(Q, Q, V, np.ones(shape))


def test_the_numerical_gradient_of_known_functions():
    x = some(np.random.default_rng(0), 2, 3)
    np.testing.assert_allclose(numerical_gradient(lambda x: (x**2).sum(), x), 2 * x, atol=1e-8)
    np.testing.assert_allclose(
        numerical_gradient(lambda x: np.sin(x).sum(), x), np.cos(x), atol=1e-8
    )
    assert numerical_gradient(lambda x: 3.0, x).tolist() == np.zeros((2, 3)).tolist()
    assert numerical_gradient(float, np.array(2.0)).shape == ()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, int])
def test_the_numerical_gradient_works_in_float64_and_leaves_x_alone(dtype):
    x = np.arange(1, 7).reshape(2, 3).astype(dtype)
    before, seen = x.tobytes(), []

    def greedy(x):
        seen.append(x.dtype)
        total = (x**2).sum()
        x[:] = 0  # a function may do what it likes with its own array
        return total

    np.testing.assert_allclose(numerical_gradient(greedy, x), 2.0 * x, rtol=1e-6)
    assert x.tobytes() == before
    assert set(seen) == {np.dtype(float)}


@quickly
@given(rng=seeds(), s=sizes())
def test_head_norms_are_the_norms_of_the_heads_columns(rng, s):
    d = s.h * s.d_k
    dW = some(rng, d, d)
    norms = head_norms(dW, s.h)
    for i in range(s.h):
        columns = dW[:, i * s.d_k : (i + 1) * s.d_k]
        np.testing.assert_allclose(norms[i], np.linalg.norm(columns), rtol=1e-12)
    np.testing.assert_allclose((norms**2).sum(), (dW**2).sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("shape", "h"), [((6, 6), 4), ((6, 6), 0), ((5, 6), 3), ((6,), 3), ((2, 6, 6), 3)]
)
def test_head_norms_need_a_square_matrix_that_the_heads_divide(shape, h):
    with pytest.raises(ValueError):
        head_norms(np.ones(shape), h)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_head_is_dead_when_nothing_in_it_moves(dtype):
    outputs = some(np.random.default_rng(0), 5, 4, 3, 2).astype(dtype)
    outputs[:, 0] = 0
    outputs[:, 1] = outputs[0, 1] + 1000.1  # says something, always the same
    outputs[:, 2, 1:] = outputs[0, 2, 1:]  # one position moves
    assert dead_heads(outputs).tolist() == [True, True, False, False]
    assert dead_heads(outputs, tolerance=100).all()
    assert dead_heads(outputs).dtype == bool


@pytest.mark.parametrize("shape", [(1, 2, 3, 4), (2, 3, 4), (5, 2, 2, 3, 4)])
def test_dead_heads_need_samples(shape):
    with pytest.raises(ValueError, match="samples"):
        dead_heads(np.ones(shape))


def test_the_diagnosis_of_known_heads():
    rng, n, m = np.random.default_rng(0), 6, 5
    uniform = np.full((n, m), 1 / m)
    saturated = np.eye(n, m, k=-1)
    healthy = softmax(some(rng, n, m))
    heads = np.stack([uniform, saturated, healthy])
    assert diagnose_weights(heads) == ["uniform", "saturated", "healthy"]
    assert diagnose_weights(np.stack([heads] * 3)) == ["uniform", "saturated", "healthy"]


def test_the_diagnosis_takes_the_mean_over_batch_and_queries():
    uniform, one_hot = np.full((4, 3), 1 / 3), np.eye(4, 3)
    mixed = np.stack([uniform, one_hot])[:, None]  # two items, one head
    assert diagnose_weights(mixed) == ["healthy"]


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 1), (4,)])
def test_the_diagnosis_needs_heads_and_keys(shape):
    with pytest.raises(ValueError, match="weights"):
        diagnose_weights(np.ones(shape))
