import { openForLoad } from '../byte_source.js';
import { CacheWriter } from './cache_writer.js';
import { PieceSums } from './content_sum.js';
import {
  cacheStorage, entryChecksums, entryHeaders, isCacheable, keepChecksums, storedAt, usableEntry,
} from './model_cache.js';

/**
 * One file of a model, read once from front to back: from Cache Storage where it is there, else from the network and into
 * Cache Storage on the way. The same members as the sources of byte_source.js, and
 *
 *   checksum()  of the whole file, reading what is left of it; a cached one must be what it was when it was stored
 *   commit()  the file was good: keep it, reading what is left of it; never fails
 *   facts     {source: 'network' | 'cache', state, notes}: where the bytes come from and what became of the cache
 *
 * @typedef {{useCache?: boolean, force?: boolean, name: string, store?: boolean, transfer?: object}} FileOptions
 *   name: of the cache; store: false reads without writing an entry; transfer: options of openForLoad
 */
export class CachedFile {
  facts = { source: 'network', state: 'disabled', notes: [] };
  #source;
  #writer = null;
  #sums = new PieceSums();
  #keepSums = async () => {}; // of an entry that has none yet

  /** @param {string} url @param {FileOptions} options */
  static async open(url, options) {
    const file = new CachedFile();
    await file.#open(url, options);
    return file;
  }

  async #open(url, { useCache, force = false, name, store = true, transfer = {} }) {
    const cache = await this.#cacheFor(url, useCache, name);
    const entry = cache && !force ? await this.#entry(cache, url) : null;
    if (entry) {
      this.facts.source = 'cache';
      this.facts.state = 'hit';
      this.#note('model_cache_hit', 'model_cache_stream');
      await this.#expectSums(name, url, storedAt(entry.headers));
      const onChunk = (chunk) => this.#sums.feed(chunk);
      this.#source = await openForLoad(url, { ...transfer, retries: 0, fetch: async () => entry, onChunk });
      return;
    }
    this.#note('model_network_stream');
    let resumes = 0;
    this.#source = await openForLoad(url, {
      ...transfer,
      ...httpCache(useCache, force),
      onChunk: (chunk) => {
        this.#sums.feed(chunk);
        return this.#writer?.write(chunk);
      },
      onResume: (offset) => this.#note(`model_stream_resume_retry:${++resumes}`, `model_stream_resume_offset:${offset}`),
    });
    if (!cache || !store || this.facts.state === 'error') return;
    this.facts.state = force ? 'refresh' : 'miss';
    const headers = entryHeaders({ size: this.size(), identity: this.identity() });
    this.#writer = new CacheWriter(cache, url, headers);
    this.#keepSums = (sums) => keepChecksums(name, url, storedAt(headers), sums);
    transfer.signal?.addEventListener('abort', () => this.#writer?.abort(), { once: true });
  }

  async #expectSums(name, url, stored) {
    const expected = await entryChecksums(name, url, stored);
    this.#sums = new PieceSums(expected);
    if (!expected) this.#keepSums = (sums) => keepChecksums(name, url, stored, sums);
  }

  async #cacheFor(url, useCache, name) {
    if (useCache === false || !isCacheable(url)) return null;
    this.facts.state = 'unavailable';
    const storage = cacheStorage();
    if (!storage) return null;
    try {
      return await storage.open(name);
    } catch {
      this.#failed();
      return null;
    }
  }

  async #entry(cache, url) {
    try {
      return await usableEntry(cache, url, (note) => this.#note(note));
    } catch {
      this.#failed();
      return null;
    }
  }

  #failed() {
    this.facts.state = 'error';
    this.#note('model_cache_error');
  }

  #note(...notes) {
    this.facts.notes.push(...notes);
  }

  async prepare() {}

  size() {
    return this.#source.size();
  }

  identity() {
    return this.#source.identity();
  }

  received() {
    return this.#source.received();
  }

  read(offset, length, options) {
    return this.#source.read(offset, length, options);
  }

  stream(offset, length, options) {
    return this.#source.stream(offset, length, options);
  }

  async checksum() {
    // The writer and the sums get what is left, see onChunk.
    for await (const _ of this.#source.stream(this.received()));
    return this.#sums.finish().join('');
  }

  async commit() {
    const isWhole = await this.checksum().then(() => true, () => false);
    const writer = this.#writer;
    this.#writer = null;
    if (!isWhole) writer?.abort();
    const isKept = writer ? await writer.commit() : true;
    if (isWhole && isKept) await this.#keepSums(this.#sums.finish());
    if (!writer) return;
    if (isKept) {
      this.facts.state = 'stored';
      this.#note('model_cache_stored');
      return;
    }
    this.facts.state = 'store_failed';
    this.#note('model_cache_store_failed');
    if (writer.failure.name === 'QuotaExceededError') this.#note('model_cache_quota_exceeded');
  }

  close() {
    this.#writer?.abort();
    this.#source.close();
  }
}

/** What a request says to the browser's own cache: nothing of it is wanted without a cache, or when fresh bytes are. */
function httpCache(useCache, force) {
  if (useCache === false) return { cache: 'no-store' };
  return force ? { cache: 'reload' } : null;
}
