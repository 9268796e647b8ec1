"""Whatever a person can do to a notebook without meaning harm costs nothing."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from conftest import ANSWERS, Notebook, OneProcess, answered, cell, code, index, released
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headmaster.course import Course
from headmaster.grading import grade, make_job
from headmaster.matching import Assembly, assemble
from headmaster.reading import read_notebook
from headmaster.records import NotebookResult
from headmaster.release import AssignmentSpec, NotebookSpec, SpecCell


def graded(course: Course, spec: AssignmentSpec, notebook: Notebook | bytes) -> NotebookResult:
    """Grade a notebook (as a file's content) in this process."""
    data = notebook if isinstance(notebook, bytes) else json.dumps(notebook).encode()
    assembly = assemble(spec.notebooks[0], read_notebook(data))
    job = make_job(course, spec.name, spec.notebooks[0], "ana", assembly, seed=1)
    return grade(spec.notebooks[0], assembly, OneProcess().run(job))


def points(result: NotebookResult) -> dict[str, float | None]:
    """Return the points by test."""
    return {record.id: record.points for record in result.records}


FULL = {"double-values": 2.0, "double-zero": 1.0, "mean-score": 3.0, "why": None}

Edit = Callable[[Notebook], Any]
ACCIDENTS: dict[str, Edit] = {}


def accident(edit: Edit) -> Edit:
    """Note an accident for the test below."""
    ACCIDENTS[edit.__name__] = edit
    return edit


@accident
def nothing_happened(nb: Notebook) -> None:
    pass


@accident
def the_answer_stands_below_the_stub(nb: Notebook) -> None:
    cell(nb, "double")["source"] = "def double(x):\n    raise NotImplementedError()"
    nb["cells"].insert(index(nb, "double") + 1, code(ANSWERS["double"]))


@accident
def the_answer_stands_at_the_very_end(nb: Notebook) -> None:
    cell(nb, "double")["source"] = "def double(x):\n    raise NotImplementedError()"
    nb["cells"].append(code(ANSWERS["double"]))


@accident
def the_answer_stands_above_the_stub(nb: Notebook) -> None:
    cell(nb, "double")["source"] = "def double(x):\n    '''Return twice x.'''\n    pass"
    nb["cells"].insert(0, code(ANSWERS["double"]))


@accident
def the_stub_became_a_comment(nb: Notebook) -> None:
    cell(nb, "double")["source"] = "# see below"
    nb["cells"].append(code(ANSWERS["double"]))


@accident
def the_answer_cell_was_copied(nb: Notebook) -> None:
    nb["cells"].insert(index(nb, "double"), copy.deepcopy(cell(nb, "double")))


@accident
def the_stub_was_copied_before_and_after(nb: Notebook) -> None:
    stub = copy.deepcopy(cell(nb, "double"))
    stub["source"] = 'def double(x):\n    """Return twice x."""\n    raise NotImplementedError()'
    nb["cells"].insert(index(nb, "double"), copy.deepcopy(stub))
    nb["cells"].insert(index(nb, "double-values"), stub)
    nb["cells"].append(copy.deepcopy(stub))


@accident
def a_test_cell_was_copied(nb: Notebook) -> None:
    nb["cells"].insert(0, copy.deepcopy(cell(nb, "double-values")))


@accident
def the_answer_was_split(nb: Notebook) -> None:
    cell(nb, "double")["source"] = "def twice(x):\n    return x + x"
    nb["cells"].insert(index(nb, "double") + 1, code("def double(x):\n    return twice(x)"))


@accident
def two_answers_were_merged(nb: Notebook) -> None:
    cell(nb, "double")["source"] += "\n\n" + cell(nb, "mean")["source"]
    nb["cells"].remove(cell(nb, "mean"))


@accident
def an_answer_and_its_test_were_merged(nb: Notebook) -> None:
    cell(nb, "double")["source"] += "\n\n" + cell(nb, "double-values")["source"]
    nb["cells"].remove(cell(nb, "double-values"))


@accident
def a_test_and_the_next_answer_were_merged(nb: Notebook) -> None:
    cell(nb, "double-zero")["source"] += "\n\n" + cell(nb, "mean")["source"]
    nb["cells"].remove(cell(nb, "mean"))


@accident
def the_answer_was_written_into_the_test(nb: Notebook) -> None:
    cell(nb, "double")["source"] = "def double(x):\n    raise NotImplementedError()"
    source = cell(nb, "double-values")["source"]
    cell(nb, "double-values")["source"] = ANSWERS["double"] + "\n" + source


@accident
def an_import_was_added_to_the_locked_cell(nb: Notebook) -> None:
    cell(nb, "setup")["source"] += "\nimport statistics"
    cell(nb, "mean")["source"] = "def mean(values):\n    return statistics.fmean(values)"


@accident
def the_locked_cell_was_deleted(nb: Notebook) -> None:
    nb["cells"].remove(cell(nb, "setup"))
    cell(nb, "mean")["source"] = "def mean(values):\n    return math.fsum(values) / len(values)"


@accident
def the_locked_cell_slid_down(nb: Notebook) -> None:
    setup = cell(nb, "setup")
    nb["cells"].remove(setup)
    nb["cells"].append(setup)
    cell(nb, "mean")["source"] = (
        "def mean(values, add=math.fsum):\n    return add(values) / len(values)"
    )


@accident
def the_answers_changed_places(nb: Notebook) -> None:
    a, b = index(nb, "double"), index(nb, "mean")
    nb["cells"][a], nb["cells"][b] = nb["cells"][b], nb["cells"][a]


@accident
def the_answer_slid_behind_its_tests(nb: Notebook) -> None:
    mean = cell(nb, "mean")
    nb["cells"].remove(mean)
    nb["cells"].append(mean)


@accident
def all_tests_were_deleted(nb: Notebook) -> None:
    nb["cells"] = [c for c in nb["cells"] if "-" not in c["id"] or "cell" in c["id"]]


@accident
def the_tests_were_emptied(nb: Notebook) -> None:
    for name in ("double-values", "double-zero", "mean-score"):
        cell(nb, name)["source"] = ""


@accident
def all_metadata_were_lost(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["metadata"] = {}
        del item["id"]


@accident
def everything_was_retyped(nb: Notebook) -> None:
    nb["cells"] = [code(ANSWERS["double"]), code(ANSWERS["mean"])]


@accident
def everything_was_retyped_into_one_cell(nb: Notebook) -> None:
    nb["cells"] = [code(ANSWERS["double"] + "\n\n" + ANSWERS["mean"])]


@accident
def the_ids_were_renamed(nb: Notebook) -> None:
    for number, item in enumerate(nb["cells"]):
        item["id"] = f"renamed-{number}"
        if item["metadata"]:
            item["metadata"]["nbgrader"]["grade_id"] = f"cell{number}"


@accident
def all_cells_have_the_same_id(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["id"] = "same"
        item["metadata"].pop("nbgrader", None)


@accident
def the_ids_are_no_ids(nb: Notebook) -> None:
    for number, item in enumerate(nb["cells"]):
        item["id"] = [None, 7, "with space", "ü" * 100, "", {"a": 1}][number % 6]


@accident
def every_cell_was_tagged(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["metadata"]["tags"] = ["skip-execution", "remove-cell", "raises-exception"]


@accident
def points_and_flags_were_changed(nb: Notebook) -> None:
    for item in nb["cells"]:
        meta = item["metadata"].get("nbgrader")
        if meta:
            meta.update(points=999, grade=False, locked=False, solution=True)


@accident
def an_answer_became_text(nb: Notebook) -> None:
    cell(nb, "double")["cell_type"] = "markdown"


@accident
def an_answer_without_id_became_raw(nb: Notebook) -> None:
    item = cell(nb, "mean")
    item.update(cell_type="raw", id="lost", metadata={})


@accident
def a_broken_experiment_follows_the_tests(nb: Notebook) -> None:
    nb["cells"].append(code("def double(x):\n    return x ** 3  # slower, and wrong"))


@accident
def cells_that_fail_stand_all_around(nb: Notebook) -> None:
    nb["cells"].insert(0, code("1 / 0"))
    nb["cells"].insert(3, code("this is not Python"))
    nb["cells"].insert(6, code("raise SystemExit"))


@accident
def outputs_are_missing(nb: Notebook) -> None:
    for item in nb["cells"]:
        item.pop("outputs", None)
        item.pop("execution_count", None)


@accident
def outputs_are_nonsense(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["outputs"] = {"what": [None, 3]}
        item["execution_count"] = "x"


@accident
def sources_are_lists_of_lines(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["source"] = item["source"].splitlines(keepends=True)


@accident
def sources_are_lists_without_line_ends(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["source"] = item["source"].splitlines()


@accident
def line_ends_are_those_of_windows(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["source"] = item["source"].replace("\n", "\r\n")


@accident
def line_ends_are_those_of_old_macs(nb: Notebook) -> None:
    for item in nb["cells"]:
        item["source"] = item["source"].replace("\n", "\r")


@accident
def the_minor_version_is_wrong(nb: Notebook) -> None:
    nb["nbformat_minor"] = 99


@accident
def the_version_is_missing(nb: Notebook) -> None:
    del nb["nbformat"], nb["nbformat_minor"], nb["metadata"]


@accident
def the_notebook_is_of_version_3(nb: Notebook) -> None:
    cells = nb.pop("cells")
    for item in cells:
        if item["cell_type"] == "code":
            item["input"] = item.pop("source")
            item["language"] = "python"
            item["prompt_number"] = 1
        item.pop("id", None)
    heading = {"cell_type": "heading", "level": 2, "source": "Numbers", "metadata": {}}
    nb.update(nbformat=3, nbformat_minor=0, worksheets=[{"cells": [heading, *cells]}])


@accident
def it_comes_from_colab(nb: Notebook) -> None:
    nb["metadata"] = {"colab": {"provenance": []}, "accelerator": "GPU"}
    for number, item in enumerate(nb["cells"]):
        item["metadata"] = {"id": f"ab{number}XYZ"}
        del item["id"]


@accident
def it_comes_from_vs_code(nb: Notebook) -> None:
    for number, item in enumerate(nb["cells"]):
        item["id"] = f"{number:08x}"
        item["metadata"] = {"vscode": {"languageId": "python"}}


@accident
def magics_stand_in_the_answers(nb: Notebook) -> None:
    nb["cells"].insert(0, code("%matplotlib inline\n!pip install numpy"))


@pytest.mark.parametrize("name", ACCIDENTS)
def test_an_accident_costs_nothing(name: str, course: Course, ps1: AssignmentSpec) -> None:
    notebook = answered(released(ps1))
    ACCIDENTS[name](notebook)
    result = graded(course, ps1, notebook)
    assert {**points(result), "why": None} == FULL


WRITE_AN_ANSWER = {
    "the_answer_was_split",
    "an_import_was_added_to_the_locked_cell",
    "the_locked_cell_was_deleted",
    "the_locked_cell_slid_down",
}


@pytest.mark.parametrize("name", sorted(set(ACCIDENTS) - WRITE_AN_ANSWER))
def test_an_accident_gains_nothing(
    name: str, course: Course, ps1: AssignmentSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"double": "def double(x):\n    return 3 * x", "mean": "def mean(v):\n    return 7.0"}
    notebook = answered(released(ps1), **wrong)
    for function, answer in wrong.items():
        monkeypatch.setitem(ANSWERS, function, answer)
    ACCIDENTS[name](notebook)
    result = graded(course, ps1, notebook)
    assert points(result)["double-values"] == 0.0
    assert points(result)["mean-score"] == 0.0


ENCODINGS: dict[str, Callable[[str], bytes]] = {
    "utf-8 with a mark": lambda text: b"\xef\xbb\xbf" + text.encode(),
    "utf-16 with a mark": lambda text: text.encode("utf-16"),
    "utf-16-le without a mark": lambda text: text.encode("utf-16-le"),
    "utf-16-be without a mark": lambda text: text.encode("utf-16-be"),
    "utf-32": lambda text: text.encode("utf-32"),
    "latin-1": lambda text: text.encode("latin-1"),
    "windows line ends": lambda text: text.replace("\n", "\r\n").encode(),
    "blank lines around": lambda text: f"\n\n{text}\n\n".encode(),
}


@pytest.mark.parametrize("name", ENCODINGS)
def test_any_common_encoding_is_read(name: str, course: Course, ps1: AssignmentSpec) -> None:
    notebook = answered(released(ps1))
    cell(notebook, "double")["source"] += "  # señor, straße"
    text = json.dumps(notebook, ensure_ascii=False, indent=1)
    assert {**points(graded(course, ps1, ENCODINGS[name](text))), "why": None} == FULL


def test_twenty_megabytes_of_outputs_cost_nothing(course: Course, ps1: AssignmentSpec) -> None:
    notebook = answered(released(ps1))
    flood = {"output_type": "stream", "name": "stdout", "text": "x" * 20_000_000}
    cell(notebook, "double")["outputs"] = [flood]
    assert points(graded(course, ps1, notebook)) == FULL


def test_names_survive_even_where_the_format_is_odd(course: Course, ps1: AssignmentSpec) -> None:
    notebook = answered(released(ps1))
    cell(notebook, "double")["source"] += "\n\0"
    cell(notebook, "mean")["source"] += "  # \ud800"
    assert points(graded(course, ps1, notebook)) == FULL


VARIABLE = NotebookSpec(
    "nb",
    (
        SpecCell("limit", "code", "solution", "limit = 3 * 14", "# YOUR CODE HERE"),
        SpecCell("limit-value", "code", "test", "assert limit == 42", "assert limit == 42", 1.0),
    ),
    {},
)


@pytest.mark.parametrize("place", [0, 1])
def test_an_answer_that_is_a_variable_is_found_as_well(place: int) -> None:
    cells = [{"cell_type": "code", "source": "assert limit == 42"}]
    cells.insert(place, {"cell_type": "code", "source": "limit = 42"})
    submitted = read_notebook(json.dumps({"cells": cells}).encode())
    assembly = assemble(VARIABLE, submitted)
    assert [cell.kind for cell in assembly.job_cells()] == ["student", "test"]
    assert assembly.unanswered == ()


# --- texts that a person grades ------------------------------------------------------------------


def placed(result_cells: list[Notebook], cell_id: str) -> Notebook:
    return next(c for c in result_cells if c["id"] == cell_id)


def test_a_text_answer_that_lost_its_id_is_found_by_its_neighbour(
    course: Course, ps1: AssignmentSpec
) -> None:
    notebook = answered(released(ps1))
    cell(notebook, "why").update(id="lost", metadata={})
    result = graded(course, ps1, notebook)
    assert placed(result.cells, "why")["source"] == ANSWERS["why"]
    assert points(result)["why"] is None


def test_a_text_answer_that_is_missing_is_put_back_empty(
    course: Course, ps1: AssignmentSpec
) -> None:
    notebook = answered(released(ps1))
    notebook["cells"].remove(cell(notebook, "why"))
    result = graded(course, ps1, notebook)
    assert placed(result.cells, "why")["source"] == "YOUR ANSWER HERE"
    assert points(result)["why"] == 0.0


def test_pictures_pasted_into_a_text_stay(course: Course, ps1: AssignmentSpec) -> None:
    notebook = answered(released(ps1))
    picture = {"plot.png": {"image/png": "iVBORw0KGgo="}}
    cell(notebook, "why")["attachments"] = picture
    result = graded(course, ps1, notebook)
    assert placed(result.cells, "why")["attachments"] == picture


# --- what the notebook that is graded looks like -------------------------------------------------


def test_tests_come_from_the_source_whatever_was_handed_in(
    course: Course, ps1: AssignmentSpec
) -> None:
    notebook = answered(released(ps1))
    cell(notebook, "double-values")["source"] = "pass"
    result = graded(course, ps1, notebook)
    test = placed(result.cells, "double-values")
    assert test["source"] == ps1.notebooks[0]["double-values"].source
    assert test["metadata"]["nbgrader"]["points"] == 2.0


def test_every_cell_of_the_graded_notebook_has_its_own_valid_id(
    course: Course, ps1: AssignmentSpec
) -> None:
    import nbformat

    notebook = answered(released(ps1))
    for edit in (every_cell_was_tagged, the_answer_cell_was_copied, the_ids_are_no_ids):
        edit(notebook)
    cells = graded(course, ps1, notebook).cells
    whole = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    nbformat.validate(whole)
    assert len({c["id"] for c in cells}) == len(cells)


def test_repairs_are_noted(course: Course, ps1: AssignmentSpec) -> None:
    notebook = answered(released(ps1))
    everything_was_retyped(notebook)
    notes = "\n".join(graded(course, ps1, notebook).notes)
    assert "cell double had lost its id and was found by" in notes


def test_an_unanswered_exercise_says_so(course: Course, ps1: AssignmentSpec) -> None:
    result = graded(course, ps1, released(ps1))
    assert result.unanswered == ["double", "mean", "why"]
    assert {record.reason for record in result.records} == {"not-implemented", "no-answer"}


# --- properties ----------------------------------------------------------------------------------


@st.composite
def shuffles(draw: st.DrawFn, size: int = 12) -> list[Any]:
    """Draw what happens to each cell: its new place, and what it loses."""
    places = draw(st.permutations(range(size)))
    losses = draw(st.lists(st.sampled_from("none id meta both copy".split()), min_size=size,
                           max_size=size))  # fmt: skip
    return list(zip(places, losses, strict=True))


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(shuffle=shuffles())
def test_any_order_and_any_loss_of_ids_gives_full_marks(
    shuffle: list[Any], course: Course, ps1: AssignmentSpec
) -> None:
    notebook = answered(released(ps1))
    cells = notebook["cells"]
    moved = []
    for (place, loss), item in zip(shuffle, cells, strict=False):
        item = copy.deepcopy(item)
        if loss in ("id", "both"):
            item.pop("id")
        if loss in ("meta", "both"):
            item["metadata"] = {}
        moved.append((place, item))
        if loss == "copy":
            moved.append((place + 0.5, copy.deepcopy(item)))
    notebook["cells"] = [item for _, item in sorted(moved, key=lambda pair: pair[0])]
    got = points(graded(course, ps1, notebook))
    assert {**got, "why": None} == FULL


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
cell_like = st.fixed_dictionaries(
    {},
    optional={
        "cell_type": st.sampled_from(["code", "markdown", "raw", "heading", 3, None]),
        "source": json_values,
        "input": json_values,
        "id": json_values,
        "level": st.integers() | st.none(),
        "metadata": json_values | st.fixed_dictionaries({"nbgrader": json_values}),
        "attachments": json_values,
        "outputs": json_values,
    },
)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cells=st.lists(cell_like | json_values, max_size=8))
def test_no_json_breaks_intake(cells: list[Any], ps1: AssignmentSpec) -> None:
    data = json.dumps({"cells": cells}).encode()
    assembly = assemble(ps1.notebooks[0], read_notebook(data))
    assert isinstance(assembly, Assembly)
    assert {c.id for c in assembly.cells if c.kind == "test"} == {
        t.id for t in ps1.notebooks[0].tests
    }


@settings(max_examples=80, deadline=None)
@given(data=st.binary(max_size=300))
def test_no_bytes_break_intake(data: bytes) -> None:
    from headmaster.records import REASONS, Refused

    try:
        read_notebook(data)
    except Refused as refused:
        assert refused.code in REASONS
        assert refused.message.endswith(".")
