"""Let `nbgrader autograde`, and formgrader's button, run notebooks in headmaster's engine.

One line in nbgrader_config.py puts the engine in the place of the kernel:

    c.Autograde.autograde_preprocessors = [
        "headmaster.nbgrader_plugin.EngineExecute",
        "nbgrader.preprocessors.LimitOutput",
        "nbgrader.preprocessors.SaveAutoGrades",
        "nbgrader.preprocessors.AssignLatePenalties",
        "nbgrader.preprocessors.CheckCellMetadata",
    ]

nbgrader then does everything else as it always does. (`headmaster grade` does more: it forgives
damaged notebooks, keeps records, and is faster.)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode, from_dict
from nbgrader.preprocessors import NbGraderPreprocessor
from nbgrader.utils import is_grade, is_locked, is_solution

from headmaster.course import Course
from headmaster.grading import new_seed
from headmaster.job import Cell, CellResult, Job, Kind
from headmaster.pool import Task, run_task


class EngineExecute(NbGraderPreprocessor):
    """Run a notebook in the engine instead of a kernel."""

    def preprocess(
        self, nb: NotebookNode, resources: ResourcesDict
    ) -> tuple[NotebookNode, ResourcesDict]:
        """Fill in the outputs of all code cells; raises RuntimeError for the machine's trouble."""
        course = Course(Path.cwd(), self.config)  # nbgrader has gone to the course's root
        own = nb.metadata.get("headmaster", {})
        cells = {f"cell-{i}": cell for i, cell in enumerate(nb.cells) if cell.cell_type == "code"}
        job = Job(
            assignment=resources["nbgrader"]["assignment"],
            notebook=resources["nbgrader"]["notebook"],
            student=resources["nbgrader"]["student"],
            cells=tuple(Cell(name, _kind(cell), cell.source) for name, cell in cells.items()),
            hide=tuple(own.get("hide", course.setting("Headmaster", "hide", ()))),
            show=tuple(own.get("show", course.setting("Headmaster", "show", ()))),
            trusted_path=course.trusted_path,
            seed=new_seed(),
            limits=course.limits,
        )
        outcome = run_task(Task(job))
        if outcome.trouble:
            raise RuntimeError(f"headmaster: {outcome.trouble}")
        for result in outcome.results:
            cells[result.id].outputs = [from_dict(output) for output in _outputs(result)]
        return nb, resources


def _kind(cell: NotebookNode) -> Kind:
    if is_grade(cell) and not is_solution(cell):
        return "test"
    return "locked" if is_locked(cell) else "student"


def _outputs(result: CellResult) -> list[dict[str, Any]]:
    """Return the outputs, with an error wherever nbgrader has to see one."""
    outputs = [dict(output) for output in result.outputs]
    failed = result.status != "ok"
    if failed and not any(output["output_type"] == "error" for output in outputs):
        name = result.ename or "NotRun"
        text = result.evalue or result.status
        outputs.append({"output_type": "error", "ename": name, "evalue": text, "traceback": [text]})
    return outputs
