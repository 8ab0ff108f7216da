import { shardURLs } from '../byte_source/shards.js';
import { abortError } from './failures.js';
import { cacheName, listEntries, removeEntries } from './model_cache.js';

const CANCELLED = 'Model prefetch was cancelled.';
const TIMEOUTS = { fetchTimeoutMs: [10_000, 1_800_000], streamChunkTimeoutMs: [5_000, 300_000] };

/** What a page does with the model cache by itself: the engine and its queue have no part in it. */
export class PageCache {
  #configured;
  #publish;
  #running = new Set();

  /**
   * @param {Record<string, unknown>} config  the bridge's
   * @param {(facts: {source?: string, state: string, name: string, notes: string[]}) => void} publish
   */
  constructor(config, publish) {
    this.#configured = config.cacheName;
    this.#publish = publish;
  }

  /** @param {string | string[]} source @param {Record<string, any>} options @param {(progress: object) => void} onProgress */
  async prefetch(source, options, onProgress) {
    const urls = modelUrls(source);
    if (!urls.length) throw new Error('Model URL is empty.');
    const name = cacheName(options.cacheName, this.#configured);
    const controller = new AbortController();
    const abort = () => controller.abort();
    if (options.signal?.aborted) throw abortError(CANCELLED);
    options.signal?.addEventListener('abort', abort, { once: true });
    this.#running.add(controller);
    try {
      const { prefetchFiles } = await import('./prefetch.js');
      const transfer = { ...transferOptions(options), signal: controller.signal };
      const notes = await prefetchFiles(urls, { name, force: options.force === true, transfer }, onProgress);
      const state = notes.includes('model_cache_stored') ? 'stored' : 'hit';
      this.#publish({ source: state === 'hit' ? 'cache' : 'network', state, name, notes });
      return 1;
    } catch (error) {
      if (error?.name === 'AbortError') this.#publish({ state: 'error', name, notes: ['model_cache_prefetch_aborted'] });
      throw error;
    } finally {
      this.#running.delete(controller);
      options.signal?.removeEventListener('abort', abort);
    }
  }

  /** @returns {Promise<boolean>} whether there was an entry */
  async evict(source, options) {
    const urls = modelUrls(source);
    const name = cacheName(options.cacheName, this.#configured);
    const removed = await removeEntries(name, urls);
    const notes = removed ? ['model_cache_evicted'] : [];
    if (urls.length > 1) notes.push(`model_split_cache_evicted:${removed}/${urls.length}`);
    this.#publish({ state: removed ? 'evicted' : 'miss', name, notes });
    return removed > 0;
  }

  list(options) {
    return listEntries(cacheName(options.cacheName, this.#configured));
  }

  /** Ends every prefetch under way. */
  cancel() {
    for (const controller of this.#running) controller.abort();
  }
}

/** All files of the model that `source` names. @param {string | string[]} source  absolute, see modelSource */
function modelUrls(source) {
  const urls = Array.isArray(source) ? source : [source].filter(Boolean);
  return urls.length === 1 ? shardURLs(urls[0]) : urls;
}

function transferOptions({ streamResumeRetries, ...options }) {
  const transfer = {};
  for (const [key, [least, most]] of Object.entries(TIMEOUTS)) {
    if (Number.isFinite(options[key])) transfer[key] = Math.min(Math.max(Math.trunc(options[key]), least), most);
  }
  if (Number.isFinite(streamResumeRetries)) transfer.retries = Math.max(0, Math.trunc(streamResumeRetries));
  return transfer;
}
