"""A graded exercise, solved in the page and taken along as the notebook that will be graded."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import jupytext
import pytest
from browsing import ROOT, Watched, violations
from playwright.sync_api import Locator, Page, expect

EXERCISE = "exercises/02_scaled_dot_product/scaled_dot_product.html"
NOTEBOOK = ROOT / "exercises/02_scaled_dot_product/scaled_dot_product.ipynb"
SLOW = 90_000

SCORES = """def attention_scores(Q, K):
    if Q.shape[:-2] != K.shape[:-2] or Q.shape[-1] != K.shape[-1]:
        raise ValueError("these do not fit")
    return Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
"""
CAUSAL = """def causal_mask(n, m=None):
    m = n if m is None else m
    return np.arange(m)[None, :] <= np.arange(n)[:, None] + (m - n)
"""
PADDING = """def padding_mask(lengths, m):
    return np.arange(m)[None, None, :] < np.asarray(lengths)[:, None, None]
"""
ATTENTION = """def attention(Q, K, V, mask=None):
    scores = attention_scores(Q, K)
    if K.shape[:-1] != V.shape[:-1]:
        raise ValueError("these do not fit")
    if mask is None:
        weights = softmax(scores)
    else:
        allowed = np.broadcast_to(mask, scores.shape)
        weights = softmax(np.where(allowed, scores, -1e300)) * allowed
    return weights @ V, weights
"""
BROKEN = """def break_clever_attention():
    return "C4", [[False] * 3, [True] * 3, [True] * 3]
"""
WRONG_CAUSAL = CAUSAL.replace("<=", "<")


def holding(page: Page, grade_id: str) -> Locator:
    """The cell of the page that belongs to a cell of the notebook."""
    notebook = json.loads(NOTEBOOK.read_text("utf8"))
    ids = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in notebook["cells"]]
    return page.locator(f".cell.cell-{ids.index(grade_id)}")


def write(page: Page, grade_id: str, text: str) -> None:
    cell = holding(page, grade_id)
    cell.get_by_role("button", name="Edit").click()
    cell.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(text)


def check(page: Page, grade_id: str) -> Locator:
    """Run a check; the output below it."""
    cell = holding(page, grade_id)
    cell.get_by_role("button", name="Check").click()
    expect(cell.locator(".cell-bar__run")).to_have_text("Check", timeout=SLOW)
    return cell.locator(".live-output")


def download(page: Page, folder: Path) -> dict:
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Download my notebook").click()
    assert waiting.value.suggested_filename == NOTEBOOK.name
    target = folder / NOTEBOOK.name
    waiting.value.save_as(target)
    return json.loads(target.read_text("utf8"))


def skeleton(notebook: dict) -> list:
    """Everything of a notebook but the sources that a student writes."""
    cells = []
    for cell in notebook["cells"]:
        solution = cell["metadata"].get("nbgrader", {}).get("solution")
        cells.append({**cell, "source": None} if solution else cell)
    return [cells, notebook["metadata"], notebook["nbformat"], notebook["nbformat_minor"]]


def test_the_page_shows_points_and_progress_before_any_click(watched: Watched) -> None:
    page = watched.open(EXERCISE)
    expect(page.locator(".exercise__count")).to_contain_text("0 of")
    expect(holding(page, "attention_scores-values").locator(".cell-bar__points")).to_be_visible()
    assert not [url for url in watched.asked if "pyodide" in url]
    assert not watched.errors


def test_a_function_that_is_not_written_fails_kindly(watched: Watched) -> None:
    page = watched.open(EXERCISE)
    output = check(page, "attention_scores-values")
    expect(output).to_contain_text("not written yet")
    expect(output).not_to_contain_text("Traceback")


def test_a_right_function_passes_and_counts(watched: Watched) -> None:
    page = watched.open(EXERCISE)
    write(page, "attention_scores", SCORES)
    expect(check(page, "attention_scores-values")).to_contain_text("✓")
    expect(page.locator(".sentence--holds").first).to_be_visible()
    assert not watched.errors
    assert not watched.strangers


def test_a_wrong_function_gets_its_diagnosis(watched: Watched) -> None:
    page = watched.open(EXERCISE)
    write(page, "causal_mask", WRONG_CAUSAL)
    output = check(page, "causal_mask-square")
    expect(output).to_contain_text("✗")
    expect(output).to_contain_text("hides a query's own position")
    expect(page.locator(".sentence--fails").first).to_be_visible()
    assert not violations(page)
    page.emulate_media(color_scheme="dark")
    assert not violations(page)


def test_the_answer_cannot_be_imported(watched: Watched) -> None:
    page = watched.open(EXERCISE)
    write(page, "attention_scores", "from manyheads.scaled_dot_product import attention_scores")
    page.keyboard.press("Shift+Enter")
    error = holding(page, "attention_scores").locator(".live-error")
    expect(error).to_contain_text("it is what you write here", timeout=SLOW)


def test_work_survives_a_reload_and_the_download_keeps_what_grading_needs(
    watched: Watched, tmp_path: Path
) -> None:
    page = watched.open(EXERCISE)
    write(page, "causal_mask", CAUSAL)
    page.locator(".cell-kind-answer textarea").fill("Because the variance grows with d_k.")
    page.reload()
    expect(holding(page, "causal_mask").locator("pre").first).to_contain_text("np.arange(m)")
    mine = download(page, tmp_path)
    released = json.loads(NOTEBOOK.read_text("utf8"))
    assert skeleton(mine) == skeleton(released)
    sources = {
        cell["metadata"]["nbgrader"]["grade_id"]: "".join(cell["source"])
        for cell in mine["cells"]
        if "nbgrader" in cell["metadata"]
    }
    assert sources["causal_mask"] == CAUSAL
    assert sources["scaled_dot_product-question"] == "Because the variance grows with d_k."
    assert "NotImplementedError" in sources["attention_scores"]


def test_a_notebook_from_jupyter_goes_on_in_the_page_and_comes_back_whole(
    watched: Watched, tmp_path: Path
) -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf8"))
    for cell in notebook["cells"]:
        if cell["metadata"].get("nbgrader", {}).get("grade_id") == "causal_mask":
            cell["source"] = CAUSAL.splitlines(keepends=True)
    notebook["cells"].insert(
        2, {"cell_type": "markdown", "id": "mine", "metadata": {}, "source": ["my notes"]}
    )
    theirs = tmp_path / "theirs.ipynb"
    theirs.write_text(json.dumps(notebook), "utf8")
    page = watched.open(EXERCISE)
    page.get_by_label("A notebook of this exercise").set_input_files(theirs)
    expect(page.locator(".exercise__say")).to_contain_text("answers are in the page now")
    expect(holding(page, "causal_mask").locator("pre").first).to_contain_text("np.arange(m)")
    back = download(page, tmp_path)
    assert [cell["id"] for cell in back["cells"]] == [cell["id"] for cell in notebook["cells"]]


@pytest.mark.parametrize(
    ("content", "told"),
    [("not json", "is no Jupyter notebook"), ('{"cells": []}', "another exercise")],
)
def test_a_file_that_is_no_notebook_of_this_exercise_is_refused(
    watched: Watched, tmp_path: Path, content: str, told: str
) -> None:
    page = watched.open(EXERCISE)
    wrong = tmp_path / "wrong.ipynb"
    wrong.write_text(content)
    page.get_by_label("A notebook of this exercise").set_input_files(wrong)
    expect(page.locator(".exercise__say")).to_contain_text(told)


def test_starting_over_asks_first(watched: Watched) -> None:
    page = watched.open(EXERCISE)
    write(page, "causal_mask", CAUSAL)
    page.get_by_role("button", name="Start over").click()
    expect(holding(page, "causal_mask").locator(".cm-content")).to_contain_text("np.arange(m)")
    page.get_by_role("button", name="Yes, throw my work away").click()
    expect(holding(page, "causal_mask").locator(".cm-content")).to_contain_text("YOUR CODE HERE")


def test_the_download_grades_as_if_made_in_jupyter(watched: Watched, tmp_path: Path) -> None:
    page = watched.open(EXERCISE)
    for grade_id, text in {
        "attention_scores": SCORES,
        "causal_mask": CAUSAL,
        "padding_mask": PADDING,
        "attention": ATTENTION,
        "break_clever_attention": BROKEN,
    }.items():
        write(page, grade_id, text)
    page.get_by_role("button", name="Check everything").click()
    expect(page.locator(".exercise__say")).to_contain_text("checks pass", timeout=3 * SLOW)
    count = page.locator(".exercise__count").inner_text().split()
    assert count[0] == count[2], "every sentence holds"

    course = tmp_path / "course"
    submitted = course / "build/class/submitted/ada/02_scaled_dot_product"
    submitted.mkdir(parents=True)
    download(page, submitted)
    shutil.copy(ROOT / "nbgrader_config.py", course)
    for name in ("solutions", "tests", "manyheads"):
        (course / name).symlink_to(ROOT / name)
    tool = [sys.executable, "-m", "headmaster"]
    for command in (["release", "02_scaled_dot_product"], ["grade", "02_scaled_dot_product"]):
        done = subprocess.run(
            [*tool, *command], cwd=course, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    with sqlite3.connect(course / "build/class/gradebook.db") as gradebook:
        [(scored, possible)] = gradebook.execute(
            "select sum(grade.auto_score), sum(grade_cells.max_score) from grade"
            " join grade_cells on grade.cell_id = grade_cells.id"
            " join base_cell on base_cell.id = grade_cells.id"
            " where base_cell.name not like '%-question'"
        ).fetchall()
    assert (scored, possible) == (18, 18)


EXERCISES = sorted(path.relative_to(ROOT) for path in (ROOT / "exercises").glob("*/*.ipynb"))


def solved(exercise: Path) -> dict:
    """The released notebook with the course's own answers in it."""
    source = ROOT / "solutions" / exercise.parent.name / f"{exercise.stem}.md"
    answers = {
        cell.metadata["nbgrader"]["grade_id"]: cell.source
        for cell in jupytext.read(source).cells
        if cell.metadata.get("nbgrader", {}).get("solution")
    }
    notebook = json.loads((ROOT / exercise).read_text("utf8"))
    for cell in notebook["cells"]:
        grade_id = cell["metadata"].get("nbgrader", {}).get("grade_id")
        if grade_id in answers:
            cell["source"] = answers[grade_id].splitlines(keepends=True)
    return notebook


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda path: path.stem)
def test_every_exercise_can_be_solved_in_the_page(
    watched: Watched, folder: Path, tmp_path: Path, exercise: Path
) -> None:
    if not (folder / exercise.with_suffix(".html")).is_file():
        pytest.skip("this edition leaves the chapter out")
    page = watched.open(exercise.with_suffix(".html").as_posix())
    theirs = tmp_path / exercise.name
    theirs.write_text(json.dumps(solved(exercise)), "utf8")
    page.get_by_label("A notebook of this exercise").set_input_files(theirs)
    expect(page.locator(".exercise__say")).to_contain_text("answers are in the page now")
    page.get_by_role("button", name="Check everything").click()
    expect(page.locator(".exercise__say")).to_contain_text("checks pass", timeout=6 * SLOW)
    ask = page.get_by_role("button", name="Load the model")
    if ask.count():  # the capstone carries the real model
        ask.click()
        passed = page.locator(".cell-kind-check.has-passed", has_text="minilm.load()")
        expect(passed).to_be_visible(timeout=4 * SLOW)
    failed = page.locator(".cell.has-failed .live-output").all_inner_texts()
    assert failed == []
    held, of, total, *_ = page.locator(".exercise__count").inner_text().split()
    assert (held, of) == (total, "of")
