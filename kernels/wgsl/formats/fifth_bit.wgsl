// The low 16 of `bits`, one for each element, become bit 4 of 16 bytes.
fn fifth_bits(bits: u32) -> vec4<u32> {
  let four = (vec4<u32>(bits) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
  // The product holds copies of the four bits 7 apart, so that bit k of one of them falls on bit 0 of byte k.
  return ((four * vec4<u32>(0x00204081u)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u);
}
