// IQ2_XS: half d; 32 half-words of a 9-bit grid index and a 7-bit sign code; 8 bytes of 4-bit scales, one for each group
// of 16; d * (scale + 1/2) / 4 * point.
//@ include formats/bytes.wgsl
//@ include formats/grid_of_eight.wgsl
const BLOCK_BYTES: u32 = 74u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 4u) * BLOCK_BYTES;
  let s = i & 15u;
  let codes = word_at(at + 2u + s * 4u);
  let scale = (byte_at(at + 66u + (s >> 1u)) >> ((s & 1u) * 4u)) & 15u;
  return Group(half_at(at) * (f32(scale) + 0.5) * 0.25,
               vec4<u32>(signed_eight(codes & 511u, all_eight(codes >> 9u)),
                         signed_eight((codes >> 16u) & 511u, all_eight(codes >> 25u))));
}
