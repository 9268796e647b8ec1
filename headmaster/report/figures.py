"""The figures of a report: counts, rates and correlations."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from headmaster.records import REASONS, Record
from headmaster.report.gathering import Class, Submission, Test

BINS = 10
FEWEST = 3  # submissions below which a correlation is not computed

# What went wrong, in short, where no misconception says it.
SHORT = {
    "wrong-answer": "wrong in a way that the tests do not know",
    "not-implemented": "left as released",
    "no-answer": "no answer",
    "cell-failed": "the cell did not run",
    "raised": "an error",
    "time-limit": "over the time limit",
    "memory-limit": "over the memory limit",
    "disk-limit": "over the disk limit",
    "crashed": "ended its process",
    "not-run": "did not run any more",
    "no-notebook": "notebook not handed in",
}
# Reasons that a person should look into, and those that are the course's own fault.
LOOKED_AT = ("crashed", "not-run", "time-limit", "memory-limit", "disk-limit")
AUTHORS = ("test-broken", "bad-score")


@dataclass(frozen=True)
class Bar:
    """One bar of a chart."""

    label: str
    count: int


@dataclass(frozen=True)
class Summary:
    """A distribution in five numbers."""

    count: int
    mean: float | None
    median: float | None
    low: float | None  # the lower and the upper quartile
    high: float | None


def summary(scores: Sequence[float]) -> Summary:
    """Return the mean, the median and the quartiles; None where there are no scores."""
    if not scores:
        return Summary(0, None, None, None, None)
    quartiles = statistics.quantiles(scores, n=4, method="inclusive") if len(scores) > 1 else None
    low, high = (quartiles[0], quartiles[2]) if quartiles else (scores[0], scores[0])
    return Summary(len(scores), statistics.fmean(scores), statistics.median(scores), low, high)


def score_bars(class_: Class) -> list[Bar]:
    """Return how many submissions have how many points, in ten steps."""
    top = class_.max
    if not top:
        return []
    counts = [0] * BINS
    for submission in class_.graded:
        share = submission.score / top
        counts[min(BINS - 1, max(0, int(share * BINS + 1e-9)))] += 1
    edges = [top * i / BINS for i in range(BINS + 1)]
    return [
        Bar(f"{edges[i]:g} to {'' if i == BINS - 1 else 'under '}{edges[i + 1]:g}", count)
        for i, count in enumerate(counts)
    ]


# --- hand-ins ------------------------------------------------------------------------------------

_HOURS = (
    ("more than a week before", 168.0, math.inf),
    ("2 to 7 days before", 48.0, 168.0),
    ("1 to 2 days before", 24.0, 48.0),
    ("6 to 24 hours before", 6.0, 24.0),
    ("1 to 6 hours before", 1.0, 6.0),
    ("in the last hour", 0.0, 1.0),
    ("up to a day late", -24.0, 0.0),
    ("later", -math.inf, -24.0),
)


def hand_in_bars(class_: Class) -> list[Bar]:
    """Return when submissions came: before the due date, or by day where there is none."""
    early = [s.before_due for s in class_.submissions if s.before_due is not None]
    if early:
        hours = [time / timedelta(hours=1) for time in early]
        return [
            Bar(label, sum(low <= hour < high for hour in hours)) for label, low, high in _HOURS
        ]
    days = Counter(s.handed_in.date().isoformat() for s in class_.submissions if s.handed_in)
    return [Bar(day, days[day]) for day in sorted(days)][-14:]


def late(class_: Class) -> list[Submission]:
    """Return the submissions that came after their due date."""
    return [s for s in class_.submissions if s.before_due and s.before_due < timedelta(0)]


# --- tests ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TestFigures:
    """How a class fared on one test."""

    __test__ = False  # for pytest, which collects what is called Test…

    notebook: str
    id: str
    max: float
    graded: int
    passed: int
    mean: float | None
    discrimination: float | None
    by_hand: bool
    waiting: int  # for a person
    failures: tuple[tuple[str, int], ...]  # what went wrong, most frequent first

    @property
    def rate(self) -> float | None:
        """Return the share of those graded who have all points."""
        return self.passed / self.graded if self.graded else None


def tests(class_: Class) -> list[TestFigures]:
    """Return the figures of every graded cell, in the notebooks' order."""
    order: dict[Test, Record] = {}
    for submission in class_.submissions:
        for test, record in submission.records():
            order.setdefault(test, record)
    return [_test(class_, test, record) for test, record in order.items()]


def _test(class_: Class, test: Test, record: Record) -> TestFigures:
    graded = [s for s in class_.submissions if s.points.get(test) is not None]
    points = [s.points[test] or 0.0 for s in graded]
    by_hand = any(
        other.reason == "manual"
        for submission in class_.submissions
        for place, other in submission.records()
        if place == test
    )
    failures = Counter(
        _what(other)
        for submission in graded
        for place, other in submission.records()
        if place == test and other.verdict in ("fail", "error") and other.reason != "partial"
    )
    return TestFigures(
        *test,
        max=record.max,
        graded=len(graded),
        passed=sum(value >= record.max for value in points),
        mean=statistics.fmean(points) if points else None,
        discrimination=discrimination(class_.graded, test),
        by_hand=by_hand,
        waiting=sum(s.points.get(test) is None for s in class_.graded) if by_hand else 0,
        failures=tuple(failures.most_common()),
    )


def _what(record: Record) -> str:
    return record.misconception or SHORT.get(record.reason) or REASONS[record.reason]


def discrimination(submissions: Sequence[Submission], test: Test) -> float | None:
    """Return the correlation of a test's points with the points of all other tests (rest score).

    Only tests that are graded for everybody count as others. None where the correlation is
    undefined: with fewer than three submissions, or where everybody has the same.
    """
    taking = [s for s in submissions if s.points.get(test) is not None]
    if len(taking) < FEWEST:
        return None
    rest = [
        other
        for other in taking[0].points
        if other != test and all(s.points.get(other) is not None for s in taking)
    ]
    own = [s.points[test] or 0.0 for s in taking]
    try:
        return statistics.correlation(own, [sum(s.points[o] or 0.0 for o in rest) for s in taking])
    except statistics.StatisticsError:  # one of the two is constant
        return None


def margin(count: int) -> float | None:
    """Return how far from 0 a correlation is by chance, in 19 of 20 classes of this size."""
    return min(1.0, 1.96 / math.sqrt(count - 1)) if count > FEWEST else None


# --- misconceptions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Misconception:
    """What several students misunderstood."""

    name: str
    students: int
    tests: tuple[str, ...]
    functions: tuple[str, ...]
    sentence: str  # what the exercise demands
    message: str  # what these students were told


def misconceptions(class_: Class) -> list[Misconception]:
    """Return the misconceptions of a class, most frequent first."""
    found: dict[str, list[Record]] = {}
    first: dict[str, list[Record]] = {}  # of each submission the first that shows it
    for submission in class_.submissions:
        own = [record for record in submission.result.records if record.misconception]
        for record in own:
            found.setdefault(record.misconception, []).append(record)
        for name in submission.result.misconceptions:
            shown = next(record for record in own if record.misconception == name)
            first.setdefault(name, []).append(shown)
    return [
        Misconception(
            name,
            len(first[name]),
            tuple(dict.fromkeys(record.id for record in found[name])),
            tuple(dict.fromkeys(record.function for record in found[name] if record.function)),
            _usual(record.sentence for record in first[name]),
            _usual(record.told for record in first[name]),
        )
        for name in sorted(found, key=lambda name: (-len(first[name]), name))
    ]


def _usual(texts: Iterable[str]) -> str:
    counts = Counter(text for text in texts if text)
    return counts.most_common(1)[0][0] if counts else ""


def unexplained(class_: Class) -> list[tuple[str, int]]:
    """Return the functions that several answered wrongly in a way that the tests do not know."""
    counts: Counter[str] = Counter()
    for submission in class_.submissions:
        wrong = [r for r in submission.result.records if r.reason in ("wrong-answer", "raised")]
        counts.update({r.function or r.id for r in wrong if not r.misconception})
    return [(name, count) for name, count in counts.most_common() if count > 1]


# --- a person's eye ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Look:
    """Something about a submission that a person should look into."""

    kind: str
    student: str
    detail: str


def looks(class_: Class) -> list[Look]:
    """Return what a person should look into, the most pressing first."""
    submissions = class_.submissions
    found = [look for s in submissions for look in _not_graded(s, class_.names_hidden)]
    found += [Look("Stale grade", s.name, _stale(class_, s)) for s in submissions if s.result.stale]
    found += [look for s in submissions for look in _tried(s, class_.names_hidden)]
    found += [look for s in submissions for look in _ended(s)]
    found += [
        Look("Graded without confinement", s.name, "the machine had no layer of confinement")
        for s in submissions
        if any(notebook.unconfined for notebook in s.result.notebooks)
    ]
    return found + [look for s in submissions for look in _author(s)]


def _not_graded(submission: Submission, names_hidden: bool) -> list[Look]:
    reasons: dict[str, None] = {}
    for notebook in submission.result.notebooks:
        for record in notebook.records:
            if record.verdict == "not graded" and record.reason not in ("manual", *AUTHORS):
                # the message may name a file, and with it the student
                said = REASONS[record.reason] if names_hidden else record.message
                reasons[f"{notebook.name}, {record.reason}: {said}"] = None
    return [Look("Not graded", submission.name, reason) for reason in reasons]


def _stale(class_: Class, submission: Submission) -> str:
    if class_.names_hidden:
        return "The grade belongs to an earlier hand-in; the newest one could not be graded."
    return submission.result.stale


def _tried(submission: Submission, names_hidden: bool) -> list[Look]:
    signs = list(submission.signs)
    if names_hidden:  # a place may hold a name: /home/ana
        signs = [sign.split(" '")[0].split(":")[0] for sign in signs]
    for _, record in submission.records():
        if record.reason == "crashed" and "not an answer" in record.message:
            signs.append("sent the tests what is not an answer")
        if record.reason == "raised" and record.message.startswith("PermissionError"):
            signs.append("was refused something while it was tested")
    shown = list(dict.fromkeys(signs))
    if not shown:
        return []
    more = f" … and {len(shown) - 6} more" if len(shown) > 6 else ""
    return [Look("Reached beyond the answer", submission.name, "; ".join(shown[:6]) + more)]


def _ended(submission: Submission) -> list[Look]:
    counts = Counter(r.reason for _, r in submission.records() if r.reason in LOOKED_AT)
    said = [f"{REASONS[reason]} ({count} tests)" if count > 1 else REASONS[reason]
            for reason, count in counts.items()]  # fmt: skip
    return [Look("Ended or stopped", submission.name, " ".join(said))] if said else []


def _author(submission: Submission) -> list[Look]:
    tests_ = [record for _, record in submission.records() if record.reason in AUTHORS]
    return [
        Look("The test's own fault", submission.name, f"{record.id}: {REASONS[record.reason]}")
        for record in tests_
    ]
