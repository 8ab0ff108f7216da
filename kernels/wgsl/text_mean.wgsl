// y[o] = the mean of the rows of the text that output o's token is in: one invocation for four columns of an output.

struct Dims { quads: u32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let column = column_of(workgroup) * WORKGROUP + local;
  let output = workgroup.y;
  if (output >= batch[N_OUTPUTS] || column >= dims.quads) { return; }
  let token = batch[batch[OUTPUT_ROWS] + output];
  let begin = text_begin(token);
  let end = text_end(token);
  var sum = vec4<f32>(0.0);
  for (var row = begin; row < end; row++) { sum += x[row * dims.quads + column]; }
  y[output * dims.quads + column] = sum / f32(end - begin);
}
