// Q4_0: half d, 16 bytes of nibbles (element i low, element 16 + i high); d * (q - 8).
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 18u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let words = five_words(at >> 2u);
  let d = half_of(words.a.x, at);
  let quants = words_after_half(at, words.a, words.b.x);
  return Group(d, -8.0 * d, low_nibbles(quants), high_nibbles(quants));
}
