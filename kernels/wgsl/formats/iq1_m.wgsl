// IQ1_M: 32 bytes, the low 8 bits of grid indices; 32 nibbles of their high 3 bits and the sign of a shift; 4 half-words
// of four 3-bit scales, one for each group of 16, whose top nibbles together are the half d;
// d * (2 * scale + 1) * (point ± 1/8).
//@ include formats/bytes.wgsl
//@ include formats/shifted_grid.wgsl
const BLOCK_BYTES: u32 = 56u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 4u) * BLOCK_BYTES;
  let s = i & 15u;
  let words = vec2<u32>(word((at >> 2u) + 12u), word((at >> 2u) + 13u));
  let d_bits = ((words.x >> 12u) & 0x000fu) | ((words.x >> 24u) & 0x00f0u)
             | ((words.y >> 4u) & 0x0f00u) | ((words.y >> 16u) & 0xf000u);
  let scales = select(words.x, words.y, s >= 8u) >> (((s >> 2u) & 1u) * 16u + (s & 3u) * 3u);
  let scale = unpack2x16float(d_bits).x * f32(2u * (scales & 7u) + 1u);
  let high = byte_at(at + 32u + s);
  let first = byte_at(at + 2u * s) | ((high & 7u) << 8u);
  let second = byte_at(at + 2u * s + 1u) | ((high & 112u) << 4u);
  return Group(scale * 0.125, scale * -2.0,
               vec4<u32>(shifted_eight(first, (high & 8u) != 0u), shifted_eight(second, (high & 128u) != 0u)));
}
