"""Process T: runs the test cells, with the student's names as proxies that ask S.

T's namespace holds what the released cells define; a name that T lacks is looked up in S at the
moment it is used. So a student's own `check`, `np` or `isinstance` never reaches a test.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import io
import json
import math
import os
import random
import signal
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headmaster import sandbox, wire
from headmaster.client import Client, text_of
from headmaster.gauge import Gauge
from headmaster.job import Limits
from headmaster.proxies import StudentStopped, number_of
from headmaster.shell import Sink, Stream

ALARM = 2.0  # seconds of T's own that a test cell may take beyond the limit of S
REHEARSAL = 30.0  # seconds that one statement may take in a rehearsal
TRUSTED_MEMORY = 4  # T may use so many times S's memory: S's answers could fill the machine
MAX_RECORD = 20  # entries of an exception's `record` …
MAX_RECORD_TEXT = 4000  # … and characters of each
MAX_EVALUE = 10_000


class Namespace(dict):
    """The globals of the test cells: T's own names first, then the student's."""

    def __init__(self, client: Client):
        super().__init__(__name__="__main__", __builtins__=builtins)
        self._client = client
        self._proxies: dict[str, Any] = {}  # functions and classes looked up in this cell

    def begin_cell(self) -> None:
        """Forget what was looked up: the next cell asks again."""
        self._proxies.clear()

    def __missing__(self, name: str) -> Any:
        """Return the student's value of `name`; raises KeyError if there is none."""
        if name in self._proxies:
            return self._proxies[name]
        if type(name) is not str or name.startswith("__") or hasattr(builtins, name):
            raise KeyError(name)
        value = self._client.name(name)
        if number_of(value) is not None:
            self._proxies[name] = value
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of `name`, the student's included."""
        try:
            return self[name]
        except KeyError:
            return default

    def __contains__(self, name: object) -> bool:
        """Tell whether there is a value of `name`, the student's included."""
        if super().__contains__(name):
            return True
        try:
            self.__missing__(name)
        except KeyError:
            return False
        return True


class Notebook:
    """Runs the cells of one job in T and S."""

    def __init__(self, client: Client):
        self.client = client
        self.trouble: str | None = None  # a fault that is not the student's
        self.namespace = Namespace(client)
        self.namespace["display"] = lambda *_, **__: None
        self.namespace["get_ipython"] = lambda: _NoMagics
        self.sink = Sink(client.limits.output_bytes)
        client.own_streams = (Stream("stdout", self), Stream("stderr", self))
        sys.stdout, sys.stderr = client.own_streams

    def run_cell(self, cell: dict[str, str], count: int) -> dict[str, Any]:
        """Run one cell; returns the fields of its CellResult."""
        self.client.begin_cell()
        self.namespace.begin_cell()
        begun = time.perf_counter()
        try:
            with self._alarm():
                result = self._by_kind(cell, count)
        except StudentStopped:
            result = {"outputs": []}
        self.client.end_cell()
        if self.client.stopped:  # whatever the cell has concluded
            why = f"The student's process {self.client.stopped}."
            result.update(status="killed", ename="StudentStopped", evalue=why, record=None)
            result.update(value=None, has_value=False)
            result["outputs"] = [*_no_errors(result["outputs"]), _error("StudentStopped", why)]
        result.update(id=cell["id"], seconds=time.perf_counter() - begun)
        return result

    def _by_kind(self, cell: dict[str, str], count: int) -> dict[str, Any]:
        if cell["kind"] == "test":
            return self._test(cell)
        result = self._in_student(cell, count)
        if cell["kind"] == "locked" and not self.client.dead:
            self._locked(cell, result)
        return result

    def _in_student(self, cell: dict[str, str], count: int) -> dict[str, Any]:
        outputs: list[dict[str, Any]] = []
        ename = evalue = None
        with contextlib.suppress(StudentStopped):  # the caller sees why in `client.stopped`
            outputs, ename, evalue = self.client.run(cell["source"], count)
        status = "ok" if ename is None else "error"
        return {"status": status, "outputs": outputs, "ename": ename, "evalue": evalue}

    def _locked(self, cell: dict[str, str], result: dict[str, Any]) -> None:
        """Run released code in T as well, for what it defines.

        An error that no student can have caused (S was not asked, and ran the cell well) is the
        machine's own fault: nothing is graded.
        """
        asked = self.client.requests
        try:
            execute(cell["source"], self.namespace, f"<cell {cell['id']}>")
        except (Exception, SystemExit, StudentStopped) as error:
            if result["status"] == "ok" and self.client.requests == asked:
                what = f"{type(error).__name__}: {text_of(str(error))[:500]}"
                self.trouble = f"the released cell {cell['id']!r} does not run: {what}"
        finally:
            sys.stdout, sys.stderr = self.client.own_streams

    def _test(self, cell: dict[str, str]) -> dict[str, Any]:
        self.sink.begin()
        name = f"<cell {cell['id']}>"
        result: dict[str, Any] = {"status": "ok", "ename": None, "evalue": None}
        error = None
        try:
            value, has_value = execute(cell["source"], self.namespace, name)
            result.update(value=plain_number(value), has_value=has_value)
        except BaseException as raised:
            error = _describe(raised, name, cell["source"])
            result.update(status="error", ename=error["ename"], evalue=error["evalue"])
            result["record"] = plain_record(raised)
        finally:
            sys.stdout, sys.stderr = self.client.own_streams
        shown = [error] if error else [_shown(value)] if result.get("has_value") else []
        result["outputs"] = [*self.sink.end(), *shown]
        return result

    @contextlib.contextmanager
    def _alarm(self) -> Iterator[None]:
        """Stop T's own code, too, when it takes long: the student's data may make it."""

        def ring(*_: object) -> None:
            self.client.kill("took too long")
            raise StudentStopped(self.client.dead)

        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.client.limits.wall_seconds + ALARM)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


class _NoMagics:
    """Stands for `get_ipython()` in T, where magics have no meaning."""

    @staticmethod
    def run_line_magic(*_: object, **__: object) -> None:
        """Ignore `%matplotlib inline` and the like."""

    @staticmethod
    def run_cell_magic(name: str, *_: object) -> None:
        """Refuse: what the cell tests would be skipped."""
        raise NotImplementedError(f"a test cell cannot begin with %%{name}")

    @staticmethod
    def system(command: str) -> None:
        """Refuse a shell command."""
        raise NotImplementedError(f"a test cell cannot run !{command}")

    getoutput = system


# ------------------------------------------------------------------------- running a test cell


def execute(source: str, namespace: Namespace, filename: str) -> tuple[Any, bool]:
    """Run a cell; returns the value of its last expression, and whether there is one to show."""
    tree = _parse(source, filename)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    _bind_for_classes(tree, namespace)
    exec(compile(tree, filename, "exec", dont_inherit=True), namespace)
    if last is None:
        return None, False
    value = eval(
        compile(ast.Expression(last.value), filename, "eval", dont_inherit=True), namespace
    )
    return value, value is not None and not source.rstrip().endswith(";")


def _parse(source: str, filename: str) -> ast.Module:
    try:
        return ast.parse(source, filename)
    except SyntaxError:
        from IPython.core.inputtransformer2 import TransformerManager

        return ast.parse(TransformerManager().transform_cell(source), filename)


def _bind_for_classes(tree: ast.Module, namespace: Namespace) -> None:
    """Fetch the names that a class statement reads: Python does not ask `__missing__` there."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            for node in ast.walk(statement):
                if isinstance(node, ast.Name) and node.id in namespace:
                    namespace.setdefault(node.id, namespace[node.id])


class _Understudies(dict):
    """A namespace in which every name that a test expects of the student is a function."""

    def __missing__(self, name: str) -> Any:
        if type(name) is not str or name.startswith("__") or hasattr(builtins, name):
            raise KeyError(name)

        def understudy(*args: Any, **kwargs: Any) -> Any:
            raise NotImplementedError(f"{name} is not written yet")

        understudy.__name__ = understudy.__qualname__ = name
        return understudy


def rehearse(cells: list[dict[str, str]]) -> None:
    """Run the released cells once without any student, in the process from which T is forked.

    Whatever the tests load, compile and cache on the way is then there for every submission. The
    results are thrown away, and so is every error.
    """

    def stop(*_: object) -> None:
        raise TimeoutError

    namespace = _Understudies(__name__="__main__", __builtins__=builtins)
    namespace.update(display=lambda *_, **__: None, get_ipython=lambda: _NoMagics)
    states = random.getstate(), np.random.get_state()
    nowhere = io.StringIO()
    signal.signal(signal.SIGALRM, stop)
    with (
        contextlib.redirect_stdout(nowhere),
        contextlib.redirect_stderr(nowhere),
        warnings.catch_warnings(),
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
    ):
        for cell in cells:
            for statement in _statements(cell["source"]):
                signal.setitimer(signal.ITIMER_REAL, REHEARSAL)
                with contextlib.suppress(BaseException):
                    execute(statement, namespace, f"<cell {cell['id']}>")
                signal.setitimer(signal.ITIMER_REAL, 0)
    random.setstate(states[0])
    np.random.set_state(states[1])


def _statements(source: str) -> list[str]:
    """Split a cell: a statement that fails should not keep the next from being rehearsed."""
    try:
        return [ast.unparse(statement) for statement in ast.parse(source).body]
    except (SyntaxError, ValueError):
        return [source]


def plain_number(value: Any) -> float | None:
    """Return a finite number as a float, None for anything else (a bool is not a score)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.number)):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _shown(value: Any) -> dict[str, Any]:
    """Return a test's last value as a notebook shows it; of a student's object only the type."""
    plain = isinstance(value, (bool, int, float, str, np.number, np.bool_))
    text = repr(value)[:200] if plain else f"<{type(value).__name__}>"
    return {
        "output_type": "execute_result",
        "execution_count": None,
        "metadata": {},
        "data": {"text/plain": text},
    }


def plain_record(error: BaseException) -> dict[str, str] | None:
    """Return the dict attribute `record` of an exception as plain, short strings."""
    record = getattr(error, "record", None)
    if not isinstance(record, dict):
        return None
    entries = list(record.items())[:MAX_RECORD]
    return {
        text_of(str(key))[:100]: text_of(str(value))[:MAX_RECORD_TEXT]
        for key, value in entries
        if value is not None
    }


def _describe(error: BaseException, filename: str, source: str) -> dict[str, Any]:
    """Return the nbformat output of an error in a test cell, with the line where it was raised."""
    try:
        text = text_of(str(error))[:MAX_EVALUE]
    except Exception:
        text = ""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = source.splitlines()
    where = [f"line {line}: {lines[line - 1].strip()}"] if line and line <= len(lines) else []
    name = type(error).__name__
    return {**_error(name, text), "traceback": [*where, f"{name}: {text}"]}


def _error(ename: str, evalue: str) -> dict[str, Any]:
    trace = [f"{ename}: {evalue}"]
    return {"output_type": "error", "ename": ename, "evalue": evalue, "traceback": trace}


def _no_errors(outputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output for output in outputs if output["output_type"] != "error"]


# -------------------------------------------------------------------------- the process itself


def run_trusted(request: dict[str, Any], fds: list[int]) -> None:
    """Turn this fresh fork into T: run the job's cells and report each result to the engine.

    `fds`: the channel to S, the socket to the engine, and S's pidfd if there is one.
    """
    os.setsid()
    to_student, engine = (socket.socket(fileno=fd) for fd in fds[:2])
    reports = wire.Channel(engine)
    limits = Limits(**request["limits"])
    os.environ["GRADING_SEED"] = str(request["seed"])
    os.environ["MPLBACKEND"] = "agg"
    os.chdir(request["folder"])
    sandbox.limit_memory(TRUSTED_MEMORY * limits.memory_bytes)
    random.seed(request["random"])
    np.random.seed(request["random"])
    gauge = Gauge(request["pid"], fds[2] if len(fds) > 2 else None)
    client = Client(to_student, gauge, limits, Path(request["scratch"]))
    cells = request["cells"]
    sources = {i: (c["id"], c["source"]) for i, c in enumerate(cells, 1) if c["kind"] != "test"}
    client.sources = sources
    try:
        layers = client.hello()
    except StudentStopped as stopped:
        reports.send(["trouble", f"The student's process could not start: it {stopped}."])
        return
    reports.send(["begun"], [json.dumps(layers).encode()])
    notebook = Notebook(client)
    for count, cell in enumerate(cells, 1):
        reports.send(["cell", cell["id"]])
        result = notebook.run_cell(cell, count)
        reports.send(["result"], [json.dumps(result).encode()])
        if notebook.trouble:
            reports.send(["trouble", notebook.trouble])
            return
        if client.dead:
            break
    used = time.process_time() + gauge.cpu_seconds()
    client.kill("has done its work")
    reports.send(["end"], [json.dumps(used).encode()])
