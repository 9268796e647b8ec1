"""The strict wire between the trusted process T and the student's process S.

Never pickle. A message is one frame: a JSON head and raw buffers, every length announced and
limited. A value in the head is a *node*: null, true, false, a string, or a list that begins with
a tag. `Decoder` trusts nothing that it reads: it builds exact builtin types and exact arrays of a
fixed set of dtypes, and whatever else arrives is a `WireError`. So a lying subclass becomes the
plain array it holds, and nothing that S sends can run code in T.

Mutable values are numbered in the order in which they are met. Both ends keep the same `Table`, so
that a reply can say "your third argument" (`["=", 2]`): a function that returns its own argument
returns it, and changes in place find their way to the other side, also between calls: as long as
one side still holds what it was given, each tells the other when its own has changed.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import math
import operator
import random
import re
import socket
import struct
import sys
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

MAX_FRAME = 256 << 20  # bytes of one message
MAX_HEAD = 16 << 20  # bytes of its JSON head
MAX_BUFFERS = 100_000
MAX_DEPTH = 40  # nesting of lists, tuples, dicts
MAX_NODES = 1_000_000  # values in one message
MAX_INT_BITS = 1 << 16
MAX_SAME_HASH = 64  # keys of one dict or set that share a hash: more is an attack on T's time
MANY = 4  # floats in a list from which on they travel as one buffer
READ_STEP = 1 << 18  # memory grows with the bytes that came, not with those announced

Node = Any
Head = list[Any]


class WireError(Exception):
    """What arrived, or what should be sent, is not plain data within the limits."""


class Unsendable(WireError, TypeError):
    """A value that is not plain data; the text tells its owner what to do instead."""


# ------------------------------------------------------------------------------------ frames


class Channel:
    """Framed messages over a blocking stream socket.

    `check`, if given, is called whenever nothing has come for `tick` seconds, and after every
    part of a message: T looks at S's limits there, so that a peer which sends one byte a minute
    cannot hold T longer than one which sends nothing.
    """

    def __init__(
        self, sock: socket.socket, check: Callable[[], None] | None = None, tick: float = 0.0
    ):
        self.sock = sock
        self.check = check
        self.received = 0  # bytes of the last message
        self._ahead = bytearray()  # what has come of the next message
        if tick:
            seconds = struct.pack("ll", int(tick), int(tick % 1 * 1e6))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)

    def send(self, head: Head, buffers: Sequence[bytes] = ()) -> None:
        """Send one message; raises Unsendable if it is too large, OSError if the peer is gone."""
        text = _JSON.encode(head).encode()
        sizes = [len(b) for b in buffers]
        if len(text) > MAX_HEAD or len(sizes) > MAX_BUFFERS or len(text) + sum(sizes) > MAX_FRAME:
            raise Unsendable(f"more than {MAX_FRAME >> 20} MB cannot be handed over at once")
        lengths = struct.pack(f"<II{len(sizes)}Q", len(text), len(sizes), *sizes)
        self.sock.sendall(b"".join([lengths, text, *buffers]))

    def receive(self) -> tuple[Any, list[bytearray]]:
        """Receive one message; raises EOFError if the peer is gone, WireError if it is wrong."""
        head_size, count = struct.unpack("<II", self._read(8))
        if head_size > MAX_HEAD or count > MAX_BUFFERS:
            raise WireError("a frame beyond the limits")
        sizes = struct.unpack(f"<{count}Q", self._read(8 * count))
        self.received = head_size + sum(sizes)
        if self.received > MAX_FRAME:
            raise WireError("a frame beyond the limits")
        text = self._read(head_size)
        return parse(bytes(text)), [self._read(size) for size in sizes]

    def _read(self, size: int) -> bytearray:
        while len(self._ahead) < size:
            try:
                chunk = self.sock.recv(READ_STEP)
            except BlockingIOError:  # a tick has passed
                chunk = None
            if chunk == b"":
                raise EOFError("the other process closed the channel")
            if self.check and (chunk is None or len(self._ahead) + len(chunk) < size):
                self.check()
            self._ahead += chunk or b""
        data = self._ahead[:size]
        del self._ahead[:size]
        return data


def parse(text: bytes) -> Any:
    """Read a JSON head; numbers other than small integers and NaN constants are refused."""
    try:
        return _STRICT.decode(text.decode())
    except (ValueError, RecursionError) as error:
        raise WireError(f"not a message ({type(error).__name__})") from None


def _refuse(text: str) -> None:
    raise ValueError(text)


def _small_int(text: str) -> int:
    if len(text) > 19:
        raise ValueError(text)
    return int(text)


_JSON = json.JSONEncoder(separators=(",", ":"))
_STRICT = json.JSONDecoder(
    parse_float=_refuse, parse_constant=_refuse, parse_int=_small_int, strict=False
)


# ------------------------------------------------------------------------------------ dtypes

_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|c(8|16)|[US]\d{1,6}|[mM]8(\[\d{0,4}[a-z]+\])?)")
_LONG = {"f": np.dtype(np.float64), "c": np.dtype(np.complex128)}

_BUILTIN_TYPES = "int float bool str complex list tuple dict set bytes object type".split()
_NUMPY_TYPES = (
    "float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool_ "
    "complex64 complex128 longdouble"
).split()
TYPES: dict[str, type] = {name: getattr(builtins, name) for name in _BUILTIN_TYPES}
TYPES.update({f"numpy.{name}": getattr(np, name) for name in _NUMPY_TYPES})
_TYPE_NAMES = {kind: name for name, kind in TYPES.items()}

_BIT_GENERATORS = {
    kind.__name__: kind
    for kind in (
        np.random.PCG64,
        np.random.PCG64DXSM,
        np.random.MT19937,
        np.random.Philox,
        np.random.SFC64,
    )
}


def _known_dtype(text: Any) -> np.dtype:
    if type(text) is not str or not _DTYPE.fullmatch(text):
        raise WireError("an unknown dtype")
    return np.dtype(text)


def _plain_array(x: np.ndarray) -> np.ndarray:
    """Return `x` as an exact ndarray of a dtype that may travel, or raise Unsendable."""
    if isinstance(x, np.ma.MaskedArray):
        raise Unsendable("a masked array is not plain numbers; use np.ma.filled(x, value)")
    x = np.asarray(x)
    if x.dtype.kind in _LONG and x.dtype.itemsize > _LONG[x.dtype.kind].itemsize:
        # Raw long doubles have bit patterns that compare as nothing sane: round in the sender.
        x = x.astype(_LONG[x.dtype.kind])
    if x.dtype.kind != "O" and not _DTYPE.fullmatch(x.dtype.str):
        raise Unsendable(f"an array of dtype {x.dtype} is not plain numbers")
    return x


# ------------------------------------------------------------- values that both sides hold


class Table:
    """The mutable values that both sides know by number, and what each held when both agreed.

    A value stays in the table while the side that was given it holds it anywhere outside: its
    `Parcel` tells by counting references. So a function that keeps its argument, or hands out its
    own list, shares it with the test as it would in one process.
    """

    def __init__(self) -> None:
        self.values: dict[int, Any] = {}
        self.next = 0
        self.agreed: dict[int, Any] = {}  # number → snapshot
        self.parcels: list[Parcel] = []
        self._numbers: dict[int, int] = {}  # id → number

    def add(self, value: Any) -> int:
        """Give a value the next number."""
        number = self.next
        self.next += 1
        self.put(number, value)
        return number

    def put(self, number: int, value: Any) -> None:
        """Let a number stand for a value."""
        if number in self.values:
            self.forget([number])
        self.values[number] = value
        self._numbers[id(value)] = number

    def number(self, value: Any) -> int | None:
        """Return a value's number, None if it has none."""
        return self._numbers.get(id(value))

    def forget(self, numbers: Iterable[int]) -> None:
        """Take values out of the table; unknown numbers are ignored."""
        for number in list(numbers):
            if number in self.values:
                self._numbers.pop(id(self.values.pop(number)), None)
            self.agreed.pop(number, None)

    def rewind(self, number: int) -> None:
        """Take out everything from this number on: it was never sent."""
        self.forget([n for n in self.values if n >= number])
        self.next = number

    def given_up(self) -> list[int]:
        """Forget what was received and is no longer held here; return the numbers."""
        kept: list[Parcel] = []
        numbers: list[int] = []
        for parcel in self.parcels:
            if parcel.held():
                kept.append(parcel)
            else:
                numbers += [number for number in parcel.numbers if number in self.values]
        self.parcels = kept
        self.forget(numbers)
        return numbers

    def agree(self, numbers: Iterable[int]) -> None:
        """Remember what these values hold now: both sides have the same."""
        self.agreed.update(self._look(n for n in numbers if n in self.values))

    def changed(self) -> list[int]:
        """Return the numbers of the values that no longer hold what both sides agreed on."""
        now = self._look(self.agreed)
        return [number for number, old in self.agreed.items() if now[number] != old]

    def trim(self, most: int, most_bytes: int) -> list[int]:
        """Forget the oldest values while there are too many; return their numbers."""
        sizes = {n: sum(map(len, seen[1])) for n, seen in self.agreed.items() if seen}
        kept, gone = sum(sizes.values()), []
        for number in self.values:
            if len(self.values) - len(gone) <= most and kept <= most_bytes:
                break
            kept -= sizes.get(number, 0)
            gone.append(number)
        self.forget(gone)
        return gone

    def _look(self, numbers: Iterable[int]) -> dict[int, Any]:
        """Return what values hold now, to compare with `==`; None where that cannot be said."""
        seen: dict[int, Any] = {}
        encoder = None
        for number in numbers:
            quick = self._quick_look(self.values[number])
            if quick is not None:
                seen[number] = quick
                continue
            encoder = encoder or Encoder(lambda x: ["?", id(x)], self._glance())
            encoder.buffers = []
            try:
                seen[number] = (encoder.contents(number), encoder.buffers)
            except (Unsendable, RecursionError):
                seen[number] = None
        return seen

    def _quick_look(self, value: Any) -> Any:
        """Return what the most frequent kinds of values hold, None for the others."""
        if type(value) is np.ndarray and value.dtype.kind in "biufc":
            return (value.shape, value.dtype.str), [value.tobytes()]
        if type(value) is list:
            kinds = set(map(type, value))
            if kinds <= _IMMUTABLE:
                return _Items(value), []
            if kinds <= _NUMBERED:  # lists of rows: what the rows hold is looked at by itself
                numbers = list(map(self.number, value))
                return None if None in numbers else (("=", numbers), [])
        return None

    def _glance(self) -> Table:
        """Return a copy to look at values with: what it numbers, the other side never learns."""
        glance = Table()
        glance.values, glance.next = dict(self.values), self.next
        glance._numbers = dict(self._numbers)
        return glance


_IMMUTABLE = {int, float, complex, bool, str, type(None)}
_NUMBERED = {list, dict, np.ndarray}


class _Items(list):
    """Immutable items: equal if each is the same object (1, 1.0 and True would be equal)."""

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, _Items) and len(self) == len(other)
        return same and all(map(operator.is_, self, other))

    def __ne__(self, other: object) -> bool:
        return not self == other


class Parcel:
    """Values that one message brought: kept in the table while anything outside holds one."""

    def __init__(self, table: Table, first: int, holder: list[Any], tuples: list[tuple]) -> None:
        self.numbers = [n for n in table.values if n >= first]
        self._holder = holder  # keeps the references among the values as they are
        self._parts = [*(table.values[n] for n in self.numbers), *tuples]
        self._alone = self._count()

    def held(self) -> bool:
        """Tell whether one of the values has more references than when it came."""
        return any(now > alone for now, alone in zip(self._count(), self._alone, strict=True))

    def _count(self) -> list[int]:
        return list(map(sys.getrefcount, self._parts))


# ----------------------------------------------------------------------------------- encoder


class Encoder:
    """Turns values into nodes and buffers.

    `handle(x)` returns the node of a value that is not plain data, or raises Unsendable.
    `table` holds the mutable values that both sides know.
    """

    def __init__(self, handle: Callable[[Any], Node], table: Table | None = None):
        self.handle = handle
        self.buffers: list[bytes] = []
        self.table = Table() if table is None else table
        self._open: set[int] = set()
        self._depth = 0

    def encode(self, x: Any) -> Node:
        """Return the node of `x`."""
        if x is None or type(x) in (bool, str):
            return x
        known = self.table.number(x)
        if known is not None:
            if known in self._open:
                raise Unsendable("a value that contains itself cannot be handed over")
            return ["=", known]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unsendable(f"a value nested more than {MAX_DEPTH} deep cannot be handed over")
        try:
            return self._encode(x)
        finally:
            self._depth -= 1

    def contents(self, number: int) -> Node:
        """Return the node of what this value holds now (not a reference to it)."""
        self._open.add(number)
        try:
            return self._mutable(self.table.values[number])
        finally:
            self._open.discard(number)

    def again(self, number: int) -> Node:
        """Return the node of a new value that holds what this one holds now."""
        first = self.table.next
        self.table.next += 1  # the other side gives the new value a number
        node = self.contents(number)
        self.table.forget(range(first, self.table.next))  # as `Decoder.write_back` does
        return node

    def apart(self) -> Encoder:
        """Return an encoder for a part of the same message that has nothing in common with it."""
        other = Encoder(self.handle)
        other.buffers = self.buffers
        return other

    def _encode(self, x: Any) -> Node:
        if _is_mutable(x):
            return self.contents(self.table.add(x))
        return self._immutable(x)

    def _mutable(self, x: Any) -> Node:
        if isinstance(x, np.ndarray):
            return self._array(x)
        if isinstance(x, list):
            if type(x) is list and len(x) >= MANY and set(map(type, x)) == {float}:
                self.buffers.append(array("d", x).tobytes())
                return ["L", len(self.buffers) - 1]
            return ["l", *map(self.encode, list.__iter__(x))]
        if isinstance(x, dict):
            return ["d", *([self.encode(k), self.encode(v)] for k, v in dict.items(x))]
        if isinstance(x, set):
            return ["s", *map(self.encode, set.__iter__(x))]
        if isinstance(x, np.random.Generator):
            bits = x.bit_generator
            return ["R", type(bits).__name__, self.fresh(bits.state)]
        version, words, gauss = x.getstate()
        self.buffers.append(np.array(words, np.uint32).tobytes())
        return ["M", version, len(self.buffers) - 1, self.encode(gauss)]

    def fresh(self, x: Any) -> Node:
        """Encode throw-away containers (a generator's state) without numbering them."""
        if isinstance(x, dict):
            return ["d", *([k, self.fresh(v)] for k, v in x.items())]
        if isinstance(x, np.ndarray):
            return self._array(x)
        return self._immutable(x) if not isinstance(x, (str, type(None))) else x

    def _array(self, x: np.ndarray) -> Node:
        plain = _plain_array(x)
        if plain.dtype.kind == "O":
            if plain.size > MAX_NODES // 10:
                raise Unsendable("an object array this large is not plain numbers")
            return ["O", list(plain.shape), *map(self.encode, plain.ravel().tolist())]
        if plain.nbytes > MAX_FRAME:
            raise Unsendable(f"an array of more than {MAX_FRAME >> 20} MB cannot be handed over")
        fortran = plain.flags.f_contiguous and not plain.flags.c_contiguous
        self.buffers.append(plain.tobytes("F" if fortran else "C"))
        where = len(self.buffers) - 1
        return ["a", plain.dtype.str, list(plain.shape), where, fortran, bool(x.flags.writeable)]

    def _immutable(self, x: Any) -> Node:
        kind = type(x)
        if kind is int:
            return self._int(x)
        if kind is float:
            return ["f", x.hex()]
        if kind is complex:
            return ["c", x.real.hex(), x.imag.hex()]
        if isinstance(x, np.generic):
            plain = _plain_array(np.asarray(x))
            if plain.dtype.kind == "O":
                raise Unsendable("a numpy object scalar is not plain data")
            self.buffers.append(plain.tobytes())
            return ["g", plain.dtype.str, len(self.buffers) - 1]
        if kind in (bytes, bytearray):
            self.buffers.append(bytes(x))
            return ["b", len(self.buffers) - 1]
        if isinstance(x, tuple):
            return self._tuple(x)
        if isinstance(x, frozenset):
            return ["z", *map(self.encode, frozenset.__iter__(x))]
        if kind is slice:
            return ["r", self.encode(x.start), self.encode(x.stop), self.encode(x.step)]
        if x is Ellipsis:
            return ["."]
        if isinstance(x, np.dtype) and _DTYPE.fullmatch(x.str):
            return ["D", x.str]
        if isinstance(x, type) and x in _TYPE_NAMES:
            return ["T", _TYPE_NAMES[x]]
        for base in (bool, int, float, complex, str):  # IntEnum, a subclass of str …
            if isinstance(x, base):
                return self.encode(base(x))
        return self.handle(x)

    def _int(self, x: int) -> Node:
        if x.bit_length() > MAX_INT_BITS:
            raise Unsendable(f"an integer of more than {MAX_INT_BITS} bits cannot be handed over")
        return ["i", hex(x)]

    def _tuple(self, x: tuple) -> Node:
        values = [self.encode(y) for y in tuple.__iter__(x)]
        fields = getattr(type(x), "_fields", None)
        if isinstance(fields, tuple) and all(type(f) is str for f in fields):
            return ["n", list(fields), *values]
        return ["t", *values]


def _is_mutable(x: Any) -> bool:
    containers = (np.ndarray, list, dict, set, np.random.Generator)
    return isinstance(x, containers) or type(x) is random.Random


# ----------------------------------------------------------------------------------- decoder


class FieldTuple(tuple):
    """A named tuple that arrived: a tuple, with its fields as attributes where none is in the way.

    The names come from S: they are looked up only after every attribute of `tuple`.
    """

    def __new__(cls, fields: list[str], values: list[Any]) -> FieldTuple:
        """Return the tuple of `values`, the i-th also called `fields[i]`."""
        self = super().__new__(cls, values)
        self.__dict__["_fields"] = tuple(fields)
        return self

    def __getattr__(self, name: str) -> Any:
        """Return the value of the field `name`."""
        fields = self.__dict__.get("_fields", ())
        if name in fields:
            return self[fields.index(name)]
        raise AttributeError(name)


class Decoder:
    """Turns nodes and buffers into values; raises WireError and nothing else.

    `handle(node)` returns the value of a tag that is not plain data, or raises WireError.
    """

    def __init__(
        self,
        buffers: Sequence[bytes | bytearray],
        handle: Callable[[Node], Any],
        table: Table | None = None,
    ):
        self.buffers = buffers
        self.handle = handle
        self.table = Table() if table is None else table
        self._first = self.table.next
        self._tuples: list[tuple] = []
        self._open: set[int] = set()
        self._depth = 0
        self._nodes = 0

    def decode(self, node: Node) -> Any:
        """Return the value of `node`."""
        try:
            return self._decode(node)
        except WireError:
            raise
        except (RecursionError, MemoryError, ArithmeticError, LookupError) as error:
            raise WireError(f"a wrong value ({type(error).__name__})") from None
        except (TypeError, ValueError, AttributeError, SystemError) as error:
            raise WireError(f"a wrong value ({type(error).__name__})") from None

    def _decode(self, node: Node) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise WireError("too many values")
        if node is None or type(node) in (bool, str):
            return node
        if type(node) is not list or not node or type(node[0]) is not str:
            raise WireError("not a value")
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise WireError("nested too deeply")
        try:
            read = _READERS.get(node[0])
            return read(self, node) if read else self.handle(node)
        finally:
            self._depth -= 1

    def parcel(self, holder: list[Any]) -> None:
        """Let the table watch over what was decoded. `holder` has the only references to it."""
        if self.table.next > self._first:
            parcel = Parcel(self.table, self._first, holder, self._tuples)
            self.table.parcels.append(parcel)

    def write_back(self, number: Any, node: Node) -> None:
        """Make a value hold what the other side says that its own holds now.

        A number that this side has forgotten meanwhile is passed over.
        """
        if type(number) is not int:
            raise WireError("a change of nothing")
        first, new = self.table.next, self.decode(node)
        if number in self.table.values:
            write_back(self.table.values[number], new)
        # What the new contents hold lives inside an older value: it needs no number of its own.
        self.table.forget(range(first, self.table.next))

    def apart(self) -> Decoder:
        """Return a decoder for what `Encoder.apart` encoded."""
        return Decoder(self.buffers, self.handle)

    def _number(self, value: Any) -> int:
        """Give a mutable value the next number; it may be referred to once it is complete."""
        return self.table.add(value)

    def _buffer(self, where: Any) -> bytearray | bytes:
        if type(where) is not int or not 0 <= where < len(self.buffers):
            raise WireError("no such buffer")
        return self.buffers[where]

    def _reference(self, node: Node) -> Any:
        (index,) = node[1:]
        if type(index) is not int or index not in self.table.values or index in self._open:
            raise WireError("a reference to nothing")
        return self.table.values[index]

    def _int(self, node: Node) -> int:
        (text,) = node[1:]
        if type(text) is not str or len(text) > MAX_INT_BITS // 4 + 4:
            raise WireError("a wrong integer")
        return int(text, 16)

    def _float(self, node: Node) -> float:
        (text,) = node[1:]
        return float.fromhex(text)

    def _complex(self, node: Node) -> complex:
        real, imag = node[1:]
        return complex(float.fromhex(real), float.fromhex(imag))

    def _bytes(self, node: Node) -> bytes:
        (where,) = node[1:]
        return bytes(self._buffer(where))

    def _scalar(self, node: Node) -> Any:
        dtype, where = node[1:]
        return self._numbers(dtype, (), where, fortran=False)[()]

    def _array(self, node: Node) -> np.ndarray:
        dtype, shape, where, fortran, writeable = node[1:]
        if type(fortran) is not bool or type(writeable) is not bool:
            raise WireError("a wrong array")
        array = self._numbers(dtype, _shape(shape), where, fortran)
        array.flags.writeable = writeable
        self._number(array)
        return array

    def _numbers(self, text: Any, shape: tuple[int, ...], where: Any, fortran: bool) -> np.ndarray:
        dtype, raw = _known_dtype(text), self._buffer(where)
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise WireError("a size that does not fit its shape")
        if dtype.kind == "b":
            raw = (np.frombuffer(raw, np.uint8) != 0).tobytes()  # no boolean but 0 and 1
        if dtype.itemsize == 0:
            return np.zeros(shape, dtype)
        flat = np.frombuffer(raw, dtype)
        if dtype.kind == "U":
            points = np.frombuffer(raw, np.dtype("u4").newbyteorder(dtype.byteorder))
            if points.size and points.max() > 0x10FFFF:
                raise WireError("a wrong character")
        order = "F" if fortran else "C"
        return np.array(flat.reshape(shape, order=order), order=order)

    def _objects(self, node: Node) -> np.ndarray:
        shape = _shape(node[1])
        index = self._number(None)
        self._open.add(index)
        flat = np.empty(len(node) - 2, object)
        for i, item in enumerate(node[2:]):
            flat[i] = self._plain(item)
        array = flat.reshape(shape)
        self.table.put(index, array)
        self._open.discard(index)
        return array

    def _plain(self, node: Node) -> Any:
        """Decode an element of an object array: no handle, so that no comparison asks S."""
        handle, self.handle = self.handle, _no_handle
        try:
            return self._decode(node)
        finally:
            self.handle = handle

    def _list(self, node: Node) -> list:
        result: list[Any] = []
        index = self._number(result)
        self._open.add(index)
        result.extend(self._decode(item) for item in node[1:])
        self._open.discard(index)
        return result

    def _floats(self, node: Node) -> list:
        (where,) = node[1:]
        result = array("d", bytes(self._buffer(where))).tolist()
        self._number(result)
        return result

    def _dict(self, node: Node) -> dict:
        result: dict[Any, Any] = {}
        index = self._number(result)
        self._open.add(index)
        pairs = [(self._decode(key), self._decode(value)) for key, value in node[1:]]
        _check_hashes([key for key, _ in pairs])
        result.update(pairs)
        self._open.discard(index)
        return result

    def _set(self, node: Node) -> set:
        result: set[Any] = set()
        index = self._number(result)
        self._open.add(index)
        items = [self._decode(item) for item in node[1:]]
        _check_hashes(items)
        result.update(items)
        self._open.discard(index)
        return result

    def _frozenset(self, node: Node) -> frozenset:
        items = [self._decode(item) for item in node[1:]]
        _check_hashes(items)
        return frozenset(items)

    def _tuple(self, node: Node) -> tuple:
        self._tuples.append(tuple([self._decode(item) for item in node[1:]]))
        return self._tuples[-1]

    def _named(self, node: Node) -> FieldTuple:
        fields, values = node[1], [self._decode(item) for item in node[2:]]
        if type(fields) is not list or len(fields) != len(values) or len(fields) > 255:
            raise WireError("a wrong named tuple")
        if not all(type(f) is str and f.isidentifier() and f[0] != "_" for f in fields):
            raise WireError("a wrong named tuple")
        self._tuples.append(FieldTuple(fields, values))
        return self._tuples[-1]

    def _slice(self, node: Node) -> slice:
        start, stop, step = node[1:]
        return slice(self._decode(start), self._decode(stop), self._decode(step))

    def _ellipsis(self, node: Node) -> Any:
        return Ellipsis

    def _dtype(self, node: Node) -> np.dtype:
        (text,) = node[1:]
        return _known_dtype(text)

    def _type(self, node: Node) -> type:
        (name,) = node[1:]
        return TYPES[name]

    def _generator(self, node: Node) -> np.random.Generator:
        name, state = node[1:]
        bits = _BIT_GENERATORS[name]()
        bits.state = self._state(state)
        generator = np.random.Generator(bits)
        self._number(generator)
        return generator

    def _state(self, node: Node) -> Any:
        """Decode a bit generator's state: dicts of numbers and arrays, none of them numbered."""
        if type(node) is list and node and node[0] == "d":
            return {key: self._state(value) for key, value in node[1:] if type(key) is str}
        if type(node) is list and node and node[0] == "a":
            dtype, shape, where, fortran, _ = node[1:]
            return self._numbers(dtype, _shape(shape), where, bool(fortran))
        return self._plain(node)

    def _random(self, node: Node) -> random.Random:
        version, where, gauss = node[1:]
        words = np.frombuffer(self._buffer(where), np.uint32)
        if words.size != 625 or words[-1] > 624:
            raise WireError("a wrong random state")
        gauss = self._decode(gauss)
        if gauss is not None and type(gauss) is not float:
            raise WireError("a wrong random state")
        result = random.Random()
        result.setstate((version, tuple(words.tolist()), gauss))
        self._number(result)
        return result


_READERS: dict[str, Callable[[Decoder, Node], Any]] = {
    "=": Decoder._reference,
    "i": Decoder._int,
    "f": Decoder._float,
    "c": Decoder._complex,
    "b": Decoder._bytes,
    "g": Decoder._scalar,
    "a": Decoder._array,
    "O": Decoder._objects,
    "l": Decoder._list,
    "L": Decoder._floats,
    "d": Decoder._dict,
    "s": Decoder._set,
    "z": Decoder._frozenset,
    "t": Decoder._tuple,
    "n": Decoder._named,
    "r": Decoder._slice,
    ".": Decoder._ellipsis,
    "D": Decoder._dtype,
    "T": Decoder._type,
    "R": Decoder._generator,
    "M": Decoder._random,
}


def _no_handle(node: Node) -> Any:
    raise WireError("only plain data may stand here")


def no_handle(x: Any) -> Node:
    """Refuse to encode a value that is not plain data."""
    raise Unsendable(f"a value of type {type(x).__name__} is not plain data")


def _shape(shape: Any) -> tuple[int, ...]:
    if type(shape) is not list or len(shape) > 32:
        raise WireError("a wrong shape")
    if not all(type(size) is int and size >= 0 for size in shape):
        raise WireError("a wrong shape")
    return tuple(shape)


def _check_hashes(keys: list[Any]) -> None:
    """Refuse keys chosen to collide: building a dict of them would take quadratic time."""
    if len(keys) > MAX_SAME_HASH:
        ((_, most),) = Counter(map(hash, keys)).most_common(1)
        if most > MAX_SAME_HASH:
            raise WireError("keys that collide")


def write_back(old: Any, new: Any) -> None:
    """Make T's own argument hold what S says that it left in it; raises WireError."""
    if isinstance(old, np.ndarray) and isinstance(new, np.ndarray):
        if old.size != new.size or not old.flags.writeable:
            raise WireError("a change that the argument does not allow")
        if old.shape != new.shape:
            old.resize(new.shape, refcheck=False)  # of the same size: nothing moves
        old[...] = new
    elif type(old) is list and type(new) is list:
        old[:] = new
    elif (isinstance(old, dict) and type(new) is dict) or (type(old) is set and type(new) is set):
        old.clear()
        old.update(new)
    elif isinstance(old, np.random.Generator) and isinstance(new, np.random.Generator):
        old.bit_generator.state = new.bit_generator.state
    elif type(old) is random.Random and type(new) is random.Random:
        old.setstate(new.getstate())
    else:
        raise WireError("a change of another kind than the argument")


# --------------------------------------------------------------- the two global random states

_STATE_BYTES = 4 * 624 + 4  # of a Mersenne Twister: its words and its position


class GlobalRandom:
    """Notices when `random` or numpy's legacy generator has moved.

    Asking them for their states costs as much as all the rest of a call, so their memory is
    compared first. A cached second normal number is not in it: while there is one, ask in full.
    """

    def __init__(self) -> None:
        self._last: tuple[Any, ...] = ()
        self._cached = False
        self.moved()

    def moved(self) -> bool:
        """Tell whether a generator has moved since the last time this was asked."""
        cached = _normal_cache() if self._cached else None
        now = (_python_memory(), random._inst.gauss_next, _numpy_memory(), cached)
        moved = now != self._last
        if moved:
            cached = _normal_cache()
            self._cached = cached is not None
            self._last = (*now[:3], cached)
        return moved


def _numpy_memory() -> bytes:
    bits = np.random.get_bit_generator()
    if not isinstance(bits, np.random.MT19937):
        return repr(bits.state).encode()
    return ctypes.string_at(bits.ctypes.state_address, _STATE_BYTES)


def _python_memory() -> Any:
    if not _KNOWN_LAYOUT:
        return random.getstate()
    return ctypes.string_at(id(random._inst) + object.__basicsize__, _STATE_BYTES)


def _layout_is_known() -> bool:
    """Tell whether Python keeps its generator as CPython does: the position, then the words."""
    if sys.implementation.name != "cpython":
        return False
    *words, position = random.getstate()[1]
    expected = array("I", [position, *words]).tobytes()
    return ctypes.string_at(id(random._inst) + object.__basicsize__, _STATE_BYTES) == expected


_KNOWN_LAYOUT = _layout_is_known()


def _normal_cache() -> float | None:
    state = np.random.get_state(legacy=False)
    return state["gauss"] if state["has_gauss"] else None


def pack_random() -> list[Any]:
    """Return the states of both global generators as plain data."""
    version, words, gauss = random.getstate()
    _, key, position, has_gauss, cached = np.random.get_state()
    numpy_state = [np.asarray(key), int(position), int(has_gauss), float(cached)]
    return [*numpy_state, version, np.array(words, np.uint32), gauss]


def set_random(packed: Any) -> None:
    """Set both global generators from `pack_random`'s data; raises WireError."""
    try:
        key, position, has_gauss, cached, version, words, gauss = packed
        if key.size != 624 or words.size != 625 or words[-1] > 624 or not 0 <= position <= 624:
            raise WireError("a wrong random state")
        if gauss is not None and type(gauss) is not float:
            raise WireError("a wrong random state")
        np.random.set_state(("MT19937", key, position, has_gauss, cached))
        random.setstate((version, tuple(words.tolist()), gauss))
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise WireError(f"a wrong random state ({type(error).__name__})") from None
