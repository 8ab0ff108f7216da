// y = x * weight, or x + weight, the weight repeated over the columns of a row: one invocation for each column.

struct Dims {
  width: u32,
  period: u32,  // elements of the weight
  stride: u32,
  rows_word: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> weight: array<f32>;
@group(0) @binding(4) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (workgroup.y >= batch[dims.rows_word] || column >= dims.width) { return; }
  let i = workgroup.y * dims.stride + column;
  //@ if MULTIPLY
  y[i] = x[i] * weight[column % dims.period];
  //@ else
  y[i] = x[i] + weight[column % dims.period];
  //@ end
}
