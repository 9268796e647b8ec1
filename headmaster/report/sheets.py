"""The report as CSV files: UTF-8 with a mark, as spreadsheets expect it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from headmaster.report import figures
from headmaster.report.gathering import Class, Submission


def sheets(class_: Class) -> dict[str, str]:
    """Return the files by name."""
    return {
        "students.csv": _sheet(
            "student score max graded stale handed_in hours_before_due misconceptions".split(),
            map(_student, class_.submissions),
        ),
        "tests.csv": _sheet(
            "notebook test max graded passed pass_rate mean discrimination by_hand".split(),
            map(_test, figures.tests(class_)),
        ),
        "misconceptions.csv": _sheet(
            "misconception students tests sentence message".split(),
            (
                (m.name, m.students, " ".join(m.tests), m.sentence, m.message)
                for m in figures.misconceptions(class_)
            ),
        ),
        "look.csv": _sheet(
            "kind student detail".split(),
            ((look.kind, look.student, look.detail) for look in figures.looks(class_)),
        ),
        "alike.csv": _sheet(
            "student other_student cell other_cell tokens share".split(),
            ((*one.students, *one.cells, one.tokens, round(one.share, 3)) for one in class_.alike),
        ),
    }


def _student(submission: Submission) -> tuple[Any, ...]:
    early = submission.before_due
    return (
        submission.name,
        submission.score if submission.graded else None,
        submission.result.max,
        "yes" if submission.graded else "no",
        "yes" if submission.result.stale else "no",
        submission.handed_in.isoformat(" ", "seconds") if submission.handed_in else None,
        None if early is None else round(early / timedelta(hours=1), 2),
        " ".join(submission.result.misconceptions),
    )


def _test(test: figures.TestFigures) -> tuple[Any, ...]:
    return (
        test.notebook,
        test.id,
        test.max,
        test.graded,
        test.passed,
        _rounded(test.rate),
        _rounded(test.mean),
        _rounded(test.discrimination),
        "yes" if test.by_hand else "no",
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _sheet(header: list[str], rows: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([_inert(value) for value in row] for row in rows)
    return "\ufeff" + out.getvalue()


def _inert(value: Any) -> Any:
    """Keep a spreadsheet from taking a text for a formula."""
    if isinstance(value, str) and value.lstrip().startswith(("=", "+", "-", "@")):
        return f"'{value}"
    return "" if value is None else value
