// IQ4_NL: half d, 16 bytes of nibbles (element i low, element 16 + i high) that index a table; d * table[q].
//@ include formats/bytes.wgsl
//@ include formats/iq4_codebook.wgsl
const BLOCK_BYTES: u32 = 18u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let quants = words_at(at + 2u);
  return Group(half_at(at), values_of(low_nibbles(quants)), values_of(high_nibbles(quants)));
}
