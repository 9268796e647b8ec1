"""The course's figures: queries are rows, keys are columns, strong colours are large weights.

Every function returns a `Picture`: text and lines that take the page's own colours, so that one
figure serves light and dark pages, and a sentence that says what the figure shows, for a screen
reader or a terminal.

    from manyheads import show
    show.weights(weights, ["the", "cat", "sat"])

Heat maps are written here, cell by cell; line plots are Matplotlib's, which is imported when the
first is drawn. A chapter that needs another kind of plot draws it on `canvas()` and returns
`picture(figure, alt)`.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Figures drawn by Matplotlib use these colours; the page replaces them by its own.
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
_AXES = ("queries", "keys")
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

    def __init__(self, panels: Sequence[str], alts: Sequence[str]):
        self.panels = tuple(panels)  # each an <svg> element
        self.alts = tuple(alts)

    @property
    def alt(self) -> str:
        """What the figure shows, in words."""
        return " ".join(self.alts)

    def _repr_html_(self) -> str:
        # Panels wrap below each other on a narrow screen instead of shrinking.
        flow = "display:flex;flex-wrap:wrap;gap:1rem 1.5rem;align-items:flex-start"
        return f'<div class="mh-picture" style="{flow}">{"".join(self.panels)}</div>'

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
    return Picture([_from_matplotlib(figure, alt)], [alt])


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
        raise ValueError(f"{len(series)} lines cannot be told apart; {len(SERIES)} can")
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
    axes: tuple[str, str] = _AXES,
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
    alt = alt or _describe_weights(weights, queries, keys, title, axes)
    return _heat_map(weights, queries, keys, mask, numbers, title, limit, axes, alt)


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
    shown = _finite(values)
    told = (
        f"{_sentence(title)}Heat map of {values.shape[0]} rows and {values.shape[1]} columns, "
        f"from {shown.min():.3g} to {shown.max():.3g}."
    )
    limit = limit or float(np.abs(shown).max()) or 1.0
    return _heat_map(values, rows, columns, None, numbers, title, limit, axes, alt or told)


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
    told = "; ".join(
        f"query {q} sees {_listed([k for k, seen in zip(keys, row, strict=True) if seen])}"
        for q, row in zip(queries, mask, strict=True)
    )
    counted = (
        f"Mask of {mask.shape[0]} queries and {mask.shape[1]} keys, {mask.sum()} pairs allowed"
    )
    told = f"{counted}: {told}." if len(queries) <= 8 else f"{counted}."
    # Not quite the full colour: a mask is a large area.
    return _heat_map(
        0.75 * mask, queries, keys, mask, False, title, 1.0, _AXES, alt or _sentence(title) + told
    )


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
        [panel for picture in pictures for panel in picture.panels],
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
            f'<th scope="col"{side}>{escape(cell)}</th>'
            for cell, side in zip(self.header, align, strict=True)
        )
        body = "".join(
            f'<tr><th scope="row"{align[0]}>{escape(first)}</th>'
            + "".join(
                f"<td{side}>{escape(cell)}</td>" for cell, side in zip(rest, align[1:], strict=True)
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
    limit: float,
    axes: tuple[str, str],
    alt: str,
) -> Picture:
    """A heat map as SVG, in pixels: every cell has one size however long the labels are."""
    n, m = values.shape
    hidden = np.zeros((n, m), bool) if mask is None else ~np.broadcast_to(mask, (n, m))
    numbers = m <= 8 and n <= 12 if numbers is None else numbers
    visible = values[~hidden]
    scale = not numbers and not np.all(visible == visible[:1])  # a mask needs none
    cell = min(40 if numbers else 29, 440 / m)

    upright = max(map(len, columns)) * 7.5 > cell
    left = 10 + 7.4 * max(map(len, rows)) + 18 * bool(axes[0])
    head = 22 * bool(title)
    top = head + 17 * bool(axes[1]) + 6
    top += 7.2 * max(map(len, columns)) + 4 if upright else 16 * any(columns)
    width = max(left + m * cell + 8, 8 + 7.2 * len(title), 150)
    height = top + n * cell + (34 if scale else 4)

    parts = [_text(4, 14, title, size=13.3)] if title else []
    parts.append(_text(left, head + 15, axes[1], opacity=0.8))
    parts.append(_text(14, top, axes[0], "end", opacity=0.8, upright=True))
    for j, label in enumerate(columns):
        at = left + (j + 0.5) * cell
        if upright:
            parts.append(_text(at + 4, top - 6, label, "start", upright=True))
        else:
            parts.append(_text(at, top - 6, label, "middle"))
    for i, label in enumerate(rows):
        parts.append(_text(left - 5, top + (i + 0.5) * cell + 4, label, "end"))
    parts += _cells(values, hidden, limit, left, top, cell)
    if numbers:
        parts += _numbers(values, hidden, limit, left, top, cell)
    if scale:
        parts += _scale(values, limit, left, height - 15)
    return Picture([_svg(width, height, alt, parts)], [alt])


def _cells(
    values: np.ndarray, hidden: np.ndarray, limit: float, left: float, top: float, cell: float
) -> list[str]:
    """Each cell is the page's ink, as opaque as its number is large: zero is paper."""
    gap, size = 0.03 * cell, 0.94 * cell

    def square(i: int, j: int) -> str:
        x, y = left + j * cell + gap, top + i * cell + gap
        return f"M{x:.4g} {y:.4g}h{size:.4g}v{size:.4g}h-{size:.4g}z"

    everywhere = "".join(square(i, j) for i, j in np.ndindex(values.shape))
    parts = [f'<path d="{everywhere}" fill-opacity="0.07"/>']
    strength = np.nan_to_num(values, posinf=limit, neginf=-limit) / limit
    for ink, sign in ((INK, 1), (INK_2, -1)):
        alike: dict[str, str] = {}  # opacity -> the cells that have it, in one path
        for (i, j), share in np.ndenumerate(sign * strength):
            if share > 0.004:
                opacity = f"{min(share, 1):.2g}"
                alike[opacity] = alike.get(opacity, "") + square(i, j)
        if alike:
            paths = (f'<path d="{d}" fill-opacity="{o}"/>' for o, d in alike.items())
            parts += [f'<g style="fill:{_PAGE_COLOURS[ink]}">', *paths, "</g>"]
    strokes = "".join(
        f"M{left + (j + 0.22) * cell:.4g} {top + (i + 0.78) * cell:.4g}"
        f"l{0.56 * cell:.4g} {-0.56 * cell:.4g}"
        for i, j in zip(*np.nonzero(hidden), strict=True)
    )
    if strokes:
        parts.append(f'<path d="{strokes}" stroke="currentColor" stroke-opacity="0.5"/>')
    return parts


def _numbers(
    values: np.ndarray, hidden: np.ndarray, limit: float, left: float, top: float, cell: float
) -> list[str]:
    dark, light = [], []
    for (i, j), value in np.ndenumerate(values):
        if hidden[i, j] and value == 0:
            continue  # the stroke says it
        strong = np.isfinite(value) and abs(value) / limit > 0.62
        x, y = left + (j + 0.5) * cell, top + (i + 0.5) * cell + 4
        (light if strong else dark).append(f'<text x="{x:.4g}" y="{y:.4g}">{_short(value)}</text>')
    size = 11.3 * min(1.0, cell / 37)
    parts = [f'<g text-anchor="middle" style="font-size:{size:.3g}px">', *dark]
    return [*parts, f'<g style="fill:{_PAGE_COLOURS[PAPER]}">', *light, "</g></g>"]


def _scale(values: np.ndarray, limit: float, left: float, top: float) -> list[str]:
    """A small strip under the map that says what the colours mean."""
    low = -limit if (_finite(values) < 0).any() else 0.0
    start, step = left + 34, 7.5
    strip = np.linspace(low, limit, 12)[None]
    return [
        _text(start - 6, top + 9, _short(low), "end", size=10.5),
        *_cells(strip, np.zeros(strip.shape, bool), limit, start, top + 1, step),
        _text(start + 12 * step + 6, top + 9, _short(limit), size=10.5),
    ]


def _text(
    x: float,
    y: float,
    words: str,
    anchor: str = "start",
    *,
    size: float = 12,
    opacity: float = 1,
    upright: bool = False,
) -> str:
    """A piece of text; upright text reads from the bottom to the top."""
    if not words:
        return ""
    turn = f' transform="rotate(-90 {x:.4g} {y:.4g})"' if upright else ""
    faint = f' opacity="{opacity:g}"' if opacity < 1 else ""
    return (
        f'<text x="{x:.4g}" y="{y:.4g}" text-anchor="{anchor}"{turn}{faint} '
        f'style="font-size:{size:g}px">{escape(words)}</text>'
    )


def _svg(width: float, height: float, alt: str, parts: Iterable[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    space = 'xmlns="http://www.w3.org/2000/svg"'
    return f"<svg {space} {_frame(alt)} {size}>{''.join(parts)}</svg>"


def _frame(alt: str) -> str:
    """What every figure's <svg> element carries: it is an image, and it takes the page's colour."""
    return (
        'class="mh-figure" role="img" '
        f'aria-label="{escape(alt, quote=True)}" '
        'style="max-width:100%;height:auto;overflow:visible;fill:currentColor"'
    )


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
    if axes == _AXES:
        size = f"{n} queries by {m} keys"
    return f"{_sentence(title)}Heat map of weights, {size}. Largest weights: {'; '.join(told)}."


def _listed(keys: list[str]) -> str:
    return ", ".join(keys) if keys else "nothing"


def _sentence(title: str) -> str:
    return f"{title.rstrip('.')}. " if title else ""


def _from_matplotlib(figure: Figure, alt: str) -> str:
    """A figure of Matplotlib's as inline SVG that takes text, paper and ink from the page."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, transparent=True)
    svg = re.search(r"<svg.*", buffer.getvalue(), re.S)[0].strip()
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg, flags=re.S)
    # Text in the page's own font: Matplotlib names its own in every label (up to 3.9 in shorthand).
    svg = re.sub(r'font-family: [^;"]*(?:; )?', "", svg)
    svg = re.sub(r"font: (?:(\d+) )?([\d.]+)px '[^;\"]*", _font, svg)
    for colour, page in _PAGE_COLOURS.items():
        svg = svg.replace(colour, page)
    svg = re.sub(r"\s*\n\s*", "\n", _own_ids(svg))
    return svg.replace("<svg ", f"<svg {_frame(alt)} ", 1)


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
