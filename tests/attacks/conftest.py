"""A course of decoys: what attacks try to read, to change, or to fool."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headmaster import shell
from headmaster.engine import Engine
from headmaster.job import MIB, Cell, Job, Limits, Outcome

HONEST = "def double(x):\n    return 2 * np.asarray(x)\n"
SOFTMAX = """
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)
"""
TESTS = """
import os
import numpy as np

X = np.array([[1.0, 2.0, 3.0], [0.5, -0.5, 4.0]])


def right_softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def grade(function):
    rng = np.random.default_rng(int(os.environ["GRADING_SEED"]))
    x = rng.normal(size=(2, 3))
    before = x.copy()
    given = function(x)
    expected = right_softmax(before)
    assert np.shape(given) == expected.shape and np.all(np.isfinite(given))
    assert np.array_equal(x, before), "the argument was changed"
    np.testing.assert_allclose(given, expected)
"""
SETUP = "import numpy as np\nfrom library.check import check"
TEST_CELLS = {
    "double": "x = np.arange(6.0).reshape(2, 3)\n"
    "np.testing.assert_allclose(double(x.copy()), 2 * x)",
    "softmax": "from secret_tests import grade\ngrade(softmax)",
    "plain assert": "from secret_tests import X, right_softmax\n"
    "assert np.allclose(softmax(X.copy()), right_softmax(X))",
    "error": "assert np.array_equal(double([[1.0, 2.0]]), [[2.0, 4.0]])\ncheck(double)",
    "partial": "from secret_tests import X, right_softmax\n"
    "float(np.allclose(softmax(X.copy()), right_softmax(X))) * 3",
}
LIMITS = Limits(
    cpu_seconds=0.3,
    wall_seconds=1.0,
    grace_seconds=0.2,
    memory_bytes=256 * MIB,
    output_bytes=100_000,
    file_bytes=8 * MIB,
    disk_bytes=32 * MIB,
    total_seconds=20.0,
)
PLANTED = Path(tempfile.gettempdir()) / "headmaster-planted"  # must not come to exist
PATIENT = Limits(cpu_seconds=20, wall_seconds=60)


@dataclass
class Range:
    """Where the attacks happen: an engine, a course of decoys, and what the decoys looked like."""

    engine: Engine
    course: Path
    outside: Path
    before: dict[str, tuple[object, ...]] = field(default_factory=dict)
    layers: dict[str, bool | str] = field(default_factory=dict)

    def run(self, attack: str, answers: str, limits: Limits = LIMITS) -> Outcome:
        """Run a notebook: the attack's cell, the answers, the tests."""
        cells = [
            Cell("setup", "locked", SETUP),
            Cell("names", "student", self.names()),
            Cell("attack", "student", attack),
            Cell("answers", "student", answers),
        ]
        cells += [Cell(name, "test", source) for name, source in TEST_CELLS.items()]
        job = Job(
            "range",
            "range",
            "attacker",
            tuple(cells),
            hide=("library", "secret_tests"),
            show=("library.check",),
            trusted_path=(str(self.course),),
            seed=5,
            limits=limits,
        )
        return self.engine.run(job)

    def names(self) -> str:
        """Return the cell that tells an attack where everything lies."""
        named = {
            "DECOY": self.outside / "decoy.txt",
            "COURSE": self.course,
            "GRADEBOOK": self.course / "gradebook.db",
            "OTHER": self.outside / "other.py",
            "PLANTED": PLANTED,
        }
        return "".join(f"{name} = {str(path)!r}\n" for name, path in named.items())

    def honest(self) -> Outcome:
        """Run an honest notebook."""
        return self.run("", HONEST + SOFTMAX, PATIENT)

    def look(self) -> dict[str, tuple[object, ...]]:
        """Return everything that an attack must not change."""
        seen: dict[str, tuple[object, ...]] = {}
        for root in (self.course, self.outside):
            for path in sorted(root.rglob("*")):
                if "__pycache__" not in path.parts:
                    state = path.stat()
                    text = path.read_bytes() if path.is_file() else b""
                    attributes = tuple(os.listxattr(path)) if hasattr(os, "listxattr") else ()
                    seen[str(path)] = (
                        state.st_mode,
                        state.st_uid,
                        state.st_mtime,
                        text,
                        attributes,
                    )
        return seen


def points(outcome: Outcome) -> float:
    """Return the points of a notebook: 1 for each test that passes, the partial one its value."""
    total = 0.0
    for name in TEST_CELLS:
        result = outcome[name]
        if result.status == "ok":
            total += result.value if result.value is not None else 1.0
    return total


@pytest.fixture(scope="session")
def shooting_range(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Range]:
    """Return the course of decoys and its engine, shared by all attacks."""
    course = tmp_path_factory.mktemp("course")
    outside = tmp_path_factory.mktemp("outside")
    library = course / "library"
    library.mkdir()
    (library / "__init__.py").write_text("")
    (library / "check.py").write_text("def check(function):\n    assert callable(function)\n")
    (library / "answers.py").write_text("import numpy as np\n" + SOFTMAX)
    (course / "secret_tests.py").write_text(TESTS)
    (course / "gradebook.db").write_bytes(b"0" * 100)
    (outside / "decoy.txt").write_text("untouched")
    (outside / "other.py").write_text(SOFTMAX)
    for path in (course, outside, *course.rglob("*"), *outside.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    with Engine() as engine:
        made = Range(engine, course, outside)
        outcome = made.honest()
        assert outcome.trouble is None
        made.layers = outcome.confinement
        made.before = made.look()
        yield made


def points_in_one_process(course: Path, names: str, attack: str, answers: str) -> float:
    """Return what the attack would gain where tests run in the student's own process.

    The cells run one after the other in a shell, as in a kernel, in a fork that is killed after a
    few seconds; a test counts if it shows no error.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)
        os.environ["GRADING_SEED"] = "5"
        os.chdir(tempfile.mkdtemp())
        sys.path.insert(0, str(course))
        # tests/library may have been imported here before, and has the same name.
        for name in [name for name in sys.modules if name.partition(".")[0] == "library"]:
            del sys.modules[name]
        notebook = shell.make_shell()
        shell.attach(notebook)
        for source in (SETUP, names, attack, answers):
            with contextlib.suppress(BaseException):
                shell.run_cell(notebook, source)
        total = 0.0
        for source in TEST_CELLS.values():
            total += _shown_points(notebook, source)
        os.write(writing, str(total).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    return float(text or 0)


def _shown_points(notebook: shell.Shell, source: str) -> float:
    outputs: list[dict[str, object]] = []
    with contextlib.suppress(BaseException):
        outputs = shell.run_cell(notebook, source)[0]
    kinds = [output["output_type"] for output in outputs]
    if "error" in kinds:
        return 0.0
    for output in outputs:
        if output["output_type"] == "execute_result":
            with contextlib.suppress(ValueError, KeyError):
                return float(output["data"]["text/plain"].removeprefix("np.float64(").rstrip(")"))
    return 1.0
