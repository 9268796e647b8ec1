"""Answers that are suspiciously alike: long runs of code that two students share and few others do.

Every run of twelve tokens is a fingerprint, as in winnowing, but all are kept: a class is small.
Before that, whatever is easily changed is made equal: names of one's own, comments, docstrings,
annotations, quotes, line breaks. Not counted is what the course itself wrote (what it released, and
its own answers, which good answers resemble) and what many of the class have.

What remains says that two texts are alike, never why.
"""

from __future__ import annotations

import ast
import re
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product

from headmaster import pycode

RUN = 12  # tokens of a fingerprint
FEW = 4  # students who may share a fingerprint before it counts as common
COMMON = 0.02  # … or this share of a large class
LEAST = 60  # tokens that two answers must share
SHARE = 0.5  # … and the part of the shorter one that these must be
# Of one student; nobody writes more, and comparing hostile ones would take long.
MAX_CELLS, MAX_CODE = 50, 150_000  # characters

_TOKEN = re.compile(r"\w+|[^\w\s]")

Answers = Mapping[str, str]  # the id of a cell -> what the student wrote there


@dataclass(frozen=True)
class Likeness:
    """What one cell of a student's shares with one of another's."""

    students: tuple[str, str]
    cells: tuple[str, str]
    tokens: int  # that both have, and few others
    share: float  # of the shorter answer, from 0 to 1


def alike(
    answers: Mapping[str, Answers],
    ours: Iterable[str] = (),
    least: int = LEAST,
    share: float = SHARE,
) -> list[Likeness]:
    """Return the cells of two students that share more than chance explains, most first.

    ours: code of the course's own, which may stand in any answer.
    """
    texts = {student: _Text(cells) for student, cells in answers.items()}
    common = _common(texts, ours)
    for text in texts.values():
        text.leave_out(common)
    found = [one for pair in _candidates(texts, least) for one in _compared(pair, texts, least)]
    chosen = [one for one in found if one.tokens >= least and one.share >= share]
    chosen.sort(key=lambda one: (-one.tokens, one.students, one.cells))
    return list(_once(chosen))


def _once(found: Iterable[Likeness]) -> Iterator[Likeness]:
    """Leave out what a cell shares with a second copy of the other student's cell."""
    told: set[tuple[tuple[str, str], int, str]] = set()
    for one in found:
        sides = {(one.students, side, one.cells[side]) for side in (0, 1)}
        if not sides & told:
            yield one
        told |= sides


def limit(students: int) -> int:
    """Return how many of a class may share a piece of code before it counts as common."""
    return max(FEW, int(COMMON * students))


class _Text:
    """One student's code: for each cell, the places of each fingerprint."""

    def __init__(self, cells: Answers) -> None:
        self.sizes: dict[str, int] = {}
        self.cells: dict[str, dict[int, list[int]]] = {}
        left = MAX_CODE
        longest = sorted(cells, key=lambda cell: len(cells[cell]), reverse=True)
        for cell in longest[:MAX_CELLS]:
            left -= len(cells[cell])
            words = tokens(cells[cell]) if left >= 0 else []
            places: dict[int, list[int]] = defaultdict(list)
            for start, print_ in enumerate(fingerprints(words)):
                places[print_].append(start)
            self.sizes[cell], self.cells[cell] = len(words), dict(places)

    @property
    def prints(self) -> set[int]:
        """Return all fingerprints."""
        return {print_ for places in self.cells.values() for print_ in places}

    def where(self) -> dict[int, list[str]]:
        """Return the cells of each fingerprint."""
        found: dict[int, list[str]] = defaultdict(list)
        for cell, places in self.cells.items():
            for print_ in places:
                found[print_].append(cell)
        return found

    def leave_out(self, common: set[int]) -> None:
        """Forget fingerprints that say nothing."""
        for cell, places in self.cells.items():
            self.cells[cell] = {p: starts for p, starts in places.items() if p not in common}

    def covered(self, shared: Iterable[int], cell: str) -> int:
        """Return how many tokens of a cell these fingerprints cover."""
        starts = (start for print_ in shared for start in self.cells[cell][print_])
        return len({start + i for start in starts for i in range(RUN)})


def _common(texts: Mapping[str, _Text], ours: Iterable[str]) -> set[int]:
    known = {print_ for source in ours for print_ in fingerprints(tokens(source))}
    owners = Counter(print_ for text in texts.values() for print_ in text.prints)
    most = limit(len(texts))
    return known | {print_ for print_, count in owners.items() if count > most}


def _candidates(texts: Mapping[str, _Text], least: int) -> Iterator[tuple[str, str]]:
    """Yield the pairs of students that share enough fingerprints to be worth a look."""
    owners: dict[int, list[str]] = defaultdict(list)
    for student, text in sorted(texts.items()):
        for print_ in text.prints:
            owners[print_].append(student)
    shared = Counter(pair for some in owners.values() for pair in combinations(some, 2))
    return (pair for pair, count in shared.items() if count + RUN > least)


def _compared(pair: tuple[str, str], texts: Mapping[str, _Text], least: int) -> Iterator[Likeness]:
    one, other = (texts[student] for student in pair)
    mine, theirs = one.where(), other.where()
    between: dict[tuple[str, str], list[int]] = defaultdict(list)
    for print_ in mine.keys() & theirs.keys():
        for cells in product(mine[print_], theirs[print_]):
            between[cells].append(print_)
    for (here, there), shared in between.items():
        if len(shared) + RUN > least:
            both = min(one.covered(shared, here), other.covered(shared, there))
            share = both / min(one.sizes[here], other.sizes[there])
            yield Likeness(pair, (here, there), both, share)


# --- code as tokens ------------------------------------------------------------------------------


def fingerprints(words: list[str]) -> list[int]:
    """Return a number for every run of tokens."""
    runs = (" ".join(words[i : i + RUN]) for i in range(len(words) - RUN + 1))
    return [zlib.crc32(run.encode("utf-8", "replace")) for run in runs]


@lru_cache(maxsize=4096)
def _tokens(source: str) -> tuple[str, ...]:
    tree = pycode.parse(source)
    if tree is None:
        return ()
    try:
        own = ast.parse(pycode.without_magics(source))  # the other tree is shared
        plain = ast.unparse(_Plain(tree).visit(own))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(word for word in _TOKEN.findall(plain) if word != "pass")


def tokens(source: str) -> list[str]:
    """Return the tokens of a cell without what is easily changed; none if it does not parse."""
    return list(_tokens(source))


class _Plain(ast.NodeTransformer):
    """Makes equal what is easily changed: one's own names, texts, docstrings and annotations."""

    def __init__(self, tree: ast.AST) -> None:
        self.names = own_names(tree)
        self.imports = {"np": "numpy"}
        self.attributes = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.alias) and node.asname:
                self.imports[node.asname] = node.name
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self.attributes.add(node.attr)

    def _name(self, name: str | None) -> str | None:
        return "name" if name in self.names else name

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self.imports.get(node.id) or self._name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        node.attr = "name" if node.attr in self.attributes else node.attr
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg, node.annotation = "name", None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.name, node.returns = "name", None
        return self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = "name"
        return self.generic_visit(node)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        node.name = self._name(node.name)
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.AST:
        node.asname = None
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        node.value = "text" if isinstance(node.value, str) else node.value
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return ast.Pass() if is_text else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        plain = ast.Assign([self.visit(node.target)], self.visit(node.value))
        return ast.copy_location(plain, node)


def own_names(tree: ast.AST) -> set[str]:
    """Return the names that the author of a cell was free to choose."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler):
            names.add(node.name or "")
    return names
