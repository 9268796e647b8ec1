"""The warm fork server: Python, NumPy and IPython are imported once, then every process is a fork.

    base ──fork──▶ shelf for S (one per hidden set of modules) ──fork──▶ S, one per job
         ──fork──▶ shelf for T (one per set of released cells) ──fork──▶ T, one per job

The base never sees a course. A shelf for S has left the machine's namespaces (as root), has drawn
the curtain, and has imported what the released setup cells import of what is shown. A shelf for T
has run the released cells once without a student: what they import and cache is warm. No shelf
ever reads a submission, so nothing of one job can reach the next, and no secret is ever in the
memory from which S is forked.

Each of them answers requests on a control socket: a JSON text and descriptors in, a pid (and a
pidfd, by which the engine and T name the process whatever its namespace) out.
"""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib
import json
import os
import random
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from headmaster import sandbox, shell
from headmaster.curtain import Curtain, interpreter_paths, readable_paths
from headmaster.student import run_student
from headmaster.trusted import rehearse, run_trusted

MAX_FDS = 4

_WARM_UP = (
    "import numpy as np",
    "def f(x):\n    return x @ 1\nf(np.eye(2))",
    "assert False",
    "1",
    "np.random.default_rng(0).normal(size=(4, 4)) @ np.eye(4)",
)
_OFTEN_USED = (
    "collections dataclasses inspect itertools math statistics string textwrap time typing "
    "unittest unittest.mock numpy.testing numpy.linalg numpy.random matplotlib.pyplot "
    "matplotlib_inline.backend_inline"
).split()


# --------------------------------------------------------------------- requests and answers


def send_message(sock: socket.socket, message: Any, fds: list[int] | None = None) -> None:
    """Send a JSON text and descriptors."""
    text = json.dumps(message).encode()
    header = struct.pack("<I", len(text))
    if fds:
        socket.send_fds(sock, [header], fds)
    else:
        sock.sendall(header)
    sock.sendall(text)


def receive_message(sock: socket.socket) -> tuple[Any, list[int]]:
    """Receive what `send_message` sent; raises EOFError when the other end is closed."""
    header, fds, _, _ = socket.recv_fds(sock, 4, MAX_FDS)
    size = struct.unpack("<I", _exactly(sock, 4, header))[0]
    return json.loads(_exactly(sock, size, b"")), list(fds)


def _exactly(sock: socket.socket, size: int, data: bytes) -> bytes:
    while len(data) < size:
        chunk = sock.recv(size - len(data))
        if not chunk:
            raise EOFError("the fork server is gone")
        data += chunk
    return data


# ------------------------------------------------------------------------------ the servers


def serve(control: socket.socket, start: Callable[[Any, list[int]], None]) -> None:
    """Fork for every request and run `start` in the fork, until the control socket closes."""
    while True:
        try:
            request, fds = receive_message(control)
        except (EOFError, OSError):
            os._exit(0)
        pid = os.fork()
        if pid == 0:
            _in_child(control, start, request, fds)
        pidfd = _pidfd(pid)
        answer = [] if pidfd is None else [pidfd]
        send_message(control, {"pid": pid}, answer)
        for fd in (*fds, *answer):
            os.close(fd)


def _in_child(
    control: socket.socket, start: Callable[[Any, list[int]], None], request: Any, fds: list[int]
) -> None:
    try:
        control.close()
        sandbox.die_with_parent()
        start(request, fds)
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(0)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


class Base:
    """The first process: it forks shelves."""

    def __init__(self) -> None:
        self.shell = warm_up()
        sandbox.seccomp_program()  # compiled once, inherited by every S

    def start(self, request: dict[str, Any], fds: list[int]) -> None:
        """Become the shelf that a request describes."""
        control = socket.socket(fileno=fds[0])
        if request["role"] == "trusted":
            TrustedShelf(request).serve(control)
        else:
            _leave_the_machine(request)
            StudentShelf(request, self.shell).serve(control)


def _leave_the_machine(request: dict[str, Any]) -> None:
    """As root, go on in namespaces of its own, as their first process."""
    request["namespaces"] = []
    if "namespaces" in request["without"] or not sandbox.LINUX or os.getuid() != 0:
        return
    if _pidfd(os.getpid()) is None:  # T could not name a process of another namespace
        return
    request["namespaces"] = sandbox.enter_namespaces()
    if "processes" in request["namespaces"] and os.fork():
        os._exit(0)


class StudentShelf:
    """Forks S: hidden modules are behind the curtain, readable paths are open."""

    def __init__(self, request: dict[str, Any], notebook: shell.Shell):
        self.notebook = notebook
        self.namespaces, self.without = request["namespaces"], request["without"]
        course = request["course"]
        curtain = Curtain(request["hide"], request["show"], course)
        outside = {str(Path(path).resolve()) for path in course}
        sys.path[:] = [p for p in sys.path if p and str(Path(p).resolve()) not in outside]
        paths = readable_paths(curtain, course)
        if "mounts" in self.namespaces:
            with contextlib.suppress(OSError):
                sandbox.open_the_way([*interpreter_paths(), *paths])
        curtain.draw()
        opened = [sandbox.OpenPath.open(path) for path in paths if sandbox.LINUX]
        self.readable = [path for path in opened if path is not None]
        self.walkable = all(map(sandbox.can_walk_to, interpreter_paths()))
        preload(request["imports"])
        _settle()

    def serve(self, control: socket.socket) -> None:
        """Fork an S for every request."""
        serve(control, self._start)

    def _start(self, request: dict[str, Any], fds: list[int]) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        request["walkable"] = self.walkable
        request.update(namespaces=self.namespaces, without=self.without)
        run_student(socket.socket(fileno=fds[0]), self.notebook, request, self.readable)


class TrustedShelf:
    """Forks T: the course's tests are importable and warm."""

    def __init__(self, request: dict[str, Any]):
        sys.path[:0] = request["course"]
        # Tests may read notebooks: nbformat's schema library would build a grammar for a format of
        # addresses that notebooks do not have, which takes seconds.
        sys.modules.setdefault("rfc3987_syntax", None)
        preload(imports_of(cell["source"] for cell in request["cells"]))
        rehearse(request["cells"])
        _settle()

    def serve(self, control: socket.socket) -> None:
        """Fork a T for every request."""
        serve(control, self._start)

    def _start(self, request: dict[str, Any], fds: list[int]) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        run_trusted(request, fds)


def preload(modules: Iterable[str]) -> None:
    """Import modules that every job of this shelf imports; what fails will fail in its cell."""
    for name in modules:
        with contextlib.suppress(Exception, SystemExit):
            importlib.import_module(name)


def imports_of(sources: Iterable[str]) -> list[str]:
    """Return the modules that released cells import, for a shelf to import beforehand."""
    found: dict[str, None] = {}
    for source in sources:
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found.update({alias.name: None for alias in node.names})
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found[node.module] = None
    return sorted(found)


def warm_up() -> shell.Shell:
    """Import and run once what every submission needs."""
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    preload(_OFTEN_USED)
    notebook = shell.make_shell()
    streams = sys.stdout, sys.stderr
    shell.attach(notebook)
    for source in _WARM_UP:
        shell.run_cell(notebook, source)
    sys.stdout, sys.stderr = streams
    notebook.reset(new_session=True)
    notebook.execution_count = 1
    np.random.seed()
    random.seed()
    return notebook


def _settle() -> None:
    """Move everything out of the garbage collector's sight, so that forks share its memory."""
    gc.collect()
    gc.freeze()


def main(fd: int) -> None:
    """Serve on the control socket `fd`."""
    sandbox.die_with_parent()
    sandbox.close_to_others()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    base = Base()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    _settle()
    control = socket.socket(fileno=fd)
    send_message(control, {"pid": os.getpid()})
    serve(control, base.start)
