// Makes the memory snapshot that the worker starts from: node tools/make_snapshot.mjs SITE_FOLDER
//
// SITE_FOLDER has pyodide/ and wheels/ (tools/site.py lays them). Writes snapshot/snapshot.json and the gzipped image
// it names. The manifest ties the image to one Pyodide build and one wheel, by sha256; web/boot.js refuses any other.

import { createHash } from "node:crypto";
import { mkdir, readFile, readdir, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import zlib from "node:zlib";

const IMPORTS = fileURLToPath(new URL("./snapshot_imports.py", import.meta.url));
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const quiet = { messageCallback() {} };

async function startPython(site, options) {
  const indexURL = path.join(site, "pyodide") + path.sep;
  const { loadPyodide } = await import(pathToFileURL(path.join(indexURL, "pyodide.mjs")).href);
  return loadPyodide({ indexURL, packageCacheDir: indexURL, ...options });
}

async function withEngine(pyodide, wheel) {
  pyodide.unpackArchive(wheel, "wheel", { extractDir: packagesFolder(pyodide) });
  pyodide.runPython(await readFile(IMPORTS, "utf8"));
  return pyodide;
}

const packagesFolder = (pyodide) => pyodide.runPython("import site\nsite.getsitepackages()[0]");

/** The standard library modules that the engine uses once numpy is there: having them in the image makes that cheaper. */
async function standardLibraryInUse(site, wheel) {
  const pyodide = await withEngine(await startPython(site, {}), wheel);
  await pyodide.loadPackage("numpy", quiet);
  return pyodide.runPython("import numpy\nimport_all('bridge')\nstandard_library_in_use()");
}

async function makeImage(site, wheel, standardLibrary) {
  const pyodide = await withEngine(await startPython(site, { _makeSnapshot: true }), wheel);
  const prepare = pyodide.globals.get("prepare");
  const report = JSON.parse(prepare(standardLibrary));
  prepare.destroy();
  return { folder: packagesFolder(pyodide), image: pyodide.makeMemorySnapshot(), report };
}

/** What an image depends on: an image made from the same inputs is the same engine. */
async function inputsOf(site, wheel) {
  const tools = await Promise.all([IMPORTS, fileURLToPath(import.meta.url)].map((file) => readFile(file)));
  const runtime = await readFile(path.join(site, "pyodide", "pyodide.asm.wasm"));
  return { pyodide: sha256(runtime), wheel: sha256(wheel), tools: sha256(Buffer.concat(tools)) };
}

async function upToDate(folder, inputs) {
  try {
    const manifest = JSON.parse(await readFile(path.join(folder, "snapshot.json"), "utf8"));
    const image = await readFile(path.join(folder, manifest.file));
    return sha256(image) === manifest.sha256 && Object.keys(inputs).every((name) => inputs[name] === manifest[name]);
  } catch {
    return false; // none yet, or half of one
  }
}

async function main() {
  if (process.argv.length !== 3) throw new Error("usage: node tools/make_snapshot.mjs SITE_FOLDER");
  const site = path.resolve(process.argv[2]);
  const folder = path.join(site, "snapshot");
  const wheelManifest = JSON.parse(await readFile(path.join(site, "wheels", "wheel.json"), "utf8"));
  const wheel = new Uint8Array(await readFile(path.join(site, "wheels", wheelManifest.file)));
  const inputs = await inputsOf(site, wheel);
  if (inputs.wheel !== wheelManifest.sha256) throw new Error("wheels/wheel.json does not describe the wheel beside it");
  if (await upToDate(folder, inputs)) return;

  const { folder: packages, image, report } = await makeImage(site, wheel, await standardLibraryInUse(site, wheel));
  const packed = await promisify(zlib.gzip)(image, { level: 9 });
  // No .gz in the name: some servers would answer with Content-Encoding and the browser would unpack it unasked.
  const file = `engine-${sha256(packed).slice(0, 16)}.snapshot`;
  const manifest = {
    file,
    size: image.length,
    packedSize: packed.length,
    sha256: sha256(packed),
    ...inputs,
    folder: packages, // where the wheel was unpacked: the modules in the image believe to lie there
    leftOut: report.left_out,
  };
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, file), packed);
  await writeFile(path.join(folder, "snapshot.json.part"), JSON.stringify(manifest, null, 1));
  await rename(path.join(folder, "snapshot.json.part"), path.join(folder, "snapshot.json"));
  for (const old of await readdir(folder)) {
    if (old.endsWith(".snapshot") && old !== file) await rm(path.join(folder, old));
  }
  const mib = (n) => (n / 2 ** 20).toFixed(1);
  console.log(`snapshot: ${report.imported.length} engine modules, ${mib(image.length)} MiB, ${mib(packed.length)} packed`);
  for (const [name, reason] of Object.entries(report.left_out)) {
    if (!reason.endsWith("is kept out of the snapshot")) console.warn(`  ${name} could not be imported: ${reason}`);
  }
}

main().then(
  () => process.exit(0), // Pyodide keeps handles open
  (error) => {
    console.error(`the snapshot could not be made: ${error.message ?? error}`);
    process.exit(1);
  },
);
