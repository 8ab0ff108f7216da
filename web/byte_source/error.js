/**
 * An error of a byte source.
 *
 * code: HTTP_STATUS, NETWORK, TIMEOUT, RANGE_NOT_HONOURED, FILE_CHANGED, BAD_RESPONSE, SHORT_BODY, NO_VALIDATOR,
 * NOT_READABLE, NOT_SEEKABLE, INVALID_RANGE or CLOSED. `transient` says that trying again may help.
 */
export class ByteSourceError extends Error {
  constructor(code, message, { status, transient = false, retryAfterMs, cause } = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'ByteSourceError';
    this.code = code;
    this.status = status;
    this.transient = transient;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Throws unless [offset, offset + length) lies in a file of `size` bytes; `size` null means that the end is unknown. */
export function checkRange(offset, length, size) {
  for (const [name, value] of [['offset', offset], ['length', length]]) {
    if (!Number.isSafeInteger(value) || value < 0) {
      throw new ByteSourceError('INVALID_RANGE', `${name} is ${String(value)}; it must be an exact integer of at least 0`);
    }
  }
  if (!Number.isSafeInteger(offset + length) || (size !== null && offset + length > size)) {
    const last = BigInt(offset) + BigInt(length) - 1n;
    const file = size === null ? 'anything JavaScript can count' : `a ${size}-byte file`;
    throw new ByteSourceError('INVALID_RANGE', `bytes ${offset}-${last} are past the end of ${file}`);
  }
}
