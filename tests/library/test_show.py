"""The course's figures: what they draw, what they say, and what the page may do with them."""

import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from manyheads import show

WEIGHTS = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])


def svg_of(picture: show.Picture) -> list[ElementTree.Element]:
    page = picture._repr_html_()
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.S)]


def words_in(svg: ElementTree.Element) -> set[str]:
    return {
        "".join(text.itertext()).strip() for text in svg.iter("{http://www.w3.org/2000/svg}text")
    }


def test_a_heat_map_needs_no_matplotlib():
    code = """
import sys
import numpy as np
from manyheads import show
show.weights(np.ones((2, 2)) / 2)._repr_html_()
sys.exit("matplotlib" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_a_figure_is_an_image_with_a_description():
    (svg,) = svg_of(show.weights(WEIGHTS, ["a", "b"], ["x", "y", "z"], title="Who looks where"))
    assert svg.get("role") == "img"
    assert "a to x 0.70; b to z 0.50" in svg.get("aria-label")
    assert svg.get("aria-label").startswith("Who looks where. ")


def test_labels_and_numbers_stand_in_the_figure():
    (svg,) = svg_of(show.weights(WEIGHTS, ["a", "b"], ["x", "y", "z"]))
    assert {"a", "b", "x", "y", "z", "queries", "keys", "0.70", "0.25"} <= words_in(svg)


def test_queries_are_rows_and_keys_are_columns():
    (svg,) = svg_of(show.weights(WEIGHTS, ["a", "b"], ["x", "y", "z"]))
    width, height = (float(svg.get("viewBox").split()[k]) for k in (2, 3))
    assert width > height  # two rows, three columns


def test_labels_that_markup_would_swallow_are_escaped():
    (svg,) = svg_of(show.weights(WEIGHTS, ["<s>", "&"], ["x", 'y"', "z"]))
    assert {"<s>", "&", 'y"'} <= words_in(svg)
    assert "<s> to x" in svg.get("aria-label")


def test_text_takes_the_colour_and_the_font_of_the_page():
    lines = show.lines([1, 2], {"y": [1, 2], "z": [2, 1]}, xlabel="$x$", ylabel="y")
    for page in (show.weights(WEIGHTS)._repr_html_(), lines._repr_html_()):
        assert "currentColor" in page
        for own in (show.TEXT, show.PAPER, show.INK, "DejaVu", "font-family"):
            assert own not in page


def test_other_axes_have_their_own_names():
    picture = show.weights(WEIGHTS, axes=("factor", "score"))
    assert {"factor", "score"} <= words_in(svg_of(picture)[0])
    assert "2 rows (factor) by 3 columns (score)" in picture.alt


def test_a_weight_is_as_opaque_as_it_is_large():
    page = show.weights(np.array([[0.25, 0.75]]), numbers=False)._repr_html_()
    assert 'fill-opacity="0.25"' in page and 'fill-opacity="0.75"' in page


def test_hidden_keys_are_crossed_out_not_only_coloured():
    mask = np.array([[True, False, True], [True, True, True]])
    plain = show.weights(WEIGHTS)._repr_html_()
    crossed = show.weights(WEIGHTS, mask=mask)._repr_html_()
    assert crossed.count("<path") == plain.count("<path") + 1


def test_numbers_below_zero_have_another_colour_and_a_sign():
    picture = show.matrix(np.array([[1.5, -2.25]]))
    assert "−2.25" in words_in(svg_of(picture)[0])
    assert "--mh-ink-2" in picture._repr_html_()


@pytest.mark.parametrize("value, word", [(np.nan, "NaN"), (np.inf, "∞"), (-np.inf, "−∞")])
def test_what_is_no_number_is_written_out(value, word):
    (svg,) = svg_of(show.matrix(np.array([[1.0, value]])))
    assert word in words_in(svg)


def test_a_row_that_is_no_number_is_said_to_be_none():
    assert "b: not a number" in show.weights(np.array([[0.5, 0.5], [np.nan] * 2]), "ab").alt


def test_a_matrix_of_nothing_but_nan_can_be_shown():
    assert show.weights(np.full((2, 2), np.nan), "ab").alt.endswith("b: not a number.")


def test_a_mask_says_which_keys_each_query_sees():
    alt = show.mask(np.array([[False, False], [True, False]]), ["a", "b"]).alt
    assert alt == (
        "Mask of 2 queries and 2 keys, 1 pairs allowed: query a sees nothing; query b sees a."
    )


def test_panels_side_by_side_share_one_scale_and_have_a_description_each():
    picture = show.side_by_side({"right": WEIGHTS, "wrong": 2 * WEIGHTS})
    assert [svg.get("aria-label").split(".")[0] for svg in svg_of(picture)] == ["right", "wrong"]
    assert 'fill-opacity="0.5"' in picture._repr_html_()  # 0.7 of the largest, 1.4


def test_pictures_in_a_row_keep_their_panels_and_descriptions():
    one, two = show.weights(WEIGHTS, title="one"), show.mask(WEIGHTS > 0.2, title="two")
    assert show.row([one, two]).alts == (one.alt, two.alt)
    assert len(svg_of(show.row([one, two]))) == 2


def test_lines_say_where_they_start_and_end():
    alt = show.lines(
        [2, 4], {"grows": [2, 4], "stays": [1, 1]}, xlabel="$d_k$", ylabel="variance"
    ).alt
    assert alt == (
        "variance against d_k: grows goes from 2 at 2 to 4 at 4; stays goes from 1 at 2 to 1 at 4."
    )


def test_more_lines_than_can_be_told_apart_are_refused():
    with pytest.raises(ValueError, match="5 lines"):
        show.lines([1], {str(k): [k] for k in range(5)}, xlabel="x", ylabel="y")


def test_a_plot_of_ones_own_needs_a_description():
    figure, ax = show.canvas()
    ax.plot([1, 2], label="mine")
    ax.legend()
    with pytest.raises(ValueError, match="what does it show"):
        show.picture(figure, " ")
    assert "mine" in words_in(svg_of(show.picture(figure, "A line."))[0])


def test_two_figures_on_a_page_share_no_id():
    page = "".join(
        show.lines([1, 2], {"y": [1, k]}, xlabel="x", ylabel="y")._repr_html_() for k in (2, 3)
    )
    ids = re.findall(r' id="([^"]+)"', page)
    assert ids and len(ids) == len(set(ids))
    for name in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert name in ids


def test_the_same_figure_is_the_same_text():
    assert show.weights(WEIGHTS)._repr_html_() == show.weights(WEIGHTS)._repr_html_()


def test_a_terminal_reads_the_description():
    assert repr(show.weights(WEIGHTS)).startswith("Figure: Heat map of weights, 2 queries")


def test_drawing_leaves_matplotlib_as_it_was():
    import matplotlib

    before = dict(matplotlib.rcParams)
    show.lines([1, 2], {"y": [1, 2]}, xlabel="x", ylabel="y")._repr_html_()
    assert dict(matplotlib.rcParams) == before


def test_drawing_does_not_change_what_is_drawn():
    values = np.array([[0.5, -np.inf], [np.nan, 1.0]])
    before = values.tobytes()
    show.matrix(values)._repr_html_()
    assert values.tobytes() == before


@pytest.mark.parametrize(
    "call",
    [
        lambda: show.weights(np.zeros((2, 2, 2))),
        lambda: show.weights(WEIGHTS, ["only one"]),
        lambda: show.weights(WEIGHTS, ["a", "b"], ["too", "few"]),
        lambda: show.mask(np.ones((2, 2))),
        lambda: show.lines([1, 2], {"y": [1]}, xlabel="x", ylabel="y"),
        lambda: show.table(["a", "b"], [["1"]]),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(ValueError):
        call()


def test_a_table_is_a_table_and_a_terminal_aligns_it():
    table = show.table(["n", "time"], [["128", "3 ms"], ["2", "<1 ms"]])
    assert re.search(r'<th scope="row"[^>]*>128</th><td[^>]*>3 ms</td>', table._repr_html_())
    assert "&lt;1 ms" in table._repr_html_()
    assert repr(table) == "n    time\n128  3 ms\n2    <1 ms"


def test_columns_of_numbers_are_set_flush_right():
    page = show.table(["what", "time"], [["loop", "× 1.5"], ["product", "<1 ms"]])._repr_html_()
    assert re.findall(r"text-align:(\w+)", page) == ["left", "right"] * 3
