import { GGUFError } from './error.js';
import { startWorker } from './start_worker.js';

/**
 * The one worker that reads this page's files (one for each folder of assets): calls go there, its reads come back.
 * It starts with the first call and stops when no file has been open for a while.
 */

const IDLE_MS = 30_000;
const links = new Map();

/** @param {string} assetBase  the folder with pyodide/ and wheels/ */
export function workerLink(assetBase) {
  if (!links.has(assetBase)) links.set(assetBase, new WorkerLink(assetBase));
  return links.get(assetBase);
}

class WorkerLink {
  #assetBase;
  #port = null; // a promise of it
  #calls = new Map(); // by id: {resolve, reject, read, failure}
  #files = new Set();
  #lastId = 0;
  #idle;

  constructor(assetBase) {
    this.#assetBase = assetBase;
  }

  /** A number for a file; the worker lives at least until it is released. */
  reserveFile() {
    clearTimeout(this.#idle);
    this.#lastId += 1;
    this.#files.add(this.#lastId);
    return this.#lastId;
  }

  releaseFile(file) {
    if (!this.#files.delete(file)) return;
    this.#port?.then((port) => port.post({ type: 'call', id: 0, file, method: 'close', args: [] }), () => {});
    if (this.#files.size) return;
    this.#idle = setTimeout(() => this.#stop('it was idle'), IDLE_MS);
    this.#idle.unref?.(); // Node need not wait for it
  }

  /**
   * What `method` of the Python side answers about a file (see bridge/reader_host/host.py).
   *
   * @param {(offset: number, length: number, signal: AbortSignal) => Promise<Uint8Array>} read  gives the file's bytes
   * @throws what `read` threw, where that made the call fail; the reason of `signal`; else a GGUFError
   */
  async call(file, method, args, read, signal) {
    signal?.throwIfAborted();
    if (!this.#files.has(file)) throw new GGUFError('READER_FAILED', 'the reader stopped; open the file again');
    const port = await this.#started();
    signal?.throwIfAborted();
    this.#lastId += 1;
    const id = this.#lastId;
    const over = new AbortController(); // stops reads that nobody waits for any more
    const abort = () => this.#calls.get(id)?.reject(signal.reason);
    signal?.addEventListener('abort', abort, { once: true });
    try {
      return await new Promise((resolve, reject) => {
        this.#calls.set(id, { resolve, reject, failure: null, read: (offset, length) => read(offset, length, over.signal) });
        port.hold(true);
        port.post({ type: 'call', id, file, method, args });
      });
    } finally {
      this.#calls.delete(id);
      if (!this.#calls.size) port.hold(false);
      signal?.removeEventListener('abort', abort);
      over.abort(signal?.reason);
    }
  }

  #started() {
    this.#port ??= startWorker(this.#assetBase, {
      onMessage: (message) => (message.type === 'read' ? this.#read(message) : this.#reply(message)),
      onFailure: (text) => this.#stop(text),
    });
    return this.#port;
  }

  #reply({ id, value, error }) {
    const call = this.#calls.get(id);
    if (error?.code === 'READER_FAILED') this.#stop(error.message);
    else if (error) call?.reject(call.failure ?? new GGUFError(error.code, error.message, error.needsMoreBytes));
    else call?.resolve(value);
  }

  async #read({ id, call: callId, offset, length }) {
    const port = await this.#port;
    if (!port) return; // stopped meanwhile
    const call = this.#calls.get(callId);
    try {
      const bytes = new Uint8Array(await call.read(offset, length)); // a copy: the source may keep what it gave
      port.post({ type: 'bytes', id, bytes }, [bytes.buffer]);
    } catch (error) {
      if (call) call.failure ??= error;
      port.post({ type: 'failed', id });
    }
  }

  /** The worker is gone, and with it every open file. */
  #stop(why) {
    this.#port?.then((port) => port.terminate(), () => {});
    this.#port = null;
    this.#files.clear();
    for (const { reject } of this.#calls.values()) reject(new GGUFError('READER_FAILED', `the reader stopped: ${why}`));
  }
}
