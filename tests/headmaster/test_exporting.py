"""Exporting: what Canvas and Moodle import, and that no cell says what nobody decided."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sqlite3
import zipfile
from datetime import datetime
from pathlib import Path
from typing import Any

import lms_samples as samples
import pytest
from click.testing import CliRunner
from conftest import HandIn, OneProcess, answered, released
from hypothesis import given
from hypothesis import strategies as st

from headmaster.class_list import roster_of
from headmaster.cli import main
from headmaster.collecting import Options as Collecting
from headmaster.collecting import collect
from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook
from headmaster.gradesheets import make
from headmaster.marking import Options, grade_assignment
from headmaster.pool import pool
from headmaster.release import AssignmentSpec
from headmaster.sheets import Choice, Sheet, number, safe_id, safe_text
from headmaster.standing import class_standing

pytestmark = pytest.mark.usefixtures("one_process")

WHY = {"why": "YOUR ANSWER HERE"}  # left as released: 0 points without a person


def grade(course: Course, assignment: str = "ps1") -> None:
    with pool(1) as executor:
        grade_assignment(Course.open(course.root), assignment, executor, Options(), lambda *_: None)


def sql(course: Course, *statements: str) -> None:
    with sqlite3.connect(course.root / "gradebook.db") as book:
        for statement in statements:
            book.execute(statement)


def give_points(course: Course, student: str, cell: str, column: str, points: float) -> None:
    """Write what a person gives in formgrader."""
    sql(
        course,
        f"UPDATE grade SET {column} = {points}, needs_manual_grade = 0 WHERE id = ("
        "SELECT grade.id FROM grade JOIN base_cell ON base_cell.id = grade.cell_id "
        "JOIN submitted_notebook n ON n.id = grade.notebook_id "
        "JOIN submitted_assignment a ON a.id = n.assignment_id "
        f"WHERE a.student_id = '{student}' AND base_cell.name = '{cell}')",
    )


@pytest.fixture
def class_(course: Course, ps1: AssignmentSpec, hand_in: HandIn, one_process: OneProcess) -> Course:
    """Return a graded class: two with numbers, a text to grade, a damaged file, and the rest."""
    right = answered(released(ps1), **WHY)
    wrong = answered(right, double="def double(x):\n    return x * x", **WHY)
    hand_in("ada", {"numbers.ipynb": right})
    hand_in("joerg", {"numbers.ipynb": wrong})
    hand_in("aine", {"numbers.ipynb": answered(right)})
    hand_in("xiaolong", {"numbers.ipynb": b"{"})
    grade(course)
    hand_in("min1", {"numbers.ipynb": right})
    return course


def sheet(
    course: Course, form: str, roster: Path | None = samples.GRADEBOOK, **choice: Any
) -> Sheet:
    people = roster_of(course, str(roster) if roster else None)
    return make(course, ["ps1"], form, people, Choice(**choice))


def rows(made: Sheet, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(made.text, newline=""), delimiter=delimiter))


def column(made: Sheet, key: str, value: str) -> dict[str, str]:
    table = list(csv.DictReader(io.StringIO(made.text, newline="")))
    return {row[key]: row[value] for row in table}


# --- where everybody stands ----------------------------------------------------------------------


def test_a_number_stands_only_for_what_is_graded_to_its_end(class_: Course) -> None:
    found = class_standing(class_, ["ps1"]).students
    assert {s: (f["ps1"].status, f["ps1"].score) for s, f in found.items()} == {
        "ada": ("graded", 6.0),
        "joerg": ("graded", 4.0),
        "aine": ("to grade", None),
        "xiaolong": ("not graded", None),
        "min1": ("not graded", None),
    }
    assert "a person has not graded yet: why" in found["aine"]["ps1"].why
    assert found["xiaolong"]["ps1"].why.startswith("unreadable: The file is not a complete")
    assert "run `headmaster grade ps1`" in found["min1"]["ps1"].why


def test_what_people_give_counts_as_in_nbgrader(class_: Course) -> None:
    give_points(class_, "aine", "why", "manual_score", 1.5)
    give_points(class_, "joerg", "double-values", "manual_score", 2)
    give_points(class_, "ada", "mean-score", "extra_credit", 1)
    sql(
        class_,
        "UPDATE submitted_notebook SET late_submission_penalty = 2.5 WHERE assignment_id = ("
        "SELECT id FROM submitted_assignment WHERE student_id = 'ada')",
    )
    mine = {s: f["ps1"].score for s, f in class_standing(class_, ["ps1"]).students.items()}
    assert (mine["ada"], mine["joerg"], mine["aine"]) == (4.5, 6.0, 7.5)
    theirs = nbgraders(class_)
    assert {s: float(theirs[s]["score"]) for s in ("ada", "joerg", "aine")} == {
        s: mine[s] for s in ("ada", "joerg", "aine")
    }
    assert float(theirs["ada"]["max_score"]) == class_standing(class_, ["ps1"]).max["ps1"]


def test_a_class_that_nbgrader_graded_is_exported_too(class_: Course) -> None:
    sql(class_, "DROP TABLE headmaster_result")
    grades = column(sheet(class_, "canvas"), "SIS Login ID", "ps1 (7001)")
    assert (grades["ada"], grades["joerg"], grades["xiaolong"]) == ("6", "4", "")
    table = list(csv.DictReader(io.StringIO(sheet(class_, "tests").text)))
    assert {row["verdict"] for row in table} == {""}


def test_a_penalty_never_makes_a_grade_negative(class_: Course) -> None:
    sql(class_, "UPDATE submitted_notebook SET late_submission_penalty = 100")
    assert class_standing(class_, ["ps1"]).students["ada"]["ps1"].score == 0.0
    assert float(nbgraders(class_)["ada"]["score"]) == 0.0


def test_lateness_that_canvas_marks_costs_what_the_course_says(
    folder: Path, ps1: AssignmentSpec, tmp_path: Path
) -> None:
    with open(folder / "nbgrader_config.py", "a") as config:
        config.write('\nc.LateSubmissionPlugin.penalty_method = "zero"\n')
    course = Course.open(folder)
    with Gradebook(course) as book:
        book.register(ps1)
    sql(course, "UPDATE assignment SET duedate = '2026-11-02 12:00:00.000000'")
    content = json.dumps(answered(released(ps1), **WHY)).encode()
    members = [
        (samples.canvas("Lovelace, Ada", 12345, 1, "numbers.ipynb", True), content, samples.LATER),
        (samples.canvas("O'Brien, Áine", 12347, 2, "numbers.ipynb"), content, samples.LATER),
    ]
    source = samples.write_zip(tmp_path / "d.zip", members)
    collect(course, "ps1", [source], roster_of(course, str(samples.GRADEBOOK)), Collecting())
    grade(course)
    grades = column(sheet(course, "canvas"), "SIS Login ID", "ps1 (7001)")
    assert (grades["ada"], grades["aine"]) == ("0", "6")


def nbgraders(course: Course) -> dict[str, dict[str, str]]:
    """Return nbgrader's own export by student."""
    from nbgrader.api import Gradebook
    from nbgrader.plugins import CsvExportPlugin

    plugin = CsvExportPlugin()
    plugin.to = str(course.root / "own.csv")
    with Gradebook(course.db_url, course.course_id) as book:
        plugin.export(book)
    with open(plugin.to, newline="") as file:
        return {row["student_id"]: row for row in csv.DictReader(file)}


def test_a_newer_hand_in_empties_the_grade_until_it_is_graded(
    class_: Course, ps1: AssignmentSpec, tmp_path: Path
) -> None:
    name = samples.canvas("Lovelace, Ada", 12345, 9, "numbers.ipynb")
    better = json.dumps(answered(released(ps1), **WHY)).encode() + b"\n"
    source = samples.write_zip(tmp_path / "d.zip", [(name, better, samples.LATER)])
    collect(class_, "ps1", [source], roster_of(class_, str(samples.GRADEBOOK)), Collecting())
    standing = class_standing(class_, ["ps1"]).students["ada"]["ps1"]
    assert standing.score is None
    assert standing.why == ("handed in again since it was graded: run `headmaster grade ps1`")
    grade(class_)
    assert class_standing(class_, ["ps1"]).students["ada"]["ps1"].score == 6.0


def test_a_stale_grade_is_not_exported(class_: Course, hand_in: HandIn) -> None:
    hand_in("ada", {"numbers.ipynb": b"{"})
    grade(class_)
    standing = class_standing(class_, ["ps1"]).students["ada"]["ps1"]
    assert (standing.status, standing.score) == ("not graded", None)
    assert standing.why.startswith("stale: this grade belongs to an earlier hand-in")


def test_an_ungraded_class_is_refused_and_no_gradebook_is_made(course: Course) -> None:
    for form in ("canvas", "moodle", "tests", "json"):
        with pytest.raises(CourseError, match="nobody is graded in 'ps1' yet: run `headmaster gr"):
            sheet(course, form)
    assert not (course.root / "gradebook.db").exists()


def test_one_ungraded_assignment_among_others_is_refused(class_: Course) -> None:
    with pytest.raises(CourseError, match="nobody is graded in 'ps2' yet"):
        make(class_, ["ps1", "ps2"], "canvas", roster_of(class_, None), Choice())


# --- Canvas --------------------------------------------------------------------------------------


def test_canvas_gets_its_own_identity_columns_back(class_: Course) -> None:
    """By Canvas's lib/gradebook_importer.rb the first two headers hold Student and ID, SIS columns
    follow, Section is the last, and a row whose first cell holds "Points Possible" comes next."""
    made = sheet(class_, "canvas")
    with open(samples.GRADEBOOK, newline="") as file:
        given = list(csv.reader(file))
    table = rows(made)
    assert table[0] == [*given[0][:5], "ps1 (7001)"]
    assert table[1] == ["    Points Possible", "", "", "", "", "8"]
    assert [row[:5] for row in table[2:]] == [row[:5] for row in given[3:]]
    assert {row[3]: row[5] for row in table[2:]} == {
        "ada": "6",
        "joerg": "4",
        "aine": "",  # a text to grade
        "hong": "EX",  # excused in Canvas
        "xiaolong": "",  # damaged
        "min1": "",  # not graded since
        "min2": "",  # nothing
        "4ecf7b1d2c3a9e8f0b6d5a4c3e2f1a0b9c8d7e6f": "",
    }


def test_who_has_no_grade_is_listed_with_the_reason(class_: Course) -> None:
    listed = "\n".join(sheet(class_, "canvas").empty)
    assert "aine: ps1: to grade: a person has not graded yet: why (in formgrader)" in listed
    assert "xiaolong: ps1: not graded: unreadable: The file is not a complete notebook" in listed
    assert "min1: ps1: not graded: handed in, but not graded" in listed
    assert "hong, min2, 4ecf7b1d2c3a9e8f0b6d5a4c3e2f1a0b9c8d7e6f: ps1: missing" in listed


def test_missing_hand_ins_are_0_only_where_it_is_said(class_: Course) -> None:
    grades = column(sheet(class_, "canvas", missing_as_zero=True), "SIS Login ID", "ps1 (7001)")
    assert (grades["min2"], grades["xiaolong"], grades["hong"]) == ("0", "", "EX")


def test_points_so_far_are_exported_only_where_it_is_said(class_: Course) -> None:
    grades = column(sheet(class_, "canvas", so_far=True), "SIS Login ID", "ps1 (7001)")
    assert (grades["aine"], grades["xiaolong"]) == ("6", "")


def test_who_is_not_on_the_list_is_named_and_left_out(class_: Course) -> None:
    made = sheet(class_, "canvas", samples.CLASS)
    assert "xiaolong: ps1: graded, but not on the class list class.csv" in made.empty
    assert "xiaolong" not in made.text


def test_a_column_of_another_name_can_be_named(class_: Course) -> None:
    with pytest.raises(CourseError, match=r"Canvas's column 'Essay \(7002\)' is 10 points, and ps"):
        sheet(class_, "canvas", columns=("Essay",))
    made = sheet(class_, "canvas", columns=("Essay (7002)",), scale=True)
    assert column(made, "SIS Login ID", "Essay (7002)")["ada"] == "7.5"
    assert rows(made)[1][5] == "10"
    with pytest.raises(CourseError, match=r"no column 'Esay'; its columns .* 'ps1 \(7001\)'"):
        sheet(class_, "canvas", columns=("Esay",))


def test_other_class_lists_make_a_table_for_canvas_too(class_: Course) -> None:
    made = sheet(class_, "canvas", samples.CLASS)
    assert rows(made, ";")[0] == [
        "Student", "ID", "SIS User ID", "SIS Login ID", "Section", "ps1"
    ]  # fmt: skip
    assert rows(made, ";")[2] == ["Lovelace, Ada", "", "", "ada", "", "6"]
    assert "no gradebook exported by Canvas" in made.notes[0]


def test_without_a_class_list_canvas_numbers_come_from_what_was_collected(
    course: Course, ps1: AssignmentSpec, tmp_path: Path
) -> None:
    name = samples.canvas("Lovelace, Ada", 12345, 9, "numbers.ipynb")
    content = json.dumps(answered(released(ps1), **WHY)).encode()
    source = samples.write_zip(tmp_path / "d.zip", [(name, content, samples.EARLY)])
    collect(course, "ps1", [source], roster_of(course, str(samples.GRADEBOOK)), Collecting())
    grade(course)
    assert rows(sheet(course, "canvas", None))[2] == ["ada", "12345", "", "ada", "", "6"]


# --- Moodle --------------------------------------------------------------------------------------


@pytest.fixture
def moodles(course: Course, ps1: AssignmentSpec, tmp_path: Path) -> Course:
    """Return a class collected from Moodle and graded."""
    right = answered(released(ps1), **WHY)
    wrong = answered(right, double="def double(x):\n    return x * x", **WHY)
    members = [
        (samples.moodle(name, number, "numbers.ipynb"), json.dumps(notebook).encode(), time)
        for name, number, notebook, time in (
            ("Ada Lovelace", 501, right, samples.EARLY),
            ("Jörg Müller-Lüdenscheidt", 502, wrong, samples.LATER),
        )
    ]
    source = samples.write_zip(tmp_path / "moodle.zip", members)
    collect(course, "ps1", [source], roster_of(course, str(samples.WORKSHEET)), Collecting())
    grade(course)
    return course


def test_moodles_worksheet_comes_back_with_grades_and_comments(moodles: Course) -> None:
    """By Moodle's importgradeslib.php: Identifier, Grade and Last modified (grade) are found by
    their headers, and Feedback comments where the assignment has them; times must come back."""
    made = sheet(moodles, "moodle-worksheet", samples.WORKSHEET)
    with open(samples.WORKSHEET, newline="", encoding="utf-8-sig") as file:
        given = list(csv.reader(file))
    table = rows(made)
    assert table[0] == given[0]
    for mine, theirs in zip(table[1:], given[1:], strict=True):
        assert [c for i, c in enumerate(mine) if i not in (5, 10)] == [
            c for i, c in enumerate(theirs) if i not in (5, 10)
        ]
    assert [row[5] for row in table[1:]] == ["6", "4", ""]
    assert table[1][10] == "6 of 8 points. Not yet: why."
    assert table[2][10] == "Please come to see me.", "a comment that is there stays"
    assert table[3][10] == ""


def test_a_worksheet_can_be_made_from_what_was_collected(moodles: Course) -> None:
    made = sheet(moodles, "moodle-worksheet", samples.GRADES)
    assert column(made, "Identifier", "Grade") == {"Participant 501": "6", "Participant 502": "4"}
    assert made.notes[1] == "left out, their participant number is not known: M102"


def test_a_worksheet_without_any_participant_is_refused(class_: Course) -> None:
    with pytest.raises(CourseError, match="give the worksheet that Moodle offers as --roster"):
        sheet(class_, "moodle-worksheet", samples.CLASS)


def test_a_worksheet_of_other_points_is_refused(moodles: Course, tmp_path: Path) -> None:
    other = tmp_path / "worksheet.csv"
    other.write_text(samples.WORKSHEET.read_text("utf-8").replace("8.00", "100,00".join('""')))
    with pytest.raises(CourseError, match=r"\(row 2\) is 100 points, and ps1 has 8: set it to 8"):
        sheet(moodles, "moodle-worksheet", other)
    made = sheet(moodles, "moodle-worksheet", other, scale=True)
    assert column(made, "ID number", "Grade")["M100"] == "75"


def test_moodles_grade_import_gets_number_address_and_name(moodles: Course) -> None:
    """By docs.moodle.org/en/Grade_import users are mapped by ID number or email address."""
    assert rows(sheet(moodles, "moodle", samples.GRADES)) == [
        ["ID number", "Email address", "Full name", "ps1"],
        ["M100", "ada@example.edu", "Ada Lovelace", "6"],
        ["M101", "joerg@example.edu", "Jörg Müller-Lüdenscheidt", "4"],
        ["M102", "aine@example.edu", "Áine O'Brien", ""],
    ]


# --- per test, and everything --------------------------------------------------------------------


def test_a_row_for_each_student_and_test(class_: Course) -> None:
    table = list(csv.DictReader(io.StringIO(sheet(class_, "tests").text)))
    found = {(row["student"], row["test"]): row for row in table}
    wrong = found["joerg", "double-values"]
    assert (wrong["points"], wrong["max"], wrong["verdict"]) == ("0", "2", "fail")
    assert (wrong["reason"], wrong["misconception"]) == ("wrong-answer", "double-is-square")
    assert found["aine", "why"]["points"] == ""
    assert found["xiaolong", "mean-score"]["reason"] == "unreadable"
    assert found["xiaolong", "mean-score"]["points"] == ""


def test_what_a_person_gave_is_marked(class_: Course) -> None:
    give_points(class_, "joerg", "double-values", "manual_score", 2)
    table = list(csv.DictReader(io.StringIO(sheet(class_, "tests").text)))
    given_by_hand = [row["test"] for row in table if row["by_hand"] == "yes"]
    assert given_by_hand == ["double-values"]


def test_json_has_everything(class_: Course) -> None:
    data = json.loads(sheet(class_, "json").text)
    assert data["assignments"] == [{"name": "ps1", "max": 8.0}]
    found = {student["id"]: student["assignments"]["ps1"] for student in data["students"]}
    assert (found["ada"]["score"], found["ada"]["status"]) == (6.0, "graded")
    assert found["xiaolong"]["score"] is None
    assert found["joerg"]["graded"]["notebooks"][0]["records"][0]["seed"]
    assert found["min2"] == {
        "status": "missing",
        "why": "nothing was handed in",
        "score": None,
        "raw": None,
        "late_penalty": None,
        "max": 8.0,
        "handed_in": None,
        "cells": [],
        "graded": None,
    }


# --- cells ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "formula", ["=1+1", '=HYPERLINK("http://x")', "+cmd|' /C calc'!A0", "@SUM(1)", "-2+3", "\t=1"]
)
def test_names_that_are_formulas_are_put_out_of_action(
    class_: Course, tmp_path: Path, formula: str
) -> None:
    path = tmp_path / "class.csv"
    with open(path, "w", newline="") as file:
        csv.writer(file).writerows([["id", "name"], ["ada", formula]])
    for form in ("canvas", "moodle"):
        cells = [cell for row in rows(sheet(class_, form, path)) for cell in row]
        assert not any(cell.strip().startswith(tuple("=+-@")) for cell in cells)


@pytest.mark.parametrize("value", ["-", "-3.5", "+1", "", "a-b", "plain"])
def test_text_that_is_no_formula_stays(value: str) -> None:
    assert safe_text(value) == value


@pytest.mark.parametrize("value", ["+49123456", "-anna", "@ada", "a=b", "ada@x.y", "007", "S-1"])
def test_ids_come_back_as_they_are(value: str) -> None:
    assert safe_id(value) == value


@given(st.text())
def test_no_text_is_a_formula(value: str) -> None:
    harmless = re.fullmatch(r"[+-][\d.,]*", value)
    assert safe_text(value).lstrip()[:1] not in tuple("=+-@") or harmless
    assert safe_text(value).endswith(value)
    assert safe_id(value)[:1] not in ("=", "\t")


@given(st.floats(0, 1e6))
def test_numbers_are_written_plainly(value: float) -> None:
    text = number(value)
    assert abs(float(text) - value) <= 5.1e-5
    assert "e" not in text and "," not in text and not text.endswith(".")


# --- feedback ------------------------------------------------------------------------------------


def run(course: Course, *arguments: str) -> Any:
    return CliRunner().invoke(main, ["export", "ps1", *arguments, "--course", str(course.root)])


def test_feedback_is_a_folder_for_each_student(class_: Course, tmp_path: Path) -> None:
    to = tmp_path / "back"
    result = run(class_, "--format", "feedback", "--to", str(to))
    assert result.exit_code == 0
    assert sorted(p.relative_to(to).as_posix() for p in to.rglob("*.html")) == [
        f"{student}/ps1/numbers.html" for student in ("ada", "aine", "joerg", "xiaolong")
    ]
    assert "min1 (ps1): no page" in result.output
    again = run(class_, "--format", "feedback", "--to", str(to))
    assert again.exit_code == 2
    assert "is there already" in again.output


def test_feedback_holds_what_a_person_wrote_since(class_: Course, tmp_path: Path) -> None:
    give_points(class_, "aine", "why", "manual_score", 1.25)
    run(class_, "--format", "feedback", "--to", str(tmp_path / "back.zip"))
    with zipfile.ZipFile(tmp_path / "back.zip") as archive:
        assert b"1.25 of 2" in archive.read("aine/ps1/numbers.html")


def test_moodle_takes_feedback_under_its_own_folders(moodles: Course, tmp_path: Path) -> None:
    """By Moodle's assignfeedback_file importziplib.php a part of the path is split at _ : the
    second piece is the participant, the third and fourth name a plug-in, the rest is the file."""
    to = tmp_path / "back.zip"
    assert run(moodles, "--format", "moodle-feedback", "--to", str(to)).exit_code == 0
    with zipfile.ZipFile(to) as archive:
        names = archive.namelist()
        assert archive.testzip() is None
    assert names == [
        "Ada Lovelace_501_assignsubmission_file_/numbers.html",
        "Jörg Müller-Lüdenscheidt_502_assignsubmission_file_/numbers.html",
    ]
    for name, participant in zip(names, ("501", "502"), strict=True):
        pieces = name.split("/")[0].split("_", 4)
        assert pieces[1:] == [participant, "assignsubmission", "file", ""]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("end", ["", "_"])
def test_moodles_folders_are_known_from_either_download(
    course: Course, ps1: AssignmentSpec, tmp_path: Path, flat: bool, end: str
) -> None:
    name = samples.moodle("Ada Lovelace", 501, "numbers.ipynb", flat, end)
    content = json.dumps(answered(released(ps1))).encode()
    source = samples.write_zip(tmp_path / "d.zip", [(name, content, samples.EARLY)])
    collect(course, "ps1", [source], roster_of(course, str(samples.GRADES)), Collecting())
    grade(course)
    run(course, "--format", "moodle-feedback", "--to", str(tmp_path / "back.zip"))
    with zipfile.ZipFile(tmp_path / "back.zip") as archive:
        assert archive.namelist() == ["Ada Lovelace_501_assignsubmission_file_/numbers.html"]


def test_canvas_takes_feedback_under_the_names_of_its_download(
    course: Course, ps1: AssignmentSpec, tmp_path: Path
) -> None:
    """By Canvas's generate_comments_from_files the first two numbers of the name say whose and
    which file it is, and students see it under that file's name: so it has to be a notebook."""
    nbformat = pytest.importorskip("nbformat")
    content = json.dumps(answered(released(ps1), why="a < b & c\n\n\nand more")).encode()
    name = samples.canvas("Lovelace, Ada", 12345, 67890, "numbers-2.ipynb", late=True)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("numbers.ipynb", content)
    other = samples.canvas("O'Brien, Áine", 12347, 67891, "work.zip")
    source = samples.write_zip(
        tmp_path / "d.zip",
        [(name, content, samples.EARLY), (other, packed.getvalue(), samples.LATER)],
    )
    collect(course, "ps1", [source], roster_of(course, str(samples.GRADEBOOK)), Collecting())
    grade(course)
    to = tmp_path / "back.zip"
    assert run(course, "--format", "canvas-feedback", "--to", str(to)).exit_code == 0
    with zipfile.ZipFile(to) as archive:
        assert sorted(archive.namelist()) == sorted([name, other])
        notebook = nbformat.reads(archive.read(name).decode(), as_version=4)
        nbformat.validate(notebook)
        assert zipfile.ZipFile(io.BytesIO(archive.read(other))).namelist() == ["numbers.html"]
    (text,) = notebook.cells
    assert "double-values" in text.source and "\n" not in text.source
    assert "a &lt; b &amp; c&#10;&#10;&#10;and more" in text.source
    assert "<script" not in text.source


def test_feedback_for_a_platform_needs_what_was_collected_from_it(class_: Course) -> None:
    result = run(class_, "--format", "canvas-feedback", "--to", str(class_.root / "back.zip"))
    assert result.exit_code == 2
    assert "download from Canvas is not known; collect it again" in result.output
    assert not (class_.root / "back.zip").exists()


# --- the command ---------------------------------------------------------------------------------


def test_the_command_writes_and_lists(class_: Course, tmp_path: Path) -> None:
    to = tmp_path / "canvas.csv"
    arguments = ("--format", "canvas", "--to", str(to), "--roster", str(samples.GRADEBOOK))
    result = run(class_, *arguments)
    assert result.exit_code == 0
    assert f"{to}: written" in result.output
    assert "Left empty:\n  aine: ps1: to grade" in result.output
    assert to.read_bytes().startswith(b"Student,ID,SIS User ID,SIS Login ID,Section,ps1 (7001)\r\n")


def test_the_command_writes_to_the_standard_output(class_: Course) -> None:
    result = run(class_, "--format", "json", "--to", "-")
    assert json.loads(result.stdout)["assignments"]


def test_nothing_is_half_written(
    class_: Course, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "canvas.csv"
    to.write_text("what was there")
    assert run(class_, "--format", "canvas", "--to", str(to), "--column", "x", "--column", "y")
    assert to.read_text() == "what was there"

    def fails(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fails)
    result = run(class_, "--format", "canvas", "--to", str(to))
    assert (result.exit_code, "cannot be written: disk full" in result.output) == (2, True)
    assert to.read_text() == "what was there"
    assert list(tmp_path.glob(".headmaster*")) == []


def test_the_command_names_what_is_wrong(class_: Course, tmp_path: Path) -> None:
    for arguments, sentence in (
        (["--format", "canvas", "--to", str(tmp_path / "no" / "x.csv")], "there is no folder"),
        (["--format", "canvas", "--to", str(tmp_path)], "is a folder; give the name of a file"),
        (["--format", "tests", "--to", "-", "--roster", "no.csv"], "there is no class list no.csv"),
    ):
        result = run(class_, *arguments)
        assert result.exit_code == 2
        assert sentence in result.output


# --- as nbgrader's own plug-ins ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("CanvasExporter", "canvas"),
        ("MoodleExporter", "moodle"),
        ("TestsExporter", "tests"),
        ("JsonExporter", "json"),
    ],
)
def test_nbgrader_export_writes_the_same(
    class_: Course, name: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nbgrader.apps.exportapp import ExportApp

    monkeypatch.chdir(class_.root)
    app = ExportApp()
    app.initialize(
        [
            f"--exporter=headmaster.exporting.{name}",
            "--to=out.txt",
            f"--{name}.roster={samples.GRADEBOOK}",
        ]
    )
    app.start()
    with open("out.txt", newline="") as file:
        assert file.read() == sheet(class_, form).text


def test_nbgrader_export_of_an_ungraded_class_says_so(
    course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headmaster.exporting import CanvasExporter

    monkeypatch.chdir(course.root)
    Gradebook(course).__exit__()  # nbgrader has made an empty one by then
    with pytest.raises(SystemExit):
        CanvasExporter(config=course.config).export(None)
    assert not (course.root / "grades-canvas.csv").exists()


def test_times_are_written_in_utc(class_: Course) -> None:
    moment = datetime(2026, 11, 2, 10)
    sql(class_, f"UPDATE submitted_assignment SET timestamp = '{moment}.000000'")
    data = json.loads(sheet(class_, "json").text)
    assert data["students"][0]["assignments"]["ps1"]["handed_in"] == "2026-11-02 10:00:00Z"
