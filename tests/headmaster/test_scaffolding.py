"""`headmaster new`: the course's template, filled in; nothing overwritten, nothing half-written."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headmaster.cli import main
from headmaster.course import Course, CourseError
from headmaster.scaffolding import new_exercise

CONFIG = "c = get_config()\nc.CourseDirectory.source_directory = 'solutions'\n"
TEMPLATE = "c.Headmaster.template = 'template'\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A course with one exercise and a template of two files."""
    write(tmp_path / "nbgrader_config.py", CONFIG + TEMPLATE)
    write(tmp_path / "solutions/01_counting/counting.md", "---\njupytext: {}\n---\n")
    template = tmp_path / "template"
    write(template / "solutions/{{exercise}}/{{topic}}.md.jinja", "# {{title}} {{number}}\n")
    write(template / "notes/{{topic}}.txt", "after {{earlier | join(', ')}}\n")
    return tmp_path


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def refusal(folder: Path, name: str) -> str:
    """What is said of a name that is refused; nothing may be written."""
    before = files(folder)
    with pytest.raises(CourseError) as refused:
        new_exercise(Course.open(folder), name)
    assert files(folder) == before
    return str(refused.value)


def test_names_are_filled_into_texts_and_paths(folder: Path) -> None:
    said = CliRunner().invoke(main, ["new", "02_more_counting", "--course", str(folder)])
    assert said.exit_code == 0, said.output
    text = folder / "solutions/02_more_counting/more_counting.md"
    assert text.read_text(encoding="utf-8") == "# more counting 02\n"
    notes = folder / "notes/more_counting.txt"
    assert notes.read_text(encoding="utf-8") == "after counting\n"
    assert "more_counting.md" in said.output


OTHER_FORMS = ("pooling", "2_pooling", "02-pool", "02_Pool", "02_class", "02_a__b", "../02_up", "")


@pytest.mark.parametrize("name", OTHER_FORMS)
def test_a_name_of_another_form_is_refused(folder: Path, name: str) -> None:
    assert "two digits" in refusal(folder, name)


def test_a_number_that_is_taken_is_refused(folder: Path) -> None:
    assert "01_counting" in refusal(folder, "01_pooling")


def test_nothing_is_overwritten(folder: Path) -> None:
    write(folder / "notes/pooling.txt", "mine")
    assert "notes/pooling.txt" in refusal(folder, "02_pooling")
    assert (folder / "notes/pooling.txt").read_text(encoding="utf-8") == "mine"


def test_a_course_without_a_template_says_so(folder: Path) -> None:
    write(folder / "nbgrader_config.py", CONFIG)
    assert "c.Headmaster.template" in refusal(folder, "02_pooling")


def test_a_template_that_is_not_there_is_named(folder: Path) -> None:
    write(folder / "nbgrader_config.py", CONFIG + "c.Headmaster.template = 'elsewhere'\n")
    assert "elsewhere holds no files" in refusal(folder, "02_pooling")


@pytest.mark.parametrize("text", ["{{unknown}}", "{% for x %}"])
def test_a_broken_template_is_named(folder: Path, text: str) -> None:
    write(folder / "template/broken.txt", text)
    assert "broken.txt can't be filled in" in refusal(folder, "02_pooling")


def test_what_can_not_be_written_leaves_nothing_half_written(folder: Path) -> None:
    write(folder / "notes", "a file where a folder should be")
    assert "nothing was written" in refusal(folder, "02_pooling")


def test_the_command_says_in_one_sentence_what_is_wrong(folder: Path) -> None:
    said = CliRunner().invoke(main, ["new", "pooling", "--course", str(folder)])
    assert said.exit_code == 2
    assert said.output.startswith("headmaster: 'pooling' is no name for an exercise")
