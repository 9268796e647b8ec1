/* Python for one page, in a worker of its own: a loop that never ends stops nothing but itself, and
   Stop simply ends the worker. Everything comes from the book's own site. */
"use strict";

let python = null;
let runCell = null;
let site = null; // the address of _static/
const LIBRARY_FOLDER = "/book";
const ASK_ABOVE = 1_000_000; // bytes; the reader is asked before a file this large is fetched
const say = (text) => postMessage({ type: "progress", text });

async function fetchBytes(url, onProgress) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url} could not be loaded (${response.status})`);
  if (!onProgress) return response.arrayBuffer();
  const reader = response.body.getReader();
  const parts = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    length += value.length;
    onProgress(length);
  }
  return new Blob(parts).arrayBuffer();
}

function writeFile(path, data) {
  python.FS.mkdirTree(path.slice(0, path.lastIndexOf("/")));
  python.FS.writeFile(path, new Uint8Array(data));
}

async function boot(message) {
  site = message.site;
  const home = site + "pyodide/";
  importScripts(home + "pyodide.js");
  say("Starting Python …");
  const [ready, source, zipped, ...extras] = await Promise.all([
    loadPyodide({ indexURL: home, packages: ["numpy"] }),
    fetch(`${site}js/live/boot.py?v=${message.version}`).then((answer) => answer.text()),
    fetchBytes(site + "live/" + message.library),
    ...message.extras.map((name) => fetchBytes(site + "live/" + name)),
  ]);
  python = ready;
  python.unpackArchive(zipped, "zip", { extractDir: LIBRARY_FOLDER });
  message.extras.forEach((name, i) => writeFile(`${LIBRARY_FOLDER}/${name}`, extras[i]));
  python.runPython(`import sys; sys.path.insert(0, "${LIBRARY_FOLDER}")`);
  python.FS.writeFile("/home/pyodide/boot.py", source);
  const module = python.pyimport("boot");
  module.prepare(message.hide, message.show);
  runCell = module.run_cell;
}

/* Matplotlib is 10 MB: it comes with the first cell that draws with it, not with Python. Heat maps,
   masks and tables do without. */
const DRAWS =
  /^\s*(?:import|from)\s+matplotlib\b|\bshow\s*\.\s*(?:lines|canvas|picture)\b|from\s+manyheads\.show\s+import/m;

async function needMatplotlib() {
  say("Loading Matplotlib (10 MB, once) …");
  await python.loadPackage(["matplotlib"], { messageCallback: () => {} });
}

async function needAsset(path, size) {
  const name = path.slice(LIBRARY_FOLDER.length + 1);
  const told = (bytes) =>
    say(`Loading: ${(bytes / 1e6).toFixed(1)} of ${(size / 1e6).toFixed(1)} MB …`);
  writeFile(path, await fetchBytes(site + "live/" + name, told));
}

function runOnce(message) {
  const outputs = [];
  const emit = (proxy) => {
    const output = proxy.toJs({ dict_converter: Object.fromEntries });
    outputs.push(output);
    postMessage({ type: "output", id: message.id, output });
  };
  const result = runCell(message.source, message.number, emit);
  const error = result ? result.toJs({ dict_converter: Object.fromEntries }) : null;
  result?.destroy?.();
  return error;
}

async function run(message) {
  if (DRAWS.test(message.source) && !python.loadedPackages.matplotlib) await needMatplotlib();
  say("Running …");
  let error = runOnce(message);
  if (error?.missing === "matplotlib" && !python.loadedPackages.matplotlib) {
    await needMatplotlib();
    postMessage({ type: "again", id: message.id });
    error = runOnce(message);
  }
  // A cell may read several files of the library: each comes when it is missed.
  for (let tries = 0; tries < 5 && error?.missing?.startsWith(LIBRARY_FOLDER + "/"); tries += 1) {
    const size = message.assets[error.missing.slice(LIBRARY_FOLDER.length + 1)];
    if (!size) break;
    if (size > ASK_ABOVE && !message.allowed) {
      postMessage({ type: "done", id: message.id, asks: { size } });
      return;
    }
    await needAsset(error.missing, size);
    postMessage({ type: "again", id: message.id });
    error = runOnce(message);
  }
  postMessage({
    type: "done",
    id: message.id,
    error: error?.text ?? null,
    errorName: error?.name ?? null,
  });
}

let queue = Promise.resolve();
onmessage = ({ data }) => {
  const work = data.type === "boot" ? boot : run;
  queue = queue
    .then(() => work(data))
    .catch((error) => {
      postMessage({
        type: data.type === "boot" ? "failed" : "done",
        id: data.id,
        error: String(error?.message || error),
      });
    });
};
