// y = x * (1 + scale * ln(floor(position / period) + 1)), four columns to an invocation.

struct Dims { quads: u32, rows_word: u32, period: u32, scale: f32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  let column = column_of(workgroup) * WORKGROUP + local;
  if (token >= batch[N_TOKENS] || column >= dims.quads) { return; }
  let position = batch[FIRST_POSITION] + token - text_begin(token);
  let factor = 1.0 + dims.scale * log(f32(position / dims.period + 1u));
  let i = token * dims.quads + column;
  y[i] = factor * x[i];
}
