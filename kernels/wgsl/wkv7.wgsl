// The generalised delta rule of RWKV-7 (Peng et al., arXiv 2503.14456): one invocation for each column of v, which keeps
// its row of the head's matrix S, HEAD_DIM elements, while it goes through all tokens.

struct Dims {
  width: u32,
  stride: u32,
  ab_stride: u32,
  state_width: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> r: array<f32>;
@group(0) @binding(3) var<storage, read> w: array<f32>;
@group(0) @binding(4) var<storage, read> k: array<f32>;
@group(0) @binding(5) var<storage, read> v: array<f32>;
@group(0) @binding(6) var<storage, read> ab: array<f32>;  // a, then b
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> state: array<f32>;

//@ include states.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (column >= dims.width) { return; }
  let head = column / HEAD_DIM * HEAD_DIM;
  let first = head * HEAD_DIM + column % HEAD_DIM;
  var values: array<f32, HEAD_DIM>;
  for (var i = 0u; i < HEAD_DIM; i++) { values[i] = state_before(first + i * HEAD_DIM); }
  for (var token = 0u; token < batch[N_TOKENS]; token++) {
    let at = token * dims.stride + head;
    let at_a = token * dims.ab_stride + head;
    let value = v[token * dims.stride + column];
    var removed = 0.0;
    for (var i = 0u; i < HEAD_DIM; i++) { removed += ab[at_a + i] * values[i]; }
    var sum = 0.0;
    for (var i = 0u; i < HEAD_DIM; i++) {
      values[i] = w[at + i] * values[i] + removed * ab[at_a + dims.width + i] + k[at + i] * value;
      sum += r[at + i] * values[i];
    }
    y[token * dims.stride + column] = sum;
  }
  for (var i = 0u; i < HEAD_DIM; i++) { set_state_after(first + i * HEAD_DIM, values[i]); }
}
