/**
 * One entry of Cache Storage while it is written.
 *
 * The browser keeps an entry only when its body has come to its end, so nothing that was cut off, cancelled or refused
 * half-way is ever found later: commit() is what ends it. A failure (quota, a browser that refuses) never stops the writer's
 * caller: it is kept in `failure`, and what is written afterwards is dropped.
 */
export class CacheWriter {
  failure = null;
  #controller;
  #stored;
  #wake = () => {};

  /** @param {Cache} cache @param {string} url @param {Headers} headers */
  constructor(cache, url, headers) {
    const body = new ReadableStream(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => this.#wake(),
        cancel: (reason) => this.#fail(reason),
      },
      new ByteLengthQueuingStrategy({ highWaterMark: HELD_BYTES }),
    );
    this.#stored = Promise.resolve()
      .then(() => cache.put(url, new Response(body, { headers })))
      .catch((error) => {
        this.#fail(error);
        this.failure = error; // it says more than a body that was cancelled
      });
  }

  /** Waits while the browser is behind. @param {Uint8Array} chunk  stays unchanged from here on */
  async write(chunk) {
    if (this.failure) return;
    this.#controller.enqueue(chunk);
    while (!this.failure && this.#controller.desiredSize <= 0) {
      await new Promise((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Ends the entry and waits until it is kept. @returns {Promise<boolean>} whether it is */
  async commit() {
    if (!this.failure) this.#controller.close();
    await this.#stored;
    return !this.failure;
  }

  /** Gives the entry up; whatever was stored before under its address stays. */
  abort() {
    if (this.failure) return;
    const reason = new DOMException('The entry was given up.', 'AbortError');
    this.#fail(reason);
    this.#controller.error(reason);
  }

  #fail(reason) {
    this.failure ??= reason ?? new Error('the browser stopped taking the entry');
    this.#wake();
  }
}

const HELD_BYTES = 4 * 1024 * 1024;
