"""Collecting: downloads of every kind become nbgrader's folders, and nothing is lost on the way."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import time
import unicodedata
import zipfile
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import lms_samples as samples
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lms_samples import EARLY, LATER

from headmaster import collecting, placing, sources, tables
from headmaster.class_list import read_roster, roster_of
from headmaster.cli import main
from headmaster.collecting import Options, Report, collect
from headmaster.course import Course, CourseError
from headmaster.gradebook import Gradebook
from headmaster.intake import submitted_time
from headmaster.manifest import Manifest
from headmaster.release import load_assignment

NB = json.dumps({"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()
NB2 = NB.replace(b"5", b"4")


@pytest.fixture(autouse=True)
def greenwich() -> Iterator[None]:
    """Let this machine's time be UTC, for the times in archives have no zone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture
def take(course: Course, tmp_path: Path) -> Any:
    """Return a function that collects: members make a zip, a path is a download as it is."""

    def run(
        *given: Any, roster: Path | None = samples.GRADEBOOK, to: str = "ps1", **more: Any
    ) -> Report:
        downloads = [
            item
            if isinstance(item, Path)
            else samples.write_zip(tmp_path / f"download{i}.zip", item)
            for i, item in enumerate(given)
        ]
        people = roster_of(course, str(roster) if roster else None)
        return collect(course, to, downloads, people, Options(**more))

    return run


def ada(upload: int, file: str = "numbers.ipynb", late: bool = False) -> str:
    return samples.canvas("Lovelace, Ada", 12345, upload, file, late)


def joerg(upload: int, file: str = "numbers.ipynb", late: bool = False) -> str:
    return samples.canvas("Müller-Lüdenscheidt, Jörg", 12346, upload, file, late)


def files(course: Course, student: str, assignment: str = "ps1") -> dict[str, bytes]:
    folder = course.folder("submitted", student, assignment)
    paths = (p for p in sorted(folder.rglob("*")) if p.is_file())
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in paths}


def time_of(course: Course, student: str) -> datetime | None:
    return submitted_time(files(course, student).get("timestamp.txt"))


def outcomes(report: Report) -> dict[str, str]:
    return {line.student: line.outcome for line in report.lines}


def notes(report: Report, student: str) -> str:
    return " | ".join(next(line for line in report.lines if line.student == student).notes)


def zipped(members: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


# --- every kind of download ----------------------------------------------------------------------


def test_a_canvas_zip_is_collected(take: Any, course: Course) -> None:
    report = take([(ada(9), NB, EARLY), (joerg(10, "numbers-2.ipynb", late=True), NB2, LATER)])
    assert outcomes(report) == {"ada": "new", "joerg": "new"}
    assert files(course, "ada")["numbers.ipynb"] == NB
    assert files(course, "joerg")["numbers.ipynb"] == NB2
    assert (time_of(course, "ada"), time_of(course, "joerg")) == (EARLY, LATER)
    assert [line.late for line in report.lines] == [False, True]
    assert report.left == []
    assert report.missing[:2] == ["aine", "hong"]


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("end", ["", "_"])
def test_both_kinds_of_moodle_zip_are_collected(
    take: Any, course: Course, flat: bool, end: str
) -> None:
    report = take(
        [
            (samples.moodle("Ada Lovelace", 501, "numbers.ipynb", flat, end), NB, EARLY),
            (samples.moodle("Áine O'Brien", 503, "numbers (1).ipynb", flat, end), NB2, LATER),
        ],
        roster=samples.GRADES,
    )
    assert outcomes(report) == {"M100": "new", "M102": "new"}
    assert files(course, "M102")["numbers.ipynb"] == NB2


def test_moodles_worksheet_says_when_a_hand_in_came(take: Any, course: Course) -> None:
    take(
        [(samples.moodle("Ada Lovelace", 501, "numbers.ipynb"), NB, LATER)],
        roster=samples.WORKSHEET,
    )
    assert time_of(course, "M100") == datetime(2026, 11, 2, 9, 58)


def test_a_folder_of_files_named_as_for_zip_collect_is_collected(
    take: Any, course: Course, tmp_path: Path
) -> None:
    place = tmp_path / "inbox"
    place.mkdir()
    for name in ("ada_numbers.ipynb", "numbers_joerg.ipynb", "Áine O'Brien numbers (3).ipynb"):
        (place / name).write_bytes(NB)
    report = take(place, roster=samples.CLASS)
    assert outcomes(report) == {"ada": "new", "aine": "new", "joerg": "new"}


def test_the_configured_pattern_of_zip_collect_is_used(folder: Path, tmp_path: Path) -> None:
    with open(folder / "nbgrader_config.py", "a") as config:
        config.write(
            "c.FileNameCollectorPlugin.named_regexp = "
            r'r".*hw-(?P<file_id>\w+)-by-(?P<student_id>\w+)"'
        )
    (tmp_path / "hw-numbers-by-ada.ipynb").write_bytes(NB)
    course = Course.open(folder)
    source = tmp_path / "hw-numbers-by-ada.ipynb"
    report = collect(course, "ps1", [source], roster_of(course, None), Options())
    assert outcomes(report) == {"ada": "new"}
    assert "numbers.ipynb" in files(course, "ada")


@pytest.mark.parametrize("inner", ["{who}/numbers.ipynb", "{who}/ps1/numbers.ipynb"])
def test_a_folder_for_each_student_is_collected(
    take: Any, course: Course, tmp_path: Path, inner: str
) -> None:
    for who in ("ada", "joerg@example.edu", "Áine O'Brien"):
        path = tmp_path / "inbox" / inner.format(who=who)
        path.parent.mkdir(parents=True)
        path.write_bytes(NB)
        (path.parent / "words.txt").write_text("a b c")
    report = take(tmp_path / "inbox", roster=samples.CLASS)
    assert set(outcomes(report)) == {"ada", "joerg", "aine"}
    assert {"numbers.ipynb", "words.txt"} <= set(files(course, "aine"))


def test_a_zip_of_downloads_is_opened(take: Any, course: Course, tmp_path: Path) -> None:
    inside = samples.write_zip(tmp_path / "monday.zip", [(ada(9), NB, EARLY)])
    report = take([("downloads/monday.zip", inside.read_bytes(), EARLY)])
    assert outcomes(report) == {"ada": "new"}
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(inside, folder)
    assert outcomes(take(folder)) == {"ada": "unchanged"}


def test_one_file_is_a_download_too(take: Any, course: Course, tmp_path: Path) -> None:
    (tmp_path / "ada_numbers.ipynb").write_bytes(NB)
    assert outcomes(take(tmp_path / "ada_numbers.ipynb", roster=samples.CLASS)) == {"ada": "new"}


def test_without_a_class_list_plain_names_are_believed(take: Any, tmp_path: Path) -> None:
    (tmp_path / "eva_numbers.ipynb").write_bytes(NB)
    report = take(tmp_path / "eva_numbers.ipynb", [(ada(9), NB, EARLY)], roster=None)
    assert outcomes(report) == {"eva": "new"}
    ((_, reason),) = report.left
    assert reason.endswith("give the class list with --roster")


def test_a_groups_hand_in_is_given_to_every_member(take: Any, course: Course) -> None:
    path = samples.canvas("Team Rocket", 12345, 9, "numbers.ipynb")
    report = take([(path, NB, EARLY)], roster=samples.CLASS)
    assert outcomes(report) == {"ada": "new", "joerg": "new"}
    assert Manifest.of(course, "ps1").students["joerg"].number == ""


def test_a_name_that_could_be_a_groups_is_told(take: Any) -> None:
    report = take([(samples.canvas("Team Rocket", 12345, 9, "numbers.ipynb"), NB, EARLY)])
    assert 'give the class list a column "group"' in notes(report, "ada")


def test_a_name_that_stands_for_everybody_is_no_groups(take: Any) -> None:
    members = [(samples.moodle("Participant", n, "numbers.ipynb"), NB, EARLY) for n in (501, 502)]
    report = take(members, roster=samples.WORKSHEET)
    assert outcomes(report) == {"M100": "new", "M101": "new"}
    assert notes(report, "M100") == ""


# --- names in archives ---------------------------------------------------------------------------

JOERG = "Jörg Müller-Lüdenscheidt_502_assignsubmission_file_/numbers.ipynb"


@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize("encoding", ["utf-8", "cp437", "cp850", "cp1252"])
def test_names_of_any_encoding_come_home(
    take: Any, course: Course, tmp_path: Path, form: str, encoding: str
) -> None:
    """Windows writes its own code page, and a Mac UTF-8 without the mark and taken apart."""
    name = unicodedata.normalize(form, JOERG)
    if form == "NFD" and encoding != "utf-8":
        pytest.skip("these have no combining letters")
    source = samples.zip_with_raw_names(tmp_path / "d.zip", [(name.encode(encoding), NB)])
    assert outcomes(take(source, roster=samples.GRADES)) == {"M101": "new"}


def test_names_marked_as_utf8_come_home(take: Any) -> None:
    name = samples.canvas("李, 小龙", 12349, 9, "numbers.ipynb")
    assert outcomes(take([(name, NB, EARLY)])) == {"xiaolong": "new"}


def test_what_a_mac_adds_is_no_hand_in(take: Any, course: Course) -> None:
    report = take(
        [
            (ada(9), NB, EARLY),
            ("__MACOSX/._" + ada(9), b"\0\5\x16\7", EARLY),
            (".DS_Store", b"\0", EARLY),
        ]
    )
    assert set(files(course, "ada")) == {"numbers.ipynb", "timestamp.txt"}
    assert report.left == []


# --- which version counts ------------------------------------------------------------------------


def test_the_latest_upload_counts_in_any_order(take: Any, course: Course) -> None:
    members = [
        (ada(30, "numbers-2.ipynb"), b"third", EARLY),
        (ada(10, "numbers.ipynb"), b"first", EARLY),
        (ada(20, "numbers-1.ipynb"), b"second", EARLY),
    ]
    for order in (members, members[::-1]):
        report = take(order, force=True)
        assert files(course, "ada")["numbers.ipynb"] == b"third"
    assert notes(report, "ada").count("is earlier and was left") == 2


def test_without_numbers_of_uploads_the_time_decides_then_the_counter(
    take: Any, course: Course, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    for name, moment in (("ada_numbers (1).ipynb", LATER), ("ada_numbers (2).ipynb", EARLY)):
        (inbox / name).write_text(name)
        os.utime(inbox / name, (moment.timestamp(), moment.timestamp()))
    take(inbox, roster=samples.CLASS)
    assert files(course, "ada")["numbers.ipynb"] == b"ada_numbers (1).ipynb"
    take(inbox, roster=samples.CLASS, times="none", force=True)
    for path in inbox.iterdir():
        os.utime(path, (EARLY.timestamp(), EARLY.timestamp()))
    take(inbox, roster=samples.CLASS, force=True)
    assert files(course, "ada")["numbers.ipynb"] == b"ada_numbers (2).ipynb"


def test_the_same_download_twice_is_one(take: Any, course: Course) -> None:
    download = [(ada(1), NB, EARLY)]
    report = take(download, download)
    assert outcomes(report) == {"ada": "new"}
    assert notes(report, "ada") == ""


def test_several_notebooks_and_other_files_belong_to_one_hand_in(take: Any, course: Course) -> None:
    take(
        [
            (ada(1, "words.ipynb"), b"w", EARLY),
            (ada(2, "Letters-1.ipynb"), b"l", EARLY),
            (ada(3, "words.txt"), b"t", EARLY),
            (ada(4, "scratch.ipynb"), b"s", EARLY),
        ],
        to="ps2",
    )
    assert files(course, "ada", "ps2") == {
        "words.ipynb": b"w",
        "letters.ipynb": b"l",
        "words.txt": b"t",
        "scratch.ipynb": b"s",
        "timestamp.txt": b"2026-11-02 10:00:00.000000 UTC",
    }


def test_an_only_notebook_may_have_any_name(take: Any, course: Course) -> None:
    report = take([(ada(1, "My homework.ipynb"), NB, EARLY)])
    assert files(course, "ada")["numbers.ipynb"] == NB
    assert notes(report, "ada") == "My homework.ipynb was taken for numbers.ipynb"


@pytest.mark.parametrize("name", ["numbers.ipynb", "work/any.ipynb", "__MACOSX/._x.ipynb"])
def test_what_a_student_zipped_is_unpacked(take: Any, course: Course, name: str) -> None:
    content = zipped({name: NB, "numbers.ipynb": NB})
    take([(ada(1, "work.zip"), content, EARLY)])
    assert files(course, "ada")["numbers.ipynb"] == NB
    assert "work.zip" not in files(course, "ada")


def test_the_latest_zip_of_a_student_counts(take: Any, course: Course) -> None:
    first, second = (zipped({"numbers.ipynb": data}) for data in (NB, NB2))
    report = take([(ada(2, "work-1.zip"), second, EARLY), (ada(1, "work.zip"), first, EARLY)])
    assert files(course, "ada")["numbers.ipynb"] == NB2
    assert "work.zip is earlier and was left" in notes(report, "ada")


def test_a_timestamp_of_the_students_own_does_not_count(take: Any, course: Course) -> None:
    content = zipped({"numbers.ipynb": NB, "timestamp.txt": b"2000-01-01 00:00:00 UTC"})
    report = take([(ada(1, "work.zip"), content, LATER)])
    assert time_of(course, "ada") == LATER
    assert "was left out" in notes(report, "ada")


# --- nothing is overwritten ----------------------------------------------------------------------


def test_an_earlier_hand_in_is_moved_aside(take: Any, course: Course) -> None:
    take([(ada(1), b"first", EARLY)])
    report = take([(ada(2), b"second", LATER)])
    assert outcomes(report) == {"ada": "newer"}
    assert files(course, "ada")["numbers.ipynb"] == b"second"
    (kept,) = (course.root / "collected" / "ps1" / "earlier" / "ada").iterdir()
    assert (kept / "numbers.ipynb").read_bytes() == b"first"
    assert f"the earlier one is in {kept.relative_to(course.root)}" in notes(report, "ada")


def test_an_older_download_replaces_nothing_unless_forced(take: Any, course: Course) -> None:
    first, second = [(ada(1), b"first", EARLY)], [(ada(2), b"second", LATER)]
    take(first)
    take(second)
    assert outcomes(take(first)) == {"ada": "older"}
    assert files(course, "ada")["numbers.ipynb"] == b"second"
    assert outcomes(take(first, force=True)) == {"ada": "newer"}
    assert files(course, "ada")["numbers.ipynb"] == b"first"
    assert len(list((course.root / "collected" / "ps1" / "earlier" / "ada").iterdir())) == 2


def test_what_came_another_way_is_kept_too(take: Any, course: Course, hand_in: Any) -> None:
    hand_in("ada", {"numbers.ipynb": "by hand", "timestamp.txt": "2026-11-03 00:00:00 UTC"})
    assert outcomes(take([(ada(1), NB, EARLY)])) == {"ada": "older"}
    assert outcomes(take([(ada(1), NB, LATER)])) == {"ada": "newer"}
    (kept,) = (course.root / "collected" / "ps1" / "earlier" / "ada").iterdir()
    assert (kept / "numbers.ipynb").read_text() == "by hand"


def test_the_same_work_from_another_way_is_unchanged(
    take: Any, course: Course, hand_in: Any
) -> None:
    hand_in("ada", {"numbers.ipynb": NB, "timestamp.txt": "2026-11-01 00:00:00 UTC"})
    assert outcomes(take([(ada(1), NB, LATER)], times="none")) == {"ada": "unchanged"}
    assert time_of(course, "ada") == datetime(2026, 11, 1)
    assert not (course.root / "collected" / "ps1" / "earlier").exists()


def test_collecting_again_reads_and_writes_no_hand_in(
    take: Any, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = [(ada(1), NB, EARLY), (joerg(2), NB, LATER)]
    take(download)
    before = {p: p.stat().st_mtime_ns for p in course.folder("submitted").rglob("*")}
    monkeypatch.setattr(sources, "read_member", lambda *_: pytest.fail("it was read"))
    assert outcomes(take(download)) == {"ada": "unchanged", "joerg": "unchanged"}
    assert before == {p: p.stat().st_mtime_ns for p in course.folder("submitted").rglob("*")}


def test_a_hand_in_that_was_deleted_comes_back(take: Any, course: Course) -> None:
    take([(ada(1), NB, EARLY)])
    shutil.rmtree(course.folder("submitted", "ada", "ps1"))
    assert outcomes(take([(ada(1), NB, EARLY)])) == {"ada": "new"}


def test_a_disk_that_fails_leaves_what_was_there(
    take: Any, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    take([(ada(1), b"first", EARLY)])
    move = shutil.move

    def fails(source: Any, target: Any) -> Any:
        if "incoming" in str(source):
            raise OSError("no space left on device")
        return move(source, target)

    monkeypatch.setattr(placing.shutil, "move", fails)
    report = take([(ada(2), b"second", LATER), (joerg(3), NB, LATER)])
    assert outcomes(report) == {"ada": "failed", "joerg": "failed"}
    assert files(course, "ada")["numbers.ipynb"] == b"first"
    assert files(course, "joerg") == {}
    monkeypatch.undo()
    assert outcomes(take([(ada(2), b"second", LATER)])) == {"ada": "newer"}
    assert not list((course.root / "collected" / "ps1").glob(".incoming*"))


def test_the_course_of_this_repository_keeps_them_beside_the_hand_ins() -> None:
    course = Course.open(Path(__file__).parents[2])
    folder = Manifest.of(course, "02_scaled_dot_product").path.parent
    assert folder == course.root / "build/class/collected/02_scaled_dot_product"


# --- times ---------------------------------------------------------------------------------------


def set_due(course: Course, due: str) -> None:
    """Register the assignment and write its due date, as formgrader does."""
    with Gradebook(course) as book:
        book.register(load_assignment(course, "ps1"))
        with book.engine.execution_options(writes=True).begin() as writing:
            writing.exec_driver_sql(f"UPDATE assignment SET duedate = '{due}'")


def test_times_of_packing_are_no_times_of_hand_ins(take: Any, course: Course) -> None:
    """Canvas, and Moodle since 3.11, stamp all files when they pack them."""
    report = take([(ada(1), NB, LATER), (joerg(2), NB, LATER.replace(minute=31))])
    assert time_of(course, "ada") is None
    assert "that of packing or copying" in report.notes[0]
    take([(ada(1), NB, LATER), (joerg(2), NB, LATER.replace(minute=31))], times="file")
    assert time_of(course, "ada") == LATER


def test_a_late_mark_without_a_time_counts_as_just_late(take: Any, course: Course) -> None:
    set_due(course, "2026-11-02 12:00:00.000000")
    report = take([(ada(1, late=True), NB, LATER), (joerg(2), NB, LATER)])
    assert time_of(course, "ada") == datetime(2026, 11, 2, 12, 0, 1)
    assert time_of(course, "joerg") is None
    assert "recorded as one second late" in report.notes[1]


def test_a_late_mark_counts_from_the_students_own_extension(take: Any, course: Course) -> None:
    set_due(course, "2026-11-02 12:00:00.000000")
    with Gradebook(course) as book, book.engine.execution_options(writes=True).begin() as writing:
        assignment = tables.first(writing, tables.assignment_t, name="ps1").id
        writing.execute(tables.student_t.insert().values(id="ada"))
        values = {"assignment_id": assignment, "student_id": "ada", "extension": timedelta(days=1)}
        tables.insert(writing, tables.submitted_t, **values)
    take([(ada(1, late=True), NB, LATER), (joerg(2), NB, LATER)])
    assert time_of(course, "ada") == datetime(2026, 11, 3, 12, 0, 1)


def test_canvas_knows_better_than_a_files_time_what_is_late(take: Any, course: Course) -> None:
    set_due(course, "2026-11-02 12:00:00.000000")
    take([(ada(1), NB, LATER), (joerg(2, late=True), NB, EARLY)])
    assert time_of(course, "ada") is None, "it was packed then, and handed in before"
    assert time_of(course, "joerg") == datetime(2026, 11, 2, 12, 0, 1)


def test_one_file_of_a_group_is_no_sign_of_packing(take: Any, course: Course) -> None:
    path = samples.moodle("Team Rocket", 31, "numbers.ipynb")
    take([(path, NB, LATER)], roster=samples.CLASS)
    assert time_of(course, "ada") == time_of(course, "joerg") == LATER


def test_times_of_a_configured_list_are_of_another_assignment(folder: Path, tmp_path: Path) -> None:
    with open(folder / "nbgrader_config.py", "a") as config:
        config.write(f'\nc.Headmaster.roster = "{samples.WORKSHEET}"\n')
    course = Course.open(folder)
    member = (samples.moodle("Ada Lovelace", 501, "numbers.ipynb"), NB, LATER)
    source = samples.write_zip(tmp_path / "d.zip", [member])
    collect(course, "ps1", [source], roster_of(course, None), Options())
    assert time_of(course, "M100") == LATER


def test_a_late_mark_waits_for_the_due_date(take: Any, course: Course) -> None:
    download = [(ada(1, late=True), NB, LATER), (joerg(2), NB, LATER)]
    assert "set its due date and collect again" in take(download).notes[1]
    assert time_of(course, "ada") is None
    set_due(course, "2026-11-02 12:00:00.000000")
    report = take(download)
    assert outcomes(report)["ada"] == "unchanged"
    assert notes(report, "ada") == "its time is now known"
    assert time_of(course, "ada") == datetime(2026, 11, 2, 12, 0, 1)


def test_an_archive_without_times_gives_none(take: Any, course: Course) -> None:
    take([(ada(1), NB, datetime(1980, 1, 1))])
    assert time_of(course, "ada") is None


def test_nbgrader_reads_the_time_that_is_written(take: Any, course: Course) -> None:
    from nbgrader.utils import parse_utc

    take([(ada(1), NB, LATER)])
    assert parse_utc(files(course, "ada")["timestamp.txt"].decode()) == LATER


# --- what is refused, and left where it is -------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        (samples.canvas("Nobody, At All", 999, 1, "numbers.ipynb"), "there is no 'nobodyatall'"),
        (samples.canvas("Nobody, At All", 999, 1, "work.zip"), "there is no 'nobodyatall'"),
        ("readme.txt", "there is no 'readme' on the class list"),
        ("../../ada_numbers.ipynb", "which leads out of it"),
        ("/etc/ada_numbers.ipynb", "which leads out of it"),
        (r"..\ada_numbers.ipynb", "which leads out of it"),
        ("C:/ada_numbers.ipynb", "which leads out of it"),
        (samples.canvas("Kim, Min", 777, 1, "numbers.ipynb"), "more than one student"),
    ],
)
def test_what_is_nobodys_is_listed_with_the_reason(
    take: Any, course: Course, tmp_path: Path, name: str, reason: str
) -> None:
    report = take([(ada(1), NB, EARLY), (name, NB, EARLY)])
    ((file, why),) = report.left
    assert reason in why
    assert file.startswith("download0.zip: ")
    assert course.students("ps1") == ["ada"]


def test_links_are_refused(take: Any, course: Course, tmp_path: Path) -> None:
    source = tmp_path / "links.zip"
    with zipfile.ZipFile(source, "w") as archive:
        archive.writestr(*samples.link(ada(1), b"/etc/passwd"))
    assert "link" in take(source).left[0][1]
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "ada_numbers.ipynb").symlink_to("/etc/passwd")
    (inbox / "elsewhere").symlink_to("/etc")
    report = take(inbox, roster=samples.CLASS)
    assert [why for _, why in report.left] == ["it is a link to another place, not a file"] * 2
    assert course.students("ps1") == []


def test_a_bomb_is_refused_and_the_others_are_collected(take: Any, course: Course) -> None:
    report = take([(ada(1), b"0" * 50_000_000, EARLY), (joerg(2), NB, LATER)])
    assert course.students("ps1") == ["joerg"]
    assert report.left[0][1] == "it unpacks to far more than a notebook can need"


def test_a_download_of_absurd_size_is_refused_as_a_whole(
    take: Any, course: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_CLASS_TOTAL", 100)
    with pytest.raises(CourseError, match=r"download0\.zip claims to hold 2 files"):
        take([(ada(1), NB, EARLY), (joerg(2), NB, LATER)])
    assert not (course.root / "submitted").exists()


def test_a_bad_zip_of_a_students_is_collected_as_it_is(take: Any, course: Course) -> None:
    """Grading then tells the student why; a number it never becomes."""
    report = take(
        [
            (ada(1, "work.zip"), zipped({"../up.ipynb": NB}), EARLY),
            (ada(2, "timestamp.txt"), b"2000-01-01 00:00:00 UTC", EARLY),
        ]
    )
    assert time_of(course, "ada") == EARLY
    assert set(files(course, "ada")) == {"work.zip", "timestamp.txt"}
    assert "work.zip cannot be unpacked" in notes(report, "ada")


def test_a_member_that_is_damaged_is_named(take: Any, course: Course, tmp_path: Path) -> None:
    source = samples.write_zip(tmp_path / "d.zip", [(ada(1), b"x" * 1000 + NB, EARLY)])
    data = bytearray(source.read_bytes())
    data[len(ada(1)) + 40] ^= 0xFF
    source.write_bytes(data)
    report = take(source)
    assert outcomes(report) == {"ada": "failed"}
    assert "damaged in the zip file" in notes(report, "ada")
    assert course.students("ps1") == []


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"<!DOCTYPE html><title>Log in</title>", "is a web page and not a zip file"),
        (b"PK\x03\x04 and then nothing", "breaks off or is damaged"),
        (b"", "is not a zip file"),
        (b"Rar!\x1a\x07", "give the folder of files instead"),
    ],
)
def test_a_zip_that_is_none_is_named(
    take: Any, course: Course, tmp_path: Path, content: bytes, sentence: str
) -> None:
    (tmp_path / "submissions.zip").write_bytes(content)
    with pytest.raises(CourseError) as refused:
        take([(ada(1), NB, EARLY)], tmp_path / "submissions.zip")
    assert str(refused.value).startswith("submissions.zip ")
    assert sentence in str(refused.value)
    assert not (course.root / "submitted").exists(), "nothing is half done"


def test_a_protected_zip_is_named(take: Any, tmp_path: Path) -> None:
    source = samples.write_zip(tmp_path / "d.zip", [(ada(1), NB, EARLY)])
    data = bytearray(source.read_bytes())
    data[6] |= 1
    data[data.rindex(b"PK\1\2") + 8] |= 1
    source.write_bytes(data)
    assert take(source).left[0][1] == "it is protected by a password"


def test_a_damaged_manifest_is_named(take: Any, course: Course) -> None:
    take([(ada(1), NB, EARLY)])
    Manifest.of(course, "ps1").path.write_text("{")
    with pytest.raises(CourseError, match=r"manifest\.json is damaged"):
        take([(ada(1), NB, EARLY)])


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(max_size=30), st.binary(max_size=20)), max_size=6))
def test_no_names_lead_out_of_the_course(
    folder: Path, tmp_path: Path, members: list[tuple[str, bytes]]
) -> None:
    named = [
        (f"ada_{name}".encode("utf-8", "replace").decode(), data, EARLY) for name, data in members
    ]
    source = samples.write_zip(tmp_path / "any.zip", named)
    outside = {p for p in tmp_path.rglob("*") if not p.is_relative_to(folder)}
    course = Course.open(folder)
    collect(course, "ps1", [source], read_roster(samples.CLASS), Options())
    assert outside == {p for p in tmp_path.rglob("*") if not p.is_relative_to(folder)}
    assert set(course.students("ps1")) <= {"ada"}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(0, 255), st.integers(0, 10**6))
def test_a_damaged_archive_is_refused_or_read_and_never_a_crash(
    folder: Path, tmp_path: Path, place: int, value: int, length: int
) -> None:
    source = samples.write_zip(tmp_path / "any.zip", [(ada(1), NB, EARLY), (joerg(2), NB, LATER)])
    data = bytearray(source.read_bytes())
    data[place % len(data)] = value
    source.write_bytes(data[: length % (2 * len(data))])
    with contextlib.suppress(CourseError):
        roster = read_roster(samples.GRADEBOOK)
        report = collect(Course.open(folder), "ps1", [source], roster, Options())
        assert all(line.isprintable() for line in collecting.printed(report))


def test_names_send_no_commands_to_the_terminal(take: Any) -> None:
    report = take([("\x1b[2J\x1b]0;x\x07.ipynb", NB, EARLY)])
    assert all(line.isprintable() for line in collecting.printed(report))


# --- the command ---------------------------------------------------------------------------------


def test_the_command_prints_what_became_of_everything(course: Course, tmp_path: Path) -> None:
    source = samples.write_zip(
        tmp_path / "submissions.zip",
        [(ada(9, late=True), NB, LATER), (joerg(8), NB, EARLY), ("stray.txt", b"", EARLY)],
    )
    arguments = ["collect", "ps1", str(source), "--roster", str(samples.GRADEBOOK)]
    result = CliRunner().invoke(main, [*arguments, "--course", str(course.root)])
    assert result.exit_code == 1, "something was left"
    assert "ada    new        numbers.ipynb  2026-11-03 11:30 UTC  LATE" in result.output
    assert "2 hand-ins: 2 new" in result.output
    assert "Left where they are (1):\n  submissions.zip: stray.txt: there is no" in result.output
    assert "Nothing handed in (6): aine, hong" in result.output


def test_the_command_names_what_is_wrong(course: Course, tmp_path: Path) -> None:
    for arguments, sentence in (
        (["ps9", "x.zip"], "there is no assignment 'ps9'"),
        (["ps1", str(tmp_path / "x.zip")], "there is no "),
        (["ps1", str(tmp_path), "--roster", "no.csv"], "there is no class list no.csv"),
    ):
        result = CliRunner().invoke(main, ["collect", *arguments, "--course", str(course.root)])
        assert result.exit_code == 2
        assert sentence in result.output


# --- as nbgrader's own plug-ins ------------------------------------------------------------------


def test_nbgraders_zip_collect_reads_canvas_and_the_class_list(folder: Path) -> None:
    with open(folder / "nbgrader_config.py", "a") as config:
        config.write(
            '\nc.ZipCollectApp.extractor_plugin = "headmaster.zip_collecting.LmsExtractor"'
            '\nc.ZipCollectApp.collector_plugin = "headmaster.zip_collecting.LmsCollector"'
            f'\nc.Headmaster.roster = "{samples.GRADEBOOK}"\n'
        )
    archive = folder / "downloaded" / "ps1" / "archive"
    archive.mkdir(parents=True)
    members = [
        (ada(1), b"first", EARLY),
        (ada(2, "numbers-1.ipynb"), b"second", LATER),
        (joerg(3), NB, EARLY),
        (samples.canvas("Nobody, At", 9, 9, "numbers.ipynb"), NB, EARLY),
        ("../up.ipynb", NB, EARLY),
    ]
    samples.write_zip(archive / "submissions.zip", members)
    from nbgrader.apps.zipcollectapp import ZipCollectApp

    here = Path.cwd()
    os.chdir(folder)
    try:
        app = ZipCollectApp()
        app.initialize(["ps1"])
        app.start()
    finally:
        os.chdir(here)
    course = Course.open(folder)
    assert course.students("ps1") == ["ada", "joerg"]
    assert files(course, "ada")["numbers.ipynb"] == b"second"
    assert time_of(course, "ada") == LATER
    assert not (folder / "downloaded" / "ps1" / "up.ipynb").exists()
