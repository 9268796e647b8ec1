"""Links to a chapter that this edition leaves out become plain words, not a broken link."""

from __future__ import annotations

import posixpath
import re

from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
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


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.add_post_transform(AbsentChapters)
