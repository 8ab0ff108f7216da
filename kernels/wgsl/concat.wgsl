// For each head its columns of a, then its columns of b: one invocation for each column.

struct Dims {
  n_out: u32,
  a_width: u32,  // of a head
  b_width: u32,
  b_step: u32,  // from one head's columns of b to the next head's: b_width, or 0 where all share them
  a_stride: u32,
  b_stride: u32,
  y_stride: u32,
  rows_word: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> a: array<f32>;
@group(0) @binding(3) var<storage, read> b: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = workgroup.y;
  let column = column_of(workgroup) * WORKGROUP + local;
  if (row >= batch[dims.rows_word] || column >= dims.n_out) { return; }
  let head = column / (dims.a_width + dims.b_width);
  let i = column % (dims.a_width + dims.b_width);
  var value: f32;
  if (i < dims.a_width) {
    value = a[row * dims.a_stride + head * dims.a_width + i];
  } else {
    value = b[row * dims.b_stride + head * dims.b_step + i - dims.a_width];
  }
  y[row * dims.y_stride + column] = value;
}
