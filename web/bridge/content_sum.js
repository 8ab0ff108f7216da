import { ByteSourceError } from '../byte_source.js';

/**
 * Checksums of a file that passes by: one for each piece of it, so that damage is found soon after it went through.
 *
 * xxHash32 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md): several GB/s in a browser, which a CRC in
 * JavaScript is not, and crypto.subtle has no streams. It tells damage, not forgery.
 */

export const PIECE_BYTES = 16 * 1024 * 1024;

const P1 = 0x9e3779b1 | 0;
const P2 = 0x85ebca77 | 0;
const P3 = 0xc2b2ae3d | 0;
const P4 = 0x27d4eb2f;
const P5 = 0x165667b1;
const STRIPE = 16;
const isLittleEndian = new Uint8Array(Uint32Array.of(1).buffer)[0] === 1;

const rotated = (value, bits) => (value << bits) | (value >>> (32 - bits));

/** The running hash of one run of bytes. */
export class XxHash32 {
  #lanes = Int32Array.of(P1 + P2, P2, 0, -P1);
  #held = new Uint8Array(STRIPE); // bytes that wait for their stripe to be whole
  #nHeld = 0;
  #length = 0;

  /** @param {Uint8Array} bytes */
  update(bytes) {
    this.#length += bytes.length;
    let from = 0;
    if (this.#nHeld) {
      from = Math.min(STRIPE - this.#nHeld, bytes.length);
      this.#held.set(bytes.subarray(0, from), this.#nHeld);
      this.#nHeld += from;
      if (this.#nHeld < STRIPE) return;
      takeStripes(this.#lanes, wordsOf(this.#held));
      this.#nHeld = 0;
    }
    const whole = (bytes.length - from) & ~(STRIPE - 1);
    if (whole) takeStripes(this.#lanes, wordsOf(bytes.subarray(from, from + whole)));
    this.#held.set(bytes.subarray(from + whole));
    this.#nHeld = bytes.length - from - whole;
  }

  /** @returns {number} unsigned, 32 bits */
  digest() {
    const [a, b, c, d] = this.#lanes;
    let hash = this.#length >= STRIPE ? (rotated(a, 1) + rotated(b, 7) + rotated(c, 12) + rotated(d, 18)) | 0 : P5;
    hash = (hash + this.#length) | 0;
    const rest = this.#held.subarray(0, this.#nHeld);
    const nWhole = rest.length & ~3;
    for (const word of wordsOf(rest.subarray(0, nWhole))) {
      hash = Math.imul(rotated((hash + Math.imul(word, P3)) | 0, 17), P4);
    }
    for (const byte of rest.subarray(nWhole)) hash = Math.imul(rotated((hash + Math.imul(byte, P5)) | 0, 11), P1);
    hash = Math.imul(hash ^ (hash >>> 15), P2);
    hash = Math.imul(hash ^ (hash >>> 13), P3);
    return (hash ^ (hash >>> 16)) >>> 0;
  }
}

function takeStripes(lanes, words) {
  let [a, b, c, d] = lanes;
  for (let i = 0; i < words.length; i += 4) {
    a = Math.imul(rotated((a + Math.imul(words[i], P2)) | 0, 13), P1);
    b = Math.imul(rotated((b + Math.imul(words[i + 1], P2)) | 0, 13), P1);
    c = Math.imul(rotated((c + Math.imul(words[i + 2], P2)) | 0, 13), P1);
    d = Math.imul(rotated((d + Math.imul(words[i + 3], P2)) | 0, 13), P1);
  }
  lanes[0] = a;
  lanes[1] = b;
  lanes[2] = c;
  lanes[3] = d;
}

/** Little-endian words of whole words of bytes. */
function wordsOf(bytes) {
  if (!isLittleEndian) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    return Int32Array.from({ length: bytes.length >> 2 }, (_, i) => view.getInt32(4 * i, true));
  }
  const aligned = bytes.byteOffset % 4 ? bytes.slice() : bytes;
  return new Int32Array(aligned.buffer, aligned.byteOffset, aligned.length >> 2);
}

/** The checksums of a file's pieces, held to `expected` ones where they are known. */
export class PieceSums {
  #expected;
  #pieceBytes;
  #sums = [];
  #hash = new XxHash32();
  #left;

  /** @param {string[] | null} [expected] @param {number} [pieceBytes] */
  constructor(expected = null, pieceBytes = PIECE_BYTES) {
    this.#expected = expected;
    this.#pieceBytes = pieceBytes;
    this.#left = pieceBytes;
  }

  /** Takes the file's next bytes. Throws a ByteSourceError when they end a piece that is not the expected one. */
  feed(chunk) {
    for (let at = 0; at < chunk.length; ) {
      const count = Math.min(this.#left, chunk.length - at);
      this.#hash.update(chunk.subarray(at, at + count));
      at += count;
      this.#left -= count;
      if (!this.#left) this.#endPiece();
    }
  }

  /** The checksums of the file, all of which was fed; throws where it is not the expected one. @returns {string[]} */
  finish() {
    if (this.#left < this.#pieceBytes) this.#endPiece();
    if (this.#expected && this.#expected.length !== this.#sums.length) this.#refuse();
    return this.#sums;
  }

  #endPiece() {
    const sum = this.#hash.digest().toString(16).padStart(8, '0');
    const expected = this.#expected?.[this.#sums.length];
    this.#sums.push(sum);
    this.#hash = new XxHash32();
    this.#left = this.#pieceBytes;
    if (this.#expected && sum !== expected) this.#refuse();
  }

  #refuse() {
    const end = this.#sums.length * this.#pieceBytes;
    const text = `the cached file is damaged before byte ${end}: its checksum does not match`;
    throw new ByteSourceError('CACHE_DAMAGED', text);
  }
}
