// Runs a Python module of this repository inside Pyodide, under Node: node tools/in_pyodide.mjs SITE MODULE [ARGUMENT …]
//
// SITE is the built site (build/site), whose Pyodide and packages are used. The repository, the folder of the gguf package
// in PYTHON_GGUF (optional) and the disk are visible at /repository, /gguf and /disk, so a path /a/b is /disk/a/b there.

import path from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

const [site, module, ...args] = process.argv.slice(2);
const repository = fileURLToPath(new URL("..", import.meta.url));
const indexURL = path.resolve(site, "pyodide") + path.sep;
const { loadPyodide } = await import(pathToFileURL(path.join(indexURL, "pyodide.mjs")).href);
const pyodide = await loadPyodide({ indexURL, packageCacheDir: indexURL });
await pyodide.loadPackage("numpy", { messageCallback() {} });

const mounts = { "/repository": repository, "/disk": "/" };
if (process.env.PYTHON_GGUF) mounts["/gguf"] = process.env.PYTHON_GGUF;
for (const [at, root] of Object.entries(mounts)) {
  pyodide.FS.mkdir(at);
  pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, at);
}
pyodide.globals.set("argv", pyodide.toPy([module, ...args]));
try {
  process.exitCode = pyodide.runPython(`
import runpy, sys
sys.path.insert(0, "/repository")
sys.argv = list(argv)
status = 0
try:
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
except SystemExit as stop:
    status = int(stop.code or 0)
status
`);
} catch (error) {
  console.error(error.message); // Node would print the source line with it, which is all of Pyodide
  process.exitCode = 1;
}
