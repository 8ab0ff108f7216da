// Q8_0: half d, 32 signed bytes; d * q.
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 34u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  let words = nine_words(at >> 2u);
  return Group(half_of(words.a.x, at), words_after_half(at, words.a, words.b.x), words_after_half(at, words.b, words.c));
}
