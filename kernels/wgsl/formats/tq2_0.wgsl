// TQ2_0: 64 bytes of 2-bit quants, half d. Group j of 32 is the fields j % 4 of bytes 32 * (j / 4) …; d * (q - 1).
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 66u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let j = i & 7u;
  let d = half_at(at + 64u);
  let quants = at + (j >> 2u) * 32u;
  let shift = vec4<u32>((j & 3u) * 2u);
  let mask = vec4<u32>(0x03030303u);
  return Group(d, -d, (words_at(quants) >> shift) & mask, (words_at(quants + 16u) >> shift) & mask);
}
