"""The book is built once for these tests (from the cache where it can), served below a path, and
opened in the system's Chromium. `BOOK_SITE=folder` tests a site that is built already."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from browsing import ROOT, Watched
from playwright.sync_api import Browser, sync_playwright
from static_host import Site, serve

BASE = "/some/where/"  # a sub-path: nothing in the site may depend on standing at the root
BUILD = ["build", ".", "-W", "--keep-going", "--path-output", "build/book"]
CHROMIUM = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@pytest.fixture(scope="session")
def folder() -> Path:
    """The built site."""
    given = os.environ.get("BOOK_SITE")
    if given:
        return Path(given)
    tool = Path(sys.executable).parent / "jupyter-book"
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build/.book.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # pytest-xdist has several sessions at a time
        done = subprocess.run(
            [str(tool), *BUILD], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return ROOT / "build/book/_build/html"


@pytest.fixture(scope="session")
def names(folder: Path) -> list[str]:
    """The pages of the site, as paths below its root."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.html")
        if "_static" not in path.parts and path.parent != folder and "under-test" not in path.name
    )


@pytest.fixture(scope="session")
def site(folder: Path) -> Iterator[Site]:
    """The site, served below a path."""
    with serve(folder, BASE) as served:
        yield served


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """The system's Chromium, without a network of its own.

    For one module: while Playwright is open, its event loop runs in this process, and neither
    IPython nor a second Playwright, which other tests start, can work beside it.
    """
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=executable, args=CHROMIUM)
        yield chromium
        chromium.close()


@pytest.fixture
def watched(browser: Browser, site: Site) -> Iterator[Watched]:
    """A fresh page on a desktop, whose errors and requests are watched."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True)
    site.forget()
    yield Watched(context.new_page(), site)
    context.close()
