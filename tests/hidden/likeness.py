"""What the report's search for answers that are alike finds, and what it flags for nothing.

The right implementations in different styles are a class of which nobody copied. A copy is made of
each as a student would: other names, other comments, another layout.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from itertools import combinations

from headmaster import similarity
from tests.hidden.spec import Exercise, FunctionSpec

COPY = "a copy"


def likeness(exercises: Iterable[Exercise]) -> dict[str, int]:
    """How many pairs were written apart and how many of them are flagged; copies made and found.

    Copies are made of answers that are long enough to be compared at all.
    """
    found = {"pairs": 0, "flagged": 0, "copies": 0, "found": 0}
    for exercise in exercises:
        for spec in exercise.functions.values():
            apart = {name: way.source for name, way in spec.alternatives.items()}
            found["pairs"] += len(list(combinations(apart, 2)))
            found["flagged"] += len(_alike(spec, apart))
            for name, source in apart.items():
                if len(similarity.tokens(source)) >= similarity.LEAST:
                    found["copies"] += 1
                    pairs = _alike(spec, {**apart, COPY: renamed(source)})
                    found["found"] += (name, COPY) in pairs or (COPY, name) in pairs
    return found


def _alike(spec: FunctionSpec, answers: dict[str, str]) -> set[tuple[str, str]]:
    text = spec.exercise.text
    ours = [text.setup, *text.answers.values(), *text.stubs.values()]
    class_ = {name: {spec.name: source} for name, source in answers.items()}
    return {one.students for one in similarity.alike(class_, ours)}


def renamed(source: str) -> str:
    """A copy with other names for everything that can be renamed in it, and without its comments."""
    tree = ast.parse(source)
    fixed = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    fixed |= {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg:
            fixed.add(node.arg)  # it names an argument of somebody else's function, perhaps
        elif isinstance(node, ast.Import | ast.ImportFrom):
            fixed |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
    own = sorted(similarity.own_names(tree) - fixed)
    names = {name: f"mine_{i}" for i, name in enumerate(own) if not name.startswith("__")}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        elif isinstance(node, ast.arg):
            node.arg = names.get(node.arg, node.arg)
        elif isinstance(node, ast.FunctionDef):
            node.name = names.get(node.name, node.name)
    return f"# all my own work\n{ast.unparse(tree)}\n"
