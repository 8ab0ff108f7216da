import { ByteSourceError } from '../byte_source.js';
import { CachedFile } from './cached_file.js';
import { abortError } from './failures.js';
import { cacheStorage, isCacheable, usableEntry } from './model_cache.js';

const NOT_STORED = 'Failed to store prefetched model in browser cache.';

/**
 * Fetches files into Cache Storage, one after the other, those that are not there yet.
 *
 * @param {string[]} urls @param {{name: string, force: boolean, transfer: {signal: AbortSignal}}} options
 * @param {(progress: {loaded: number, total: number}) => void} onProgress
 * @returns {Promise<string[]>} runtime notes
 */
export async function prefetchFiles(urls, { name, force, transfer }, onProgress) {
  const cache = await openCache(name, urls);
  const progress = new Progress(urls.length, onProgress);
  const notes = urls.length > 1 ? [`model_split_cache_prefetch:${urls.length}`] : [];
  try {
    for (const [index, url] of urls.entries()) {
      transfer.signal.throwIfAborted();
      const entry = force ? null : await usableEntry(cache, url, (note) => notes.push(note));
      if (entry) {
        progress.done(index, Number(entry.headers.get('content-length')) || 1);
        notes.push('model_cache_hit');
        continue;
      }
      notes.push(...(await prefetchFile(url, { name, force, transfer }, (loaded, total) => progress.report(index, loaded, total))));
    }
  } catch (error) {
    if (transfer.signal.aborted) throw abortError('Model prefetch was cancelled.');
    if (error instanceof ByteSourceError) throw new Error(`Failed to prefetch model shard: ${error.message}`, { cause: error });
    throw error;
  }
  if (urls.length > 1) notes.push('model_split_cache_prefetched');
  return [...new Set(notes)];
}

async function prefetchFile(url, options, report) {
  const file = await CachedFile.open(url, options);
  try {
    const chunks = file.stream(0);
    for await (const _ of chunks) report(file.received(), file.size());
    await file.commit();
    if (file.facts.state !== 'stored') throw new Error(NOT_STORED);
    report(file.received(), file.size());
    return file.facts.notes;
  } finally {
    file.close();
  }
}

async function openCache(name, urls) {
  if (!urls.every(isCacheable)) throw new Error(`${NOT_STORED} Only http and https addresses can be kept.`);
  const storage = cacheStorage();
  if (!storage) throw new Error(`${NOT_STORED} This browser has no Cache Storage here; it needs a secure context.`);
  try {
    return await storage.open(name);
  } catch (error) {
    throw new Error(`${NOT_STORED} ${error?.message ?? error}`, { cause: error });
  }
}

/** Sums over files; told when the whole percentage grows, and at the end of each file. */
class Progress {
  #files;
  #percent = -1;
  #tell;

  constructor(count, tell) {
    this.#files = Array.from({ length: count }, () => ({ loaded: 0, total: 0 }));
    this.#tell = tell;
  }

  done(index, bytes) {
    this.report(index, bytes, bytes);
  }

  report(index, loaded, total) {
    this.#files[index] = { loaded, total: total ?? 0 };
    const sum = (key) => this.#files.reduce((bytes, file) => bytes + file[key], 0);
    const all = sum('loaded');
    const known = Math.max(sum('total'), all);
    const percent = known ? Math.floor((100 * all) / known) : 0;
    if (percent <= this.#percent && loaded !== total) return;
    this.#percent = percent;
    this.#tell({ loaded: all, total: known });
  }
}
