"""Pages are run again when the part of the library that they use has changed.

The cache of executed pages knows only their own text. A page that shows `manyheads.attention`
must also be run again after `manyheads/scaled_dot_product.py` changed, or the book would show what
the library did yesterday.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from jupyter_cache import get_cache
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from .notebooks import read_notebook
from .paths import LIBRARY

PACKAGE = LIBRARY.name
_MAGIC = re.compile(r"^\s*[%!].*$", re.M)


def _imported(source: str, package: str = "") -> set[str]:
    """The library's modules that some code imports, by their dotted names.

    `package` is where the code lies, for imports relative to it.
    """
    try:
        tree = ast.parse(_MAGIC.sub("", source))
    except SyntaxError:
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            parts = [*(above if node.level else []), *([node.module] if node.module else [])]
            found.add(".".join(parts))
            found |= {".".join([*parts, alias.name]) for alias in node.names}
    return {name for name in found if name.split(".")[0] == PACKAGE}


def _files(module: str) -> list[Path]:
    """What a module is made of: one file, or all of a subpackage with its data."""
    place = LIBRARY.joinpath(*module.split(".")[1:])
    if place == LIBRARY:
        return [LIBRARY / "__init__.py"]
    if place.is_dir():
        return [path for path in sorted(place.rglob("*")) if path.suffix in {".py", ".json"}]
    return [place.with_suffix(".py")] if place.with_suffix(".py").is_file() else []


def library_files(sources: Iterable[str]) -> list[Path]:
    """The library's files that some code depends on, directly or through other modules."""
    waiting = {module for source in sources for module in _imported(source)}
    seen: set[str] = set()
    files: set[Path] = set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for path in _files(module):
            files.add(path)
            if path.suffix == ".py":
                package = ".".join(path.relative_to(LIBRARY.parent).parent.parts)
                waiting |= _imported(path.read_text("utf8"), package) - seen
    return sorted(files)


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.relative_to(LIBRARY).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def named_files(page: Path, sources: Iterable[str]) -> list[Path]:
    """The data files beside a page that its code names."""
    code = "\n".join(sources)
    return [path for path in sorted(page.parent.glob("*.json")) if path.name in code]


def page_digests(env: BuildEnvironment) -> dict[str, str]:
    """For each page with code: a digest of its data and of the part of the library that it uses."""
    digests = {}
    for docname in sorted(env.found_docs):
        path = Path(env.doc2path(docname))
        notebook = read_notebook(path) if path.suffix == ".md" else None
        if notebook:
            code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
            data = b"".join(file.read_bytes() for file in named_files(path, code))
            own = hashlib.sha256(data).hexdigest() if data else ""
            digests[docname] = _digest(library_files(code)) + own
    return digests


def outdated(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """The pages whose library or data have changed; their cached runs are thrown away."""
    folder = Path(app.outdir).parent / ".jupyter_cache"
    known = folder / "library.json"
    before = json.loads(known.read_text("utf8")) if known.is_file() else {}
    now = page_digests(env)
    stale = [name for name, digest in now.items() if before.get(name, digest) != digest]
    if stale:
        paths = {str(Path(env.doc2path(name))) for name in stale}
        cache = get_cache(str(folder))
        for record in cache.list_cache_records():
            if record.uri in paths:
                cache.remove_cache(record.pk)
    folder.mkdir(parents=True, exist_ok=True)
    known.write_text(json.dumps(now, indent=1), "utf8")
    return stale


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.connect("env-get-outdated", outdated)
