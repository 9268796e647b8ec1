"""An edition may leave chapters out: take their files away, and nothing else has to change.

The contents then lack them, and links to them become plain words instead of broken links.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

import yaml
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform

# ../exercises/04_multi_head/multi_head.ipynb, 04_multi_head.md#some-heading
_CHAPTER = re.compile(r"^(?P<page>(?:.*/)?\d\d_\w+(?:/\w+)?)(?:\.md|\.ipynb)?(?:#.*)?$")


class AbsentChapters(SphinxPostTransform):
    """Runs before the links are resolved: afterwards MyST has warned, and -W ends the build."""

    default_priority = 8  # MyST's resolver has 9

    def run(self, **kwargs: object) -> None:
        for link in list(self.document.findall(pending_xref)):
            found = _CHAPTER.match(link["reftarget"])
            if found and not self._is_here(link, found["page"]):
                link.replace_self(link[0].deepcopy())

    def _is_here(self, link: pending_xref, page: str) -> bool:
        """Whether the book has this page, which a link names from the root or from its own page."""
        folder = posixpath.dirname(link.get("refdoc", self.env.docname))
        names = (page, posixpath.normpath(posixpath.join(folder, page)))
        return any(name in self.env.all_docs for name in names)


def _present(entries: list[dict], root: Path) -> list[dict]:
    """The entries of the contents whose files exist, and of each the sections whose files exist."""
    kept = []
    for entry in entries:
        if any((root / f"{entry['file']}{suffix}").is_file() for suffix in (".md", ".ipynb")):
            sections = _present(entry.get("sections", []), root)
            bare = {key: value for key, value in entry.items() if key != "sections"}
            kept.append(bare | ({"sections": sections} if sections else {}))
    return kept


def leave_out(app: Sphinx, config: Config) -> None:
    """Give Sphinx the contents without the chapters whose files are not there."""
    root = Path(app.srcdir)
    contents = yaml.safe_load((root / config.external_toc_path).read_text("utf8"))
    parts = [part | {"chapters": _present(part["chapters"], root)} for part in contents["parts"]]
    contents["parts"] = [part for part in parts if part["chapters"]]
    path = Path(app.outdir).parent / "contents.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(contents, sort_keys=False), "utf8")
    config.external_toc_path = str(path)


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("config-inited", leave_out, priority=500)  # the contents are read at 900
    app.add_post_transform(AbsentChapters)
