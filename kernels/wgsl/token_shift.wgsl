// y = x + (the row before - x) * weight, for each of the weight's rows side by side: one invocation for each column of
// x, which goes through all tokens.

struct Dims {
  width: u32,
  n_mixes: u32,
  x_stride: u32,
  y_stride: u32,
  state_width: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> state: array<f32>;

//@ include states.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (column >= dims.width) { return; }
  var previous = state_before(column);
  for (var token = 0u; token < batch[N_TOKENS]; token++) {
    let value = x[token * dims.x_stride + column];
    for (var m = 0u; m < dims.n_mixes; m++) {
      let i = m * dims.width + column;
      y[token * dims.y_stride + i] = value + (previous - value) * weight[i];
    }
    previous = value;
  }
  set_state_after(column, previous);
}
