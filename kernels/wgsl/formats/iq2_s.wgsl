// IQ2_S: half d; 32 bytes, the low 8 bits of grid indices; 32 bytes of signs; 8 bytes, the high 2 bits of the indices; 8
// bytes of 4-bit scales, one for each group of 16; d * (scale + 1/2) / 4 * point.
//@ include formats/bytes.wgsl
//@ include formats/grid_of_eight.wgsl
const BLOCK_BYTES: u32 = 82u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 4u) * BLOCK_BYTES;
  let s = i & 15u;
  let high = byte_at(at + 66u + (s >> 1u)) >> ((s & 1u) * 4u);
  let scale = (byte_at(at + 74u + (s >> 1u)) >> ((s & 1u) * 4u)) & 15u;
  let first = at + 2u + s * 2u;
  return Group(half_at(at) * (f32(scale) + 0.5) * 0.25,
               vec4<u32>(signed_eight(byte_at(first) | ((high & 3u) << 8u), byte_at(first + 32u)),
                         signed_eight(byte_at(first + 1u) | ((high & 12u) << 6u), byte_at(first + 33u))));
}
