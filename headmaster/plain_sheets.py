"""Grades for one's own evaluation: a row for each student and test, or all that is known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from headmaster.records import Record
from headmaster.sheets import Export, Sheet, csv_text, number, safe_id, safe_text
from headmaster.standing import Standing

_TEST_COLUMNS = (
    "student assignment notebook test function points max by_hand verdict reason misconception "
    "message"
).split()


def tests(export: Export) -> Sheet:
    """Return a row for each student and test: points, verdict, reason."""
    rows: list[list[str]] = [_TEST_COLUMNS]
    for person in export.people():
        for assignment in export.standing.assignments:
            rows.extend(_test_rows(export.of(person.id, assignment)))
    return Sheet(csv_text(rows), export.empty())


def _test_rows(standing: Standing) -> Iterator[list[str]]:
    records = _records(standing)
    for mark in standing.marks:
        record = records.get((mark.notebook, mark.cell))
        yield [
            safe_id(standing.student),
            standing.assignment,
            mark.notebook,
            mark.cell,
            (record.function if record else None) or "",
            number(mark.points),
            number(mark.max),
            "yes" if mark.manual is not None or mark.extra else "no",
            record.verdict if record else "",
            record.reason if record else "",
            (record.misconception if record else None) or "",
            safe_text(record.message if record else ""),
        ]


def _records(standing: Standing) -> dict[tuple[str, str], Record]:
    notebooks = standing.result.notebooks if standing.result else []
    return {(n.name, record.id): record for n in notebooks for record in n.records}


def everything(export: Export) -> Sheet:
    """Return all that is known, as JSON."""
    data = {
        "assignments": [
            {"name": name, "max": maximum} for name, maximum in export.standing.max.items()
        ],
        "students": [
            {
                "id": person.id,
                "name": person.full_name,
                "email": person.email,
                "assignments": {
                    name: _as_json(export, export.of(person.id, name))
                    for name in export.standing.assignments
                },
            }
            for person in export.people()
        ],
    }
    return Sheet(json.dumps(data, indent=1, ensure_ascii=False) + "\n", export.empty())


def _as_json(export: Export, standing: Standing) -> dict[str, Any]:
    has_points = bool(standing.marks)
    return {
        "status": standing.status,
        "why": standing.why,
        "score": export.points(standing),
        "raw": standing.raw if has_points else None,
        "late_penalty": standing.penalty if has_points else None,
        "max": standing.max,
        "handed_in": f"{standing.handed_in}Z" if standing.handed_in else None,
        "cells": [{**asdict(mark), "points": mark.points} for mark in standing.marks],
        "graded": standing.result.to_dict() if standing.result else None,
    }
