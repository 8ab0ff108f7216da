// y = x / sqrt(mean(x²) + eps) * weight over each run of `group` columns: one workgroup for each run.

struct Dims {
  group: u32,
  stride: u32,
  rows_word: u32,
  eps: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

var<workgroup> squares: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  if (workgroup.y >= batch[dims.rows_word]) { return; }
  let first = workgroup.y * dims.stride + column_of(workgroup) * dims.group;
  var sum = 0.0;
  for (var i = local; i < dims.group; i += WORKGROUP) {
    let value = x[first + i];
    sum += value * value;
  }
  squares[local] = sum;
  for (var distance = WORKGROUP / 2u; distance > 0u; distance >>= 1u) {
    workgroupBarrier();
    if (local < distance) { squares[local] += squares[local + distance]; }
  }
  workgroupBarrier();
  let factor = 1.0 / sqrt(squares[0] / f32(dims.group) + dims.eps);
  for (var i = local; i < dims.group; i += WORKGROUP) {
    y[first + i] = x[first + i] * factor * weight[i];
  }
}
