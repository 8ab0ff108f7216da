// IQ2_XXS: half d; for each group of 32 elements 4 bytes that index the grid and a word of four 7-bit sign codes and a
// 4-bit scale; d * (scale + 1/2) / 4 * point.
//@ include formats/bytes.wgsl
//@ include formats/grid_of_eight.wgsl
const BLOCK_BYTES: u32 = 66u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 3u) * BLOCK_BYTES;
  let indices = word_at(at + 2u + (i & 7u) * 8u);
  let rest = word_at(at + 6u + (i & 7u) * 8u);
  return Group(half_at(at) * (f32(rest >> 28u) + 0.5) * 0.25,
               vec4<u32>(signed_eight(indices & 255u, all_eight(rest)),
                         signed_eight((indices >> 8u) & 255u, all_eight(rest >> 7u))),
               vec4<u32>(signed_eight((indices >> 16u) & 255u, all_eight(rest >> 14u)),
                         signed_eight(indices >> 24u, all_eight(rest >> 21u))));
}
