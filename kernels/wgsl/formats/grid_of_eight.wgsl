//@ include formats/grid.wgsl
//@ include formats/signs.wgsl
// Eight components of a grid point with their signs.
fn signed_eight(index: u32, signs: u32) -> vec2<u32> {
  let point = pair_of(index);
  return vec2<u32>(with_signs(point.x, signs), with_signs(point.y, signs >> 4u));
}
