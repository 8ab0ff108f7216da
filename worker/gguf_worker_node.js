/** The entry of the worker behind web/gguf.js in Node: the same engine, read from files instead of fetched. */

import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { parentPort, workerData } from 'node:worker_threads';

import { serveReader } from '../web/gguf/reader_worker.js';

const SITE_PACKAGES = '/lib/python3.12/site-packages';

const handle = serveReader((message, transfer) => parentPort.postMessage(message, transfer), () => boot(new URL(workerData)));
parentPort.on('message', handle);

/** @param {URL} base  the folder with pyodide/ and wheels/ */
async function boot(base) {
  const { loadPyodide } = await import(new URL('pyodide/pyodide.mjs', base));
  const pyodide = await loadPyodide({ indexURL: fileURLToPath(new URL('pyodide/', base)) });
  const { file } = JSON.parse(await readFile(new URL('wheels/wheel.json', base), 'utf8'));
  const wheel = new Uint8Array(await readFile(new URL(`wheels/${file}`, base))); // Pyodide takes no Buffer
  pyodide.unpackArchive(wheel, 'wheel', { extractDir: SITE_PACKAGES });
  return pyodide;
}
