// y[t] = scale * weight[token id of t, or its position, or 0], decoded: one invocation for each group of a row, and for each
// quad of its tail.
// A weight in parts is written by the part that holds the row.

struct Dims {
  n_in: u32,
  n_out: u32,
  row_bytes: u32,
  first_row: u32,
  y_stride: u32,  // in vec4s
  scale: f32,
  rows_of: u32,
}

const OF_TOKENS: u32 = 0u;
const OF_POSITIONS: u32 = 1u;  // otherwise the first row

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

//@ include ${FORMAT}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  if (token >= batch[N_TOKENS]) { return; }
  var row = 0u;
  if (dims.rows_of == OF_TOKENS) { row = batch[batch[TOKEN_IDS] + token]; }
  if (dims.rows_of == OF_POSITIONS) { row = batch[FIRST_POSITION] + token - text_begin(token); }
  row -= dims.first_row;
  if (row >= dims.n_out) { return; }
  let at = row * dims.row_bytes;
  let to = token * dims.y_stride;
  let i = column_of(workgroup) * WORKGROUP + local;
  let n_groups = dims.n_in / GROUP;
  if (i < n_groups) {
    let group = load_group(at, i);
    //@ if QUANTISED
    let scale = dims.scale * group.scale * QUAD_SCALES;
    let offset = dims.scale * offset_of(group) * OFFSET_MASK;
    //@ for j in QUADS
    y[to + i * QUADS + ${j}u] = scale * quad${j}(group) + offset;
    //@ end
    //@ else
    //@ for j in QUADS
    y[to + i * QUADS + ${j}u] = dims.scale * quad${j}(group);
    //@ end
    //@ end
  }
  //@ if not QUANTISED
  if (i >= n_groups) {
    let quad = n_groups * QUADS + i - n_groups;
    if (quad * 4u < dims.n_in) { y[to + quad] = dims.scale * load_tail(at, quad); }
  }
  //@ end
}
