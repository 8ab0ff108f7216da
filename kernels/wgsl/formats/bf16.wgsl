// BF16: groups of 16 upper halves of floats, two to a word. Rows need not be a whole number of groups; load_tail gives
// single quads, zero past the end.

//@ include formats/words.wgsl
struct Group { a: vec4<u32>, b: vec4<u32> }

fn upper_halves(word: u32) -> vec2<f32> {
  return bitcast<vec2<f32>>(vec2<u32>(word << 16u, word & 0xffff0000u));
}

fn halves(low: u32, high: u32) -> vec4<f32> {
  return vec4<f32>(upper_halves(low), upper_halves(high));
}

fn load_group(row: u32, i: u32) -> Group {
  let at = (row >> 2u) + i * 8u;
  return Group(four_words(at), four_words(at + 4u));
}

fn quad0(g: Group) -> vec4<f32> { return halves(g.a.x, g.a.y); }
fn quad1(g: Group) -> vec4<f32> { return halves(g.a.z, g.a.w); }
fn quad2(g: Group) -> vec4<f32> { return halves(g.b.x, g.b.y); }
fn quad3(g: Group) -> vec4<f32> { return halves(g.b.z, g.b.w); }

fn load_tail(row: u32, quad: u32) -> vec4<f32> {
  let at = (row >> 2u) + quad * 2u;
  if (quad * 4u + 2u >= dims.n_in) { return halves(word(at), 0u); }
  return halves(word(at), word(at + 1u));
}
