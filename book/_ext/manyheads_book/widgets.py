"""Interactive figures that need no computed data: directives that write a still table and options.

Each figure stands in the page as a real table with the state it starts in, so that it can be read
without a script and on paper; `book/_static/js/figures` takes it from there.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from html import escape

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

KINDS = ("causal", "window", "blocks", "global")


def _words(text: str) -> list[str]:
    return text.split()


def _numbers(text: str) -> list[float]:
    return [float(word) for word in text.split()]


def _shade(share: float) -> str:
    return " strong" if share >= 0.73 else " middle" if share >= 0.47 else ""


def _table(header: list[str], rows: list[list[str]], caption: str, kind: str = "plain") -> str:
    """A small table whose first column names the rows; cells are finished HTML `<td>`."""
    head = "".join(f'<th scope="col"><span>{escape(cell)}</span></th>' for cell in header[1:])
    body = "".join(
        f'<tr><th scope="row">{escape(first)}</th>{"".join(rest)}</tr>' for first, *rest in rows
    )
    corner = f'<th scope="col">{escape(header[0])}</th>' if header[0] else "<td></td>"
    return (
        f'<div class="widget__scroll"><table class="{kind}"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{corner}{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _number(value: float, digits: str = "g") -> str:
    """A number as text sets it, with a real minus."""
    return format(value, digits).replace("-", "−")


def _cell(text: object, share: float | None = None) -> str:
    if share is None:
        return f"<td>{escape(str(text))}</td>"
    return f'<td class="heat__cell{_shade(share)}" style="--v:{share:.3f}">{escape(str(text))}</td>'


# ------------------------------------------------------------------ the stills


def _mask_still(options: dict) -> str:
    tokens = options["tokens"]
    rows = [
        [query, *(_cell("✓" if j <= i else "·", 0.75 if j <= i else 0) for j in range(len(tokens)))]
        for i, query in enumerate(tokens)
    ]
    allowed = len(tokens) * (len(tokens) + 1) // 2
    caption = f"The causal mask: {allowed} of {len(tokens) ** 2} pairs allowed (✓)"
    return _table(["", *tokens], rows, caption, "heat")


def _reshape_still(options: dict) -> str:
    n, h, d = options["tokens"], options["heads"], options["width"]
    d_k = d // h
    rows = [
        [
            f"head {i}",
            *(_cell(", ".join(str(t * d + i * d_k + c) for c in range(d_k))) for t in range(n)),
        ]
        for i in range(h)
    ]
    header = ["", *(f"token {t}" for t in range(n))]
    caption = (
        f"The numbers 0 … {n * d - 1} of x ({n}, {d}) after the split into {h} heads: "
        f"({h}, {n}, {d_k})"
    )
    return _table(header, rows, caption)


def softmax(scores: list[float]) -> list[float]:
    """Weights of a few scores."""
    top = max(scores)
    powers = [math.exp(score - top) for score in scores]
    return [power / sum(powers) for power in powers]


def _temperature_still(options: dict) -> str:
    divisor = math.sqrt(options["d_k"])
    weights = softmax([score / divisor for score in options["scores"]])
    rows = [
        [label, _cell(_number(score)), _cell(f"{weight:.2f}", weight)]
        for label, score, weight in zip(options["labels"], options["scores"], weights, strict=True)
    ]
    entropy = -sum(weight * math.log(weight) for weight in weights if weight)
    caption = f"Weights of the scores divided by {divisor:g}; entropy {entropy:.2f} nats"
    return _table(["key", "score", "weight"], rows, caption)


def _online_still(options: dict) -> str:
    scores, values, tile = options["scores"], options["values"], options["tile"]
    m, total, output, rows = -math.inf, 0.0, 0.0, []
    for start in range(0, len(scores), tile):
        part = scores[start : start + tile]
        new = max(m, *part)
        shrink = math.exp(m - new)
        powers = [math.exp(score - new) for score in part]
        total = total * shrink + sum(powers)
        output = output * shrink + sum(
            power * value for power, value in zip(powers, values[start : start + tile], strict=True)
        )
        m = new
        name = f"keys {start} … {start + len(part) - 1}" if len(part) > 1 else f"key {start}"
        cells = (_number(m), *(_number(x, ".4f") for x in (total, output, output / total)))
        rows.append([name, *map(_cell, cells)])
    header = ["after", "m", "l", "o", "o / l"]
    return _table(
        header, rows, "Running maximum m, sum l and unnormalised output o after each tile"
    )


# --------------------------------------------------------------- the directives


class Widget(SphinxDirective):
    """A figure whose body is its caption; subclasses say which options there are."""

    has_content = True
    common = {"name": directives.unchanged, "alt": directives.unchanged}  # noqa: RUF012
    kind: str
    still: Callable[[dict], str]

    def settle(self) -> dict:
        """The options with defaults and checks."""
        return {key: value for key, value in self.options.items() if key not in self.common}

    def run(self) -> list[nodes.Node]:
        """The figure: still and options as HTML, caption as text of the book."""
        options = self.settle()
        written = escape(json.dumps(options, ensure_ascii=False))
        alt = self.options.get("alt", "")
        label = f' role="group" aria-label="{escape(alt)}"' if alt else ""
        html = (
            f'<div class="widget" data-figure="{self.kind}" data-options="{written}"{label}>'
            f'<div class="widget__still">{type(self).still(options)}</div></div>'
        )
        figure = nodes.figure("", nodes.raw("", html, format="html"), classes=["widget-figure"])
        self.set_source_info(figure)
        if self.content:
            held = nodes.Element()
            self.state.nested_parse(self.content, self.content_offset, held)
            if held.children:
                figure += nodes.caption("", "", *held.children[0].children)
        self.add_name(figure)
        return [figure]

    def need(self, holds: bool, message: str) -> None:
        """Fail the build where an option makes no sense."""
        if not holds:
            raise self.error(f"{self.kind}: {message}")


class MaskPainter(Widget):
    """Which keys a query may see, painted by hand or by rule."""

    kind = "mask-painter"
    still = _mask_still
    option_spec = Widget.common | {
        "tokens": _words,
        "size": directives.positive_int,
        "kinds": _words,
        "start": directives.unchanged,
    }

    def settle(self) -> dict:
        tokens = self.options.get("tokens") or [str(i) for i in range(self.options.get("size", 8))]
        kinds = self.options.get("kinds", list(KINDS))
        start = self.options.get("start", kinds[0])
        self.need(set(kinds) <= set(KINDS), f"kinds are {', '.join(KINDS)}")
        self.need(start in kinds, f"start {start!r} is none of its kinds")
        self.need(len(tokens) <= 24, "at most 24 tokens")
        return {"tokens": tokens, "kinds": kinds, "start": start}


class ReshapeStepper(Widget):
    """Where each number goes when heads are split."""

    kind = "reshape-stepper"
    still = _reshape_still
    option_spec = Widget.common | dict.fromkeys(
        ("tokens", "heads", "width"), directives.positive_int
    )

    def settle(self) -> dict:
        options = {"tokens": 3, "heads": 2, "width": 4, **super().settle()}
        self.need(options["width"] % options["heads"] == 0, "the heads must divide the width")
        return options


class Temperature(Widget):
    """Weights and entropy as the scores are divided by more or less."""

    kind = "temperature"
    still = _temperature_still
    option_spec = Widget.common | {
        "scores": _numbers,
        "labels": _words,
        "d_k": directives.positive_int,
    }

    def settle(self) -> dict:
        scores = self.options.get("scores", [8.0, 5.0, 2.0, -1.0, -4.0])
        labels = self.options.get("labels") or [f"key {j}" for j in range(len(scores))]
        self.need(len(labels) == len(scores), "as many labels as scores")
        return {"scores": scores, "labels": labels, "d_k": self.options.get("d_k", 16)}


class OnlineSoftmax(Widget):
    """One pass over the keys, tile by tile."""

    kind = "online-softmax"
    still = _online_still
    option_spec = Widget.common | {
        "scores": _numbers,
        "values": _numbers,
        "tile": directives.positive_int,
    }

    def settle(self) -> dict:
        scores = self.options.get("scores", [1.0, 3.0, 2.0, 6.0, 0.0, 4.0])
        values = self.options.get("values") or [10.0 * (j + 1) for j in range(len(scores))]
        self.need(len(values) == len(scores), "as many values as scores")
        return {"scores": scores, "values": values, "tile": self.options.get("tile", 2)}


def setup(app: Sphinx) -> None:
    """Register the directives."""
    for directive in (MaskPainter, ReshapeStepper, Temperature, OnlineSoftmax):
        app.add_directive(directive.kind, directive)
