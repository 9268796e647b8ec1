"""Process S: runs the student's cells and answers what T asks.

Nothing secret was ever in this process' memory, and nothing that it says decides a mark by
itself: T reads every answer as data. The requests are lists `[op, …]`:

    run     source, number                          a cell of the notebook
    name    name, news, settings                         the present value of a global name
    call    object, arguments, keywords, news, settings  a function
    measure like call                                    the same, with its peak of memory
    do      verb, object, arguments, news, settings      an attribute, an operator, an item …
    go, fetch, result, error                        the steps within a measurement, a callback

and the answers `ran`, `value`, `raised`, `callback`, `ready`, `done`. `news` are what T no longer
holds of what S gave it, what T has changed of what S holds, and the next number of the table.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import functools
import gc
import inspect
import itertools
import json
import operator
import os
import random
import re
import signal
import socket
import sys
import types
import warnings
from _tracemalloc import get_traced_memory, reset_peak
from _tracemalloc import start as start_tracing
from _tracemalloc import stop as stop_tracing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from headmaster import sandbox, shell, wire
from headmaster.job import Limits
from headmaster.proxies import SPECIALS

MAX_WARNINGS = 100  # warnings that one call may report
MAX_FRAMES = 20  # of the student's own in a traceback
MAX_TEXT = 2000  # characters of a docstring, a warning, an exception's argument


def _next(x: Any) -> tuple[bool, Any]:
    """Return whether there is another value, and it: a StopIteration cannot travel."""
    try:
        return True, next(x)
    except StopIteration:
        return False, None


def _reversed(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: function(y, x)


_BINARY = "add sub mul matmul truediv floordiv mod pow and or xor lshift rshift".split()
_OPERATORS = {name: getattr(operator, f"__{name}__") for name in _BINARY}

VERBS: dict[str, Callable[..., Any]] = {
    "getattr": getattr,
    "setattr": setattr,
    "isinstance": isinstance,
    "__array__": np.asarray,
    "__next__": _next,
    "__copy__": copy.copy,
    "__deepcopy__": copy.deepcopy,
    "__enter__": lambda x: type(x).__enter__(x),
    "__exit__": lambda x, *a: type(x).__exit__(x, *a),
    **{f"__{f.__name__}__": f for f in (str, float, int, complex, repr, len, iter, abs, round)},
    **{
        name: getattr(operator, name)
        for name in (
            "__getitem__ __setitem__ __delitem__ __index__ __neg__ __pos__ __invert__ "
            "__iadd__ __isub__ __imul__ __imatmul__ __itruediv__"
        ).split()
    },
    **{f"__{name}__": function for name, function in _OPERATORS.items()},
    **{f"__r{name}__": _reversed(function) for name, function in _OPERATORS.items()},
}

_CELL = re.compile(r"<ipython-input-(\d+)-")  # the file name that IPython gives to a cell

_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    functools.partial,
    functools._lru_cache_wrapper,
    np.ufunc,
)


class Server:
    """The loop of S."""

    def __init__(self, channel: wire.Channel, notebook: shell.Shell):
        self.channel = channel
        self.shell = notebook
        self.busy = False  # student code runs: an interrupt is meant for it
        self.objects: list[Any] = []  # what T holds proxies of, by number
        self.random = wire.GlobalRandom()
        self.table = wire.Table()
        self.nodes: dict[int, wire.Node] = {}  # id of an object → the node that describes it

    def serve(self) -> None:
        """Answer until T closes the channel."""
        signal.signal(signal.SIGINT, self._interrupt)
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                self._answer(*self.channel.receive())

    def _interrupt(self, *_: object) -> None:
        if self.busy:
            raise KeyboardInterrupt

    def _answer(self, head: wire.Head, buffers: list[bytearray]) -> None:
        if head[0] == "run":
            self._run(head[1], head[2])
        else:
            self._request(head, buffers)

    def _run(self, source: str, count: int) -> None:
        self.shell.execution_count = count
        try:
            self.busy = True
            outputs, ename, evalue = shell.run_cell(self.shell, source)
        except BaseException as error:  # SystemExit, or an interrupt at a bad moment
            outputs = self.shell.sink.end()
            ename, evalue = type(error).__name__, shell.safe_text(error)
        finally:
            self.busy = False
        self.channel.send(["ran", ename, evalue], [_json_of(outputs)])

    # ------------------------------------------------------------------ calls, attributes …

    def _request(self, head: wire.Head, buffers: list[bytearray]) -> None:
        outer, self.shell.sink = self.shell.sink, shell.Sink(self.shell.sink.most)
        try:
            if head[-2][0] is None:  # T starts over
                self.table = wire.Table()
            self._reply(head, wire.Decoder(buffers, self._object, self.table))
        finally:
            self.shell.sink = outer

    def _reply(self, head: wire.Head, decoder: wire.Decoder) -> None:
        first = self.table.next
        try:
            function, args, kwargs = self._understand(head, decoder)
            with self._settings(decoder.apart().decode(head[-1])):
                self.busy = True
                call = self._measured if head[0] == "measure" else _simply
                value = call(function, args, kwargs)
                self._send_value(value)
        except BaseException as error:
            self.busy = False
            self._send_error(error, head, first)
        finally:
            self.busy = False

    def _understand(
        self, head: wire.Head, decoder: wire.Decoder
    ) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
        """Return the function, the arguments and the keywords of a request; take T's news."""
        first = self.table.next
        given_up, changes, _ = head[-2]
        for number, node in changes:
            decoder.write_back(number, node)
        self.table.agree(number for number, _ in changes)
        self.table.forget(given_up or ())
        function, args, kwargs = self._meaning(head, decoder)
        decoder.parcel([args, kwargs])
        self.table.agree(range(first, self.table.next))
        return function, args, kwargs

    def _meaning(
        self, head: wire.Head, decoder: wire.Decoder
    ) -> tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]:
        if head[0] == "name":
            return self.shell.user_ns.__getitem__, [head[1]], {}
        if head[0] == "do":
            _, verb, number, args, _, _ = head
            return VERBS[verb], [self.objects[number], *decoder.decode(args)], {}
        _, number, args, kwargs, _, _ = head
        return self.objects[number], decoder.decode(args), decoder.decode(kwargs)

    @contextlib.contextmanager
    def _settings(self, settings: dict[str, Any]) -> Iterator[None]:
        """Put T's settings in force for one call: random state, np.errstate, warnings wanted."""
        if settings.get("random") is not None:
            wire.set_random(settings["random"])
        self.random.moved()  # what it is now is known; what the call changes is news
        with warnings.catch_warnings(), np.errstate(**(settings.get("errors") or {})):
            if settings.get("warnings"):
                warnings.simplefilter("always")
            warnings.showwarning = self._note_warning
            yield

    def _note_warning(
        self, message: Any, category: type, filename: str, lineno: int, *_: object
    ) -> None:
        noted = self.shell.sink.outputs
        if sum(o["output_type"] == "warning" for o in noted) < MAX_WARNINGS:
            names = [kind.__name__ for kind in category.__mro__]
            place = [str(filename)[:MAX_TEXT], int(lineno)]
            text = str(message)[:MAX_TEXT]
            noted.append({"output_type": "warning", "warning": [names, text, *place]})

    def _measured(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call `function` between T's two looks at this process' memory."""
        gc.collect()
        _give_memory_back()
        self._step("ready", "go")
        start_tracing(1)
        peak = 0
        try:
            before = get_traced_memory()[0]
            reset_peak()
            return function(*args, **kwargs)
        finally:
            peak = get_traced_memory()[1] - before
            stop_tracing()
            self._step(["done", max(0, int(peak))], "fetch")

    def _step(self, say: str | list[Any], expect: str) -> None:
        self.channel.send(say if isinstance(say, list) else [say])
        head, _ = self.channel.receive()
        if head[0] != expect:
            raise wire.WireError(expect)

    # --------------------------------------------------------------------------- answers

    def _send_value(self, value: Any) -> None:
        first, encoder = self.table.next, wire.Encoder(self._node, self.table)
        try:
            changed = self._changes(encoder)
            node = encoder.encode(value)
            rest = [changed, self._said(), self._random_moved(encoder)]
        except BaseException:
            self.table.rewind(first)
            raise
        self.busy = False
        self.table.agree(range(first, self.table.next))
        self.channel.send(["value", node, *rest, self.table.given_up()], encoder.buffers)

    def _send_error(self, error: BaseException, head: wire.Head, first: int) -> None:
        self._number_like_the_request(head, first)
        if isinstance(error, wire.Unsendable):
            error = TypeError(f"the result cannot be judged: {error}")
        arguments = tuple(map(_plain_argument, error.args[:20]))
        first, encoder = self.table.next, wire.Encoder(self._node, self.table)
        try:
            changed = self._changes(encoder)
            node = encoder.encode(arguments)
            moved = self._random_moved(encoder)
        except BaseException:  # what it left behind cannot be handed over
            self.table.rewind(first)
            encoder, changed, moved = wire.Encoder(self._node, self.table), [], None
            node = encoder.encode(arguments)
        names = [kind.__name__ for kind in type(error).__mro__]
        rest = [changed, self._said(), moved, self.table.given_up(), _own_frames(error)]
        self.channel.send(["raised", names, node, *rest], encoder.buffers)

    def _number_like_the_request(self, head: wire.Head, first: int) -> None:
        """After a request that could not be read to its end, go on with T's next number."""
        last = head[-2][-1]
        if self.table.next < last:
            self.table.rewind(first)
            self.table.next = last

    def _changes(self, encoder: wire.Encoder) -> list[list[Any]]:
        """Return `[number, new contents]` of each shared value that has changed here."""
        numbers = self.table.changed()
        changes = [[number, encoder.again(number)] for number in numbers]
        self.table.agree(numbers)
        return changes

    def _said(self) -> list[list[Any]]:
        """Return what was printed and warned during the call, in order."""
        said = []
        for output in self.shell.sink.end():
            if output["output_type"] == "stream":
                said.append([output["name"], output["text"]])
            elif output["output_type"] == "warning":
                said.append(["warning", *output["warning"]])
        return said

    def _random_moved(self, encoder: wire.Encoder) -> wire.Node:
        return encoder.apart().encode(wire.pack_random()) if self.random.moved() else None

    # -------------------------------------------------------------------- objects and names

    def _object(self, node: wire.Node) -> Any:
        """Return what T means by a node that is not plain data."""
        if node[0] == "o":
            return self.objects[node[1]]
        if node[0] == "k":
            return self._callback(node[1], node[2])
        raise wire.WireError(f"an unknown tag {node[0]}")

    def _callback(self, number: int, name: str) -> Callable[..., Any]:
        def callback(*args: Any, **kwargs: Any) -> Any:
            return self._ask(number, args, kwargs)

        callback.__name__ = callback.__qualname__ = name
        callback.__headmaster_callback__ = number
        return callback

    def _ask(self, number: int, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function of T's, and serve what it asks meanwhile."""
        encoder = wire.Encoder(self._node)
        nodes = [encoder.encode(list(args)), encoder.encode(kwargs)]
        busy, self.busy = self.busy, False
        self.channel.send(["callback", number, *nodes], encoder.buffers)
        while True:
            head, buffers = self.channel.receive()
            if head[0] in ("result", "error"):
                break
            self._answer(head, buffers)
        self.busy = busy
        value = wire.Decoder(buffers, self._object, encoder.table).decode(head[-1])
        if head[0] == "error":
            raise getattr(__import__("builtins"), head[1], Exception)(*value)
        return value

    def _node(self, x: Any) -> wire.Node:
        """Return the node of an object that T gets a proxy of."""
        node = self.nodes.get(id(x))
        if node is None:
            number = getattr(x, "__headmaster_callback__", None)
            if isinstance(x, types.FunctionType) and number is not None:
                return ["k", number]
            self.objects.append(x)
            node = ["h", len(self.objects) - 1, *self._description(x)]
            self.nodes[id(x)] = node
        return node

    def _description(self, x: Any) -> list[Any]:
        if isinstance(x, types.ModuleType):
            return ["module", x.__name__]
        if isinstance(x, type) and issubclass(x, BaseException):
            return ["exception", [kind.__name__ for kind in x.__mro__]]
        if isinstance(x, type):
            return ["class", x.__name__, _specials(x), _signature(x), _doc(x)]
        if isinstance(x, _FUNCTIONS):
            return ["function", getattr(x, "__name__", "function"), _signature(x), _doc(x)]
        return ["object", self._node(type(x)), _signature(x) if callable(x) else None]


def _simply(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return function(*args, **kwargs)


def _specials(kind: type) -> list[str]:
    own = [c for c in kind.__mro__ if c is not object]
    return [name for name in SPECIALS if any(name in vars(c) for c in own)]


def _signature(x: Any) -> list[list[Any]] | None:
    """Return `[name, kind, default]` of each parameter; None where Python cannot tell."""
    try:
        parameters = inspect.signature(x).parameters.values()
        return [[p.name, int(p.kind), _default(p)] for p in parameters][:100]
    except Exception:  # the student's code may lie in the way (__signature__, __text_signature__)
        return None


def _default(parameter: inspect.Parameter) -> list[Any]:
    value = parameter.default
    if value is inspect.Parameter.empty:
        return []
    if value is None or type(value) in (bool, int, float, str):
        with contextlib.suppress(wire.Unsendable):
            return [wire.Encoder(wire.no_handle).encode(value)]
    return [["."]]


def _doc(x: Any) -> str | None:
    doc = getattr(x, "__doc__", None)
    return doc[:MAX_TEXT] if type(doc) is str else None


def _own_frames(error: BaseException) -> list[list[Any]]:
    """Return `[cell number, line, function]` of each of the notebook's frames, the last ones."""
    frames = []
    trace = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        found = _CELL.match(code.co_filename)
        if found:
            frames.append([int(found[1]), trace.tb_lineno, code.co_name])
        trace = trace.tb_next
    return frames[-MAX_FRAMES:]


def _plain_argument(value: Any) -> Any:
    """Return an exception's argument as T gets it: plain and short, or as text."""
    if value is None or type(value) in (bool, int, float):
        return value
    try:
        return str(value)[:MAX_TEXT]
    except Exception:
        return f"a {type(value).__name__}"


def _json_of(outputs: list[Any]) -> bytes:
    """Return the outputs as JSON (a display of the student's own may hold anything)."""
    try:
        return json.dumps(outputs).encode()
    except (TypeError, ValueError, RecursionError):
        return json.dumps(outputs, default=repr, skipkeys=True).encode()


def _give_memory_back() -> None:
    """Return freed memory to the system, so that the measured call starts from what is in use."""
    if sandbox.LINUX:
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)


# -------------------------------------------------------------------------- the process itself


def run_student(
    sock: socket.socket,
    notebook: shell.Shell,
    request: dict[str, Any],
    readable: list[sandbox.OpenPath],
) -> None:
    """Turn this fresh fork into S, confined, and serve until T closes the channel."""
    scratch = Path(request["scratch"])
    limits = Limits(**request["limits"])
    _only_the_channel(sock, {path.fd for path in readable})
    channel = wire.Channel(socket.socket(fileno=3))
    layers = sandbox.confine(
        limits,
        request["total_cpu"],
        readable,
        scratch,
        request["walkable"],
        request["without"],
    )
    layers["namespaces"] = ", ".join(request["namespaces"]) or False
    os.closerange(4, 4096)
    os.chdir(scratch)
    os.environ.update(HOME=str(scratch), TMPDIR=str(scratch))
    sys.path.insert(0, "")
    sys.argv = [""]
    notebook.sink.most = limits.output_bytes
    shell.set_figures(notebook, request["figures"])
    shell.attach(notebook)
    random.seed(request["random"])
    np.random.seed(request["random"])
    channel.send(["hello", layers])
    Server(channel, notebook).serve()


def _only_the_channel(sock: socket.socket, keep: set[int]) -> None:
    """Make the channel descriptor 3, 0–2 nothing, and close all others but `keep`."""
    channel = os.dup(sock.detach())
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(nothing, fd)
    os.dup2(channel, 3)
    kept = sorted({3, *keep})
    for low, high in itertools.pairwise([*kept, 4096]):
        os.closerange(low + 1, high)
