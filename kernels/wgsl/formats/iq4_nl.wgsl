// IQ4_NL: half d, 16 bytes of nibbles (element i low, element 16 + i high) that index a table; d * table[q].
//@ include formats/bytes.wgsl
//@ include formats/iq4_codebook.wgsl
const BLOCK_BYTES: u32 = 18u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let words = five_words(at >> 2u);
  let quants = words_after_half(at, words.a, words.b.x);
  return Group(half_of(words.a.x, at), values_of(low_nibbles(quants)), values_of(high_nibbles(quants)));
}
