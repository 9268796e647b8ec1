"""What is handed in as files: found where it is meant well, refused where it could do harm."""

from __future__ import annotations

import io
import json
import os
import stat
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from conftest import HandIn, answered, released

from headmaster import intake
from headmaster.course import Course
from headmaster.intake import read_zip, take_in
from headmaster.matching import assemble
from headmaster.reading import read_notebook
from headmaster.records import REASONS, Refused
from headmaster.release import AssignmentSpec, load_assignment


def refusal(course: Course, spec: AssignmentSpec, student: str = "ana") -> Refused:
    """Return why a hand-in was refused."""
    taken = take_in(course, spec, student).notebooks[spec.notebooks[0].name]
    assert isinstance(taken, Refused), taken
    assert taken.code in REASONS
    return taken


def is_read(course: Course, spec: AssignmentSpec) -> bool:
    """Say whether the notebook was found and read."""
    taken = take_in(course, spec, "ana").notebooks["numbers"]
    return isinstance(taken, list) and any("return 2 * x" in cell.source for cell in taken)


RENAMED = [
    "numbers (1).ipynb",
    "Numbers.ipynb",
    "numbers-Copy1.ipynb",
    "ana_ps1_final_FINAL.ipynb",
    "numbers.ipynb.txt",
    "numbers.ipynb.json",
    "Übung 1.ipynb",
]


@pytest.mark.parametrize("name", RENAMED)
def test_a_renamed_notebook_is_found(
    name: str, course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    hand_in("ana", {name: answered(released(ps1))})
    assert is_read(course, ps1)
    assert "was taken for numbers.ipynb" in take_in(course, ps1, "ana").notes[0]


def test_the_file_of_the_right_name_wins(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    right, old = answered(released(ps1)), released(ps1)
    hand_in("ana", {"numbers.ipynb": right, "numbers-old.ipynb": old})
    assert is_read(course, ps1)


def test_of_several_renamed_files_the_one_with_the_exercise_is_taken(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    empty = {"cells": [], "metadata": {}, "nbformat": 4}
    hand_in("ana", {"a.ipynb": empty, "b.ipynb": answered(released(ps1)), "c.ipynb": b"{"})
    assert is_read(course, ps1)


def test_two_renamed_notebooks_of_one_assignment_are_told_apart(
    course: Course, hand_in: HandIn
) -> None:
    ps2 = load_assignment(course, "ps2")
    letters, words = (answered(released(ps2, name)) for name in ("letters", "words"))
    hand_in("ana", {"first.ipynb": words, "second.ipynb": letters}, "ps2")
    taken = take_in(course, ps2, "ana").notebooks
    assert any("def shout" in cell.source for cell in taken["letters"])
    assert any("def count" in cell.source for cell in taken["words"])


def test_files_beside_the_notebook_are_kept_and_litter_is_not(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    place = hand_in("ana", {"numbers.ipynb": answered(released(ps1)), "data.csv": "1,2"})
    for name in (".ipynb_checkpoints/x-checkpoint.ipynb", "__pycache__/a.pyc", "__MACOSX/._n"):
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text("litter")
    (place / ".DS_Store").write_text("litter")
    assert take_in(course, ps1, "ana").files == (("data.csv", b"1,2"),)


# --- refused -------------------------------------------------------------------------------------


def test_an_empty_folder_says_that_nothing_was_handed_in(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    hand_in("ana", {})
    assert refusal(course, ps1).code == "no-notebook"


def test_a_folder_without_notebook_names_what_is_there(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    hand_in("ana", {"essay.pdf": b"%PDF"})
    assert "essay.pdf" in refusal(course, ps1).message


def test_a_link_is_refused(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, tmp_path: Path
) -> None:
    secret = tmp_path / "secret.ipynb"
    secret.write_text(json.dumps(answered(released(ps1))))
    place = hand_in("ana", {})
    (place / "numbers.ipynb").symlink_to(secret)
    assert refusal(course, ps1).code == "link"


def test_a_linked_folder_is_refused(course: Course, ps1: AssignmentSpec, hand_in: HandIn) -> None:
    hand_in("bea", {"numbers.ipynb": answered(released(ps1))})
    place = hand_in("ana", {})
    place.rmdir()
    place.symlink_to(course.folder("submitted", "bea", "ps1"))
    assert refusal(course, ps1).code == "link"


def test_a_pipe_is_refused(course: Course, ps1: AssignmentSpec, hand_in: HandIn) -> None:
    os.mkfifo(hand_in("ana", {}) / "numbers.ipynb")
    assert refusal(course, ps1).code == "special-file"


def test_too_many_files_are_refused(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MAX_FILES", 20)
    hand_in("ana", {f"{n}.txt": "x" for n in range(30)})
    assert refusal(course, ps1).code == "too-large"


def test_too_many_bytes_are_refused(
    course: Course, ps1: AssignmentSpec, hand_in: HandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "MAX_TOTAL", 1000)
    hand_in("ana", {"numbers.ipynb": answered(released(ps1))})
    assert refusal(course, ps1).code == "too-large"


EXPLAINED = {
    "": "empty",
    "{": "damaged",
    "[1, 2]": "no cells",
    '{"cells": 3}': "no cells",
    "<!DOCTYPE html><html>": "web page",
    '{"cells": [\n<<<<<<< HEAD\n "a"\n=======\n "b"\n>>>>>>> main\n]}': "Line 2",
    "[" * 100_000: "deeply",
}


@pytest.mark.parametrize("content", EXPLAINED)
def test_a_damaged_notebook_is_explained(content: str) -> None:
    with pytest.raises(Refused, match=EXPLAINED[content]):
        read_notebook(content.encode())


def test_a_merge_conflict_has_its_own_reason() -> None:
    with pytest.raises(Refused) as caught:
        read_notebook(b'{"cells": [\n<<<<<<< HEAD\n1\n=======\n2\n>>>>>>> x\n]}')
    assert caught.value.code == "merge-conflict"
    assert "hand it in again" in caught.value.message


def test_a_notebook_of_a_hundred_thousand_cells_is_refused() -> None:
    with pytest.raises(Refused, match="more than"):
        read_notebook(json.dumps({"cells": [{"cell_type": "code"}] * 100_000}).encode())


N = 99_000
DEEP = [
    "(" * N,
    "x=" + "-" * N + "1",
    "a" + ".b" * (N // 2),
    "[" * N,
    "lambda:" * (N // 8) + "1",
    "1 if 1 else " * (N // 12) + "1",
    "f'" + "{" * N + "'",
    "1" + "+1" * (N // 2),
    "\\\n" * N,
    "not " * (N // 4) + "1",
    "9" * N,
    "%" * N,
    "def f(" * (N // 6),
    "@a\n" * (N // 3),
]


@pytest.mark.parametrize("source", DEEP, ids=range(len(DEEP)))
def test_no_source_brings_the_grader_down(source: str, ps1: AssignmentSpec) -> None:
    cells = [{"cell_type": "code", "source": source}]
    assembly = assemble(ps1.notebooks[0], read_notebook(json.dumps({"cells": cells}).encode()))
    assert assembly.unanswered == ("double", "mean", "why")


def test_a_novel_in_the_cells_is_refused() -> None:
    cells = [{"cell_type": "markdown", "source": "x" * 100_000}] * 30
    with pytest.raises(Refused, match="more than 2 MB of text"):
        read_notebook(json.dumps({"cells": cells}).encode())


# --- archives ------------------------------------------------------------------------------------


def zipped(files: dict[str, bytes], **more: int) -> bytes:
    """Return a zip archive of these files; `more` gives a member's mode bits by its name."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = more.get(name.split(".")[0], 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return packed.getvalue()


def test_a_notebook_in_a_zip_is_found(course: Course, ps1: AssignmentSpec, hand_in: HandIn) -> None:
    notebook = json.dumps(answered(released(ps1))).encode()
    inside = {"hw/numbers.ipynb": notebook, "hw/notes.txt": b"x", "__MACOSX/hw/._n": b"y"}
    hand_in("ana", {"homework.zip": zipped(inside)})
    assert is_read(course, ps1)
    assert take_in(course, ps1, "ana").files == (("notes.txt", b"x"),)


BAD_ZIPS: dict[str, Callable[[], bytes]] = {
    "unsafe-path ..": lambda: zipped({"../evil.ipynb": b"{}"}),
    "unsafe-path deep": lambda: zipped({"a/../../evil.ipynb": b"{}"}),
    "unsafe-path root": lambda: zipped({"/etc/evil.ipynb": b"{}"}),
    "unsafe-path windows": lambda: zipped({"..\\evil.ipynb": b"{}"}),
    "unsafe-path drive": lambda: zipped({"C:/evil.ipynb": b"{}"}),
    "link": lambda: zipped({"numbers.ipynb": b"/etc/passwd"}, numbers=stat.S_IFLNK | 0o777),
    "special-file": lambda: zipped({"numbers.ipynb": b""}, numbers=stat.S_IFIFO | 0o644),
    "nested-archive": lambda: zipped({"inner.zip": zipped({"numbers.ipynb": b"{}"})}),
    "nested-archive tar": lambda: zipped({"inner.tar.gz": b"x"}),
    "too-large bomb": lambda: zipped({"numbers.ipynb": bytes(60_000_000)}),
    "too-large many": lambda: zipped({f"{n}": b"" for n in range(3000)}),
    "bad-archive": lambda: b"PK\x03\x04 not really",
    "bad-archive cut": lambda: zipped({"numbers.ipynb": b"{}" * 1000})[:-30],
}


@pytest.mark.parametrize("name", BAD_ZIPS)
def test_a_zip_that_could_do_harm_is_refused(name: str) -> None:
    with pytest.raises(Refused) as caught:
        read_zip(BAD_ZIPS[name]())
    assert caught.value.code == name.split()[0]


def test_a_zip_that_lies_about_its_size_is_refused() -> None:
    data = bytearray(zipped({"numbers.ipynb": b"x" * 5000}))
    for mark, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        at = data.index(mark) + offset
        data[at : at + 4] = (10).to_bytes(4, "little")
    with pytest.raises(Refused):
        read_zip(bytes(data))


def test_several_archives_are_refused(course: Course, ps1: AssignmentSpec, hand_in: HandIn) -> None:
    hand_in("ana", {"a.zip": zipped({"x": b""}), "b.rar": b"x"})
    assert refusal(course, ps1).code == "bad-archive"


# --- the time of the hand-in ---------------------------------------------------------------------

STAMPS = {
    "2026-11-30 10:00:00 UTC": datetime(2026, 11, 30, 10),
    "2026-11-30 10:00:00.250000 UTC": datetime(2026, 11, 30, 10, 0, 0, 250_000),
    "2026-11-30 10:00:00 +0200": datetime(2026, 11, 30, 8),
    "2026-11-30T10:00:00": datetime(2026, 11, 30, 10),
    "": None,
    "yesterday": None,
}


@pytest.mark.parametrize("text", STAMPS)
def test_the_time_of_the_hand_in_is_read(
    text: str, course: Course, ps1: AssignmentSpec, hand_in: HandIn
) -> None:
    hand_in("ana", {"numbers.ipynb": answered(released(ps1)), "timestamp.txt": text})
    assert take_in(course, ps1, "ana").timestamp == STAMPS[text]
