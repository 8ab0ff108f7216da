import { joinSources } from '../byte_source.js';
import { CachedFile } from './cached_file.js';
import { cacheName, removeEntries } from './model_cache.js';
import { ShardFile } from './shard_file.js';

/** A model's files, from Cache Storage or the network: as the engine loads them. */

/**
 * The files `urls` as one source of byte_source.js, for one pass from front to back, with checksum(),
 * commit() and facts() beside.
 *
 * @param {string[]} urls @param {import('./cached_file.js').FileOptions} settings  without a name: the default cache
 */
export async function openModel(urls, settings) {
  const options = { ...settings, name: cacheName(settings.name) };
  if (urls.length === 1) {
    const file = await CachedFile.open(urls[0], options);
    return new ModelSource(file, [file], urls, options.name);
  }
  const files = urls.map((url) => ShardFile.of(url, options));
  const joined = joinSources(files);
  try {
    await joined.prepare();
  } catch (error) {
    joined.close();
    throw error;
  }
  return new ModelSource(joined, files, urls, options.name);
}

class ModelSource {
  #source;
  #files;
  #urls;
  #cacheName;

  constructor(source, files, urls, cacheName) {
    this.#source = source;
    this.#files = files;
    this.#urls = urls;
    this.#cacheName = cacheName;
  }

  size() {
    return this.#source.size();
  }

  /** Sizes of the files of a split model; empty for a single file. */
  shards() {
    return this.#files.length > 1 ? this.#source.shards() : [];
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

  /** A text that changes with the content of the files; reads what is left of them. */
  async checksum() {
    const sums = [];
    for (const file of this.#files) sums.push(await file.checksum());
    return sums.join(' ');
  }

  /** The model is good: keep its files. Never fails. */
  async commit() {
    for (const file of this.#files) {
      try {
        await file.commit();
      } catch {
        // A file that nothing was read of, and that is gone now: the model is there without it.
      }
    }
  }

  /** The model is not good: forget what was kept of it. */
  async discard() {
    await removeEntries(this.#cacheName, this.#urls);
  }

  close() {
    this.#source.close();
  }

  /** JSON {source, state, name, notes} of all files together. */
  facts() {
    const facts = this.#files.map((file) => file.facts).filter(Boolean);
    const states = facts.map(({ state }) => state);
    const count = this.#files.length;
    return JSON.stringify({
      source: facts.length && facts.every(({ source }) => source === 'cache') ? 'cache' : 'network',
      state: WORST_FIRST.find((state) => states.includes(state)) ?? 'disabled',
      name: this.#cacheName,
      notes: [...(count > 1 ? [`model_split_detected:${count}`] : []), ...new Set(facts.flatMap(({ notes }) => notes))],
      anyFromCache: facts.some(({ source }) => source === 'cache'),
    });
  }
}

const WORST_FIRST = ['error', 'store_failed', 'miss', 'refresh', 'stored', 'hit', 'unavailable', 'disabled'];
