/* Finds the interactive figures of a page, and of what live cells show, and brings them to life. */

const KNOWN = new Set([
  "attention-map",
  "mask-painter",
  "reshape-stepper",
  "temperature",
  "online-softmax",
]);

async function enliven(element) {
  const kind = element.dataset.figure;
  if (!KNOWN.has(kind) || element.dataset.alive) return;
  element.dataset.alive = "yes";
  const { draw } = await import(`./${kind}.js`);
  const still = element.querySelector(".widget__still");
  const stage = document.createElement("div");
  stage.className = "widget__stage";
  draw(stage, JSON.parse(element.dataset.options));
  still.replaceWith(stage);
}

function enlivenAll(root) {
  for (const element of root.querySelectorAll("[data-figure]")) enliven(element);
}

document.addEventListener("book:new-html", (event) => enlivenAll(event.target));
enlivenAll(document);
