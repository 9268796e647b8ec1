"""Misconceptions that several chapters share: one name and one wording for each.

A chapter that needs other words for its context writes its own message; where these fit, it takes
them, so that a report over all exercises counts and words the same mistake alike.

    @attention.misconception("A13", SAID["softmax-over-queries"])
    def softmax_over_queries(Q, K, V, mask=None): …
"""

from __future__ import annotations

from collections.abc import Iterator

SAID = {
    # the scores
    "no-scale": "Your scores are not divided by √d_k: the weights are too peaked.",
    "divided-by-d-k": "Your scores are divided by d_k, not by its root: the weights are too flat. "
    "Is √d_k applied twice?",
    "multiplied": "Your scores are multiplied by √d_k; they are to be divided by it.",
    "constant-scale": "Your scores are divided by a fixed number, whatever d_k is: divide by √d_k.",
    "keys-not-transposed": "The keys are not transposed; with as many keys as columns the shapes "
    "fit by luck.",
    "transposed-all-axes": "`.T` turns all axes around: in a batch or a stack of heads only the "
    "last two may be exchanged (np.swapaxes).",
    # the softmax
    "softmax-over-queries": "Your softmax runs over the queries: your columns sum to 1, the rows "
    "should.",
    "softmax-over-all": "All weights of a matrix together sum to 1; each row by itself has to.",
    "softmax-twice": "The softmax is applied twice: your weights are almost uniform.",
    "no-exponential": "The scores are divided by their sum: the exponential is missing.",
    "sigmoid": "Your weights come from a sigmoid, entry by entry: they do not sum to 1.",
    "hard-argmax": "Each query takes its best key only: softmax spreads the weight.",
    "no-maximum": "exp of large scores overflows, and of very low ones vanishes: subtract each "
    "row's maximum first.",
    "maximum-of-all": "You subtract the largest score of all; a row far below it becomes 0/0. Take "
    "each row's own maximum.",
    "epsilon": "A small number is added to the sum of the exponentials: your rows do not quite sum "
    "to 1.",
    # the mask
    "mask-the-other-way": "Your mask works the other way round: here True means that the query may "
    "look (PyTorch's MultiheadAttention means hidden).",
    "mask-not-used": "The mask has no effect: is it handed on, and is the result of np.where used?",
    "mask-multiplied": "The mask is multiplied into the scores: a score of 0 is not hidden, "
    "exp(0) = 1. Hidden scores must go to −inf.",
    "mask-added": "The mask is added to the scores as 0 and 1: hidden scores must go to −inf.",
    "mask-on-queries": "The mask is laid on the queries: its last axis belongs to the keys.",
    "mask-of-the-first-item": "All batch items get the mask of the first one.",
    "always-causal": "Your function is causal although no mask says so: only the mask may hide "
    "keys.",
    "causal-without-a-mask": "Without a mask your function hides later positions: no mask means "
    "that every position sees all.",
    "always-itself": "A position always sees itself in your function, even where the mask hides it.",
    "plus-infinity": "Hidden scores become very large: only the hidden keys are seen. The sign is "
    "wrong.",
    "not-renormalised": "Hidden weights are set to 0 after the softmax, and the rest no longer "
    "sums to 1: divide by the new sum, or mask before.",
    "penalty-divided": "The mask's penalty is added before the division by √d_k, so it is too weak "
    "where scores are large: mask after it, with −inf.",
    # queries that see nothing
    "nan-rows": "A query that sees nothing gets NaN (−inf − (−inf), or 0/0): give it weights 0.",
    "mean-for-nothing": "A query that sees nothing gets the mean of all values: a finite penalty "
    "makes all its scores equal. Its weights must be 0.",
    "empty-rows-see-all": "A query that sees nothing looks at all keys: it must get weights 0.",
    "warns": "The numbers are right, but a query that sees nothing gives a warning (0/0, or −inf − "
    "(−inf)): avoid it, or silence it there.",
    # the heads
    "cut-by-reshape": "The heads are cut by one reshape to (h, n, d_k): they are runs of "
    "positions, not blocks of columns. Reshape to (n, h, d_k), then exchange two axes, as "
    "`split_heads` does.",
    "joined-by-reshape": "The heads are joined by one reshape, which mixes positions and heads. "
    "First exchange the axes of heads and positions, as `merge_heads` does.",
    "cut-and-joined-by-reshape": "Cut and join both lack the exchange of axes. The two mistakes "
    "seem to cancel, shapes and all, but your heads are runs of positions, not blocks of columns.",
    "interleaved": "Your heads take every h-th column, as in some libraries. Here head i has d_k "
    "columns side by side: i·d_k … (i+1)·d_k − 1.",
    "heads-and-width-exchanged": "Number and width of the heads are exchanged: you have d / h "
    "heads of width h.",
    "heads-before-the-batch": "The axis of heads comes first in your weights; it belongs after the "
    "batch axes.",
    # the matrices
    "queries-and-keys-exchanged": "Queries and keys are exchanged: W_q makes the queries, to which "
    "the rows of the weights belong.",
    "keys-from-the-query-matrix": "Your keys come from W_q, as the queries do: they have a matrix "
    "of their own, W_k.",
    "no-output-matrix": "W_o is missing: the joined heads are multiplied by it.",
    "residual-added": "x is added to the output (a residual connection): that belongs around "
    "attention, not in it.",
    # what comes out
    "keys-instead-of-values": "Your output is the mean of the keys: the weights belong to the "
    "values.",
    "transposed-weights-used": "The output uses the transposed weights: row i is the mean under "
    "row i of the weights.",
    "output-only": "Your function returns the output alone; (output, weights) is asked for.",
    "weights-first": "Both results are right but in the wrong order: (output, weights) is asked "
    "for.",
    "with-the-weights": "Your function returns the weights as well; here the output alone is asked "
    "for.",
    "scores-returned": "Your second result holds the scores; the weights, after the softmax, are "
    "asked for.",
    "rounded": "Your numbers are rounded. Round for printing only.",
    "in-single-precision": "Your function computes in float32: with float64 inputs seven digits "
    "are not enough where scores are large.",
    "output-like-values": "Integer values come out truncated: the output took its dtype from V.",
    "output-like-x": "The output takes its dtype from x: for integers the decimals are lost.",
    "like-integers": "For integers your result is cut to integers.",
    # what does not fit
    "values-not-checked": "Keys and values that do not belong together raise no ValueError: test "
    "their shapes yourself.",
    "cuts-to-size": "Shapes that do not fit give numbers instead of a ValueError (are they cut to "
    "size?): compare them first.",
    "asserts": "Shapes that do not fit raise another error than ValueError (an assertion, say): "
    "raise ValueError.",
    "ignores-a-misfit": "A mask that does not fit is ignored; a ValueError is asked for.",
    # batches
    "first-item-only": "Only the first batch item is right: look for a `return` inside a loop, or "
    "an index 0.",
    "batch-as-one-sequence": "The positions of all batch items attend to each other: each item is "
    "a sequence of its own.",
    "two-axes-only": "Your function works for two axes only; any number of batch axes may lead "
    "(np.swapaxes, axis=-1).",
    "one-batch-axis": "Your function takes exactly one batch axis; any number may lead, also none.",
}

# Weights from `scores` and `visible`, both (…, n, m), as lines inside a function.
_WRONG_WEIGHTS = (
    ("A13", "softmax-over-queries", "weights = softmax(np.where(visible, scores, -1e9), axis=-2)"),
    ("A15", "softmax-over-all",
     "e = np.exp(scores - scores.max(axis=(-1, -2), keepdims=True)) * visible\n"
     "    weights = e / e.sum(axis=(-1, -2), keepdims=True)"),
    ("A18", "no-exponential",
     "weights = scores * visible / (scores * visible).sum(-1, keepdims=True)"),
    ("A19", "sigmoid", "weights = visible / (1 + np.exp(-np.clip(scores, -700, 700)))"),
    ("B15", "hard-argmax",
     "weights = np.eye(scores.shape[-1])[np.where(visible, scores, -np.inf).argmax(-1)]"),
    ("A09", "no-maximum",
     "e = np.exp(scores) * visible\n"
     "    weights = e / np.where(visible.any(-1, keepdims=True), e.sum(-1, keepdims=True), 1)"),
    ("A10", "maximum-of-all",
     "top = np.where(visible, scores, -1e300).max()\n"
     "    e = np.exp(np.where(visible, scores, -np.inf) - top)\n"
     "    weights = e / np.where(visible.any(-1, keepdims=True), e.sum(-1, keepdims=True), 1)"),
    ("B16", "mask-multiplied", "weights = softmax(scores * visible)"),
    ("B22", "mask-added", "weights = softmax(scores + visible)"),
    ("B25", "plus-infinity", "weights = softmax(np.where(visible, scores, 1e9))"),
    ("B31", "nan-rows", "weights = softmax(np.where(visible, scores, -np.inf))"),
    ("B32", "mean-for-nothing", "weights = softmax(np.where(visible, scores, -1e9))"),
    ("X15", "warns", "weights = np.nan_to_num(softmax(np.where(visible, scores, -np.inf)))"),
    ("F08", "not-renormalised", "weights = softmax(scores) * visible"),
    ("X17", "epsilon",
     "e = np.exp(scores - np.where(visible, scores, -1e300).max(-1, keepdims=True)) * visible\n"
     "    weights = e / (e.sum(-1, keepdims=True) + 1e-4)"),
)  # fmt: skip


def wrong_weights(**own: str) -> Iterator[tuple[str, str, str, str]]:
    """Ways to get the weights wrong: code, name, message, and lines for a slip.

    The lines go from `scores` and `visible`, both (…, n, m), to `weights`, indented by four.
    own: a chapter's own message for a name, with underscores: `nan_rows="…"`.
    """
    for code, name, lines in _WRONG_WEIGHTS:
        yield code, name, own.get(name.replace("-", "_"), SAID[name]), lines
    for penalty in (5, 100):
        line = f"weights = softmax(np.where(visible, scores, scores - {penalty}))"
        yield "B27", f"penalty-{penalty}", subtracted(penalty), line
        line = f"weights = softmax(np.where(visible, scores, -{penalty}.0))"
        yield "B27", f"filled-with-minus-{penalty}", filled(penalty), line


def subtracted(penalty: str | int) -> str:
    """What is said where a mask subtracts too small a number from the hidden scores."""
    return (
        f"You subtract {penalty} from hidden scores: keys that score that high still get weight, "
        "and a query that sees nothing sees all. Use −inf."
    )


def filled(penalty: str | int) -> str:
    """What is said where a mask sets the hidden scores to a number that is not low enough."""
    return (
        f"You set hidden scores to −{penalty}: where the visible ones are lower, the hidden keys "
        "win, and a query that sees nothing gets the mean of all values. Use −inf."
    )
