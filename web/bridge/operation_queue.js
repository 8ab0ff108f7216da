import { abortError } from './failures.js';

/** One queued call: whether it runs, whether it was cancelled, and which runtimes a cancel has to reach. */
export class Operation {
  #runtimes = new Set();

  /** @param {{cancelledText?: string, signal?: AbortSignal}} options */
  constructor({ cancelledText = 'The operation was cancelled.', signal } = {}) {
    this.id = 0; // the queue counts its operations
    this.cancelledText = cancelledText;
    this.signal = signal;
    this.active = false;
    this.cancelRequested = false;
  }

  /** The caller's own signal fired (and not merely `cancel()`). */
  get aborted() {
    return this.signal?.aborted === true;
  }

  /** @param {{cancel(): void}} runtime  a runtime this operation is about to use */
  enter(runtime) {
    this.throwIfCancelled();
    this.#runtimes.add(runtime);
  }

  cancel() {
    if (this.cancelRequested) return;
    this.cancelRequested = true;
    for (const runtime of this.#runtimes) runtime.cancel();
  }

  throwIfCancelled() {
    if (this.cancelRequested) throw this.abortError();
  }

  abortError() {
    return abortError(this.cancelledText);
  }
}

/** A FIFO with one runner: the next operation starts when the one before it has settled, however it ended. */
export class OperationQueue {
  #waiting = [];
  #closedBy = null;
  #lastId = 0;
  #whenIdle = [];

  /** The operation that runs now. @type {Operation | null} */
  active = null;

  /**
   * @template T
   * @param {Operation} operation
   * @param {() => Promise<T>} run
   * @returns {Promise<T>}
   */
  enqueue(operation, run) {
    if (this.#closedBy) return Promise.reject(this.#closedBy());
    if (operation.aborted) return Promise.reject(operation.abortError());
    operation.id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      const entry = { operation, run, resolve, reject, onAbort: () => this.#onAbort(entry) };
      operation.signal?.addEventListener('abort', entry.onAbort);
      this.#waiting.push(entry);
      this.#startNext();
    });
  }

  /**
   * Refuse new operations and those still waiting; the running one is left alone.
   * @param {() => Error} reason
   * @returns {Promise<void>} settles when nothing runs any more
   */
  close(reason) {
    this.#closedBy = reason;
    for (const entry of this.#waiting.splice(0)) this.#settle(entry, () => entry.reject(reason()));
    if (!this.active) return Promise.resolve();
    return new Promise((resolve) => this.#whenIdle.push(resolve));
  }

  async #startNext() {
    if (this.active) return;
    const entry = this.#waiting.shift();
    if (!entry) {
      for (const resolve of this.#whenIdle.splice(0)) resolve();
      return;
    }
    const { operation } = entry;
    this.active = operation;
    operation.active = true;
    let deliver;
    try {
      const value = await entry.run();
      deliver = () => entry.resolve(value);
    } catch (error) {
      deliver = () => entry.reject(error);
    }
    operation.active = false;
    this.active = null;
    this.#settle(entry, deliver);
    this.#startNext();
  }

  #onAbort(entry) {
    if (entry.operation.active) {
      entry.operation.cancel();
      return;
    }
    const place = this.#waiting.indexOf(entry);
    if (place < 0) return;
    this.#waiting.splice(place, 1);
    this.#settle(entry, () => entry.reject(entry.operation.abortError()));
  }

  #settle(entry, deliver) {
    entry.operation.signal?.removeEventListener('abort', entry.onAbort);
    deliver();
  }
}
