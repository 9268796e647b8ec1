"""The interactive figures, by keyboard, on a page that holds all of them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from browsing import ROOT, Watched, violations
from playwright.sync_api import Locator, Page, expect

from manyheads import interactive

FIGURES = {
    "mask-painter": {
        "tokens": "the cat sat on the mat".split(),
        "kinds": ["causal", "window", "blocks", "global"],
        "start": "causal",
    },
    "reshape-stepper": {"tokens": 3, "heads": 2, "width": 4},
    "temperature": {"scores": [8, 5, 2], "labels": ["cat", "dog", "mat"], "d_k": 16},
    "online-softmax": {
        "scores": [1, 3, 2, 6, 0, 4],
        "values": [10, 20, 30, 40, 50, 60],
        "tile": 2,
    },
}


def as_html(kind: str) -> str:
    options = json.dumps(FIGURES[kind]).replace('"', "&quot;")
    return (
        f'<div class="widget" data-figure="{kind}" data-options="{options}">'
        '<div class="widget__still"></div></div>'
    )


@pytest.fixture(scope="module")
def bench(folder: Path) -> Iterator[str]:
    """A page of the built site whose article holds all the figures."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet([0.3] * 4, size=(3, 4))  # (h, n, m)
    figures = [interactive.heads(weights, ["a", "b", "c", "d"], title="Three heads")._repr_html_()]
    figures += [as_html(kind) for kind in FIGURES]
    page = (folder / "book/students.html").read_text("utf8")
    article = '<article class="article"><h1>Figures</h1>' + "".join(figures) + "</article>"
    page = re.sub(r"<article.*?</article>", lambda _: article, page, flags=re.S)
    path = folder / f"book/figures-under-test-{os.getpid()}.html"  # pytest-xdist has several
    path.write_text(page, "utf8")
    yield f"book/{path.name}"
    path.unlink()


def figure(page: Page, kind: str) -> Locator:
    found = page.locator(f"[data-figure='{kind}']")
    expect(found.locator(".widget__stage")).to_be_visible()
    return found


def test_all_figures_live_without_errors_and_are_accessible(watched: Watched, bench: str) -> None:
    page = watched.open(bench)
    for kind in ["attention-map", *FIGURES]:
        figure(page, kind)
    assert not violations(page)
    assert not watched.errors


def test_the_attention_map_by_keyboard(watched: Watched, bench: str) -> None:
    page = watched.open(bench)
    shown = figure(page, "attention-map")
    first = shown.locator("td.heat__cell").first
    before = first.inner_text()
    shown.get_by_role("radio").first.focus()
    page.keyboard.press("ArrowRight")
    expect(shown.get_by_role("radio").nth(1)).to_be_checked()
    assert first.inner_text() != before or shown.locator("td").nth(3).inner_text()
    first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    expect(shown.get_by_role("status")).to_contain_text("Head 2: “b” gives “b” the weight")


def test_the_mask_painter_by_keyboard(watched: Watched, bench: str) -> None:
    page = watched.open(bench)
    shown = figure(page, "mask-painter")
    count = shown.locator(".widget__count")
    expect(count).to_contain_text("21 of 36 pairs allowed")
    shown.locator("td.heat__cell").first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    expect(count).to_contain_text("22 of 36")
    expect(shown.get_by_role("status")).to_have_text("“the” may attend to “cat”.")
    shown.get_by_role("checkbox", name="Window").focus()
    page.keyboard.press("Space")
    expect(count).to_contain_text("11 of 36")  # causal and at most one back: 6 + 5
    shown.get_by_label("Reach").focus()
    page.keyboard.press("ArrowRight")
    expect(count).to_contain_text("15 of 36")


def test_the_reshape_stepper_by_keyboard(watched: Watched, bench: str) -> None:
    page = watched.open(bench)
    shown = figure(page, "reshape-stepper")
    shown.get_by_role("button", name="Next").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(shown.locator("code")).to_have_text("x.reshape(3, 2, 2).transpose(1, 0, 2)")
    head = shown.locator("table.chips").first
    expect(head.locator("td")).to_have_text(["0", "1", "4", "5", "8", "9"])
    page.keyboard.press("Enter")
    expect(shown.get_by_role("status")).to_contain_text("The mistake")
    expect(shown.locator("table.chips").first.locator("td")).to_have_text(list("012345"))
    expect(shown.get_by_role("button", name="Back")).to_be_focused()


def test_the_temperature_by_keyboard(watched: Watched, bench: str) -> None:
    page = watched.open(bench)
    shown = figure(page, "temperature")
    count = shown.locator(".widget__count")
    weights = np.exp(np.array([8, 5, 2]) / 4)
    weights /= weights.sum()
    expect(shown.locator("tbody tr").first).to_contain_text(f"{weights[0]:.3f}")
    before = count.inner_text()
    shown.get_by_label("Scores divided by").focus()
    page.keyboard.press("ArrowLeft")
    expect(count).not_to_have_text(before)
    shown.get_by_role("button", name="1", exact=True).press("Enter")
    expect(shown.locator("output")).to_have_text("1: not scaled")


def test_the_online_softmax_by_keyboard_ends_at_the_right_output(
    watched: Watched, bench: str
) -> None:
    page = watched.open(bench)
    shown = figure(page, "online-softmax")
    shown.get_by_role("button", name="Next").focus()
    for _ in range(3):
        page.keyboard.press("Enter")
    scores, values = (np.array(FIGURES["online-softmax"][k]) for k in ("scores", "values"))
    weights = np.exp(scores - scores.max())
    expected = weights @ values / weights.sum()
    expect(shown.locator("table").nth(1).locator("td").last).to_have_text(f"{expected:.4f}")
    expect(shown.get_by_role("status")).to_contain_text("the same as from one softmax")


def test_the_stills_of_a_page_say_the_same_without_a_script(folder: Path) -> None:
    page = (folder / "book/02_scaled_dot_product.html").read_text("utf8")
    for kind in re.findall(r'data-figure="([\w-]+)"', page):
        assert kind in {"attention-map", *FIGURES}
    assert "pairs allowed" in page


def test_the_heads_of_a_cell_check_their_arguments() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        interactive.heads(np.ones((2, 3, 3)) / 3, ["a", "b"])
    with pytest.raises(ValueError, match="between 0 and 1"):
        interactive.heads(np.full((2, 2), 1.5), ["a", "b"])


def test_nothing_here_depends_on_where_the_repository_lies(folder: Path) -> None:
    for script in (folder / "_static/js").rglob("*.js"):
        assert str(ROOT) not in script.read_text("utf8")
