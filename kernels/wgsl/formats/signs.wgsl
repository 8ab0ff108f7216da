// Negates the bytes of a word whose bits in `signs` (the low four) are set. The bytes are from 1 to 127, so that adding 1
// to a complement never carries into the next byte.
fn with_signs(word: u32, signs: u32) -> u32 {
  let ones = ((signs & 15u) * 0x00204081u) & 0x01010101u;
  return (word ^ (ones * 255u)) + ones;
}

// Sign codes of 7 bits leave out the eighth, which makes the number of negative elements even.
fn all_eight(code: u32) -> u32 {
  let seven = code & 127u;
  return seven | ((countOneBits(seven) & 1u) << 7u);
}
