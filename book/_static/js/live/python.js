/* The page's side of its Python: starts the worker at the first run, passes cells to it one by one. */

const here = new URL(import.meta.url);
const SITE = new URL("../../", here).href;
const VERSION =
  here.searchParams.get("v") || document.querySelector("script[data-version]").dataset.version;

export class Python extends EventTarget {
  #worker = null;
  #waiting = new Map();
  #number = 0;
  #facts;

  /* facts: what the page's file of cells says: library, hide, show, assets */
  constructor(facts) {
    super();
    this.#facts = facts;
  }

  get isRunning() {
    return this.#worker !== null;
  }

  #start() {
    const worker = new Worker(new URL(`worker.js?v=${VERSION}`, import.meta.url));
    worker.onmessage = ({ data }) => this.#receive(data);
    worker.onerror = (event) => this.#give_up(event.message || "the worker could not start");
    const { library, extras, hide, show } = this.#facts;
    worker.postMessage({ type: "boot", site: SITE, version: VERSION, library, extras, hide, show });
    this.#worker = worker;
  }

  #receive(message) {
    if (message.type === "failed") {
      this.#give_up(message.error);
      return;
    }
    if (message.type === "progress") {
      for (const { onProgress } of this.#waiting.values()) onProgress(message.text);
      return;
    }
    const job = this.#waiting.get(message.id);
    if (!job) return;
    if (message.type === "output") job.onOutput(message.output);
    if (message.type === "again") job.onAgain();
    if (message.type === "done") {
      this.#waiting.delete(message.id);
      job.resolve(message);
    }
  }

  #give_up(reason) {
    this.#end({ error: `Python could not be started: ${reason}` });
  }

  #end(result) {
    this.#worker?.terminate();
    this.#worker = null;
    for (const job of this.#waiting.values()) job.resolve(result);
    this.#waiting.clear();
    this.dispatchEvent(new Event("ended"));
  }

  /* Runs one cell. Resolves to {error, asks, stopped}; outputs arrive through the callbacks meanwhile. */
  run({ source, number, allowed = false, onOutput, onAgain, onProgress }) {
    if (!this.#worker) this.#start();
    const id = ++this.#number;
    return new Promise((resolve) => {
      this.#waiting.set(id, { resolve, onOutput, onAgain, onProgress });
      this.#worker.postMessage({
        type: "run",
        id,
        source,
        number,
        allowed,
        assets: this.#facts.assets,
      });
    });
  }

  /* Ends Python at once, whatever it is doing; all variables are gone. */
  stop() {
    this.#end({ stopped: true });
  }
}
