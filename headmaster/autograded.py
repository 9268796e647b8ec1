"""The autograded/ folder: notebooks that nbgrader's formgrader, feedback and export read."""

from __future__ import annotations

import json
import os
import tempfile
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from headmaster.intake import TIMESTAMP
from headmaster.records import NotebookResult, Result
from headmaster.release import AssignmentSpec, NotebookSpec

NOTICE = "headmaster-notice"  # id of the cell that says why something was not graded
_TAIL = 4096  # the fingerprint stands in the notebook's metadata, at the end of the file


def write(folder: Path, spec: AssignmentSpec, result: Result) -> None:
    """Write a submission's notebooks, each whole or not at all."""
    for notebook in result.notebooks:
        source = next(item for item in spec.notebooks if item.name == notebook.name)
        cells = notebook.cells
        if notebook.refusal:
            cells = [_notice("Not graded", notebook.refusal.message), *_released_cells(source)]
        elif not cells:  # not handed in
            continue
        write_notebook(folder / f"{notebook.name}.ipynb", cells, source, result.fingerprint)


def write_notebook(
    path: Path, cells: list[dict[str, Any]], spec: NotebookSpec, fingerprint: str
) -> None:
    """Write one notebook in nbformat's own layout."""
    metadata = {
        "kernelspec": spec.kernelspec or {"name": "python3", "display_name": "Python 3"},
        "language_info": {"name": "python"},
        "headmaster": {"fingerprint": fingerprint},
    }
    _write_json(path, {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def write_files(
    folder: Path,
    files: tuple[tuple[str, bytes], ...],
    own: tuple[tuple[str, bytes], ...],
    timestamp: datetime | None,
) -> None:
    """Write the hand-in's other files; the course's own of the same name win."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in {**dict(files), **dict(own)}.items():
        if PurePosixPath(name).parts[0].endswith(".ipynb"):
            continue  # a folder that would stand in a notebook's place
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, data)
    if timestamp:
        replace_file(folder / TIMESTAMP, f"{timestamp} UTC".encode())


def complete(folder: Path, notebooks: list[str], fingerprint: str) -> bool:
    """Say whether the folder holds all notebooks as they were graded under this fingerprint."""
    paths = [folder / f"{name}.ipynb" for name in notebooks]
    return bool(fingerprint) and all(p.is_file() and _carries(p, fingerprint) for p in paths)


def with_cells(folder: Path, result: Result) -> Result:
    """Return the result with the cells of the notebooks on disk."""
    for notebook in result.notebooks:
        if not notebook.cells:
            notebook.cells = _cells_on_disk(folder, notebook)
    return result


def mark_stale(folder: Path, result: Result) -> None:
    """Put a notice into the notebooks of an earlier hand-in whose successor was not graded."""
    for path in sorted(folder.glob("*.ipynb")):
        notebook = json.loads(path.read_bytes())
        cells = [cell for cell in notebook["cells"] if cell.get("id") != NOTICE]
        notebook["cells"] = [_notice("Stale grade", result.stale), *cells]
        notebook["metadata"]["headmaster"] = {"fingerprint": result.fingerprint}
        _write_json(path, notebook)


def replace_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all."""
    handle, name = tempfile.mkstemp(prefix=".headmaster-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _write_json(path: Path, notebook: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # sorted keys put the metadata, with the fingerprint, behind the cells
    text = json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False)
    replace_file(path, (text + "\n").encode("utf-8", "replace"))


def _carries(path: Path, fingerprint: str) -> bool:
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return fingerprint.encode() in file.read()


def _cells_on_disk(folder: Path, notebook: NotebookResult) -> list[dict[str, Any]]:
    path = folder / f"{notebook.name}.ipynb"
    if not path.is_file():
        return []
    cells = json.loads(path.read_bytes())["cells"]
    return [cell for cell in cells if cell.get("id") != NOTICE]


def _notice(title: str, text: str) -> dict[str, Any]:
    quoted = text.replace("<", "&lt;")
    return {
        "cell_type": "markdown",
        "id": NOTICE,
        "metadata": {},
        "source": f"**{title}.** {quoted}",
    }


def _released_cells(spec: NotebookSpec) -> list[dict[str, Any]]:
    from headmaster.grading import output_cell
    from headmaster.matching import PlacedCell

    cells = (c for c in spec.cells if c.role != "free")
    return [output_cell(PlacedCell(c.id, c.cell_type, c.stored, c), None) for c in cells]
