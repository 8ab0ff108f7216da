// The speed of arithmetic (bridge.bench.device_speed): CHAINS independent vec4s, each multiplied and added to over and over.
// What they are multiplied with comes from memory, so that nothing can be computed beforehand, and is near 1, so that
// values stay ordinary numbers.

struct Dims { iterations: u32, factor: f32, summand: f32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let index = column_of(workgroup) * WORKGROUP + local;
  let factor = vec4<f32>(dims.factor);
  let summand = vec4<f32>(dims.summand);
  //@ for i in CHAINS
  var a${i} = vec4<f32>(f32(local + ${i}u));
  //@ end
  for (var i = 0u; i < dims.iterations; i++) {
    //@ for i in CHAINS
    //@ if FUSED
    a${i} = fma(a${i}, factor, summand);
    //@ else
    a${i} = a${i} * factor + summand;
    //@ end
    //@ end
  }
  var sum = vec4<f32>();
  //@ for i in CHAINS
  sum += a${i};
  //@ end
  y[index] = sum;
}
