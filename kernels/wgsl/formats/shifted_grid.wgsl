//@ include formats/grid.wgsl
// Points of IQ1's grid (components -1, 0, 1) plus or minus 1/8, as bytes: the grid holds 16 + 8 * component, the shift adds
// or takes 1, and what comes out is worth (byte - 16) / 8.
fn shifted_eight(index: u32, is_minus: bool) -> vec2<u32> {
  let point = pair_of(index);
  return select(point + vec2<u32>(0x01010101u), point - vec2<u32>(0x01010101u), is_minus);
}
