// Stores k and v of the batch's tokens in the cache of a layer: one invocation for each group of columns of k, then of v.

struct Dims {
  k_groups: u32,
  v_groups: u32,
  k_stride: u32,
  v_stride: u32,
  ring: u32,  // rows of the cache: position p goes to row p modulo that
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> k: array<f32>;
@group(0) @binding(3) var<storage, read> v: array<f32>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<KElement>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<VElement>;

//@ include kv_units.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  if (token >= batch[N_TOKENS]) { return; }
  let row = (batch[FIRST_POSITION] + token) % dims.ring;
  let i = column_of(workgroup) * WORKGROUP + local;
  if (i < dims.k_groups) {
    var columns: array<f32, K_GROUP>;
    for (var j = 0u; j < K_GROUP; j++) { columns[j] = k[token * dims.k_stride + i * K_GROUP + j]; }
    store_k(row * dims.k_groups + i, &columns);
  } else if (i < dims.k_groups + dims.v_groups) {
    let group = i - dims.k_groups;
    var columns: array<f32, V_GROUP>;
    for (var j = 0u; j < V_GROUP; j++) { columns[j] = v[token * dims.v_stride + group * V_GROUP + j]; }
    store_v(row * dims.v_groups + group, &columns);
  }
}
