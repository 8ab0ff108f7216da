// IQ3_S: half d; 64 bytes, the low 8 bits of indices into a grid of four components; 8 bytes of their high bits; 32 bytes
// of signs; 4 bytes of 4-bit scales, one for each group of 32; d * (2 * scale + 1) * point.
//@ include formats/bytes.wgsl
//@ include formats/grid.wgsl
//@ include formats/signs.wgsl
const BLOCK_BYTES: u32 = 110u;

// Four points: `low` has their indices' low bytes, `high` the ninth bits, `signs` sixteen signs.
fn signed_sixteen(low: u32, high: u32, signs: u32) -> vec4<u32> {
  let index = ((vec4<u32>(low) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u))
            | (((vec4<u32>(high) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(1u)) << vec4<u32>(8u));
  return vec4<u32>(with_signs(grid[index.x], signs), with_signs(grid[index.y], signs >> 4u),
                   with_signs(grid[index.z], signs >> 8u), with_signs(grid[index.w], signs >> 12u));
}

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let j = i & 7u;
  let high = byte_at(at + 66u + j);
  let signs = word_at(at + 74u + j * 4u);
  let scale = (byte_at(at + 106u + (j >> 1u)) >> ((j & 1u) * 4u)) & 15u;
  return Group(half_at(at) * f32(2u * scale + 1u),
               signed_sixteen(word_at(at + 2u + j * 8u), high, signs),
               signed_sixteen(word_at(at + 6u + j * 8u), high >> 4u, signs >> 16u));
}
