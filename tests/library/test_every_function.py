"""What holds for every array function: right numbers, and the promises of the conventions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from .cases import CASES, FIXED, Arguments, Case, batches, draw_items, seeds, sizes, stack

pytestmark = pytest.mark.filterwarnings("error")
quickly = settings(max_examples=15, deadline=None)


def example(case: Case, batch: tuple[int, ...] = ()) -> Arguments:
    """Arguments of fixed sizes, none of them 1."""
    items = draw_items(case, np.random.default_rng(0), FIXED, int(np.prod(batch)))
    return stack(case, items, batch)


def batched(case: Case) -> list[str]:
    """The arguments whose leading axes must be equal."""
    apart = case.shared | case.broadcast
    return [n for n, a in example(case).items() if isinstance(a, np.ndarray) and n not in apart]


def booleans(case: Case) -> list[str]:
    """The arguments that are boolean arrays."""
    return [n for n, a in example(case).items() if isinstance(a, np.ndarray) and a.dtype == bool]


def each(condition: Callable[[Case], Any]) -> pytest.MarkDecorator:
    """Run a test for each function that it is about."""
    names = [name for name, case in CASES.items() if condition(case)]
    return pytest.mark.parametrize("case", [CASES[name] for name in names], ids=names)


every_function = each(lambda case: True)


@every_function
@quickly
@given(rng=seeds(), s=sizes(), batch=batches())
def test_agrees_with_plain_loops(case, rng, s, batch):
    items = draw_items(case, rng, s, int(np.prod(batch)))
    got = call(case, stack(case, items, batch))
    expected = by_loops(case, items, batch)
    assert [a.shape for a in got] == [a.shape for a in expected]
    assert_close(got, expected, rtol=1e-9, atol=1e-11)


@every_function
@quickly
@given(rng=seeds(), s=sizes(), batch=batches())
def test_float32_stays_float32(case, rng, s, batch):
    arguments = stack(case, draw_items(case, rng, s, int(np.prod(batch))), batch)
    single = converted(arguments, lambda a: a.astype(np.float32))
    exact = converted(single, lambda a: a.astype(float))
    got, expected = call(case, single), call(case, exact)
    for have, want in zip(got, expected, strict=True):
        assert have.dtype == (np.float32 if want.dtype == float else want.dtype)
    assert_close(got, expected, rtol=1e-4, atol=1e-5)


@every_function
@quickly
@given(rng=seeds(), s=sizes(), batch=batches())
def test_integers_are_computed_in_floating_point(case, rng, s, batch):
    arguments = stack(case, draw_items(case, rng, s, int(np.prod(batch))), batch)
    exact = converted(arguments, rounded)
    integers = converted(exact, lambda a: a.astype(int) if np.isfinite(a).all() else a)
    assert_close(call(case, integers), call(case, exact), rtol=1e-12, atol=1e-12)


@every_function
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_inputs_stay_as_they_are_and_a_second_call_agrees(case, batch):
    arguments = example(case, batch)
    before = [a.tobytes() for a in arrays(arguments)]
    first = [a.copy() for a in call(case, arguments)]
    second = call(case, arguments)
    assert [a.tobytes() for a in arrays(arguments)] == before
    assert_close(second, first, rtol=0, atol=0)


@every_function
@pytest.mark.parametrize(
    "layout",
    [
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
        lambda a: a[::-1].copy()[::-1],
        lambda a: np.require(a.copy(), requirements="C").astype(a.dtype.newbyteorder()),
    ],
    ids=["fortran", "strided", "negative strides", "other byte order"],
)
def test_the_memory_layout_does_not_matter(case, layout):
    arguments = example(case, (3,))
    got = call(case, converted(arguments, layout))
    assert_close(got, call(case, arguments), rtol=1e-12, atol=1e-13)


@every_function
def test_read_only_arrays_will_do(case):
    arguments = example(case)
    for array in arrays(arguments):
        array.flags.writeable = False
    call(case, arguments)


@every_function
def test_nested_lists_will_do(case):
    arguments = example(case, (3,))
    lists = converted(arguments, np.ndarray.tolist)
    assert_close(call(case, lists), call(case, arguments), rtol=1e-12, atol=1e-13)


@each(lambda case: len(batched(case)) > 1)
def test_batch_axes_must_be_equal(case):
    arguments = example(case, (3,))
    for name in batched(case):
        for wrong in (arguments[name][:1], arguments[name][0], arguments[name][:2]):
            with pytest.raises(ValueError):
                case.function(**arguments | {name: wrong})


@every_function
def test_a_size_that_does_not_fit_is_an_error(case):
    arguments = example(case)
    for name, value in arguments.items():
        axes = value.ndim if isinstance(value, np.ndarray) else 0
        for axis in range(-axes, 0):
            if (name, axis) in case.free:
                continue
            size = value.shape[axis]
            wrong = [value.take([0, *range(size)], axis), value.take(range(size - 1), axis)]
            if name not in case.broadcast:
                wrong.append(value.take([0], axis))  # 1 is a size like any other
            for array in wrong:
                with pytest.raises(ValueError, match=r"\(|divide|odd"):
                    case.function(**arguments | {name: array})


@each(lambda case: booleans(case))
def test_a_mask_that_is_not_boolean_is_an_error(case):
    arguments = example(case)
    for name in booleans(case):
        for kind in (int, float, np.uint8):
            with pytest.raises(ValueError, match=np.dtype(kind).name):
                case.function(**arguments | {name: arguments[name].astype(kind)})


def call(case: Case, arguments: Arguments) -> list[np.ndarray]:
    return parts(case.function(**arguments))


def parts(result: Any) -> list[Any]:
    """What a function returns, one or several arrays, as a list."""
    return list(result) if isinstance(result, tuple) else [result]


def by_loops(case: Case, items: list[Arguments], batch: tuple[int, ...]) -> list[np.ndarray]:
    """The same by plain loops, one item after the other."""
    results = [[np.array(part) for part in parts(case.loop(**item))] for item in items]
    stacked = [np.stack(same) for same in zip(*results, strict=True)]
    return [array.reshape(*batch, *array.shape[1:]) for array in stacked]


def assert_close(got: list, expected: list, rtol: float, atol: float) -> None:
    for have, want in zip(got, expected, strict=True):
        np.testing.assert_allclose(have, want, rtol=rtol, atol=atol)


def converted(arguments: Arguments, convert: Callable) -> Arguments:
    """The arguments with every floating-point array converted, also those inside dicts."""

    def one(value: Any) -> Any:
        if isinstance(value, dict):
            return converted(value, convert)
        is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f"
        return convert(value) if is_float else value

    return {name: one(value) for name, value in arguments.items()}


def arrays(arguments: Arguments) -> Iterator[np.ndarray]:
    """Every array in the arguments."""
    for value in arguments.values():
        if isinstance(value, dict):
            yield from arrays(value)
        elif isinstance(value, np.ndarray):
            yield value


def rounded(a: np.ndarray) -> np.ndarray:
    return np.rint(4 * a)
