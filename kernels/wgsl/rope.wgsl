// y = x with the first n_rot columns of every head rotated in pairs by the batch's table of (cos, sin).
// One invocation for each pair of columns of a row; pairs past n_rot are copied.

struct Dims {
  pairs_per_head: u32,
  pairs_rotated: u32,
  pairs_per_row: u32,
  stride: u32,
  table: u32,  // which of the batch's rope tables
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  let pair = column_of(workgroup) * WORKGROUP + local;
  if (token >= batch[N_TOKENS] || pair >= dims.pairs_per_row) { return; }
  let i = pair % dims.pairs_per_head;
  let head = token * dims.stride + (pair - i) * 2u;
  if (i >= dims.pairs_rotated) {
    y[head + 2u * i] = x[head + 2u * i];
    y[head + 2u * i + 1u] = x[head + 2u * i + 1u];
    return;
  }
  let entry = batch[ROPE_TABLES + dims.table] + (token * dims.pairs_rotated + i) * 2u;
  let cosine = bitcast<f32>(batch[entry]);
  let sine = bitcast<f32>(batch[entry + 1u]);
  //@ if NEOX
  let first = head + i;
  let second = first + dims.pairs_rotated;
  //@ else
  let first = head + 2u * i;
  let second = first + 1u;
  //@ end
  let a = x[first];
  let b = x[second];
  y[first] = a * cosine - b * sine;
  y[second] = a * sine + b * cosine;
}
