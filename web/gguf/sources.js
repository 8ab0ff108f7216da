import { fromBlob, fromBytes, fromURL, joinSources, shardURLs } from '../byte_source.js';

import { GGUFError } from './error.js';

/**
 * The source for what `openGGUF` was given: an address, a Blob, bytes, a source, or a list of these for a split model.
 *
 * @param {unknown} given
 * @param {{fetch?: typeof fetch, headers?: Record<string, string>, allowUnvalidated?: boolean}} options  for addresses
 */
export function sourceFor(given, options) {
  if (Array.isArray(given)) return joinSources(given.map((one) => sourceFor(one, options)));
  if (typeof given === 'string' || given instanceof URL) {
    const sources = shardURLs(given).map((url) => fromURL(url, options));
    return sources.length === 1 ? sources[0] : joinSources(sources);
  }
  if (given instanceof Uint8Array) return fromBytes(given);
  if (given instanceof ArrayBuffer) return fromBytes(new Uint8Array(given));
  if (typeof given?.size === 'function' && typeof given.read === 'function') return given;
  if (typeof Blob === 'function' && given instanceof Blob) return fromBlob(given);
  const got = given === null ? 'null' : typeof given;
  throw new GGUFError('INVALID_INPUT', `openGGUF takes an address, a Blob, a Uint8Array, a source or a list of these, got ${got}`);
}

/** The size that a prepared source states, which must be an exact integer. */
export function sizeOf(source) {
  const size = source.size();
  if (!Number.isSafeInteger(size) || size < 0) {
    throw new GGUFError('SOURCE_FAILED', `the source says that its size is ${String(size)}; it must be an exact integer of at least 0`);
  }
  return size;
}

/** Exactly the bytes asked for, whatever kind of source gives them. */
export async function readExactly(source, offset, length, signal) {
  const given = await source.read(offset, length, { signal });
  const bytes = given instanceof ArrayBuffer ? new Uint8Array(given) : given;
  if (!(bytes instanceof Uint8Array)) {
    throw new GGUFError('SOURCE_FAILED', `the source returned ${given === null ? 'null' : typeof given}, not a Uint8Array`);
  }
  if (bytes.length !== length) {
    throw new GGUFError('SOURCE_FAILED', `the source returned ${bytes.length} of ${length} bytes at offset ${offset}`);
  }
  return bytes;
}
