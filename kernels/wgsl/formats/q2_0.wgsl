// Q2_0: half d, 64 2-bit quants, neighbours in a byte; d * (q - 1).
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 18u;

// The four fields of each byte of `bytes` become a word of four bytes.
fn fields(bytes: u32) -> vec4<u32> {
  let byte = (vec4<u32>(bytes) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u);
  return (byte | (byte << vec4<u32>(6u)) | (byte << vec4<u32>(12u)) | (byte << vec4<u32>(18u))) & vec4<u32>(0x03030303u);
}

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 1u) * BLOCK_BYTES;
  let d = half_at(at);
  let quants = at + 2u + (i & 1u) * 8u;
  return Group(d, -d, fields(word_at(quants)), fields(word_at(quants + 4u)));
}
