/** Models in Cache Storage: what their entries look like, and which of them may be used. */

export const DEFAULT_CACHE_NAME = 'llamadart-webgpu-model-cache-v1';
const STORED_AT = 'x-bridge-stored-at';
/** The checksums of a cache's entries lie in a cache of their own, so that the entries hold a file and nothing else. */
const CHECKSUMS = ':checksums';

/** The first name that is a text with something in it. @param {unknown[]} names */
export function cacheName(...names) {
  const given = names.find((name) => typeof name === 'string' && name.trim());
  return given?.trim() ?? DEFAULT_CACHE_NAME;
}

/** Cache Storage of this page or worker; null where there is none (an insecure context, or a browser that forbids it). */
export function cacheStorage() {
  try {
    return globalThis.caches ?? null;
  } catch {
    return null;
  }
}

/** Only these addresses can be keys. @param {string} url */
export function isCacheable(url) {
  return /^https?:/i.test(url);
}

/** Headers of a new entry. @param {{size: number | null, identity: string | null}} file */
export function entryHeaders({ size, identity }) {
  const headers = new Headers({ 'content-type': 'application/octet-stream', [STORED_AT]: new Date().toISOString() });
  if (size !== null) headers.set('content-length', String(size));
  if (identity) headers.set(identity.startsWith('"') ? 'etag' : 'last-modified', identity);
  return headers;
}

/**
 * The entry of a model file, or null. One that cannot be a model (an error's answer, a page, nothing) is dropped first.
 *
 * @param {Cache} cache @param {string} url @param {(note: string) => void} note
 */
export async function usableEntry(cache, url, note) {
  const entry = await cache.match(url);
  if (!entry) return null;
  const isPage = /^text\/html/i.test(entry.headers.get('content-type') ?? '');
  if (entry.status === 200 && !isPage && entry.headers.get('content-length') !== '0') return entry;
  note('model_cache_entry_dropped');
  await cache.delete(url);
  return null;
}

/** When an entry was stored; null for an entry of another program. @param {Headers} headers @returns {string | null} */
export function storedAt(headers) {
  return headers.get(STORED_AT);
}

/**
 * The checksums that were kept with the entry stored at `stored`; null where there are none of that entry.
 * @returns {Promise<string[] | null>}
 */
export async function entryChecksums(name, url, stored) {
  try {
    const cache = await cacheStorage().open(name + CHECKSUMS);
    const record = await (await cache.match(url))?.json();
    return stored && record?.storedAt === stored && Array.isArray(record.sums) ? record.sums : null;
  } catch {
    return null;
  }
}

/** Keeps the checksums of an entry; without them it is taken as it is. Never fails. */
export async function keepChecksums(name, url, stored, sums) {
  if (!stored) return;
  try {
    const cache = await cacheStorage().open(name + CHECKSUMS);
    await cache.put(url, new Response(JSON.stringify({ storedAt: stored, sums })));
  } catch {
    // The disk is full, or the browser forbids it.
  }
}

/** Removes entries; a cache that is missing or fails has none. @returns {Promise<number>} how many there were */
export async function removeEntries(name, urls) {
  const removed = await removeFrom(name, urls);
  await removeFrom(name + CHECKSUMS, urls);
  return removed;
}

async function removeFrom(name, urls) {
  try {
    const storage = cacheStorage();
    if (!storage || !(await storage.has(name))) return 0;
    const cache = await storage.open(name);
    const removed = await Promise.all(urls.filter(isCacheable).map((url) => cache.delete(url)));
    return removed.filter(Boolean).length;
  } catch {
    return 0;
  }
}

/**
 * What a cache holds.
 * @returns {Promise<{url: string, bytes: number | null, storedAt: string | null, validator: string | null}[]>}
 */
export async function listEntries(name) {
  const storage = cacheStorage();
  if (!storage || !(await storage.has(name))) return [];
  const cache = await storage.open(name);
  const requests = await cache.keys();
  const entries = await Promise.all(requests.map(async (request) => [request.url, await cache.match(request)]));
  return entries
    .filter(([, entry]) => entry)
    .map(([url, { headers }]) => ({
      url,
      bytes: headers.has('content-length') ? Number(headers.get('content-length')) : null,
      storedAt: storedAt(headers),
      validator: headers.get('etag') ?? headers.get('last-modified'),
    }));
}
