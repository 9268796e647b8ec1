"""nbgrader's configuration of this course: solutions/ is the source, exercises/ the release.

What a class hands in and gets back lies below build/class, the gradebook included. For a course of
your own copy this file and change the folders; headmaster reads the same settings.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
CLASS = ROOT / "build" / "class"
CLASS.mkdir(parents=True, exist_ok=True)

c = get_config()  # noqa: F821  (nbgrader provides it)

c.CourseDirectory.course_id = "manyheads"
c.CourseDirectory.root = str(ROOT)
c.CourseDirectory.source_directory = "solutions"
c.CourseDirectory.release_directory = "exercises"
c.CourseDirectory.submitted_directory = "build/class/submitted"
c.CourseDirectory.autograded_directory = "build/class/autograded"
c.CourseDirectory.feedback_directory = "build/class/feedback"
c.CourseDirectory.db_url = f"sqlite:///{CLASS / 'gradebook.db'}"
# The texts are the source of the notebooks, not files that come with them.
c.CourseDirectory.ignore = [
    ".ipynb_checkpoints",
    "*.pyc",
    "__pycache__",
    ".pytest_cache",
    "feedback",
    "*.md",
]
c.IncludeHeaderFooter.header = ""

# What `headmaster new` starts an exercise from.
c.Headmaster.template = "tests/hidden/template"

# `nbgrader zip_collect`: files named student_topic.ipynb in a folder, whatever a browser appended.
c.ZipCollectApp.downloaded_directory = "build/class/downloaded"
c.FileNameCollectorPlugin.named_regexp = (
    r"^(.*[/\\])?(?P<student_id>[A-Za-z0-9-]+)_(?P<file_id>[a-z_]+?)([ -]?\(\d+\)| copy)?\.ipynb$"
)

# Stock nbgrader gives full marks for a test cell that a student tagged "skip-execution".
c.Execute.skip_cells_with_tag = "no-cell-bears-this-tag"
# A test cell that a student deleted is put back and graded, not given full marks.
c.OverwriteCells.add_missing_cells = True
# A test cell that runs for longer than this is interrupted and fails.
c.Execute.timeout = 60
c.Execute.interrupt_on_timeout = True

# The hidden cells import tests.hidden from here; one thread for linear algebra keeps grading fair.
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"
# A new gradebook makes nbgrader call `alembic`; without it the gradebook would stay half made.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
