"""The sandbox, layer by layer, each in a fork of this process; and the curtain."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headmaster import engine, sandbox
from headmaster.curtain import Curtain, interpreter_paths, readable_paths
from headmaster.gauge import Gauge, disk_bytes
from headmaster.job import MIB, Limits

linux = pytest.mark.skipif(not sandbox.LINUX, reason="Linux has these layers")
needs_landlock = pytest.mark.skipif(not sandbox.landlock_abi(), reason="no Landlock here")
needs_seccomp = pytest.mark.skipif(sandbox.seccomp_program() is None, reason="no seccomp here")
needs_root = pytest.mark.skipif(
    not sandbox.LINUX or os.getuid() != 0, reason="only root can do that"
)


def in_fork(function: Callable[[], Any]) -> Any:
    """Run a function in a fork of this process; returns what it returns, or its error's name."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = function()
        except OSError as error:
            answer = type(error).__name__
        except BaseException:
            answer = traceback.format_exc()
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(text) if text else "killed"


def outcomes(*attempts: Callable[[], Any]) -> list[str]:
    """Try each; returns "done" or the name of the error."""
    said = []
    for attempt in attempts:
        try:
            attempt()
            said.append("done")
        except OSError as error:
            said.append(type(error).__name__)
    return said


# ---------------------------------------------------------------------------------- landlock


@needs_landlock
def test_landlock_opens_only_what_is_listed(tmp_path: Path) -> None:
    shown, scratch, secret = (tmp_path / name for name in ("shown", "scratch", "secret"))
    for folder in (shown, scratch, secret):
        folder.mkdir()
        (folder / "file").write_text("x")

    def confined() -> list[str]:
        paths = [sandbox.OpenPath.open(p) for p in (shown, secret / "file")]
        sandbox.landlock([p for p in paths if p], [sandbox.OpenPath.open(scratch)])
        return outcomes(
            (shown / "file").read_text,
            (secret / "file").read_text,  # one file of a folder can be shown
            lambda: os.listdir(secret),
            lambda: (shown / "file").write_text("y"),
            lambda: (shown / "new").write_text("y"),
            lambda: (shown / "file").unlink(),
            lambda: (scratch / "new").write_text("y"),
            (scratch / "new").unlink,
            lambda: (scratch / "file").rename(shown / "moved"),
            lambda: (scratch / "link").symlink_to(secret),
            lambda: os.listdir(scratch / "link"),
            lambda: os.listdir("/proc/self"),
        )

    no = "PermissionError"
    answers = in_fork(confined)
    assert answers[:8] == ["done", "done", no, no, no, no, "done", "done"]
    assert answers[8] in (no, "OSError")  # EXDEV
    assert answers[9:] == ["done", no, no]


@needs_landlock
def test_a_path_that_does_not_exist_gives_no_rule() -> None:
    assert sandbox.OpenPath.open("/nonexistent/path") is None


# ----------------------------------------------------------------------------------- seccomp


@needs_seccomp
def test_seccomp_lets_a_notebook_do_what_it_needs(tmp_path: Path) -> None:
    def confined() -> Any:
        import signal
        import threading

        sandbox.seccomp(sandbox.seccomp_program() or b"")
        thread = threading.Thread(target=lambda: (tmp_path / "thread").write_text("x"))
        thread.start()
        thread.join()
        signal.raise_signal(signal.SIGCONT)
        import decimal

        return [(tmp_path / "thread").read_text(), str(decimal.Decimal(1)), os.getpid() > 0]

    assert in_fork(confined) == ["x", "1", True]


@needs_seccomp
def test_seccomp_forbids_the_rest(tmp_path: Path) -> None:
    import resource
    import socket

    file = tmp_path / "file"
    file.write_text("x")

    def confined() -> list[str]:
        sandbox.seccomp(sandbox.seccomp_program() or b"")
        return outcomes(
            os.fork,
            lambda: os.execv("/bin/true", ["true"]),
            lambda: socket.socket(socket.AF_INET),
            lambda: os.kill(os.getppid(), 0),
            lambda: file.chmod(0o777),
            lambda: os.utime(file, (1, 1)),
            lambda: os.chown(file, -1, -1),
            lambda: os.memfd_create("x"),
            lambda: resource.prlimit(os.getppid(), resource.RLIMIT_CPU, (9, 9)),
            lambda: os.mkfifo(tmp_path / "fifo"),
        )

    assert in_fork(confined) == ["PermissionError"] * 10


@needs_seccomp
def test_the_filter_knows_the_process_that_loads_it() -> None:
    program = sandbox.seccomp_program() or b""
    assert sandbox._OWN_PID.to_bytes(4, sys.byteorder) in program
    assert len(program) % 8 == 0


# ------------------------------------------------------------------------ rlimits, user, rest


@linux
def test_rlimits_are_hard() -> None:
    def confined() -> Any:
        import resource

        sandbox.set_rlimits(Limits(memory_bytes=64 * MIB, open_files=32), 7, own_uid=False)
        try:
            bytearray(100 * MIB)
            memory = "unlimited"
        except MemoryError:
            memory = "limited"
        return [memory, resource.getrlimit(resource.RLIMIT_CPU), resource.getrlimit(
            resource.RLIMIT_NOFILE)]  # fmt: skip

    assert in_fork(confined) == ["limited", [7, 7], [32, 32]]


@needs_root
def test_root_becomes_nobody_for_good(tmp_path: Path) -> None:
    (tmp_path / "given").write_text("x")

    def confined() -> Any:
        os.chdir(tmp_path)  # the folders above are closed to others
        Path().chmod(0o700)
        layers = sandbox.confine(Limits(), 100, [], tmp_path, True, without=("landlock", "seccomp"))
        back = outcomes(lambda: os.setuid(0), lambda: os.listdir("/root"))
        Path("given").write_text("y")
        return [layers["own uid"], os.getuid() >= sandbox.FIRST_UID, *back]

    answer = in_fork(confined)
    assert answer[:3] == [True, True, "PermissionError"]


@needs_root
def test_namespaces_leave_the_machine() -> None:
    def confined() -> Any:
        left = sandbox.enter_namespaces()
        return [left, os.listdir("/sys/class/net") if "network" not in left else []]

    left, _ = in_fork(confined)
    assert set(left) <= {"mounts", "network", "ipc", "processes"}


@needs_root
def test_a_closed_folder_is_opened_for_what_is_needed_only(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    (closed / "python" / "lib").mkdir(parents=True)
    (closed / "python" / "lib" / "file").write_text("x")
    (closed / "private").write_text("secret")
    closed.chmod(0o700)
    for folder in (*tmp_path.parents, tmp_path):
        if folder.stat().st_mode & 0o001 == 0 and folder != Path("/root"):
            folder.chmod(folder.stat().st_mode | 0o001)

    def confined() -> Any:
        if "mounts" not in sandbox.enter_namespaces(("mounts",)):
            return None
        before = sandbox.can_walk_to(closed / "python" / "lib")
        sandbox.open_the_way([closed / "python"])
        sandbox.become(sandbox.FIRST_UID)
        return [
            before,
            sandbox.can_walk_to(closed / "python" / "lib"),
            (closed / "python" / "lib" / "file").read_text(),
            (closed / "private").exists(),
        ]

    answer = in_fork(confined)
    if answer is None:
        pytest.skip("no mount namespaces here")
    assert answer == [False, True, "x", False]
    assert (closed / "private").read_text() == "secret"


def test_every_layer_can_be_left_out(tmp_path: Path) -> None:
    def confined() -> Any:
        return sandbox.confine(
            Limits(), 100, [], tmp_path, True, without=("landlock", "seccomp", "own uid")
        )

    layers = in_fork(confined)
    assert layers == {"rlimits": True, "own uid": False, "landlock": False, "seccomp": False}


# ------------------------------------------------------------------------------------- gauge


@linux
def test_the_gauge_sees_time_and_memory_of_another_process() -> None:
    reading, writing = os.pipe()
    back, forth = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(back, 1)
        data = bytearray(b"x" * (64 * MIB))
        sum(range(10**6))
        os.write(writing, b"d")
        os.read(back, 1)
        os._exit(len(data) % 2)
    gauge = Gauge(pid, os.pidfd_open(pid))
    before = gauge.reset_peak()
    os.write(forth, b"g")
    os.read(reading, 1)
    assert gauge.pid == pid
    assert gauge.cpu_seconds() > 0
    if before is not None:
        assert gauge.peak() - before > 60 * MIB
        assert gauge.touched() > 60 * MIB
    gauge.end()
    os.waitpid(pid, 0)
    assert Gauge(pid, None).cpu_seconds() == 0.0


def test_the_disk_is_measured_up_to_what_matters(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "loop").symlink_to(tmp_path)
    assert 100_000 <= disk_bytes(tmp_path, 10**9, 50) < 300_000
    assert disk_bytes(tmp_path, 1000, 50) >= 1000
    for i in range(60):
        (tmp_path / f"f{i}").touch()
    assert disk_bytes(tmp_path, 10**9, 50) == 10**9
    assert disk_bytes(tmp_path / "nothing", 10, 50) == 0


def test_folders_deeper_than_a_path_are_too_much(tmp_path: Path) -> None:
    def dig() -> None:
        os.chdir(tmp_path)
        for _ in range(60):
            os.mkdir("d" * 100)
            os.chdir("d" * 100)

    in_fork(dig)
    assert disk_bytes(tmp_path, 10**9, 5000) == 10**9
    engine._remove(str(tmp_path))
    assert not tmp_path.exists()


# ----------------------------------------------------------------------------------- curtain


@pytest.fixture
def library(tmp_path: Path) -> Path:
    package = tmp_path / "pkg"
    for folder in (package / "sub", package / "data", package / "__pycache__"):
        folder.mkdir(parents=True)
    names = "__init__.py shown.py hidden.py sub/__init__.py sub/part.py data/table.json"
    for name in (*names.split(), "__pycache__/hidden.cpython-311.pyc", "hidden_too.so"):
        (package / name).write_text("")
    return package


def test_the_curtain_hides_and_shows_by_name(library: Path) -> None:
    curtain = Curtain(("pkg",), ("pkg.shown", "pkg.sub"), (str(library.parent),))
    names = [
        "pkg",
        "pkg.shown",
        "pkg.sub",
        "pkg.sub.part",
        "pkg.hidden",
        "pkg.shownx",
        "pkgs",
        "os",
    ]
    assert [n for n in names if curtain.hides(n)] == ["pkg.hidden", "pkg.shownx"]
    assert curtain.find_spec("os") is None
    with pytest.raises(ModuleNotFoundError, match="holds the answer"):
        curtain.find_spec("pkg.hidden")
    assert curtain.find_spec("pkg") is not None


def test_only_shown_code_and_data_of_a_hidden_package_can_be_read(library: Path) -> None:
    curtain = Curtain(("pkg",), ("pkg.shown", "pkg.sub"), (str(library.parent),))
    names = {str(path.relative_to(library)) for path in curtain.shown_files()}
    expected = "__init__.py shown.py sub/__init__.py sub/part.py data/table.json"
    assert names == set(expected.split())


def test_nothing_of_a_package_of_which_nothing_is_shown_can_be_read(library: Path) -> None:
    assert Curtain(("pkg",), (), (str(library.parent),)).shown_files() == []


def test_a_hidden_package_among_the_installed_ones_is_cut_out(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = library.parent
    (site / "other").mkdir()
    (site / "__pycache__").mkdir()
    monkeypatch.setattr("headmaster.curtain.interpreter_paths", lambda: [str(site)])
    curtain = Curtain(("pkg",), ("pkg.shown",), (str(site),))
    paths = {path for path in readable_paths(curtain, ()) if path.startswith(str(site))}
    assert str(site / "other") in paths and str(library / "shown.py") in paths
    assert not paths & {str(site), str(library), str(library / "hidden.py")}
    assert str(site / "__pycache__") not in paths


def test_a_course_around_the_interpreter_does_not_hide_it() -> None:
    course = str(Path(sys.prefix).parent)
    paths = readable_paths(Curtain((), (), ()), (course,))
    assert course not in paths
    assert set(interpreter_paths()) <= set(paths)
