"""The `headmaster` command."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from headmaster.course import Course, CourseError

ABREAST = 4  # assignments beside each other in a class list
HELP = {"help_option_names": ["-h", "--help"]}


class _Commands(click.Group):
    """Turn what a person can put right into one sentence and exit status 2."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)  # in the order of the day's work

    def invoke(self, ctx: click.Context) -> Any:
        from headmaster.pool import PoolError

        try:
            return super().invoke(ctx)
        except (CourseError, PoolError) as error:
            click.echo(f"headmaster: {error}", err=True)
            ctx.exit(2)
        except KeyboardInterrupt:
            click.echo("\nheadmaster: stopped; what is finished stays, run it again", err=True)
            ctx.exit(130)


@click.group(cls=_Commands, context_settings=HELP)
@click.version_option(package_name="manyheads", prog_name="headmaster")
def main() -> None:
    """Grade nbgrader notebooks in two processes: fast, fair, and out of the student's reach.

    A first run, in a course folder (the one with nbgrader_config.py):

    \b
      headmaster doctor                  which layers of confinement hold here
      headmaster release 02_attention    the notebooks that students get
      headmaster lint 02_attention       do the tests themselves hold?
      headmaster grade 02_attention      grade everybody who handed in
      headmaster show 02_attention ana   why ana has the grade she has

    headmaster reads and writes nbgrader's own folders and gradebook: formgrader, nbgrader export
    and nbgrader release_feedback go on from there.
    """


_course = click.option(
    "--course",
    "folder",
    default=".",
    metavar="DIR",
    show_default="this folder",
    help="The course's folder, with nbgrader_config.py.",
)


# --- collect -------------------------------------------------------------------------------------


@main.command(short_help="Take hand-ins from what Canvas or Moodle gives, or from files.")
@click.argument("assignment")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@_course
@click.option("--roster", metavar="CSV", help="The class list; else c.Headmaster.roster.")
@click.option("--id-column", metavar="TITLE", help="The class list's column with nbgrader's ids.")
@click.option("--force", is_flag=True, help="Take also what is older than what is there.")
@click.option(
    "--times",
    type=click.Choice(["auto", "file", "none"]),
    default="auto",
    show_default=True,
    help="Whether files' times are times of hand-ins; auto: unless all were packed at once.",
)
def collect(
    assignment: str,
    sources: tuple[str, ...],
    folder: str,
    roster: str | None,
    id_column: str | None,
    force: bool,
    times: str,
) -> None:
    """Put hand-ins where nbgrader expects them, each under its student.

    SOURCE is the zip that Canvas or Moodle offers as all submissions, a folder of files, or a zip
    of such; several are taken together. The class list is any CSV with headers, such as Canvas's
    exported gradebook or Moodle's grading worksheet. The latest version of a file counts; an
    earlier hand-in is moved aside, to collected/. What is nobody's is listed and left where it is,
    and the exit status is 1.
    """
    from headmaster import collecting
    from headmaster.class_list import roster_of

    course = Course.open(folder)
    course.require_assignment(assignment)
    people = roster_of(course, roster, id_column or "")
    options = collecting.Options(force, times)
    report = collecting.collect(course, assignment, [Path(s) for s in sources], people, options)
    for line in collecting.printed(report):
        click.echo(line)
    sys.exit(1 if report.left or any(line.outcome == "failed" for line in report.lines) else 0)


# --- grade ---------------------------------------------------------------------------------------


@main.command(short_help="Grade everybody who handed in, or some.")
@click.argument("assignments", nargs=-1, required=True, metavar="ASSIGNMENT...")
@_course
@click.option(
    "--student", "students", multiple=True, metavar="ID", help="Only this student; may be repeated."
)
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Submissions at a time; one per processor by default.",
)
@click.option("--scheduler", metavar="tcp://HOST:PORT", help="Grade on this Dask cluster.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write every record as JSON; - is the standard output.",
)
@click.option(
    "--feedback/--no-feedback", default=True, show_default=True, help="Write feedback pages."
)
@click.option("--force", is_flag=True, help="Grade again what is finished and has not changed.")
@click.option("--seed", type=int, help="Repeat this seed instead of drawing one per submission.")
def grade(
    assignments: tuple[str, ...],
    folder: str,
    students: tuple[str, ...],
    jobs: int | None,
    scheduler: str | None,
    json_file: str | None,
    feedback: bool,
    force: bool,
    seed: int | None,
) -> None:
    """Grade assignments: everybody who handed in, or the students named.

    What is finished and has not changed since (neither the hand-in nor the tests) is not graded
    again, so an interrupted run is finished by running it again. Exit status 1 says that something
    could not be graded because of this machine's own trouble.
    """
    from headmaster.marking import Options, grade_assignment
    from headmaster.pool import pool

    course = Course.open(folder)
    for name in assignments:
        course.require_assignment(name)
        course.require_students(name, students)
    options = Options(students, feedback, force, seed)
    graded = {}
    with pool(jobs, scheduler) as executor, _progress() as progress:
        for name in assignments:
            report = progress(name)
            graded[name] = grade_assignment(course, name, executor, options, report)
    _summary(course, graded, quiet=json_file == "-")
    if json_file:
        _write_json(json_file, graded)
    if any(
        item.trouble or _is_troubled(item.result) for items in graded.values() for item in items
    ):
        sys.exit(1)


class _progress:
    """A progress bar per assignment, on standard error where that is a terminal."""

    def __enter__(self) -> Callable[[str], Callable[[int, int, str], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[student]}"),
            console=Console(stderr=True),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self.bar.start()
        return self._task

    def _task(self, name: str) -> Callable[[int, int, str], None]:
        task = self.bar.add_task(name, total=None, student="")
        return lambda done, total, student: self.bar.update(
            task, completed=done, total=total, student=student
        )

    def __exit__(self, *_: object) -> None:
        self.bar.stop()


def _is_troubled(result: Any) -> bool:
    return result.ungraded is not None and result.ungraded.reason == "trouble"


def _summary(course: Course, graded: dict[str, list[Any]], quiet: bool) -> None:
    """Print the class list, what was misunderstood, what is not graded, and where it all lies."""
    console = _console(stderr=quiet)
    names = list(graded)
    for first in range(0, len(names), ABREAST):
        if first:
            console.print()
        console.print(_class_list({name: graded[name] for name in names[first : first + ABREAST]}))
    for title, lines in (
        ("Misconceptions found", _misconceptions(graded)),
        ("Not graded", _ungraded(graded)),
        ("Stale grades", _stale(graded)),
    ):
        if lines:
            console.print(f"\n[bold]{title}[/]")
            for line in lines:
                console.print(f"  {line}", markup=False)
    console.print()
    for label, place in (
        ("gradebook", _gradebook_place(course)),
        ("autograded", str(course.folder("autograded", "", "").resolve())),
        ("feedback", str(course.folder("feedback", "", "").resolve())),
    ):
        console.print(f"{label:<11}{place}", markup=False, soft_wrap=True)
    _warn_unconfined(graded)


def _console(stderr: bool = False) -> Any:
    """Return a console that has room for a class list, also where it writes to a file."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, highlight=False, width=None if stream.isatty() else 140)


def _class_list(graded: dict[str, list[Any]]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_edge=False, pad_edge=False)
    table.add_column("student")
    columns = [(a, n.name) for a, items in graded.items() for n in _widest(items)]
    for assignment, notebook in columns:
        table.add_column(
            assignment if len(_widest(graded[assignment])) == 1 else notebook,
            justify="right",
            no_wrap=True,
        )
    table.add_column("")
    students = sorted({item.result.student for items in graded.values() for item in items})
    for student in students:
        rows = {a: i for a, items in graded.items() for i in items if i.result.student == student}
        cells = [_score(rows.get(assignment), notebook) for assignment, notebook in columns]
        table.add_row(escape(student), *cells, _remark(list(rows.values())))
    return table


def _widest(items: list[Any]) -> list[Any]:
    return max((item.result.notebooks for item in items), key=len, default=[])


def _score(item: Any, notebook: str) -> str:
    found = [n for n in item.result.notebooks if n.name == notebook] if item else []
    if not found:
        return "–"
    if found[0].refusal:
        return "not graded"
    points = sum(record.points or 0.0 for record in found[0].records)
    return f"{points:g} of {sum(record.max for record in found[0].records):g}"


def _remark(items: list[Any]) -> str:
    remarks = []
    if any(record.reason == "manual" for item in items for record in item.result.records):
        remarks.append("texts to grade")
    if any(item.result.stale for item in items):
        remarks.append("stale")
    if all(not item.fresh for item in items) and not any(item.trouble for item in items):
        remarks.append("unchanged")
    if any(item.trouble for item in items):
        remarks.append("trouble")
    return ", ".join(remarks)


def _misconceptions(graded: dict[str, list[Any]]) -> list[str]:
    counts = Counter(
        name for items in graded.values() for item in items for name in item.result.misconceptions
    )
    return [f"{count:>3} × {name}" for name, count in counts.most_common()]


def _ungraded(graded: dict[str, list[Any]]) -> list[str]:
    """Return a line per reason, with everybody whom it concerns."""
    reasons: dict[str, list[str]] = {}
    for assignment, items in graded.items():
        for item in items:
            record = item.result.ungraded
            if item.trouble:
                why = f"trouble: {item.trouble}"
            elif record is not None:
                why = f"{record.reason}: {record.message}"
            else:
                continue
            reasons.setdefault(why, []).append(f"{item.result.student} ({assignment})")
    return [f"{', '.join(who)}: {why}" for why, who in reasons.items()]


def _stale(graded: dict[str, list[Any]]) -> list[str]:
    return [
        f"{item.result.student}, {assignment}: {item.result.stale}"
        for assignment, items in graded.items()
        for item in items
        if item.result.stale
    ]


def _warn_unconfined(graded: dict[str, list[Any]]) -> None:
    notebooks = (n for items in graded.values() for i in items for n in i.result.notebooks)
    if any(notebook.unconfined for notebook in notebooks):
        click.secho(
            "\nWARNING: student code ran on this machine without confinement, and these grades are "
            "marked so. `headmaster doctor` says what is missing.",
            err=True,
            bold=True,
            fg="red",
        )


def _gradebook_place(course: Course) -> str:
    from sqlalchemy import make_url

    url = make_url(course.db_url)
    if url.get_backend_name() == "sqlite" and url.database:
        return str(Path(url.database).resolve())
    return url.render_as_string(hide_password=True)


def _write_json(file: str, graded: dict[str, list[Any]]) -> None:
    data = [
        {
            **item.result.to_dict(),
            "score": item.result.score,
            "max": item.result.max,
            "trouble": item.trouble,
        }
        for items in graded.values()
        for item in items
    ]
    with click.open_file(file, "w", encoding="utf-8", atomic=file != "-") as out:
        out.write(json.dumps(data, indent=1, ensure_ascii=False) + "\n")


# --- check ---------------------------------------------------------------------------------------


@main.command(short_help="Grade answers in plain Python files.")
@click.argument("exercise")
@click.argument("answers", nargs=-1, required=True, metavar="ANSWER.py...")
@click.option("--function", metavar="NAME", help="Run this function's tests only.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list, an object per file.")
@click.option(
    "--jobs",
    type=click.IntRange(1),
    metavar="N",
    help="Files at a time; one per processor by default.",
)
@click.option("--seed", type=int, help="Repeat this seed instead of drawing one per file.")
@click.option(
    "--course",
    "folder",
    default=None,
    metavar="DIR",
    show_default="found from EXERCISE or from here",
    help="The course's folder.",
)
def check(
    exercise: str,
    answers: tuple[str, ...],
    function: str | None,
    as_json: bool,
    jobs: int | None,
    seed: int | None,
    folder: str | None,
) -> None:
    """Grade plain Python files as answers to an exercise.

    EXERCISE is an assignment's name (02_scaled_dot_product) or a path to it. A file's definitions
    go into the exercise's solution cells; functions that it does not define keep the course's own
    answers. Exit status 0 says that all files ran, whatever their scores.
    """
    from headmaster.answers import check as check_answers
    from headmaster.reading import decode

    missing = [file for file in answers if not Path(file).is_file()]
    if missing:
        raise CourseError(f"there is no file {', '.join(missing)}")
    sources = [decode(Path(file).read_bytes()) for file in answers]
    results = check_answers(exercise, sources, function, jobs, seed, folder)
    listed = [{"file": f, **result} for f, result in zip(answers, results, strict=True)]
    if as_json:
        click.echo(json.dumps(listed, indent=1, ensure_ascii=False))
    else:
        for result in listed:
            _print_checked(result)
    if any(test["reason"] == "trouble" for result in listed for test in result["tests"]):
        sys.exit(1)


def _print_checked(result: dict[str, Any]) -> None:
    click.secho(f"{result['file']}: {result['score']:g} of {result['max']:g}", bold=True)
    for test in result["tests"]:
        points = "–" if test["points"] is None else f"{test['points']:g}"
        click.echo(f"  {test['verdict']:<10} {points:>4} of {test['max']:g}  {test['id']}")
        if test["verdict"] != "pass":
            name = f" ({test['misconception']})" if test["misconception"] else ""
            for line in f"{test['reason']}{name}: {test['message']}".splitlines():
                click.echo(f"{'':>13}{line}")


# --- show, lint, doctor --------------------------------------------------------------------------


@main.command(short_help="Show why a student has this grade.")
@click.argument("assignment")
@click.argument("student")
@_course
@click.option("--again", is_flag=True, help="Grade again with the recorded seed and compare.")
@click.option("--json", "as_json", is_flag=True, help="Print the record as JSON.")
def show(assignment: str, student: str, folder: str, again: bool, as_json: bool) -> None:
    """Show why a student has the grade they have, test by test.

    The recorded seed makes it repeatable: --again grades the hand-in once more with the same
    random tests and says whether anything differs. Nothing is written.
    """
    from headmaster import show as desk

    course = Course.open(folder)
    result, marks = desk.load(course, assignment, student)
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=1, ensure_ascii=False))
    else:
        desk.show(_console(), result, marks)
    if again:
        differences = desk.repeat(course, result)
        for line in differences or ["Graded again with the same seed: every verdict is the same."]:
            click.echo(line)
        sys.exit(1 if differences else 0)


@main.command(short_help="Find tests that judge less than they seem to.")
@click.argument("assignments", nargs=-1, required=True, metavar="ASSIGNMENT...")
@_course
def lint(assignments: tuple[str, ...], folder: str) -> None:
    """Look for test cells that do not judge what they seem to judge.

    Finds tests that two processes would judge differently, checks that let the student's code
    decide, and comparisons that do not look at the shape. Exit status 1 says that something was
    found.
    """
    from headmaster.lint import lint_assignment

    course = Course.open(folder)
    findings = [finding for name in assignments for finding in lint_assignment(course, name)]
    for finding in findings:
        click.echo(str(finding))
    click.echo(f"{len(findings)} found" if findings else "nothing found")
    sys.exit(1 if findings else 0)


@main.command(short_help="Make the notebooks that students get.")
@click.argument("assignments", nargs=-1, required=True, metavar="ASSIGNMENT...")
@_course
def release(assignments: tuple[str, ...], folder: str) -> None:
    """Make the notebooks that students get, by nbgrader's generate_assignment.

    Sources may be notebooks or MyST texts (topic.md), which become notebooks first.
    """
    from headmaster import authoring
    from headmaster.light import skip_slow_grammar

    skip_slow_grammar()
    course = Course.open(folder)
    for name in assignments:
        course.require_assignment(name)
    for name in assignments:
        for path in authoring.release(course, name):
            click.echo(os.path.relpath(path))


@main.command(short_help="Start an exercise from the course's template.")
@click.argument("name", metavar="NN_TOPIC")
@_course
def new(name: str, folder: str) -> None:
    """Start an exercise of your own, as in `headmaster new 12_pooling`.

    Writes the files that the course's template holds (c.Headmaster.template in nbgrader_config.py),
    with the names filled in. What is there already is never overwritten.
    """
    from headmaster.scaffolding import new_exercise

    for path in new_exercise(Course.open(folder), name):
        click.echo(os.path.relpath(path))
    click.echo("Each TODO in them is yours to do.")


@main.command(short_help="Say which layers of confinement hold here.")
def doctor() -> None:
    """Say which layers of confinement hold here, what is missing, and how to get it."""
    from headmaster.doctor import main as examine

    sys.exit(examine())


@main.command(short_help="Write the feedback pages again.")
@click.argument("assignments", nargs=-1, required=True, metavar="ASSIGNMENT...")
@_course
@click.option(
    "--student", "students", multiple=True, metavar="ID", help="Only this student; may be repeated."
)
def feedback(assignments: tuple[str, ...], folder: str, students: tuple[str, ...]) -> None:
    """Write the feedback pages again, with the points and comments that people gave since."""
    from headmaster.marking import rewrite_feedback

    course = Course.open(folder)
    for name in assignments:
        for path in rewrite_feedback(course, name, students):
            click.echo(os.path.relpath(path))


# --- export --------------------------------------------------------------------------------------

_FEEDBACK = {"feedback": "folders", "canvas-feedback": "canvas", "moodle-feedback": "moodle"}
_SHEETS = ("canvas", "moodle", "moodle-worksheet", "tests", "json")


@main.command(short_help="Write grades or feedback for Canvas, Moodle, or yourself.")
@click.argument("assignments", nargs=-1, required=True, metavar="ASSIGNMENT...")
@_course
@click.option(
    "--format",
    "form",
    type=click.Choice([*_SHEETS, *_FEEDBACK]),
    required=True,
    help="What to write.",
)
@click.option("--to", required=True, metavar="FILE", help="Where; - is the standard output.")
@click.option("--roster", metavar="CSV", help="The class list; else c.Headmaster.roster.")
@click.option("--id-column", metavar="TITLE", help="The class list's column with nbgrader's ids.")
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="TITLE",
    help="The assignment's title on the platform; once for each assignment.",
)
@click.option("--scale", is_flag=True, help="Convert grades to the platform's maximum.")
@click.option("--missing-as-zero", is_flag=True, help="Who handed in nothing has 0 points.")
@click.option("--so-far", is_flag=True, help="Also points where a person has not graded yet.")
def export(
    assignments: tuple[str, ...],
    folder: str,
    form: str,
    to: str,
    roster: str | None,
    id_column: str | None,
    columns: tuple[str, ...],
    scale: bool,
    missing_as_zero: bool,
    so_far: bool,
) -> None:
    """Write grades as Canvas and Moodle import them, per test, or as JSON; or the feedback.

    \b
    canvas             CSV for Canvas's gradebook; give Canvas's own export as --roster
    moodle             CSV for Moodle's grade import
    moodle-worksheet   Moodle's offline grading worksheet; give Moodle's own as --roster
    tests              CSV with a row for each student and test
    json               everything
    feedback           the pages, a folder for each student; a zip where FILE ends in .zip
    canvas-feedback    a zip for Canvas's "Upload submissions"
    moodle-feedback    a zip for Moodle's "Upload multiple feedback files in a zip"

    A grade that is not finished is an empty cell, never 0; who it is and why is listed.
    """
    from headmaster import gradesheets, returning, sheets
    from headmaster.class_list import roster_of

    course = Course.open(folder)
    if form in _FEEDBACK:
        given = returning.feedback(course, assignments, _FEEDBACK[form], Path(to))
        click.echo(f"{to}: {given.files} files for {given.students} students")
        _listed("No feedback for", given.without)
        return
    choice = sheets.Choice(missing_as_zero, so_far, scale, columns)
    people = roster_of(course, roster, id_column or "")
    sheet = gradesheets.make(course, assignments, form, people, choice)
    if to == "-":
        click.echo(sheet.text, nl=False)
    else:
        gradesheets.write(sheet, Path(to))
        click.echo(f"{to}: written", err=True)
    _listed("Left empty", sheet.empty)
    for note in sheet.notes:
        click.echo(f"note: {note}", err=True)


def _listed(title: str, lines: list[str]) -> None:
    if lines:
        click.echo(f"\n{title}:", err=True)
        for line in lines:
            click.echo(f"  {line}", err=True)


@main.command(short_help="Write a report on the class: a page and CSV files.")
@click.argument("assignment")
@_course
@click.option(
    "--to",
    metavar="FOLDER",
    type=click.Path(file_okay=False),
    show_default="report/ASSIGNMENT beside autograded/",
    help="Where to write it.",
)
@click.option("--hide-names", is_flag=True, help="Write pseudonyms in place of students' names.")
def report(assignment: str, folder: str, to: str | None, hide_names: bool) -> None:
    """Write a report on what a class handed in for an assignment.

    Scores, pass rate and discrimination of every test, misconceptions with what to say about them,
    submissions that need a person's eye, answers that are alike, and times of hand-in. Nothing is
    graded, and the gradebook stays as it is. Pseudonyms are the same in every report of the course.
    """
    from headmaster.report import write_report

    for path in write_report(Course.open(folder), assignment, to and Path(to), hide_names):
        click.echo(os.path.relpath(path))
