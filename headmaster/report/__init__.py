"""The class report: one page and a few tables about what a class handed in for an assignment.

One room per concern: `gathering` reads the gradebook, `figures` counts, `signs` finds code that no
answer needs, `names` hides who is who, `page` and `sheets` write.
"""

from __future__ import annotations

from pathlib import Path

from headmaster.autograded import replace_file
from headmaster.course import Course


def write_report(
    course: Course, assignment: str, folder: Path | None = None, hide_names: bool = False
) -> list[Path]:
    """Write an assignment's report and its CSV files; return their paths.

    folder: where to; by default beside the graded notebooks, in report/ASSIGNMENT.
    hide_names: whether pseudonyms stand in place of the students' names.

    Everything is made before the first file is written. Raises CourseError if nothing is graded.
    """
    from headmaster.report import gathering, page, sheets

    class_ = gathering.gather(course, assignment, hide_names)
    files = {"report.html": page.render(class_), **sheets.sheets(class_)}
    place = folder or gathering.report_folder(course) / assignment
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        replace_file(place / name, text.encode("utf-8", "replace"))
    return [place / name for name in files]
