"""What a piece of Python source defines, without running it."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable
from functools import lru_cache

_MAGIC = re.compile(r"^\s*[%!?]|^\s*\w+\s*=\s*[%!]|^[\w.]+\?{1,2}\s*$")
_HEADER = re.compile(r"^(?:async\s+def|def|class)\s+([^\W\d]\w*)", re.MULTILINE)


MAX_PARSED = 100_000  # characters; nobody writes longer cells, and parsing hostile ones takes long


@lru_cache(maxsize=64)
def parse(source: str) -> ast.Module | None:
    """Return the syntax tree of a cell (its magics left out), or None if it has none.

    The tree is shared with other callers: nobody changes it.
    """
    if len(source) > MAX_PARSED:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(without_magics(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def without_magics(source: str) -> str:
    """Blank IPython's magic and shell lines, so that line numbers stay."""
    if source.lstrip().startswith("%%"):
        return ""
    return "\n".join("" if _MAGIC.match(line) else line for line in source.split("\n"))


def defined_names(source: str) -> list[str]:
    """Return the functions and classes that a cell defines, in order.

    A cell with a syntax error still names what it meant to define: a broken answer is an answer.
    """
    tree = parse(source)
    if tree is None:
        return list(dict.fromkeys(_HEADER.findall(source)))
    return list(dict.fromkeys(node.name for node in tree.body if _is_definition(node)))


def bound_names(source: str) -> set[str]:
    """Return every name that a cell binds at its top level: definitions, imports, assignments."""
    tree = parse(source)
    if tree is None:
        return set(defined_names(source))
    names: set[str] = set()
    for node in tree.body:
        names.update(_bound_by(node))
    return names


def _bound_by(node: ast.stmt) -> set[str]:
    if _is_definition(node):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    stores = (item for item in ast.walk(node) if isinstance(item, ast.Name))
    return {item.id for item in stores if isinstance(item.ctx, ast.Store)}


def imported_names(source: str, package: str = "") -> list[str]:
    """Return the modules that a piece of source imports, and what it imports from them.

    `package` is the package that the source is a module of, for relative imports.
    """
    tree = parse(source)
    names: list[str] = []
    for node in ast.walk(tree) if tree else ():
        if isinstance(node, ast.Import):
            names.extend(_with_parents(alias.name for alias in node.names))
        elif isinstance(node, ast.ImportFrom):
            above = package.rsplit(".", node.level - 1)[0] if node.level else ""
            base = ".".join(part for part in (above, node.module or "") if part)
            names.extend(_with_parents([base, *(f"{base}.{a.name}" for a in node.names)]))
    return list(dict.fromkeys(names))


def _with_parents(names: Iterable[str]) -> list[str]:
    """Return dotted names with the packages that they lie in."""
    parts = [name.split(".") for name in names]
    return [".".join(some[:n]) for some in parts for n in range(1, len(some) + 1)]


def real_names(source: str) -> set[str]:
    """Return the names that a cell answers: bound at top level by more than an empty stub."""
    tree = parse(source)
    if tree is None:
        return set(defined_names(source))
    stubs = {node.name for node in tree.body if _is_definition(node) and _is_stub(node)}
    return bound_names(source) - stubs


def is_empty_stub(source: str) -> bool:
    """Say whether a cell defines things, and nothing but empty stubs."""
    tree = parse(source)
    if tree is None:
        return False
    plain = (ast.Import, ast.ImportFrom)
    rest = [node for node in tree.body if not isinstance(node, plain) and not _is_docstring(node)]
    raises = [node for node in rest if _does_nothing(node)]
    definitions = [node for node in rest if _is_definition(node)]
    return (
        bool(definitions)
        and all(_is_stub(node) for node in definitions)
        and (len(definitions) + len(raises) == len(rest))
    )


def without_definitions(source: str, names: set[str]) -> str:
    """Blank the definitions of these names, and keep everything else of a cell."""
    tree = parse(source)
    if tree is None:
        return "" if names & set(defined_names(source)) else source
    lines = source.split("\n")
    for node in tree.body:
        if _bound_by(node) and _bound_by(node) <= names:
            first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            lines[first - 1 : node.end_lineno] = [""] * (node.end_lineno - first + 1)
    return "\n".join(lines)


def mentioned_names(source: str) -> set[str]:
    """Return every name that a cell reads or writes."""
    tree = parse(source)
    if tree is None:
        return set(re.findall(r"[^\W\d]\w*", source))
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _is_definition(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _does_nothing(node: ast.stmt) -> bool:
    """`pass`, a docstring, `...`, or `raise NotImplementedError`."""
    if isinstance(node, ast.Raise):
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return isinstance(node, ast.Pass) or _is_docstring(node)


def _is_stub(node: ast.stmt) -> bool:
    body = getattr(node, "body", [])
    if isinstance(node, ast.ClassDef):
        methods = [item for item in body if _is_definition(item)]
        rest = [item for item in body if item not in methods]
        return all(_does_nothing(item) for item in rest) and all(_is_stub(item) for item in methods)
    return all(_does_nothing(item) for item in body)
