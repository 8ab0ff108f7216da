/**
 * Where a model's bytes come from: URLs, Blobs, file handles and bytes in memory, read piece by piece and never held whole.
 *
 * Runs in a window, in a worker and in Node, with no dependencies. Every source has
 *   prepare()                          find out size and identity (read and stream do it by themselves)
 *   size()                             bytes, or null while unknown
 *   identity()                         what reads are pinned to (an ETag or a date), or null
 *   read(offset, length, {signal})     exactly these bytes, or an error; never fewer
 *   stream(offset, length, {signal})   the same bytes as chunks, in order
 *   close()                            stop what is under way
 * Errors are ByteSourceError with a stable `code`, and `status` where a server answered with one. No message holds a URL.
 */
export { ByteSourceError } from './byte_source/error.js';
export { fromFileHandle } from './byte_source/handle_source.js';
export { fromBlob, fromBytes } from './byte_source/memory_source.js';
export { fromURL } from './byte_source/range_source.js';
export { openForLoad } from './byte_source/load_source.js';
export { joinSources, shardURLs } from './byte_source/shards.js';
