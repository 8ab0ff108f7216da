/**
 * Reads GGUF models in a page or in Node without ever holding the file. See docs/gguf.md.
 */

/** Metadata values. Integers beyond ±2^53 are bigint; bytes of a string that are not UTF-8 stand as lone surrogates. */
export type MetadataScalar = string | number | bigint | boolean;
export type MetadataValue = MetadataScalar | MetadataScalar[] | LongArray;

/** An array of more than 64 elements, such as a vocabulary: `metadataArray(key)` gives all of it. */
export interface LongArray {
  /** Such as "array of string". */
  readonly type: string;
  readonly length: number;
  /** The first 16 elements. */
  readonly first: readonly MetadataScalar[];
}

export interface TensorInfo {
  readonly name: string;
  /** ggml's name of the type, such as "Q4_K". */
  readonly dtype: string;
  /** Row-major, outermost first: a matrix of n_out rows is [n_out, n_in]. */
  readonly shape: readonly number[];
  /** Bytes from the start of the file; in a split model, from the start of its first file. */
  readonly offset: number;
  /** Bytes that the tensor takes in the file. */
  readonly nbytes: number;
  /** Which file of a split model the tensor is in, from 0. */
  readonly shard: number;
}

export interface CallOptions {
  /** Aborting it rejects the call with the signal's reason and stops its reads. */
  signal?: AbortSignal;
}

/** Where bytes come from. Reads give exactly the bytes asked for, or fail. */
export interface ByteSource {
  /** Finds out size and identity; reading does it by itself. */
  prepare?(): Promise<void>;
  /** Bytes, or null while that is not known. */
  size(): number | null;
  /** What reads are pinned to (an ETag or a date), or null where nothing can tell two versions of a file apart. */
  identity?(): string | null;
  read(offset: number, length: number, options?: CallOptions): Promise<Uint8Array>;
  /** The same bytes as chunks, in order. */
  stream?(offset?: number, length?: number, options?: CallOptions): AsyncGenerator<Uint8Array>;
  close?(): void;
}

/** A source made by this module has every member. */
export type FullSource = Required<ByteSource>;

/** The files of a split model, read as if they lay end to end. */
export interface JoinedSource extends FullSource {
  /** Sizes of the files, or null while they are not known. */
  shards(): number[] | null;
  /** Bytes received so far by those of the sources that count them. */
  received(): number;
}

export interface URLOptions {
  /** Used instead of the global fetch. */
  fetch?: typeof fetch;
  /** Reads from a server that offers neither a strong ETag nor Last-Modified; `identity()` is then null. */
  allowUnvalidated?: boolean;
  signal?: AbortSignal;
  headers?: Record<string, string>;
  cache?: RequestCache;
  /** Attempts after a transient failure; 8 unless given. */
  retries?: number;
  fetchTimeoutMs?: number;
  streamChunkTimeoutMs?: number;
}

/** A file on a server that honours Range; blob: addresses too. */
export function fromURL(url: string | URL, options?: URLOptions): FullSource;
/** A Blob or a File. */
export function fromBlob(blob: Blob): FullSource;
export function fromBytes(bytes: Uint8Array): FullSource;

/** A FileSystemFileHandle, a FileSystemSyncAccessHandle, or a FileHandle of Node's fs/promises. */
export type FileHandle =
  | { getFile(): Promise<File> }
  | { getSize(): number; read(into: Uint8Array, options: { at: number }): number }
  | { stat(): Promise<{ size: number; mtimeMs: number }>; read(into: Uint8Array, offset: number, length: number, position: number): Promise<{ bytesRead: number }> };

/** An open file, which stays the caller's to close; `size` is found out where it is left out. */
export function fromFileHandle(handle: FileHandle, size?: number): FullSource;

export function joinSources(sources: Iterable<ByteSource>): JoinedSource;
/** The addresses of all files of the split model that `url` names one of (name-00001-of-00003.gguf); else just `url`. */
export function shardURLs(url: string | URL): string[];

/**
 * A source that cannot give the bytes. `code` is HTTP_STATUS, NETWORK, TIMEOUT, RANGE_NOT_HONOURED, FILE_CHANGED,
 * BAD_RESPONSE, SHORT_BODY, NO_VALIDATOR, NOT_READABLE, NOT_SEEKABLE, INVALID_RANGE or CLOSED.
 */
export class ByteSourceError extends Error {
  readonly code: string;
  /** The HTTP status, where a server answered with one. */
  readonly status?: number;
  /** Whether trying again may help. */
  readonly transient: boolean;
  readonly retryAfterMs?: number;
}

/**
 * A file that cannot be read, or a call that cannot be answered. `code` is INVALID_GGUF, TRUNCATED_GGUF,
 * GGUF_LIMIT_EXCEEDED, UNSUPPORTED_GGUF, INVALID_INPUT, INVALID_MODEL, UNSUPPORTED, SOURCE_FAILED, CLOSED, READER_FAILED
 * or INTERNAL.
 */
export class GGUFError extends Error {
  constructor(code: string, message: string, needsMoreBytes?: boolean);
  readonly code: string;
  /** True only for TRUNCATED_GGUF: the file is cut off, and a longer one could be read. */
  readonly needsMoreBytes: boolean;
}

/** What a header may claim; the defaults are far above every published model. */
export interface Limits {
  maxHeaderBytes?: number;
  maxMetadataEntries?: number;
  maxKeyBytes?: number;
  maxStringBytes?: number;
  maxArrayLength?: number;
  maxTensors?: number;
  maxTensorNameBytes?: number;
  maxDimensions?: number;
  maxAlignment?: number;
}

export interface OpenOptions extends Pick<URLOptions, 'fetch' | 'headers' | 'allowUnvalidated'> {
  limits?: Limits;
  /** Aborts the opening; later calls have signals of their own. */
  signal?: AbortSignal;
  /** The folder with pyodide/ and wheels/; the one above this module's by default. */
  assetBase?: string | URL;
}

export type OneSource = string | URL | Blob | Uint8Array | ArrayBuffer | ByteSource;

/**
 * Opens a file and reads its header. A list holds the files of a split model in order; the address of any file of a split
 * model opens all of it. Rejects with a GGUFError for what is wrong with the file, a ByteSourceError for what goes wrong
 * while reading it.
 */
export function openGGUF(source: OneSource | OneSource[], options?: OpenOptions): Promise<GGUFModel>;

export interface GGUFModel {
  readonly version: number;
  /** `general.architecture`, or null where the file does not say. */
  readonly architecture: string | null;
  /** Bytes of the file; of all files of a split model. */
  readonly size: number;
  /** Sizes of the files of a split model; one entry for any other. */
  readonly shards: readonly number[];
  /** Where the tensor data begins (in the first file of a split model). */
  readonly dataOffset: number;
  readonly alignment: number;
  /** By key, in file order. */
  readonly metadata: ReadonlyMap<string, MetadataValue>;
  /** The stored type of each key, such as "u32" or "array of string". */
  readonly metadataTypes: ReadonlyMap<string, string>;
  /** By name, in the order their data has in the file. */
  readonly tensors: ReadonlyMap<string, TensorInfo>;

  /** What reads are pinned to, or null: see ByteSource. */
  identity(): string | null;
  /** The tensor's bytes as the file stores them: packed blocks where it is quantised. They do not pass through the reader. */
  bytes(name: string, options?: CallOptions): Promise<Uint8Array>;
  /** Rows decoded to float32, one after another, reading only those rows. Dimensions but the innermost are flattened. */
  rows(name: string, ids: Iterable<number>, options?: CallOptions): Promise<Float32Array>;
  /** All values of a tensor decoded to float32, row-major. */
  floats(name: string, options?: CallOptions): Promise<Float32Array>;
  /** All of a metadata array: a typed array for numbers, else a list; undefined for a key that is not there. */
  metadataArray(key: string, options?: CallOptions): Promise<MetadataScalar[] | ArrayBufferView | undefined>;
  /** The tokenizer that the file describes. It is built at the first call, or by `prepare()`. */
  tokenizer(): Tokenizer;
  /** Lets go of the file, closing its source; calls fail afterwards. */
  close(): void;
}

export interface Vocabulary {
  readonly nVocab: number;
  readonly bosId?: number;
  readonly eosId?: number;
  readonly addBos: boolean;
  readonly addEos: boolean;
  /** What had to be assumed about the file. */
  readonly notes: readonly string[];
}

export interface EncodeOptions extends CallOptions {
  /** Add the begin, end or separator tokens that the vocabulary asks for; true unless given. */
  addSpecial?: boolean;
  /** Let control tokens written in the text become themselves; true unless given. */
  parseSpecial?: boolean;
}

export interface DecodeOptions extends CallOptions {
  /** Show control tokens; false unless given. */
  special?: boolean;
}

export interface Tokenizer {
  /** Builds the tokenizer; rejects for a vocabulary that this build does not know, naming it. */
  prepare(options?: CallOptions): Promise<Vocabulary>;
  encode(text: string | Uint8Array, options?: EncodeOptions): Promise<number[]>;
  /** Text; bytes that are not UTF-8 come as U+FFFD. */
  decode(ids: Iterable<number>, options?: DecodeOptions): Promise<string>;
  decodeBytes(ids: Iterable<number>, options?: DecodeOptions): Promise<Uint8Array>;
  /** What each token says by itself, control tokens included. */
  pieces(ids: Iterable<number>, options?: CallOptions): Promise<Uint8Array[]>;
}
