// y = x / sqrt(mean(x²) + eps) (* weight (+ bias)) (+ residual) over each run of `group` columns, of x - mean(x) if
// CENTRED: one workgroup for each run.

struct Dims {
  group: u32,
  stride: u32,
  rows_word: u32,
  period: u32,  // elements of weight and bias: `group`, or the columns of a row; 0: there is none
  has_bias: u32,
  has_residual: u32,
  eps: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
@group(0) @binding(5) var<storage, read> residual: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<f32>;

var<workgroup> parts: array<f32, WORKGROUP>;

fn sum_of_parts(local: u32, part: f32) -> f32 {
  parts[local] = part;
  for (var distance = WORKGROUP / 2u; distance > 0u; distance >>= 1u) {
    workgroupBarrier();
    if (local < distance) { parts[local] += parts[local + distance]; }
  }
  workgroupBarrier();
  return parts[0];
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  if (workgroup.y >= batch[dims.rows_word]) { return; }
  let column = column_of(workgroup) * dims.group;
  let first = workgroup.y * dims.stride + column;
  var mean = 0.0;
  //@ if CENTRED
  for (var i = local; i < dims.group; i += WORKGROUP) { mean += x[first + i]; }
  mean = sum_of_parts(local, mean) / f32(dims.group);
  workgroupBarrier();  // before the parts are overwritten
  //@ end
  var sum = 0.0;
  for (var i = local; i < dims.group; i += WORKGROUP) {
    let value = x[first + i] - mean;
    sum += value * value;
  }
  let factor = 1.0 / sqrt(sum_of_parts(local, sum) / f32(dims.group) + dims.eps);
  let w = column % max(dims.period, 1u);
  for (var i = local; i < dims.group; i += WORKGROUP) {
    var value = (x[first + i] - mean) * factor;
    if (dims.period != 0u) { value *= weight[w + i]; }
    if (dims.has_bias != 0u) { value += bias[w + i]; }
    if (dims.has_residual != 0u) { value += residual[first + i]; }
    y[first + i] = value;
  }
}
