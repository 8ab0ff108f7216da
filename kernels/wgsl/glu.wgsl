// y = act(gate) * up, four columns to an invocation.

struct Dims { quads: u32, rows_word: u32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> gate: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> up: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;

// The clamps keep exp and tanh where every implementation is finite; beyond them the result is the same in float32.

//@ if SILU
fn act(x: vec4<f32>) -> vec4<f32> {
  return x / (1.0 + exp(min(-x, vec4<f32>(87.0))));
}
//@ end
//@ if GELU
// The tanh form (Hendrycks & Gimpel, arXiv 1606.08415), with sqrt(2/π).
fn act(x: vec4<f32>) -> vec4<f32> {
  let inner = 0.7978845608 * x * (1.0 + 0.044715 * x * x);
  return 0.5 * x * (1.0 + tanh(clamp(inner, vec4<f32>(-15.0), vec4<f32>(15.0))));
}
//@ end

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (workgroup.y >= batch[dims.rows_word] || column >= dims.quads) { return; }
  let i = workgroup.y * dims.quads + column;
  y[i] = act(gate[i]) * up[i];
}
