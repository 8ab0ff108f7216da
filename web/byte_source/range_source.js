import { ByteSourceError, checkRange } from './error.js';
import { checkRangeResponse, longBody, shortBody, validatorOf } from './http_rules.js';
import { fromBlob } from './memory_source.js';
import { bodyChunks, discard, followSignals, request, resumable, transferSettings } from './transfer.js';

/**
 * A file on a server that honours Range, readable in any order.
 *
 * It is opened with a one-byte range, not a HEAD: the answer's Content-Range states the size, and its strong ETag (else
 * Last-Modified) goes out as If-Range with every later read, so that a changed file is an error and not a mixture.
 *
 * @param {string | URL} url also a blob: URL, whose content cannot change
 * @param {{fetch?: typeof fetch, allowUnvalidated?: boolean, signal?: AbortSignal, headers?: Record<string, string>,
 *   cache?: RequestCache, retries?: number, fetchTimeoutMs?: number, streamChunkTimeoutMs?: number}} options
 *   allowUnvalidated: read from a server that offers nothing to notice a changed file by; identity() is then null
 */
export function fromURL(url, options = {}) {
  return new RangeSource(String(url), options);
}

class RangeSource {
  #url;
  #settings;
  #allowUnvalidated;
  #isBlob;
  #closing = new AbortController();
  #prepared = null;
  #size = null;
  #validator = null;
  #blob = null; // the source that reads a blob: URL where ranges of it cannot be fetched

  constructor(url, options) {
    this.#url = url;
    this.#isBlob = url.startsWith('blob:');
    this.#settings = transferSettings(this.#isBlob ? { ...options, retries: 0 } : options);
    this.#allowUnvalidated = this.#isBlob || options.allowUnvalidated === true;
  }

  prepare() {
    this.#prepared ??= this.#open().catch((error) => {
      this.#prepared = this.#size = this.#validator = null; // the next call tries again
      throw error;
    });
    return this.#prepared;
  }

  size() {
    return this.#size;
  }

  identity() {
    return this.#validator?.value ?? null;
  }

  async read(offset, length, { signal } = {}) {
    await this.prepare();
    checkRange(offset, length, this.#size);
    const bytes = new Uint8Array(length);
    let filled = 0;
    for await (const chunk of this.stream(offset, length, { signal })) {
      bytes.set(chunk, filled);
      filled += chunk.length;
    }
    return bytes;
  }

  async *stream(offset = 0, length = undefined, { signal } = {}) {
    await this.prepare();
    length ??= this.#size - offset;
    checkRange(offset, length, this.#size);
    if (this.#blob) yield* this.#blob.stream(offset, length, { signal });
    else if (length) yield* this.#range(offset, offset + length, signal);
  }

  close() {
    this.#closing.abort(new ByteSourceError('CLOSED', 'the source is closed'));
    this.#blob?.close();
  }

  async #open() {
    try {
      for await (const _ of this.#range(0, 1)); // sets size and validator
    } catch (error) {
      if (!this.#isBlob || this.#closing.signal.aborted || this.#settings.signal?.aborted) throw error;
      await this.#openBlob();
    }
    if (!this.#validator && !this.#allowUnvalidated) {
      throw new ByteSourceError(
        'NO_VALIDATOR',
        'the server offers neither a strong ETag nor Last-Modified, so reads cannot be tied to one version of the file; ' +
          'allowUnvalidated reads it anyway',
      );
    }
  }

  /** For runtimes whose fetch has no ranges of blobs, or wrong ones (Node 20 is one byte short). */
  async #openBlob() {
    const response = await request(this.#url, this.#settings, {}, this.#closing.signal);
    this.#blob = fromBlob(await response.blob());
    this.#size = this.#blob.size();
  }

  /** The bytes [start, end) as chunks, resumed after a broken connection. */
  async *#range(start, end, signal) {
    const link = followSignals([signal, this.#settings.signal, this.#closing.signal]);
    const openAt = async (at) => {
      link.signal.throwIfAborted();
      const response = await this.#request(at, end, link.signal);
      return limitedChunks(response, start, at, end, this.#settings, link.signal);
    };
    const ending = {
      isEnd: (at) => at === end,
      checkEnd(at) {
        if (at !== end) throw shortBody(at - start, end - start);
      },
    };
    try {
      yield* resumable(openAt, start, this.#settings, link.signal, ending);
    } finally {
      link.release();
    }
  }

  async #request(start, end, signal) {
    const opening = this.#size === null;
    const headers = { Range: `bytes=${start}-${end - 1}` };
    if (this.#validator) headers['If-Range'] = this.#validator.value;
    const response = await request(this.#url, this.#settings, headers, signal);
    try {
      const total = checkRangeResponse(response, start, end, { size: this.#size, validator: this.#validator });
      if (opening) {
        this.#size = total;
        this.#validator = validatorOf(response.headers);
      }
      return response;
    } catch (error) {
      discard(response);
      throw error;
    }
  }
}

async function* limitedChunks(response, start, at, end, settings, signal) {
  for await (const chunk of bodyChunks(response, settings, signal)) {
    at += chunk.length;
    if (at > end) throw longBody(end - start);
    yield chunk;
  }
}
