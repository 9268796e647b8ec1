"""The package as a whole: what imports what, and the demonstration."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import manyheads

from .cases import CHAPTERS

PACKAGE = Path(manyheads.__file__).parent


def imported_by(path):
    """The modules that a file imports, relative ones as manyheads.…"""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield f"manyheads.{node.module}" if node.level else node.module


@pytest.mark.parametrize("number", range(len(CHAPTERS)), ids=CHAPTERS)
def test_a_chapter_imports_earlier_chapters_only(number):
    earlier = {f"manyheads.{chapter}" for chapter in CHAPTERS[:number]}
    allowed = earlier | {"__future__", "math", "random", "collections.abc", "numpy"}
    assert set(imported_by(PACKAGE / f"{CHAPTERS[number]}.py")) <= allowed


def test_the_library_imports_neither_the_grader_nor_the_tests():
    for path in PACKAGE.rglob("*.py"):
        tops = {name.split(".")[0] for name in imported_by(path)}
        assert not tops & {"headmaster", "tests"}, path


def test_importing_the_chapters_loads_numpy_only():
    code = (
        "import sys; "
        + "; ".join(f"import manyheads.{chapter}" for chapter in CHAPTERS)
        + "; print(sorted({'matplotlib', 'jax', 'torch', 'rich', 'scipy'} & sys.modules.keys()))"
    )
    assert run("-c", code) == "[]\n"


def test_the_demonstration_shows_previews_and_passes_its_checks():
    text = run("-W", "error", "-m", "manyheads")
    assert "4 tokens, d_model 8, 4 heads" in text
    assert text.count("  ...]") == 8  # input and output: 5 of 8 columns of 4 rows each
    assert text.count("\n  ok: ") == 5
    assert max(map(len, text.splitlines())) <= 80
    assert run("-m", "manyheads") == text  # the same every time


def run(*arguments):
    return subprocess.run(
        [sys.executable, *arguments], cwd=PACKAGE.parent, check=True, text=True, capture_output=True
    ).stdout
