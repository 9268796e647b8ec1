"""Let heavy packages load without what nobody here needs of them."""

from __future__ import annotations

import sys


def skip_slow_grammar() -> None:
    """Keep jsonschema from loading `rfc3987_syntax`; call it before nbformat or nbgrader loads.

    That package builds a grammar for internationalised links, which takes two seconds; jsonschema
    does without it where it is not installed, and no notebook's schema asks for such a link.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
