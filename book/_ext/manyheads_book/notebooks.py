"""What the browser needs to know about a page's cells, written to one small file per page.

The file is fetched at the first click on Run, never before. It also holds the cells that the page
doesn't show (tag `remove-cell`), because those above have to run first there as in a kernel.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path

import nbformat
from docutils import nodes
from myst_nb.core.read import is_myst_markdown_notebook, read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from sphinx.application import Sphinx

from .library import VISIBLE, contract_files, later_files, library_zip

LIVE = "_static/live"


def read_notebook(path: Path) -> nbformat.NotebookNode | None:
    """The notebook in a MyST or Jupyter file; None for a page of plain text."""
    if path.suffix == ".ipynb":
        return nbformat.read(path, as_version=4)
    text = path.read_text("utf8")
    if not is_myst_markdown_notebook(text):
        return None
    return read_myst_markdown_notebook(text, MdParserConfig())


def live_name(docname: str) -> str:
    """The file name of a page's cells inside `_static/live`."""
    return docname.replace("/", "--") + ".json"


def _cell_kind(cell: nbformat.NotebookNode) -> str:
    """What a cell is to a student: something to write, a check, or given."""
    grading = cell.metadata.get("nbgrader", {})
    if grading.get("solution"):
        return "answer" if cell.cell_type == "markdown" else "solution"
    return "check" if grading.get("grade") else "given"


def describe(notebook: nbformat.NotebookNode) -> dict:
    """The code cells of a page in document order, and what a student's Python may import."""
    limits = notebook.metadata.get("headmaster", {})
    cells = []
    for index, cell in enumerate(notebook.cells):
        kind = _cell_kind(cell)
        if cell.cell_type != "code" and kind != "answer":
            continue
        if "only-at-build" in cell.metadata.get("tags", []):  # it reads files that only we have
            continue
        grading = cell.metadata.get("nbgrader", {})
        cells.append(
            {
                "index": index,
                "kind": kind,
                "type": cell.cell_type,
                "id": grading.get("grade_id", ""),
                "points": grading.get("points", 0),
                "source": cell.source,
            }
        )
    return {
        "exercise": any(cell["kind"] != "given" for cell in cells),
        "hide": list(limits.get("hide", [])),
        "show": list(limits.get("show", [])),
        "cells": cells,
    }


def remember_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Give each cell's element its number in the notebook, and keep the sources for later."""
    notebook = read_notebook(Path(app.env.doc2path(app.env.docname)))
    described = describe(notebook) if notebook else None
    page_cells(app)[app.env.docname] = described
    if not described:
        return
    kinds = {cell["index"]: cell["kind"] for cell in described["cells"]}
    for container in doctree.findall(nodes.container):
        index = container.get("cell_index")
        if container.get("nb_element") == "cell_code" and index in kinds:
            container["classes"] += [f"cell-{index}", f"cell-kind-{kinds[index]}"]


def mark_answers(app: Sphinx, docname: str, content: list[str]) -> None:
    """Put a question that is answered in words into an element of its own.

    Text cells leave no trace in a page, so the exercise's script could not find the answer's place.
    """
    if Path(app.env.doc2path(docname)).suffix != ".ipynb":
        return
    notebook = nbformat.reads(content[0], as_version=4)
    for index, cell in enumerate(notebook.cells):
        if _cell_kind(cell) == "answer":
            inside = "\n\n" + cell.source + "\n\n"
            cell.source = f'<div class="cell cell-{index} cell-kind-answer">{inside}</div>'
    content[0] = nbformat.writes(notebook)


def page_cells(app: Sphinx) -> dict[str, dict | None]:
    """The described cells of all pages, kept in Sphinx's environment between builds."""
    if not hasattr(app.env, "book_cells"):
        app.env.book_cells = {}
    return app.env.book_cells


def _contract(docname: str) -> dict[str, dict[str, str]]:
    """The sentences of an exercise's contract, by function: what its progress counts."""
    path = VISIBLE / f"{docname.split('/')[-2]}.json"
    if not docname.startswith("exercises/") or not path.is_file():
        return {}
    functions = json.loads(path.read_text("utf8"))
    return {name: function["sentences"] for name, function in functions.items()}


@lru_cache(maxsize=1)
def _shared() -> dict:
    """What every page's Python starts with."""
    digest = hashlib.sha256(library_zip()).hexdigest()[:10]
    return {"library": f"manyheads.zip?v={digest}", "assets": later_files()}


def page_facts(app: Sphinx, docname: str) -> str | None:
    """What the browser must know about a page's cells, as JSON; None where a page has none."""
    described = page_cells(app).get(docname)
    if not described or not described["cells"]:
        return None
    whole = {
        **described,
        **_shared(),
        "contract": _contract(docname),
        "extras": contract_files(docname),
        "repository": app.config.book_repository,
    }
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def write_cells(app: Sphinx, error: Exception | None) -> None:
    """Write the file of each page that has cells."""
    if error or app.builder.format != "html":
        return
    folder = Path(app.outdir) / LIVE
    folder.mkdir(parents=True, exist_ok=True)
    for docname in app.env.found_docs:
        facts = page_facts(app, docname)
        if facts:
            (folder / live_name(docname)).write_text(facts, "utf8")


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("source-read", mark_answers)
    app.connect("doctree-read", remember_cells)
    app.connect("build-finished", write_cells)
