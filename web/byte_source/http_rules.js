import { ByteSourceError } from './error.js';

/**
 * What an answer must say before its bytes may be used. bridge/gguf/http_rules.py holds the same rules; both are tested
 * with tests/gguf/http_cases.json.
 *
 * Reading one file takes many requests, and the failure to guard against is not one that fails but one that succeeds
 * against another version of the file.
 */

const TRANSIENT_STATUS = new Set([408, 425, 429, 500, 502, 503, 504]);
const CONTENT_RANGE = /^bytes (\d+)-(\d+)\/(\d+)$/i;

/** @returns {{start: number, end: number, total: number} | null} null unless all three are exact integers */
export function parseContentRange(text) {
  const match = CONTENT_RANGE.exec(String(text ?? '').trim());
  if (!match) return null;
  const [start, end, total] = match.slice(1).map(Number);
  return [start, end, total].every(Number.isSafeInteger) ? { start, end, total } : null;
}

/** A whole number of bytes from a header, or null. */
export function parseLength(text) {
  const trimmed = String(text ?? '').trim();
  return /^\d+$/.test(trimmed) && Number.isSafeInteger(Number(trimmed)) ? Number(trimmed) : null;
}

/**
 * What later reads can be pinned to: a strong ETag, else Last-Modified, else null. A weak ETag only promises that the
 * content means the same, and servers must ignore it in If-Range (RFC 9110, 13.1.5).
 */
export function validatorOf(headers) {
  const etag = headers.get('etag')?.trim();
  if (etag && !/^W\//i.test(etag)) return { header: 'ETag', value: etag };
  const modified = headers.get('last-modified')?.trim();
  return modified ? { header: 'Last-Modified', value: modified } : null;
}

/** `<status> <statusText>`, as the wire protocol quotes it. */
export function statusLine(response) {
  return `${response.status} ${response.statusText ?? ''}`.trim();
}

export function statusError(response) {
  return new ByteSourceError('HTTP_STATUS', statusLine(response), {
    status: response.status,
    transient: TRANSIENT_STATUS.has(response.status),
    retryAfterMs: retryAfterMs(response.headers.get('retry-after')),
  });
}

function retryAfterMs(text) {
  if (!text) return undefined;
  const seconds = parseLength(text);
  const ms = seconds === null ? Date.parse(text) - Date.now() : seconds * 1000;
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined;
}

/** Throws unless `response` is bytes [start, end) of the file that was pinned; returns the file's total size. */
export function checkRangeResponse(response, start, end, { size = null, validator = null } = {}) {
  if (response.status === 200) throw wholeEntity(response, validator);
  if (response.status === 416) throwIfResized(response, size);
  if (response.status >= 400) throw statusError(response);
  if (response.status !== 206) {
    const message = `the server did not honour the range request: it answered ${statusLine(response)}`;
    throw new ByteSourceError('RANGE_NOT_HONOURED', message, { status: response.status });
  }
  checkPlain(response);
  const text = response.headers.get('content-range');
  const range = parseContentRange(text);
  if (!range) {
    const got = text === null ? 'the header is missing or, across origins, not exposed' : `it says "${text.slice(0, 80)}"`;
    throw new ByteSourceError('BAD_RESPONSE', `the server returned no usable Content-Range: ${got}`);
  }
  if (range.start !== start || range.end !== end - 1) {
    const got = `${range.start}-${range.end}`;
    throw new ByteSourceError('BAD_RESPONSE', `the server returned bytes ${got}, not ${start}-${end - 1}`);
  }
  checkUnchanged(response, range.total, size, validator);
  checkLength(response, end - start);
  return range.total;
}

/** A Content-Length that is not the range's tells of a wrong body before it is waited for. */
function checkLength(response, wanted) {
  const text = response.headers.get('content-length')?.trim() ?? '';
  if (!/^\d+$/.test(text)) return;
  const length = Number(text); // may round past 2^53, which is too long in any case
  if (length < wanted) throw shortBody(length, wanted);
  if (length > wanted) throw longBody(wanted);
}

export function shortBody(got, wanted) {
  return new ByteSourceError('SHORT_BODY', `the server returned ${got} of ${wanted} bytes`);
}

export function longBody(wanted) {
  return new ByteSourceError('BAD_RESPONSE', `the server returned more than the ${wanted} bytes of the range`);
}

/** Throws when size or validator are not those the file was opened with. */
export function checkUnchanged(response, total, size, validator) {
  if (size !== null && total !== size) {
    throw new ByteSourceError('FILE_CHANGED', `the file is now ${total} bytes, was ${size}: it changed since it was opened`);
  }
  if (!validator) return;
  const now = response.headers.get(validator.header)?.trim() || null;
  if (now !== validator.value) {
    throw new ByteSourceError(
      'FILE_CHANGED',
      `the file changed identity since it was opened: its ${validator.header} was ${validator.value}, ` +
        (now ? `is now ${now}` : 'now there is none'),
    );
  }
}

/** Ranges count the bytes of the encoded form, so an encoded answer is bytes of something else. */
export function checkPlain(response) {
  const encoding = response.headers.get('content-encoding')?.trim();
  if (encoding && encoding.toLowerCase() !== 'identity') {
    throw new ByteSourceError(
      'BAD_RESPONSE',
      `the server sent the range encoded (Content-Encoding: ${encoding}); only identity can be read`,
    );
  }
}

function wholeEntity(response, validator) {
  const now = validator && response.headers.get(validator.header)?.trim();
  if (validator && now !== validator.value) {
    return new ByteSourceError(
      'FILE_CHANGED',
      `the file changed identity since it was opened (${validator.header} was ${validator.value}): ` +
        'the server sent the whole entity instead of the range',
      { status: 200 },
    );
  }
  return new ByteSourceError(
    'RANGE_NOT_HONOURED',
    'the server did not honour the range request: it sent the whole entity with status 200',
    { status: 200 },
  );
}

function throwIfResized(response, size) {
  const match = /^bytes \*\/(\d+)$/i.exec(response.headers.get('content-range')?.trim() ?? '');
  const total = parseLength(match?.[1]);
  if (total === null) return;
  if (size === null) throw new ByteSourceError('BAD_RESPONSE', `the file has ${total} bytes, nothing to read a range of`);
  checkUnchanged(response, total, size, null);
}
