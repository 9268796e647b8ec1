"""What headmaster's page says is true: its commands, settings and file names exist."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from click.testing import CliRunner

import headmaster
from headmaster.cli import main
from headmaster.job import Limits

PACKAGE = Path(headmaster.__file__).parent
TEXT = (PACKAGE / "README.md").read_text()


def test_the_commands_of_the_page_exist() -> None:
    named = set(re.findall(r"^    headmaster (\w+)", TEXT, re.MULTILINE))
    known = CliRunner().invoke(main, ["--help"]).output
    assert len(named) >= 6
    assert all(f"  {command} " in known for command in named)


def test_the_files_of_the_page_exist() -> None:
    for name in re.findall(r"`headmaster/(\w+\.py)`", TEXT):
        assert (PACKAGE / name).is_file()


def test_the_settings_of_the_page_are_read() -> None:
    sources = "\n".join(path.read_text() for path in PACKAGE.glob("*.py"))
    for name in re.findall(r"c\.Headmaster\.(\w+)", TEXT):
        assert f'"Headmaster", "{name}"' in sources
    limits = re.search(r'limits = \{"(\w+)"', TEXT)[1]
    assert limits in {field.name for field in fields(Limits)}
