"""The wire: what may travel arrives unchanged, and no bytes can do anything but be refused."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import random
import socket
import struct
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from headmaster import wire

Point = collections.namedtuple("Point", "output weights")


def there_and_back(value: Any) -> Any:
    """Send a value through the text of a message, and return what arrives."""
    encoder = wire.Encoder(wire.no_handle)
    node = wire.parse(json.dumps(encoder.encode(value)).encode())
    return wire.Decoder(encoder.buffers, refuse).decode(node)


def refuse(node: Any) -> Any:
    raise wire.WireError("no handles here")


def same(a: Any, b: Any) -> bool:
    """Tell whether two values are equal, NaN to NaN, type by type."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray | np.generic):
        equal_nan = a.dtype.kind in "fc"
        return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=equal_nan)
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values()))
    return bool(a == b)


# ------------------------------------------------------------------------- what may travel

DTYPES = st.one_of(
    npst.boolean_dtypes(),
    npst.integer_dtypes(endianness="?"),
    npst.unsigned_integer_dtypes(endianness="?"),
    npst.floating_dtypes(endianness="?", sizes=(16, 32, 64)),
    npst.complex_number_dtypes(endianness="?", sizes=(64, 128)),
    npst.unicode_string_dtypes(endianness="?", max_len=5),
)
ARRAYS = npst.arrays(DTYPES, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
KEYS = st.one_of(st.integers(), st.text(max_size=5), st.booleans(), st.binary(max_size=5))
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.complex_numbers(allow_nan=False),
    st.text(), st.binary(), ARRAYS, st.sampled_from([..., float, np.float32, np.dtype("i4")]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
    ),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=300, deadline=None)
def test_plain_data_arrive_as_they_left(value: Any) -> None:
    assert same(there_and_back(value), value)


def test_order_of_memory_and_writeability_are_kept() -> None:
    a = np.arange(6.0).reshape(2, 3).T
    a.flags.writeable = False
    b = there_and_back(a)
    assert b.flags.f_contiguous and not b.flags.writeable and np.array_equal(a, b)


def test_subclasses_arrive_as_the_plain_value_that_they_hold() -> None:
    class Lies(np.ndarray):
        def __eq__(self, other: object) -> Any:
            return True

        def tobytes(self, *_: Any) -> bytes:
            return b""

    class Number(float):
        def hex(self) -> str:
            return "0x1p0"

    assert type(there_and_back(np.zeros(2).view(Lies))) is np.ndarray
    assert type(there_and_back(np.matrix([[1.0]]))) is np.ndarray
    assert there_and_back(Number(3.5)) == 3.5
    assert type(there_and_back(Number(3.5))) is float


def test_a_named_tuple_arrives_as_a_tuple_with_names() -> None:
    back = there_and_back(Point(1, [2]))
    assert back == (1, [2]) and back.output == 1 and back.weights == [2]
    assert isinstance(back, tuple) and not hasattr(back, "nothing")


def test_random_states_go_on_where_they_were() -> None:
    for kind in wire._BIT_GENERATORS.values():
        one = np.random.Generator(kind(3))
        one.normal(size=5)
        assert there_and_back(one).normal() == one.normal()
    two = random.Random(4)
    two.gauss(0, 1)
    assert there_and_back(two).gauss(0, 1) == two.gauss(0, 1)


def test_the_global_generators_are_watched_and_carried_over() -> None:
    np.random.seed(0)
    random.seed(0)
    watch = wire.GlobalRandom()
    assert not watch.moved()
    np.random.normal()
    assert watch.moved() and not watch.moved()
    np.random.normal()  # takes the second number of the pair: only the cache moves
    assert watch.moved()
    random.random()
    assert watch.moved()
    packed = wire.pack_random()
    drawn = (np.random.normal(), random.gauss(0, 1))
    wire.set_random(there_and_back(packed))
    assert (np.random.normal(), random.gauss(0, 1)) == drawn


def test_one_object_met_twice_is_one_object() -> None:
    a = [1.5]
    x, y, (z,) = there_and_back([a, a, [a]])
    assert x is y is z


def test_object_arrays_may_hold_object_arrays() -> None:
    inner = np.array([1, "a"], object)
    outer = np.empty(2, object)
    outer[:] = [inner, inner]
    got = there_and_back(outer)
    assert got[0] is got[1] and got[0].tolist() == [1, "a"]


def test_a_table_forgets_the_oldest_values_beyond_its_limits() -> None:
    table = wire.Table()
    arrays = [np.zeros(10) for _ in range(5)]
    table.agree([table.add(array) for array in arrays])
    assert table.trim(most=3, most_bytes=1000) == [0, 1]
    assert table.trim(most=3, most_bytes=100) == [2, 3]
    assert table.number(arrays[0]) is None and table.number(arrays[4]) == 4
    arrays[0][0] = arrays[4][0] = 1
    assert table.changed() == [4]


def test_an_answer_may_name_the_arguments() -> None:
    array, items = np.ones(3), [1, 2]
    ask = wire.Encoder(wire.no_handle)
    request = ask.encode([array, items])
    far = wire.Decoder(ask.buffers, refuse)
    got_array, got_items = far.decode(request)
    got_items.append(got_array)
    reply = wire.Encoder(wire.no_handle, far.table)
    changed, answer = reply.again(2), reply.encode((got_items, got_array))
    near = wire.Decoder(reply.buffers, refuse, ask.table)
    near.write_back(2, changed)
    result = near.decode(answer)
    assert result[0] is items and result[1] is array and items[2] is array


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_array([1.0], [True]),
        np.zeros(2, [("a", float)]),
        np.broadcast_to(1.0, (10**6, 10**4)),
        1 << (1 << 20),
        object(),
        [[]] * 0 + [lambda: 0],
    ],
    ids=["masked", "structured", "huge", "huge integer", "object", "function"],
)
def test_what_is_not_plain_data_is_refused_by_the_sender(value: Any) -> None:
    with pytest.raises(wire.Unsendable):
        there_and_back(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    a: list[Any] = []
    a.append(a)
    with pytest.raises(wire.Unsendable):
        there_and_back(a)


def test_long_doubles_are_rounded_by_the_sender() -> None:
    assert there_and_back(np.ones(2, np.longdouble)).dtype == np.float64


# --------------------------------------------------------------------------- hostile bytes

TAGS = [*wire._READERS, "h", "o", "k", "?", ""]
ATOMS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 700), st.text(max_size=4), st.sampled_from(TAGS),
    st.sampled_from(["0x1.8p+1", "nan", "-0x5", "<f8", "|b1", "<U3", "<M8[ns]", "PCG64", "f16"]),
)  # fmt: skip
NODES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.tuples(st.sampled_from(TAGS), inner, inner).map(list),
        st.lists(inner, max_size=5).flatmap(
            lambda rest: st.sampled_from(TAGS).map(lambda tag: [tag, *rest])
        ),
    ),
    max_leaves=25,
)
BUFFERS = st.lists(st.binary(max_size=64), max_size=4)


@given(NODES, BUFFERS)
@settings(max_examples=1500, deadline=None)
def test_no_node_does_anything_but_become_plain_data_or_be_refused(node: Any, buffers: Any) -> None:
    try:
        value = wire.Decoder(buffers, refuse).decode(node)
    except wire.WireError:
        return
    there_and_back(value)


@given(VALUES, st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_message_is_refused_or_still_plain(value: Any, data: st.DataObject) -> None:
    encoder = wire.Encoder(wire.no_handle)
    text = bytearray(json.dumps(encoder.encode(value)).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(wire.WireError):
        wire.Decoder(encoder.buffers, refuse).decode(wire.parse(bytes(text)))


@given(st.binary(max_size=300))
@settings(max_examples=500, deadline=None)
def test_no_stream_does_anything_but_be_read_or_refused(stream: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(stream)
        theirs.close()
        channel = wire.Channel(ours)
        with pytest.raises((wire.WireError, EOFError)):
            while True:
                channel.receive()


@pytest.mark.parametrize(
    "text",
    [b"[" * 10**6, b"9" * 10**6, b"NaN", b"1.5", b"Infinity", b"\xff\xfe", b'{"a":', b""],
)
def test_a_head_that_is_not_a_message_is_refused(text: bytes) -> None:
    with pytest.raises(wire.WireError):
        wire.parse(text)


@pytest.mark.parametrize(
    "node",
    [
        ["=", 0],
        ["=", -1],
        ["=", True],
        ["l", ["=", 0]],
        ["a", "|O", [1], 0, False, True],
        ["a", "<f8", [-1], 0, False, True],
        ["a", "<f8", [1 << 40, 1 << 40], 0, False, True],
        ["a", "<f8", [1], -1, False, True],
        ["a", "<f8", [1], 0, 0, True],
        ["g", "<U3", 0],
        ["n", ["__class__"], None],
        ["n", ["a b"], None],
        ["n", ["_fields"], None],
        ["T", "os.system"],
        ["T", "eval"],
        ["D", "O"],
        ["R", "__init__", ["d"]],
        ["M", 3, 0, None],
        ["O", [2], ["h", 1, "function", "f", None, None]],
        ["d", [["l"], None]],
        ["s", *[["i", hex(i * ((1 << 61) - 1))] for i in range(1000)]],
        ["i", "0x" + "f" * (1 << 20)],
        ["i", "12_3x"],
        ["f", ["f"]],
    ],
    ids=str,
)
def test_each_known_trick_is_refused(node: Any) -> None:
    with pytest.raises(wire.WireError):
        wire.Decoder([b"\xff" * 12], refuse).decode(node)


def test_a_boolean_is_true_or_false() -> None:
    decoded = wire.Decoder([b"\x00\x01\x02\xff"], refuse).decode(["a", "|b1", [4], 0, False, True])
    assert decoded.view(np.uint8).tolist() == [0, 1, 1, 1]


def test_field_names_hide_nothing_of_a_tuple() -> None:
    decoded = wire.Decoder([], refuse).decode(["n", ["count", "index", "x"], "a", "b", "c"])
    assert decoded.count("a") == 1 and decoded.x == "c"


def test_too_many_values_are_refused_quickly() -> None:
    node: Any = ["l", *[["l"]] * 20]
    begun = time.monotonic()
    for _ in range(4):
        node = ["l", *[node] * 20]
    with pytest.raises(wire.WireError):
        wire.Decoder([], refuse).decode(node)
    assert time.monotonic() - begun < 30


def test_memory_grows_with_what_came_not_with_what_was_announced() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<IIQ", 2, 1, 200 << 20) + b"[]" + b"x" * 100)
        theirs.close()
        channel = wire.Channel(ours)
        with pytest.raises(EOFError):
            channel.receive()
        assert len(channel._ahead) < 1000


@pytest.mark.parametrize("announced", [(1 << 31, 0), (0, 1 << 31), (10, 200_000)])
def test_a_frame_beyond_the_limits_is_refused_at_its_first_bytes(announced: Any) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(struct.pack("<II", *announced))
        with pytest.raises(wire.WireError):
            wire.Channel(ours).receive()


def test_a_slow_sender_is_looked_at_after_every_part() -> None:
    ours, theirs = socket.socketpair()
    looks = []

    def look() -> None:
        looks.append(1)
        if len(looks) < 5:
            theirs.sendall(b" ")
        else:
            raise TimeoutError

    with ours, theirs:
        theirs.sendall(struct.pack("<II", 100, 0))
        with pytest.raises(TimeoutError):
            wire.Channel(ours, look, tick=0.01).receive()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (np.ones(2), np.ones(3)),
        (np.ones(2), [1.0, 1.0]),
        ([1], (1,)),
        ({}, []),
        (1, 2),
        (random.Random(1), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_change_of_another_kind_is_refused(old: Any, new: Any) -> None:
    with pytest.raises(wire.WireError):
        wire.write_back(old, new)


def test_a_read_only_argument_cannot_be_changed() -> None:
    old = np.ones(2)
    old.flags.writeable = False
    with pytest.raises(wire.WireError):
        wire.write_back(old, np.zeros(2))


def test_a_short_run_of_the_fuzz_target() -> None:
    from fuzz_wire import one

    rng = random.Random(int(time.time()))
    seeds = [
        b'["value",["a","<f8",[2],0,false,true],[],[],null]\0' + bytes(16),
        b'[["d",["k",["i","0x1"]]],["n",["a"],["f","nan"]],["R","PCG64",["d"]]]\0',
        b'[["M",3,0,null],["O",[1],["=",0]],["L",0],["r",null,["i","1"],null]]\0' + bytes(2500),
    ]
    until = time.monotonic() + 3
    while time.monotonic() < until:
        data = bytearray(rng.choice(seeds))
        for _ in range(rng.randint(1, 8)):
            where = rng.randrange(len(data))
            data[where : where + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
            if rng.random() < 0.3:
                data[where:where] = rng.choice(seeds)[: rng.randint(0, 40)]
        one(bytes(data))
