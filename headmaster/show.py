"""`headmaster show`: why a submission has the grade it has, test by test."""

from __future__ import annotations

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook, Marks
from headmaster.records import NotebookResult, Record, Result

STYLES = {"pass": "green", "fail": "red", "error": "red", "not graded": "yellow"}


def load(course: Course, assignment: str, student: str) -> tuple[Result, Marks]:
    """Return a recorded result; raise CourseError with what there is if there is none."""
    course.require_assignment(assignment)
    with Gradebook(course) as gradebook:
        results = gradebook.results(assignment)
        if student not in results:
            graded = ", ".join(sorted(results)) or "nobody yet"
            raise CourseError(
                f"there is no result of {student!r} for {assignment!r}; graded so far: {graded}"
            )
        return results[student], gradebook.marks(assignment, student)


def show(console: Console, result: Result, marks: Marks) -> None:
    """Print a result: the verdict and the reason of every test, and how it came about."""
    console.print(Text(f"{result.student} · {result.assignment}", style="bold"))
    console.print(f"{result.score:g} of {result.max:g} points by the machine")
    if result.stale:
        console.print(Text(f"Stale: {result.stale}", style="yellow"))
    for note in result.notes:
        console.print(Text(f"Note: {note}"))
    for notebook in result.notebooks:
        _show_notebook(console, notebook, marks)


def _show_notebook(console: Console, notebook: NotebookResult, marks: Marks) -> None:
    """Print one notebook's tests, or the one reason why it has none."""
    console.print()
    if notebook.refusal:
        why = f"{notebook.name}: not graded: {notebook.refusal.reason}"
        console.print(Text(f"{why}\n{notebook.refusal.message}"))
        return
    title = Text(notebook.name, style="bold")
    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for column, justify in (("test", "left"), ("points", "right"), ("verdict", "left")):
        table.add_column(column, justify=justify, no_wrap=True)
    table.add_column("reason", overflow="fold")
    for record in notebook.records:
        table.add_row(*_row(notebook.name, record, marks))
    console.print(table)
    for line in _background(notebook, marks):
        console.print(Padding(Text(line), (0, 0, 0, 2)))


def _row(notebook: str, record: Record, marks: Marks) -> tuple[Text | str, ...]:
    points = "–" if record.points is None else f"{record.points:g}"
    manual, extra = marks.scores.get((notebook, record.id), (None, None))
    by_hand = f" (by hand {manual:g})" if manual is not None else ""
    plus = f" (+{extra:g})" if extra else ""
    why = Text(record.reason, style="bold" if record.verdict != "pass" else "")
    if record.verdict != "pass" and record.message:
        why.append(f"\n{record.message}", style="not bold")
    if record.sentence:
        why.append(f"\nexpected: {record.sentence}", style="not bold dim")
    if record.misconception:
        why.append(f"\nmisconception: {record.misconception}", style="not bold cyan")
    verdict = Text(record.verdict, style=STYLES[record.verdict])
    return Text(record.id), f"{points} of {record.max:g}{by_hand}{plus}", verdict, why


def _background(notebook: NotebookResult, marks: Marks) -> list[str]:
    lines = [f"repaired: {note}" for note in notebook.notes]
    if notebook.unanswered:
        lines.append(f"left as released: {', '.join(notebook.unanswered)}")
    if marks.late.get(notebook.name):
        lines.append(f"late: {marks.late[notebook.name]:g} points are taken off")
    if notebook.confinement:
        layers = (
            f"{name} ({held})" if isinstance(held, str) else name
            for name, held in notebook.confinement.items()
            if held
        )
        lines.append(f"confined by: {', '.join(layers) or 'nothing'}")
    if notebook.seed:
        lines.append(f"seed: {notebook.seed}")
    return lines


def repeat(course: Course, result: Result) -> list[str]:
    """Grade a hand-in again with its recorded seeds; return what differs, in sentences."""
    from headmaster.intake import take_in
    from headmaster.marking import grade_once
    from headmaster.release import load_assignment

    spec = load_assignment(course, result.assignment)
    again = grade_once(course, spec, take_in(course, spec, result.student), _seed(result))
    before = {(n.name, r.id): r for n in result.notebooks for r in n.records}
    lines = []
    for notebook in again.notebooks:
        for record in notebook.records:
            old = before.get((notebook.name, record.id))
            if old is None or (old.verdict, old.points) != (record.verdict, record.points):
                was = f"{old.verdict} ({old.points})" if old else "not there"
                lines.append(f"{record.id}: was {was}, is now {record.verdict} ({record.points})")
    return lines


def _seed(result: Result) -> int:
    return next((notebook.seed for notebook in result.notebooks if notebook.seed), 0)
