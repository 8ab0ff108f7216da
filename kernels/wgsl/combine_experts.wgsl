// y[i] = sum over the chosen experts e of x[e · width + i] * weight of e: one invocation for each column.

struct Dims {
  width: u32,
  n_used: u32,
  x_stride: u32,
  y_stride: u32,
  route_stride: u32,
  rows_word: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> route: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  let column = column_of(workgroup) * WORKGROUP + local;
  if (token >= batch[dims.rows_word] || column >= dims.width) { return; }
  var sum = 0.0;
  for (var e = 0u; e < dims.n_used; e++) {
    sum += route[token * dims.route_stride + dims.n_used + e] * x[token * dims.x_stride + e * dims.width + column];
  }
  y[token * dims.y_stride + column] = sum;
}
