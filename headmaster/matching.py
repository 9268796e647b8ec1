"""Put a submitted notebook and the course's source together into the notebook that is graded.

Tests and locked cells come from the source, always. The student's cells are found again by id,
then by similarity, then by the names they define; whatever else the student wrote stays where it
stands. The rules are made for people who copied, split, merged, moved, renamed, retyped or deleted
cells without meaning harm:

- an empty stub never replaces an answer that stands in another cell;
- a test runs after the answers that precede it in the source, wherever they were moved;
- what a student added to a locked or test cell runs as a cell of the student's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headmaster import pycode
from headmaster.job import Cell, Kind
from headmaster.reading import SubmittedCell
from headmaster.release import NotebookSpec, SpecCell

SIMILAR = 65.0  # per cent, of RapidFuzz's ratio


@dataclass(frozen=True)
class PlacedCell:
    """A cell of the notebook that is graded."""

    id: str
    cell_type: str
    source: str
    spec: SpecCell | None = None
    kind: Kind | None = None  # None: not executed
    attachments: dict[str, Any] | None = None


@dataclass(frozen=True)
class Assembly:
    """The notebook that is graded, and what had to be repaired to get it."""

    cells: tuple[PlacedCell, ...]
    unanswered: tuple[str, ...]  # ids of answer cells that are still as released
    notes: tuple[str, ...]

    def job_cells(self) -> tuple[Cell, ...]:
        """Return the cells that run."""
        return tuple(Cell(c.id, c.kind, c.source) for c in self.cells if c.kind)


def assemble(spec: NotebookSpec, submitted: list[SubmittedCell]) -> Assembly:
    """Match a submission to its source and return the notebook to grade."""
    return _Matching(spec, submitted).assembly()


class _Matching:
    def __init__(self, spec: NotebookSpec, submitted: list[SubmittedCell]) -> None:
        self.spec = spec
        self.submitted = submitted
        self.notes: list[str] = []
        self.found: dict[str, int] = {}  # id of a source cell -> index in `submitted`
        self.own = [cell for cell in spec.cells if cell.role != "free"]
        self.restored = {
            _squeezed(cell.released) for cell in self.own if cell.role in ("test", "locked", "task")
        }
        self._by_id()
        self._by_similarity()
        self._by_names()
        self._texts_by_neighbour()
        self.owner = {index: spec[cell_id] for cell_id, index in self.found.items()}
        self._give_back_answers()
        self.real = [self._real_names(i) for i in range(len(submitted))]

    # --- finding the student's cells -------------------------------------------------------------

    def _by_id(self) -> None:
        for cell in self.own:
            same = [i for i, s in enumerate(self.submitted) if cell.id in (s.grade_id, s.id)]
            exact = [i for i in same if self.submitted[i].grade_id == cell.id] or same
            if exact:
                self.found[cell.id] = self._best_copy(cell, exact)
            if len(exact) > 1:
                self.notes.append(f"cell {cell.id} was there {len(exact)} times")

    def _best_copy(self, cell: SpecCell, copies: list[int]) -> int:
        """Of several copies of a cell, return the last one that somebody wrote in."""
        changed = [i for i in copies if not _same(self.submitted[i].source, cell.released)]
        return (changed or copies)[-1]

    def _free(self, *types: str) -> list[int]:
        taken = set(self.found.values())
        ids = {cell.id for cell in self.own}
        return [
            i
            for i, cell in enumerate(self.submitted)
            if i not in taken and cell.cell_type in types and cell.grade_id not in ids
        ]

    def _by_similarity(self) -> None:
        missing = [cell for cell in self.own if cell.id not in self.found]
        if not missing:
            return
        from rapidfuzz import fuzz

        pairs = [
            (fuzz.ratio(cell.released, self.submitted[i].source), -i, cell)
            for cell in missing
            if len(cell.released.strip()) > 8 and cell.role != "manual"
            for i in self._free(cell.cell_type)
            if len(self.submitted[i].source) < 4 * len(cell.released) + 2000
        ]
        for likeness, index, cell in sorted(pairs, key=lambda p: p[:2], reverse=True):
            if likeness >= SIMILAR and cell.id not in self.found and self._fits(cell, -index):
                self._note_found(cell, -index, "its text")

    def _fits(self, cell: SpecCell, index: int) -> bool:
        """A stub's likeness to another function's answer is no proof: the names must agree."""
        if index in self.found.values():
            return False
        names = pycode.bound_names(self.submitted[index].source)
        return cell.role != "solution" or not cell.names or bool(names & set(cell.names))

    def _by_names(self) -> None:
        for cell in self.own:
            if cell.role != "solution" or cell.id in self.found or not cell.names:
                continue
            wanted = set(cell.names)
            places = self._free("code", "markdown", "raw")
            defining = [i for i in places if wanted & self._defines(i)]
            if defining:
                self._note_found(cell, self._best_copy(cell, defining), "the names it defines")

    def _defines(self, index: int) -> set[str]:
        cell = self.submitted[index]
        if cell.cell_type != "code" and pycode.parse(cell.source) is None:
            return set()  # prose that happens to hold a line like "def f"
        return pycode.bound_names(cell.source)

    def _texts_by_neighbour(self) -> None:
        """Find a text answer that lost its id: it follows the same cell as in the source."""
        for place, cell in enumerate(self.spec.cells):
            if cell.role != "manual" or cell.id in self.found:
                continue
            before = self._index_of(self.spec.cells[place - 1]) if place else -1
            after = before + 1 if before is not None else len(self.submitted)
            if after in self._free(cell.cell_type):
                self._note_found(cell, after, "the cell it follows")

    def _index_of(self, cell: SpecCell) -> int | None:
        if cell.id in self.found:
            return self.found[cell.id]
        same = (i for i, s in enumerate(self.submitted) if _same(s.source, cell.released))
        return next(same, None)

    def _note_found(self, cell: SpecCell, index: int, how: str) -> None:
        self.found[cell.id] = index
        self.notes.append(f"cell {cell.id} had lost its id and was found by {how}")

    def _give_back_answers(self) -> None:
        """A test or locked cell in which the student wrote something is the student's cell too."""
        for index, cell in list(self.owner.items()):
            if cell.role not in ("test", "locked") or cell.cell_type != "code":
                continue
            source = self.submitted[index].source
            added = pycode.bound_names(source) - pycode.bound_names(cell.released)
            if added and not _same(source, cell.released):
                del self.owner[index]
                names = ", ".join(sorted(added)[:3])
                self.notes.append(
                    f"cell {cell.id} is locked; what was added to it runs too: {names}"
                )

    # --- what runs, and in which order -----------------------------------------------------------

    def _type(self, index: int) -> str:
        owner = self.owner.get(index)
        return owner.cell_type if owner else self.submitted[index].cell_type

    def _real_names(self, index: int) -> set[str]:
        """Return the names that a cell of the student's answers for real."""
        if self._type(index) != "code" or self._replaced(index):
            return set()
        return pycode.real_names(self.submitted[index].source)

    def _replaced(self, index: int) -> bool:
        """Say whether the source's own cell stands in this cell's place."""
        owner = self.owner.get(index)
        return owner is not None and owner.role in ("test", "locked", "task")

    def _answers(self, cell: SpecCell) -> int | None:
        """Return the index of the cell that finally answers a solution cell of the source."""
        wanted = set(cell.names)
        at = self.found.get(cell.id)
        if at is not None and (not wanted or wanted & self.real[at]):
            return at
        elsewhere = [i for i in self._unowned(wanted) if wanted & self.real[i]]
        return elsewhere[-1] if elsewhere else at

    def _unowned(self, names: set[str]) -> list[int]:
        """Return the student's cells that are not another answer cell for the same names."""
        return [
            i
            for i in range(len(self.submitted))
            if not (i in self.owner and names & set(self.owner[i].names))
        ]

    def _is_superseded(self, index: int) -> bool:
        """Say whether a cell holds only empty stubs whose answers stand elsewhere."""
        source = self.submitted[index].source
        names = set(pycode.defined_names(source))
        if not names or not pycode.is_empty_stub(source):
            return False
        places = self._unowned(names) if index in self.owner else range(len(self.submitted))
        others = [self.real[i] for i in places if i != index]
        return names <= set().union(*others)

    def assembly(self) -> Assembly:
        """Return the cells in the order in which they run."""
        placed = [(float(i), 0, n, cell) for n, (i, cell) in enumerate(self._students_cells())]
        placed += [(at, 1, n, cell) for n, (at, cell) in enumerate(self._source_cells())]
        ordered = [cell for *_, cell in sorted(placed, key=lambda p: p[:3])]
        return Assembly(tuple(ordered), tuple(self._unanswered()), tuple(self.notes))

    def _students_cells(self) -> list[tuple[int, PlacedCell]]:
        taken = {cell.id for cell in self.own}
        cells = []
        for index, cell in enumerate(self.submitted):
            if self._replaced(index) or self._is_stray_copy(index):
                continue
            owner, cell_type = self.owner.get(index), self._type(index)
            cell_id = owner.id if owner else _fresh_id(cell, taken)
            taken.add(cell_id)
            runs = cell_type == "code" and not self._is_superseded(index)
            kind: Kind | None = "student" if runs else None
            pictures = cell.attachments if cell_type != "code" else None
            cells.append(
                (index, PlacedCell(cell_id, cell_type, cell.source, owner, kind, pictures))
            )
        return cells

    def _is_stray_copy(self, index: int) -> bool:
        """Say whether a cell is one more copy of a test or locked cell, unchanged."""
        return index not in self.owner and _squeezed(self.submitted[index].source) in self.restored

    def _source_cells(self) -> list[tuple[float, PlacedCell]]:
        """Place the source's own cells, and answer cells that are missing (as released)."""
        cells: list[tuple[float, PlacedCell]] = []
        last_locked = last_test = -1.0
        for place, cell in enumerate(self.own):
            if cell.role in ("solution", "manual"):
                if cell.id not in self.found and cell.role == "manual":
                    at = max(self._home(place), last_locked, last_test)
                    cells.append((at, PlacedCell(cell.id, cell.cell_type, cell.released, cell)))
                    self.notes.append(f"cell {cell.id} was missing and was put back, empty")
                continue
            own = float(self.found.get(cell.id, self._home(place)))
            if cell.role == "test":
                at = last_test = max(own, last_locked, last_test, self._answered_before(place))
            else:
                at = last_locked = max(min(own, self._next_of_student(place)), last_locked)
            source = cell.source if cell.role == "test" else cell.released
            kind = _kind(cell)
            cells.append((at, PlacedCell(cell.id, cell.cell_type, source, cell, kind)))
        return cells

    def _home(self, place: int) -> float:
        """Return where a cell that is missing belongs: after the one before it in the source."""
        before = [self.found[c.id] for c in self.own[:place] if c.id in self.found]
        return float(before[-1]) if before else -1.0

    def _answered_before(self, place: int) -> float:
        answers = [self._answers(c) for c in self.own[:place] if c.role == "solution"]
        return float(max((i for i in answers if i is not None), default=-1))

    def _next_of_student(self, place: int) -> float:
        """Return the place just before the first answer that follows a locked cell."""
        later = [
            self.found[c.id]
            for c in self.own[place + 1 :]
            if c.role == "solution" and c.id in self.found
        ]
        return min(later) - 0.5 if later else float("inf")

    def _unanswered(self) -> list[str]:
        left = []
        for cell in self.own:
            if cell.role in ("solution", "manual"):
                at = self._answers(cell) if cell.role == "solution" else self.found.get(cell.id)
                if at is None or _same(self.submitted[at].source, cell.released):
                    left.append(cell.id)
        return left


def _kind(cell: SpecCell) -> Kind | None:
    if cell.cell_type != "code":
        return None
    return "test" if cell.role == "test" else "locked"


def _same(one: str, other: str) -> bool:
    """Compare two sources; spaces at line ends and empty lines don't count."""
    return _squeezed(one) == _squeezed(other)


def _squeezed(source: str) -> tuple[str, ...]:
    return tuple(line.rstrip() for line in source.split("\n") if line.strip())


def _fresh_id(cell: SubmittedCell, taken: set[str]) -> str:
    """Return a valid, unused id for a cell of the student's own."""
    good = cell.id.replace("-", "").replace("_", "").isalnum() and cell.id.isascii()
    if good and len(cell.id) <= 64 and cell.id not in taken:
        return cell.id
    return next(name for n in range(10**6) if (name := f"extra-{cell.index}-{n}") not in taken)
