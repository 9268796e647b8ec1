"""Answers that are suspiciously alike: long runs of code that two students share and few others do.

Every run of twelve tokens is a fingerprint, as in winnowing, but all are kept: a class is small.
Before that, whatever is easily changed is made equal: names of one's own, comments, docstrings,
annotations, quotes, line breaks. Not counted is what the course itself wrote (what it released, and
its own answers, which good answers resemble) and what many of the class have.

What remains says that two texts are alike, never why.
"""

from __future__ import annotations

import ast
import io
import tokenize
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from headmaster import pycode

RUN = 12  # tokens of a fingerprint
FEW = 4  # students who may share a fingerprint before it counts as common
COMMON = 0.02  # … or this share of a large class
LEAST = 60  # tokens that two answers must share
SHARE = 0.5  # … and the part of the shorter one that these must be

Answers = Mapping[str, str]  # the id of a cell -> what the student wrote there


@dataclass(frozen=True)
class Likeness:
    """What two students' answers share: in one cell of each, or in all cells together."""

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
    found = [one for pair in _candidates(texts, least) for one in _compared(pair, texts)]
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
    """One student's code as fingerprints, each with the places where it stands."""

    def __init__(self, cells: Answers) -> None:
        self.sizes: dict[str, int] = {}
        self.places: dict[int, list[tuple[str, int]]] = defaultdict(list)
        for cell, source in cells.items():
            words = tokens(source)
            self.sizes[cell] = len(words)
            for start, print_ in enumerate(fingerprints(words)):
                self.places[print_].append((cell, start))

    def leave_out(self, common: set[int]) -> None:
        """Forget fingerprints that say nothing."""
        for print_ in common & self.places.keys():
            del self.places[print_]

    def covered(self, shared: Iterable[int], cell: str) -> int:
        """Return how many tokens of a cell these fingerprints cover."""
        places = (place for print_ in shared for place in self.places[print_])
        return len({start + i for here, start in places if here == cell for i in range(RUN)})


def _common(texts: Mapping[str, _Text], ours: Iterable[str]) -> set[int]:
    known = {print_ for source in ours for print_ in fingerprints(tokens(source))}
    owners = Counter(print_ for text in texts.values() for print_ in text.places)
    most = limit(len(texts))
    return known | {print_ for print_, count in owners.items() if count > most}


def _candidates(texts: Mapping[str, _Text], least: int) -> Iterator[tuple[str, str]]:
    """Yield the pairs of students that share enough fingerprints to be worth a look."""
    owners: dict[int, list[str]] = defaultdict(list)
    for student, text in texts.items():
        for print_ in text.places:
            owners[print_].append(student)
    shared = Counter(pair for some in owners.values() for pair in combinations(sorted(some), 2))
    return (pair for pair, count in shared.items() if count + RUN > least)


def _compared(pair: tuple[str, str], texts: Mapping[str, _Text]) -> Iterator[Likeness]:
    one, other = (texts[student] for student in pair)
    between: dict[tuple[str, str], set[int]] = defaultdict(set)
    for print_ in one.places.keys() & other.places.keys():
        for here, _ in one.places[print_]:
            for there, _ in other.places[print_]:
                between[here, there].add(print_)
    for (here, there), shared in between.items():
        both = min(one.covered(shared, here), other.covered(shared, there))
        yield Likeness(pair, (here, there), both, both / min(one.sizes[here], other.sizes[there]))


# --- code as tokens ------------------------------------------------------------------------------


def fingerprints(words: list[str]) -> list[int]:
    """Return a number for every run of tokens."""
    runs = (" ".join(words[i : i + RUN]) for i in range(len(words) - RUN + 1))
    return [zlib.crc32(run.encode("utf-8", "replace")) for run in runs]


def tokens(source: str) -> list[str]:
    """Return the tokens of a cell without what is easily changed; none if it does not parse."""
    tree = pycode.parse(source)
    if tree is None:
        return []
    try:
        plain = ast.unparse(_Plain(tree).visit(ast.parse(ast.unparse(tree))))
        read = tokenize.generate_tokens(io.StringIO(plain).readline)
        return [token.string for token in read if token.string.strip() not in ("", "pass")]
    except (SyntaxError, ValueError, RecursionError, MemoryError, tokenize.TokenError):
        return []


class _Plain(ast.NodeTransformer):
    """Makes equal what is easily changed: one's own names, texts, docstrings and annotations."""

    def __init__(self, tree: ast.AST) -> None:
        self.names = own_names(tree)
        aliases = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
        self.imports = {"np": "numpy"} | {a.asname: a.name for a in aliases if a.asname}
        nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
        self.attributes = {node.attr for node in nodes if isinstance(node.ctx, ast.Store)}

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
