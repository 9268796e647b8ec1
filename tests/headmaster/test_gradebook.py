"""nbgrader's gradebook: written as nbgrader would, one transaction per submission."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from conftest import HandIn, OneProcess, answered, nbgrader_api, released

from headmaster import tables
from headmaster.authoring import release
from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook
from headmaster.light import skip_slow_grammar
from headmaster.marking import Graded, Options, grade_assignment
from headmaster.pool import pool
from headmaster.release import AssignmentSpec, load_assignment

pytestmark = pytest.mark.usefixtures("one_process")

Grade = Callable[..., dict[str, Graded]]


@pytest.fixture
def grade(course: Course) -> Grade:
    """Return a function that grades an assignment and returns the class list by student."""

    def run(assignment: str = "ps1", **options: Any) -> dict[str, Graded]:
        fresh = Course.open(course.root)
        with pool(1) as executor:
            items = grade_assignment(
                fresh, assignment, executor, Options(**options), lambda *_: None
            )
        return {item.result.student: item for item in items}

    return run


def query(course: Course, sql: str, **values: Any) -> list[tuple[Any, ...]]:
    """Run a query on the gradebook's file."""
    with sqlite3.connect(course.root / "gradebook.db") as connection:
        return connection.execute(sql, values).fetchall()


def grades(course: Course, student: str) -> dict[str, tuple[Any, ...]]:
    """Return automatic score, manual score and whether a person is needed, by cell."""
    rows = query(
        course,
        """select b.name, g.auto_score, g.manual_score, g.needs_manual_grade from grade g
        join base_cell b on b.id = g.cell_id join submitted_notebook n on n.id = g.notebook_id
        join submitted_assignment s on s.id = n.assignment_id where s.student_id = :student""",
        student=student,
    )
    return {name: tuple(rest) for name, *rest in rows}


def test_the_tables_are_nbgraders() -> None:
    skip_slow_grammar()
    from nbgrader.api import Base

    for name, table in tables.nbgraders.tables.items():
        theirs = Base.metadata.tables[name]
        for column in table.columns:
            assert str(column.type) == str(theirs.columns[column.name].type), (name, column.name)
            assert column.primary_key == theirs.columns[column.name].primary_key


def test_the_version_is_nbgraders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    skip_slow_grammar()
    from nbgrader.api import get_alembic_version

    assert get_alembic_version() == tables.SCHEMA


def test_a_right_answer_gets_its_points(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    assert grades(course, "ana") == {
        "double-values": (2.0, None, 0),
        "double-zero": (1.0, None, 0),
        "mean-score": (3.0, None, 0),
        "why": (None, None, 1),
    }


def test_an_empty_hand_in_gets_no_points_and_says_so(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": released(ps1)})
    grade()
    assert {row[0] for row in grades(course, "ana").values()} == {0.0}
    comments = query(course, "select distinct auto_comment from comment")
    assert comments == [("No response.",)]


def test_a_missing_notebook_of_several_gets_no_points(
    course: Course, hand_in: HandIn, grade: Grade
) -> None:
    ps2 = load_assignment(course, "ps2")
    hand_in("ana", {"letters.ipynb": answered(released(ps2, "letters"))}, "ps2")
    grade("ps2")
    assert grades(course, "ana") == {
        "shout-letters": (2.0, None, 0),
        "count-words": (0.0, None, 0),
        "count-file": (0.0, None, 0),
    }


def test_files_that_come_with_the_assignment_lie_beside_the_notebook(
    course: Course, hand_in: HandIn, grade: Grade
) -> None:
    ps2 = load_assignment(course, "ps2")
    notebooks = {f"{n}.ipynb": answered(released(ps2, n)) for n in ("letters", "words")}
    hand_in("ana", {**notebooks, "words.txt": "all mine", "more.txt": "x"}, "ps2")
    grade("ps2")
    assert grades(course, "ana")["count-file"] == (1.0, None, 0)
    folder = course.folder("autograded", "ana", "ps2")
    assert (folder / "words.txt").read_text() == "one two three four\n"
    assert (folder / "more.txt").read_text() == "x"


def test_an_unreadable_hand_in_is_not_graded_and_waits_for_a_person(
    course: Course, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": b"{"})
    grade()
    assert {row[0::2] for row in grades(course, "ana").values()} == {(None, 1)}
    notebook = json.loads((course.folder("autograded", "ana", "ps1") / "numbers.ipynb").read_text())
    assert "Not graded" in notebook["cells"][0]["source"]


def test_a_manual_grade_outlives_grading_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    with sqlite3.connect(course.root / "gradebook.db") as connection:
        connection.execute("update grade set manual_score = 1.5, needs_manual_grade = 0")
    grade(force=True)
    assert grades(course, "ana")["why"] == (None, 1.5, 1)
    assert grades(course, "ana")["double-values"] == (2.0, 1.5, 1)


# --- again and again -----------------------------------------------------------------------------


def test_what_is_finished_is_not_graded_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    first = grade()["ana"].result
    again = grade()["ana"]
    assert not again.fresh and len(one_process.jobs) == 1
    assert again.result.records == first.records


def test_a_changed_test_is_graded_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    source = course.root / "source" / "ps1" / "numbers.md"
    changed = source.read_text().replace("points: 2", "points: 5").replace("== 4", "== 5")
    source.write_text(changed)
    grade()
    assert len(one_process.jobs) == 2
    assert grades(course, "ana")["double-values"] == (0.0, None, 0)
    assert query(course, "select max_score from grade_cells where max_score = 5") == [(5.0,)]


def test_a_changed_hidden_module_is_graded_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    module = course.root / "graders" / "numbers.py"
    module.write_text(module.read_text().replace("2 * x,", "3 * x,"))
    grade()
    assert len(one_process.jobs) == 2
    assert grades(course, "ana")["double-values"] == (0.0, None, 0)


def test_a_deleted_autograded_notebook_is_made_again_with_the_same_seed(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    path = course.folder("autograded", "ana", "ps1") / "numbers.ipynb"
    path.unlink()
    grade()
    assert path.exists()
    assert one_process.jobs[0].seed == one_process.jobs[1].seed


def test_a_deleted_feedback_page_is_written_without_grading(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    page = course.folder("feedback", "ana", "ps1") / "numbers.html"
    before = page.read_text()
    page.unlink()
    grade()
    assert page.read_text() == before
    assert len(one_process.jobs) == 1


def test_a_resubmission_replaces_the_grade(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": released(ps1)})
    grade()
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    assert grades(course, "ana")["mean-score"] == (3.0, None, 0)


def test_a_resubmission_that_cannot_be_graded_marks_the_old_grade_stale(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    hand_in("ana", {"numbers.ipynb": b"<<<<<<< HEAD"})
    item = grade()["ana"]
    assert item.result.stale.startswith("this grade belongs to an earlier hand-in")
    assert grades(course, "ana")["mean-score"] == (3.0, None, 1)
    comments = query(course, "select distinct auto_comment from comment")
    assert all(text.startswith("STALE GRADE") for (text,) in comments)
    notebook = json.loads((course.folder("autograded", "ana", "ps1") / "numbers.ipynb").read_text())
    assert "Stale grade" in notebook["cells"][0]["source"]
    page = (course.folder("feedback", "ana", "ps1") / "numbers.html").read_text()
    assert "Stale grade" in page
    assert not grade()["ana"].fresh


def test_a_grade_by_stock_nbgrader_stays_when_a_resubmission_cannot_be_read(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    with sqlite3.connect(course.root / "gradebook.db") as connection:
        connection.execute("delete from headmaster_result")
    hand_in("ana", {"numbers.ipynb": b"{"})
    grade()
    assert grades(course, "ana")["mean-score"] == (3.0, None, 1)


def test_a_good_resubmission_clears_the_stale_mark(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    for content in (answered(released(ps1)), b"{", answered(released(ps1), mean="mean = max")):
        hand_in("ana", {"numbers.ipynb": content})
        item = grade()["ana"]
    assert item.result.stale == ""
    assert grades(course, "ana")["double-zero"] == (1.0, None, 0)
    assert query(course, "select auto_comment from comment where auto_comment like 'ST%'") == []


def test_trouble_is_never_a_number_and_is_tried_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade, one_process: OneProcess
) -> None:
    def no_memory(job: Any) -> None:
        if job.student == "ana":
            raise MemoryError("no memory for a zygote")

    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    hand_in("bea", {"numbers.ipynb": answered(released(ps1))})
    one_process.before = no_memory
    graded = grade()
    assert graded["ana"].result.ungraded.reason == "trouble"
    assert graded["bea"].result.score == 6.0
    assert grades(course, "ana")["mean-score"] == (None, None, 1)
    one_process.before = lambda job: None
    assert grade()["ana"].result.score == 6.0


def test_trouble_after_a_grade_keeps_it_and_marks_it_stale(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade, one_process: OneProcess
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    hand_in("ana", {"numbers.ipynb": answered(released(ps1), mean="mean = max")})

    def fails(job: Any) -> None:
        raise OSError("no processes left")

    one_process.before = fails
    assert "no processes left" in grade()["ana"].result.stale
    assert grades(course, "ana")["mean-score"] == (3.0, None, 1)
    one_process.before = lambda job: None
    assert grade()["ana"].result.score < 6.0


def test_one_bad_submission_never_stops_the_others(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    from headmaster import marking

    def explodes(*arguments: Any) -> Any:
        if arguments[2] == "bea":
            raise RuntimeError("something nobody thought of")
        return take_in(*arguments)

    take_in = marking.take_in
    monkeypatch.setattr(marking, "take_in", explodes)
    for student in ("ana", "bea", "cyd"):
        hand_in(student, {"numbers.ipynb": answered(released(ps1))})
    graded = grade()
    assert graded["ana"].result.score == graded["cyd"].result.score == 6.0
    assert "nobody thought of" in graded["bea"].trouble


def rename_a_test(course: Course) -> None:
    """In the source one test is gone, and another one has come."""
    source = course.root / "source" / "ps1" / "numbers.md"
    source.write_text(source.read_text().replace("double-zero", "double-nothing"))


def test_another_set_of_tests_is_graded_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    before = grades(course, "ana")
    rename_a_test(course)
    grade()
    after = grades(course, "ana")
    assert after["double-nothing"] == before.pop("double-zero")
    assert {name: after[name] for name in before} == before and len(after) == len(before) + 1


def test_a_test_that_a_person_has_graded_is_not_thrown_away(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    query(
        course,
        "update grade set manual_score = 0.5 where cell_id in "
        "(select id from base_cell where name = 'double-zero')",
    )
    before = grades(course, "ana")
    rename_a_test(course)
    with pytest.raises(CourseError, match=r"double-zero is gone .* a person has graded it"):
        grade()
    assert grades(course, "ana") == before


# --- late hand-ins -------------------------------------------------------------------------------


def be_late(course: Course, config: str) -> None:
    """Configure a penalty, and set the assignment's due date in the gradebook."""
    file = course.root / "nbgrader_config.py"
    file.write_text(file.read_text() + config)
    with sqlite3.connect(course.root / "gradebook.db") as connection:
        connection.execute("update assignment set duedate = '2026-01-01 00:00:00.000000'")


STAMP = {"timestamp.txt": "2026-01-01 02:00:00 UTC"}


def test_nbgraders_penalty_for_late_hand_ins_is_taken(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), **STAMP})
    grade()
    be_late(course, '\nc.LateSubmissionPlugin.penalty_method = "zero"\n')
    grade(force=True)
    assert query(course, "select late_submission_penalty from submitted_notebook") == [(6.0,)]


def test_a_plugin_of_the_courses_own_is_called_and_kept_within_bounds(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    (course.root / "perhour.py").write_text(
        "from nbgrader.plugins import BasePlugin\n"
        "class PerHour(BasePlugin):\n"
        "    def late_submission_penalty(self, student_id, score, total_seconds_late):\n"
        "        return total_seconds_late / 3600\n"
    )
    monkeypatch.syspath_prepend(course.root)
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), **STAMP})
    grade()
    be_late(course, '\nc.AssignLatePenalties.plugin_class = "perhour.PerHour"\n')
    grade(force=True)
    assert query(course, "select late_submission_penalty from submitted_notebook") == [(2.0,)]
    page = (course.folder("feedback", "ana", "ps1") / "numbers.html").read_text()
    assert "costs 2 points" in page


def test_an_extension_takes_the_penalty_away(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), **STAMP})
    grade()
    be_late(course, '\nc.LateSubmissionPlugin.penalty_method = "zero"\n')
    api = nbgrader_api(course.root)
    with api.gradebook as gradebook:
        gradebook.grant_extension("ps1", "ana", hours=3)
    grade(force=True)
    assert query(course, "select late_submission_penalty from submitted_notebook") == [(None,)]


def test_penalties_and_pages_follow_a_moved_due_date_and_nothing_is_graded_again(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), **STAMP})
    grade()
    be_late(course, '\nc.LateSubmissionPlugin.penalty_method = "zero"\n')
    page = course.folder("feedback", "ana", "ps1") / "numbers.html"
    for due, penalty in (("2026-01-01", 6.0), ("2026-01-02", None)):
        with sqlite3.connect(course.root / "gradebook.db") as connection:
            connection.execute("update assignment set duedate = ?", (f"{due} 00:00:00.000000",))
        graded = grade()["ana"]
        assert not graded.fresh
        assert query(course, "select late_submission_penalty from submitted_notebook") == [
            (penalty,)
        ]
        assert ("costs 6 points" in page.read_text()) == bool(penalty)


# --- other people's gradebooks -------------------------------------------------------------------


def refused_untouched(course: Course, message: str) -> None:
    """Check that a database is refused with this message, and not changed by a byte."""
    path = course.root / "gradebook.db"
    before = path.read_bytes()
    with pytest.raises(CourseError, match=message):
        Gradebook(course)
    assert path.read_bytes() == before


def test_a_gradebook_of_another_course_is_refused(course: Course, ps1: AssignmentSpec) -> None:
    with Gradebook(course) as gradebook:
        gradebook.register(ps1)
    other = course.root / "nbgrader_config.py"
    other.write_text(other.read_text().replace('"tiny"', '"another"'))
    refused_untouched(Course.open(course.root), "belongs to the course tiny, not to another")


def test_a_gradebook_of_another_version_is_refused(course: Course) -> None:
    Gradebook(course).__exit__()
    with sqlite3.connect(course.root / "gradebook.db") as connection:
        connection.execute("update alembic_version set version_num = '0ld'")
    refused_untouched(course, "another version of nbgrader .0ld.*nbgrader db upgrade")


def test_another_kind_of_database_is_refused(course: Course) -> None:
    with sqlite3.connect(course.root / "gradebook.db") as connection:
        connection.execute("create table songs (title text)")
    refused_untouched(course, "not a gradebook of nbgrader's")


def test_a_file_that_is_no_database_is_refused(course: Course) -> None:
    (course.root / "gradebook.db").write_text("my grades: " + "A+ " * 100)
    refused_untouched(course, "cannot be opened")


def test_a_url_that_is_none_is_refused(folder: Path) -> None:
    config = folder / "nbgrader_config.py"
    config.write_text(config.read_text() + '\nc.CourseDirectory.db_url = "not a url"\n')
    with pytest.raises(CourseError, match="no database URL"):
        Gradebook(Course.open(folder))


def test_nbgrader_reads_what_was_written(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), **STAMP})
    grade()
    api = nbgrader_api(course.root)
    with api.gradebook as gradebook:
        submission = gradebook.find_submission("ps1", "ana")
        assert (submission.score, submission.max_score) == (6.0, 8.0)
        assert submission.needs_manual_grade
        assert sa.inspect(gradebook.engine).has_table("headmaster_result")


# --- releasing again -----------------------------------------------------------------------------


def test_a_changed_exercise_is_released_under_existing_grades(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, grade: Grade
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    grade()
    before = grades(course, "ana")
    rename_a_test(course)
    (notebook,) = release(course, "ps1")
    assert "double-nothing" in notebook.read_text()
    assert not list(course.root.glob("release-*"))
    grade()
    assert set(grades(course, "ana")) == {*before, "double-nothing"} - {"double-zero"}


def test_a_release_that_fails_changes_nothing(course: Course) -> None:
    (notebook,) = release(course, "ps1")
    extra = notebook.parent / "data.csv"
    extra.write_text("1,2\n")
    before = notebook.read_bytes()
    source = course.root / "source" / "ps1" / "numbers.md"
    source.write_text(source.read_text().replace("grade_id: double-zero", "grade_id: double"))
    with pytest.raises(CourseError):
        release(course, "ps1")
    assert notebook.read_bytes() == before and extra.exists()
    assert not list(course.root.glob("release-*"))
