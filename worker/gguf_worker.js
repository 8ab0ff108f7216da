/** The entry of the worker behind web/gguf.js in a browser. */

import { bootEngine } from '../web/boot.js';
import { serveReader } from '../web/gguf/reader_worker.js';

const assetBase = new URL(import.meta.url).searchParams.get('assets') ?? undefined;

self.onmessage = ({ data }) => handle(data);
const handle = serveReader(
  (message, transfer) => self.postMessage(message, transfer),
  async () => (await bootEngine({ assetBase })).pyodide,
);
