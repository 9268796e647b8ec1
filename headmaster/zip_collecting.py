"""Let `nbgrader zip_collect` read what Canvas and Moodle give, with a class list.

    c.ZipCollectApp.extractor_plugin = "headmaster.zip_collecting.LmsExtractor"
    c.ZipCollectApp.collector_plugin = "headmaster.zip_collecting.LmsCollector"
    c.Headmaster.roster = "class.csv"

nbgrader then does everything else as it always does. (`headmaster collect` does more: it keeps what
it replaces, lists what is nobody's with the reason, unpacks what students zipped, knows late marks,
and can be run again.)
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headmaster.class_list import roster_of
from headmaster.course import Course, CourseError
from headmaster.light import skip_slow_grammar
from headmaster.lms import Sender, notebook_of, senders
from headmaster.records import Refused
from headmaster.release import notebook_names
from headmaster.roster import Roster, Unmatched
from headmaster.sources import Entry, open_sources

skip_slow_grammar()
from nbgrader.plugins import ExtractorPlugin, FileNameCollectorPlugin  # noqa: E402


class LmsExtractor(ExtractorPlugin):
    """Unpack downloads within limits, with their files' names and times as they were."""

    def extract(self, archive_path: str, extracted_path: str) -> None:
        """Write the files of all downloads in one folder to another; raises nothing."""
        with open_sources([Path(archive_path)]) as (entries, open_inner):
            for entry in entries:
                try:
                    is_download = entry.path.lower().endswith(".zip")
                    for item in open_inner(entry) if is_download else [entry]:
                        self._write(item, Path(extracted_path))
                except (CourseError, Refused) as error:
                    self.log.error("%s was left: %s", entry.path, error)

    def _write(self, entry: Entry, folder: Path) -> None:
        if entry.trouble:
            self.log.error("%s was left: %s", entry.path, entry.trouble)
            return
        path = folder / entry.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry.read())
        if entry.time:
            seconds = entry.time.replace(tzinfo=UTC).timestamp()
            os.utime(path, (seconds, seconds))


class LmsCollector(FileNameCollectorPlugin):
    """Find the student of a file by the class list, and the notebook by the file's name."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        coursedir = self.parent.coursedir
        course = Course(Path(coursedir.root), self.config)
        self.roster: Roster = roster_of(course, None)
        self.notebooks = notebook_names(course, coursedir.assignment_id)
        self.folder = self.parent._format_collect_path(self.parent.extracted_directory)

    def collect(self, submitted_file: str) -> dict[str, Any] | None:
        """Return nbgrader's description of a file, or None for one that is nobody's."""
        if os.path.splitext(submitted_file)[1] not in self.valid_ext:
            return None
        path = Path(os.path.relpath(submitted_file, self.folder)).as_posix()
        try:
            student, sender = self._whose(path)
        except Unmatched as reason:
            self.log.warning("%s: %s", path, reason)
            return None
        notebook, _ = notebook_of(sender.file, self.notebooks)
        if notebook is None and len(self.notebooks) == 1:
            notebook = self.notebooks[0]
        seconds = os.stat(submitted_file).st_mtime
        return {
            "student_id": student,
            "file_id": f"{notebook}.ipynb" if notebook else sender.file,
            "timestamp": datetime.fromtimestamp(int(seconds), UTC).replace(tzinfo=None),
        }

    def _whose(self, path: str) -> tuple[str, Sender]:
        first: Unmatched | None = None
        for sender in senders(path, self.notebooks, self.named_regexp):
            try:
                people = self.roster.find(sender)
            except Unmatched as reason:
                first = first or reason
                if reason.final:
                    break
            else:
                if len(people) == 1:
                    return people[0].id, sender
                first = first or Unmatched("it is a group's: use headmaster collect")
        raise first or Unmatched("its name does not say whose it is")
