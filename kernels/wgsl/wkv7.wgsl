// The generalised delta rule of RWKV-7 (Peng et al., arXiv 2503.14456): one invocation for each column of v, which
// keeps its row of the head's matrix S, 4 * QUADS elements, while it goes through all tokens.

struct Dims {
  width: u32,
  stride: u32,
  ab_stride: u32,  // in vec4s
  state_width: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> r: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read> w: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> k: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read> v: array<f32>;
@group(0) @binding(6) var<storage, read> ab: array<vec4<f32>>;  // a, then b
@group(0) @binding(7) var<storage, read_write> y: array<f32>;
@group(0) @binding(8) var<storage, read_write> state: array<f32>;

//@ include states.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (column >= dims.width) { return; }
  let head_dim = 4u * QUADS;
  let head = column / head_dim;
  let first = head * head_dim * head_dim + column % head_dim;
  let end = batch[N_TOKENS];
  var values: array<vec4<f32>, QUADS>;  // indices are constants, so that it can be in registers
  //@ for i in QUADS
  values[${i}u] = quad_before(first + ${i}u * 4u * head_dim, head_dim);
  //@ end
  for (var token = 0u; token < end; token++) {
    let at = token * dims.stride / 4u + head * QUADS;
    let at_a = token * dims.ab_stride + head * QUADS;
    let at_b = at_a + dims.width / 4u;
    let value = v[token * dims.stride + column];
    var parts = vec4<f32>(0.0);
    //@ for i in QUADS
    parts += ab[at_a + ${i}u] * values[${i}u];
    //@ end
    let removed = dot(parts, vec4<f32>(1.0));
    var sum = vec4<f32>(0.0);
    //@ for i in QUADS
    values[${i}u] = w[at + ${i}u] * values[${i}u] + removed * ab[at_b + ${i}u] + k[at + ${i}u] * value;
    sum += r[at + ${i}u] * values[${i}u];
    //@ end
    y[token * dims.stride + column] = dot(sum, vec4<f32>(1.0));
  }
  //@ for i in QUADS
  set_quad_after(first + ${i}u * 4u * head_dim, head_dim, values[${i}u]);
  //@ end
}
