"""T's end of the channel: whatever a hostile S answers, T gets data, or S is ended."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headmaster.client import Client, clean_outputs, text_of
from headmaster.job import Limits
from headmaster.proxies import Remote, StudentLeft, StudentStopped, number_of
from headmaster.trusted import plain_number, plain_record

LIMITS = Limits(wall_seconds=5.0, grace_seconds=0.2)
FOLDER = Path("/nonexistent")


class NoGauge:
    """Stands for the gauge of a process that there is not."""

    def cpu_seconds(self) -> float:
        return 0.0

    def signal(self, number: int) -> None:
        pass

    def reset_peak(self) -> int:
        return 1

    def peak(self) -> int:
        return 1

    def touched(self) -> int:
        return 0


def frame(head: Any, *buffers: bytes) -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    sizes = struct.pack(f"<II{len(buffers)}Q", len(text), len(buffers), *map(len, buffers))
    return sizes + text + b"".join(buffers)


def asked(answer: bytes, ask: Callable[[Client], Any] = lambda c: c.call(0, (1,), {})) -> Any:
    """Let a client ask, and let S answer these bytes and close."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = Client(ours, NoGauge(), LIMITS, FOLDER)

        def reply() -> None:
            theirs.recv(1 << 16)
            theirs.sendall(answer)
            theirs.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=reply)
        thread.start()
        try:
            return ask(client)
        finally:
            thread.join()


def ended(answer: bytes, **more: Any) -> str:
    """Return why S was ended for its answer."""
    with pytest.raises(StudentStopped) as stopped:
        asked(answer, **more)
    return str(stopped.value)


def value(node: Any, *buffers: bytes) -> bytes:
    return frame(["value", node, [], [], None, []], *buffers)


# ------------------------------------------------------------------------------ right answers


def test_a_right_answer_is_a_value() -> None:
    assert asked(value(["i", "0x2a"])) == 42


def test_what_was_raised_is_raised_by_its_builtin_type() -> None:
    answer = frame(
        ["raised", ["ShapeError", "ValueError", "Exception"], ["t", "no"], [], [], None, [], []]
    )
    with pytest.raises(ValueError, match="no") as caught:
        asked(answer)
    assert type(caught.value).__name__ == "ShapeError"


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt", "GeneratorExit", "Own"])
def test_what_is_no_exception_is_no_answer_to_a_test_that_catches_exceptions(name: str) -> None:
    with pytest.raises(StudentLeft):
        asked(frame(["raised", [name, "BaseException", "object"], ["t"], [], [], None, [], []]))


# ------------------------------------------------------------------------------ wrong answers

WRONG = {
    "nothing": b"",
    "half a frame": b"\x05\x00\x00",
    "no list": frame({}),
    "an empty list": frame([]),
    "no name": frame([1, 2]),
    "another name": frame(["ran", None, None]),
    "too short": frame(["value"]),
    "too long": frame(["value", 1, 2, 3, 4, 5, 6]),
    "a number": frame(["value", 1, [], [], None, []]),
    "changes that are none": frame(["value", None, 7, [], None, []]),
    "a change of nothing": frame(["value", None, [["x", None]], [], None, []]),
    "values given up that are none": frame(["value", None, [], [], None, ["x"]]),
    "a change of another kind": frame(["value", None, [[0, "text"]], [], None, []]),
    "prints that are none": frame(["value", None, [], [["stdout", 1]], None, []]),
    "a stream that is none": frame(["value", None, [], [["stdin", "x"]], None, []]),
    "a warning without a class": frame(
        ["value", None, [], [["warning", [], "x", "f", 1]], None, []]
    ),
    "a random state that is none": frame(["value", None, [], [], ["l"], []]),
    "an exception without a name": frame(["raised", [], ["t"], [], [], None, [], []]),
    "an exception named as code": frame(
        ["raised", ["x()", "Exception"], ["t"], [], [], None, [], []]
    ),
    "frames that are none": frame(
        ["raised", ["ValueError", "Exception"], ["t"], [], [], None, [], 3]
    ),
    "a callback that was not given": frame(["callback", 0, ["l"], ["d"]]),
    "a callback of another kind": frame(["callback", "f", ["l"], ["d"]]),
    "an unmeasured step": frame(["done", 1]),
    "a measurement that was not asked for": frame(["ready"]),
    "a module of tests": value(["h", 1, "module", "tests"]),
    "a module that is no text": value(["h", 1, "module", 7]),
    "an object without a class": value(["h", 1, "object"]),
    "an object of a class of a class": value(
        ["h", 1, "object", ["h", 1, "object", None, None], None]
    ),
    "a class with wrong methods": value(["h", 1, "class", "C", 3, None, None]),
    "a handle without a number": value(["h", "x", "function", "f", None, None]),
    "a handle of T's own": value(["o", 0]),
    "a wrong kind": value(["h", 1, "gift", "f", None, None]),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_answer_ends_s(what: str) -> None:
    assert ended(WRONG[what])


def test_methods_that_decide_are_never_taken_from_s() -> None:
    specials = ["__eq__", "__bool__", "__lt__", "__class__", "__getattribute__", "__hash__"]
    made = asked(value(["h", 2, "object", ["h", 1, "class", "C", specials, None, None], None]))
    assert isinstance(made, Remote) and number_of(made) == 2
    assert not set(specials) & set(vars(type(made)))
    with pytest.raises(TypeError):
        bool(made)


def test_a_length_that_is_no_integer_ends_s() -> None:
    def ask(client: Client) -> Any:
        return len(client.call(0, (), {}))

    family = ["h", 1, "class", "C", ["__len__"], None, None]
    answer = value(["h", 2, "object", family, None]) + value("three")
    assert "__len__" in ended(answer, ask=ask)


HEADS = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 3),
        st.sampled_from(
            "value raised callback ran ready done ok h o k l d t a object class function "
            "module exception ValueError Exception stdout warning numpy math 0x1 x".split()
        ),
    ),
    lambda inner: st.lists(inner, max_size=8),
    max_leaves=30,
)


@given(HEADS, st.sampled_from(["value", "raised", "callback", "done", None]))
@settings(max_examples=400, deadline=None)
def test_no_answer_does_anything_but_be_data_or_end_s(head: Any, name: str | None) -> None:
    if name is not None:
        head = [name, *(head if isinstance(head, list) else [head])]
    try:
        asked(frame(head, b"12345678"))
    except (StudentStopped, StudentLeft):
        return
    except Exception:
        assert head[0] == "raised"


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_no_bytes_do_anything_but_end_s(stream: bytes) -> None:
    with pytest.raises(StudentStopped):
        asked(stream)


def test_a_silent_s_is_ended_when_its_time_is_up() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        limits = Limits(wall_seconds=0.3, grace_seconds=0.1)
        client = Client(ours, NoGauge(), limits, FOLDER)
        with pytest.raises(StudentStopped, match="too long"):
            client.call(0, (), {})


# ---------------------------------------------------------------------------------- outputs


def test_outputs_are_rebuilt_field_by_field() -> None:
    hostile = [
        {"output_type": "stream", "name": "stdout", "text": "x", "more": 1},
        {"output_type": "stream", "name": "stdin", "text": "x"},
        {"output_type": "error", "ename": 3, "evalue": "\ud800", "traceback": [1, "a"]},
        {"output_type": "execute_result", "data": {"text/plain": "5"}, "execution_count": "1"},
        {"output_type": "display_data", "data": {"text/plain": 5}, "metadata": {"x": 1}},
        {"output_type": "score", "value": 100},
        "text",
        None,
    ]
    clean = clean_outputs(hostile, 1000)
    assert [o["output_type"] for o in clean] == [
        "stream",
        "error",
        "execute_result",
        "display_data",
    ]
    assert set(clean[0]) == {"output_type", "name", "text"}
    assert clean[1]["ename"] == "" and clean[1]["evalue"] == "?"
    assert clean[2]["execution_count"] is None and clean[3]["data"] == {}


FIELDS = st.sampled_from(["output_type", "name", "text", "data", "ename", "traceback"])
OUTPUTS = st.recursive(
    st.none() | st.text() | st.integers(),
    lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner),
)


@given(OUTPUTS)
@settings(max_examples=200, deadline=None)
def test_no_outputs_break_t(outputs: Any) -> None:
    json.dumps(clean_outputs(outputs, 1000)).encode()


def test_a_text_can_be_written_anywhere() -> None:
    assert text_of("a\ud800b").encode() == b"a?b"


@pytest.fixture
def numbers() -> Iterator[Any]:
    import numpy as np

    yield {1: 1.0, 2.5: 2.5, np.float32(0.5): 0.5, np.int64(3): 3.0}


def test_only_a_finite_number_is_a_value(numbers: Any) -> None:
    assert all(plain_number(given) == expected for given, expected in numbers.items())
    wrong = [None, True, "1", float("nan"), float("inf"), 10**400, [1], 1j, object()]
    assert [plain_number(x) for x in wrong] == [None] * len(wrong)


def test_only_a_dict_is_a_record() -> None:
    error = ValueError()
    assert plain_record(error) is None
    error.record = ["x"]  # type: ignore[attr-defined]
    assert plain_record(error) is None
    error.record = {f"k{i}": i for i in range(100)}  # type: ignore[attr-defined]
    assert len(plain_record(error) or {}) == 20
