/** Arguments of the public methods: checked, copied and made ready to be sent. */

import { describe } from './describe.js';
import { modelSource } from './page_urls.js';

/** A capacity greater than zero, truncated; undefined asks for the context size of the moment. Coerced just once. */
export function requestedCapacity(tokenCapacity) {
  try {
    const capacity = Number(tokenCapacity);
    return capacity > 0 ? Math.trunc(capacity) : undefined;
  } catch {
    return undefined;
  }
}

/** A private copy, so that the caller's buffer is never detached; what holds no bytes counts as empty. */
export function copiedBytes(source) {
  if (source instanceof ArrayBuffer) return new Uint8Array(source.slice(0));
  if (ArrayBuffer.isView(source)) return new Uint8Array(source.buffer, source.byteOffset, source.byteLength).slice();
  return Uint8Array.from(source ?? []);
}

/**
 * What sends a file of its own (`name`, as errors call it): its address, or a private copy of its bytes.
 * @throws {TypeError | Error}
 */
export function sourceMessage(name, source, options) {
  if (typeof source === 'string') {
    if (!source.trim()) throw new Error(`${name} URL is empty.`);
    return () => ({ args: [modelSource(source), options] });
  }
  if (!(source instanceof ArrayBuffer || ArrayBuffer.isView(source))) {
    throw new TypeError(`${name} source must be a URL string, an ArrayBuffer or a typed array`);
  }
  const kept = copiedBytes(source);
  if (!kept.length) throw new Error(`${name} bytes are empty.`);
  return () => {
    const copy = kept.slice();
    return { args: [copy, options], transfer: [copy.buffer] };
  };
}

export function checkHandle(handle) {
  if (!Number.isInteger(handle) || handle < 1) {
    throw new TypeError(`handle must be a positive integer, got ${describe(handle)}`);
  }
}
