// Stores k and v of the batch's tokens in the cache of a layer: one invocation for each unit of columns of k, then of v.

struct Dims {
  k_units: u32,
  v_units: u32,
  k_stride: u32,  // in units
  v_stride: u32,
  ring: u32,  // rows of the cache: position p goes to row p modulo that
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> k: array<Unit>;
@group(0) @binding(3) var<storage, read> v: array<Unit>;
@group(0) @binding(4) var<storage, read_write> k_cache: array<KvUnit>;
@group(0) @binding(5) var<storage, read_write> v_cache: array<KvUnit>;

//@ include kv_units.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  if (token >= batch[N_TOKENS]) { return; }
  let row = (batch[FIRST_POSITION] + token) % dims.ring;
  let i = column_of(workgroup) * WORKGROUP + local;
  if (i < dims.k_units) {
    k_cache[row * dims.k_units + i] = pack_unit(k[token * dims.k_stride + i]);
  } else if (i < dims.k_units + dims.v_units) {
    let j = i - dims.k_units;
    v_cache[row * dims.v_units + j] = pack_unit(v[token * dims.v_stride + j]);
  }
}
