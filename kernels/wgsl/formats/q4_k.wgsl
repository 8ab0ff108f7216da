// Q4_K: halves d and dmin, 12 bytes of scales, 128 bytes of nibbles: group j of 32 is the low (even j) or high (odd j)
// nibbles of bytes 32 * (j / 2) …; d * scale * q - dmin * minimum.
//@ include formats/bytes.wgsl
//@ include formats/k_scales.wgsl
const BLOCK_BYTES: u32 = 144u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let j = i & 7u;
  let header = aligned_words(at);
  let d_dmin = unpack2x16float(header.x);
  let s = scale_and_minimum(header.yzw, j);
  let quants = at + 16u + (j >> 1u) * 32u;
  let shift = vec4<u32>((j & 1u) * 4u);
  return Group(d_dmin.x * s.x, -d_dmin.y * s.y,
               (aligned_words(quants) >> shift) & NIBBLES, (aligned_words(quants + 16u) >> shift) & NIBBLES);
}
