// IQ4_XS: half d, 16 bits and 4 bytes of eight 6-bit scales (less 32), 128 bytes of nibbles that index a table:
// group j of 32 takes 16 bytes (element i low, element 16 + i high); d * scale * table[q].
//@ include formats/bytes.wgsl
//@ include formats/iq4_codebook.wgsl
const BLOCK_BYTES: u32 = 136u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let j = i & 7u;
  let first = word(at >> 2u);
  let low = (word((at >> 2u) + 1u) >> (j * 4u)) & 15u;
  let high = (first >> (16u + j * 2u)) & 3u;
  let quants = aligned_words(at + 8u + j * 16u);
  return Group(unpack2x16float(first).x * (f32(low | (high << 4u)) - 32.0),
               values_of(low_nibbles(quants)), values_of(high_nibbles(quants)));
}
