"""What a learning platform's late mark says about the time of a hand-in."""

from __future__ import annotations

from datetime import datetime, timedelta

from headmaster.course import Course
from headmaster.standing import deadlines


class Deadlines:
    """When an assignment is due for each student, as the gradebook has it."""

    def __init__(self, course: Course, assignment: str) -> None:
        self.due, self.extensions = deadlines(course, assignment)

    def agreeing(self, student: str, late: bool, time: datetime | None) -> datetime | None:
        """Return a time that agrees with Canvas's LATE mark, which knows better than files do.

        What is late by we do not know how much is late by a second; what is not late has no time
        rather than a late one.
        """
        if self.due is None:
            return time
        due = self.due + self.extensions.get(student, timedelta(0))
        if late and (time is None or time <= due):
            return due + timedelta(seconds=1)
        return time if late or time is None or time <= due else None

    def explain(self) -> str:
        """Say what is done with hand-ins of which the platform says only that they are late."""
        if self.due is None:
            return (
                "some files are marked LATE, but neither the download says when they came nor the "
                "gradebook when the assignment was due: set its due date and collect again, and "
                "they count as late"
            )
        return (
            "some files are marked LATE, but the download does not say when they came: they are "
            "recorded as one second late"
        )
