// Q5_K: halves d and dmin, 12 bytes of scales, 32 bytes of high bits, 128 bytes of nibbles as in Q4_K; the high bit of
// element l of group j is bit j of byte l; d * scale * q - dmin * minimum.
//@ include formats/bytes.wgsl
//@ include formats/k_scales.wgsl
const BLOCK_BYTES: u32 = 176u;

fn fifth_bits(at: u32, j: u32) -> vec4<u32> {
  return ((aligned_words(at) >> vec4<u32>(j)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u);
}

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let j = i & 7u;
  let header = aligned_words(at);
  let d_dmin = unpack2x16float(header.x);
  let s = scale_and_minimum(header.yzw, j);
  let quants = at + 48u + (j >> 1u) * 32u;
  let shift = vec4<u32>((j & 1u) * 4u);
  return Group(d_dmin.x * s.x, -d_dmin.y * s.y,
               ((aligned_words(quants) >> shift) & NIBBLES) | fifth_bits(at + 16u, j),
               ((aligned_words(quants + 16u) >> shift) & NIBBLES) | fifth_bits(at + 32u, j));
}
