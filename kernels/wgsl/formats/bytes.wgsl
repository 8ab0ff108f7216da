// Quantised elements as the kernels see them: a group shares one scale (and offset) and holds one byte per element, four
// to a word, in element order. A format only says how its blocks become such a group:
//   fn load_group(row: u32, i: u32) -> Group      row: byte offset of the row in `weight`; i: which group of the row
// The element's value is scale * byte + offset; unsigned bytes are below 128.

//@ include formats/words.wgsl
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

// What a quad's components are multiplied by is scaled by QUAD_SCALES, and what OFFSET_MASK marks has `offset_of` added.
// Where it does not pay to leave that to x, `plain` makes the elements of a quad, and `plain_offset` belongs to them.
//@ if SHIFTS
// Hardware converts any byte of a word to a float in one instruction. Signed bytes are made unsigned by adding 128, which
// the offset takes off again.
const QUAD_SCALES = vec4<f32>(1.0);
const OFFSET_MASK = vec4<f32>(1.0);

fn to_floats(word: u32) -> vec4<f32> {
  //@ if SIGNED
  let bytes = vec4<u32>(word ^ 0x80808080u);
  //@ else
  let bytes = vec4<u32>(word);
  //@ end
  return vec4<f32>((bytes >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u));
}
//@ else
// Bytes become floats where they stand in the word, without a shift (software adapters shift slowly): component k of a
// quad is 256^k times the element. The highest byte brings its sign along; the others are unsigned, so that in signed
// formats 128 is added to them and taken off again as an offset.
const QUAD_SCALES = vec4<f32>(1.0, 0x1p-8, 0x1p-16, 0x1p-24);
//@ if SIGNED
const OFFSET_MASK = vec4<f32>(1.0, 1.0, 1.0, 0.0);
//@ else
const OFFSET_MASK = vec4<f32>(1.0);
//@ end

fn to_floats(word: u32) -> vec4<f32> {
  //@ if SIGNED
  let bytes = vec4<u32>(word ^ 0x00808080u);
  //@ else
  let bytes = vec4<u32>(word);
  //@ end
  return vec4<f32>(bitcast<vec4<i32>>(bytes & vec4<u32>(0xffu, 0xff00u, 0xff0000u, 0xff000000u)));
}
//@ end

//@ if SIGNED
fn offset_of(g: Group) -> f32 { return -128.0 * g.scale; }
fn plain_offset(g: Group) -> f32 { return 0.0; }
fn plain(quad: vec4<f32>) -> vec4<f32> { return quad * QUAD_SCALES - 128.0 * OFFSET_MASK; }
//@ else
fn offset_of(g: Group) -> f32 { return g.offset; }
fn plain_offset(g: Group) -> f32 { return g.offset; }
fn plain(quad: vec4<f32>) -> vec4<f32> { return quad * QUAD_SCALES; }
//@ end

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

fn half_of(word: u32, at: u32) -> f32 { return unpack2x16float(word >> ((at & 2u) << 3u)).x; }
fn half_at(at: u32) -> f32 { return half_of(word(at >> 2u), at); }

fn byte_at(at: u32) -> u32 {
  return (word(at >> 2u) >> ((at & 3u) << 3u)) & 255u;
}

fn word_at(at: u32) -> u32 {
  let i = at >> 2u;
  let first = word(i);
  if ((at & 2u) == 0u) { return first; }
  return (first >> 16u) | (word(i + 1u) << 16u);
}

fn aligned_words(at: u32) -> vec4<u32> { return four_words(at >> 2u); }

fn words_at(at: u32) -> vec4<u32> {
  let words = five_words(at >> 2u);
  return select(words.a, from_second_half(words.a, words.b.x), (at & 2u) != 0u);
}

fn from_second_half(words: vec4<u32>, next: u32) -> vec4<u32> {
  return (words >> vec4<u32>(16u)) | (vec4<u32>(words.yzw, next) << vec4<u32>(16u));
}

// What follows a half at byte `at`, of whose word `words` are the first four.
fn words_after_half(at: u32, words: vec4<u32>, next: u32) -> vec4<u32> {
  return select(from_second_half(words, next), vec4<u32>(words.yzw, next), (at & 2u) != 0u);
}

const NIBBLES = vec4<u32>(0x0f0f0f0fu);

fn low_nibbles(words: vec4<u32>) -> vec4<u32> { return words & NIBBLES; }
fn high_nibbles(words: vec4<u32>) -> vec4<u32> { return (words >> vec4<u32>(4u)) & NIBBLES; }
