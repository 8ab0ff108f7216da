/** A source that remembers what was read of it, so that the page can show how little that is. */

/**
 * @param {object} source  of gguf.js
 * @param {() => void} onRead
 */
export function countingSource(source, onRead) {
  const ranges = []; // [start, end), in the order of reading
  return {
    prepare: () => source.prepare(),
    size: () => source.size(),
    shards: () => source.shards?.() ?? [source.size()],
    identity: () => source.identity(),
    close: () => source.close(),
    async read(offset, length, options) {
      const bytes = await source.read(offset, length, options);
      ranges.push([offset, offset + length]);
      onRead();
      return bytes;
    },
    ranges: () => ranges,
    bytesRead: () => ranges.reduce((sum, [start, end]) => sum + end - start, 0),
  };
}
