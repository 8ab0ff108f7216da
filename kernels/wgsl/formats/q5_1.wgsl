// Q5_1: halves d and m, 32 high bits, 16 bytes of nibbles (element i low, element 16 + i high); d * q + m.
//@ include formats/bytes.wgsl
//@ include formats/fifth_bit.wgsl
const BLOCK_BYTES: u32 = 24u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let words = six_words(at >> 2u);
  let d_m = unpack2x16float(words.a.x);
  let bits = words.a.y;
  let quants = vec4<u32>(words.a.zw, words.b.xy);
  return Group(d_m.x, d_m.y, low_nibbles(quants) | fifth_bits(bits), high_nibbles(quants) | fifth_bits(bits >> 16u));
}
