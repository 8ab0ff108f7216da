// The selective scan of Mamba (Gu & Dao, arXiv 2312.00752) and Mamba 2 (Dao & Gu, arXiv 2405.21060): one invocation for
// each column of x, which goes through all tokens with STATES elements of its state at a time, and so adds to y.

struct Dims {
  width: u32,
  head_dim: u32,
  heads_per_group: u32,
  n_group: u32,
  d_state: u32,
  decay_step: u32,  // from one element of A to the next of a head: 0 when it has only one
  x_stride: u32,
  dt_stride: u32,
  bc_stride: u32,
  state_width: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> dt: array<f32>;
@group(0) @binding(4) var<storage, read> bc: array<f32>;
@group(0) @binding(5) var<storage, read> decay: array<f32>;
@group(0) @binding(6) var<storage, read> skip: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> state: array<f32>;

//@ include states.wgsl
//@ include activations.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (column >= dims.width) { return; }
  let head = column / dims.head_dim;
  let first_b = (head / dims.heads_per_group) * dims.d_state;
  let first_c = first_b + dims.n_group * dims.d_state;
  let first_decay = head * select(1u, dims.d_state, dims.decay_step == 1u);
  var values: array<f32, STATES>;
  for (var block = 0u; block < dims.d_state; block += STATES) {
    let n = min(STATES, dims.d_state - block);
    for (var s = 0u; s < n; s++) { values[s] = state_before((block + s) * dims.width + column); }
    for (var token = 0u; token < batch[N_TOKENS]; token++) {
      let i = token * dims.x_stride + column;
      let step = act_softplus(vec4<f32>(dt[token * dims.dt_stride + head])).x;
      let stepped = step * x[i];
      let row = token * dims.bc_stride + block;
      var sum = 0.0;
      if (block == 0u) { sum = skip[head] * x[i]; } else { sum = y[i]; }
      for (var s = 0u; s < n; s++) {
        let rate = step * decay[first_decay + (block + s) * dims.decay_step];
        values[s] = exp(clamp(rate, -87.0, 87.0)) * values[s] + stepped * bc[row + first_b + s];
        sum += bc[row + first_c + s] * values[s];
      }
      y[i] = sum;
    }
    for (var s = 0u; s < n; s++) { set_state_after((block + s) * dims.width + column, values[s]); }
  }
}
