// ${SIDE} in blocks of 32 columns: the scale, a float that is a half, then 32 signed bytes (bridge/graph/cache.py).
alias ${SIDE}Element = u32;

fn load_${side}(at: u32) -> Unit {
  let block = at / 8u * 9u;
  let codes = vec4<u32>(${side}_cache[block + 1u + at % 8u]);
  return bitcast<f32>(${side}_cache[block]) * vec4<f32>(bitcast<vec4<i32>>(codes << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}
//@ if WRITES
fn store_${side}(at: u32, columns: ptr<function, array<f32, ${SIDE}_GROUP>>) {
  var most = 0.0;
  for (var i = 0u; i < 32u; i++) { most = max(most, abs((*columns)[i])); }
  let scale = most / 127.0;
  var factor = 0.0;
  if (scale != 0.0) { factor = 1.0 / scale; }
  ${side}_cache[at * 9u] = bitcast<u32>(unpack2x16float(pack2x16float(vec2<f32>(min(scale, 65504.0), 0.0))).x);
  for (var word = 0u; word < 8u; word++) {
    var codes = 0u;
    for (var i = 0u; i < 4u; i++) {
      let scaled = (*columns)[word * 4u + i] * factor;
      let code = i32(trunc(scaled + select(0.5, -0.5, scaled < 0.0)));  // to nearest, halves away from zero
      codes |= (bitcast<u32>(code) & 255u) << (8u * i);
    }
    ${side}_cache[at * 9u + 1u + word] = codes;
  }
}
//@ end
