// Q5_0: half d, 32 high bits, 16 bytes of nibbles (element i low, element 16 + i high); d * (q - 16).
//@ include formats/bytes.wgsl
//@ include formats/fifth_bit.wgsl
const BLOCK_BYTES: u32 = 22u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let words = six_words(at >> 2u);
  let d = half_of(words.a.x, at);
  let bits = words_after_half(at, words.a, words.b.x).x;
  let quants = words_after_half(at, vec4<u32>(words.a.yzw, words.b.x), words.b.y);
  return Group(d, -16.0 * d, low_nibbles(quants) | fifth_bits(bits), high_nibbles(quants) | fifth_bits(bits >> 16u));
}
