// Which n_used experts compute for a row, best first, and their weights (bridge/graph/graph.py). One invocation for each row:
// routers are narrow.

struct Dims {
  n_expert: u32,
  n_used: u32,
  x_stride: u32,
  y_stride: u32,
  rows_word: u32,
  normalise: u32,  // divide the weights by their sum
  n_group: u32,
  n_group_used: u32,
  scale: f32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> x: array<f32>;
@group(0) @binding(3) var<storage, read> bias: array<f32>;
@group(0) @binding(4) var<storage, read> scales: array<f32>;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;

const LOWEST: f32 = -3.0e38;
const SMALLEST_SUM: f32 = 6.103515625e-5;

var<private> first: u32;
var<private> highest: f32;  // of the row's logits
var<private> total: f32;    // of e^(logit - highest)

fn probability(i: u32) -> f32 {
  //@ if SIGMOID
  return 1.0 / (1.0 + exp(min(-x[first + i], 87.0)));
  //@ else
  return exp(max(x[first + i] - highest, -87.0)) / total;
  //@ end
}

// What experts are compared by.
fn score(i: u32) -> f32 {
  //@ if BIASED
  return probability(i) + bias[i];
  //@ else
  return x[first + i];  // in the same order as the probabilities
  //@ end
}

//@ if GROUPS
fn worth(group: u32) -> f32 {
  let size = dims.n_expert / dims.n_group;
  var best = LOWEST;
  var second = LOWEST;
  for (var i = group * size; i < (group + 1u) * size; i++) {
    //@ if BIASED
    let value = score(i);
    //@ else
    let value = probability(i);
    //@ end
    second = max(second, min(best, value));
    best = max(best, value);
  }
  return best + second;
}

// A bit for each of the groups that are worth most.
fn groups_used() -> u32 {
  var used = 0u;
  for (var n = 0u; n < dims.n_group_used; n++) {
    var best = LOWEST;
    var best_group = 0u;
    for (var group = 0u; group < dims.n_group; group++) {
      if (((used >> group) & 1u) == 1u) { continue; }
      let value = worth(group);
      if (value > best) {
        best = value;
        best_group = group;
      }
    }
    used |= 1u << best_group;
  }
  return used;
}
//@ end

@compute @workgroup_size(1)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>) {
  if (workgroup.y >= batch[dims.rows_word]) { return; }
  first = workgroup.y * dims.x_stride;
  let to = workgroup.y * dims.y_stride;
  highest = x[first];
  for (var i = 1u; i < dims.n_expert; i++) { highest = max(highest, x[first + i]); }
  total = 0.0;
  for (var i = 0u; i < dims.n_expert; i++) { total += exp(max(x[first + i] - highest, -87.0)); }
  //@ if GROUPS
  let used = groups_used();
  let group_size = dims.n_expert / dims.n_group;
  //@ end

  // Each round takes the largest that comes after the last one taken, in the order (score down, id up).
  var taken = 0.0;
  var taken_id = 0u;
  var chosen = 0.0;
  for (var e = 0u; e < dims.n_used; e++) {
    var best = 0.0;
    var best_id = dims.n_expert;
    for (var i = 0u; i < dims.n_expert; i++) {
      //@ if GROUPS
      if (((used >> (i / group_size)) & 1u) == 0u) { continue; }
      //@ end
      let value = score(i);
      let is_left = e == 0u || value < taken || (value == taken && i > taken_id);
      if (is_left && (best_id == dims.n_expert || value > best)) {
        best = value;
        best_id = i;
      }
    }
    let weight = probability(best_id);
    y[to + e] = f32(best_id);
    y[to + dims.n_used + e] = weight;
    chosen += weight;
    taken = best;
    taken_id = best_id;
  }

  var factor = dims.scale;
  if (dims.normalise != 0u) { factor /= max(chosen, SMALLEST_SUM); }
  for (var e = 0u; e < dims.n_used; e++) {
    let at = to + dims.n_used + e;
    //@ if SCALED
    y[at] = y[at] * factor * scales[u32(y[to + e])];
    //@ else
    y[at] = y[at] * factor;
    //@ end
  }
}
