"""`headmaster lint`: test cells that do not judge what they seem to judge.

Three kinds of finding. Some Python means something else when the student's functions live in
another process (or would let them tell the test what to think). Some checks let the student's code
decide, or never fail. Some comparisons accept a result of the wrong shape.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headmaster import pycode
from headmaster.course import Course
from headmaster.release import NotebookSpec, SpecCell, load_assignment

# What each finding means, and what to write instead: the one table of lint's codes.
CODES: dict[str, str] = {
    # judged differently by two processes
    "source-of-answer": "reads the source or bytecode of the student's code, which stays in the "
    "student's process; test what the function returns",
    "patched-module": "patches a module, which the student's process does not see; pass what is to "
    "be observed as an argument",
    "identity": "asks whether a result is the same object; results are copies: compare values",
    "shared-memory": "asks whether arrays share memory; results are copies: compare values",
    "warnings-caught": "expects a warning of the student's code by catching it in the test",
    "printed-text": "captures what the student's code prints; ask for a returned text instead",
    "magic": "uses an IPython magic, which does not run in tests; write it in Python",
    # the student's code decides, or nothing does
    "never-fails": "has no assertion and calls nothing that could raise: it always passes",
    "unused-comparison": "compares and throws the result away; write assert in front",
    "answer-decides": "lets a result of the student's code decide by its own truth or equality; "
    "compare with a value of the test's own",
    "swallowed": "catches every exception, so that a failing check passes",
    "skipped-check": "asserts only under a condition that the student's result decides",
    # a wrong shape passes
    "no-shape": "compares by broadcasting: a result of another shape can pass; compare .shape too, "
    "or use numpy.testing.assert_array_equal and check the shape",
    "nan-passes": "compares by max() or by >, which not-a-number passes; check isfinite first",
}

_COMPARISONS = {"allclose", "isclose", "array_equal", "array_equiv"}
_BROADCASTING = {"allclose", "isclose"}
_SOURCE_READERS = {
    "getsource",
    "getsourcelines",
    "getsourcefile",
    "getfile",
    "dis",
    "getclosurevars",
}
_CAPTURES = {"redirect_stdout", "redirect_stderr", "capture_output"}


@dataclass(frozen=True)
class Finding:
    """One thing to look at in a test cell."""

    notebook: str
    cell: str
    line: int
    code: str

    def __str__(self) -> str:
        """Return the finding as a line that an editor can follow."""
        return f"{self.notebook}: {self.cell}:{self.line}: {self.code}: {CODES[self.code]}"


def lint_assignment(course: Course, name: str) -> list[Finding]:
    """Return what is doubtful in an assignment's tests."""
    spec = load_assignment(course, name)
    return [finding for notebook in spec.notebooks for finding in lint_notebook(notebook)]


def lint_notebook(spec: NotebookSpec) -> list[Finding]:
    """Return what is doubtful in one notebook's tests, by cell and line."""
    answers = {n for c in spec.cells if c.role == "solution" for n in c.names}
    findings = []
    for cell in spec.tests:
        found = _lint_cell(cell, answers)
        findings += [Finding(spec.name, cell.id, line, code) for line, code in found]
    return findings


def _lint_cell(cell: SpecCell, answers: set[str]) -> list[tuple[int, str]]:
    found = {(number, "magic") for number in _magics(cell.source)}
    tree = pycode.parse(cell.source)
    if tree is None:
        return sorted(found)
    test = _Test(tree, answers)
    for check in _CHECKS:
        list[Callable[[_Test], _Found]] = [
            _process_findings,
            _identity,
            _never_fails,
            _unused_comparison,
            _answer_decides,
            _swallowed,
            _skipped_check,
            _no_shape,
            _nan_passes,
        ]
