// q, k and v of a token lie side by side in x. Stores k and v in the cache of a layer and writes q; on the way the heads
// of q and k are normed (NORMED) and then rotated in pairs by the batch's tables of (cos, sin). One workgroup for each
// head.

struct Dims {
  n_head: u32,
  n_head_kv: u32,
  head_dim: u32,
  head_dim_v: u32,
  x_stride: u32,
  q_stride: u32,
  q_pairs: u32,  // rotated, of a head
  k_pairs: u32,
  q_table: u32,  // which of the batch's rope tables
  k_table: u32,
  q_normed: u32,
  k_normed: u32,
  ring: u32,  // rows of the cache: position p goes to row p modulo that
  q_eps: f32,
  k_eps: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> q_norm: array<f32>;
@group(0) @binding(4) var<storage, read> k_norm: array<f32>;
@group(0) @binding(5) var<storage, read_write> q: array<f32>;
@group(0) @binding(6) var<storage, read_write> k_cache: array<KElement>;
@group(0) @binding(7) var<storage, read_write> v_cache: array<VElement>;

//@ include kv_units.wgsl

struct Head {
  at: u32,  // in x
  pairs: u32,
  angles: u32,  // in the batch
  is_key: bool,
  normed: bool,
  factor: f32,
}

//@ if NORMED
var<workgroup> parts: array<f32, WORKGROUP>;

fn sum_of_squares(at: u32, local: u32) -> f32 {
  var part = 0.0;
  for (var i = local; i < dims.head_dim; i += WORKGROUP) { part += x[at + i] * x[at + i]; }
  parts[local] = part;
  for (var distance = WORKGROUP / 2u; distance > 0u; distance >>= 1u) {
    workgroupBarrier();
    if (local < distance) { parts[local] += parts[local + distance]; }
  }
  workgroupBarrier();
  return parts[0];
}
//@ end

fn column(h: Head, i: u32) -> f32 {
  let value = x[h.at + i];
  //@ if NORMED
  if (h.normed) {
    if (h.is_key) { return value * h.factor * k_norm[i]; }
    return value * h.factor * q_norm[i];
  }
  //@ end
  return value;
}

fn rotated(h: Head, i: u32) -> f32 {
  let value = column(h, i);
  if (i >= 2u * h.pairs) { return value; }
  //@ if NEOX
  let is_second = i >= h.pairs;
  let pair = select(i, i - h.pairs, is_second);
  let other = select(i + h.pairs, i - h.pairs, is_second);
  //@ else
  let is_second = (i & 1u) == 1u;
  let pair = i >> 1u;
  let other = i ^ 1u;
  //@ end
  let cosine = bitcast<f32>(batch[h.angles + 2u * pair]);
  let sine = bitcast<f32>(batch[h.angles + 2u * pair + 1u]);
  return value * cosine + select(-sine, sine, is_second) * column(h, other);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  let number = column_of(workgroup);
  let n_rotated = dims.n_head + dims.n_head_kv;
  if (token >= batch[N_TOKENS] || number >= n_rotated + dims.n_head_kv) { return; }
  let cache_row = (batch[FIRST_POSITION] + token) % dims.ring;
  let row = token * dims.x_stride;

  if (number >= n_rotated) {
    let head = number - n_rotated;
    let at = row + n_rotated * dims.head_dim + head * dims.head_dim_v;
    let to = (cache_row * dims.n_head_kv + head) * (dims.head_dim_v / V_GROUP);
    for (var i = local; i < dims.head_dim_v / V_GROUP; i += WORKGROUP) {
      var columns: array<f32, V_GROUP>;
      for (var j = 0u; j < V_GROUP; j++) { columns[j] = x[at + i * V_GROUP + j]; }
      store_v(to + i, &columns);
    }
    return;
  }

  let is_key = number >= dims.n_head;
  let pairs = select(dims.q_pairs, dims.k_pairs, is_key);
  let table = batch[ROPE_TABLES + select(dims.q_table, dims.k_table, is_key)];
  var h = Head(row + number * dims.head_dim, pairs, table + token * pairs * 2u, is_key, false, 1.0);
  //@ if NORMED
  h.normed = select(dims.q_normed, dims.k_normed, is_key) != 0u;
  if (h.normed) {
    let mean = sum_of_squares(h.at, local) / f32(dims.head_dim);
    h.factor = 1.0 / sqrt(mean + select(dims.q_eps, dims.k_eps, is_key));
  }
  //@ end
  if (is_key) {
    let to = (cache_row * dims.n_head_kv + number - dims.n_head) * (dims.head_dim / K_GROUP);
    for (var i = local; i < dims.head_dim / K_GROUP; i += WORKGROUP) {
      var columns: array<f32, K_GROUP>;
      for (var j = 0u; j < K_GROUP; j++) { columns[j] = rotated(h, i * K_GROUP + j); }
      store_k(to + i, &columns);
    }
    return;
  }
  for (var i = local; i < dims.head_dim; i += WORKGROUP) {
    q[token * dims.q_stride + number * dims.head_dim + i] = rotated(h, i);
  }
}
