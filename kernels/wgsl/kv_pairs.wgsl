// The kv cache holds pairs of neighbouring columns: two halves in a word, or two floats.
//@ if KV_F16
alias KvPair = u32;

fn unpack_pair(pair: u32) -> vec2<f32> { return unpack2x16float(pair); }

// Halves end at 65504; what pack2x16float does past that is left open by WGSL.
fn pack_pair(pair: vec2<f32>) -> u32 { return pack2x16float(clamp(pair, vec2<f32>(-65504.0), vec2<f32>(65504.0))); }
//@ else
alias KvPair = vec2<f32>;

fn unpack_pair(pair: vec2<f32>) -> vec2<f32> { return pair; }
fn pack_pair(pair: vec2<f32>) -> vec2<f32> { return pair; }
//@ end
