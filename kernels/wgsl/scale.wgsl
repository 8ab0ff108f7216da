// y = scale * x + offset, four columns to an invocation.

struct Dims { quads: u32, rows_word: u32, scale: f32, offset: f32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  if (workgroup.y >= batch[dims.rows_word] || column >= dims.quads) { return; }
  let i = workgroup.y * dims.quads + column;
  y[i] = dims.scale * x[i] + dims.offset;
}
