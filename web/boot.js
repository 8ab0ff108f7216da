// Starts Python and the engine: the same code for the worker and for the page's own thread (direct mode).
//
//   const { pyodide, boot } = await bootEngine({ assetBase, modules, onStatus });
//   const { create_host } = pyodide.pyimport("bridge.host");
//
// Fast path: a memory snapshot with the engine already imported (snapshot/snapshot.json, made by
// tools/make_snapshot.mjs). It is used only when it was made from the very wheel and Pyodide build served beside it;
// otherwise Python starts plainly and micropip installs the wheel, and `boot.notes` holds "boot:plain".
// Knows nothing about messages, models or devices.

const DEFAULT_BASE = new URL("../", import.meta.url).href;

/**
 * @param {object} options
 * @param {string} [options.assetBase] folder with pyodide/, wheels/ and snapshot/; the one above this file's by default
 * @param {object} [options.modules] members of the Python module `bridge_js`, beside `loadPackage` and `boot`
 * @param {(status: {stage: "fetch"|"python"|"engine"|"ready"}) => void} [options.onStatus]
 * @param {boolean} [options.useSnapshot] false forces the plain start
 * @returns {Promise<{pyodide: object, boot: {mode: "snapshot"|"plain", notes: string[], reason: string,
 *   milliseconds: {python: number, engine: number, total: number}}}>}
 */
export async function bootEngine({ assetBase, modules = {}, onStatus = () => {}, useSnapshot = true } = {}) {
  const base = assetBase ? withSlash(new URL(assetBase, DEFAULT_BASE).href) : DEFAULT_BASE;
  const clock = stopwatch();
  onStatus({ stage: "fetch" });
  const runtime = importRuntime(base);
  runtime.catch(() => {}); // awaited below, beside the fetches that need no runtime yet
  const [wheel, snapshot] = await Promise.all([
    fetchJson(new URL("wheels/wheel.json", base)),
    useSnapshot ? fetchJson(new URL("snapshot/snapshot.json", base)) : null,
  ]);
  if (!wheel) throw new Error("The engine's wheel is missing: wheels/wheel.json could not be read");

  const boot = { mode: "snapshot", notes: [], reason: "", milliseconds: {} };
  const wheelBytes = fetchBytes(new URL(`wheels/${wheel.file}?${wheel.sha256}`, base)); // no cache holds another version
  wheelBytes.catch(() => {}); // awaited later; until then not "unhandled"
  const start = { base, runtime, wheel: { ...wheel, bytes: wheelBytes }, clock, onStatus };
  let pyodide = null;
  try {
    refuseOtherSnapshot(snapshot, wheel, useSnapshot);
    pyodide = await startFromSnapshot(start, snapshot);
  } catch (error) {
    boot.mode = "plain";
    boot.notes.push("boot:plain");
    boot.reason = error.message;
    if (useSnapshot) console.info(`Starting without a snapshot: ${error.message}`);
    pyodide = await startPlain(start);
  }

  pyodide.registerJsModule("bridge_js", { ...modules, boot, loadPackage: (name) => loadPackage(pyodide, name) });
  withModule(pyodide, "bridge.host", () => clock.lap("engine")); // a plain start imports the engine here
  boot.milliseconds = clock.laps();
  onStatus({ stage: "ready" });
  return { pyodide, boot };
}

function refuseOtherSnapshot(snapshot, wheel, wanted) {
  if (!wanted) throw new Error("a plain start was asked for");
  if (!snapshot) throw new Error("there is no snapshot");
  if (snapshot.wheel !== wheel.sha256) throw new Error("the snapshot was made from another wheel");
}

async function startFromSnapshot({ base, runtime, wheel, clock, onStatus }, snapshot) {
  onStatus({ stage: "python" });
  const image = fetchImage(new URL(`snapshot/${snapshot.file}`, base), snapshot.size);
  image.catch(() => {});
  const { loadPyodide } = await runtime;
  // Pyodide itself refuses an image made by another build of its runtime.
  const pyodide = await loadPyodide({ indexURL: new URL("pyodide/", base).href, _loadSnapshot: image });
  clock.lap("python");
  onStatus({ stage: "engine" });
  // Modules left out of the image, and the kernels' text, are read from the files, which an image does not hold.
  pyodide.unpackArchive(await verifiedWheel(pyodide, wheel), "wheel", { extractDir: snapshot.folder });
  withModule(pyodide, "sys", (sys) => forgetFolder(sys, snapshot.folder));
  // Everyone starts from the same image: without a new seed everyone would draw the same random numbers.
  withModule(pyodide, "random", (random) => random.seed());
  clock.lap("engine");
  return pyodide;
}

async function startPlain({ base, runtime, wheel, clock, onStatus }) {
  onStatus({ stage: "python" });
  const { loadPyodide } = await runtime;
  const pyodide = await loadPyodide({ indexURL: new URL("pyodide/", base).href });
  clock.lap("python");
  onStatus({ stage: "engine" });
  const file = `/tmp/${wheel.file}`;
  pyodide.FS.writeFile(file, await verifiedWheel(pyodide, wheel));
  await loadPackage(pyodide, "micropip");
  // deps=False: numpy is loaded when something needs it, not before.
  await withModule(pyodide, "micropip", (micropip) => micropip.install.callKwargs(`emfs:${file}`, { deps: false }));
  pyodide.FS.unlink(file);
  clock.lap("engine");
  return pyodide;
}

async function loadPackage(pyodide, name) {
  let problem = "";
  await pyodide.loadPackage(name, { messageCallback: () => {}, errorCallback: (text) => (problem = text) });
  // Pyodide records a package under the name its project writes: Jinja2, pyodide_http.
  const isLoaded = Object.keys(pyodide.loadedPackages).some((loaded) => canonical(loaded) === canonical(name));
  if (!isLoaded) throw new Error(`The Python package ${name} could not be loaded: ${problem}`);
}

/** A package's name as PEP 503 compares it. */
function canonical(name) {
  return name.toLowerCase().replaceAll(/[-_.]+/g, "-");
}

/** Both scripts at once: left alone, the second is asked for only when the first has run. */
async function importRuntime(base) {
  const [entry] = await Promise.all(
    ["pyodide.mjs", "pyodide.asm.js"].map(async (file) => {
      try {
        return await import(new URL(`pyodide/${file}`, base).href);
      } catch (error) {
        throw new Error(`Python could not be started: pyodide/${file} did not load`, { cause: error });
      }
    }),
  );
  return entry;
}

function withModule(pyodide, name, use) {
  const module = pyodide.pyimport(name);
  try {
    return use(module);
  } finally {
    module.destroy();
  }
}

/** Makes Python list the folder again. importlib.invalidate_caches() would also re-read the library archive: 160 ms. */
function forgetFolder(sys, folder) {
  const cache = sys.path_importer_cache;
  cache.pop(folder, null)?.destroy?.();
  cache.destroy();
}

/** The wheel's bytes, which must be those that wheels/wheel.json names: an engine must not differ from its manifest. */
async function verifiedWheel(pyodide, { bytes, sha256 }) {
  const wheel = await bytes;
  const view = pyodide.toPy(wheel);
  // Not crypto.subtle, which is missing on pages that are not in a secure context.
  const hash = withModule(pyodide, "hashlib", (hashlib) => hashlib.sha256(view));
  const digest = hash.hexdigest();
  for (const proxy of [hash, view]) proxy.destroy();
  if (digest !== sha256) throw new Error("The engine's wheel is not the one that wheels/wheel.json names");
  return wheel;
}

async function fetchJson(url) {
  const response = await fetch(url, { cache: "no-cache" }).catch(() => null);
  return response?.ok ? response.json().catch(() => null) : null;
}

async function fetchBytes(url) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`a file of the engine could not be fetched (status ${response.status})`);
  return new Uint8Array(await response.arrayBuffer());
}

async function fetchImage(url, size) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`the snapshot could not be fetched (status ${response.status})`);
  const image = new Uint8Array(size);
  let filled = 0;
  const reader = response.body.pipeThrough(new DecompressionStream("gzip")).getReader();
  for (let { done, value } = await reader.read(); !done; { done, value } = await reader.read()) {
    if (filled + value.length > size) throw new Error("the snapshot is longer than its manifest says");
    image.set(value, filled);
    filled += value.length;
  }
  if (filled !== size) throw new Error("the snapshot ended early");
  return image;
}

function withSlash(url) {
  return url.endsWith("/") ? url : `${url}/`;
}

function stopwatch() {
  const started = performance.now();
  const times = {};
  let last = started;
  return {
    lap(name) {
      const now = performance.now();
      times[name] = (times[name] ?? 0) + now - last;
      last = now;
    },
    laps: () => ({ ...times, total: performance.now() - started }),
  };
}
