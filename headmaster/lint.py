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
    "bytecode-of-answer": "reads the bytecode or globals of the student's code, which stay in the "
    "student's process; test what the function returns",
    "patched-module": "patches a module, which the student's process does not see; pass what is to "
    "be observed as an argument",
    "patched-answer": "gives a name of the student's a new meaning, which the student's other "
    "functions do not see; pass what is to be replaced as an argument",
    "subclass-of-answer": "derives a class from the student's; test the student's class itself",
    "shared-memory": "asks whether arrays share memory; results are copies: compare values",
    "odd-array": "uses masked or structured arrays, which do not travel between processes; use "
    "plain arrays",
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
_BYTECODE = {"__code__", "__globals__", "__closure__"}
_ODD_ARRAYS = {"ma", "recarray", "MaskedArray", "masked_array"}


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
        found.update(check(test))
    return sorted(found)


def _magics(source: str) -> Iterator[int]:
    for number, line in enumerate(source.split("\n"), 1):
        if line.strip() and pycode.without_magics(line) != line:
            yield number


class _Test:
    """A test cell's tree, and which of its names hold what the student's code returned."""

    def __init__(self, tree: ast.Module, answers: set[str]) -> None:
        self.tree = tree
        self.answers = answers
        self.results: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and self.is_result(node.value):
                targets = [n for t in node.targets for n in ast.walk(t)]
                self.results |= {n.id for n in targets if isinstance(n, ast.Name)}

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))

    def is_result(self, node: ast.AST) -> bool:
        """Say whether an expression is exactly what the student's code returned."""
        if isinstance(node, ast.Call):
            return isinstance(node.func, ast.Name) and node.func.id in self.answers
        if isinstance(node, ast.Subscript):
            return self.is_result(node.value)
        return isinstance(node, ast.Name) and node.id in self.results

    def holds_result(self, node: ast.AST) -> bool:
        """Say whether what the student's code returned stands anywhere in an expression."""
        return any(self.is_result(item) for item in ast.walk(node))

    def text(self) -> str:
        return ast.unparse(self.tree)


_Found = Iterator[tuple[int, str]]


def _called(node: ast.Call) -> str:
    func = node.func
    return func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")


def _process_findings(test: _Test) -> _Found:
    for call in test.calls():
        name = _called(call)
        if name in ("shares_memory", "may_share_memory"):
            yield call.lineno, "shared-memory"
        elif name in ("patch", "object") and "patch" in ast.unparse(call.func):
            yield call.lineno, "patched-module"
    for node in test.nodes(ast.Attribute):
        if node.attr in _BYTECODE:
            yield node.lineno, "bytecode-of-answer"
        elif node.attr in _ODD_ARRAYS:
            yield node.lineno, "odd-array"


def _odd_results(test: _Test) -> _Found:
    """Find what only masked and structured results have: `.mask`, and fields by name."""
    for node in test.nodes(ast.Attribute):
        if node.attr == "mask" and test.is_result(node.value):
            yield node.lineno, "odd-array"
    for node in test.nodes(ast.Attribute):
        inner = node.value
        named = isinstance(inner, ast.Subscript) and isinstance(inner.slice, ast.Constant)
        field = named and isinstance(inner.slice.value, str) and node.attr in ("shape", "dtype")
        if field and test.is_result(inner.value):
            yield node.lineno, "odd-array"


def _patched_answer(test: _Test) -> _Found:
    for node in test.tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in test.answers:
            yield node.lineno, "patched-answer"
        elif isinstance(node, ast.Assign):
            names = {item.id for t in node.targets for item in ast.walk(t) if _is_name(item)}
            if names & test.answers:
                yield node.lineno, "patched-answer"


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _subclass_of_answer(test: _Test) -> _Found:
    for node in test.nodes(ast.ClassDef):
        bases = {base.id for base in node.bases if isinstance(base, ast.Name)}
        if bases & test.answers:
            yield node.lineno, "subclass-of-answer"


def _never_fails(test: _Test) -> _Found:
    active = (ast.Assert, ast.Raise, ast.Call)
    if not any(True for _ in test.nodes(*active)):
        yield 1, "never-fails"


def _unused_comparison(test: _Test) -> _Found:
    for node in test.nodes(ast.Expr):
        value = node.value
        compares = isinstance(value, ast.Compare) or (
            isinstance(value, ast.Call) and _called(value) in _COMPARISONS | {"all", "any"}
        )
        if compares:
            yield node.lineno, "unused-comparison"


def _answer_decides(test: _Test) -> _Found:
    for node in test.nodes(ast.Assert):
        condition = node.test
        if isinstance(condition, ast.UnaryOp) and isinstance(condition.op, ast.Not):
            condition = condition.operand
        if isinstance(condition, ast.Call) and test.is_result(condition):
            yield node.lineno, "answer-decides"
        if isinstance(condition, ast.Compare):
            sides = [condition.left, *condition.comparators]
            if len(sides) > 1 and all(test.is_result(side) for side in sides):
                yield node.lineno, "answer-decides"


def _swallowed(test: _Test) -> _Found:
    for node in test.nodes(ast.Try):
        for handler in node.handlers:
            everything = handler.type is None or ast.unparse(handler.type) in (
                "Exception",
                "BaseException",
                "AssertionError",
            )
            quiet = all(isinstance(item, ast.Pass | ast.Continue) for item in handler.body)
            checks = any(isinstance(n, ast.Assert) for item in node.body for n in ast.walk(item))
            if everything and quiet and (checks or not node.orelse):
                yield handler.lineno, "swallowed"


def _skipped_check(test: _Test) -> _Found:
    for node in test.nodes(ast.If):
        if node.orelse or not test.holds_result(node.test):
            continue
        if any(isinstance(item, ast.Assert) for item in node.body):
            yield node.lineno, "skipped-check"


def _no_shape(test: _Test) -> _Found:
    text = test.text()
    if ".shape" in text or "np.shape(" in text or "assert_array_equal" in text:
        return
    for call in test.calls():
        if _called(call) in _BROADCASTING and any(test.holds_result(a) for a in call.args):
            yield call.lineno, "no-shape"
    for call in test.calls():  # (abs(f(x) - right) < 1e-9).all(), abs(f(x) - right).max()
        subtracts = any(isinstance(node, ast.Sub) for node in ast.walk(call))
        if _called(call) in ("all", "max", "amax") and subtracts and test.holds_result(call):
            yield call.lineno, "no-shape"


def _nan_passes(test: _Test) -> _Found:
    if "isfinite" in test.text() or "isnan" in test.text():
        return
    for node in test.nodes(ast.Assert):
        denied = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        if denied and _is_greater(node.test.operand) and test.holds_result(node.test):
            yield node.lineno, "nan-passes"
    for node in test.nodes(ast.If):
        raising = any(isinstance(item, ast.Raise) for item in node.body)
        if raising and _is_greater(node.test) and test.holds_result(node.test):
            yield node.lineno, "nan-passes"


def _is_greater(node: ast.AST) -> bool:
    return isinstance(node, ast.Compare) and any(
        isinstance(op, ast.Gt | ast.GtE) for op in node.ops
    )


_CHECKS: list[Callable[[_Test], _Found]] = [
    _process_findings,
    _odd_results,
    _patched_answer,
    _subclass_of_answer,
    _never_fails,
    _unused_comparison,
    _answer_decides,
    _swallowed,
    _skipped_check,
    _no_shape,
    _nan_passes,
]
