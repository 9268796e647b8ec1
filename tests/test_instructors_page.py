"""The page for instructors is true: a term of three students, by its commands as they stand there.

What a person does between the commands is marked in the page's source, `% by hand: …`, and done
here by the function of that name in BY_HAND. What cannot run here is marked `% not run: why`.
"""

import copy
import csv
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("term")  # one worker: the course is made once

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "book/instructors.md").read_text(encoding="utf-8")
ASSIGNMENT, TOPIC = "02_scaled_dot_product", "scaled_dot_product"
BLOCK = re.compile(
    r"^(?:% (?P<mark>not run|by hand): (?P<what>[^\n]+)\n)?"
    r"```(?P<kind>bash|python|text)\n(?P<code>.*?)^```$",
    re.M | re.S,
)
EXCHANGE = "/srv/nbgrader/exchange"
NOT_RUN = 3  # the installation, make student-edition, and what opens a browser


@dataclass
class Term:
    """The course of this test, and what happened in it."""

    folder: Path  # everything lies below it: the course, the exchange, homes
    said: list[tuple[str, str]] = field(default_factory=list)  # each block with what it printed
    penalties: list[dict[str, float]] = field(default_factory=list)  # after each block

    @property
    def course(self) -> Path:
        return self.folder / "course"

    def run(self, code: str) -> None:
        """Run a block as a shell does, and keep what it said."""
        done = shell(self, code, self.course)
        assert done.returncode == 0, f"{code}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        self.said.append((code, done.stdout + done.stderr))
        self.penalties.append(penalties(self))

    def about(self, command: str) -> list[str]:
        """What the blocks with this command printed, in order."""
        return [said for code, said in self.said if command in code]


def shell(term, code, folder):
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": str(term.course),
        "HOME": str(term.folder / "home"),
        "TZ": "UTC",
    }
    command = ["bash", "-euo", "pipefail", "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def query(term, sql):
    """Rows of the gradebook; none while there is no gradebook."""
    path = term.course / "build/class/gradebook.db"
    if not path.is_file():
        return []
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


def penalties(term):
    """The points that lateness costs, by student."""
    sql = (
        "select student_id, late_submission_penalty from submitted_notebook n "
        "join submitted_assignment a on n.assignment_id = a.id"
    )
    return {student: penalty or 0 for student, penalty in query(term, sql)}


# --- what people do ------------------------------------------------------------------------------


def write_class_list(term, text):
    (term.course / "class.csv").write_text(text, encoding="utf-8")


def add_to_configuration(term, text):
    path = term.course / "nbgrader_config.py"
    text = text.replace(EXCHANGE, str(term.folder / "exchange"))
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{text}", encoding="utf-8")


def write_answer(term, text):
    (term.course / "answer.py").write_text(text, encoding="utf-8")


def hand_in(term, _):
    """Ada in time and Béla a day late, through Canvas; Chen through the exchange."""
    downloads = term.folder / "home/Downloads"
    downloads.mkdir(parents=True)
    with zipfile.ZipFile(downloads / "submissions.zip", "w") as archive:
        for name, time, wrong in (
            (f"lovelaceada_101_9001_{TOPIC}.ipynb", (2026, 10, 12, 18, 0, 0), {}),
            (
                f"novakbela_LATE_102_9002_{TOPIC}-1.ipynb",
                (2026, 10, 14, 9, 0, 0),
                {"attention": "B01-no-scale"},
            ),
        ):
            archive.writestr(zipfile.ZipInfo(name, time), solved(term, wrong))
    desk = term.folder / "chen"
    desk.mkdir()
    (desk / "nbgrader_config.py").write_text(
        "c = get_config()\nc.CourseDirectory.course_id = 'manyheads'\n"
        f"c.Exchange.root = {str(term.folder / 'exchange')!r}\n",
        encoding="utf-8",
    )
    shell(term, f"nbgrader fetch_assignment {ASSIGNMENT}", desk)
    work = desk / ASSIGNMENT / f"{TOPIC}.ipynb"
    work.write_text(solved(term, {"causal_mask": "B37-top-left"}), encoding="utf-8")
    shell(term, f"nbgrader submit {ASSIGNMENT} --student=chen", desk)


def solved(term, wrong):
    """The released notebook with answers in it, some of them wrong."""
    from tests.hidden.scaled_dot_product import exercise

    path = term.course / "exercises" / ASSIGNMENT / f"{TOPIC}.ipynb"
    notebook = copy.deepcopy(json.loads(path.read_text(encoding="utf-8")))
    for cell in notebook["cells"]:
        name = cell["metadata"].get("nbgrader", {}).get("grade_id", "")
        if name in wrong:
            cell["source"] = exercise.functions[name].misconceptions[wrong[name]].source
        elif name in exercise.functions:
            cell["source"] = exercise.text.answers[name]
        elif name.endswith("-question"):
            cell["source"] = "Because the variance grows with the width."
    return json.dumps(notebook)


def change_test(term, _):
    """One more alternative, from answer.py."""
    path = term.course / "tests/hidden/scaled_dot_product.py"
    answer = (term.course / "answer.py").read_text(encoding="utf-8").split("\n\n\n")[1]
    spec = re.search(r'(\w+) = exercise\.function\("causal_mask"', path.read_text("utf-8"))[1]
    added = f'\n\n@{spec}.alternative("by comparing places")\n{answer}'
    path.write_text(path.read_text("utf-8") + added, encoding="utf-8")


def grade_question(term, _):
    """What formgrader does: points and a comment for every text."""
    from nbgrader.api import Gradebook

    with Gradebook(f"sqlite:///{term.course}/build/class/gradebook.db") as gradebook:
        for student in ("ada", "bela", "chen"):
            names = (f"{TOPIC}-question", TOPIC, ASSIGNMENT, student)
            grade = gradebook.find_grade(*names)
            grade.manual_score, grade.needs_manual_grade = grade.max_score, False
            gradebook.find_comment(*names).manual_comment = "Well said."
        gradebook.db.commit()


BY_HAND = {
    "writes the class list": write_class_list,
    "adds this to nbgrader_config.py": add_to_configuration,
    "writes answer.py": write_answer,
    "the class hands in": hand_in,
    "changes a test": change_test,
    "grades the question": grade_question,
}


# --- the term ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def term(tmp_path_factory):
    """The page's commands, run from the first to the last in a copy of the course."""
    result = Term(tmp_path_factory.mktemp("term"))
    (result.folder / "exchange").mkdir()
    (result.folder / "exchange").chmod(0o777)
    leave = shutil.ignore_patterns("__pycache__", "assets", "training", "*.ipynb")
    for name in (f"solutions/{ASSIGNMENT}", "tests/hidden", "manyheads"):
        shutil.copytree(ROOT / name, result.course / name, ignore=leave)
    for name in ("manyheads/assets", "manyheads/training"):
        (result.course / name).symlink_to(ROOT / name)
    for name in ("nbgrader_config.py", "pyproject.toml", "tests/test_specs.py"):
        shutil.copy(ROOT / name, result.course / name)
    for block in BLOCK.finditer(PAGE):
        if block["mark"] == "by hand":
            BY_HAND[block["what"]](result, block["code"])
        if block["kind"] == "bash" and block["mark"] != "not run":
            result.run(block["code"])
    return result


def test_nearly_every_command_of_the_page_is_run():
    blocks = list(BLOCK.finditer(PAGE))
    assert sum(block["kind"] == "bash" for block in blocks) >= 15
    assert sum(block["mark"] == "not run" for block in blocks) == NOT_RUN
    assert {block["what"] for block in blocks if block["mark"] == "by hand"} == set(BY_HAND)
    assert PAGE.count("\n```") == 2 * len(blocks)


def test_the_hand_ins_of_three_come_in_by_two_ways(term):
    (said,) = term.about("headmaster collect")
    assert "Nothing handed in (1): chen" in said
    assert "LATE" in said
    assert sorted(p.name for p in (term.course / "build/class/submitted").iterdir()) == [
        *("ada", "bela", "chen"),
    ]


def test_the_class_list_is_the_one_that_the_page_shows(term):
    shown = next(b["code"] for b in BLOCK.finditer(PAGE) if "Misconceptions found" in b["code"])
    said = [line.rstrip() for line in term.about("headmaster grade")[0].splitlines()]
    missing = [line for line in shown.splitlines() if line not in said]
    assert missing == [], "\n".join(said)


def test_a_case_is_explained_and_repeated(term):
    (said,) = term.about("headmaster show")
    assert "misconception: B01-no-scale" in said
    assert "Graded again with the same seed: every verdict is the same." in said
    assert "answer.py: 2 of 2" in term.about("headmaster check")[0]


def test_a_changed_test_grades_everybody_again(term):
    (said,) = term.about("pytest")
    assert "failed" not in said
    assert "texts to grade" in said and "unchanged" not in said


def test_lateness_costs_what_the_plug_in_says_until_there_is_more_time(term):
    graded = [
        late
        for (code, _), late in zip(term.said, term.penalties, strict=True)
        if "headmaster grade" in code
    ]
    # no plug-in, twice; 35 hours late; due a day later; an extension
    assert [late["bela"] for late in graded] == [0, 0, 4, 2, 0]
    assert not any(late["ada"] for late in graded)


def test_feedback_goes_back_on_both_ways_with_what_people_wrote(term):
    with zipfile.ZipFile(term.course / "feedback.zip") as archive:
        names = archive.namelist()
        assert [name.split("_")[0] for name in names] == ["lovelaceada", "novakbela"]
        assert all("Well said." in archive.read(name).decode() for name in names)
    assert "chen" in term.about("canvas-feedback")[0]
    (page,) = (term.folder / "exchange/manyheads/feedback").iterdir()
    assert "Well said." in page.read_text(encoding="utf-8")


def test_grades_are_exported_for_the_platform_and_for_oneself(term):
    with (term.course / "grades.csv").open(encoding="utf-8") as file:
        rows = {row["Student"]: row for row in csv.DictReader(file)}
    assert float(rows["Lovelace, Ada"][ASSIGNMENT]) == 20
    assert float(rows["Novák, Béla"][ASSIGNMENT]) == 12  # what attention is worth is lost
    with (term.course / "tests.csv").open(encoding="utf-8") as file:
        failed = {(r["student"], r["test"]) for r in csv.DictReader(file) if r["verdict"] == "fail"}
    assert ("bela", "attention-values") in failed
    with (term.course / "all.csv").open(encoding="utf-8") as file:
        assert {row["student_id"] for row in csv.DictReader(file)} == {"ada", "bela", "chen"}


def test_the_report_is_written(term):
    report = term.course / f"build/class/report/{ASSIGNMENT}/report.html"
    assert "B01-no-scale" in report.read_text(encoding="utf-8")
