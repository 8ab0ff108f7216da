// Q4_1: halves d and m, 16 bytes of nibbles (element i low, element 16 + i high); d * q + m.
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 20u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let words = five_words(at >> 2u);
  let d_m = unpack2x16float(words.a.x);
  let quants = vec4<u32>(words.a.yzw, words.b.x);
  return Group(d_m.x, d_m.y, low_nibbles(quants), high_nibbles(quants));
}
