/** Short texts kept from one visit to the next, in Cache Storage; nothing where a page has none. */

const CACHE = 'llamadart-webgpu-tunings-v1';
const MAX_BYTES = 4096;

/** An address that no server has: only addresses can be keys. @param {string} key  letters and digits */
const address = (key) => `https://tunings.invalid/${key}`;

/** @param {string} key @returns {Promise<string | null>} */
export async function recall(key) {
  try {
    const entry = await (await globalThis.caches.open(CACHE)).match(address(key));
    const text = await entry?.text();
    return text && text.length <= MAX_BYTES ? text : null;
  } catch {
    return null;
  }
}

/** @param {string} key @param {string} text */
export async function keep(key, text) {
  try {
    await (await globalThis.caches.open(CACHE)).put(address(key), new Response(text));
  } catch {
    // measured again at the next visit
  }
}
