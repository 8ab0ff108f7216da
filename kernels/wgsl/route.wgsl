// The n_used experts with the largest router logits of each row, largest first (ties to the lower id), then their softmax
// probabilities over all experts. One invocation for each row: routers are narrow.

struct Dims {
  n_expert: u32,
  n_used: u32,
  x_stride: u32,
  y_stride: u32,
  rows_word: u32,
  normalise: u32,  // divide the weights by their sum
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read_write> y: array<f32>;

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) {
  if (workgroup.y >= batch[dims.rows_word]) { return; }
  let first = workgroup.y * dims.x_stride;
  let to = workgroup.y * dims.y_stride;
  var highest = x[first];
  for (var i = 1u; i < dims.n_expert; i++) { highest = max(highest, x[first + i]); }

  // Each round takes the largest that comes after the last one taken, in the order (logit down, id up).
  var taken = highest;
  var taken_id = 0u;
  var chosen = 0.0;
  for (var e = 0u; e < dims.n_used; e++) {
    var best = 0.0;
    var best_id = dims.n_expert;
    for (var i = 0u; i < dims.n_expert; i++) {
      let value = x[first + i];
      let is_left = e == 0u || value < taken || (value == taken && i > taken_id);
      if (is_left && (best_id == dims.n_expert || value > best)) {
        best = value;
        best_id = i;
      }
    }
    let weight = exp(max(best - highest, -87.0));
    y[to + e] = f32(best_id);
    y[to + dims.n_used + e] = weight;
    chosen += weight;
    taken = best;
    taken_id = best_id;
  }

  var total = chosen;
  if (dims.normalise == 0u) {
    total = 0.0;
    for (var i = 0u; i < dims.n_expert; i++) { total += exp(max(x[first + i] - highest, -87.0)); }
  }
  for (var e = 0u; e < dims.n_used; e++) { y[to + dims.n_used + e] = y[to + dims.n_used + e] / total; }
}
