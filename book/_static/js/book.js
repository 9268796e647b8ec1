/* What every page does: colours, contents on a phone, search by Ctrl+K, copying code, the place on the
   page. Whatever else a page needs (live cells, interactive figures) is imported when it is there. */
(() => {
  "use strict";
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);
  const script = document.currentScript;

  /* colours: as the system, light, dark */
  const darkSystem = matchMedia("(prefers-color-scheme: dark)");
  const coloursButton = byId("colours-button");
  const names = { auto: "as the system", light: "light", dark: "dark" };
  function showColours(mode) {
    root.dataset.colours = mode;
    root.dataset.theme =
      mode === "dark" || (mode === "auto" && darkSystem.matches) ? "dark" : "light";
    coloursButton.setAttribute("aria-label", `Colours: ${names[mode]}`);
    coloursButton.title = `Colours: ${names[mode]}`;
  }
  showColours(root.dataset.colours || "auto");
  darkSystem.addEventListener("change", () => showColours(root.dataset.colours));
  coloursButton.addEventListener("click", () => {
    const order = ["auto", "light", "dark"];
    const mode = order[(order.indexOf(root.dataset.colours) + 1) % 3];
    try {
      localStorage.setItem("book-colours", mode);
    } catch {
      /* private windows keep nothing */
    }
    showColours(mode);
  });

  /* contents on a small screen */
  const contents = byId("contents");
  const contentsButton = byId("contents-button");
  function openContents(open) {
    root.dataset.contents = open ? "open" : "closed";
    contentsButton.setAttribute("aria-expanded", String(open));
    if (open)
      (
        contents.querySelector("[aria-current], .current > a") || contents.querySelector("a")
      ).focus();
  }
  contentsButton.addEventListener("click", () => openContents(root.dataset.contents !== "open"));
  document.addEventListener("click", (event) => {
    if (root.dataset.contents === "open" && !event.target.closest("#contents, #contents-button"))
      openContents(false);
    for (const menu of document.querySelectorAll(".page-menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (root.dataset.contents === "open") {
      openContents(false);
      contentsButton.focus();
    }
    const menu = document.querySelector(".page-menu[open]");
    if (menu) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });
  contents.querySelector(".current:last-of-type > a")?.scrollIntoView({ block: "nearest" });

  /* search */
  const dialog = byId("search-dialog");
  const openSearch = () => {
    dialog.showModal();
    byId("search-field").select();
  };
  byId("search-button").addEventListener("click", openSearch);
  document.addEventListener("keydown", (event) => {
    if (
      event.key.toLowerCase() === "k" &&
      (event.ctrlKey || event.metaKey) &&
      !event.target.closest(".cm-editor")
    ) {
      event.preventDefault();
      openSearch();
    }
  });
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  byId("print-button")?.addEventListener("click", () => {
    for (const details of document.querySelectorAll(".article details")) details.open = true;
    print();
  });

  /* copying code */
  for (const block of document.querySelectorAll('.article div[class*="highlight-"]')) {
    if (block.closest(".cell_output")) continue;
    const button = Object.assign(document.createElement("button"), {
      type: "button",
      className: "copy-button",
      textContent: "Copy",
    });
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("pre").textContent.trimEnd());
      button.textContent = "Copied";
      setTimeout(() => {
        button.textContent = "Copy";
      }, 1500);
    });
    block.append(button);
  }

  /* what scrolls sideways must be reachable by keyboard */
  const scrollers =
    ".article pre, .pst-scrollable-table-container, .widget__scroll, .text_html, .live-output, .cell-editor";
  function letScroll() {
    for (const element of document.querySelectorAll(scrollers)) {
      if (element.scrollWidth > element.clientWidth) element.tabIndex = 0;
      else element.removeAttribute("tabindex");
    }
  }
  new ResizeObserver(letScroll).observe(document.querySelector(".article"));
  document.fonts?.ready.then(letScroll);

  /* where on the page */
  const links = new Map(
    [...document.querySelectorAll(".page-toc a[href^='#']")].map((a) => [a.hash.slice(1), a]),
  );
  const headings = [...links.keys()].map(byId).filter(Boolean);
  if (headings.length > 1) {
    const mark = () => {
      const here =
        headings
          .filter((heading) => heading.getBoundingClientRect().top < innerHeight * 0.3)
          .pop() || headings[0];
      for (const [id, link] of links) {
        if (id === here.id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    };
    addEventListener("scroll", mark, { passive: true });
    mark();
  }

  /* the rest, only where it is needed; modules can't be loaded from a plain file */
  if (!location.protocol.startsWith("http")) return;
  const load = (name) => import(new URL(`${name}?v=${script.dataset.version}`, script.src));
  if (document.querySelector('meta[name="book-cells"]')) load("live/cells.js");
  if (document.querySelector("[data-figure]")) load("figures/figures.js");
})();
