import { ByteSourceError, checkRange } from './error.js';
import {
  checkPlain, checkUnchanged, parseContentRange, parseLength, statusError, statusLine, validatorOf,
} from './http_rules.js';
import { bodyChunks, discard, followSignals, request, resumable, transferSettings } from './transfer.js';

const LONGEST_PREFIX = 96 * 1024 * 1024; // a header has at most 64 MiB; reads of it may ask for a little more

/**
 * Opens a file for one pass from front to back, the way a model is loaded: one plain request, no Range needed.
 *
 * read() works inside what lies in front, which is kept until the first stream(); stream() then goes on from there, and
 * only forwards. A broken transfer is continued with Range and If-Range, at most `retries` times; a file that changed
 * meanwhile is an error. size() is null where the server does not say, until the end is reached.
 *
 * @param {string | URL} url
 * @param {{fetch?: typeof fetch, signal?: AbortSignal, headers?: Record<string, string>, cache?: RequestCache,
 *   retries?: number, fetchTimeoutMs?: number, streamChunkTimeoutMs?: number,
 *   onResume?: (offset: number) => void, onChunk?: (chunk: Uint8Array) => Promise<void> | void}} options
 *   onChunk: gets every chunk of the file once and in order, before anyone reads it, and may hold the transfer up
 * @throws ByteSourceError HTTP_STATUS with the message `<status> <statusText>`
 */
export async function openForLoad(url, options = {}) {
  const settings = transferSettings(options);
  const link = followSignals([settings.signal]);
  try {
    link.signal.throwIfAborted();
    const response = await request(String(url), settings, {}, link.signal);
    if (!response.ok && response.status !== 200) {
      discard(response);
      throw statusError(response);
    }
    if (!response.body?.getReader) {
      throw new ByteSourceError('BAD_RESPONSE', `Model response did not expose a readable stream (${statusLine(response)})`);
    }
    return new LoadSource(String(url), response, settings, link, options);
  } catch (error) {
    link.release();
    throw error;
  }
}

class LoadSource {
  #url;
  #settings;
  #link;
  #onResume;
  #onChunk;
  #size;
  #validator;
  #encoded;
  #incoming; // the chunks of the whole file, in order
  #held = []; // chunks received and not let go of; the first one starts at byte #base of the file
  #base = 0;
  #received = 0;
  #streaming = false;
  #ended = false;
  #failure = null; // what ended the transfer early

  constructor(url, response, settings, link, { onResume, onChunk }) {
    this.#url = url;
    this.#settings = settings;
    this.#link = link;
    this.#onResume = onResume;
    this.#onChunk = onChunk;
    // Of an encoded body Content-Length counts other bytes than those that arrive here.
    const encoding = response.headers.get('content-encoding')?.trim().toLowerCase();
    this.#encoded = Boolean(encoding) && encoding !== 'identity';
    const length = parseLength(response.headers.get('content-length')) ?? parseLength(response.headers.get('x-linked-size'));
    this.#size = this.#encoded ? null : length;
    this.#validator = validatorOf(response.headers);
    const open = (at, resumes) => this.#open(at, resumes ? null : response);
    const ending = { isEnd: (at) => at === this.#size, checkEnd: (at) => this.#finish(at) };
    this.#incoming = resumable(open, 0, settings, link.signal, ending);
  }

  async prepare() {}

  size() {
    return this.#size;
  }

  identity() {
    return this.#validator?.value ?? null;
  }

  /** Bytes received so far, for progress. */
  received() {
    return this.#received;
  }

  /** Bytes near the front; where size() is null a read across the end of the file comes back short. */
  async read(offset, length, { signal } = {}) {
    checkRange(offset, length, this.#size);
    if (this.#streaming) throw notSeekable(`the file is being streamed and cannot be read at byte ${offset}`);
    if (offset + length > LONGEST_PREFIX) {
      throw notSeekable(`reads in front of the stream reach to byte ${LONGEST_PREFIX}, this one to ${offset + length}`);
    }
    while (this.#received < offset + length && (await this.#receive(signal)));
    const bytes = new Uint8Array(Math.max(0, Math.min(length, this.#received - offset)));
    let at = this.#base;
    for (const chunk of this.#held) {
      const from = Math.max(offset, at);
      const to = Math.min(offset + bytes.length, at + chunk.length);
      if (from < to) bytes.set(chunk.subarray(from - at, to - at), from - offset);
      at += chunk.length;
    }
    return bytes;
  }

  /** From `offset` on; bytes before it are let go. Streams may follow one another, forwards only. */
  async *stream(offset = 0, length = undefined, { signal } = {}) {
    checkRange(offset, length ?? 0, this.#size);
    if (offset < this.#base) throw notSeekable(`the stream is at byte ${this.#base} and cannot go back to ${offset}`);
    this.#streaming = true;
    let left = length ?? (this.#size === null ? Infinity : this.#size - offset);
    const wanted = left;
    while (left > 0) {
      if (this.#failure) throw this.#failure;
      if (!this.#held.length && !(await this.#receive(signal))) {
        if (left === Infinity) return;
        throw new ByteSourceError('SHORT_BODY', `the server returned ${wanted - left} of ${wanted} bytes`);
      }
      let chunk = this.#held.shift();
      const skip = Math.min(Math.max(offset - this.#base, 0), chunk.length);
      this.#base += skip;
      chunk = chunk.subarray(skip);
      if (chunk.length > left) {
        this.#held.unshift(chunk.subarray(left));
        chunk = chunk.subarray(0, left);
      }
      if (!chunk.length) continue;
      this.#base += chunk.length;
      left -= chunk.length;
      yield chunk;
    }
    if (this.#base === this.#size) await this.#receive(signal); // the end is checked, and the connection let go
  }

  close() {
    this.#failure = new ByteSourceError('CLOSED', 'the source is closed');
    this.#link.abort(this.#failure);
    this.#link.release();
    this.#held = [];
    this.#incoming.return().catch(() => {});
  }

  /** Holds one more chunk; false at the end of the file. Aborting `signal` ends the whole transfer. */
  async #receive(signal) {
    if (this.#failure) throw this.#failure;
    if (this.#ended) return false;
    const stop = () => this.#link.abort(signal.reason);
    if (signal?.aborted) stop();
    signal?.addEventListener('abort', stop, { once: true });
    try {
      this.#link.signal.throwIfAborted();
      const { done, value } = await this.#incoming.next();
      this.#ended = done;
      if (done) this.#link.release();
      else {
        await this.#onChunk?.(value);
        this.#held.push(value);
        this.#received += value.length;
      }
      return !done;
    } catch (error) {
      this.#failure = error;
      this.#link.release();
      throw error;
    } finally {
      signal?.removeEventListener('abort', stop);
    }
  }

  #open(at, first) {
    const body = (response) => this.#limited(bodyChunks(response, this.#settings, this.#link.signal), at);
    return first ? body(first) : this.#resume(at).then(body);
  }

  async *#limited(chunks, at) {
    for await (const chunk of chunks) {
      at += chunk.length;
      if (this.#size !== null && at > this.#size) {
        throw new ByteSourceError('BAD_RESPONSE', `the server sent more than the ${this.#size} bytes its Content-Length says`);
      }
      yield chunk;
    }
  }

  /** Asks for the rest after a broken transfer. */
  async #resume(at) {
    if (this.#encoded) {
      throw new ByteSourceError('BAD_RESPONSE', 'the transfer broke, and an encoded answer cannot be continued');
    }
    this.#onResume?.(at);
    const headers = at ? { Range: `bytes=${at}-` } : {};
    if (at && this.#validator) headers['If-Range'] = this.#validator.value;
    // Past the HTTP cache: what it holds of the broken answer may be incomplete.
    const response = await request(this.#url, { ...this.#settings, cache: 'no-store' }, headers, this.#link.signal);
    try {
      if (at) this.#checkResumed(response, at);
      else this.#checkRestarted(response);
    } catch (error) {
      discard(response);
      throw error;
    }
    return response;
  }

  #checkRestarted(response) {
    if (response.status !== 200) throw statusError(response);
    const length = parseLength(response.headers.get('content-length')) ?? this.#size;
    checkUnchanged(response, length, this.#size, this.#validator);
  }

  #checkResumed(response, at) {
    if (response.status !== 206) {
      const { transient, retryAfterMs } = statusError(response);
      const whole = ' (the server sent the whole entity: the file changed identity, or it does not honour Range)';
      const why = response.status === 200 ? whole : '';
      const now = this.#validator && response.headers.get(this.#validator.header)?.trim();
      const isOther = response.status === 200 && this.#validator && now && now !== this.#validator.value;
      throw new ByteSourceError(
        isOther ? 'FILE_CHANGED' : 'RANGE_NOT_HONOURED',
        `Range resume not honored for model shard: ${statusLine(response)}${why}`,
        { status: response.status, transient, retryAfterMs },
      );
    }
    checkPlain(response);
    const text = response.headers.get('content-range');
    if (text === null && this.#size !== null && parseLength(response.headers.get('content-length')) === this.#size - at) {
      checkUnchanged(response, this.#size, this.#size, this.#validator);
      return; // across origins Content-Range may be hidden; the length says as much
    }
    const range = parseContentRange(text);
    if (!range) throw new ByteSourceError('BAD_RESPONSE', 'the server returned no usable Content-Range');
    if (range.start !== at || range.end !== range.total - 1) {
      const got = `${range.start}-${range.end}`;
      throw new ByteSourceError('BAD_RESPONSE', `the server returned bytes ${got}, not ${at}-${range.total - 1}`);
    }
    checkUnchanged(response, range.total, this.#size, this.#validator);
    this.#size = range.total;
  }

  /** The transfer ended without an error at byte `at`. */
  #finish(at) {
    if (this.#size !== null && at !== this.#size) {
      // Some stacks report a connection that was cut as a normal end.
      throw new ByteSourceError('SHORT_BODY', `the server returned ${at} of ${this.#size} bytes`, { transient: true });
    }
    this.#size = at;
  }
}

function notSeekable(message) {
  return new ByteSourceError('NOT_SEEKABLE', message);
}
