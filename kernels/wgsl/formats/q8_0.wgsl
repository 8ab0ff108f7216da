// Q8_0: half d, 32 signed bytes; d * q.
//@ include formats/bytes.wgsl
const BLOCK_BYTES: u32 = 34u;

fn load_group(row: u32, i: u32) -> Group {
  let at = row + i * BLOCK_BYTES;
  return Group(half_at(at), words_at(at + 2u), words_at(at + 18u));
}
