import { ByteSourceError, checkRange } from './error.js';

/** Split models: `name-00001-of-00003.gguf` and so on, read as if the files lay end to end. See bridge/gguf/shards.py. */

const MAX_SHARDS = 512;
const SHARD_NAME = /^(.*)-(\d{4,6})-of-(\d{4,6})\.gguf$/is;

/** @param {string | URL} url @returns {string[]} all files of the split model that `url` names one of; else just `url` */
export function shardURLs(url) {
  const text = String(url);
  const [path] = text.split(/[?#]/, 1);
  const [, stem, own, total] = SHARD_NAME.exec(path) ?? [];
  const count = Number(total);
  if (!(count >= 2 && count <= MAX_SHARDS && own >= 1 && own <= count)) return [text];
  const padded = (number) => String(number).padStart(Math.max(own.length, total.length), '0');
  const query = text.slice(path.length);
  return Array.from({ length: count }, (_, i) => `${stem}-${padded(i + 1)}-of-${padded(count)}.gguf${query}`);
}

/**
 * One source over the files of a split model, in order. Beside the members of every source it has shards(), the sizes of
 * the files, and received(), the bytes received so far by those of its sources that count them.
 */
export function joinSources(sources) {
  return new JoinedSource([...sources]);
}

class JoinedSource {
  #parts;
  #starts = null; // of each part, and the end of the last
  #prepared = null;

  constructor(parts) {
    if (!parts.length) throw new ByteSourceError('INVALID_RANGE', 'a split model has at least one file, got none');
    this.#parts = parts;
  }

  prepare() {
    this.#prepared ??= this.#measure().catch((error) => {
      this.#prepared = null; // the next call tries again
      throw error;
    });
    return this.#prepared;
  }

  size() {
    return this.#starts?.at(-1) ?? null;
  }

  shards() {
    return this.#starts && this.#parts.map((part) => part.size());
  }

  identity() {
    const identities = this.#parts.map((part) => part.identity?.() ?? null);
    return identities.includes(null) ? null : identities.join(' ');
  }

  received() {
    return this.#parts.reduce((sum, part) => sum + (part.received?.() ?? 0), 0);
  }

  async read(offset, length, { signal } = {}) {
    await this.prepare();
    checkRange(offset, length, this.size());
    const pieces = [];
    for (const { part, index, start, count } of this.#ranges(offset, length)) {
      pieces.push(await this.#named(index, part.read(start, count, { signal })));
    }
    if (pieces.length === 1) return pieces[0];
    const bytes = new Uint8Array(length);
    let filled = 0;
    for (const piece of pieces) {
      bytes.set(piece, filled);
      filled += piece.length;
    }
    return bytes;
  }

  async *stream(offset = 0, length = undefined, { signal } = {}) {
    await this.prepare();
    length ??= this.size() - offset;
    checkRange(offset, length, this.size());
    for (const { part, index, start, count } of this.#ranges(offset, length)) {
      const chunks = part.stream(start, count, { signal });
      try {
        for (;;) {
          const { done, value } = await this.#named(index, chunks.next());
          if (done) break;
          yield value;
        }
      } finally {
        await chunks.return();
      }
    }
  }

  close() {
    for (const part of this.#parts) part.close?.();
  }

  async #measure() {
    await Promise.all(this.#parts.map((part, index) => this.#named(index, part.prepare?.())));
    const starts = [0];
    this.#parts.forEach((part, index) => {
      const size = part.size();
      if (size === null) throw new ByteSourceError('BAD_RESPONSE', `${this.#label(index)} does not say how long it is`);
      starts.push(starts.at(-1) + size);
    });
    this.#starts = starts;
  }

  /** The parts that bytes [offset, offset + length) lie in, each with its own start and count. */
  *#ranges(offset, length) {
    const end = offset + length;
    for (let index = 0; index < this.#parts.length && offset < end; index += 1) {
      const stop = Math.min(end, this.#starts[index + 1]);
      if (stop <= offset) continue;
      const start = offset - this.#starts[index];
      yield { part: this.#parts[index], index, start, count: stop - offset };
      offset = stop;
    }
  }

  #label(index) {
    return `shard ${index + 1} of ${this.#parts.length}`;
  }

  async #named(index, promise) {
    try {
      return await promise;
    } catch (error) {
      if (!(error instanceof ByteSourceError) || this.#parts.length === 1) throw error;
      const { code, status, transient, retryAfterMs } = error;
      const details = { status, transient, retryAfterMs, cause: error };
      throw new ByteSourceError(code, `${this.#label(index)}: ${error.message}`, details);
    }
  }
}
