// The speed of memory (bridge.bench.device_speed): each workgroup copies ITEMS runs of WORKGROUP vec4s that follow each other.

struct Dims { quads: u32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = column_of(workgroup) * WORKGROUP * ITEMS + local;
  //@ for i in ITEMS
  let at${i} = first + ${i}u * WORKGROUP;
  if (at${i} < dims.quads) { y[at${i}] = x[at${i}]; }
  //@ end
}
