import { ByteSourceError } from './error.js';
import { fromBlob, sliceSource } from './memory_source.js';

/**
 * An open file: a FileSystemFileHandle (as pickers and the origin's own file system give them), a
 * FileSystemSyncAccessHandle, or a FileHandle of Node's fs/promises. The handle stays the caller's to close.
 *
 * @param {object} handle
 * @param {number} [size]  how long the file must be; found out where it is left out
 */
export function fromFileHandle(handle, size) {
  const kind = KINDS.find(({ members }) => members.every((name) => typeof handle?.[name] === 'function'));
  if (!kind) throw new TypeError(`fromFileHandle takes a file handle, got ${handle === null ? 'null' : typeof handle}`);
  if (size !== undefined && !(Number.isSafeInteger(size) && size >= 0)) {
    throw new ByteSourceError('INVALID_RANGE', `the size is ${String(size)}; it must be an exact integer of at least 0`);
  }
  return new HandleSource(() => readable(() => kind.open(handle, size)));
}

/** A handle is of the first kind all of whose methods it has. */
const KINDS = [
  { members: ['getFile'], open: openPicked },
  { members: ['getSize', 'read'], open: openSyncAccess },
  { members: ['stat', 'read'], open: openNode },
];

async function openPicked(handle, size) {
  const file = await handle.getFile();
  if (size !== undefined && file.size !== size) {
    throw new ByteSourceError('FILE_CHANGED', `the file is now ${file.size} bytes, was ${size}`);
  }
  return { source: fromBlob(file), identity: `${file.size}-${file.lastModified}` };
}

async function openSyncAccess(handle, size) {
  const read = async (start, end) => {
    const bytes = new Uint8Array(end - start);
    return bytes.subarray(0, handle.read(bytes, { at: start }));
  };
  const source = sliceSource(size ?? handle.getSize(), (start, end) => readable(() => read(start, end)));
  return { source, identity: null };
}

async function openNode(handle, size) {
  const stat = await handle.stat();
  const read = async (start, end) => {
    const bytes = new Uint8Array(end - start);
    let filled = 0;
    while (filled < bytes.length) {
      const { bytesRead } = await handle.read(bytes, filled, bytes.length - filled, start + filled);
      if (!bytesRead) break;
      filled += bytesRead;
    }
    return bytes.subarray(0, filled);
  };
  const source = sliceSource(size ?? stat.size, (start, end) => readable(() => read(start, end)));
  return { source, identity: `${stat.size}-${stat.mtimeMs}` };
}

async function readable(read) {
  try {
    return await read();
  } catch (cause) {
    if (cause instanceof ByteSourceError) throw cause;
    throw new ByteSourceError('NOT_READABLE', `the file can no longer be read: ${cause?.message ?? cause}`, { cause });
  }
}

/** A source that opens on first use. */
class HandleSource {
  #open;
  #opened = null;
  #ready = null; // {source, identity} once open

  constructor(open) {
    this.#open = open;
  }

  async prepare() {
    this.#opened ??= this.#open().catch((error) => {
      this.#opened = null; // the next call tries again
      throw error;
    });
    this.#ready = await this.#opened;
  }

  size() {
    return this.#ready?.source.size() ?? null;
  }

  identity() {
    return this.#ready?.identity ?? null;
  }

  async read(offset, length, options) {
    await this.prepare();
    return this.#ready.source.read(offset, length, options);
  }

  async *stream(offset, length, options) {
    await this.prepare();
    yield* this.#ready.source.stream(offset, length, options);
  }

  close() {
    this.#opened ??= Promise.reject(new ByteSourceError('CLOSED', 'the source is closed'));
    this.#opened.then(({ source }) => source.close(), () => {});
  }
}
