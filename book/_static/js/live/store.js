/* What a reader changed, kept in their own browser under the page's address and the cell's name. */

const PAGE =
  document
    .querySelector('meta[name="book-cells"]')
    ?.content.split("/")
    .pop()
    .replace(".json", "") ?? location.pathname;
const BOOK = new URL(document.documentElement.dataset.content_root || "./", location.href).pathname;
const key = (name) => `book:${BOOK}:${PAGE}:${name}`;

export function keep(name, value) {
  try {
    localStorage.setItem(key(name), JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export function kept(name) {
  try {
    return JSON.parse(localStorage.getItem(key(name)));
  } catch {
    return null;
  }
}

export function forget(name) {
  try {
    localStorage.removeItem(key(name));
  } catch {
    /* nothing was kept then */
  }
}
