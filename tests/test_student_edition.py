"""The students' edition: nothing of the answers in it, and everything that its book needs."""

import hashlib
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.hidden.spec import SOLUTIONS

ROOT = SOLUTIONS.parent
TEXT = {".md", ".py", ".ipynb", ".json", ".js", ".html", ".css", ".yml", ".toml", ".txt", ".bib"}
# Warnings of a book whose cells were not run: numbers and figures come from their results.
NOT_RUN = re.compile(r"No key '.*' found in glue data|undefined label: 'fig-")
SPEC_WORDS = re.compile(r"\bExample\(|\.(witness|hidden|misconception|slip|alternative)\(")


@pytest.fixture(scope="module")
def tool():
    """The script that writes the edition."""
    sys.path.insert(0, str(ROOT / "book/_ext"))
    try:
        import student_edition
    finally:
        sys.path.pop(0)
    return student_edition


@pytest.fixture(scope="module")
def edition(tool, tmp_path_factory):
    """The edition of this course, as a folder."""
    folder = tmp_path_factory.mktemp("edition") / "course"
    tool.write(ROOT, folder)
    return folder


@pytest.fixture(scope="module")
def lines(edition):
    """The lines of all texts in the edition, by file; a notebook's are those of its cells."""
    found = {}
    for path in edition.rglob("*"):
        if path.suffix in TEXT or path.name.startswith("LICENSE"):
            text = path.read_text(encoding="utf-8")
            if path.suffix == ".ipynb":
                text = "\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"])
            found[path.relative_to(edition).as_posix()] = {
                line.strip() for line in text.splitlines()
            }
    return found


def test_there_are_the_book_the_exercises_and_the_library_and_nothing_else(edition):
    names = {path.name for path in edition.iterdir()}
    assert names == {
        *("book", "exercises", "manyheads", "_config.yml", "_toc.yml", "LICENSE", "LICENSE-text"),
        *("README.md", "pyproject.toml", "requirements.txt", "constraints.txt"),
    }
    kinds = {path.suffix for path in (edition / "exercises").rglob("*") if path.is_file()}
    assert kinds == {".ipynb"}
    for path in edition.rglob("*"):
        assert not path.name.startswith(".") and path.name != "__pycache__", path
        assert not path.is_symlink()


def test_nothing_in_it_is_marked_as_an_answer_or_imports_a_hidden_test(edition):
    secret = re.compile(rb"(BEGIN|END) (SOLUTION|HIDDEN)|(from|import) +tests\b|from headmaster\b")
    binary = (".whl", ".npz", ".wasm", ".png", ".woff2", ".zip")
    for path in edition.rglob("*"):
        if path.is_file() and path.suffix not in binary:
            assert not secret.search(path.read_bytes()), path


def test_no_answer_of_an_exercise_is_in_it_besides_the_library(lines):
    """The library is what the course teaches, and holds a reference for each function."""
    for text in sorted(SOLUTIONS.glob("*/*.md")):
        source = text.read_text(encoding="utf-8")
        region = r"### BEGIN SOLUTION\n(.*?)### END SOLUTION"
        given = {line.strip() for line in re.sub(region, "", source, flags=re.S).splitlines()}
        for answer in re.findall(region, source, re.S):
            own = {line.strip() for line in answer.splitlines()} - given
            telling = {line for line in own if len(line) >= 22}
            for name, held in lines.items():
                if not re.match(r"manyheads/\w+\.py", name):
                    # some lines are calls and checks that other exercises and examples make too
                    assert len(telling & held) <= len(telling) // 2, (text.name, name, telling)


def test_no_example_and_no_misconception_of_a_spec_is_in_it(lines):
    held = set().union(*lines.values())
    for spec in (ROOT / "tests/hidden").glob("*.py"):
        for line in spec.read_text(encoding="utf-8").splitlines():
            assert not (SPEC_WORDS.search(line) and line.strip() in held), (spec.name, line)


def test_a_page_that_the_contents_do_not_name_is_not_given_away(tool, tmp_path):
    for name in (*tool.FILES, tool.README, "pyproject.toml", "requirements.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    given = {"book/students.md", "exercises/a/a.ipynb", "manyheads/b.py"}
    for name in (*given, "book/exam.md", "book/instructors.md", "manyheads/__pycache__/c.pyc"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = {path.relative_to(tmp_path).as_posix() for path in tool.files(tmp_path)}
    assert found - set(tool.FILES) == given


def test_the_zip_holds_the_folder_and_its_bytes_depend_on_nothing_else(tool, edition, tmp_path):
    small = tmp_path / "small"
    shutil.copytree(edition, small, ignore=shutil.ignore_patterns("pyodide", "assets"))
    digests = []
    for name in ("one.zip", "two.zip"):
        tool.pack(small, tmp_path / name)
        digests.append(hashlib.sha256((tmp_path / name).read_bytes()).hexdigest())
        for path in small.rglob("*"):
            path.touch()
    assert digests[0] == digests[1]
    with zipfile.ZipFile(tmp_path / "one.zip") as archive:
        held = {name.removeprefix(f"{tool.NAME}/") for name in archive.namelist()}
    assert held == {p.relative_to(small).as_posix() for p in small.rglob("*") if p.is_file()}


def test_what_it_installs_is_pinned_and_there(edition):
    project = tomllib.loads((edition / "pyproject.toml").read_text(encoding="utf-8"))
    assert "scripts" not in project["project"] and "headmaster" not in str(project)
    assert set(project["tool"]) == {"setuptools"}
    pins = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    needed = (edition / "requirements.txt").read_text(encoding="utf-8").splitlines()
    wanted = [line for line in needed if "==" in line]
    assert {line.split("==")[0] for line in wanted} >= {"numpy", "jupyter-book", "jupyterlab"}
    assert set(wanted) <= set(pins)
    assert not {"nbgrader", "jax", "pytest"} & {line.split("==")[0] for line in wanted}


def test_its_book_is_complete(tool, tmp_path):
    """Every page, link and label resolves. No cell is run here: that would take minutes."""
    course = tmp_path / "course"
    tool.write(ROOT, course)
    config = (course / "_config.yml").read_text(encoding="utf-8")
    config, count = re.subn("execute_notebooks: cache", 'execute_notebooks: "off"', config)
    assert count == 1
    (course / "_config.yml").write_text(config, encoding="utf-8")
    command = [str(Path(sys.executable).parent / "jupyter-book"), "build", "."]
    command += ["--path-output", str(tmp_path), "--builder", "custom", "--custom-builder", "dummy"]
    done = subprocess.run(command, cwd=course, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-3000:]
    warnings = [line for line in said.splitlines() if "WARNING" in line or "ERROR" in line]
    assert warnings  # of the numbers that cells would make: the search finds what there is
    assert [line for line in warnings if not NOT_RUN.search(line)] == []
    assert "book/11_transformer" in said and "book/instructors" not in said
