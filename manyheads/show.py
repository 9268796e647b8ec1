"""The course's figures: queries are rows, keys are columns, strong colours are large weights.

Every function returns a `Picture`: text and lines that take the page's own colours, so that one
figure serves light and dark pages, and a sentence that says what the figure shows, for a screen
reader or a terminal.

    from manyheads import show
    show.weights(weights, ["the", "cat", "sat"])

A chapter that needs another kind of plot draws it with Matplotlib on `canvas()` and returns
`picture(figure, alt)`. Matplotlib is imported when the first figure is drawn, not with this module.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Matplotlib writes these colours (and its own black); `_svg` then hands them over to the page.
TEXT, PAPER, INK, INK_2 = "#1d1d1b", "#fefefd", "#4b38b2", "#b4541f"
_PAGE_COLOURS = {
    TEXT: "currentColor",
    "#000000": "currentColor",
    PAPER: "var(--mh-paper, var(--pst-color-background, var(--jp-layout-color0, #fff)))",
    INK: "var(--mh-ink, var(--pst-color-primary, #5f4bc8))",
    INK_2: "var(--mh-ink-2, #c2571a)",
}

# Four lines that colour-blind readers can tell apart (by dash and marker as well), and that stand
# out from white and from black alike: at least 3.7 : 1 on both.
SERIES = ("#3a78cc", "#c8551b", "#1f8f6b", "#a8518f")
# A cell that begins like a number: its column is set flush right.
_NUMBER = re.compile(r"[<>~≈×±+−-]?\s?\.?\d|–$|NaN$")
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D")

_STYLE = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.labelsize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "savefig.facecolor": "none",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 4.5,
    "grid.alpha": 0.15,
    "svg.fonttype": "none",
    "svg.hashsalt": "manyheads",
    "text.color": TEXT,
    "axes.labelcolor": TEXT,
    "axes.edgecolor": TEXT,
    "axes.titlecolor": TEXT,
    "xtick.color": TEXT,
    "ytick.color": TEXT,
    "grid.color": TEXT,
}


class Picture:
    """Finished panels with a description each: a notebook shows them, a terminal describes them."""

    def __init__(self, figures: Sequence[Figure], alts: Sequence[str]):
        self.figures = tuple(figures)
        self.alts = tuple(alts)

    @property
    def alt(self) -> str:
        """What the figure shows, in words."""
        return " ".join(self.alts)

    def _repr_html_(self) -> str:
        panels = (_svg(*panel) for panel in zip(self.figures, self.alts, strict=True))
        # Panels wrap below each other on a narrow screen instead of shrinking.
        flow = "display:flex;flex-wrap:wrap;gap:1rem 1.5rem;align-items:flex-start"
        return f'<div class="mh-picture" style="{flow}">{"".join(panels)}</div>'

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"


# ------------------------------------------------------------------ any plot


def canvas(rows: int = 1, columns: int = 1, size: tuple[float, float] = (5.2, 3.0), **options: Any):
    """An empty figure in the course's style.

    Args:
        rows, columns: how many plots it holds.
        size: width and height in inches; 5.2 inches fill a column of the book.
        options: passed on to `Figure.subplots` (`sharey=True` for example).

    Returns:
        `(figure, axes)`: one Axes, or an array of them.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(rows, columns, **options)
        for ax in np.ravel(axes):
            ax.set_prop_cycle(color=SERIES)
            for spine in ax.spines.values():
                spine.set_alpha(0.4)
            ax.grid(True, axis="y")
            ax.set_axisbelow(True)
    return figure, axes


def picture(figure: Figure, alt: str) -> Picture:
    """A figure drawn on `canvas()`, with the sentence that says what it shows."""
    if not alt.strip():
        raise ValueError("a picture needs a description: what does it show?")
    for ax in figure.axes:
        # What is set after `canvas()` has Matplotlib's own style.
        title = ax.get_title() or ax.get_title(loc="left")
        ax.set_title("")
        ax.set_title(title, loc="left", fontsize=10)
        if legend := ax.get_legend():
            legend.set_frame_on(False)
            for label in legend.get_texts():
                label.set_fontsize(9)
    return Picture([figure], [alt])


def lines(
    x: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    title: str = "",
    log: str = "",
    alt: str | None = None,
) -> Picture:
    """Lines over one x axis, told apart by colour, dash and marker.

    Args:
        x: the positions, shape (points,).
        series: label → values, shape (points,) each; at most four.
        xlabel, ylabel, title: the words on the plot.
        log: the axes with a logarithmic scale: "", "x", "y" or "xy".
        alt: what the plot shows; by default, where each line starts and ends.

    Returns:
        The picture.

    Raises:
        ValueError: for more lines than can be told apart, or values that do not match x.
    """
    if len(series) > len(SERIES):
        raise ValueError(f"{len(series)} lines can not be told apart; {len(SERIES)} can")
    x = np.asarray(x)
    figure, ax = canvas()
    for k, (label, y) in enumerate(series.items()):
        if np.shape(y) != x.shape:
            raise ValueError(f"{label!r} has shape {np.shape(y)}, x has {x.shape}")
        ax.plot(x, y, color=SERIES[k], linestyle=_DASHES[k], marker=_MARKERS[k], label=label)
    if "x" in log:
        ax.set_xscale("log")
        ax.set_xticks(x, [f"{v:g}" for v in x])
        ax.minorticks_off()
    elif np.issubdtype(x.dtype, np.integer):
        ax.xaxis.get_major_locator().set_params(integer=True)
    if "y" in log:
        ax.set_yscale("log")
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if len(series) > 1:
        ax.legend(handlelength=3.2)
    ends = "; ".join(
        f"{label} goes from {y[0]:.3g} at {x[0]:g} to {y[-1]:.3g} at {x[-1]:g}"
        for label, y in series.items()
    )
    told = f"{_sentence(title)}{ylabel} against {xlabel}: {ends}.".replace("$", "")
    return picture(figure, alt or told)


# ----------------------------------------------------------------- heat maps


def weights(
    weights: np.ndarray,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    mask: np.ndarray | None = None,
    numbers: bool | None = None,
    title: str = "",
    axes: tuple[str, str] = ("queries", "keys"),
    limit: float = 1.0,
    alt: str | None = None,
) -> Picture:
    """A heat map of attention weights with the tokens beside it.

    Args:
        weights: shape (n, m).
        queries, keys: labels of the rows and the columns; keys default to the queries where n = m.
        mask: boolean, shape (n, m), True = may attend; hidden cells are crossed out.
        numbers: write each weight into its cell; by default where there is room.
        title: the words above the map.
        axes: the names of the row axis and the column axis.
        limit: the weight that gets the full colour.
        alt: what the map shows; by default, the largest weight of each query.

    Returns:
        The picture.

    Raises:
        ValueError: for weights that are no matrix, or labels of another number.
    """
    weights = _matrix(weights, "weights")
    queries, keys = _labels(weights, queries, keys)
    figure = _heat_map(weights, queries, keys, mask, numbers, title, limit, axes)
    return Picture([figure], [alt or _describe_weights(weights, queries, keys, title, axes)])


def matrix(
    values: np.ndarray,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    numbers: bool | None = None,
    title: str = "",
    axes: tuple[str, str] = ("", ""),
    limit: float | None = None,
    alt: str | None = None,
) -> Picture:
    """A heat map of numbers of either sign: one colour above zero, another below.

    Args:
        values: shape (rows, columns).
        rows, columns: labels; by default none.
        numbers: write each number into its cell; by default where there is room.
        title: the words above the map.
        axes: the names of the row axis and the column axis.
        limit: the size that gets the full colour; by default the largest.
        alt: what the map shows; by default its shape and its range.

    Returns:
        The picture.

    Raises:
        ValueError: for values that are no matrix, or labels of another number.
    """
    values = _matrix(values, "values")
    rows = _checked(rows, values.shape[0], "rows") if rows is not None else [""] * values.shape[0]
    columns = (
        _checked(columns, values.shape[1], "columns")
        if columns is not None
        else [""] * values.shape[1]
    )
    figure = _heat_map(values, rows, columns, None, numbers, title, limit, axes)
    shown = _finite(values)
    told = (
        f"{_sentence(title)}Heat map of {values.shape[0]} rows and {values.shape[1]} columns, "
        f"from {shown.min():.3g} to {shown.max():.3g}."
    )
    return Picture([figure], [alt or told])


def mask(
    mask: np.ndarray,
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    title: str = "",
    alt: str | None = None,
) -> Picture:
    """A picture of a boolean mask: filled = may attend, crossed out = hidden.

    Args:
        mask: boolean, shape (n, m).
        queries, keys: labels of the rows and the columns.
        title: the words above the picture.
        alt: what it shows; by default, which keys each query sees.

    Returns:
        The picture.

    Raises:
        ValueError: for a mask that is no boolean matrix.
    """
    mask = np.asarray(mask)
    if mask.ndim != 2 or mask.dtype != bool:
        raise ValueError(f"a mask is a boolean matrix, not {mask.dtype} of shape {mask.shape}")
    queries, keys = _labels(mask, queries, keys)
    # Not quite the full colour: a mask is a large area.
    figure = _heat_map(0.75 * mask, queries, keys, mask, False, title, 1.0, legend=False)
    told = "; ".join(
        f"query {q} sees {_listed([k for k, seen in zip(keys, row, strict=True) if seen])}"
        for q, row in zip(queries, mask, strict=True)
    )
    counted = (
        f"Mask of {mask.shape[0]} queries and {mask.shape[1]} keys, {mask.sum()} pairs allowed"
    )
    told = f"{counted}: {told}." if len(queries) <= 8 else f"{counted}."
    return Picture([figure], [alt or _sentence(title) + told])


def side_by_side(
    panels: Mapping[str, np.ndarray],
    queries: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    *,
    mask: np.ndarray | None = None,
    numbers: bool | None = None,
    limit: float | None = None,
) -> Picture:
    """Several heat maps of weights on one colour scale: right and wrong, or one per head.

    Args:
        panels: title → weights, shape (n, m) each.
        queries, keys: labels, as in `weights`.
        mask: as in `weights`; holds for every panel.
        numbers: as in `weights`.
        limit: the weight that gets the full colour; by default 1, or the largest if that is more.

    Returns:
        The picture, as `row` lays it out.
    """
    arrays = {title: _matrix(w, title) for title, w in panels.items()}
    top = limit or max(1.0, *(_finite(w).max() for w in arrays.values()))
    return row(
        [
            weights(w, queries, keys, mask=mask, numbers=numbers, title=title, limit=top)
            for title, w in arrays.items()
        ]
    )


def row(pictures: Sequence[Picture]) -> Picture:
    """Several pictures beside each other; on a narrow page they stand below each other.

    Args:
        pictures: what the functions of this module return.

    Returns:
        One picture with all their panels.
    """
    return Picture(
        [figure for picture in pictures for figure in picture.figures],
        [alt for picture in pictures for alt in picture.alts],
    )


# -------------------------------------------------------------------- tables


class Table:
    """Measured numbers as a real table: a page shows rows and columns, a terminal aligned text."""

    def __init__(self, header: Sequence[str], rows: Sequence[Sequence[object]]):
        self.header = [str(cell) for cell in header]
        self.rows = [[str(cell) for cell in row] for row in rows]
        for row in self.rows:
            if len(row) != len(self.header):
                raise ValueError(f"a row of {len(row)} cells under {len(self.header)} headings")

    def _repr_html_(self) -> str:
        columns = zip(self.header, *self.rows, strict=True)
        sides = ["right" if all(map(_NUMBER.match, cells)) else "left" for _, *cells in columns]
        align = [f' style="text-align:{side}"' for side in sides]
        head = "".join(
            f'<th scope="col"{side}>{html.escape(cell)}</th>'
            for cell, side in zip(self.header, align, strict=True)
        )
        body = "".join(
            f'<tr><th scope="row"{align[0]}>{html.escape(first)}</th>'
            + "".join(
                f"<td{side}>{html.escape(cell)}</td>"
                for cell, side in zip(rest, align[1:], strict=True)
            )
            + "</tr>"
            for first, *rest in self.rows
        )
        return (
            f'<table class="mh-table dataframe"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )

    def __repr__(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.header, *self.rows, strict=True)]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in [self.header, *self.rows]
        )


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """A table of results.

    Args:
        header: the words above the columns.
        rows: the cells, formatted (`f"{seconds:.2f} s"`); the first of each row is its heading.

    Returns:
        The table.

    Raises:
        ValueError: for a row of another length than the header.
    """
    return Table(header, rows)


# ------------------------------------------------------------------- inside


def _matrix(values: np.ndarray, name: str) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    if values.ndim != 2 or values.size == 0:
        raise ValueError(f"{name} must be a matrix; the shape is {values.shape}")
    return values


def _labels(
    values: np.ndarray, queries: Sequence[str] | None, keys: Sequence[str] | None
) -> tuple[list[str], list[str]]:
    n, m = values.shape
    if keys is None:
        keys = queries if queries is not None and n == m else range(m)
    return _checked(range(n) if queries is None else queries, n, "queries"), _checked(
        keys, m, "keys"
    )


def _checked(labels: Sequence[object], count: int, name: str) -> list[str]:
    if len(labels) != count:
        raise ValueError(f"{len(labels)} labels for {count} {name}")
    return [str(label) for label in labels]


def _finite(values: np.ndarray) -> np.ndarray:
    finite = values[np.isfinite(values)]
    return finite if finite.size else np.zeros(1)


def _heat_map(
    values: np.ndarray,
    rows: list[str],
    columns: list[str],
    mask: np.ndarray | None,
    numbers: bool | None,
    title: str,
    limit: float | None,
    axes: tuple[str, str] = ("queries", "keys"),
    legend: bool = True,
) -> Figure:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    n, m = values.shape
    numbers = m <= 8 and n <= 12 if numbers is None else numbers
    legend = legend and not numbers
    limit = limit or np.abs(_finite(values)).max() or 1.0
    cell = min(0.42 if numbers else 0.3, 4.6 / m)

    # Absolute inches, so that a cell has one size however long the labels are.
    slanted = max(map(len, columns)) * 0.085 > cell
    left = 0.1 + 0.08 * max(map(len, rows)) + 0.2 * bool(axes[0])
    top = 0.06 + (0.075 * max(map(len, columns)) + 0.08 if slanted else 0.2 * any(columns))
    top += 0.2 * bool(axes[1]) + 0.24 * bool(title)
    right, bottom = 0.12, 0.34 if legend else 0.06
    width = max(left + m * cell + right, 0.1 + 0.078 * len(title), 1.6)
    height = top + n * cell + bottom

    with rc_context(_STYLE):
        figure = Figure(figsize=(width, height))
        ax = figure.add_axes(
            (left / width, bottom / height, m * cell / width, n * cell / height),
            xlim=(0, m),
            ylim=(n, 0),
        )
        ax.xaxis.tick_top()
        ax.xaxis.set_label_position("top")
        ax.set_xticks(np.arange(m) + 0.5, columns, rotation=90 if slanted else 0)
        ax.set_yticks(np.arange(n) + 0.5, rows)
        ax.tick_params(length=0, pad=3)
        ax.set_ylabel(axes[0], alpha=0.8, loc="top")
        ax.set_xlabel(axes[1], alpha=0.8, loc="left")
        for spine in ax.spines.values():
            spine.set_visible(False)
        _draw_cells(ax, values, mask, limit)
        if numbers:
            _draw_numbers(ax, values, mask, limit, size=8.5 * min(1.0, cell / 0.38))
        if title:
            figure.text(0.06 / width, 1 - 0.05 / height, title, va="top", fontsize=10)
        if legend:
            _draw_scale(figure, left / width, 0.1 / height, 0.11 / height, width, limit, values)
    return figure


def _draw_cells(ax: Axes, values: np.ndarray, mask: np.ndarray | None, limit: float) -> None:
    """Each cell is the page's ink, as opaque as its number is large: zero is paper."""
    from matplotlib.collections import LineCollection, PolyCollection
    from matplotlib.colors import to_rgba

    i, j = (index.ravel() for index in np.indices(values.shape))
    gap = 0.03
    corners = np.array([[gap, gap], [1 - gap, gap], [1 - gap, 1 - gap], [gap, 1 - gap]])
    squares = np.stack([j, i], axis=-1)[:, None, :] + corners  # (n·m, 2) -> (n·m, 4, 2)
    ax.add_collection(PolyCollection(squares, facecolors=[to_rgba(TEXT, 0.07)], edgecolors="none"))

    flat = np.nan_to_num(values, posinf=limit, neginf=-limit).ravel()
    strength = np.clip(np.abs(flat) / limit, 0, 1)
    seen = strength > 0.004
    colours = [
        to_rgba(INK_2 if value < 0 else INK, alpha)
        for value, alpha in zip(flat[seen], strength[seen], strict=True)
    ]
    ax.add_collection(PolyCollection(squares[seen], facecolors=colours, edgecolors="none"))
    if mask is not None:
        hidden = ~np.broadcast_to(mask, values.shape).ravel()
        strokes = squares[hidden][:, [3, 1]] * 1.0  # bottom left to top right
        centre = strokes.mean(axis=1, keepdims=True)
        strokes = centre + 0.6 * (strokes - centre)
        ax.add_collection(LineCollection(strokes, colors=[to_rgba(TEXT, 0.5)], linewidths=0.9))


def _draw_numbers(
    ax: Axes, values: np.ndarray, mask: np.ndarray | None, limit: float, size: float
) -> None:
    hidden = np.zeros(values.shape, bool) if mask is None else ~np.broadcast_to(mask, values.shape)
    for (i, j), value in np.ndenumerate(values):
        if hidden[i, j] and value == 0:
            continue  # the stroke says it
        strong = np.isfinite(value) and abs(value) / limit > 0.62
        colour = PAPER if strong else TEXT
        ax.text(j + 0.5, i + 0.52, _short(value), color=colour, size=size, ha="center", va="center")


def _draw_scale(
    figure: Figure,
    x: float,
    y: float,
    height: float,
    inches: float,
    limit: float,
    values: np.ndarray,
) -> None:
    """A small strip under the map that says what the colours mean."""
    signed = bool((_finite(values) < 0).any())
    low = -limit if signed else 0.0
    ax = figure.add_axes((x + 0.3 / inches, y, 0.9 / inches, height), xlim=(0, 12), ylim=(1, 0))
    ax.set_axis_off()
    _draw_cells(ax, np.linspace(low, limit, 12)[None], None, limit)
    for at, number, side in ((-0.6, low, "right"), (12.6, limit, "left")):
        ax.text(at, 0.55, _short(number), ha=side, va="center", size=8)


def _short(value: float) -> str:
    """A number in the least space: `0.07`, `−1.30`, `1`, `240`."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("∞" if value > 0 else "−∞")
    if abs(value) >= 99.5 or value == int(value):
        text = f"{value:.0f}" if abs(value) < 1e4 else f"{value:.0e}"
    else:
        text = f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"
    return "0" if text == "-0" else text.replace("-", "−")


def _describe_weights(
    weights: np.ndarray, queries: list[str], keys: list[str], title: str, axes: tuple[str, str]
) -> str:
    n, m = weights.shape
    told = []
    for query, row in zip(queries, weights, strict=True):
        if not np.isfinite(row).all():
            told.append(f"{query}: not a number")
        else:
            told.append(f"{query} to {keys[int(row.argmax())]} {row.max():.2f}")
    if n > 8:
        strongest = np.argsort(-np.nan_to_num(weights.max(axis=1)))[:5]
        told = [told[i] for i in sorted(strongest)]
    size = f"{n} rows ({axes[0]}) by {m} columns ({axes[1]})"
    if axes == ("queries", "keys"):
        size = f"{n} queries by {m} keys"
    return f"{_sentence(title)}Heat map of weights, {size}. Largest weights: {'; '.join(told)}."


def _listed(keys: list[str]) -> str:
    return ", ".join(keys) if keys else "nothing"


def _sentence(title: str) -> str:
    return f"{title.rstrip('.')}. " if title else ""


def _svg(figure: Figure, alt: str) -> str:
    """The figure as inline SVG that takes text, paper and ink from the page around it."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    text = buffer.getvalue()
    svg = text[text.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.S)
    # Text in the page's own font: Matplotlib names its own in every label (up to 3.9 in shorthand).
    svg = re.sub(r'font-family: [^;"]*(?:; )?', "", svg)
    svg = re.sub(r"font: (?:(\d+) )?([\d.]+)px '[^;\"]*", _font, svg)
    for colour, page in _PAGE_COLOURS.items():
        svg = svg.replace(colour, page)
    svg = _own_ids(svg)
    opening = (
        f'<svg class="mh-figure" role="img" aria-label="{html.escape(alt, quote=True)}" '
        'style="max-width:100%;height:auto;overflow:visible;fill:currentColor" '
    )
    svg = re.sub(r"\s*\n\s*", "\n", svg)
    return svg.replace("<svg ", opening, 1).strip()


def _font(found: re.Match[str]) -> str:
    weight, size = found.groups()
    return f"font-size: {size}px" + (f"; font-weight: {weight}" if weight else "")


def _own_ids(svg: str) -> str:
    """Ids that no other figure on the page has, and none that nothing refers to."""
    prefix = "mh" + hashlib.sha256(svg.encode()).hexdigest()[:8]
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', svg))

    def rename(found: re.Match[str]) -> str:
        name = found.group(1)
        return f' id="{prefix}{name}"' if name in used else ""

    svg = re.sub(r' id="([^"]+)"', rename, svg)
    return re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}", svg)
