// The gated delta rule (Yang et al., arXiv 2412.06464): one invocation for each column of v, which keeps its column of
// the head's state, 4 * QUADS elements, while it goes through all tokens.

struct Dims {
  width: u32,
  head_dim_v: u32,
  n_head: u32,
  n_head_k: u32,
  qk_stride: u32,  // in vec4s, as are all of q and k
  v_stride: u32,
  gate_stride: u32,
  state_width: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> k: array<vec4<f32>>;
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
  let row = dims.head_dim_v;
  let first = head * 4u * QUADS * row + column % row;
  let end = batch[N_TOKENS];
  var values: array<vec4<f32>, QUADS>;  // indices are constants, so that it can be in registers
  //@ for i in QUADS
  values[${i}u] = quad_before(first + ${i}u * 4u * row, row);
  //@ end
  for (var token = 0u; token < end; token++) {
    let at = token * dims.qk_stride + key_head * QUADS;
    let kept = exp(clamp(gate[token * dims.gate_stride + head], -87.0, 87.0));
    var known = vec4<f32>(0.0);
    //@ for i in QUADS
    values[${i}u] *= kept;
    known += k[at + ${i}u] * values[${i}u];
    //@ end
    let missing = v[token * dims.v_stride + column] - dot(known, vec4<f32>(1.0));
    let change = missing * beta[token * dims.gate_stride + head];
    var sum = vec4<f32>(0.0);
    //@ for i in QUADS
    values[${i}u] += k[at + ${i}u] * change;
    sum += q[at + ${i}u] * values[${i}u];
    //@ end
    y[token * dims.v_stride + column] = dot(sum, vec4<f32>(dims.scale));
  }
  //@ for i in QUADS
  set_quad_after(first + ${i}u * 4u * row, row, values[${i}u]);
  //@ end
}
