// Q5_0: half d, 32 high bits, 16 bytes of nibbles (element i low, element 16 + i high); d * (q - 16).
//@ include formats/bytes.wgsl
//@ include formats/fifth_bit.wgsl
const BLOCK_BYTES: u32 = 22u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let d = half_at(at);
  let bits = word_at(at + 2u);
  let quants = words_at(at + 6u);
  return Group(d, -16.0 * d, low_nibbles(quants) | fifth_bits(bits), high_nibbles(quants) | fifth_bits(bits >> 16u));
}
