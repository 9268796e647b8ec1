"""A page in a browser whose errors and requests are watched, and what axe-core says about it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page
from static_host import Site

ROOT = Path(__file__).resolve().parents[2]
AXE = (Path(__file__).parent / "vendor/axe.min.js").read_text("utf8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIOLATIONS = """async (rules) => {
  const found = await axe.run(document, { runOnly: rules });
  const where = (one) => one.nodes.map((node) => node.target.join(" ")).slice(0, 4).join(", ");
  return found.violations.map((one) => `${one.id}: ${where(one)}`);
}"""


class Watched:
    """A page that remembers what went wrong in it and where it asked for things."""

    def __init__(self, page: Page, site: Site) -> None:
        self.page, self.site = page, site
        self.errors: list[str] = []
        self.asked: list[str] = []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def _console(self, message: object) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, name: str) -> Page:
        self.page.goto(self.site.address + name, wait_until="networkidle")
        return self.page

    @property
    def strangers(self) -> list[str]:
        """Requests to anywhere but the site itself."""
        own = (self.site.address, "data:", "blob:")
        return [url for url in self.asked if not url.startswith(own)]


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong in a page as it is now."""
    page.evaluate(AXE)
    return page.evaluate(VIOLATIONS, RULES)
