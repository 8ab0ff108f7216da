// Stores k and v of the batch's tokens in the cache of a layer: one invocation for each pair of columns of k, then of v.

struct Dims {
  k_pairs: u32,
  v_pairs: u32,
  k_stride: u32,  // in pairs
  v_stride: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> k: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read> v: array<vec2<f32>>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<KvPair>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<KvPair>;

//@ include kv_pairs.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  if (token >= batch[0]) { return; }
  let position = batch[FIRST_POSITION] + token;
  let i = column_of(workgroup) * WORKGROUP + local;
  if (i < dims.k_pairs) {
    k_cache[position * dims.k_pairs + i] = pack_pair(k[token * dims.k_stride + i]);
  } else if (i < dims.k_pairs + dims.v_pairs) {
    let j = i - dims.k_pairs;
    v_cache[position * dims.v_pairs + j] = pack_pair(v[token * dims.v_stride + j]);
  }
}
