"""Measure the library's kinds of attention, one thread, beside PyTorch on the same processor.

    python tests/bench/bench_attention.py                 everything, about two minutes
    python tests/bench/bench_attention.py window linear   some sections
    python tests/bench/bench_attention.py --keys 1024 --keys 4096

Prints tables and writes build/bench.json; a run of everything also writes book/bench.json, which
chapter 09 shows. Times are CPU seconds, the best of
several rounds; in a round every contender runs once, so that a machine that slows down slows all.
Memory is the peak of what NumPy holds above the inputs (PyTorch's own is not seen).
"""

# ruff: noqa: E402  (the environment comes before the imports that read it)
from __future__ import annotations

import os

# One thread, and the kernels that BLAS itself picks for this processor.
os.environ.update(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
for setting in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):
    os.environ.pop(setting, None)

import json
import platform
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from manyheads.efficient import linear_attention, shifted_attention, tiled_attention
from manyheads.multi_head import merge_heads, multi_head_attention, split_heads
from manyheads.scaled_dot_product import attention
from manyheads.sparse import (
    block_sparse_attention,
    hash_attention,
    hash_buckets,
    local_attention,
)

try:
    import torch

    torch.set_num_threads(1)
except ImportError:
    torch = None

REPORT = Path(__file__).parents[2] / "build" / "bench.json"
BOOK = Path(__file__).parents[2] / "book" / "bench.json"
KEYS = (1024, 4096, 16384)
WIDTH = 64  # d_k and d_v, as in the paper
WINDOW, BLOCK, TILE = 128, 64, 512
HEADS = (8, 256, 16)  # items, width, heads
SPLIT = (512, 8)  # width, heads
ROUNDS, SECONDS = 6, 2.0  # at least so many rounds, and more while they fit in the time

DENSE, FUSED = "dense", "PyTorch, fused kernel"

Call = Callable[[], object]
console = Console()


@dataclass(frozen=True)
class Contender:
    """Something to measure."""

    section: str
    name: str
    call: Call
    detail: str = ""


@dataclass(frozen=True)
class Row:
    """What was measured of one contender at one size."""

    section: str
    name: str
    detail: str
    n: int
    seconds: float
    peak_bytes: int | None  # None for PyTorch, whose memory the gauge does not see
    times_faster_than_dense: float | None
    share_of_pytorch: float | None


def kinds_of_attention(n: int, rng: np.random.Generator) -> list[Contender]:
    """Everything that is measured with n queries and n keys."""
    Q, K, V = (rng.normal(size=(n, WIDTH)).astype(np.float32) for _ in range(3))
    layout = neighbours_first_and_random(-(-n // BLOCK), rng)
    rotations = rng.normal(size=(WIDTH, max(1, n // BLOCK // 2))).astype(np.float32)

    def hashed() -> np.ndarray:
        buckets = hash_buckets(Q, rotations)  # queries and keys are one, as in Reformer
        return hash_attention(Q, Q, V, buckets, buckets)

    def tiled(causal: bool) -> np.ndarray:
        return tiled_attention(Q, K, V, TILE, causal)

    def local(causal: bool) -> np.ndarray:
        return local_attention(Q, K, V, WINDOW, causal)

    def blocks() -> np.ndarray:
        return block_sparse_attention(Q, K, V, layout, BLOCK)

    active = f"{layout.sum(axis=1).mean():.1f} × {BLOCK}"
    return [
        Contender("dense", DENSE, lambda: attention(Q, K, V)),
        Contender("dense", "online softmax", lambda: tiled(False)),
        Contender("dense", "online softmax, causal", lambda: tiled(True)),
        Contender("dense", "shifted", lambda: shifted_attention(Q, K, V)),
        *fused(Q, K, V),
        Contender("window", "window", lambda: local(False), f"±{WINDOW}"),
        Contender("window", "window, causal", lambda: local(True), f"{WINDOW} back"),
        Contender("blocks", "block-sparse", blocks, active),
        Contender("hash", "hashed", hashed, f"{2 * rotations.shape[1]} buckets"),
        Contender("linear", "linear", lambda: linear_attention(Q, K, V)),
        Contender("linear", "linear, causal", lambda: linear_attention(Q, K, V, causal=True)),
    ]


def neighbours_first_and_random(blocks: int, rng: np.random.Generator) -> np.ndarray:
    """A layout like BigBird's: the blocks beside each one, the first, and three at random."""
    layout = np.abs(np.subtract.outer(np.arange(blocks), np.arange(blocks))) <= 1
    layout[:, 0] = True
    np.put_along_axis(layout, rng.integers(0, blocks, (blocks, 3)), True, axis=1)
    return layout


def fused(Q: np.ndarray, K: np.ndarray, V: np.ndarray) -> list[Contender]:
    """PyTorch's fused kernel on the same arrays, where PyTorch is installed."""
    if torch is None:
        return []
    tensors = [torch.from_numpy(a)[None, None] for a in (Q, K, V)]
    kernel = torch.nn.functional.scaled_dot_product_attention
    return [Contender("dense", FUSED, lambda: kernel(*tensors))]


def ways_to_run_heads(n: int, rng: np.random.Generator) -> list[Contender]:
    """One product for all heads, and loops over the heads."""
    batch, d, h = HEADS
    x = rng.normal(size=(batch, n, d)).astype(np.float32)
    W_q, W_k, W_v, W_o = (rng.normal(size=(4, d, d)) / np.sqrt(d)).astype(np.float32)
    columns = [slice(i * d // h, (i + 1) * d // h) for i in range(h)]

    def loop(x: np.ndarray) -> np.ndarray:
        heads = [attention(x @ W_q[:, own], x @ W_k[:, own], x @ W_v[:, own])[0] for own in columns]
        return np.concatenate(heads, axis=-1) @ W_o

    def together() -> np.ndarray:
        return multi_head_attention(x, W_q, W_k, W_v, W_o, h)[0]

    return [
        Contender("heads", "one big product", together),
        Contender("heads", "a loop over heads", lambda: loop(x)),
        Contender("heads", "a loop over items and heads", lambda: [loop(i) for i in x]),
        *module(x, (W_q, W_k, W_v, W_o), h),
    ]


def module(x: np.ndarray, weights: tuple[np.ndarray, ...], num_heads: int) -> list[Contender]:
    """PyTorch's MultiheadAttention with the same weights, where PyTorch is installed."""
    if torch is None:
        return []
    layer = torch.nn.MultiheadAttention(x.shape[-1], num_heads, bias=False, batch_first=True)
    *inner, W_o = (torch.tensor(W.T) for W in weights)
    layer.load_state_dict({"in_proj_weight": torch.cat(inner), "out_proj.weight": W_o})
    X = torch.from_numpy(x)

    def run() -> None:
        with torch.no_grad():
            layer(X, X, X, need_weights=True, average_attn_weights=False)

    return [Contender("heads", "PyTorch, MultiheadAttention", run)]


def ways_to_split(n: int, rng: np.random.Generator) -> list[Contender]:
    """Splitting into heads moves no number; merging moves each one, once."""
    d, h = SPLIT
    x = rng.normal(size=(n, d)).astype(np.float32)
    heads = split_heads(x, h)
    fresh = heads.copy()
    assert np.shares_memory(heads, x)
    assert not np.shares_memory(merge_heads(fresh), fresh)
    return [
        Contender("reshape", "split_heads, a view", lambda: split_heads(x, h)),
        Contender("reshape", "split_heads, then a copy", lambda: split_heads(x, h).copy()),
        Contender("reshape", "merge_heads, a copy", lambda: merge_heads(fresh)),
    ]


def kinds_of_numbers(n: int, rng: np.random.Generator) -> list[Contender]:
    """What float64 costs, and how one np.sqrt brings it in unasked."""
    Q, K, V = (rng.normal(size=(n, WIDTH)).astype(np.float32) for _ in range(3))
    wide = [a.astype(float) for a in (Q, K, V)]

    def lifted() -> np.ndarray:
        scores = Q @ K.T / np.sqrt(WIDTH)  # a float64 number, and so are then the scores
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True) @ V

    return [
        Contender("precision", "float32", lambda: attention(Q, K, V)),
        Contender("precision", "float64", lambda: attention(*wide)),
        Contender("precision", "float32, divided by np.sqrt", lifted),
    ]


def measure(contenders: list[Contender], n: int) -> list[Row]:
    """Times, memory and ratios of contenders of one size."""
    seconds = race(contenders, n)
    dense = seconds.get(DENSE)
    pytorch = next((seconds[name] for name in seconds if name.startswith("PyTorch")), None)
    rows = []
    for c in contenders:
        own = seconds[c.name]
        peak = None if c.name.startswith("PyTorch") else peak_memory(c.call)
        faster, share = dense and dense / own, pytorch and own / pytorch
        rows.append(Row(c.section, c.name, c.detail, n, own, peak, faster, share))
    return rows


def race(contenders: list[Contender], n: int) -> dict[str, float]:
    """CPU seconds of each contender, the best of several rounds."""
    best = {c.name: float("inf") for c in contenders}
    started, rounds = time.perf_counter(), 0
    with console.status("") as status:
        while rounds < ROUNDS or time.perf_counter() - started < SECONDS:
            rounds += 1
            for c in contenders:
                status.update(f"n = {n}, round {rounds}: {c.name}")
                before = time.process_time()
                c.call()
                best[c.name] = min(best[c.name], time.process_time() - before)
    took = time.perf_counter() - started
    console.print(f"n = {n}: {len(contenders)} contenders, {rounds} rounds, {took:.0f} s")
    return best


def peak_memory(call: Call) -> int:
    """Bytes that a call holds at its worst, above its inputs."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return {
        "processor": processor(),
        "system": platform.system(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "torch": "not installed" if torch is None else torch.__version__,
        "threads": "1",
        "date": time.strftime("%Y-%m-%d"),
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def table(section: str, rows: list[Row]) -> Table:
    """One section as a table; a ratio that no row has gets no column."""
    columns = {
        "": [f"{row.name} {row.detail}".strip() for row in rows],
        "n": [str(row.n) for row in rows],
        "time": [duration(row.seconds) for row in rows],
        "peak": [memory(row.peak_bytes) for row in rows],
        "dense/this": [ratio(row.times_faster_than_dense) for row in rows],
        "this/PyTorch": [ratio(row.share_of_pytorch) for row in rows],
    }
    shown = {heading: cells for heading, cells in columns.items() if any(cells)}
    made = Table(
        title=TITLES[section],
        title_justify="left",
        title_style="bold",
        box=SIMPLE,
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in shown:
        made.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for cells in zip(*shown.values(), strict=True):
        made.add_row(*cells)
    return made


def duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def memory(size: int | None) -> str:
    return "" if size is None else f"{size / 1e6:,.1f} MB"


def ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.2f}"


TITLES = {
    "dense": f"All pairs, width {WIDTH}, float32; online softmax in tiles of {TILE}",
    "window": "Windows",
    "blocks": f"Blocks of {BLOCK}: the neighbours, the first, three at random",
    "hash": "Hashing, queries and keys one",
    "linear": "Linear attention",
    "heads": "Heads: {} items, width {}, {} heads".format(*HEADS),
    "reshape": "Reshape: width {} in {} heads; splitting copies nothing".format(*SPLIT),
    "precision": "Precision, all pairs",
}
BY_KEYS = ("dense", "window", "blocks", "hash", "linear")
ALONE = {
    "heads": (ways_to_run_heads, (16, 128)),
    "reshape": (ways_to_split, (4096,)),
    "precision": (kinds_of_numbers, (4096,)),
}
SECTIONS = (*BY_KEYS, *ALONE)


def run(sections: set[str], keys: tuple[int, ...]) -> list[Row]:
    """Measure the sections; dense attention and PyTorch run wherever others are compared."""
    rows = []
    for n in keys if sections & set(BY_KEYS) else ():
        every = kinds_of_attention(n, np.random.default_rng(n))
        rows += measure([c for c in every if c.section in sections or c.name in (DENSE, FUSED)], n)
    for section, (contenders, sizes) in ALONE.items():
        for n in sizes if section in sections else ():
            rows += measure(contenders(n, np.random.default_rng(n)), n)
    return rows


@click.command()
@click.argument("sections", nargs=-1, type=click.Choice(SECTIONS))
@click.option("--keys", type=int, multiple=True, default=KEYS, show_default=True)
@click.option("--report", type=click.Path(path_type=Path), default=REPORT, help="the JSON file")
def main(sections: tuple[str, ...], keys: tuple[int, ...], report: Path) -> None:
    """Measure all sections, or the given ones, and write the report."""
    about = machine()
    console.print(", ".join(f"{key} {value}" for key, value in about.items()))
    rows = run(set(sections) or set(SECTIONS), keys)
    for section in SECTIONS:
        if own := [row for row in rows if row.section == section]:
            console.print(table(section, own))
    settings = {"width": WIDTH, "window": WINDOW, "block": BLOCK, "tile": TILE}
    content = {"machine": about, "settings": settings, "rows": [asdict(row) for row in rows]}
    for path in (report, BOOK) if not sections and keys == KEYS else (report,):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        console.print(f"written to {path}")


if __name__ == "__main__":
    main()
