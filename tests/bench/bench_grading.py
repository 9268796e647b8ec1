"""Measure headmaster beside stock nbgrader: the same class, the same machine, the same run.

    python tests/bench/bench_grading.py                 30 submissions, some minutes
    python tests/bench/bench_grading.py --students 8    a first impression

Grades the sample class's second exercise (right and wrong answers; repeated until there are enough)
by `nbgrader autograde` and by `headmaster grade` with its feedback pages, compares every score, and
prints processor time and clock time per student, in ratios, with what remains of ours. The result
also goes to build/bench.json. Processor time is counted for all processes involved.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "build" / "bench.json"
ASSIGNMENT = "02_scaled_dot_product"

CONFIG = f"""
c = get_config()
c.CourseDirectory.course_id = "bench"
c.Headmaster.trusted_path = [{str(ROOT)!r}]
c.OverwriteCells.add_missing_cells = True
c.Execute.timeout = 60
"""

Seconds = dict[str, float]


@click.command()
@click.option("--students", default=30, show_default=True, help="How many submissions.")
@click.option("--jobs", default=2, show_default=True, help="Submissions at a time, in headmaster.")
@click.option("--inside", type=click.Path(path_type=Path), hidden=True)
def main(students: int, jobs: int, inside: Path | None) -> None:
    """Measure headmaster beside stock nbgrader."""
    if inside:
        click.echo(json.dumps(grade_here(inside, jobs)))
        return
    with tempfile.TemporaryDirectory(prefix="bench-") as place:
        stock, ours = make_courses(Path(place), students)
        ours_took = run_headmaster(ours, jobs)
        stock_took = run_nbgrader(stock)
        differences = compare(stock, ours)
    result = report(students, jobs, stock_took, ours_took, differences)
    write(result)
    sys.exit(1 if differences else 0)


# --- the class -----------------------------------------------------------------------------------


def make_courses(place: Path, students: int) -> tuple[Path, Path]:
    """Make a course with submissions and a gradebook, twice."""
    stock = place / "stock"
    (stock / "source" / ASSIGNMENT).mkdir(parents=True)
    (stock / "nbgrader_config.py").write_text(CONFIG)
    write_source(stock)
    for number, notebook in zip(range(students), submissions(), strict=False):
        folder = stock / "submitted" / f"student{number:03}" / ASSIGNMENT
        folder.mkdir(parents=True)
        (folder / "scaled_dot_product.ipynb").write_bytes(notebook)
    nbgrader(stock, "generate_assignment", ASSIGNMENT)
    return stock, Path(shutil.copytree(stock, place / "ours"))


def write_source(course: Path) -> None:
    """Write the exercise's text as the notebook that nbgrader reads."""
    from headmaster.authoring import read_text

    folder = ROOT / "solutions" / ASSIGNMENT
    notebook = read_text(folder / "scaled_dot_product.md")
    path = course / "source" / ASSIGNMENT / "scaled_dot_product.ipynb"
    path.write_text(json.dumps(notebook))


def submissions() -> Iterator[bytes]:
    """Yield the sample class's readable notebooks, over and over."""
    files = sorted((ROOT / "tests" / "class" / "downloads" / ASSIGNMENT).glob("*.ipynb"))
    notebooks = [file.read_bytes() for file in files]
    readable = [data for data in notebooks if is_plain(data)]
    while True:
        yield from readable


def is_plain(data: bytes) -> bool:
    """Say whether stock nbgrader finds its cells: damaged files would be no fair comparison."""
    try:
        cells = json.loads(data)["cells"]
    except (ValueError, KeyError):
        return False
    ids = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in cells]
    return "attention-values" in ids and len(set(filter(None, ids))) == len(list(filter(None, ids)))


# --- running -------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """Return an environment with one thread for linear algebra, as the graders have it."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    bins = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **dict.fromkeys(threads, "1"), "PYTHONPATH": os.pathsep.join(paths),
            "PATH": bins, "GRADING_SEED": "1"}  # fmt: skip


def nbgrader(course: Path, *arguments: str) -> None:
    """Run a command of nbgrader's in a course."""
    command = [sys.executable, "-m", "nbgrader", *arguments, "--log-level=ERROR"]
    subprocess.run(command, cwd=course, env=environment(), check=True)


def run_nbgrader(course: Path) -> Seconds:
    """Grade by stock nbgrader; return clock time and processor time of all its processes."""
    before, start = children_cpu(), time.perf_counter()
    nbgrader(course, "autograde", ASSIGNMENT)
    return {"wall": time.perf_counter() - start, "cpu": children_cpu() - before}


def children_cpu() -> float:
    """Return the processor time of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_headmaster(course: Path, jobs: int) -> Seconds:
    """Grade by headmaster, feedback included, in a process that counts."""
    start = time.perf_counter()
    command = [sys.executable, __file__, "--inside", str(course), "--jobs", str(jobs)]
    done = subprocess.run(command, env=environment(), check=True, stdout=subprocess.PIPE)
    parts = json.loads(done.stdout.splitlines()[-1])
    return {"wall": time.perf_counter() - start, "cpu": sum(parts.values()), **parts}


def grade_here(course: Path, jobs: int) -> Seconds:
    """Run `headmaster grade` in this process; return the processor time by what used it."""
    from headmaster import autograded, feedback, gradebook, marking, pool
    from headmaster.cli import main as headmaster

    spent: Seconds = defaultdict(float)
    timed = [
        ("reading and matching", marking, "take_in"),
        ("reading and matching", marking, "assemble"),
        ("gradebook", gradebook.Gradebook, "save"),
        ("autograded notebooks", autograded, "write"),
        ("feedback pages", feedback, "write"),
    ]
    for part, owner, name in timed:
        setattr(owner, name, counted(getattr(owner, name), part, spent))
    marking.run_task = counted_outcome(pool.run_task, spent)
    with contextlib.redirect_stdout(sys.stderr), contextlib.suppress(SystemExit):
        headmaster(
            ["grade", ASSIGNMENT, "--course", str(course), "--jobs", str(jobs), "--seed", "1"],
            standalone_mode=False,
        )
    spent["the fork server"] = descendants_cpu()
    own = time.process_time() - sum(spent[part] for part in {part for part, *_ in timed})
    spent["start, class list and the rest"] = own
    return dict(spent)


def counted(function: Callable[..., Any], part: str, spent: Seconds) -> Callable[..., Any]:
    """Return the function, with its processor time counted."""

    def call(*arguments: Any, **more: Any) -> Any:
        start = time.thread_time()
        try:
            return function(*arguments, **more)
        finally:
            spent[part] += time.thread_time() - start

    return call


def counted_outcome(run_task: Callable[..., Any], spent: Seconds) -> Callable[..., Any]:
    """Return `run_task`, with the processor time of the two processes counted."""

    def call(task: Any) -> Any:
        outcome = run_task(task)
        spent["student and trusted processes"] += outcome.cpu_seconds
        return outcome

    return call


def descendants_cpu() -> float:
    """Return the processor time of the processes below this one that are still there."""
    stats = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            stats[int(folder.name)] = (int(fields[1]), int(fields[11]) + int(fields[12]))
    below = {os.getpid()}
    while True:
        more = {pid for pid, (parent, _) in stats.items() if parent in below} - below
        if not more:
            break
        below |= more
    ticks = sum(stats[pid][1] for pid in below - {os.getpid()})
    return ticks / os.sysconf("SC_CLK_TCK")


# --- the result ----------------------------------------------------------------------------------


def compare(stock: Path, ours: Path) -> list[str]:
    """Return the scores that differ between the two gradebooks."""
    left, right = scores(stock), scores(ours)
    return [
        f"{student} {cell}: nbgrader {left.get((student, cell))}, headmaster {value}"
        for (student, cell), value in sorted(right.items())
        if left.get((student, cell)) != value
    ] + [f"{key} is missing" for key in sorted(set(left) - set(right))]


def scores(course: Path) -> dict[tuple[str, str], float | None]:
    """Return every automatic score of a gradebook."""
    query = """select s.student_id, b.name, g.auto_score from grade g
        join base_cell b on b.id = g.cell_id join submitted_notebook n on n.id = g.notebook_id
        join submitted_assignment s on s.id = n.assignment_id"""
    with sqlite3.connect(course / "gradebook.db") as connection:
        return {(student, cell): score for student, cell, score in connection.execute(query)}


def report(
    students: int, jobs: int, stock: Seconds, ours: Seconds, differences: list[str]
) -> dict[str, Any]:
    """Print the result and return it as plain data."""
    ratios = {part: stock[part] / ours[part] for part in ("cpu", "wall")}
    click.echo(f"\n{students} submissions, {jobs} at a time in headmaster, feedback included\n")
    click.echo(f"{'':<34}{'nbgrader':>10}{'headmaster':>12}{'ratio':>8}")
    for part, name in (("cpu", "processor time"), ("wall", "clock time")):
        click.echo(
            f"{name + ' per student, s':<34}{stock[part] / students:>10.2f}"
            f"{ours[part] / students:>12.3f}{ratios[part]:>8.1f}"
        )
    click.echo("\nwhere headmaster's processor time goes, ms per student")
    parts = {name: s for name, s in ours.items() if name not in ("cpu", "wall")}
    for name, seconds in sorted(parts.items(), key=lambda item: -item[1]):
        click.echo(f"  {name:<36}{seconds / students * 1000:>8.1f}")
    click.echo(f"\n{len(differences)} scores differ")
    for line in differences:
        click.echo(f"  {line}")
    return {
        "students": students,
        "jobs": jobs,
        "nbgrader": stock,
        "headmaster": ours,
        "ratios": ratios,
        "differences": differences,
    }


def write(result: dict[str, Any]) -> None:
    """Add the result to build/bench.json."""
    known: Any = {}
    with contextlib.suppress(OSError, ValueError):
        known = json.loads(REPORT.read_text())
    known = known if isinstance(known, dict) else {"attention": known}
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps({**known, "grading": result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
