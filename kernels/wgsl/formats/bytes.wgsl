// Quantised elements as the kernels see them: a group shares one scale (and offset) and holds one byte per element, four
// to a word, in element order. A format only says how its blocks become such a group:
//   fn load_group(row: u32, i: u32) -> Group      row: byte offset of the row in `weight`; i: which group of the row
// The element's value is scale * byte + offset.

struct Group {
  scale: f32,
  //@ if OFFSETS
  offset: f32,
  //@ end
  low: vec4<u32>,
  //@ if GROUP_OF_32
  high: vec4<u32>,
  //@ end
}

fn to_floats(word: u32) -> vec4<f32> {
  //@ if SIGNED
  return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
  //@ else
  return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
  //@ end
}

fn quad0(g: Group) -> vec4<f32> { return to_floats(g.low.x); }
fn quad1(g: Group) -> vec4<f32> { return to_floats(g.low.y); }
fn quad2(g: Group) -> vec4<f32> { return to_floats(g.low.z); }
fn quad3(g: Group) -> vec4<f32> { return to_floats(g.low.w); }
//@ if GROUP_OF_32
fn quad4(g: Group) -> vec4<f32> { return to_floats(g.high.x); }
fn quad5(g: Group) -> vec4<f32> { return to_floats(g.high.y); }
fn quad6(g: Group) -> vec4<f32> { return to_floats(g.high.z); }
fn quad7(g: Group) -> vec4<f32> { return to_floats(g.high.w); }
//@ end

// Blocks begin at even byte offsets, so that halves never straddle a word but words may.

fn half_at(at: u32) -> f32 {
  return unpack2x16float(weight[at >> 2u] >> ((at & 2u) << 3u)).x;
}

fn byte_at(at: u32) -> u32 {
  return (weight[at >> 2u] >> ((at & 3u) << 3u)) & 255u;
}

fn word_at(at: u32) -> u32 {
  let i = at >> 2u;
  let first = weight[i];
  if ((at & 2u) == 0u) { return first; }
  return (first >> 16u) | (weight[i + 1u] << 16u);
}

fn aligned_words(at: u32) -> vec4<u32> {
  let i = at >> 2u;
  return vec4<u32>(weight[i], weight[i + 1u], weight[i + 2u], weight[i + 3u]);
}

fn words_at(at: u32) -> vec4<u32> {
  let words = aligned_words(at);
  if ((at & 2u) == 0u) { return words; }
  let next = vec4<u32>(words.yzw, weight[(at >> 2u) + 4u]);
  return (words >> vec4<u32>(16u)) | (next << vec4<u32>(16u));
}

const NIBBLES = vec4<u32>(0x0f0f0f0fu);

fn low_nibbles(words: vec4<u32>) -> vec4<u32> { return words & NIBBLES; }
fn high_nibbles(words: vec4<u32>) -> vec4<u32> { return (words >> vec4<u32>(4u)) & NIBBLES; }
