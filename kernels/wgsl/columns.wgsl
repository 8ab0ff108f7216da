// `count` columns from `first` on of every run of `group` columns of x, side by side: one invocation for each.

struct Dims {
  n_out: u32,
  first: u32,
  count: u32,
  group: u32,
  x_stride: u32,
  y_stride: u32,
  rows_word: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = workgroup.y;
  let column = column_of(workgroup) * WORKGROUP + local;
  if (row >= batch[dims.rows_word] || column >= dims.n_out) { return; }
  let source = (column / dims.count) * dims.group + dims.first + column % dims.count;
  y[row * dims.y_stride + column] = x[row * dims.x_stride + source];
}
