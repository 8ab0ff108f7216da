// y = x @ weight.T (+ bias) (+ residual), the weight in its block format.
//
// An invocation computes a tile of ROWS weight rows by TOKENS rows of x, so that each group of weights is decoded once
// for all the tokens and each quad of x is loaded once for all the rows. With LANES > 1 that many neighbours share a
// tile: they take neighbouring groups of the rows (coalesced reads) and add up their parts in workgroup memory; with
// LANES 1 there is no barrier, which software adapters need.
//
// With NORM x is rms-normed on the way: since x is a factor of every product, it is multiplied by the norm's weight, and the
// sum of its squares, added up beside the products, gives the factor of the whole row at the end.
// With GATED half of a tile's rows are of the gate and half the same rows of up; y = act(gate) * up.
//
// A weight above the binding limit comes in parts, and several weights may have results side by side: this dispatch has
// columns first_row … first_row + n_out - 1 of y.
// With EXPERTS a row of the grid is one chosen expert of one token, and the weight is [n_expert · rows_per_expert, n_in];
// with HEADS, too, each token has all of them in order.

struct Dims {
  n_in: u32,
  n_out: u32,
  row_bytes: u32,
  first_row: u32,
  x_stride: u32,  // in vec4s
  y_stride: u32,
  residual_stride: u32,
  rows_word: u32,  // which word of the batch holds the number of rows of x
  has_bias: u32,
  has_residual: u32,
  //@ if EXPERTS
  n_used: u32,
  rows_per_expert: u32,
  per_expert: u32,  // whether each chosen expert has its own n_in columns of x
  route_stride: u32,
  //@ end
  //@ if GATED
  up_at: u32,  // bytes from the gate's rows to those of up
  up_bias: u32,  // elements from the gate's bias to that of up
  //@ end
  //@ if NORM
  eps: f32,
  //@ end
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> weight: array<u32>;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read> bias: array<f32>;
//@ if EXPERTS
@group(0) @binding(5) var<storage, read> route: array<f32>;
//@ else
@group(0) @binding(5) var<storage, read> residual: array<f32>;
//@ end
@group(0) @binding(6) var<storage, read_write> y: array<f32>;
//@ if NORM
@group(0) @binding(7) var<storage, read> norm: array<vec4<f32>>;
//@ end

//@ include ${FORMAT}
//@ if GATED
//@ include activations.wgsl
//@ end

//@ if SHARED
//@ if NORM
const SUMS: u32 = (ROWS + 1u) * TOKENS;
//@ else
const SUMS: u32 = ROWS * TOKENS;
//@ end
var<workgroup> parts: array<f32, SUMS * WORKGROUP>;
//@ end

//@ if EXPERTS
// `slot` counts the chosen experts of all tokens: token · n_used + which of them.
fn store(slot: u32, expert: u32, row: u32, value: f32) {
  var sum = value;
  if (dims.has_bias != 0u) { sum += bias[expert * dims.rows_per_expert + row]; }
  y[(slot / dims.n_used) * dims.y_stride + (slot % dims.n_used) * dims.rows_per_expert + row] = sum;
}
//@ else
fn store(token: u32, row: u32, n_tokens: u32, value: f32) {
  if (token >= n_tokens) { return; }
  let column = dims.first_row + row;
  var sum = value;
  if (dims.has_bias != 0u) { sum += bias[column]; }
  if (dims.has_residual != 0u) { sum += residual[token * dims.residual_stride + column]; }
  y[token * dims.y_stride + column] = sum;
}
//@ end

//@ if GATED
fn store_gated(token: u32, row: u32, n_tokens: u32, gate: f32, up: f32) {
  if (token >= n_tokens) { return; }
  let column = dims.first_row + row;
  var values = vec2<f32>(gate, up);
  if (dims.has_bias != 0u) { values += vec2<f32>(bias[column], bias[dims.up_bias + column]); }
  y[token * dims.y_stride + column] = act_${ACT}(vec4<f32>(values.x)).x * values.y;
}
//@ end

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  //@ if EXPERTS
  let slot = workgroup.y;
  if (slot >= batch[dims.rows_word] * dims.n_used) { return; }
  let token = slot / dims.n_used;
  let choice = slot % dims.n_used;
  //@ if HEADS
  let expert = choice;
  //@ else
  let expert = u32(route[token * dims.route_stride + choice]);
  //@ end
  // Rows of this expert within this part of the weight; the subtraction may wrap around, which puts a row past n_out.
  let expert_row = expert * dims.rows_per_expert - dims.first_row;
  let n_rows = dims.rows_per_expert;
  let x0 = token * dims.x_stride + choice * dims.per_expert * (dims.n_in >> 2u);
  //@ else
  let n_tokens = batch[dims.rows_word];
  let token = workgroup.y * TOKENS;
  if (token >= n_tokens) { return; }
  let n_rows = dims.n_out;
  //@ for t in TOKENS
  let x${t} = (token + ${t}u) * dims.x_stride;
  //@ end
  //@ end
  let lane = local % LANES;
  let row = (column_of(workgroup) * (WORKGROUP / LANES) + local / LANES) * OUTS;
  //@ if not SHARED
  if (row >= n_rows) { return; }
  //@ end
  //@ for r in ROWS
  //@ if EXPERTS
  let row${r} = expert_row + row + ${r}u;
  //@ else
  let row${r} = row + ${r}u % OUTS;
  //@ end
  //@ if GATED
  let weight${r} = min(row${r}, dims.n_out - 1u) * dims.row_bytes + (${r}u / OUTS) * dims.up_at;
  //@ else
  let weight${r} = min(row${r}, dims.n_out - 1u) * dims.row_bytes;
  //@ end
  //@ for t in TOKENS
  var sum${r}_${t} = 0.0;
  //@ end
  //@ end
  //@ if NORM
  //@ for t in TOKENS
  var squares${t} = 0.0;
  //@ end
  //@ end

  let n_groups = dims.n_in / GROUP;
  for (var i = lane; i < n_groups; i += LANES) {
    //@ for r in ROWS
    let group${r} = load_group(weight${r}, i);
    //@ for t in TOKENS
    var dot${r}_${t} = 0.0;
    //@ end
    //@ end
    //@ if QUANTISED
    //@ for t in TOKENS
    var total${t} = vec4<f32>(0.0);
    //@ end
    //@ end
    //@ for j in QUADS
    {
      //@ if NORM
      //@ if QUANTISED
      let scales = norm[i * QUADS + ${j}u] * QUAD_SCALES;
      //@ else
      let scales = norm[i * QUADS + ${j}u];
      //@ end
      //@ end
      //@ for t in TOKENS
      //@ if NORM
      let raw${t} = x[x${t} + i * QUADS + ${j}u];
      squares${t} += dot(raw${t}, raw${t});
      let x_quad${t} = raw${t} * scales;
      //@ else
      //@ if QUANTISED
      let x_quad${t} = x[x${t} + i * QUADS + ${j}u] * QUAD_SCALES;
      //@ else
      let x_quad${t} = x[x${t} + i * QUADS + ${j}u];
      //@ end
      //@ end
      //@ if QUANTISED
      total${t} += x_quad${t};
      //@ end
      //@ end
      //@ for r in ROWS
      let w${r} = quad${j}(group${r});
      //@ for t in TOKENS
      dot${r}_${t} += dot(w${r}, x_quad${t});
      //@ end
      //@ end
    }
    //@ end
    //@ for t in TOKENS
    //@ if QUANTISED
    let x_total${t} = dot(total${t}, OFFSET_MASK / QUAD_SCALES);
    //@ end
    //@ for r in ROWS
    //@ if QUANTISED
    sum${r}_${t} += group${r}.scale * dot${r}_${t} + offset_of(group${r}) * x_total${t};
    //@ else
    sum${r}_${t} += dot${r}_${t};
    //@ end
    //@ end
    //@ end
  }

  //@ if not QUANTISED
  // Quads past the last whole group of the row; the last may be half full, and x holds anything there.
  for (var i = n_groups * QUADS + lane; i * 4u < dims.n_in; i += LANES) {
    let half_full = i * 4u + 2u >= dims.n_in;
    //@ for t in TOKENS
    let whole${t} = x[x${t} + i];
    let raw${t} = select(whole${t}, vec4<f32>(whole${t}.xy, 0.0, 0.0), half_full);
    //@ if NORM
    squares${t} += dot(raw${t}, raw${t});
    let x_quad${t} = raw${t} * norm[i];
    //@ else
    let x_quad${t} = raw${t};
    //@ end
    //@ end
    //@ for r in ROWS
    let w${r} = load_tail(weight${r}, i);
    //@ for t in TOKENS
    sum${r}_${t} += dot(w${r}, x_quad${t});
    //@ end
    //@ end
  }
  //@ end

  //@ if SHARED
  //@ for r in ROWS
  //@ for t in TOKENS
  parts[(${r}u * TOKENS + ${t}u) * WORKGROUP + local] = sum${r}_${t};
  //@ end
  //@ end
  //@ if NORM
  //@ for t in TOKENS
  parts[(ROWS * TOKENS + ${t}u) * WORKGROUP + local] = squares${t};
  //@ end
  //@ end
  for (var distance = LANES / 2u; distance > 0u; distance >>= 1u) {
    workgroupBarrier();
    if (lane < distance) {
      for (var i = local; i < SUMS * WORKGROUP; i += WORKGROUP) { parts[i] += parts[i + distance]; }
    }
  }
  // Lane 0 reads only what it wrote itself in the last round.
  if (lane != 0u) { return; }
  //@ for r in ROWS
  //@ for t in TOKENS
  sum${r}_${t} = parts[(${r}u * TOKENS + ${t}u) * WORKGROUP + local];
  //@ end
  //@ end
  //@ if NORM
  //@ for t in TOKENS
  squares${t} = parts[(ROWS * TOKENS + ${t}u) * WORKGROUP + local];
  //@ end
  //@ end
  //@ end
  //@ if NORM
  //@ for t in TOKENS
  let factor${t} = 1.0 / sqrt(squares${t} / f32(dims.n_in) + dims.eps);
  //@ for r in ROWS
  sum${r}_${t} *= factor${t};
  //@ end
  //@ end
  //@ end
  //@ for r in OUTS
  if (row + ${r}u < n_rows && row${r} < dims.n_out) {
    //@ for t in TOKENS
    //@ if EXPERTS
    store(slot, expert, row + ${r}u, sum${r}_${t});
    //@ else
    //@ if GATED
    store_gated(token + ${t}u, row + ${r}u, n_tokens, sum${r}_${t}, sum${r+OUTS}_${t});
    //@ else
    store(token + ${t}u, row + ${r}u, n_tokens, sum${r}_${t});
    //@ end
    //@ end
    //@ end
  }
  //@ end
}
