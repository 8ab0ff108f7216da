import { ByteSourceError } from '../byte_source.js';
import { CachedFile } from './cached_file.js';

const FRONT_BYTES = 256 * 1024;

/**
 * One file of a split model: its front is read while the headers of all files are, and the file itself when its turn comes.
 *
 * Browsers open few connections to one server, so a file must not hold one while others are read. The front comes with a
 * request of its own, which is left as soon as it is there; the file read later must be the same one.
 */
export class ShardFile {
  #open;
  #front = null;
  #size = null;
  #identity = null;
  #file = null;
  #force = false; // what the cache has is no good

  /** @param {(options: {store: boolean, force: boolean}) => Promise<CachedFile>} open */
  constructor(open) {
    this.#open = open;
  }

  /** @param {string} url @param {import('./cached_file.js').FileOptions} options */
  static of(url, options) {
    return new ShardFile(({ store, force }) => CachedFile.open(url, { ...options, store, force: force || options.force }));
  }

  get facts() {
    return this.#file?.facts ?? null;
  }

  async prepare() {
    if (!this.#front) await this.#readFront(FRONT_BYTES);
  }

  size() {
    return this.#size;
  }

  identity() {
    return this.#identity;
  }

  received() {
    return this.#file?.received() ?? 0;
  }

  async read(offset, length) {
    await this.prepare();
    if (offset + length > this.#front.length) await this.#readFront(offset + length);
    return this.#front.slice(offset, offset + length);
  }

  async *stream(offset, length, options) {
    await this.#begin();
    yield* this.#file.stream(offset, length, options);
  }

  async checksum() {
    await this.#begin();
    return this.#file.checksum();
  }

  async commit() {
    await this.#begin();
    await this.#file.commit();
  }

  close() {
    this.#file?.close();
  }

  async #readFront(length) {
    const file = await this.#open({ store: false, force: this.#force });
    try {
      this.#checkSame(file);
      this.#front = await file.read(0, file.size() === null ? length : Math.min(length, file.size()));
      this.#size = file.size();
      this.#identity = file.identity();
    } catch (error) {
      if (file.facts.source !== 'cache' || this.#size !== null) throw error;
      this.#force = true;
    } finally {
      file.close();
    }
    if (!this.#front) await this.#readFront(length);
  }

  async #begin() {
    if (this.#file) return;
    const file = await this.#open({ store: true, force: this.#force });
    try {
      this.#checkSame(file);
    } catch (error) {
      file.close();
      throw error;
    }
    this.#file = file;
    this.#front = null;
  }

  #checkSame(file) {
    if (this.#size === null) return;
    if (file.size() === this.#size && file.identity() === this.#identity) return;
    throw new ByteSourceError('FILE_CHANGED', 'the file changed while the model was loaded');
  }
}
