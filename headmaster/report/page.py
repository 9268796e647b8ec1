"""The report as one page: nothing in it is loaded, and nothing in it is alive."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from headmaster import similarity
from headmaster.grading import plain
from headmaster.report import figures
from headmaster.report.gathering import Class
from headmaster.similarity import Likeness

TEMPLATES = Path(__file__).parent.parent / "templates"
SPOKEN = 3  # misconceptions that the next lecture has room for
SHOWN_PAIRS = 30  # pairs of students with answers that are alike; the CSV file has all
SHOWN_CODE = 6_000  # characters of an answer

_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 360.0, 190.0, 26.0, 22.0, 34.0


def render(class_: Class) -> str:
    """Return the page."""
    tests = figures.tests(class_)
    scores = [submission.score for submission in class_.graded]
    told = figures.misconceptions(class_)
    return _template().render(
        class_=class_,
        summary=figures.summary(scores),
        score_bars=figures.score_bars(class_),
        chart=_chart(figures.score_bars(class_), scores, class_.max),
        hand_in_bars=figures.hand_in_bars(class_),
        late=figures.late(class_),
        tests=tests,
        several=len({test.notebook for test in tests}) > 1,
        margin=figures.margin(len(class_.graded)),
        fewest=figures.FEWEST,
        misconceptions=told,
        spoken=[one for one in told if one.students > 1][:SPOKEN],
        unexplained=figures.unexplained(class_)[:SPOKEN],
        looks=_by_kind(figures.looks(class_)),
        waiting=sum(
            any(
                record.reason == "manual" and s.points[test] is None for test, record in s.records()
            )
            for s in class_.graded
        ),
        pairs=_pairs(class_),
        more_pairs=max(0, len({one.students for one in class_.alike}) - SHOWN_PAIRS),
        limit=similarity.limit(len(class_.submissions)),
        least=similarity.LEAST,
        share=similarity.SHARE,
        made=datetime.now(UTC),
    )


@cache
def _template() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=shown,
    )
    environment.filters["number"] = _number
    environment.filters["signed"] = lambda value: (
        "–" if value is None else f"{value:+.2f}".replace("-", "−")
    )
    environment.filters["percent"] = lambda value: "–" if value is None else f"{value:.0%}"
    environment.filters["ago"] = _ago
    environment.filters["words"] = _words
    environment.filters["breakable"] = _breakable
    return environment.get_template("report.html")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".rstrip("0").rstrip(".")


def _words(text: str) -> Any:
    """Return a text in which what stands between backticks is code."""
    from markupsafe import Markup, escape

    return Markup(re.sub(r"`([^`\n]+)`", r"<code>\1</code>", str(escape(plain(text)))))


def _breakable(name: str) -> Any:
    """Return a name that may be broken after its underscores, on a narrow screen."""
    from markupsafe import Markup

    return Markup("_<wbr>").join(plain(name).split("_"))


def _ago(time: timedelta) -> str:
    """Return a time in words: 3 hours, 2 days."""
    hours = abs(time) / timedelta(hours=1)
    for unit, length in (("day", 24.0), ("hour", 1.0)):
        if hours >= length:
            count = round(hours / length)
            return f"{count} {unit}{'s' * (count != 1)}"
    minutes = max(1, round(hours * 60))
    return f"{minutes} minute{'s' * (minutes != 1)}"


def _by_kind(looks: Sequence[figures.Look]) -> dict[str, list[figures.Look]]:
    kinds: dict[str, list[figures.Look]] = {}
    for look in looks:
        kinds.setdefault(look.kind, []).append(look)
    return kinds


def _pairs(class_: Class) -> list[dict[str, Any]]:
    """Return the pairs of students with answers that are alike, and the code of these."""
    together: dict[tuple[str, str], list[Likeness]] = {}
    for one in class_.alike:
        together.setdefault(one.students, []).append(one)
    pairs = []
    longest = sorted(together.items(), key=lambda item: -sum(one.tokens for one in item[1]))
    for students, likenesses in longest[:SHOWN_PAIRS]:
        shown = not class_.names_hidden  # comments may hold a name
        code = [_sides(class_, one) for one in likenesses] if shown else []
        tokens = sum(one.tokens for one in likenesses)
        pairs.append({"students": students, "answers": likenesses, "tokens": tokens, "code": code})
    return pairs


def _sides(class_: Class, one: Likeness) -> list[tuple[str, str]]:
    answers = {submission.name: submission.answers for submission in class_.submissions}
    sides = zip(one.students, one.cells, strict=True)
    return [(cell, answers[student][cell][:SHOWN_CODE]) for student, cell in sides]


# --- the chart -----------------------------------------------------------------------------------


def _chart(bars: Sequence[figures.Bar], scores: Sequence[float], top: float) -> dict[str, Any]:
    """Return the geometry of the columns, the grid and the median, in the drawing's own units."""
    most = max((bar.count for bar in bars), default=0) or 1
    step = max(1, -(-most // 4))
    high = step * -(-most // step)
    width = (_WIDTH - _LEFT) / max(1, len(bars))
    floor = _HEIGHT - _BOTTOM

    def y(count: float) -> float:
        return round(floor - (floor - _TOP) * count / high, 1)

    columns = [
        {
            "x": round(_LEFT + width * i + 2, 1),
            "y": y(bar.count),
            "width": round(width - 4, 1),
            "height": round(floor - y(bar.count), 1),
            "count": bar.count,
        }
        for i, bar in enumerate(bars)
    ]
    edges = [
        (round(_LEFT + width * i, 1), f"{top * i / len(bars):g}")
        for i in range(0, len(bars) + 1, 2)
    ]
    median = figures.summary(scores).median
    at = None if median is None or not top else _LEFT + (_WIDTH - _LEFT) * min(1.0, median / top)
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "floor": floor,
        "columns": columns,
        "grid": [(y(count), count) for count in range(step, high + 1, step)],
        "edges": edges,
        "median": None if at is None else round(at, 1),
        "top": _TOP,
    }
