// ${SIDE} in blocks of 32 columns: the scale, a float that is a half, then nibbles less 8, columns 0-15 the low ones and 16-31
// the high ones of 16 bytes (bridge/graph/cache.py).
alias ${SIDE}Element = u32;

fn load_${side}(at: u32) -> Unit {
  let block = at / 8u * 5u;
  let quad = at % 8u;
  let shift = select(0u, 4u, quad >= 4u);
  let codes = (vec4<u32>(${side}_cache[block + 1u + quad % 4u]) >> (vec4<u32>(0u, 8u, 16u, 24u) + shift)) & vec4<u32>(15u);
  return bitcast<f32>(${side}_cache[block]) * (vec4<f32>(codes) - 8.0);
}
//@ if WRITES
fn store_${side}(at: u32, columns: ptr<function, array<f32, ${SIDE}_GROUP>>) {
  var largest = 0.0;
  for (var i = 0u; i < 32u; i++) { largest = select(largest, (*columns)[i], abs((*columns)[i]) > abs(largest)); }
  let scale = largest / -8.0;
  var factor = 0.0;
  if (scale != 0.0) { factor = 1.0 / scale; }
  let half = unpack2x16float(pack2x16float(vec2<f32>(clamp(scale, -65504.0, 65504.0), 0.0))).x;
  ${side}_cache[at * 5u] = bitcast<u32>(half);
  for (var word = 0u; word < 4u; word++) {
    var codes = 0u;
    for (var i = 0u; i < 4u; i++) {
      let low = min(u32((*columns)[word * 4u + i] * factor + 8.5), 15u);
      let high = min(u32((*columns)[16u + word * 4u + i] * factor + 8.5), 15u);
      codes |= (low | (high << 4u)) << (8u * i);
    }
    ${side}_cache[at * 5u + 1u + word] = codes;
  }
}
//@ end
