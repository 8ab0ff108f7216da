// The gated delta rule (Yang et al., arXiv 2412.06464): one invocation for each column of v, which keeps its column of
// the head's state, HEAD_DIM elements, while it goes through all tokens.

struct Dims {
  width: u32,
  head_dim_v: u32,
  n_head: u32,
  n_head_k: u32,
  qk_stride: u32,
  v_stride: u32,
  gate_stride: u32,
  state_width: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> q: array<f32>;
@group(0) @binding(3) var<storage, read> k: array<f32>;
@group(0) @binding(4) var<storage, read> v: array<f32>;
@group(0) @binding(5) var<storage, read> gate: array<f32>;
@group(0) @binding(6) var<storage, read> beta: array<f32>;
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> state: array<f32>;

//@ include states.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (column >= dims.width) { return; }
  let head = column / dims.head_dim_v;
  //@ if INTERLEAVED
  let key_head = head % dims.n_head_k;
  //@ else
  let key_head = head * dims.n_head_k / dims.n_head;
  //@ end
  let first = head * HEAD_DIM * dims.head_dim_v + column % dims.head_dim_v;
  var values: array<f32, HEAD_DIM>;
  for (var i = 0u; i < HEAD_DIM; i++) { values[i] = state_before(first + i * dims.head_dim_v); }
  for (var token = 0u; token < batch[N_TOKENS]; token++) {
    let at = token * dims.qk_stride + key_head * HEAD_DIM;
    let kept = exp(clamp(gate[token * dims.gate_stride + head], -87.0, 87.0));
    var known = 0.0;
    for (var i = 0u; i < HEAD_DIM; i++) {
      values[i] *= kept;
      known += k[at + i] * values[i];
    }
    let change = (v[token * dims.v_stride + column] - known) * beta[token * dims.gate_stride + head];
    var sum = 0.0;
    for (var i = 0u; i < HEAD_DIM; i++) {
      values[i] += k[at + i] * change;
      sum += q[at + i] * values[i];
    }
    y[token * dims.v_stride + column] = sum * dims.scale;
  }
  for (var i = 0u; i < HEAD_DIM; i++) { set_state_after(first + i * dims.head_dim_v, values[i]); }
}
