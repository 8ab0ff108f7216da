// The selective scan of Mamba (Gu & Dao, arXiv 2312.00752) and Mamba 2 (Dao & Gu, arXiv 2405.21060): one invocation for
// each column of x, which goes through all tokens with QUADS times four elements of its state, and so on, adding to y.

struct Dims {
  width: u32,
  head_dim: u32,
  heads_per_group: u32,
  n_group: u32,
  state_quads: u32,  // of a column, a multiple of QUADS
  x_stride: u32,
  dt_stride: u32,
  bc_stride: u32,  // in vec4s
  state_width: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> dt: array<f32>;
@group(0) @binding(4) var<storage, read> bc: array<vec4<f32>>;
//@ if SCALAR_DECAY
@group(0) @binding(5) var<storage, read> decay: array<f32>;
//@ else
@group(0) @binding(5) var<storage, read> decay: array<vec4<f32>>;
//@ end
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
  let first_b = (head / dims.heads_per_group) * dims.state_quads;
  let first_c = first_b + dims.n_group * dims.state_quads;
  let end = batch[N_TOKENS];
  var values: array<vec4<f32>, QUADS>;  // indices are constants, so that it can be in registers
  for (var block = 0u; block < dims.state_quads; block += QUADS) {
    let first = block * 4u * dims.width + column;
    //@ for i in QUADS
    values[${i}u] = quad_before(first + ${i}u * 4u * dims.width, dims.width);
    //@ end
    for (var token = 0u; token < end; token++) {
      let at = token * dims.x_stride + column;
      let step = act_softplus(vec4<f32>(dt[token * dims.dt_stride + head])).x;
      let stepped = step * x[at];
      let b = token * dims.bc_stride + first_b + block;
      let c = token * dims.bc_stride + first_c + block;
      var sum = vec4<f32>(0.0);
      //@ if SCALAR_DECAY
      let kept = act_exp(vec4<f32>(step * decay[head])).x;
      //@ end
      //@ for i in QUADS
      //@ if SCALAR_DECAY
      values[${i}u] = kept * values[${i}u] + stepped * bc[b + ${i}u];
      //@ else
      let kept${i} = act_exp(step * decay[head * dims.state_quads + block + ${i}u]);
      values[${i}u] = kept${i} * values[${i}u] + stepped * bc[b + ${i}u];
      //@ end
      sum += bc[c + ${i}u] * values[${i}u];
      //@ end
      let part = dot(sum, vec4<f32>(1.0));
      if (block == 0u) { y[at] = skip[head] * x[at] + part; } else { y[at] += part; }
    }
    //@ for i in QUADS
    set_quad_after(first + ${i}u * 4u * dims.width, dims.width, values[${i}u]);
    //@ end
  }
}
