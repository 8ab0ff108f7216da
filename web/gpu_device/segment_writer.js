/**
 * Cuts a stream that starts at byte `position` into segments [offset, length, buffer, name, …] and those into writes of
 * whole words, the last one padded with zeros. bridge/gpu/upload.py does the same in Python.
 */
export class SegmentWriter {
  #segments;
  #begin;
  #write;
  #rest = new Uint8Array(4);
  #nRest = 0; // bytes in #rest that wait for their word to be whole
  #begun = false;

  /**
   * @param {(segment: Array) => void} begin
   * @param {(segment: Array, offset: number, bytes: Uint8Array) => void} write
   */
  constructor(position, segments, begin, write) {
    this.position = position;
    this.#segments = segments;
    this.#begin = begin;
    this.#write = write;
  }

  /** @param {Uint8Array} chunk */
  feed(chunk) {
    let at = 0;
    while (this.#segments.length && at < chunk.length) {
      const segment = this.#segments[0];
      const [offset, length] = segment;
      if (this.position < offset) {
        const skipped = Math.min(offset - this.position, chunk.length - at);
        this.position += skipped;
        at += skipped;
        continue;
      }
      if (!this.#begun) this.#begin(segment);
      this.#begun = true;
      const taken = Math.min(offset + length - this.position, chunk.length - at);
      this.#put(segment, chunk.subarray(at, at + taken));
      this.position += taken;
      at += taken;
      if (this.position === offset + length) {
        this.#segments.shift();
        this.#begun = false;
      }
    }
  }

  /** Throws when the stream ended before the last segment was whole. */
  finish() {
    if (!this.#segments.length) return;
    const [offset, length, , name] = this.#segments[0];
    const end = offset + length;
    throw new Error(`the stream ended at byte ${this.position} of the file, inside tensor ${name}, which ends at byte ${end}`);
  }

  #put(segment, bytes) {
    const ends = this.position + bytes.length === segment[0] + segment[1];
    let to = this.position - segment[0] - this.#nRest;
    let from = 0;
    while (this.#nRest && this.#nRest < 4 && from < bytes.length) this.#rest[this.#nRest++] = bytes[from++];
    if (this.#nRest === 4 || (this.#nRest && ends && from === bytes.length)) {
      this.#writeRest(segment, to);
      to += 4;
    }
    if (this.#nRest) return;
    const whole = (bytes.length - from) & ~3;
    if (whole) this.#write(segment, to, bytes.subarray(from, from + whole));
    for (from += whole; from < bytes.length; from++) this.#rest[this.#nRest++] = bytes[from];
    if (ends && this.#nRest) this.#writeRest(segment, to + whole);
  }

  #writeRest(segment, to) {
    this.#rest.fill(0, this.#nRest);
    this.#write(segment, to, this.#rest);
    this.#nRest = 0;
  }
}
