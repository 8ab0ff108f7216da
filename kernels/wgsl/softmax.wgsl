// y = e^x / sum(e^x) of each row: for the few columns of a classifier, one invocation to a row.

struct Dims { width: u32, stride: u32, rows_word: u32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  if (workgroup.y >= batch[dims.rows_word] || column_of(workgroup) * WORKGROUP + local != 0u) { return; }
  let row = workgroup.y * dims.stride;
  var most = x[row];
  for (var i = 1u; i < dims.width; i++) { most = max(most, x[row + i]); }
  var total = 0.0;
  for (var i = 0u; i < dims.width; i++) {
    let power = exp(max(x[row + i] - most, -87.0));
    y[row + i] = power;
    total += power;
  }
  for (var i = 0u; i < dims.width; i++) { y[row + i] /= total; }
}
