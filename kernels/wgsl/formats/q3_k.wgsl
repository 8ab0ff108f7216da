// Q3_K: 32 bytes of high bits, 64 bytes of 2-bit quants, 12 bytes of sixteen 6-bit scales (less 32), half d.
// Group s of 16: low bits as in Q2_K; its high bit is bit s / 2 of the high-bit bytes 16 * (s % 2) …; d * scale * (q - 4).
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 110u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 4u) * BLOCK_BYTES;
  let s = i & 15u;
  // Low 4 bits of scale s: a nibble of byte s % 8. High 2 bits: bits 2 * (s / 4) of byte 8 + s % 4.
  let low = (byte_at(at + 96u + (s & 7u)) >> ((s >> 3u) * 4u)) & 15u;
  let high = (byte_at(at + 104u + (s & 3u)) >> ((s >> 2u) * 2u)) & 3u;
  let scale = half_at(at + 108u) * (f32(low | (high << 4u)) - 32.0);
  let quants = words_at(at + 32u + (s >> 3u) * 32u + (s & 1u) * 16u);
  let bits = words_at(at + (s & 1u) * 16u);
  return Group(scale, -4.0 * scale,
               ((quants >> vec4<u32>(s & 6u)) & vec4<u32>(0x03030303u))
               | (((bits >> vec4<u32>(s >> 1u)) & vec4<u32>(0x01010101u)) << vec4<u32>(2u)));
}
