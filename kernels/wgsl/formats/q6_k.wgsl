// Q6_K: 128 bytes of low nibbles, 64 bytes of high 2 bits, 16 signed scales, half d.
// Each half of the block holds 4 runs of 32: run r has the low (r < 2) or high nibbles of bytes 32 * (r % 2) …, and bits
// 2 * r of the high-bit bytes; groups of 16 share a scale; d * scale * (q - 32).
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 210u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 4u) * BLOCK_BYTES;
  let s = i & 15u;
  let half = s >> 3u;
  let run = (s >> 1u) & 3u;
  let part = (s & 1u) * 16u;
  let low = words_at(at + half * 64u + (run & 1u) * 32u + part) >> vec4<u32>((run >> 1u) * 4u);
  let high = words_at(at + 128u + half * 32u + part) >> vec4<u32>(run * 2u);
  let signed_scale = bitcast<i32>(byte_at(at + 192u + s) << 24u) >> 24u;
  let scale = half_at(at + 208u) * f32(signed_scale);
  return Group(scale, -32.0 * scale, (low & NIBBLES) | ((high & vec4<u32>(0x03030303u)) << vec4<u32>(4u)));
}
