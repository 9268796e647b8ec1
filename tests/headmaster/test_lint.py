"""`headmaster lint` finds tests that do not judge what they seem to judge, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_engine_idioms import IDIOMS, KNOWN_DIFFERENCES

from headmaster import pycode
from headmaster.course import Course
from headmaster.lint import CODES, lint_assignment, lint_notebook
from headmaster.release import NotebookSpec, SpecCell

ANSWER = "def f(x):\n    return x\n\nclass Net:\n    pass"


def found(test: str, answer: str = ANSWER) -> list[str]:
    """Return the codes that lint finds in a test cell."""
    cells = (
        SpecCell("f", "code", "solution", answer, answer),
        SpecCell("f-test", "code", "test", test, test, 1.0),
    )
    return [finding.code for finding in lint_notebook(NotebookSpec("nb", cells, {}))]


DOUBTFUL = {
    "assert np.shares_memory(f(x), x)": "shared-memory",
    "with mock.patch('numpy.exp'): f(1)": "patched-module",
    "with mock.patch.object(np, 'exp'): f(1)": "patched-module",
    "assert f.__code__.co_argcount == 2": "bytecode-of-answer",
    "class Mine(Net): pass\nassert Mine()": "subclass-of-answer",
    "def f(x): return 3\nassert g(1) == 3": "patched-answer",
    "%timeit f(3)\nassert f(3) == 3": "magic",
    "!ls\nassert f(3) == 3": "magic",
    "x = 3": "never-fails",
    "y = [1, 2]\nz = y[0] + 1": "never-fails",
    "f(3) == 3": "unused-comparison",
    "np.allclose(f(3), 3)": "unused-comparison",
    "(f(x) == x).all()": "unused-comparison",
    "assert f(3)": "answer-decides",
    "assert not f(3)": "answer-decides",
    "assert f(3) == f(4)": "answer-decides",
    "a, b = f(3), f(4)\nout = f(a)\nassert out == f(3)": "answer-decides",
    "try:\n    assert f(3) == 3\nexcept: pass": "swallowed",
    "try:\n    assert f(3) == 3\nexcept Exception: pass": "swallowed",
    "r = f(3)\nif r is not None:\n    assert r == 3": "skipped-check",
    "assert np.allclose(f(x), right)": "no-shape",
    "assert np.isclose(f(x), right).all()": "no-shape",
    "assert (abs(f(x) - right) < 1e-9).all()": "no-shape",
    "assert np.abs(f(x) - right).max() < 1e-9": "no-shape",
    "assert not abs(f(x) - 1) > 1e-9": "nan-passes",
    "if abs(f(x) - 1) > 1e-9:\n    raise AssertionError": "nan-passes",
}


@pytest.mark.parametrize("test", DOUBTFUL)
def test_a_doubtful_test_is_found(test: str) -> None:
    assert DOUBTFUL[test] in found(test)


GOOD = [
    "assert f(3) == 3",
    "check(f, 'values')",
    "from tests.hidden import grade\ngrade('f-values', f)",
    "assert f(x).shape == (2, 3)\nassert np.allclose(f(x), right)",
    "np.testing.assert_array_equal(f(x), right)",
    "try:\n    f(-1)\nexcept ValueError:\n    pass\nelse:\n    raise AssertionError('no error')",
    "out = f(x)\nassert out is x",
    "n = Net()\nn.W = np.ones(3)\nassert n.ok() == 1",
    "points = sum(f(k) == k for k in range(4))\npoints * 0.5",
    "assert np.isfinite(f(x)).all() and not abs(f(x) - 1) > 1e-9",
    "with warnings.catch_warnings():\n    warnings.simplefilter('ignore')\n    assert f(3) == 3",
    "assert all(f(k) == k for k in range(5))",
]


@pytest.mark.parametrize("test", GOOD)
def test_a_good_test_is_left_alone(test: str) -> None:
    assert found(test) == []


BY_PROCESSES = {
    "shared-memory", "patched-module", "patched-answer", "bytecode-of-answer",
    "subclass-of-answer", "odd-array", "answer-decides",
}  # fmt: skip


@pytest.mark.parametrize("name", KNOWN_DIFFERENCES)
def test_what_two_processes_judge_differently_is_found(name: str) -> None:
    answer, test = IDIOMS[name]
    assert set(found(test, answer)) & BY_PROCESSES


@pytest.mark.parametrize("name", sorted(set(IDIOMS) - set(KNOWN_DIFFERENCES)))
def test_what_two_processes_judge_alike_is_not_reported_as_different(name: str) -> None:
    answer, test = IDIOMS[name]
    alike = BY_PROCESSES - {"answer-decides"}
    assert not set(found(test, answer)) & alike


def test_a_finding_names_the_cell_and_the_line(course: Course) -> None:
    source = course.root / "source" / "ps1" / "numbers.md"
    text = source.read_text()
    source.write_text(text.replace("assert double(2) == 4", "x = 1\nassert double(2)"))
    (finding,) = lint_assignment(course, "ps1")
    assert str(finding).startswith("numbers: double-values:2: answer-decides: lets a result")


def test_every_code_is_explained_and_used() -> None:
    source = Path(pycode.__file__).with_name("lint.py").read_text()
    assert all(source.count(f'"{code}"') >= 2 for code in CODES)
