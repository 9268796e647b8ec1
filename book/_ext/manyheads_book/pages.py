"""What goes into each page: its description, its menu, and the last touch on its HTML."""

from __future__ import annotations

import html
import os
import re

from docutils import nodes
from sphinx.application import Sphinx

from . import lean, repairs
from .icons import hero, icon, mark
from .notebooks import LIVE, live_name, page_facts
from .paths import EXT

DESCRIPTION_LENGTH = 155  # what search engines show of it


def settle_addresses(app: Sphinx, config: object) -> None:
    """Let the place that publishes the book say its addresses."""
    base = os.environ.get("BOOK_BASE_URL")
    if base:
        config.html_baseurl = base.rstrip("/") + "/"
    config.book_repository = os.environ.get("BOOK_REPOSITORY") or config.book_repository
    config.templates_path = [*config.templates_path, str(EXT / "templates")]


def _description(doctree: nodes.document) -> str:
    """The first paragraph of some length, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        text = re.sub(r"\s+", " ", paragraph.astext()).strip()
        if len(text) > 60 and not isinstance(paragraph.parent, nodes.list_item):
            cut = text[:DESCRIPTION_LENGTH]
            return cut if len(text) <= DESCRIPTION_LENGTH else cut.rsplit(" ", 1)[0] + " …"
    return ""


def _actions(app: Sphinx, pagename: str, context: dict) -> list[dict]:
    """The links of the page's menu: the notebook, its source, and the hosts that can run it."""
    source = str(app.env.doc2path(pagename, base=False))
    actions = []
    if source.endswith(".ipynb"):
        name = source.rsplit("/", 1)[-1]
        actions.append({"text": "Notebook (.ipynb)", "url": name, "download": True})
    elif context.get("sourcename"):
        url = context["pathto"]("_sources/" + context["sourcename"], 1)
        actions.append({"text": "Source (Markdown)", "url": url, "download": True})
    if os.environ.get("BOOK_PDF"):  # set where the PDF is laid beside the site
        url = context["pathto"]("many-heads.pdf", 1)
        actions.append({"text": "The whole book (PDF)", "url": url, "download": True})
    repository = app.config.book_repository
    if not repository:
        return actions
    place = repository.removeprefix("https://github.com/")
    if source.endswith(".ipynb"):
        colab = f"https://colab.research.google.com/github/{place}/blob/main/{source}"
        binder = f"https://mybinder.org/v2/gh/{place}/main?urlpath=lab/tree/{source}"
        actions.append({"text": "Open in Colab", "url": colab})
        actions.append({"text": "Open in Binder", "url": binder})
    actions.append({"text": "See it on GitHub", "url": f"{repository}/blob/main/{source}"})
    actions.append({"text": "Report a problem", "url": f"{repository}/issues/new"})
    return actions


def _meta(app: Sphinx, pagename: str, context: dict, doctree: nodes.document) -> str:
    """The meta elements of a page: its description and what a shared link shows."""
    description = html.escape(
        (context.get("meta") or {}).get("description", "") or _description(doctree)
    )
    title = html.escape(re.sub(r"<[^>]+>", "", context.get("title", "")))
    entries = {"property": {"og:type": "article", "og:title": title, "og:site_name": "Many Heads"}}
    entries["name"] = {"theme-color": "#20566b", "twitter:card": "summary_large_image"}
    if description:
        entries["name"]["description"] = description
        entries["property"]["og:description"] = description
    if app.config.html_baseurl:
        entries["property"]["og:url"] = f"{app.config.html_baseurl}{pagename}.html"
        entries["property"]["og:image"] = f"{app.config.html_baseurl}_static/preview.png"
        entries["property"]["og:image:alt"] = "Many Heads: arcs of attention between tokens"
    return "".join(
        f'\n<meta {kind}="{name}" content="{content}">'
        for kind, group in entries.items()
        for name, content in group.items()
    )


def offer_to_templates(
    app: Sphinx, pagename: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Fill in what our templates need, before the theme looks which of them are empty."""
    context["icon"] = icon
    context["book_mark"] = mark()
    context["book_hero"] = hero()
    context["book_version"] = lean.version(app)
    context["book_repository"] = app.config.book_repository
    context["page_actions"] = _actions(app, pagename, context) if doctree is not None else []


def complete_head(
    app: Sphinx, pagename: str, template: str, context: dict, doctree: nodes.document | None
) -> None:
    """Describe the page in its head, and say where its cells are."""
    if doctree is None:
        return
    meta = _meta(app, pagename, context, doctree)
    facts = page_facts(app, pagename)
    if facts:
        url = context["pathto"](f"{LIVE}/{live_name(pagename)}", 1)
        meta += f'\n<meta name="book-cells" content="{url}">'
    if facts and pagename.startswith("exercises/"):  # it shows points and progress at once
        inside = facts.replace("<", "\\u003c")
        meta += f'\n<script type="application/json" id="book-facts">{inside}</script>'
    context["metatags"] = context.get("metatags", "") + meta


def finish_pages_as_they_are_written(app: Sphinx) -> None:
    """Put the last touches on each page's HTML between the template and the disk.

    Sphinx has no event there. Wrapping the renderer touches each page exactly once, so that pages
    that an incremental build leaves alone are never processed twice.
    """
    if app.builder.format != "html":
        return
    render = app.builder.templates.render

    def finished(template: str, context: dict) -> str:
        page = render(template, context)
        if "<html" not in page:
            return page
        return repairs.repair(page)

    app.builder.templates.render = finished


def setup(app: Sphinx) -> None:
    """Connect to Sphinx's events."""
    app.add_config_value("book_repository", "", "html")
    app.connect("config-inited", settle_addresses)
    app.connect("builder-inited", finish_pages_as_they_are_written)
    app.connect("html-page-context", offer_to_templates, priority=400)
    app.connect("html-page-context", complete_head, priority=900)
