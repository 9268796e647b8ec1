"""Collect hand-ins from what a learning platform gives: match, choose the latest, keep the rest.

A hand-in is read from its download into a folder of its own and then moved into place as a whole;
what stood there is moved aside, never overwritten. What cannot be matched stays where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

from headmaster.course import Course, CourseError, skipped
from headmaster.intake import TIMESTAMP, read_zip
from headmaster.lateness import Deadlines
from headmaster.lms import Sender, is_notebook, notebook_of, senders
from headmaster.manifest import Collected, Piece
from headmaster.placing import Outcome, Places
from headmaster.records import Refused
from headmaster.release import notebook_names
from headmaster.roster import Person, Roster, Unmatched, visible
from headmaster.sources import Entry, open_sources

Times = Literal["auto", "file", "none"]
# A download in which everybody's files are of nearly one time was stamped when it was packed.
PACKING = timedelta(minutes=15)


@dataclass(frozen=True)
class Options:
    """What the person who collects chose."""

    force: bool = False  # also what is older than what is there
    times: Times = "auto"  # which times of files are times of hand-ins


@dataclass(frozen=True)
class Line:
    """What became of one student's hand-in."""

    student: str
    outcome: Outcome
    files: tuple[str, ...]
    time: datetime | None = None
    late: bool = False
    notes: tuple[str, ...] = ()


@dataclass
class Report:
    """What was collected, and what was not."""

    lines: list[Line] = field(default_factory=list)
    left: list[tuple[str, str]] = field(default_factory=list)  # a file, and why it was left
    missing: list[str] = field(default_factory=list)  # on the class list, and nothing there
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Found:
    """A file with whom it is from."""

    entry: Entry
    sender: Sender
    kept: str  # the name that it gets
    counters: tuple[int, ...] = ()  # that were appended to its name
    order: int = 0
    packed: bool = False  # its time is that of packing, not of the hand-in

    @property
    def rank(self) -> tuple[int, datetime, tuple[int, ...], int]:
        """Return what is larger the later a file was handed in."""
        time = self.entry.time if self.entry.time and not self.packed else datetime.min
        return (self.sender.upload, time, self.counters, self.order)


def collect(
    course: Course,
    assignment: str,
    downloads: list[Path],
    roster: Roster,
    options: Options,
) -> Report:
    """Collect an assignment's hand-ins from downloads; raises CourseError for what is no download.

    Nothing is written before all downloads were opened and everything in them was matched.
    """
    notebooks = notebook_names(course, assignment)
    run = _Run(course, assignment, notebooks, roster, options)
    with open_sources(downloads) as (entries, open_inner):
        run.match(entries, open_inner)
        run.take_all()
    here = set(course.students(assignment))
    run.report.missing = [p.id for p in roster.people if p.id not in here] if roster.given else []
    run.report.lines.sort(key=lambda line: line.student)
    return run.report


class _Run:
    """One run of collecting an assignment."""

    def __init__(
        self,
        course: Course,
        assignment: str,
        notebooks: list[str],
        roster: Roster,
        options: Options,
    ) -> None:
        self.course, self.assignment, self.notebooks = course, assignment, notebooks
        self.roster, self.options = roster, options
        self.pattern = str(course.setting("FileNameCollectorPlugin", "named_regexp", ""))
        self.places = Places(course, assignment, options.force)
        self.deadlines = Deadlines(course, assignment)
        self.found: dict[str, tuple[Person, list[_Found]]] = {}
        self.called: dict[str, set[str]] = {}  # the platform's numbers, by the names it gives them
        self.report = Report()

    # --- whose is it ----------------------------------------------------------------------------

    def match(
        self, entries: Iterable[Entry], open_inner: Callable[[Entry], list[Entry]] | None
    ) -> None:
        """Find the student of every file; open archives that are nobody's, one level deep."""
        for order, entry in enumerate(entries):
            if skipped(entry.path, self.course.ignored) or not entry.path.strip("/"):
                continue
            if entry.trouble:
                self._leave(entry, entry.trouble.message)
                continue
            try:
                people, sender = self._whose(entry)
            except Unmatched as reason:
                if open_inner and self._may_be_download(entry):
                    self._match_inner(entry, open_inner)
                else:
                    self._leave(entry, str(reason))
                continue
            for person in people:
                self._add(person, entry, sender, order)

    def _whose(self, entry: Entry) -> tuple[tuple[Person, ...], Sender]:
        first: Unmatched | None = None
        for path in (entry.path, *entry.spellings):
            for sender in senders(path, self.notebooks, self.pattern):
                try:
                    return self.roster.find(sender), sender
                except Unmatched as reason:
                    first = first or reason
                    if reason.final:
                        raise
        raise first or Unmatched("its name does not say whose it is")

    def _may_be_download(self, entry: Entry) -> bool:
        """Tell an archive of many hand-ins from one that some student sent in."""
        reading = next(senders(entry.path, self.notebooks), None)
        is_students = reading is not None and reading.lms != "names"
        return entry.path.lower().endswith(".zip") and not is_students

    def _match_inner(self, entry: Entry, open_inner: Callable[[Entry], list[Entry]]) -> None:
        try:
            self.match(open_inner(entry), None)
        except (Refused, CourseError) as error:
            self._leave(entry, str(error))

    def _leave(self, entry: Entry, reason: str) -> None:
        self.report.left.append((entry.shown, reason))

    def _add(self, person: Person, entry: Entry, sender: Sender, order: int) -> None:
        notebook, counters = notebook_of(sender.file, self.notebooks)
        kept = f"{notebook}.ipynb" if notebook else _kept(sender.file, self.assignment)
        self.called.setdefault(sender.name, set()).add(sender.number)
        _, files = self.found.setdefault(person.id, (person, []))
        files.append(_Found(entry, sender, kept, counters, order))

    # --- what counts ----------------------------------------------------------------------------

    def take_all(self) -> None:
        """Put every student's latest files in place; the manifest is written whatever happens."""
        self._mark_packed()
        try:
            for student, (person, files) in sorted(self.found.items()):
                try:
                    self.report.lines.append(self._take(person, files))
                except (Refused, OSError) as error:
                    self.report.lines.append(Line(student, "failed", (), notes=(str(error),)))
        finally:
            self.places.manifest.write()

    def _take(self, person: Person, files: list[_Found]) -> Line:
        notes: list[str] = []
        chosen = self._choose(files, notes)
        hand_in = self._describe(person, chosen)
        self._note_other_name(person, hand_in, notes)
        kept = tuple(sorted(item.kept for item in chosen))
        settled = self.places.settled(person.id, hand_in, notes)
        if settled:
            return Line(person.id, settled.outcome, kept, settled.time, hand_in.late, tuple(notes))
        content = self._read(chosen, notes)
        placed = self.places.put(person.id, content, hand_in, notes)
        kept = tuple(sorted(content))
        return Line(person.id, placed.outcome, kept, placed.time, hand_in.late, tuple(notes))

    def _choose(self, files: list[_Found], notes: list[str]) -> list[_Found]:
        """Return one file for each name: the latest. An only notebook may have any name."""
        files = self._with_only_notebook(files, notes)
        files = _with_one_archive(files, notes)
        latest: dict[str, _Found] = {}
        for item in sorted(files, key=lambda item: item.rank):
            before = latest.get(item.kept)
            if before and before.entry.mark != item.entry.mark:
                notes.append(f"{before.entry.path} is earlier and was left")
            latest[item.kept] = item
        return list(latest.values())

    def _with_only_notebook(self, files: list[_Found], notes: list[str]) -> list[_Found]:
        wanted = [f"{name}.ipynb" for name in self.notebooks]
        found = [item for item in files if is_notebook(item.kept)]
        if len(wanted) != 1 or not found or any(item.kept in wanted for item in found):
            return files
        last = max(found, key=lambda item: item.rank)
        notes.append(f"{last.sender.file} was taken for {wanted[0]}")
        return [replace(item, kept=wanted[0]) if item is last else item for item in files]

    def _note_other_name(self, person: Person, hand_in: Collected, notes: list[str]) -> None:
        """Say where only the number was a student's: the name may be that of a group."""
        stands_for_many = len(self.called.get(hand_in.name, ())) > 1  # such as "Participant"
        named = hand_in.lms != "names" and hand_in.name and not stands_for_many
        if named and not self.roster.is_called(person, hand_in.name):
            notes.append(
                f"the download calls {hand_in.number} {hand_in.name!r}: if that is a group, give "
                'the class list a column "group"'
            )

    def _describe(self, person: Person, chosen: list[_Found]) -> Collected:
        first = max(chosen, key=lambda item: item.rank)
        late = any(item.sender.late for item in chosen)
        time = person.time or self._time(chosen)
        if not person.time and first.sender.lms == "canvas":
            time = self.deadlines.agreeing(person.id, late, time)
        return Collected(
            source=first.entry.source,
            lms=first.sender.lms,
            pieces=tuple(
                Piece(item.entry.path, item.kept, item.entry.mark, item.sender.folder)
                for item in sorted(chosen, key=lambda item: item.kept)
            ),
            at=datetime.now(UTC).replace(tzinfo=None).isoformat(),
            time=time.isoformat(timespec="seconds") if time else "",
            late=late,
            number="" if self.roster.is_group(person, first.sender) else first.sender.number,
            name=first.sender.name,
            upload=max(item.sender.upload for item in chosen),
        )

    def _time(self, chosen: list[_Found]) -> datetime | None:
        if self.options.times == "none":
            return None
        times = [item.entry.time for item in chosen if item.entry.time and not item.packed]
        return max(times, default=None)

    def _mark_packed(self) -> None:
        """Mark the files whose times are those of packing, and say what follows from it."""
        packed = self._packed() if self.options.times == "auto" else set()
        for student, (person, files) in self.found.items():
            marked = [replace(item, packed=item.entry.source in packed) for item in files]
            self.found[student] = (person, marked)
        if packed:
            self.report.notes.append(
                f"{', '.join(sorted(packed))}: all files carry nearly the same time, that of "
                "packing or copying, so no times of hand-ins are taken from them "
                "(--times file takes them all the same)"
            )
        everything = [item for _, files in self.found.values() for item in files]
        if any(item.sender.late and (item.packed or not item.entry.time) for item in everything):
            self.report.notes.append(self.deadlines.explain())

    def _packed(self) -> set[str]:
        latest: dict[str, dict[tuple[str, str, str], datetime]] = {}
        for _, files in self.found.values():
            for item in files:
                if item.entry.time:
                    times = latest.setdefault(item.entry.source, {})
                    who = (item.sender.name, item.sender.number, item.sender.anonymous)
                    times[who] = max(item.entry.time, times.get(who, datetime.min))
        return {
            source
            for source, times in latest.items()
            if len(times) > 1 and max(times.values()) - min(times.values()) <= PACKING
        }

    # --- reading it -----------------------------------------------------------------------------

    def _read(self, chosen: list[_Found], notes: list[str]) -> dict[str, bytes]:
        """Read a student's files; a zip that stands for a notebook is unpacked."""
        content = {item.kept: item.entry.read() for item in chosen}
        archives = [name for name in content if name.lower().endswith(".zip")]
        if len(archives) == 1 and not any(is_notebook(name) for name in content):
            try:
                inside = read_zip(content[archives[0]])
                del content[archives[0]]
                content = {**self._named(inside), **content}
            except Refused as refused:  # grading says the same to the student
                notes.append(f"{archives[0]} cannot be unpacked: {refused.message}")
        for name in [name for name in content if name.casefold() == TIMESTAMP]:
            del content[name]
            notes.append(f"a {TIMESTAMP} of the student's own was left out")
        return content

    def _named(self, inside: dict[str, bytes]) -> dict[str, bytes]:
        """Give the notebooks of an unpacked zip the names that they should have."""
        named: dict[str, bytes] = {}
        for name, data in sorted(inside.items(), key=lambda pair: len(pair[0])):
            notebook, _ = notebook_of(name, self.notebooks)
            wanted = f"{notebook}.ipynb" if notebook else name
            named[wanted if wanted not in named else name] = data
        books = [name for name in named if is_notebook(name)]
        if len(self.notebooks) == 1 and len(books) == 1:
            named[f"{self.notebooks[0]}.ipynb"] = named.pop(books[0])
        return named


def _with_one_archive(files: list[_Found], notes: list[str]) -> list[_Found]:
    """Leave earlier archives out, where an archive stands for the notebook."""
    archives = [item for item in files if item.kept.lower().endswith(".zip")]
    if len(archives) < 2 or any(is_notebook(item.kept) for item in files):
        return files
    last = max(archives, key=lambda item: item.rank)
    earlier = [item for item in archives if item.entry.mark != last.entry.mark]
    notes.extend(f"{item.entry.path} is earlier and was left" for item in earlier)
    return [item for item in files if item is last or item not in archives]


def _kept(file: str, assignment: str) -> str:
    """Return the name that a file gets: without the folders that only name the assignment."""
    parts = [part for part in PurePosixPath(file).parts if part not in ("/", ".", "..")]
    while len(parts) > 1 and parts[0] in (assignment, "submitted"):
        parts = parts[1:]
    return "/".join(parts)


# --- telling it ----------------------------------------------------------------------------------


def printed(report: Report) -> list[str]:
    """Return the report as lines of text; what is unchanged is only counted."""
    told = [line for line in report.lines if line.outcome != "unchanged" or line.notes]
    width = max((len(line.student) for line in told), default=0)
    texts = []
    for line in told:
        when = f"{line.time:%Y-%m-%d %H:%M} UTC" if line.time else ""
        marks = "  ".join(part for part in (when, "LATE" if line.late else "") if part)
        head = f"{line.student:<{width}}  {line.outcome:<9}  {', '.join(line.files)}"
        texts.append(f"{head}  {marks}".rstrip())
        texts.extend(f"{'':<{width}}  {'':<9}  {note}" for note in line.notes)
    counts = Counter(line.outcome for line in report.lines)
    parts = ", ".join(f"{counts[name]} {name}" for name in get_args(Outcome) if counts[name])
    texts.append(f"{len(report.lines)} hand-ins: {parts}" if parts else "no hand-ins were found")
    if report.left:
        texts += ["", f"Left where they are ({len(report.left)}):"]
        texts += [f"  {file}: {reason}" for file, reason in report.left]
    if report.missing:
        texts += ["", f"Nothing handed in ({len(report.missing)}): {', '.join(report.missing)}"]
    if report.notes:
        texts += ["", *report.notes]
    return [visible(text) for text in texts]
