"""Read a notebook that a person or a machine may have damaged, trusting nothing in it.

Only what grading needs comes out: each cell's type, source, identity, and pictures pasted into
text. Outputs, tags and every other metadata are left behind, so that none of them can matter.
"""

from __future__ import annotations

import codecs
import json
import re
from dataclasses import dataclass, field
from typing import Any

from headmaster.job import MIB
from headmaster.records import Refused

MAX_FILE = 100 * MIB
MAX_CELLS = 5_000
MAX_TEXT = 2 * MIB  # of all sources together

_BOMS = (  # UTF-32 first: its mark begins with UTF-16's
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_MERGE = re.compile(r"^(<<<<<<< |>>>>>>> )", re.MULTILINE)


@dataclass(frozen=True)
class SubmittedCell:
    """One cell of a submitted notebook."""

    index: int
    cell_type: str  # "code", "markdown" or "raw"
    source: str
    id: str = ""  # the notebook format's own cell id
    grade_id: str = ""  # nbgrader's
    attachments: dict[str, dict[str, str]] = field(default_factory=dict)


def decode(data: bytes) -> str:
    """Return the text of a file, whatever common encoding it was saved in."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data.decode(name, errors="replace")
    if data[:4].count(0) >= 1:  # no mark, but two bytes a letter
        return data.decode("utf-16-le" if data[1:2] == b"\0" else "utf-16-be", errors="replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("cp1252", errors="replace")


def read_notebook(data: bytes) -> list[SubmittedCell]:
    """Return the cells of a notebook file; raise Refused with the reason if it has none."""
    if len(data) > MAX_FILE:
        raise Refused("too-large", f"The notebook is larger than {MAX_FILE // MIB} MB.")
    if not data.strip():
        raise Refused("unreadable", "The file is empty. Save the notebook and hand it in again.")
    return submitted_cells(_parse(decode(data)))


def submitted_cells(notebook: Any) -> list[SubmittedCell]:
    """Return the cells of a parsed notebook of any version."""
    raw = _raw_cells(notebook)
    if len(raw) > MAX_CELLS:
        raise Refused("too-large", f"The notebook has more than {MAX_CELLS} cells.")
    cells = [_cell(index, item) for index, item in enumerate(raw) if isinstance(item, dict)]
    if sum(len(cell.source) for cell in cells) > MAX_TEXT:
        raise Refused("too-large", f"The cells hold more than {MAX_TEXT // MIB} MB of text.")
    return cells


def _parse(text: str) -> Any:
    try:
        return json.loads(text.lstrip("\ufeff"))
    except RecursionError:
        raise Refused("unreadable", "The file is nested far too deeply for a notebook.") from None
    except ValueError as error:
        raise Refused(*_explain(text, error)) from None


def _explain(text: str, error: ValueError) -> tuple[str, str]:
    """Say what a file that is not JSON probably is."""
    marks = _MERGE.search(text)
    if marks:
        line = text.count("\n", 0, marks.start()) + 1
        return "merge-conflict", (
            f"Line {line} of the file is a mark of an unfinished merge ({marks[0].strip()}). "
            "Choose one of the two versions, remove the lines that begin with <<<<<<<, ======= and "
            ">>>>>>>, open the notebook to see that it loads, and hand it in again."
        )
    if text.lstrip()[:1] == "<":
        return "unreadable", (
            "The file is a web page and not a notebook: it was probably saved from the browser's "
            "page view. Use File > Download in Jupyter and hand that file in."
        )
    where = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
    return "unreadable", (
        f"The file is not a complete notebook: its JSON breaks off or is damaged{where}. "
        "Open it in Jupyter, save it, and hand it in again."
    )


def _raw_cells(notebook: Any) -> list[Any]:
    """Find the list of cells, of format 4 or of format 3 with its worksheets."""
    if isinstance(notebook, dict):
        if isinstance(notebook.get("cells"), list):
            return notebook["cells"]
        if isinstance(notebook.get("worksheets"), list):
            sheets = [sheet for sheet in notebook["worksheets"] if isinstance(sheet, dict)]
            return [cell for sheet in sheets for cell in sheet.get("cells") or []]
    raise Refused("unreadable", "The file is JSON, but it has no cells: it is not a notebook.")


def _cell(index: int, raw: dict[str, Any]) -> SubmittedCell:
    metadata = raw.get("metadata") if isinstance(raw.get("metadata"), dict) else {}
    nbgrader = metadata.get("nbgrader") if isinstance(metadata.get("nbgrader"), dict) else {}
    return SubmittedCell(
        index=index,
        cell_type=_cell_type(raw),
        source=_source(raw),
        id=_word(raw.get("id")) or _word(metadata.get("id")),
        grade_id=_word(nbgrader.get("grade_id")),
        attachments=_attachments(raw.get("attachments")),
    )


def _attachments(raw: Any) -> dict[str, dict[str, str]]:
    """Return the pictures pasted into a text: name to type to base64."""
    named = raw.items() if isinstance(raw, dict) else ()
    bundles = {clean(name): bundle for name, bundle in named if isinstance(bundle, dict)}
    return {
        name: {kind: data for kind, data in bundle.items() if isinstance(data, str)}
        for name, bundle in bundles.items()
    }


def _word(value: Any) -> str:
    return clean(value) if isinstance(value, str) and len(value) <= 256 else ""


def _cell_type(raw: dict[str, Any]) -> str:
    kind = raw.get("cell_type")
    if kind in ("code", "markdown", "raw"):
        return kind
    if kind in ("heading", "html"):  # format 3
        return "markdown"
    return "code" if "outputs" in raw or "input" in raw else "raw"


def _source(raw: dict[str, Any]) -> str:
    value = raw.get("source", raw.get("input", ""))
    if isinstance(value, list):
        value = _join([item for item in value if isinstance(item, str)])
    if not isinstance(value, str):
        value = ""
    if raw.get("cell_type") == "heading":
        value = f"# {value}"
    return clean(value)


def _join(lines: list[str]) -> str:
    """Join a source's lines; some tools write them without their line ends."""
    if len(lines) > 1 and not any(line.endswith("\n") for line in lines[:-1]):
        return "\n".join(lines)
    return "".join(lines)


def clean(text: str) -> str:
    """Return text with plain line ends that any file and database can hold."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")
    return text.encode("utf-8", errors="replace").decode("utf-8")
