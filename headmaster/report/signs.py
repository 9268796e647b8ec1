"""Signs that code tries to leave its place: what no answer needs, and what confinement refused.

They are for a person's eye and change no grade: confinement holds whether or not a sign is found.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

from headmaster import pycode

# Modules by which code reaches beyond itself: memory, processes, the network, the interpreter.
MODULES = frozenset(
    "builtins ctypes gc marshal multiprocessing pty resource signal socket subprocess "
    "headmaster".split()
)
# Names of the interpreter's inside, and of calls that act on other processes and the machine.
ATTRIBUTES = frozenset(
    "__globals__ __closure__ __code__ __subclasses__ f_back f_globals f_locals _getframe meta_path "
    "settrace setprofile ast_transformers input_transformers_cleanup run_cell set_custom_exc "
    "fork execv kill setuid setresuid memfd_create chmod fchmod setxattr _exit symlink".split()
)
QUOTED = frozenset(name for name in ATTRIBUTES if "_" in name)  # no word of a usual text
PATCHED = frozenset(("np", "numpy", "builtins", "math", "sys"))
_OUTSIDE = re.compile(r"^(/proc|/etc|/tmp|/home|/root|\.\./|~/)|gradebook", re.I)
_REFUSED = ("PermissionError", "is hidden while this exercise is graded")


def signs_in(source: str, hidden: tuple[str, ...] = (), shown: tuple[str, ...] = ()) -> list[str]:
    """Return what a cell does that an answer does not need, as phrases.

    hidden, shown: packages that students' processes cannot import, and the exceptions.
    """
    tree = pycode.parse(source)
    if tree is None:
        return []
    found = [sign for node in ast.walk(tree) for sign in _signs(node)]
    found += [f"imports {name}" for name in _hidden_imports(source, hidden, shown)]
    return list(dict.fromkeys(found))


def _signs(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (f"imports {a.name}" for a in node.names if a.name.split(".")[0] in MODULES)
    elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
        yield f"imports {node.module}"
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        base = _root(node)
        if base in PATCHED:
            yield f"changes {ast.unparse(node)}"
    elif isinstance(node, ast.Attribute) and node.attr in ATTRIBUTES:
        yield f"uses {node.attr}"
    elif isinstance(node, ast.Constant) and node.value in QUOTED:
        yield f"uses {node.value}"
    elif isinstance(node, ast.Constant) and _is_outside(node.value):
        yield f"names the place {node.value!r}"


def _is_outside(value: object) -> bool:
    if not isinstance(value, str) or len(value) > 200 or "\n" in value:
        return False
    return bool(_OUTSIDE.search(value))


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _hidden_imports(source: str, hidden: tuple[str, ...], shown: tuple[str, ...]) -> list[str]:
    def within(name: str, packages: tuple[str, ...]) -> bool:
        return any(name == package or name.startswith(f"{package}.") for package in packages)

    found = pycode.imported_names(source)
    longest = [n for n in found if not any(other.startswith(f"{n}.") for other in found)]
    names = [name for name in longest if within(name, hidden)]
    way = {".".join(s.split(".")[:i]) for s in shown for i in range(1, len(s.split(".")) + 1)}
    return [name for name in names if name not in way and not within(name, shown)]


def signs_in_outputs(outputs: list[Any]) -> list[str]:
    """Return what a cell's outputs say that confinement refused."""
    errors = [one for one in outputs if isinstance(one, dict) and one.get("output_type") == "error"]
    texts = [f"{error.get('ename')}: {error.get('evalue')}" for error in errors]
    return [f"was refused: {text[:200]}" for text in texts if any(r in text for r in _REFUSED)]
