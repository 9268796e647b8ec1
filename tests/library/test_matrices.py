"""Chapter 1: Matrix in pure Python, softmax, linear and Xavier's variance."""

import math
import random

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from manyheads.matrices import Matrix, linear, softmax, xavier_normal

from .cases import seeds, sizes, some

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=25, deadline=None)


@quickly
@given(rng=seeds(), s=sizes())
def test_matrix_agrees_with_numpy(rng, s):
    a, b, c = some(rng, s.n, s.m), some(rng, s.m, s.h), some(rng, s.n, s.m)
    A, B, C = (Matrix(array.tolist()) for array in (a, b, c))
    assert (A.rows, A.cols) == a.shape
    np.testing.assert_allclose((A @ B).tolist(), a @ b, rtol=1e-12, atol=1e-13)
    np.testing.assert_array_equal((A + C).tolist(), a + c)
    np.testing.assert_array_equal((A / 3).tolist(), a / 3)
    np.testing.assert_array_equal(A.transpose().tolist(), a.T)
    np.testing.assert_allclose(A.softmax().tolist(), softmax(a), rtol=1e-12)


def test_matrix_operations_leave_their_operands_alone():
    A, B = Matrix([[1, 2], [3, 4]]), Matrix([[5, 6], [7, 8]])
    for result in (A @ B, A + B, A / 2, A.transpose(), A.softmax()):
        result[0, 0] = 99
    assert A.tolist() == [[1, 2], [3, 4]]
    assert B.tolist() == [[5, 6], [7, 8]]


def test_matrix_copies_its_data_both_ways():
    data = [[1.0, 2.0]]
    A = Matrix(data)
    data[0][0] = 99
    A.tolist()[0][1] = 99
    assert A.tolist() == [[1.0, 2.0]]


def test_matrix_entries_can_be_read_and_set():
    A = Matrix([[1, 2, 3], [4, 5, 6]])
    A[1, 2] = 60
    assert A[1, 2] == 60
    assert A[0, 1] == 2


def test_products_of_integers_are_exact():
    assert (Matrix([[10**20, 1]]) @ Matrix([[1], [1]])).tolist() == [[10**20 + 1]]


@pytest.mark.parametrize("data", [[], [[]], [[1, 2], [3]], [[1], [2, 3]], [[], [1]]])
def test_a_matrix_needs_equal_rows(data):
    with pytest.raises(ValueError):
        Matrix(data)


@pytest.mark.parametrize(
    "combine",
    [
        lambda: Matrix([[1, 2, 3]]) @ Matrix([[1, 2, 3]]),
        lambda: Matrix([[1, 2]]) @ Matrix([[1], [2], [3]]),
        lambda: Matrix([[1, 2], [3, 4]]) + Matrix([[1, 2]]),
        lambda: Matrix([[1], [2]]) + Matrix([[1, 2]]),
    ],
)
def test_matrices_that_do_not_fit_name_their_sizes(combine):
    with pytest.raises(ValueError, match=r"\(\d, \d\) [@+] \(\d, \d\)"):
        combine()


def test_the_rows_of_a_matrix_softmax_stand_alone():
    A = Matrix([[1e6, 1e6 + 1], [-5000, -5001], [0, 1]]).softmax()
    small, large = 1 / (1 + math.e), math.e / (1 + math.e)
    np.testing.assert_allclose(A.tolist(), [[small, large], [large, small], [small, large]])


def test_the_preview_shows_five_rows_and_columns_with_four_decimals():
    wide = Matrix([[i + j / 1000 for j in range(9)] for i in range(7)])
    lines = str(wide).splitlines()
    assert len(lines) == 6
    assert lines[0] == "[0.0000  0.0010  0.0020  0.0030  0.0040  ...]"
    assert lines[-1] == "..."
    assert str(Matrix([[1, -22.5]])) == "[  1.0000  -22.5000]"


@pytest.mark.parametrize(("rows", "cols"), [(40, 60), (90, 10)])
def test_matrix_xavier_has_glorots_variance(rows, cols):
    entries = np.array(Matrix.xavier(rows, cols, random.Random(1)).tolist())
    assert entries.shape == (rows, cols)
    assert abs(entries.std() / math.sqrt(2 / (rows + cols)) - 1) < 0.1
    assert abs(entries.mean()) < 0.02


@quickly
@given(rng=seeds(), s=sizes(), axis=st.integers(-3, 2))
def test_softmax_agrees_with_pytorch_on_every_axis(torch, rng, s, axis):
    x = 4 * some(rng, s.n, s.m, s.h)
    got = softmax(x, axis)
    np.testing.assert_allclose(got, torch.softmax(torch.tensor(x), axis), rtol=1e-12)
    np.testing.assert_allclose(got.sum(axis), 1, rtol=1e-12)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax_agrees_with_jax(axis):
    x = 10 * some(np.random.default_rng(0), 3, 4, 5)
    np.testing.assert_allclose(softmax(x, axis), jax.nn.softmax(x, axis=axis), rtol=1e-12)


@quickly
@given(rng=seeds(), s=sizes(), shift=st.floats(-1e6, 1e6))
def test_softmax_does_not_see_a_shift(rng, s, shift):
    x = some(rng, s.n, s.m)
    np.testing.assert_allclose(softmax(x + shift), softmax(x), rtol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("place", [1e6, -1e6, 1e3, -1e3, -1900, 0])
def test_softmax_is_stable_wherever_its_rows_lie(dtype, place):
    x = np.array([[place, place + 1, place + 2], [0, 1, 2]], dtype)
    weights = softmax(x)
    assert weights.dtype == dtype
    np.testing.assert_allclose(weights, softmax(x - x[:, :1]), rtol=1e-5)


def test_softmax_of_one_entry_is_one():
    assert softmax([[-1e300], [5.0]]).tolist() == [[1.0], [1.0]]
    assert softmax([1e6, -1e6]).tolist() == [1.0, 0.0]


def test_softmax_takes_an_axis_that_exists():
    with pytest.raises(ValueError):
        softmax(np.ones((2, 3)), axis=2)


def test_linear_takes_a_single_vector():
    W = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert linear([1, 10], W, [0.5, 0, 0]).tolist() == [41.5, 52.0, 63.0]


@pytest.mark.parametrize(
    ("x", "W", "b"),
    [
        ((2, 3), (2, 3), None),  # W transposed
        ((2, 3), (3, 4), (3,)),
        ((2, 3), (3, 4), (1,)),
        ((2, 3), (3, 4), (2, 4)),
        ((2, 3), (3, 4), ()),
        ((2, 3), (3,), None),
        ((2, 3), (2, 3, 4), None),
        ((), (3, 4), None),
        ((2, 1), (3, 4), None),
    ],
)
def test_linear_names_the_shapes_that_do_not_fit(x, W, b):
    with pytest.raises(ValueError, match=r"W \("):
        linear(np.ones(x), np.ones(W), None if b is None else np.ones(b))


@pytest.mark.parametrize(("d_in", "d_out"), [(300, 100), (50, 400), (1, 20000)])
def test_xavier_normal_has_glorots_variance(d_in, d_out):
    W = xavier_normal(np.random.default_rng(3), d_in, d_out)
    assert W.shape == (d_in, d_out)
    assert abs(W.std() / math.sqrt(2 / (d_in + d_out)) - 1) < 0.03
    tails = (np.abs(W) > 2 * W.std()).mean()
    assert 0.035 < tails < 0.056  # normal: 4.6 %; uniform: none


def test_xavier_normal_draws_from_the_generator_it_is_given():
    first, again, other = (np.random.default_rng(seed) for seed in (1, 1, 2))
    W = xavier_normal(first, 3, 4)
    np.testing.assert_array_equal(W, xavier_normal(again, 3, 4))
    assert not np.array_equal(W, xavier_normal(other, 3, 4))
    assert not np.array_equal(W, xavier_normal(first, 3, 4))
