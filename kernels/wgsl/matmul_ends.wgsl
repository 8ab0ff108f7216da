// What every matmul kernel has in common: its dimensions and buffers, the loaders of its formats, and what is done with a
// sum at the end. The flags are explained in matmul.wgsl.

struct Dims {
  n_in: u32,
  n_out: u32,
  row_bytes: u32,
  first_row: u32,
  x_stride: u32,  // in vec4s
  y_stride: u32,
  residual_stride: u32,
  rows_word: u32,  // which word of the batch holds the number of rows of x
  has_bias: u32,
  has_residual: u32,
  //@ if EXPERTS
  n_used: u32,
  rows_per_expert: u32,
  per_expert: u32,  // whether each chosen expert has its own n_in columns of x
  route_stride: u32,
  //@ end
  //@ if GATED
  up_at: u32,  // bytes from the gate's rows to those of up
  up_bias: u32,  // elements from the gate's bias to that of up
  //@ end
  //@ if MIXED
  other_n_out: u32,
  other_row_bytes: u32,
  other_first_row: u32,
  //@ end
  //@ if NORM
  eps: f32,
  //@ end
}

@group(0) @binding(0) var<uniform> dims: Dims;
//@ if WIDE
@group(0) @binding(2) var<storage, read> weight: array<vec4<u32>>;
//@ else
@group(0) @binding(2) var<storage, read> weight: array<u32>;
//@ end
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
//@ if EXPERTS
//@ if GROUPED
@group(0) @binding(5) var<storage, read> groups: array<u32>;
//@ else
@group(0) @binding(5) var<storage, read> route: array<f32>;
//@ end
//@ else
//@ if MIXED
//@ if OTHER_WIDE
@group(0) @binding(5) var<storage, read> OTHER_weight: array<vec4<u32>>;
//@ else
@group(0) @binding(5) var<storage, read> OTHER_weight: array<u32>;
//@ end
//@ else
@group(0) @binding(5) var<storage, read> residual: array<f32>;
//@ end
//@ end
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
//@ if NORM
@group(0) @binding(7) var<storage, read> norm: array<vec4<f32>>;
//@ end

//@ include ${FORMAT}
//@ if MIXED
//@ include ${FORMAT} as OTHER
//@ end
//@ if ACT
//@ include activations.wgsl
//@ end

//@ if EXPERTS
// `slot` counts the chosen experts of all tokens: token · n_used + which of them.
fn store(slot: u32, expert: u32, row: u32, value: f32) {
  var sum = value;
  if (dims.has_bias != 0u) { sum += bias[expert * dims.rows_per_expert + row]; }
  y[(slot / dims.n_used) * dims.y_stride + (slot % dims.n_used) * dims.rows_per_expert + row] = sum;
}
//@ else
fn store(token: u32, column: u32, n_tokens: u32, value: f32) {
  if (token >= n_tokens) { return; }
  var sum = value;
  if (dims.has_bias != 0u) { sum += bias[column]; }
  //@ if ACT
  sum = act_${ACT}(vec4<f32>(sum)).x;
  //@ end
  //@ if not MIXED
  if (dims.has_residual != 0u) { sum += residual[token * dims.residual_stride + column]; }
  //@ end
  y[token * dims.y_stride + column] = sum;
}
//@ end

//@ if GATED
fn store_gated(token: u32, column: u32, n_tokens: u32, gate: f32, up: f32) {
  if (token >= n_tokens) { return; }
  var values = vec2<f32>(gate, up);
  if (dims.has_bias != 0u) { values += vec2<f32>(bias[column], bias[dims.up_bias + column]); }
  y[token * dims.y_stride + column] = act_${ACT}(vec4<f32>(values.x)).x * values.y;
}
//@ end
