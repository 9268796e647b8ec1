"""What a student reads: reports of `check`, in a terminal and in a notebook."""

import numpy as np
import pytest

from manyheads.check import CheckFailed, check, contract, contract_table, report
from manyheads.check.comparison import compare
from manyheads.check.diagnosis import match
from manyheads.check.example import Example, run
from manyheads.matrices import softmax
from manyheads.scaled_dot_product import attention as right_attention
from manyheads.scaled_dot_product import causal_mask as right_causal_mask


def attention_of(weights_of_scores):
    """An attention that only differs in how weights come from scores."""

    def attention(Q, K, V, mask=None):
        scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
        if mask is not None:
            scores = np.where(mask, scores, -1e9)
        weights = weights_of_scores(scores)
        return weights @ V, weights

    return attention


def failure_of(function, idea=None, name=None):
    with pytest.raises(CheckFailed) as caught:
        check(function, idea, name=name)
    return caught.value


def test_a_right_function_is_told_which_sentences_hold(capsys):
    check(right_causal_mask, "square")
    said = capsys.readouterr().out
    assert said.startswith("causal_mask, square\n  ✓ C1 ")
    assert "✗" not in said


def test_the_report_names_the_misconception_whose_numbers_these_are():
    error = failure_of(attention_of(lambda scores: softmax(scores, axis=-2)), "values")
    assert error.record["misconception"] == "A13-softmax-over-queries"
    text = str(error)
    assert "✗ C1" in text
    assert "expected:" in text
    assert "yours:" in text
    assert "Your columns sum to 1" in text


def test_mistakes_that_agree_on_an_example_are_told_apart_by_the_others():
    def by_hand(x):
        e = np.exp(x)
        return e / e.sum(axis=-1, keepdims=True)

    def attention(Q, K, V, mask=None):
        scores = Q @ np.swapaxes(K, -1, -2) / np.sqrt(Q.shape[-1])
        weights = by_hand(scores if mask is None else np.where(mask, scores, -np.inf))
        return weights @ V, weights

    # Whoever divides the scores by their sum gets NaN there, too, but nothing right elsewhere.
    error = failure_of(attention, "nothing")
    assert error.record["misconception"] == "B31-nan-rows"


def test_an_error_that_many_mistakes_end_in_names_none_of_them():
    def split_heads(x, num_heads):
        raise ValueError("the heads do not divide the width")

    assert failure_of(split_heads, "values").record["misconception"] == ""


def test_an_error_names_a_mistake_that_says_the_same_and_no_other():
    example = Example("C1", "f(1)")
    got, same_, other = (
        run(example, {"f": failing})
        for failing in (
            lambda x: np.ones((2, 3)) @ np.ones((2, 3)),
            lambda x: np.ones((4, 5)) @ np.ones((4, 5)),
            lambda x: np.ones(2).reshape(3, 3),
        )
    )
    trials = [(example, got, True)]
    assert match(trials, ["other"], lambda name, index: other) is None
    assert match(trials, ["other", "same"], lambda n, i: same_ if n == "same" else other) == "same"


def test_an_unknown_mistake_gets_the_most_telling_difference():
    error = failure_of(attention_of(lambda scores: 0.5 * softmax(scores)), "values")
    assert error.record["misconception"] == ""
    assert "sums to 0.5" in str(error)


def test_a_right_function_is_never_named_a_misconception():
    for name, function in (("attention", right_attention), ("causal_mask", right_causal_mask)):
        assert report(contract.functions()[name], function).passed


def test_an_unwritten_function_is_said_to_be_unwritten_and_nothing_else():
    def causal_mask(n, m=None):
        raise NotImplementedError

    assert str(failure_of(causal_mask)) == "causal_mask is not written yet."


def test_an_exception_shows_the_lines_of_the_student_only():
    def causal_mask(n, m=None):
        return np.tril(np.ones((n, missing_name)))  # noqa: F821

    text = str(failure_of(causal_mask, "square"))
    assert "NameError" in text
    assert "missing_name" in text
    assert "example.py" not in text
    assert "site-packages" not in text


def test_a_broken_function_that_another_one_calls_is_named_as_the_cause():
    space = {"np": np, "softmax": softmax, "check": check}
    exec(
        "def attention_scores(Q, K):\n    return Q @ np.swapaxes(K, -1, -2) * 3\n"
        "def attention(Q, K, V, mask=None):\n"
        "    weights = softmax(attention_scores(Q, K))\n    return weights @ V, weights\n",
        space,
    )
    with pytest.raises(CheckFailed, match="Your `attention_scores` fails its own check"):
        exec("check(attention, 'values')", space)


def test_something_that_is_no_function_gets_a_sentence():
    with pytest.raises(TypeError, match="without calling it"):
        check(right_causal_mask(3))


def test_an_unknown_idea_or_function_lists_what_there_is():
    with pytest.raises(ValueError, match=r"'square', 'aligned'"):
        check(right_causal_mask, "squares")
    with pytest.raises(ValueError, match="'causal_mask'"):
        check(np.tril)


def test_a_function_of_another_name_can_be_checked():
    check(lambda n, m=None: right_causal_mask(n, m), "square", name="causal_mask")


def test_the_html_marks_wrong_entries_by_more_than_colour():
    error = failure_of(attention_of(lambda scores: softmax(scores, axis=-2)), "values")
    html = error.report._repr_html_()
    assert "✗</td>" in html
    assert "aria-label='does not hold'" in html
    assert "<script" not in html


def test_the_html_escapes_what_a_student_returns():
    html = failure_of(
        lambda n, m=None: "<script>x</script>", "square", "causal_mask"
    ).report._repr_html_()
    assert "<script>" not in html


def test_reports_hold_no_terminal_colours():
    assert "\x1b" not in str(failure_of(attention_of(np.exp), "values"))


def test_ipython_shows_one_line_instead_of_a_traceback():
    error = failure_of(attention_of(np.exp), "values")
    (line,) = error._render_traceback_()
    assert line.startswith("attention, values: C1 does not hold")


def test_inputs_that_are_changed_are_noticed():
    def causal_scores(Q, K):
        Q -= 1
        return Q

    outcome = run(
        Example("C1", "f(Q, K)", {"Q": np.ones(2), "K": np.ones(2)}), {"f": causal_scores}
    )
    assert outcome.changed == ("Q",)


def test_a_contract_can_be_shown_in_a_page():
    table = contract_table("02_scaled_dot_product", "causal_mask")
    assert "C1" in str(table)
    assert "<details>" in table._repr_html_()


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (np.ones((2, 3)), [[1, 1, 1], [1, 1, 1]]),
        (np.ones((2, 3)), np.ones((2, 3), dtype=np.float32)),
        (np.ones((2, 3)), np.asfortranarray(np.ones((2, 3)))),
        ((np.ones(2), np.zeros(1)), [[1, 1], [0.0]]),
        (np.array([True]), [True]),
        (np.array([-np.inf, 1.0]), np.array([-np.inf, 1.0])),
        ("uniform", "uniform"),
        (["a", "b"], np.array(["a", "b"])),
        (3, 3.0),
    ],
)
def test_what_is_numerically_the_same_is_right(expected, got):
    assert compare(expected, got, 1e-6, 1e-8) is None


@pytest.mark.parametrize(
    ("expected", "got", "kind"),
    [
        (np.ones(2), None, "type"),
        (np.ones(2), np.ones((1, 2)), "shape"),
        (np.ones(2), [1, np.nan], "nan"),
        (np.ones(2), [1, np.inf], "infinite"),
        (np.ones(2), [1, 1.001], "value"),
        (np.ones(2), np.array([1, 1 + 1e-3j]), "dtype"),
        (np.array([True, False]), [1, 0], "dtype"),
        (np.ones(2), [True, True], "dtype"),
        ((np.ones(2), np.ones(2)), np.ones((2, 2)), "type"),
        ((np.ones(2), np.ones(2)), (np.ones(2),), "type"),
        (np.ones(2), "ones", "type"),
        (np.array([-np.inf]), [np.inf], "value"),
    ],
)
def test_what_differs_is_told_by_its_kind(expected, got, kind):
    assert compare(expected, got, 1e-6, 1e-8).kind == kind
