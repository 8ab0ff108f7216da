import { ByteSourceError, checkRange } from './error.js';

const STREAM_CHUNK = 4 * 1024 * 1024;

/** A Blob or File: only the slices that are asked for are read. It cannot change, so there is no identity to pin. */
export function fromBlob(blob) {
  if (typeof blob?.slice !== 'function' || typeof blob.size !== 'number') {
    throw new TypeError(`fromBlob takes a Blob or a File, got ${blob === null ? 'null' : typeof blob}`);
  }
  return sliceSource(blob.size, async (start, end) => {
    try {
      return new Uint8Array(await blob.slice(start, end).arrayBuffer());
    } catch (cause) {
      // A File whose file was changed, moved or deleted after it was picked.
      throw new ByteSourceError('NOT_READABLE', `the file can no longer be read: ${cause?.message ?? cause}`, { cause });
    }
  });
}

/** Bytes in memory; what is read are copies. */
export function fromBytes(bytes) {
  // Not bytes.slice(), which for a Buffer of Node's is no copy.
  return sliceSource(bytes.length, async (start, end) => new Uint8Array(bytes.subarray(start, end)));
}

/** The source whose bytes [start, end) are what `slice(start, end)` resolves to. */
export function sliceSource(size, slice) {
  let closed = false;

  async function exactly(offset, length, signal) {
    if (closed) throw new ByteSourceError('CLOSED', 'the source is closed');
    signal?.throwIfAborted();
    const bytes = await slice(offset, offset + length);
    signal?.throwIfAborted();
    if (bytes.length !== length) {
      throw new ByteSourceError('SHORT_BODY', `the file returned ${bytes.length} of ${length} bytes`);
    }
    return bytes;
  }

  return {
    async prepare() {},
    size: () => size,
    identity: () => null,
    async read(offset, length, { signal } = {}) {
      checkRange(offset, length, size);
      return exactly(offset, length, signal);
    },
    async *stream(offset = 0, length = size - offset, { signal } = {}) {
      checkRange(offset, length, size);
      for (let at = offset; at < offset + length; at += STREAM_CHUNK) {
        yield await exactly(at, Math.min(STREAM_CHUNK, offset + length - at), signal);
      }
    },
    close() {
      closed = true;
    },
  };
}
