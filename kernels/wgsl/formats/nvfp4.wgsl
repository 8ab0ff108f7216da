// NVFP4: 4 unsigned E4M3 scales, then for each of 4 groups of 16 elements 8 bytes of nibbles (element i low, element
// 8 + i high) that index doubled E2M1 values; scale / 2 * value.
//@ include formats/bytes.wgsl
//@ include formats/e2m1_codebook.wgsl
const BLOCK_BYTES: u32 = 36u;

// Half of an unsigned E4M3 number with bias 7; the code of NaN counts as 0, and so in ggml.
fn half_of_e4m3(code: u32) -> f32 {
  let exponent = (code >> 3u) & 15u;
  let mantissa = code & 7u;
  if ((code & 127u) == 127u) { return 0.0; }
  if (exponent == 0u) { return f32(mantissa) / 1024.0; }
  return bitcast<f32>(((exponent + 119u) << 23u) | (mantissa << 20u));
}

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 2u) * BLOCK_BYTES;
  let j = i & 3u;
  let quants = (at >> 2u) + 1u + j * 2u;
  let pair = vec2<u32>(word(quants), word(quants + 1u));
  let nibbles = vec4<u32>(pair, pair >> vec2<u32>(4u)) & NIBBLES;
  return Group(half_of_e4m3(byte_at(at + j)), values_of(nibbles));
}
