/**
 * Reads GGUF models in a page or in Node without ever holding the file: metadata, tensors as byte ranges, rows and values
 * decoded exactly, and the tokenizer. The reader itself is Python, in a worker of its own; see docs/gguf.md.
 *
 *   const model = await openGGUF('https://…/model.gguf');
 *   model.architecture;                                   // 'qwen3'
 *   await model.rows('token_embd.weight', [12095]);       // one row, kilobytes
 *   await model.tokenizer().encode('The capital of France is');
 *   model.close();
 */
import { GGUFError } from './gguf/error.js';
import { GGUFModel } from './gguf/model.js';
import { readExactly, sizeOf, sourceFor } from './gguf/sources.js';
import { workerLink } from './gguf/worker_link.js';

export { ByteSourceError, fromBlob, fromBytes, fromFileHandle, fromURL, joinSources, shardURLs } from './byte_source.js';
export { GGUFError };

const ASSET_BASE = new URL('../', import.meta.url).href;

/**
 * Opens a file and reads its header; gguf.d.ts describes arguments and result.
 *
 * @param {string | URL | Blob | Uint8Array | object | Array} source  a list holds the files of a split model in order;
 *   the address of any file of a split model opens all of it
 * @param {{allowUnvalidated?: boolean, limits?: object, signal?: AbortSignal, fetch?: typeof fetch,
 *   headers?: Record<string, string>, assetBase?: string | URL}} options
 * @returns {Promise<GGUFModel>}
 * @throws GGUFError for what is wrong with the file, ByteSourceError for what goes wrong while reading it
 */
export async function openGGUF(source, { allowUnvalidated, limits, signal, fetch, headers, assetBase = ASSET_BASE } = {}) {
  const opened = sourceFor(source, { allowUnvalidated, fetch, headers });
  const link = workerLink(new URL(assetBase, globalThis.location?.href).href);
  const file = link.reserveFile();
  try {
    await unlessAborted(opened.prepare?.(), signal);
    const size = sizeOf(opened);
    const read = (offset, length, ended) => readExactly(opened, offset, length, ended);
    const description = await link.call(file, 'open', [size, opened.shards?.() ?? null, limits ?? null], read, signal);
    return new GGUFModel(link, file, opened, description);
  } catch (error) {
    link.releaseFile(file);
    if (opened !== source) opened.close?.(); // a source that was given may be used again
    throw error;
  }
}

function unlessAborted(promise, signal) {
  if (!signal) return promise;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener('abort', abort, { once: true });
    Promise.resolve(promise).then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
  });
}
