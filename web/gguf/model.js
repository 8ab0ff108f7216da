import { GGUFError } from './error.js';
import { readExactly } from './sources.js';

const LARGEST_ROW = 2 ** 32 - 1;

/** One entry of the tensor table. `shape` is row-major: a matrix of n_out rows is [n_out, n_in]. */
function tensorInfo([name, dtype, shape, offset, nbytes, shard]) {
  return Object.freeze({ name, dtype, shape: Object.freeze(shape), offset, nbytes, shard });
}

/** Metadata values as they are; arrays too long to send along as {type, length, first}. */
function metadataEntry([key, type, value, length]) {
  return [key, length === undefined ? value : Object.freeze({ type, length, first: value })];
}

/** An open GGUF file; `openGGUF` makes it. Members are described in gguf.d.ts. */
export class GGUFModel {
  #link;
  #file;
  #source;
  #open = true;
  #tokenizer = null;

  constructor(link, file, source, description) {
    this.#link = link;
    this.#file = file;
    this.#source = source;
    const { version, architecture, dataOffset, alignment, metadata, tensors } = description;
    this.version = version;
    this.architecture = architecture ?? null;
    this.dataOffset = dataOffset;
    this.alignment = alignment;
    this.size = source.size();
    this.shards = Object.freeze(source.shards?.() ?? [this.size]);
    this.metadata = new Map(metadata.map(metadataEntry));
    this.metadataTypes = new Map(metadata.map(([key, type]) => [key, type]));
    this.tensors = new Map(tensors.map((entry) => [entry[0], tensorInfo(entry)]));
  }

  identity() {
    return this.#source.identity?.() ?? null;
  }

  async bytes(name, { signal } = {}) {
    const { offset, nbytes } = this.#tensor(name);
    return readExactly(this.#source, offset, nbytes, signal);
  }

  async rows(name, ids, { signal } = {}) {
    return this.#call('rows', [name, checkedRows(this.#tensor(name), ids)], signal);
  }

  async floats(name, { signal } = {}) {
    this.#tensor(name);
    return this.#call('floats', [name], signal);
  }

  async metadataArray(key, { signal } = {}) {
    const value = this.metadata.get(key);
    if (Array.isArray(value) || value === undefined) return value;
    if (typeof value !== 'object') throw new GGUFError('INVALID_INPUT', `${key} is of type ${this.metadataTypes.get(key)}, not an array`);
    return this.#call('metadataArray', [key], signal);
  }

  tokenizer() {
    this.#checkOpen();
    this.#tokenizer ??= new Tokenizer((method, args, signal) => this.#call(method, args, signal));
    return this.#tokenizer;
  }

  close() {
    if (!this.#open) return;
    this.#open = false;
    this.#link.releaseFile(this.#file);
    this.#source.close?.();
  }

  #tensor(name) {
    this.#checkOpen();
    const found = this.tensors.get(name);
    if (found) return found;
    const shown = JSON.stringify(String(name).slice(0, 100));
    throw new GGUFError('INVALID_MODEL', `the file has no tensor ${shown}; it has ${this.tensors.size} tensors`);
  }

  #checkOpen() {
    if (!this.#open) throw new GGUFError('CLOSED', 'the model is closed');
  }

  async #call(method, args, signal) {
    this.#checkOpen();
    const read = (offset, length, ended) => readExactly(this.#source, offset, length, ended);
    return this.#link.call(this.#file, method, args, read, signal);
  }
}

/** Row indices as the worker takes them. They come from the caller, and each must name a row of this tensor. */
function checkedRows({ name, shape }, ids) {
  if (typeof ids === 'string' || typeof ids?.[Symbol.iterator] !== 'function' || ids instanceof Map) {
    throw new GGUFError('INVALID_INPUT', `rows() takes a list of row indices, got ${ids === null ? 'null' : typeof ids}`);
  }
  const count = shape.slice(0, -1).reduce((product, size) => product * size, 1);
  return Array.from(ids, (id) => {
    if (Number.isInteger(id) && id >= 0 && id < count && id <= LARGEST_ROW) return id;
    const got = typeof id === 'number' ? id : `of type ${id === null ? 'null' : typeof id}`;
    throw new GGUFError('INVALID_INPUT', `${name}: row ${got} is not one of its ${count} rows`);
  });
}

class Tokenizer {
  #call;

  constructor(call) {
    this.#call = call;
  }

  async prepare({ signal } = {}) {
    return Object.freeze(await this.#call('vocabulary', [], signal));
  }

  async encode(text, { addSpecial = true, parseSpecial = true, signal } = {}) {
    if (typeof text !== 'string' && !(text instanceof Uint8Array)) {
      throw new GGUFError('INVALID_INPUT', `encode() takes a string or a Uint8Array, got ${text === null ? 'null' : typeof text}`);
    }
    return this.#call('encode', [text, addSpecial === true, parseSpecial === true], signal);
  }

  async decode(ids, options) {
    return new TextDecoder('utf-8', { ignoreBOM: true }).decode(await this.decodeBytes(ids, options));
  }

  async decodeBytes(ids, { special = false, signal } = {}) {
    return this.#call('decode', [checkedIds('decode', ids), special === true], signal);
  }

  async pieces(ids, { signal } = {}) {
    return this.#call('pieces', [checkedIds('pieces', ids)], signal);
  }
}

function checkedIds(method, ids) {
  if (typeof ids === 'string' || typeof ids?.[Symbol.iterator] !== 'function' || ids instanceof Map) {
    throw new GGUFError('INVALID_INPUT', `${method}() takes a list of token ids, got ${ids === null ? 'null' : typeof ids}`);
  }
  return Array.from(ids, (id) => {
    if (Number.isInteger(id)) return id;
    throw new GGUFError('INVALID_INPUT', `token ids must be integers, got ${typeof id === 'number' ? id : typeof id}`);
  });
}
