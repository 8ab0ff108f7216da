// Logits as integers in the same order, so that no flag of a shader compiler touches NaN, infinities, zeros or
// subnormals.

const NO_KEY: u32 = 0u;  // below that of -infinity
const INFINITY_KEY: u32 = 0xff800000u;  // from here on no number: +infinity, then NaN of either sign

fn keys_of(bits: vec4<u32>) -> vec4<u32> {
  let magnitudes = bits & vec4<u32>(0x7fffffffu);
  let keys = select(bits | vec4<u32>(0x80000000u), ~bits, bits >= vec4<u32>(0x80000000u));
  let numbers = select(keys, vec4<u32>(0x80000000u), magnitudes == vec4<u32>(0u));  // both zeros are equal
  return select(numbers, vec4<u32>(0xffffffffu), magnitudes > vec4<u32>(0x7f800000u));
}

fn key_of(bits: u32) -> u32 { return keys_of(vec4<u32>(bits)).x; }
