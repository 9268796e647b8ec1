"""T's end of the channel to S: requests, limits, and the reading of what S answers.

Whatever S sends that is not a well-formed answer ends S, and the cell that asked has failed.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import json
import linecache
import signal
import socket
import struct
import sys
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headmaster import wire
from headmaster.gauge import Gauge, Measurement, disk_bytes
from headmaster.job import Limits
from headmaster.proxies import (
    RemoteType,
    StudentLeft,
    StudentStopped,
    make_class,
    make_function,
    make_instance,
    number_of,
)

ENDED = "ended (a crash, os._exit, or no memory left)"

SEND_SECONDS = 30  # that S may take to read on
POLL = 0.2  # seconds between looks at S's processor time and disk
MAX_NESTED = 50  # calls of the student's code from within callbacks from within …
MAX_LINES = 20  # of the student's own in a traceback
MAX_SAID = 1_000  # pieces of printed text and warnings of one call
MAX_SHARED = 256  # values that T watches for changes between calls
MAX_SHARED_BYTES = 64 << 20
MAX_SOURCE = 200_000  # characters of a student's cell that T looks into for its definitions


def _exceptions() -> dict[str, type[Exception]]:
    found = {
        name: kind
        for name, kind in vars(builtins).items()
        if isinstance(kind, type) and issubclass(kind, Exception)
    }
    for kind in (StopIteration, StopAsyncIteration, ExceptionGroup):
        found.pop(kind.__name__, None)
    found.update({kind.__name__: kind for kind in (np.linalg.LinAlgError, np.exceptions.AxisError)})
    return found


EXCEPTIONS = _exceptions()


class Client:
    """T's end of the channel to S."""

    def __init__(self, sock: socket.socket, gauge: Gauge, limits: Limits, scratch: Path):
        self.sock = sock
        self.channel = wire.Channel(sock, self._check, POLL)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_SECONDS, 0))
        self.gauge = gauge
        self.limits = limits
        self.scratch = scratch
        self.dead: str | None = None  # why S is gone
        self.requests = 0
        self.stopped: str | None = None  # why the present cell has failed, whatever it concludes
        self.proxies: dict[int, Any] = {}
        self.callbacks: list[Callable[..., Any]] = []
        self.sources: dict[int, tuple[str, str]] = {}  # number → id and text of S's cells
        self._places: dict[str, tuple[str, int]] | None = None
        self.own_streams: tuple[Any, ...] = ()  # what the student prints never goes there
        self._exceptions: dict[tuple[str, type], type[Exception]] = {}
        self._deadline = time.monotonic() + limits.wall_seconds
        self._cpu_limit = limits.cpu_seconds
        self._in_grace = False
        self._depth = 0
        self._random = wire.GlobalRandom()
        self._table = wire.Table()
        self._given_up: list[int] | None = []  # numbers that S has not been told of; None: all
        self._baseline = Baseline()

    # ----------------------------------------------------------------------------- limits

    def begin_cell(self) -> None:
        """Start the clocks of one cell."""
        self.stopped = None
        self._deadline = time.monotonic() + self.limits.wall_seconds
        self._cpu_limit = self.gauge.cpu_seconds() + self.limits.cpu_seconds

    def end_cell(self) -> None:
        """Look at what a cell has left: one that ended quickly was not looked at before."""
        with contextlib.suppress(StudentStopped):
            self._check_disk()

    def _check(self) -> None:
        """Look at what S has used while T waits; raises _LimitReached, or ends S."""
        if time.monotonic() > self._deadline:
            raise _LimitReached("took too long")
        if self._in_grace:
            return
        if self.gauge.cpu_seconds() > self._cpu_limit:
            limit = f"{self.limits.cpu_seconds:g} seconds of processor time"
            raise _LimitReached(f"used more than {limit}")
        self._check_disk()

    def _check_disk(self) -> None:
        most, files = self.limits.disk_bytes, self.limits.files
        if disk_bytes(self.scratch, most, files) >= most:
            self.kill(f"wrote more than {most >> 20} MB, or {files} files, to disk")
            raise StudentStopped(self.dead)

    def kill(self, why: str) -> None:
        """End S; the cell that runs has failed."""
        if self.dead is None:
            self.dead = self.stopped = why
            self.gauge.signal(signal.SIGKILL)

    def _receive(self) -> tuple[wire.Head, list[bytearray]]:
        """Receive S's next message. A late S is interrupted; one that goes on is killed."""
        try:
            try:
                head, buffers = self.channel.receive()
            except _LimitReached as limit:
                head, buffers = self._interrupt(limit)
        except wire.WireError as error:
            self.kill(f"sent what is not an answer ({error})")
            raise StudentStopped(self.dead) from None
        except (EOFError, OSError):
            self.kill(ENDED)
            raise StudentStopped(self.dead) from None
        if type(head) is not list or not head or type(head[0]) is not str:
            self.broken("an answer without a name")
        return head, buffers

    def _interrupt(self, limit: _LimitReached) -> tuple[wire.Head, list[bytearray]]:
        self.stopped = str(limit)
        self.gauge.signal(signal.SIGINT)
        self._deadline, self._in_grace = time.monotonic() + self.limits.grace_seconds, True
        try:
            return self.channel.receive()
        except _LimitReached:
            self.kill(f"{limit} and did not react to an interrupt")
            raise StudentStopped(self.dead) from None
        finally:
            self._in_grace = False

    def broken(self, what: str) -> None:
        """End S because it sent something else than an answer; raises StudentStopped."""
        self.kill(f"sent what is not an answer ({what})")
        raise StudentStopped(self.dead)

    def send(self, head: wire.Head, buffers: list[bytes]) -> None:
        """Send S a message; raises StudentStopped if S is gone or does not read."""
        self.requests += 1
        self.stopped = self.stopped or self.dead
        if self.stopped:
            raise StudentStopped(self.stopped)
        if time.monotonic() > self._deadline:
            self.stopped = "took too long"
            raise StudentStopped(self.stopped)
        try:
            self.channel.send(head, buffers)
        except BlockingIOError:
            self.kill("stopped reading")
            raise StudentStopped(self.dead) from None
        except OSError:
            self.kill(ENDED)
            raise StudentStopped(self.dead) from None

    # ------------------------------------------------------------------- cells and requests

    def hello(self) -> dict[str, bool | str]:
        """Return the layers of confinement that S reports before it runs any of its code."""
        head, _ = self._receive()
        if head[0] != "hello" or type(head[1]) is not dict:
            self.broken("no greeting")
        return head[1]

    def run(self, source: str, count: int) -> tuple[list[dict[str, Any]], str | None, str | None]:
        """Run a cell in S; returns its outputs and the name and text of what it raised."""
        self.send(["run", source, count], [])
        head, buffers = self._receive()
        if head[0] != "ran" or len(head) != 3 or len(buffers) != 1:
            self.broken("no outputs")
        ename, evalue = head[1:]
        if not all(text is None or type(text) is str for text in (ename, evalue)):
            self.broken("no outputs")
        try:
            outputs = clean_outputs(json.loads(buffers[0]), self.limits.output_bytes)
        except (ValueError, RecursionError):
            self.broken("no outputs")
        return outputs, ename and text_of(ename)[:200], evalue and text_of(evalue)[:10_000]

    def name(self, name: str) -> Any:
        """Return the present value of a name of the student's; raises KeyError if none."""
        return self._ask(["name", name], [], name=name)

    def call(self, number: int, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function of the student's."""
        return self._ask(["call", number], [args, kwargs])

    def do(self, verb: str, number: int, *args: Any) -> Any:
        """Apply one of `student.VERBS` to an object of the student's."""
        return self._ask(["do", verb, number], [args])

    def measure(self, number: int, args: tuple, kwargs: dict[str, Any]) -> tuple[Any, float]:
        """Call a function; returns its result and the most memory that the call held, in bytes."""
        measurement = Measurement(self.gauge)
        value = self._ask(["measure", number], [args, kwargs], measurement)
        if not measurement.complete:
            self.broken("a result that was not measured")
        return value, measurement.result()

    def _ask(
        self,
        head: wire.Head,
        values: list[Any],
        measurement: Measurement | None = None,
        name: str | None = None,
    ) -> Any:
        if self._depth >= MAX_NESTED:
            raise RecursionError("too many calls of calls of calls")
        first, encoder = self._table.next, wire.Encoder(self._node, self._table)
        nodes = self._nodes(encoder, values)
        self._depth += 1
        try:
            if measurement:
                measurement.begin(sum(map(len, encoder.buffers)))
            self.send([*head, *nodes], encoder.buffers)
            while True:
                answer, buffers = self._receive()
                if answer[0] == "callback":
                    self._answer_callback(answer, buffers)
                elif measurement and answer[0] in ("ready", "done"):
                    self._measure(measurement, answer)
                else:
                    break
        except BaseException:
            self._start_over()
            raise
        finally:
            self._depth -= 1
        if measurement:
            measurement.fetched(self.channel.received)
        return self._understand(answer, buffers, first, name)

    def _start_over(self) -> None:
        """Share nothing that was shared before: S's answer to the last request is unknown."""
        self._table, self._given_up = wire.Table(), None

    def _nodes(self, encoder: wire.Encoder, values: list[Any]) -> list[wire.Node]:
        """Return the nodes of a request's values, of the news for S, and of the settings."""
        first = self._table.next
        try:
            numbers = self._table.changed()
            changes = [[number, encoder.again(number)] for number in numbers]
            nodes = [encoder.encode(value) for value in values]
            settings = encoder.apart().encode(self._settings())
        except BaseException:
            self._table.rewind(first)
            raise
        self._table.agree(numbers)
        self._give_up(self._table.given_up())
        news, self._given_up = [self._given_up, changes, self._table.next], []
        return [*nodes, news, settings]

    def _settings(self) -> dict[str, Any]:
        """Return what S needs to know of T's state for the next call."""
        return {
            "random": wire.pack_random() if self._random.moved() else None,
            "errors": self._baseline.errors(),
            "warnings": self._baseline.wants_warnings(),
        }

    def _measure(self, measurement: Measurement, answer: wire.Head) -> None:
        """Take the next step of a measurement, in the order in which an honest S takes them."""
        if answer[0] == "ready" and measurement.step == "begun":
            measurement.ready()
            self.send(["go"], [])
        elif answer[0] == "done" and measurement.step == "ready" and type(answer[-1]) is int:
            measurement.done(answer[-1])
            self.send(["fetch"], [])
        else:
            self.broken("a wrong measurement")

    # ---------------------------------------------------------------------------- answers

    def _understand(
        self, head: wire.Head, buffers: list[bytearray], first: int, name: str | None
    ) -> Any:
        """Return the value of an answer, or raise what it says that was raised.

        `first` is the table's next number when the request was made.
        """
        if self.stopped:  # the interrupted call has ended, in whatever way
            self._start_over()
            raise StudentStopped(self.stopped)
        decoder = wire.Decoder(buffers, lambda node: self._proxy(node, name), self._table)
        try:
            if head[0] == "value":
                _, node, changed, said, moved, given_up = head
                self._take_changes(decoder, changed)
                holder, error = [decoder.decode(node)], None
            elif head[0] == "raised":
                _, names, node, changed, said, moved, given_up, frames = head
                self._take_changes(decoder, changed)
                holder, error = [None], self._exception(names, decoder.decode(node))
                error.__student_lines__ = self._lines(frames)
            else:
                raise wire.WireError(f"an answer called {head[0][:20]!r}")
            said = _check_said(said)
            if moved is not None:
                wire.set_random(decoder.apart().decode(moved))
                self._random.moved()
            self._share(decoder, holder, given_up, first)
        except (wire.WireError, TypeError, ValueError, LookupError, RecursionError) as wrong:
            self.broken(str(wrong))
        self._pass_on(said)
        if error is not None:
            raise error
        return holder[0]

    def _take_changes(self, decoder: wire.Decoder, changed: Any) -> None:
        if type(changed) is not list:
            raise wire.WireError("wrong changes")
        for number, node in changed:
            decoder.write_back(number, node)
        self._table.agree(number for number, _ in changed)

    def _share(self, decoder: wire.Decoder, holder: list[Any], given_up: Any, first: int) -> None:
        """Keep the table of what both sides hold: the answer, and what S keeps of the request."""
        if type(given_up) is not list or not all(type(number) is int for number in given_up):
            raise wire.WireError("wrong numbers")
        decoder.parcel(holder)
        self._table.forget(given_up)
        self._table.agree(range(first, self._table.next))
        self._give_up(self._table.trim(MAX_SHARED, MAX_SHARED_BYTES))

    def _give_up(self, numbers: list[int]) -> None:
        if self._given_up is not None:
            self._given_up += numbers

    def _exception(self, names: Any, arguments: Any) -> BaseException:
        if type(names) is not list or type(arguments) is not tuple:
            raise wire.WireError("a wrong exception")
        kind = self._exception_class(names)
        if kind is StudentLeft:
            return StudentLeft(f"the student's code raised {str(names[0])[:100]}")
        try:
            return kind(*arguments)
        except Exception:  # UnicodeDecodeError and others want arguments of their own
            own = self._derive(str(names[0]), Exception)
            return own(*map(str, arguments))

    def _lines(self, frames: Any) -> tuple[str, ...]:
        """Return the lines of the student's own code on the way to an error, from T's own copy."""
        lines = []
        for number, line, function in frames[:MAX_LINES]:
            source = self.sources.get(number, ("", ""))[1].splitlines()
            if type(line) is int and 0 < line <= len(source) and type(function) is str:
                text = source[line - 1].strip()
                lines.append(f"{text_of(function)[:100]}, line {line}: {text}")
        return tuple(lines)

    def _exception_class(self, names: Any) -> type[BaseException]:
        """Return the builtin exception, or one derived from it, that S's class stands for."""
        if type(names) is not list or not names or not all(type(n) is str for n in names):
            raise wire.WireError("a wrong exception")
        if "Exception" not in names or names[0] in ("StopIteration", "StopAsyncIteration"):
            return StudentLeft
        if names[0] in EXCEPTIONS:
            return EXCEPTIONS[names[0]]
        return self._derive(names[0], next(EXCEPTIONS[n] for n in names if n in EXCEPTIONS))

    def _derive(self, name: str, base: type[Exception]) -> type[Exception]:
        name = name[:100]
        if not name.isidentifier():
            raise wire.WireError("a wrong exception")
        key = (name, base)
        if key not in self._exceptions:
            self._exceptions[key] = type(name, (base,), {"__module__": "student"})
        return self._exceptions[key]

    def _pass_on(self, said: list[list[Any]]) -> None:
        """Give prints and warnings to the test that catches them; nobody else sees them."""
        for kind, *what in said:
            if kind == "warning":
                self._warn(*what)
            else:
                stream = getattr(sys, kind)
                if not any(stream is own for own in self.own_streams):
                    stream.write(what[0])

    def _warn(self, names: list[str], text: str, filename: str, lineno: int) -> None:
        base = next((EXCEPTIONS[n] for n in names if n in EXCEPTIONS), UserWarning)
        category = base if names[0] in EXCEPTIONS else self._derive(names[0], base)
        if not issubclass(category, Warning):
            category = UserWarning
        with self._baseline.quiet():
            warnings.warn_explicit(text, category, filename, lineno)

    # ---------------------------------------------------------------------------- objects

    def _node(self, x: Any) -> wire.Node:
        """Return the node of a value of T's that is not plain data."""
        number = number_of(x)
        if number is not None:
            return ["o", number]
        if isinstance(x, types.ModuleType) or not callable(x):
            raise wire.Unsendable(f"a {type(x).__name__} cannot be given to the student's code")
        self.callbacks.append(x)
        name = getattr(x, "__name__", "function")
        return ["k", len(self.callbacks) - 1, name if type(name) is str else "function"]

    def _answer_callback(self, head: wire.Head, buffers: list[bytearray]) -> None:
        """Run a function of T's that was passed to the student's code."""
        try:
            _, number, args, kwargs = head
            decoder = wire.Decoder(buffers, lambda node: self._proxy(node, None))
            args, kwargs = decoder.decode(args), decoder.decode(kwargs)
            if type(number) is not int or not 0 <= number < len(self.callbacks):
                raise wire.WireError("no such callback")
            if type(args) is not list or type(kwargs) is not dict:
                raise wire.WireError("a wrong callback")
            function = self.callbacks[number]
        except (wire.WireError, ValueError, TypeError) as wrong:
            self.broken(str(wrong))
        encoder = wire.Encoder(self._node, decoder.table)
        try:
            answer = ["result", encoder.encode(function(*args, **kwargs))]
        except Exception as error:
            known = type(error).__name__ if type(error).__name__ in EXCEPTIONS else "Exception"
            encoder = wire.Encoder(self._node)
            answer = ["error", known, encoder.encode(tuple(map(str, error.args)))]
        self.send(answer, encoder.buffers)

    def _proxy(self, node: wire.Node, name: str | None) -> Any:
        """Return the proxy that a node describes. `name` is what T looked it up by."""
        if node[0] == "k":
            (number,) = node[1:]
            if type(number) is not int or not 0 <= number < len(self.callbacks):
                raise wire.WireError("no such callback")
            return self.callbacks[number]
        if node[0] != "h" or type(node[1]) is not int or type(node[2]) is not str:
            raise wire.WireError("an unknown tag")
        _, number, kind, *rest = node
        if number not in self.proxies:
            self.proxies[number] = self._make(number, kind, rest, name)
        return self.proxies[number]

    def _make(self, number: int, kind: str, rest: list[Any], name: str | None) -> Any:
        if kind == "module":
            return _trusted_module(rest[0])
        if kind == "exception":
            return self._exception_class(rest[0])
        if kind == "function":
            own, signature, doc = rest
            return make_function(self, number, name or _identifier(own), signature, doc)
        if kind == "class":
            own, specials, signature, doc = rest
            return make_class(self, number, name or _identifier(own), specials, signature, doc)
        if kind == "object":
            described, signature = rest
            family = self._proxy(described, None)
            if not isinstance(family, RemoteType):
                family = make_class(self, -1, "object", [], None, None)
            return make_instance(self, family, number, name, signature)
        raise wire.WireError("an unknown kind of object")

    def source_of(self, name: str) -> tuple[str, int] | None:
        """Return a file name known to linecache and the line where the student defines `name`."""
        if self._places is None:
            self._places = {}
            for cell, source in self.sources.values():
                if len(source) <= MAX_SOURCE:
                    self._places.update(_definitions(f"<student's cell {cell}>", source))
        return self._places.get(name)


class _LimitReached(Exception):
    """S has used up its time."""


def _definitions(file: str, source: str) -> dict[str, tuple[str, int]]:
    """Return where a cell defines its functions, and let linecache know the text."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return {node.name: (file, node.lineno) for node in functions}


def _identifier(name: Any) -> str:
    if type(name) is not str:
        raise wire.WireError("a wrong name")
    return name[:100] if name.isidentifier() else "function"


def _trusted_module(name: Any) -> types.ModuleType:
    """Return T's own, clean copy of a module that the student's name stands for."""
    if type(name) is str:
        package = name.split(".")[0]
        known = package == "numpy" or package in sys.stdlib_module_names
        if known and name in sys.modules:
            return sys.modules[name]
    raise wire.WireError("a module that tests do not use")


def _check_said(said: Any) -> list[list[Any]]:
    """Return the prints and warnings of a call, if they are what they should be."""
    if type(said) is not list:
        raise wire.WireError("wrong prints")
    for kind, *what in said[:MAX_SAID]:
        if kind in ("stdout", "stderr"):
            (text,) = what
            right = type(text) is str
        else:
            names, text, filename, lineno = what
            right = kind == "warning" and type(names) is list and bool(names)
            right = right and all(type(n) is str and n.isidentifier() for n in names)
            right = right and type(text) is type(filename) is str and type(lineno) is int
        if not right:
            raise wire.WireError("wrong prints")
    return said[:MAX_SAID]


class Baseline:
    """T's warnings and floating-point settings as they were: a test's changes are passed on."""

    def __init__(self) -> None:
        self._filters = list(warnings.filters)
        self._show = warnings.showwarning
        self._show_message = warnings._showwarnmsg_impl
        self._errors = np.geterr()

    def wants_warnings(self) -> bool:
        """Tell whether the test looks at warnings."""
        return self._catching() or warnings.filters != self._filters

    def errors(self) -> dict[str, str] | None:
        """Return the test's `np.errstate`, None if it has none."""
        now = np.geterr()
        return None if now == self._errors else now

    def _catching(self) -> bool:
        mine = (self._show, self._show_message)
        return (warnings.showwarning, warnings._showwarnmsg_impl) != mine

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Show no warning that no test catches."""
        if self._catching():
            yield
            return
        warnings._showwarnmsg_impl = lambda message: None
        try:
            yield
        finally:
            warnings._showwarnmsg_impl = self._show_message


# ---------------------------------------------------------------------------------- outputs


def clean_outputs(outputs: Any, limit: int) -> list[dict[str, Any]]:
    """Rebuild, field by field, the outputs that S wrote; what is not one is left out."""
    clean, size = [], 0
    for output in outputs if type(outputs) is list else []:
        one = _clean_output(output, limit) if type(output) is dict else None
        if one is None:
            continue
        size += sum(len(str(value)) for value in one.values())
        if size > 9 * limit or len(clean) >= 500:
            break
        clean.append(one)
    return clean


def _clean_output(output: dict[str, Any], limit: int) -> dict[str, Any] | None:
    kind = output.get("output_type")
    if kind == "stream" and output.get("name") in ("stdout", "stderr"):
        text = text_of(output.get("text"))[: limit + 100]
        return {"output_type": kind, "name": output["name"], "text": text}
    if kind == "error":
        trace = output.get("traceback")
        trace = [text_of(line)[:10_000] for line in trace[:200]] if type(trace) is list else []
        names = {name: text_of(output.get(name))[:10_000] for name in ("ename", "evalue")}
        return {"output_type": kind, **names, "traceback": trace}
    if kind in ("display_data", "execute_result") and type(output.get("data")) is dict:
        data = {str(k)[:200]: v for k, v in output["data"].items() if type(v) in (str, dict, list)}
        clean = {"output_type": kind, "data": data, "metadata": {}}
        if kind == "execute_result":
            count = output.get("execution_count")
            clean["execution_count"] = count if type(count) is int else None
        return clean
    return None


def text_of(value: Any) -> str:
    """Return a text that can be written anywhere; what is no text is empty."""
    text = value if type(value) is str else ""
    return text.encode("utf-8", "replace").decode()  # a lone surrogate would break every writer
