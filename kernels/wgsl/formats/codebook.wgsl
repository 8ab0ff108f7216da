// Four-bit indices into 16 values, signed bytes; the format has them in the words VALUES_0 (the first four) … VALUES_12.

// Four nibbles, one in each byte of a word, become the four values.
fn values_of_word(nibbles: u32) -> u32 {
  let n = (vec4<u32>(nibbles) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(15u);
  let is_odd_word = (n & vec4<u32>(4u)) != vec4<u32>(0u);
  let low = select(vec4<u32>(VALUES_0), vec4<u32>(VALUES_4), is_odd_word);
  let high = select(vec4<u32>(VALUES_8), vec4<u32>(VALUES_12), is_odd_word);
  let words = select(low, high, (n & vec4<u32>(8u)) != vec4<u32>(0u));
  let value = (words >> ((n & vec4<u32>(3u)) * vec4<u32>(8u))) & vec4<u32>(255u);
  return value.x | (value.y << 8u) | (value.z << 16u) | (value.w << 24u);
}

fn values_of(nibbles: vec4<u32>) -> vec4<u32> {
  return vec4<u32>(values_of_word(nibbles.x), values_of_word(nibbles.y), values_of_word(nibbles.z),
                   values_of_word(nibbles.w));
}
