"""What S must not see: packages that a job hides, and where the course lies on disk.

Two layers. The import hook gives the kind sentence to the student who tries; it can be taken out
by code that means harm. So Landlock lets S read only the files listed by `readable_paths`: the
interpreter, its packages, the system's libraries, and of a hidden package what is shown of it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_SYSTEM = (
    "/usr /lib /lib64 /lib32 /bin /etc/localtime /etc/timezone /etc/fonts /etc/ld.so.cache "
    "/etc/ld.so.conf /etc/ld.so.conf.d /dev/null /dev/zero /dev/urandom /dev/random "
    "/sys/devices/system/cpu/online"
).split()
_CODE = {".py", ".pyc", ".pyd", ".pyi", *importlib.machinery.EXTENSION_SUFFIXES}
_ABSENT = "{name} is hidden while this exercise is graded: it holds the answer."


class Curtain:
    """A finder at the head of `sys.meta_path` that hides packages but for some of their modules."""

    def __init__(self, hide: Sequence[str], show: Sequence[str], course: Sequence[str]):
        self.hide = tuple(hide)
        self.show = tuple(show)
        self.search = [*course, *sys.path]

    def draw(self) -> None:
        """Hide from now on; forget hidden modules that something has already imported."""
        for name in list(sys.modules):
            if self.hides(name):
                del sys.modules[name]
        sys.meta_path.insert(0, self)

    def hides(self, name: str) -> bool:
        """Tell whether the module `name` must not be imported."""
        return self.covers(name) and not self.shows(name)

    def covers(self, name: str) -> bool:
        """Tell whether `name` belongs to a hidden package, shown or not."""
        return any(_within(name, package) for package in self.hide)

    def shows(self, name: str) -> bool:
        """Tell whether `name` is shown, lies in a shown package, or is the way to one."""
        return any(_within(name, shown) or _within(shown, name) for shown in self.show)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Find a shown module of a hidden package; raises ImportError for a hidden one."""
        if not self.covers(name):
            return None
        if not self.shows(name):
            raise ModuleNotFoundError(_ABSENT.format(name=name), name=name)
        spec = PathFinder.find_spec(name, self.search if "." not in name else path)
        if spec is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return spec

    def folders(self) -> list[Path]:
        """Return where the hidden packages lie."""
        found = []
        for package in self.hide:
            spec = PathFinder.find_spec(package.split(".")[0], self.search)
            for place in (spec and spec.submodule_search_locations) or ():
                found.append(Path(place).resolve())
            if spec and not spec.submodule_search_locations and spec.origin:
                found.append(Path(spec.origin).resolve())
        return found

    def shown_files(self) -> list[Path]:
        """Return the files of hidden packages that S may read: shown code, and data beside it."""
        files = []
        for folder in self.folders():
            package = folder.name
            if not folder.is_dir() or not self.shows(package):
                continue
            for file in sorted(folder.rglob("*")):
                if file.is_file() and self._may_read(package, file.relative_to(folder)):
                    files.append(file)
        return files

    def _may_read(self, package: str, file: Path) -> bool:
        if not any(file.name.endswith(suffix) for suffix in _CODE):
            return True
        folders = [part for part in file.parts[:-1] if part != "__pycache__"]
        stem = file.name.split(".")[0]
        names = [package, *folders, *([] if stem == "__init__" else [stem])]
        return self.shows(".".join(names))


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def interpreter_paths() -> list[str]:
    """Return the folders of this interpreter and of its packages."""
    paths = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    paths |= {os.path.join(sys.base_prefix, "lib"), *site.getsitepackages()}
    paths |= {path for path in sys.path if path and "-packages" in path}
    paths |= {os.path.join(sys.prefix, "pyvenv.cfg")}
    return sorted(str(Path(path).resolve()) for path in paths if path and os.path.exists(path))


def readable_paths(curtain: Curtain, course: Iterable[str]) -> list[str]:
    """Return the paths below which S may read, as few as possible.

    `course` folders and hidden packages are left out, also where they lie inside of the
    interpreter's own folders; an interpreter inside of a course is readable.
    """
    roots = [path for path in (*_SYSTEM, *interpreter_paths()) if os.path.exists(path)]
    secret = {*(Path(path).resolve() for path in course), *curtain.folders()}
    paths: list[str] = []
    for root in roots:
        paths.extend(_except(Path(root).resolve(), secret))
    paths.extend(map(str, curtain.shown_files()))
    return list(dict.fromkeys(paths))


def _except(root: Path, secret: set[Path]) -> list[str]:
    """Return paths that cover `root` but for what is secret in it."""
    inside = {path for path in secret if root in path.parents}
    if not inside:
        return [str(root)]
    paths = []
    for child in sorted(root.iterdir()):
        if child.is_symlink() or child in inside or _compiled(child, inside):
            continue
        paths.extend(_except(child, inside))
    return paths


def _compiled(path: Path, secret: set[Path]) -> bool:
    """Tell whether `path` is the folder of compiled files beside a secret module."""
    return path.name == "__pycache__" and any(file.parent == path.parent for file in secret)
