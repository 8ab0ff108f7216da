// The kv cache holds units of neighbouring columns, two or four: halves packed into words, or floats.
//@ if UNIT_OF_4
alias Unit = vec4<f32>;
//@ else
alias Unit = vec2<f32>;
//@ end

// Halves end at 65504; what pack2x16float does past that is left open by WGSL.
fn in_half_range(unit: Unit) -> Unit { return clamp(unit, Unit(-65504.0), Unit(65504.0)); }

//@ if KV_F16
//@ if UNIT_OF_4
alias KvUnit = vec2<u32>;
fn unpack_unit(unit: KvUnit) -> Unit { return Unit(unpack2x16float(unit.x), unpack2x16float(unit.y)); }
fn pack_unit(unit: Unit) -> KvUnit {
  let halves = in_half_range(unit);
  return KvUnit(pack2x16float(halves.xy), pack2x16float(halves.zw));
}
//@ else
alias KvUnit = u32;
fn unpack_unit(unit: KvUnit) -> Unit { return unpack2x16float(unit); }
fn pack_unit(unit: Unit) -> KvUnit { return pack2x16float(in_half_range(unit)); }
//@ end
//@ else
alias KvUnit = Unit;
fn unpack_unit(unit: KvUnit) -> Unit { return unit; }
fn pack_unit(unit: Unit) -> KvUnit { return unit; }
//@ end
