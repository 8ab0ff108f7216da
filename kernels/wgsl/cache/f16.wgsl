// ${SIDE} as halves, two in a word.
//@ if UNIT_OF_4
alias ${SIDE}Element = vec2<u32>;
//@ else
alias ${SIDE}Element = u32;
//@ end

fn load_${side}(at: u32) -> Unit {
  let words = ${side}_cache[at];
  //@ if UNIT_OF_4
  return Unit(unpack2x16float(words.x), unpack2x16float(words.y));
  //@ else
  return unpack2x16float(words);
  //@ end
}
//@ if WRITES
fn store_${side}(at: u32, columns: ptr<function, array<f32, ${SIDE}_GROUP>>) {
  // Halves end at 65504; what pack2x16float does past that is left open by WGSL.
  let halves = clamp(${side}_unit_of(columns), Unit(-65504.0), Unit(65504.0));
  //@ if UNIT_OF_4
  ${side}_cache[at] = vec2<u32>(pack2x16float(halves.xy), pack2x16float(halves.zw));
  //@ else
  ${side}_cache[at] = pack2x16float(halves);
  //@ end
}
//@ include cache/unit_of.wgsl
//@ end
