import { ByteSourceError } from './error.js';

/** One request and its body, with timeouts, cancellation and the pauses between attempts. */

export const DEFAULT_RETRIES = 8;
const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 8_000;
const LONGEST_RETRY_AFTER_MS = 30_000;
const FETCH_TIMEOUT_MS = 180_000;
const CHUNK_TIMEOUT_MS = 90_000;

/**
 * @param {{fetch?: typeof fetch, headers?: Record<string, string>, cache?: RequestCache, retries?: number,
 *   retryPauseMs?: number, fetchTimeoutMs?: number, streamChunkTimeoutMs?: number, signal?: AbortSignal}} options
 */
export function transferSettings(options) {
  return {
    fetch: options.fetch ?? ((...args) => globalThis.fetch(...args)),
    headers: options.headers ?? {},
    cache: options.cache,
    retries: Number.isFinite(options.retries) ? Math.max(0, Math.trunc(options.retries)) : DEFAULT_RETRIES,
    pauseMs: options.retryPauseMs ?? FIRST_PAUSE_MS,
    fetchTimeoutMs: options.fetchTimeoutMs ?? FETCH_TIMEOUT_MS,
    chunkTimeoutMs: options.streamChunkTimeoutMs ?? CHUNK_TIMEOUT_MS,
    signal: options.signal,
  };
}

/** A signal that follows all of `signals`, and `release()` to stop following them. */
export function followSignals(signals) {
  const controller = new AbortController();
  const follow = (event) => controller.abort(event.target.reason);
  const live = signals.filter(Boolean);
  for (const signal of live) {
    if (signal.aborted) controller.abort(signal.reason);
    else signal.addEventListener('abort', follow, { once: true });
  }
  return {
    signal: controller.signal,
    abort: (reason) => controller.abort(reason),
    release: () => live.forEach((signal) => signal.removeEventListener('abort', follow)),
  };
}

/** What each answer's own signal follows, until its body is done with. @type {WeakMap<object, {release: () => void}>} */
const links = new WeakMap();

/** Fetches `url`, resolving when the headers are there. A network failure or a timeout is a transient error. */
export async function request(url, settings, headers, signal) {
  const link = followSignals([signal]);
  const init = { headers: { ...settings.headers, ...headers }, signal: link.signal };
  if (settings.cache) init.cache = settings.cache;
  try {
    const response = await within(settings.fetchTimeoutMs, 'fetch timeout', settings.fetch(url, init), link.signal);
    links.set(response, link);
    return response;
  } catch (error) {
    link.abort(error); // after a timeout the request is still on its way
    link.release();
    throw asTransient(error, signal);
  }
}

/** The chunks of a body. Leaving early cancels the download. */
export async function* bodyChunks(response, settings, signal) {
  const reader = response.body?.getReader?.();
  let ended = false;
  try {
    if (!reader) yield new Uint8Array(await response.arrayBuffer());
    while (reader) {
      const { done, value } = await within(settings.chunkTimeoutMs, 'read timeout', reader.read(), signal);
      ended = done;
      if (done) return;
      if (value.length) yield value;
    }
  } catch (error) {
    throw asTransient(error, signal);
  } finally {
    links.get(response)?.release();
    if (!ended) reader?.cancel().catch(() => {}); // it may have failed already
  }
}

/** Lets go of an answer whose body will not be read. */
export function discard(response) {
  links.get(response)?.release();
  response.body?.cancel?.().catch(() => {});
}

/**
 * Yields the chunks that `openAt(offset)` gives, from `start` on; after a transient failure it is called again for what
 * is missing.
 *
 * @param {{isEnd: (offset: number) => boolean, checkEnd: (offset: number) => void}} ending isEnd: all that was wanted is
 *   there, so a failure no longer matters; checkEnd throws if a body must not end there
 */
export async function* resumable(openAt, start, settings, signal, { isEnd, checkEnd }) {
  let at = start;
  for (let resumes = 0; ; ) {
    try {
      for await (const chunk of await openAt(at, resumes)) {
        at += chunk.length;
        yield chunk;
      }
      checkEnd(at);
      return;
    } catch (error) {
      if (error?.transient && isEnd(at)) return;
      if (!error?.transient || resumes >= settings.retries || error.retryAfterMs > LONGEST_RETRY_AFTER_MS) throw error;
      const pause = Math.min(settings.pauseMs * 2 ** resumes, LONGEST_PAUSE_MS);
      resumes += 1;
      await sleep(error.retryAfterMs ?? pause, signal);
    }
  }
}

function asTransient(error, signal) {
  if (signal?.aborted) return signal.reason;
  if (error instanceof ByteSourceError) return error;
  const text = String(error?.message ?? error);
  // Some runtimes put the address into the text.
  const told = text.includes('://') ? 'the transfer failed' : text;
  return new ByteSourceError('NETWORK', `network error: ${told}`, { transient: true, cause: error });
}

/** What `promise` gives, unless `ms` pass or `signal` aborts first. */
function within(ms, what, promise, signal) {
  let timer;
  let stop;
  const limit = new Promise((_, reject) => {
    stop = () => reject(signal.reason);
    timer = setTimeout(() => reject(new ByteSourceError('TIMEOUT', `${what} (${ms}ms)`, { transient: true })), ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
  return Promise.race([promise, limit]).finally(() => {
    clearTimeout(timer);
    signal?.removeEventListener('abort', stop);
  });
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const stop = () => {
      clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}
