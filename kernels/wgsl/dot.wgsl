// y[i] = the dot product of the i-th run of `group` columns of a and of b: one invocation for each run.

struct Dims {
  n_out: u32,
  group: u32,
  x_stride: u32,
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
  let first = row * dims.x_stride + column * dims.group;
  var sum = 0.0;
  for (var i = 0u; i < dims.group; i++) { sum += a[first + i] * b[first + i]; }
  y[row * dims.y_stride + column] = sum;
}
