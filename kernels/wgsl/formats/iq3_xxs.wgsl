// IQ3_XXS: half d; 64 bytes that index a grid of four components; for each group of 32 elements a word of four 7-bit sign
// codes and a 4-bit scale; d * (scale + 1/2) / 2 * point.
//@ include formats/bytes.wgsl
//@ include formats/grid.wgsl
//@ include formats/signs.wgsl
const BLOCK_BYTES: u32 = 98u;

fn signed_eight(indices: u32, signs: u32) -> vec2<u32> {
  return vec2<u32>(with_signs(grid[indices & 255u], signs), with_signs(grid[(indices >> 8u) & 255u], signs >> 4u));
}

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let j = i & 7u;
  let first = word_at(at + 2u + j * 8u);
  let second = word_at(at + 6u + j * 8u);
  let rest = word_at(at + 66u + j * 4u);
  return Group(half_at(at) * (f32(rest >> 28u) + 0.5) * 0.5,
               vec4<u32>(signed_eight(first, all_eight(rest)), signed_eight(first >> 16u, all_eight(rest >> 7u))),
               vec4<u32>(signed_eight(second, all_eight(rest >> 14u)), signed_eight(second >> 16u, all_eight(rest >> 21u))));
}
