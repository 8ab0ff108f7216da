// Q1_0: half d, 128 bits; d * (2 * q - 1).
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 18u;

// Bit 4 * k … of `bits` become the lowest bits of the bytes of word k.
fn bits_to_bytes(bits: u32) -> vec4<u32> {
  let four = (vec4<u32>(bits) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
  return (four * vec4<u32>(0x00204081u)) & vec4<u32>(0x01010101u);
}

fn load_group(row: u32, i: u32) -> Group {
  let at = row + (i >> 2u) * BLOCK_BYTES;
  let d = half_at(at);
  let bits = word_at(at + 2u + (i & 3u) * 4u);
  return Group(2.0 * d, -d, bits_to_bytes(bits), bits_to_bytes(bits >> 16u));
}
