/* What a cell gives, shown below it in the order in which it comes. */

const element = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);

export class Outputs {
  #box;
  #built;
  #last = null;

  /* box: the element to fill; built: the output that stands in the page since the book was built */
  constructor(box, built) {
    this.#box = box;
    this.#built = built;
  }

  clear() {
    this.#last = null;
    this.#box.replaceChildren();
    this.#box.hidden = true;
  }

  restore() {
    this.clear();
    if (this.#built) this.#built.hidden = false;
  }

  begin() {
    this.clear();
    if (this.#built) this.#built.hidden = true;
  }

  #text(text, kind) {
    if (this.#last?.dataset.kind === kind) {
      this.#last.append(text);
      return;
    }
    const block = element("pre", { className: `live-${kind}` });
    block.dataset.kind = kind;
    block.append(text);
    this.#add(block);
    this.#last = block;
  }

  #add(node) {
    this.#box.append(node);
    this.#box.hidden = false;
    this.#last = null;
  }

  add(output, name) {
    if (output.kind === "png") {
      this.#add(
        element("img", {
          src: `data:image/png;base64,${output.data}`,
          alt: `Figure drawn by ${name}`,
        }),
      );
    } else if (output.kind === "html") {
      const box = element("div", { className: "text_html", innerHTML: output.html });
      this.#add(box);
      box.dispatchEvent(new CustomEvent("book:new-html", { bubbles: true }));
    } else {
      this.#text(output.text, output.kind);
    }
  }

  error(text) {
    this.#text(text, "error");
  }

  note(...content) {
    const line = element("p", { className: "live-note" });
    line.append(...content);
    this.#add(line);
  }
}
