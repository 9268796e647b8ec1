"""An exercise of one's own: started from the template it meets every demand; cut down, it fails."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("new exercise")  # one worker: the course is made once

ROOT = Path(__file__).resolve().parents[1]
NAME, TOPIC = "12_pooling", "pooling"
TEXT, SPEC, LIBRARY = (
    f"solutions/{NAME}/{TOPIC}.md",
    f"tests/hidden/{TOPIC}.py",
    f"manyheads/{TOPIC}.py",
)
TESTS = ("tests/test_specs.py", "tests/test_course.py")


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    """A copy of the course, in which a twelfth exercise was started and released."""
    copy = tmp_path_factory.mktemp("course")
    leave = shutil.ignore_patterns("__pycache__", "assets", "training", "*.ipynb")
    for folder in ("solutions", "tests/hidden", "manyheads"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=leave)
    for folder in ("manyheads/assets", "manyheads/training"):
        (copy / folder).symlink_to(ROOT / folder)
    (copy / "tests/class").mkdir()
    for file in ("nbgrader_config.py", "pyproject.toml", "tests/class/expected.json", *TESTS):
        shutil.copy(ROOT / file, copy / file)
    said = python(copy, "headmaster", "new", NAME).stdout
    assert set(said.splitlines()) == {TEXT, SPEC, LIBRARY, "Each TODO in them is yours to do."}
    python(copy, "tests.hidden", NAME)
    python(copy, "headmaster", "release", NAME)
    return copy


def python(course, *words, check=True):
    """Run a module of Python's in the course, which wins over the installed packages."""
    environment = {**os.environ, "PYTHONPATH": str(course)}
    command = [sys.executable, "-m", *words]
    return subprocess.run(
        command, cwd=course, env=environment, check=check, capture_output=True, text=True
    )


def demands(course, *tests):
    """Run what the project demands of every exercise, for this one alone."""
    options = ("-n", "0", "-p", "no:cacheprovider", "-k", TOPIC)
    return python(course, "pytest", *options, *tests, check=False)


def test_a_new_exercise_meets_every_demand_beside_the_eleven_others(course):
    done = demands(course, *TESTS)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 20
    python(course, "ruff", "check", SPEC, LIBRARY)
    python(course, "ruff", "format", "--check", SPEC, LIBRARY)


def test_the_page_shows_the_exercise_as_it_is(course):
    page = (ROOT / "book/writing-exercises.md").read_text(encoding="utf-8")
    files = [(course / name).read_text(encoding="utf-8") for name in (SPEC, TEXT)]
    written = {line.strip() for text in files for line in text.splitlines()}
    blocks = re.findall(r"^```python\n(.*?)^```", page, flags=re.M | re.S)
    assert len(blocks) == 4
    assert {line.strip() for block in blocks for line in block.splitlines()} <= written


def test_answers_to_it_are_graded_and_their_mistakes_named(course):
    (course / "right.py").write_text(
        f"def {TOPIC}(X):\n    assert X.shape[-2]\n    return X.mean(-2)\n", encoding="utf-8"
    )
    (course / "wrong.py").write_text(
        f"def {TOPIC}(X):\n    return X.sum(axis=-2)\n", encoding="utf-8"
    )
    files = ("right.py", "wrong.py")
    right, wrong = json.loads(python(course, "headmaster", "check", NAME, *files, "--json").stdout)
    assert [test["verdict"] for test in right["tests"]] == ["pass", "fail"]  # no ValueError
    assert (right["score"], right["max"], wrong["score"]) == (12, 18, 0)
    assert wrong["tests"][0]["misconception"] == "X04-sum"


CUTS = {
    "test_there_are_four_misconceptions": (
        SPEC,
        r"spec\.slip\(.*?fmt: skip\n",
    ),
    "test_every_sentence_has_a_witness": (SPEC, r"spec\.witness\(\"errors\".*?\n"),
    "test_every_idea_has_points_witnesses_and_hidden": (SPEC, r"@spec\.hidden\(\"errors\"\)\n"),
    "test_an_exercise_is_worth_20_points": (TEXT, r"points: 12"),
}


def test_a_new_exercise_fails_each_demand_that_it_does_not_meet(course, tmp_path):
    copy = alone(course, tmp_path / "course")
    for file, what in CUTS.values():
        cut(copy / file, what, "points: 11" if "points" in what else "")
    done = demands(copy, *TESTS[:1])
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    for demand in CUTS:
        assert any(demand in line for line in failed), done.stdout


def test_an_exercise_without_a_contract_is_told_what_it_needs(course, tmp_path):
    copy = alone(course, tmp_path / "course")
    cut(copy / TEXT, r"- \*\*C1\*\*.*?\n\n", "")
    said = python(copy, "tests.hidden", NAME, check=False).stderr
    assert f"`{TOPIC}` needs a heading with its name in backticks, sentences" in said


def alone(course, copy):
    """A copy of the course with the new exercise only: the others would take time."""
    shutil.copytree(course, copy, symlinks=True)
    for folder in (copy / "solutions").iterdir():
        if folder.name != NAME:
            shutil.rmtree(folder)
    return copy


def cut(path, what, instead):
    """Replace the first place in a file that has this form."""
    text, count = re.subn(what, instead, path.read_text(encoding="utf-8"), count=1, flags=re.S)
    assert count == 1, what
    path.write_text(text, encoding="utf-8")
