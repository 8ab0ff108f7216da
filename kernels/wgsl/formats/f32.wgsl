// F32: groups of 8 floats. Rows need not be a whole number of groups; load_tail gives single quads, zero past the end.

//@ include formats/words.wgsl
struct Group { a: vec4<f32>, b: vec4<f32> }

fn floats_at(i: u32) -> vec4<f32> {
  return bitcast<vec4<f32>>(four_words(i));
}

fn load_group(row: u32, i: u32) -> Group {
  let at = (row >> 2u) + i * 8u;
  return Group(floats_at(at), floats_at(at + 4u));
}

fn quad0(g: Group) -> vec4<f32> { return g.a; }
fn quad1(g: Group) -> vec4<f32> { return g.b; }

fn load_tail(row: u32, quad: u32) -> vec4<f32> {
  let at = (row >> 2u) + quad * 4u;
  if (quad * 4u + 2u >= dims.n_in) {
    return vec4<f32>(bitcast<f32>(word(at)), bitcast<f32>(word(at + 1u)), 0.0, 0.0);
  }
  return floats_at(at);
}
