// Causal convolution of every column by itself: one invocation for each column, which goes through all tokens.

struct Dims {
  width: u32,
  taps: u32,
  stride: u32,
  state_width: u32,
  has_bias: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;
@group(0) @binding(6) var<storage, read_write> state: array<f32>;

//@ include states.wgsl

// A row counted from the oldest one that the state holds.
fn input(row: u32, column: u32) -> f32 {
  let n_kept = dims.taps - 1u;
  if (row < n_kept) { return state_before(row * dims.width + column); }
  return x[(row - n_kept) * dims.stride + column];
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (column >= dims.width) { return; }
  let n_tokens = batch[N_TOKENS];
  let first = select(0.0, bias[column], dims.has_bias == 1u);
  for (var token = 0u; token < n_tokens; token++) {
    var sum = first;
    for (var tap = 0u; tap < dims.taps; tap++) { sum += weight[column * dims.taps + tap] * input(token + tap, column); }
    y[token * dims.stride + column] = sum;
  }
  // Oldest first: each comes from a row that is not overwritten yet.
  for (var kept = 0u; kept + 1u < dims.taps; kept++) {
    set_state_after(kept * dims.width + column, input(n_tokens + kept, column));
  }
}
