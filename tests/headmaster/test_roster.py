"""The class list: which files are read, what is refused, and whose a file is."""

from __future__ import annotations

import contextlib
import csv
import unicodedata
from pathlib import Path

import lms_samples as samples
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headmaster.class_list import read_roster, roster_of
from headmaster.course import Course, CourseError
from headmaster.lms import Sender, senders
from headmaster.roster import Person, Roster, Unmatched


def ids(roster: Roster) -> list[str]:
    return [person.id for person in roster.people]


def write(tmp_path: Path, text: str, encoding: str = "utf-8") -> Path:
    path = tmp_path / "class.csv"
    path.write_bytes(text.encode(encoding))
    return path


# --- files ---------------------------------------------------------------------------------------


def test_a_gradebook_that_canvas_exported_is_a_class_list() -> None:
    """The columns are those of Canvas's lib/gradebook_exporter.rb."""
    roster = read_roster(samples.GRADEBOOK)
    assert roster.kind == "canvas"
    assert ids(roster)[:5] == ["ada", "joerg", "aine", "hong", "xiaolong"]
    ada = roster.people[0]
    assert (ada.row, ada.canvas, ada.sis, ada.full_name) == (4, "12345", "S100", "Ada Lovelace")
    assert len(roster.before) == 2, "the rows of posting policies and points are no students"


def test_moodles_grading_worksheet_is_a_class_list() -> None:
    """The columns are those of Moodle's mod/assign/gradingtable.php, downloaded in English."""
    roster = read_roster(samples.WORKSHEET)
    assert roster.kind == "worksheet"
    assert ids(roster) == ["M100", "M101", "M102"]
    assert [person.participant for person in roster.people] == ["501", "502", "503"]
    assert roster.people[0].time and not roster.people[2].time


def test_moodles_export_of_grades_is_a_class_list() -> None:
    roster = read_roster(samples.GRADES)
    assert ids(roster) == ["M100", "M101", "M102"]
    assert roster.people[1].full_name == "Jörg Müller-Lüdenscheidt"


def test_ones_own_list_may_have_semicolons_and_any_order_of_columns() -> None:
    roster = read_roster(samples.CLASS)
    assert ids(roster) == ["ada", "joerg", "aine"]
    assert roster.people[0].group == "Team Rocket"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_any_common_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    roster = read_roster(write(tmp_path, "id,name\r\nj,Jörg\r\n", encoding))
    assert roster.people[0].name == "Jörg"


def test_the_column_that_fits_the_course_holds_the_ids() -> None:
    assert ids(read_roster(samples.GRADEBOOK, known={"S100", "S101"}))[0] == "S100"
    assert ids(read_roster(samples.GRADEBOOK, id_column="ID"))[0] == "12345"
    assert ids(read_roster(samples.GRADES, known={"ada@example.edu"}))[0] == "ada@example.edu"


def test_the_configured_list_is_taken_where_none_is_given(folder: Path) -> None:
    (folder / "us.csv").write_text("id,name\nada,Ada\n")
    with open(folder / "nbgrader_config.py", "a") as config:
        config.write('\nc.Headmaster.roster = "us.csv"\n')
    assert ids(roster_of(Course.open(folder), None)) == ["ada"]


def test_without_any_list_the_gradebook_says_who_is_in_the_class(course: Course) -> None:
    assert roster_of(course, None).people == ()
    from headmaster.gradebook import Gradebook

    with Gradebook(course) as book, book.engine.execution_options(writes=True).begin() as writing:
        writing.exec_driver_sql(
            "INSERT INTO student (id, first_name, last_name, lms_user_id) "
            "VALUES ('ada', 'Ada', 'Lovelace', '12345')"
        )
    (ada,) = roster_of(course, None).people
    assert (ada.id, ada.full_name, ada.canvas) == ("ada", "Ada Lovelace", "12345")


def test_a_column_called_student_holds_ids_where_nothing_else_does(tmp_path: Path) -> None:
    assert ids(read_roster(write(tmp_path, "student\nada\nbea\n"))) == ["ada", "bea"]


# --- what is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "class.csv is empty"),
        ("id,name\n", "has a header and no students"),
        ("Ada,Lovelace\nGrace,Hopper\n", "Row 1 should hold headers"),
        ("id,name\nada,Ada\n\nADA,Eva\n", "class.csv, rows 2 and 4: both have 'ADA' as id"),
        ("id,email\na,x@y.z\nb,x@y.z\n", "rows 2 and 3: both have 'x@y.z' as email"),
        ("id,canvas id\na,7\nb,7\n", "rows 2 and 3: both have '7' as Canvas id"),
        ("id,name\nada,Ada\n,Grace\n", "class.csv, row 3: the 'id' is empty"),
        ("id,name\n../up,Ada\n", "row 2: the 'id' is '../up', which cannot be"),
        ("id,name\n.hidden,Ada\n", "row 2: the 'id' is '.hidden', which cannot be"),
        ('id,name\nada,"Ada\n', "is no table in CSV"),
    ],
)
def test_a_list_that_is_wrong_is_refused_with_the_row(
    tmp_path: Path, text: str, sentence: str
) -> None:
    with pytest.raises(CourseError) as refused:
        read_roster(write(tmp_path, text))
    assert sentence in str(refused.value)


def test_a_column_that_is_not_there_is_refused_with_the_columns() -> None:
    with pytest.raises(CourseError, match=r"no column 'Login'; it has: Student, ID"):
        read_roster(samples.GRADEBOOK, id_column="Login")


def test_a_list_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CourseError, match=r"there is no class list .*nobody\.csv"):
        read_roster(tmp_path / "nobody.csv")


# --- whose is it ---------------------------------------------------------------------------------


def whose(roster: Roster, path: str) -> str:
    """Return the ids of those whom the surest reading of a path finds, or the reason."""
    try:
        return " ".join(p.id for p in roster.find(next(senders(path, ["numbers"]))))
    except Unmatched as reason:
        return str(reason)


def test_canvas_files_are_found_by_number_and_name() -> None:
    roster = read_roster(samples.GRADEBOOK)
    for person in roster.people:
        path = samples.canvas(person.name, int(person.canvas), 9, "numbers.ipynb")
        assert whose(roster, path) == person.id


def test_two_students_of_one_name_are_told_apart_by_number_alone() -> None:
    roster = read_roster(samples.GRADEBOOK)
    assert whose(roster, samples.canvas("Kim, Min", 12351, 9, "numbers.ipynb")) == "min2"
    assert "more than one student has this name: min1 (row 9), min2 (row 10)" in whose(
        roster, samples.canvas("Kim, Min", 99999, 9, "numbers.ipynb")
    )


def test_a_number_and_a_name_that_do_not_agree_are_nobodys() -> None:
    roster = read_roster(samples.GRADEBOOK)
    mixed = whose(roster, samples.canvas("Lovelace, Ada", 12346, 9, "numbers.ipynb"))
    assert mixed == "the number 12346 is joerg (row 5), the name is ada (row 4)"
    stranger = whose(roster, samples.canvas("Lovelace, Ada", 777, 9, "numbers.ipynb"))
    assert stranger.startswith("the name is that of ada, but the number 777 is not")


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("end", ["", "_"])
def test_moodle_files_are_found_by_number_and_name(flat: bool, end: str) -> None:
    worksheet, grades = read_roster(samples.WORKSHEET), read_roster(samples.GRADES)
    for person in worksheet.people:
        number = int(person.participant)
        path = samples.moodle(person.full_name, number, "numbers.ipynb", flat, end)
        assert whose(worksheet, path) == person.id
        assert whose(grades, path) == person.id, "by the name alone"


def test_moodles_participants_without_names_are_found_by_number() -> None:
    roster = read_roster(samples.WORKSHEET)
    assert whose(roster, samples.moodle("Participant", 502, "numbers.ipynb")) == "M101"


def test_canvas_hand_ins_without_names_are_nobodys_unless_the_list_has_the_key(
    tmp_path: Path,
) -> None:
    path = samples.canvas_anonymous("Xy3k9", 9, "numbers.ipynb", late=True)
    assert "switch anonymous grading off" in whose(read_roster(samples.GRADEBOOK), path)
    keyed = read_roster(write(tmp_path, "id,Anonymous ID\nada,Xy3k9\n"))
    assert whose(keyed, path) == "ada"


def test_a_groups_file_is_every_members() -> None:
    roster = read_roster(samples.CLASS)
    assert whose(roster, samples.canvas("Team Rocket", 555, 9, "numbers.ipynb")) == "ada joerg"
    assert whose(roster, samples.moodle("Team Rocket", 31, "numbers.ipynb")) == "ada joerg"


@pytest.mark.parametrize(
    "name", ["ada", "Ada", "ada@example.edu", "Ada Lovelace", "Lovelace, Ada", "lovelace-ada"]
)
def test_ones_own_files_may_name_a_student_in_any_way(name: str) -> None:
    sender = Sender("names", "numbers.ipynb", name)
    assert [p.id for p in read_roster(samples.CLASS).find(sender)] == ["ada"]


def test_the_accents_of_a_name_may_be_stored_in_any_way_or_be_missing() -> None:
    roster = read_roster(samples.CLASS)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        name = unicodedata.normalize(form, "Jörg Müller-Lüdenscheidt")
        assert whose(roster, samples.moodle(name, 1, "numbers.ipynb")) == "joerg"
    assert whose(roster, samples.moodle("Jorg Muller-Ludenscheidt", 1, "n.ipynb")) == "joerg"


def test_without_a_class_list_only_plain_names_are_believed() -> None:
    nobody = Roster("", "list", (), (), given=False)
    assert whose(nobody, "ada_numbers.ipynb") == "ada"
    assert whose(nobody, "ada/numbers.ipynb") == "ada"
    assert "give the class list with --roster" in whose(
        nobody, samples.canvas("Lovelace, Ada", 12345, 9, "numbers.ipynb")
    )
    assert "cannot be the name of a folder" in whose(nobody, ".._numbers.ipynb")


_WORD = st.text(st.characters(categories=["Lu", "Ll", "Lo", "Mn"]), min_size=1, max_size=8).filter(
    lambda word: word[0].isalpha() and word.strip()
)


@given(_WORD, _WORD, st.integers(1, 10**7), st.integers(1, 10**9), st.booleans())
def test_whatever_a_student_is_called_the_file_comes_home(
    first: str, last: str, number: int, upload: int, late: bool
) -> None:
    person = Person("x", 2, first=first, last=last, canvas=str(number), participant=str(number))
    roster = Roster("us.csv", "list", (), (person,))
    path = samples.canvas(f"{last}, {first}", number, upload, "numbers-2.ipynb", late)
    sender = next(senders(path, ["numbers"]))
    assert (sender.number, sender.upload, sender.late) == (str(number), upload, late)
    assert (sender.file, roster.find(sender)) == ("numbers-2.ipynb", (person,))
    for flat in (False, True):
        path = samples.moodle(f"{first} {last}", number, "numbers.ipynb", flat)
        sender = next(senders(path, ["numbers"]))
        assert (sender.file, roster.find(sender)) == ("numbers.ipynb", (person,))


@given(st.lists(st.lists(st.text(max_size=5), max_size=4), max_size=5))
def test_no_table_makes_the_reader_fail(tmp_path_factory: pytest.TempPathFactory, rows) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    with open(path, "w", newline="", encoding="utf-8", errors="replace") as file:
        csv.writer(file).writerows(rows)
    with contextlib.suppress(CourseError):
        read_roster(path)
