// Run o of y is the sum over i of c[o · n_in + i] times run i of x: one invocation for each column of y.

struct Dims {
  width: u32,
  n_in: u32,
  run: u32,
  x_stride: u32,
  c_stride: u32,
  y_stride: u32,
  rows_word: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> c: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let row = workgroup.y;
  let column = column_of(workgroup) * WORKGROUP + local;
  if (row >= batch[dims.rows_word] || column >= dims.width) { return; }
  let factors = row * dims.c_stride + column / dims.run * dims.n_in;
  let first = row * dims.x_stride + column % dims.run;
  var sum = 0.0;
  for (var i = 0u; i < dims.n_in; i++) { sum += c[factors + i] * x[first + i * dims.run]; }
  y[row * dims.y_stride + column] = sum;
}
