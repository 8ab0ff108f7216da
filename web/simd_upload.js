/**
 * The one pass over a model file that fills the CPU backend's memory (bridge/simd/upload.py says the same in Python).
 *
 * Chunks are copied to a staging area of the WebAssembly memory; when it holds whole steps of a span (four rows of a
 * matrix) the kernels take them to their place. So no more than a chunk and the staging area is ever held.
 */

const PROGRESS_MS = 50;
const PAUSE_MS = 30; // of work before the thread's other tasks get a turn

/**
 * @param {{stream: Function}} source  of byte_source.js
 * @param {{ranges: Array<[number, number, number]>, spans: Array, capacity: number}} plan
 *   ranges: first byte, end byte and number of spans of each stream; a span: {offset, length, step, row, name, target}
 * @param {{stage: (at: number, bytes: Uint8Array) => void, take: (span: object, done: number, count: number) => void}}
 *   memory
 * @param {AbortSignal} signal
 * @param {(position: number) => void} onProgress
 */
export async function upload(source, { ranges, spans, capacity }, memory, signal, onProgress) {
  let reported = -Infinity;
  let rested = performance.now();
  for (const [start, end, count] of ranges) {
    const writer = new StepWriter(start, spans.splice(0, count), capacity, memory);
    for await (const chunk of source.stream(start, end - start, { signal })) {
      signal.throwIfAborted();
      writer.feed(chunk);
      const now = performance.now();
      if (now - reported > PROGRESS_MS) {
        reported = now;
        onProgress(writer.position);
      }
      if (now - rested > PAUSE_MS) {
        await macrotask(); // chunks that are there already would otherwise follow each other without a pause
        rested = performance.now();
      }
    }
    writer.finish();
  }
}

/** Resolves after other tasks, such as a cancelling message, had their turn; much sooner than a timer. */
export function macrotask() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

/**
 * Cuts a stream that starts at byte `position` into spans, and spans into runs of whole steps. `memory.stage` gathers
 * bytes in a staging area of `capacity` bytes; `memory.take` says that it holds `count` bytes of a span after the
 * `done` before.
 */
export class StepWriter {
  #spans;
  #capacity;
  #memory;
  #staged = 0;

  constructor(position, spans, capacity, memory) {
    this.position = position;
    this.#spans = spans;
    this.#capacity = capacity;
    this.#memory = memory;
  }

  /** @param {Uint8Array} chunk */
  feed(chunk) {
    let at = 0;
    while (this.#spans.length && at < chunk.length) {
      const span = this.#spans[0];
      if (this.position < span.offset) {
        const skipped = Math.min(span.offset - this.position, chunk.length - at);
        this.position += skipped;
        at += skipped;
        continue;
      }
      const end = span.offset + span.length;
      const room = Math.floor(this.#capacity / span.step) * span.step - this.#staged;
      const count = Math.min(chunk.length - at, end - this.position, room);
      this.#memory.stage(this.#staged, chunk.subarray(at, at + count));
      this.position += count;
      this.#staged += count;
      at += count;
      if (this.position === end || count === room) {
        this.#memory.take(span, this.position - span.offset - this.#staged, this.#staged);
        this.#staged = 0;
      }
      if (this.position === end) this.#spans.shift();
    }
  }

  /** Throws when the stream ended before the last span was whole. */
  finish() {
    if (!this.#spans.length) return;
    const { offset, length, name } = this.#spans[0];
    throw new Error(`the stream ended at byte ${this.position} of the file, inside tensor ${name}, `
      + `which ends at byte ${offset + length}`);
  }
}
