"""The course as an instructor uses it: release, collect, grade, feedback, export."""

import csv
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headmaster.authoring import read_text, release, write_notebook
from headmaster.course import Course
from tests.hidden.__main__ import texts

ROOT = Path(__file__).resolve().parents[1]
CLASS = ROOT / "tests" / "class"
EXPECTED = json.loads((CLASS / "expected.json").read_text(encoding="utf-8"))
ASSIGNMENTS = sorted(EXPECTED)
# Stock nbgrader can't grade these: a copied cell, and lost metadata (headmaster can).
BEYOND_STOCK = {"jana", "priya"}

CONFIG = """
from pathlib import Path
exec(Path({config!r}).read_text(encoding="utf-8").replace("__file__", repr({config!r})))
c.CourseDirectory.submitted_directory = {folder!r} + "/submitted"
c.CourseDirectory.autograded_directory = {folder!r} + "/autograded"
c.CourseDirectory.feedback_directory = {folder!r} + "/feedback"
c.CourseDirectory.release_directory = {folder!r} + "/exercises"
c.CourseDirectory.source_directory = {folder!r} + "/solutions"
c.CourseDirectory.root = {folder!r}
c.CourseDirectory.db_url = "sqlite:///" + {folder!r} + "/gradebook.db"
c.ZipCollectApp.downloaded_directory = "downloaded"
c.Headmaster.trusted_path = [{root!r}]
"""


@pytest.fixture
def course(tmp_path):
    """The course with folders of its own for everything that is written."""
    text = CONFIG.format(
        config=str(ROOT / "nbgrader_config.py"), folder=str(tmp_path), root=str(ROOT)
    )
    (tmp_path / "nbgrader_config.py").write_text(text, encoding="utf-8")
    for assignment in ASSIGNMENTS:
        shutil.copytree(ROOT / "solutions" / assignment, tmp_path / "solutions" / assignment)
        archive = tmp_path / "downloaded" / assignment / "archive"
        shutil.copytree(CLASS / "downloads" / assignment, archive)
    return tmp_path


def nbgrader(course, *words, check=True):
    """Run an nbgrader command in the course."""
    command = [sys.executable, "-m", "nbgrader", *words]
    return subprocess.run(command, cwd=course, check=check, capture_output=True, text=True)


def hand_in(course, assignment):
    nbgrader(course, "zip_collect", assignment)


def stock_scores(course, assignment):
    """nbgrader's gradebook: points by student and test."""
    from nbgrader.api import Gradebook, MissingEntry

    scores = {}
    with Gradebook(f"sqlite:///{course}/gradebook.db") as gradebook:
        for student in gradebook.students:
            try:
                handed_in = gradebook.find_submission(assignment, student.id)
            except MissingEntry:
                continue
            grades = [grade for notebook in handed_in.notebooks for grade in notebook.grades]
            scores[student.id] = {
                grade.name: grade.auto_score
                for grade in grades
                if not grade.name.endswith("question")
            }
    return scores


@pytest.mark.parametrize("assignment", texts())
def test_the_released_exercises_are_in_sync_with_their_texts(assignment, tmp_path):
    text = CONFIG.format(
        config=str(ROOT / "nbgrader_config.py"), folder=str(tmp_path), root=str(ROOT)
    )
    (tmp_path / "nbgrader_config.py").write_text(text, encoding="utf-8")
    shutil.copytree(
        ROOT / "solutions" / assignment,
        tmp_path / "solutions" / assignment,
        ignore=shutil.ignore_patterns("*.ipynb"),
    )
    (made,) = release(Course.open(tmp_path), assignment)
    kept = ROOT / "exercises" / assignment / made.name
    assert kept.read_text(encoding="utf-8") == made.read_text(encoding="utf-8"), (
        "run `make release`"
    )


@pytest.mark.parametrize("assignment", texts())
def test_a_released_notebook_holds_no_answer_no_hidden_test_and_no_output(assignment):
    (path,) = (ROOT / "exercises" / assignment).glob("*.ipynb")
    released = json.loads(path.read_text(encoding="utf-8"))
    text = path.read_text(encoding="utf-8")
    for secret in ("BEGIN SOLUTION", "HIDDEN TESTS", "tests.hidden import", "grade("):
        assert secret not in text
    assert not any(cell.get("outputs") for cell in released["cells"])
    source = read_text(ROOT / "solutions" / assignment / f"{path.stem}.md")
    answers = [c for c in source.cells if "BEGIN SOLUTION" in c.source]
    stubs = {cell["id"]: "".join(cell["source"]) for cell in released["cells"]}
    assert answers
    for cell in answers:
        wanted = "NotImplementedError" if cell.cell_type == "code" else "YOUR ANSWER HERE"
        assert wanted in stubs[cell.id]


@pytest.mark.parametrize("assignment", texts())
def test_a_released_notebook_runs_and_says_not_written_yet(assignment):
    (path,) = (ROOT / "exercises" / assignment).glob("*.ipynb")
    space = {"__name__": "notebook"}
    failed = 0
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        if cell["cell_type"] != "code":
            continue
        try:
            exec("".join(cell["source"]), space)
        except AssertionError as error:
            failed += 1
            assert "not written yet" in str(error)
    assert failed == sum("check(" in "".join(c["source"]) for c in _tests(path))


def _tests(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [
        c
        for c in cells
        if c["metadata"].get("nbgrader", {}).get("points") and c["cell_type"] == "code"
    ]


def test_the_sample_class_is_up_to_date(tmp_path):
    before = {p.relative_to(CLASS): p.read_bytes() for p in CLASS.rglob("*") if p.is_file()}
    copy = tmp_path / "tests" / "class"
    shutil.copytree(ROOT / "exercises", tmp_path / "exercises")
    shutil.copytree(CLASS, copy)
    script = (copy / "make_class.py").read_text(encoding="utf-8")
    script = script.replace("sys.path.insert(0, str(ROOT))", f"sys.path.insert(0, {str(ROOT)!r})")
    (copy / "make_class.py").write_text(script, encoding="utf-8")
    subprocess.run([sys.executable, str(copy / "make_class.py")], check=True, capture_output=True)
    (copy / "make_class.py").write_bytes(before[Path("make_class.py")])
    after = {p.relative_to(copy): p.read_bytes() for p in copy.rglob("*") if p.is_file()}
    keep = {name for name in before if "__pycache__" not in name.parts}
    assert {name: after.get(name) for name in keep} == {name: before[name] for name in keep}


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_headmaster_gives_the_sample_class_the_scores_it_deserves(course, assignment):
    hand_in(course, assignment)
    command = [sys.executable, "-m", "headmaster", "grade", assignment, "--json", "grades.json"]
    done = subprocess.run(command, cwd=course, capture_output=True, text=True)
    assert "mateo" in done.stdout
    scores = stock_scores(course, assignment)
    for student, wanted in EXPECTED[assignment].items():
        if wanted is None:
            assert not any(scores.get(student, {}).values())
            continue
        assert scores[student] == wanted["points"], student
    found = (course / "grades.json").read_text(encoding="utf-8")
    for wanted in EXPECTED[assignment].values():
        assert all(name in found for name in (wanted or {}).get("misconceptions", ()))


def test_stock_nbgrader_goes_the_whole_way(course):
    assignment = "02_scaled_dot_product"
    (text,) = (course / "solutions" / assignment).glob("*.md")
    write_notebook(text)  # nbgrader reads notebooks only
    nbgrader(course, "generate_assignment", assignment, "--create", "--force")
    hand_in(course, assignment)
    done = nbgrader(course, "autograde", assignment, check=False)
    said = done.stderr[-3000:]  # ends with exit status 1: the copied cell is too much for it
    scores = stock_scores(course, assignment)
    graded = set()
    for student, wanted in EXPECTED[assignment].items():
        if wanted is None or student in BEYOND_STOCK:
            continue
        assert scores.get(student) == wanted["points"], f"{student}\n{said}"
        graded.add(student)
    assert len(graded) >= 13
    nbgrader(course, "generate_feedback", assignment, "--student=ada")
    assert list((course / "feedback" / "ada" / assignment).glob("*.html"))
    nbgrader(course, "export", "--to=grades.csv")
    with (course / "grades.csv").open(encoding="utf-8") as file:
        rows = {row["student_id"]: row for row in csv.DictReader(file)}
    assert float(rows["ada"]["raw_score"]) == 18
