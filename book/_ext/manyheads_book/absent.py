"""An edition may leave pages out: take their files away, and nothing else has to change.

The contents then lack them, links to them become plain words instead of broken links, and cards
that lead to them are not there.
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

_ENDING = re.compile(r"(?:\.md|\.ipynb)?(?:#.*)?$")
# ../exercises/04_multi_head/multi_head, 04_multi_head
_CHAPTER = re.compile(r"(?:.*/)?\d\d_\w+(?:/\w+)?$")


class AbsentPages(SphinxPostTransform):
    """Runs before the links are resolved: afterwards MyST has warned, and -W ends the build."""

    default_priority = 8  # MyST's resolver has 9

    def run(self, **kwargs: object) -> None:
        for link in list(self.document.findall(pending_xref)):
            page = _ENDING.sub("", link["reftarget"])
            names = self._names(link, page)
            known = _CHAPTER.match(page) or any(name in self.app.book_absent for name in names)
            if known and not any(name in self.env.all_docs for name in names):
                _remove(link)

    def _names(self, link: pending_xref, page: str) -> tuple[str, str]:
        """The page, which a link names from the root or from its own page."""
        folder = posixpath.dirname(link.get("refdoc", self.env.docname))
        return page.lstrip("/"), posixpath.normpath(posixpath.join(folder, page))


def _remove(link: pending_xref) -> None:
    """Leave the link's words; of a card that is a link as a whole, nothing."""
    card = link.parent
    while card is not None and "sd-col" not in card.get("classes", ()):
        card = card.parent
    if card is not None and "sd-stretched-link" in link["classes"]:
        card.parent.remove(card)
    else:
        link.replace_self(link[0].deepcopy())


def _present(entries: list[dict], root: Path) -> list[dict]:
    """The entries of the contents whose files exist, and of each the sections whose files exist."""
    kept = []
    for entry in entries:
        if any((root / f"{entry['file']}{suffix}").is_file() for suffix in (".md", ".ipynb")):
            sections = _present(entry.get("sections", []), root)
            bare = {key: value for key, value in entry.items() if key != "sections"}
            kept.append(bare | ({"sections": sections} if sections else {}))
    return kept


def _files(contents: dict | list) -> set[str]:
    """The pages that the contents, or a part of them, name."""
    if isinstance(contents, list):
        return {page for entry in contents for page in _files(entry)}
    below = [value for value in contents.values() if isinstance(value, list)]
    own = {contents["file"]} if "file" in contents else set()
    return own | {page for entries in below for page in _files(entries)}


def leave_out(app: Sphinx, config: Config) -> None:
    """Give Sphinx the contents without the pages whose files are not there, and note these."""
    root = Path(app.srcdir)
    text = (root / config.external_toc_path).read_text("utf8")
    contents = yaml.safe_load(text)
    parts = [part | {"chapters": _present(part["chapters"], root)} for part in contents["parts"]]
    contents["parts"] = [part for part in parts if part["chapters"]]
    app.book_absent = _files(yaml.safe_load(text)) - _files(contents)
    path = Path(app.outdir).parent / "contents.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(contents, sort_keys=False), "utf8")
    config.external_toc_path = str(path)


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("config-inited", leave_out, priority=500)  # the contents are read at 900
    app.add_post_transform(AbsentPages)
