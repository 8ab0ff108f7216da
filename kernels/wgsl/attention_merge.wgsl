// What the workgroups of attention.wgsl found for their shares of the positions (SPLIT), brought together: one workgroup
// for each head of each token.

struct Dims {
  n_head: u32,
  head_dim: u32,
  y_stride: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> partials: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  let head = column_of(workgroup);
  if (token >= batch[N_TOKENS] || head >= dims.n_head) { return; }
  let stride = dims.head_dim + 2u;
  let first = (token * dims.n_head + head) * SPLITS * stride;
  var highest = partials[first + dims.head_dim];
  for (var i = 1u; i < SPLITS; i++) { highest = max(highest, partials[first + i * stride + dims.head_dim]); }
  // A share without positions has a total and sums of 0.
  var total = 0.0;
  for (var i = 0u; i < SPLITS; i++) {
    let at = first + i * stride + dims.head_dim;
    total += partials[at + 1u] * exp(max(partials[at] - highest, -87.0));
  }
  for (var column = local; column < dims.head_dim; column += WORKGROUP) {
    var sum = 0.0;
    for (var i = 0u; i < SPLITS; i++) {
      let at = first + i * stride;
      sum += partials[at + column] * exp(max(partials[at + dims.head_dim] - highest, -87.0));
    }
    y[token * dims.y_stride + head * dims.head_dim + column] = sum / total;
  }
}
