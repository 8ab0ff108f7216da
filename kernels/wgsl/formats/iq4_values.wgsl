// The 16 values of IQ4_NL and IQ4_XS (ggml-common.h, kvalues_iq4nl) as signed bytes, four to a word.
const IQ4_VALUES_0: u32 = 0xbfad9881u;  // -127 -104  -83  -65
const IQ4_VALUES_4: u32 = 0xf6eaddcfu;  //  -49  -35  -22  -10
const IQ4_VALUES_8: u32 = 0x26190d01u;  //    1   13   25   38
const IQ4_VALUES_12: u32 = 0x71594535u;  //  53   69   89  113

// Four nibbles, one in each byte of a word, become the four values.
fn iq4_word(nibbles: u32) -> u32 {
  let n = (vec4<u32>(nibbles) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u);
  let low = select(vec4<u32>(IQ4_VALUES_0), vec4<u32>(IQ4_VALUES_4), (n & vec4<u32>(4u)) != vec4<u32>(0u));
  let high = select(vec4<u32>(IQ4_VALUES_8), vec4<u32>(IQ4_VALUES_12), (n & vec4<u32>(4u)) != vec4<u32>(0u));
  let four = select(low, high, (n & vec4<u32>(8u)) != vec4<u32>(0u));
  let value = (four >> ((n & vec4<u32>(3u)) * vec4<u32>(8u))) & vec4<u32>(255u);
  return value.x | (value.y << 8u) | (value.z << 16u) | (value.w << 24u);
}

fn iq4_values(nibbles: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(iq4_word(nibbles.x), iq4_word(nibbles.y), iq4_word(nibbles.z), iq4_word(nibbles.w));
}
