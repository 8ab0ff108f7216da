// y[i] = a[i] * b[i / run]: each column of b multiplies a run of columns of a. One invocation for each column.

struct Dims {
  width: u32,
  run: u32,
  a_stride: u32,
  b_stride: u32,
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
  if (row >= batch[dims.rows_word] || column >= dims.width) { return; }
  y[row * dims.a_stride + column] = a[row * dims.a_stride + column] * b[row * dims.b_stride + column / dims.run];
}
