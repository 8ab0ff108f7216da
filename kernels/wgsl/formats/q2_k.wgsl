// Q2_K: 16 bytes of scales (scale low nibble, minimum high), 64 bytes of 2-bit quants, halves d and dmin.
// Group s of 16 lies in half s / 8 at bits 2 * (s / 2 % 4) of 16 bytes; d * scale * q - dmin * minimum.
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 84u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 4u) * BLOCK_BYTES;
  let s = i & 15u;
  let d_dmin = unpack2x16float(word((at >> 2u) + 20u));
  let scale = byte_at(at + s);
  let quants = aligned_words(at + 16u + (s >> 3u) * 32u + (s & 1u) * 16u);
  return Group(d_dmin.x * f32(scale & 15u), -d_dmin.y * f32(scale >> 4u),
               (quants >> vec4<u32>(s & 6u)) & vec4<u32>(0x03030303u));
}
