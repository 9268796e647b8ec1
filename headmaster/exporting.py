"""nbgrader's export plug-ins: grades for Canvas and Moodle, per test, and as JSON.

    nbgrader export --exporter=headmaster.exporting.CanvasExporter --to=canvas.csv \
        --assignment='["02_scaled_dot_product"]' --CanvasExporter.roster=class.csv

`headmaster export` writes the same files.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from traitlets import Bool, List, Unicode

from headmaster.class_list import roster_of
from headmaster.course import Course, CourseError
from headmaster.gradesheets import make, write
from headmaster.light import skip_slow_grammar
from headmaster.sheets import Choice
from headmaster.standing import graded_assignments

skip_slow_grammar()
from nbgrader.api import Gradebook  # noqa: E402
from nbgrader.plugins import ExportPlugin  # noqa: E402


class _Exporter(ExportPlugin):
    """What all exporters share; they differ in their form alone."""

    form: ClassVar[str]
    suffix: ClassVar[str] = ".csv"

    roster = Unicode("", help="The class list: a CSV file.").tag(config=True)
    id_column = Unicode("", help="The class list's column with nbgrader's ids.").tag(config=True)
    columns = List(Unicode(), help="The platform's titles of the assignments.").tag(config=True)
    missing_as_zero = Bool(False, help="Who handed in nothing has 0 points.").tag(config=True)
    so_far = Bool(False, help="Also points where a person has not graded yet.").tag(config=True)
    scale = Bool(False, help="Grades as parts of the platform's maximum.").tag(config=True)

    def export(self, gradebook: Gradebook) -> None:
        """Write the file, and log who has no grade in it and why."""
        course = Course(Path(self.config.CourseDirectory.get("root") or Path.cwd()), self.config)
        choice = Choice(
            missing_as_zero=self.missing_as_zero,
            so_far=self.so_far,
            scale=self.scale,
            columns=tuple(self.columns),
            students=tuple(str(item) for item in self.student),
        )
        to = Path(self.to or f"grades-{self.form}{self.suffix}")
        try:
            names = [str(item) for item in self.assignment] or graded_assignments(course)
            people = roster_of(course, self.roster, self.id_column)
            sheet = make(course, names, self.form, people, choice)
            write(sheet, to)
        except CourseError as error:
            self.log.error("%s", error)
            raise SystemExit(2) from None
        for line in sheet.empty:
            self.log.warning("left empty: %s", line)
        for line in sheet.notes:
            self.log.info("%s", line)
        self.log.info("Exported to %s", to)


class CanvasExporter(_Exporter):
    """Grades that Canvas imports."""

    form = "canvas"


class MoodleExporter(_Exporter):
    """Grades for Moodle's import from a CSV file."""

    form = "moodle"


class MoodleWorksheetExporter(_Exporter):
    """Moodle's offline grading worksheet."""

    form = "moodle-worksheet"


class TestsExporter(_Exporter):
    """A row for each student and test."""

    form = "tests"


class JsonExporter(_Exporter):
    """Everything, as JSON."""

    form = "json"
    suffix = ".json"
