// IQ1_S: half d; 32 bytes, the low 8 bits of grid indices; for each group of 32 elements a half-word of the four indices'
// high 3 bits, a 3-bit scale and the sign of a shift; d * (2 * scale + 1) * (point ± 1/8).
//@ include formats/bytes.wgsl
//@ include formats/shifted_grid.wgsl
const BLOCK_BYTES: u32 = 50u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let j = i & 7u;
  let low = word_at(at + 2u + j * 4u);
  let high = byte_at(at + 34u + j * 2u) | (byte_at(at + 35u + j * 2u) << 8u);
  let is_minus = (high & 0x8000u) != 0u;
  let index = ((vec4<u32>(low) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u))
            | (((vec4<u32>(high) >> vec4<u32>(0u, 3u, 6u, 9u)) & vec4<u32>(7u)) << vec4<u32>(8u));
  let scale = half_at(at) * f32(2u * ((high >> 12u) & 7u) + 1u);
  return Group(scale * 0.125, scale * -2.0,
               vec4<u32>(shifted_eight(index.x, is_minus), shifted_eight(index.y, is_minus)),
               vec4<u32>(shifted_eight(index.z, is_minus), shifted_eight(index.w, is_minus)));
}
