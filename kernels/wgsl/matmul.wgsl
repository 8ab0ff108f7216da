// y = x @ weight.T (+ bias) (+ residual), the weight in its block format.
//
// An invocation computes a tile of ROWS weight rows by TOKENS rows of x, so that each group of weights is decoded once
// for all the tokens and each quad of x is loaded once for all the rows. With LANES > 1 that many neighbours share a
// tile: they take neighbouring groups of the rows (coalesced reads) and add up their parts in workgroup memory; with
// LANES 1 there is no barrier, which software adapters need. With SUBGROUPS those of one subgroup, of whatever size, add
// up theirs in registers, so that workgroup memory is for tiles of several subgroups only. (That neighbours are in one
// subgroup is not promised by WGSL; where it is not so, the self-test will know.)
//
// With NORM x is rms-normed on the way: since x is a factor of every product, it is multiplied by the norm's weight, and
// the sum of its squares, added up beside the products, gives the factor of the whole row at the end.
// With ACT y = act(x @ weight.T (+ bias)).
// With GATED half of a tile's rows are of the gate and half the same rows of up; y = ACT(gate) * up.
//
// With MIXED there is another weight in another format, whose results lie elsewhere in y; the last workgroups do it.
//
// A weight above the binding limit comes in parts, and several weights may have results side by side: this dispatch has
// columns first_row … first_row + n_out - 1 of y.
// With EXPERTS a row of the grid is one chosen expert of one token, and the weight is [n_expert · rows_per_expert, n_in];
// with HEADS, too, each token has all of them in order.

//@ if SUBGROUPS
enable subgroups;
//@ end

//@ include matmul_ends.wgsl

//@ if SHARED
//@ if NORM
const SUMS: u32 = (ROWS + 1u) * TOKENS;
//@ else
const SUMS: u32 = ROWS * TOKENS;
//@ end
var<workgroup> parts: array<f32, SUMS * WORKGROUP>;
//@ end

//@ if STAGED
const STAGED_QUADS: u32 = 8u;  // of a group, at most
//@ if PACKED
//@ include packed_dot.wgsl
var<workgroup> staged: array<u32, TOKENS * STAGED_QUADS * LANES>;
var<workgroup> staged_scales: array<vec2<f32>, TOKENS * LANES>;  // of each group, and the sum of its elements
//@ else
var<workgroup> staged: array<vec4<f32>, TOKENS * STAGED_QUADS * LANES>;
//@ end
var<workgroup> staged_squares: array<f32, TOKENS * WORKGROUP>;

// Where quad `quad` of the group of a lane is: neighbouring quads, stored at once, and the same quad of neighbouring lanes,
// loaded at once, are in different banks.
fn staged_at(t: u32, quad: u32, lane: u32) -> u32 {
  return (t * STAGED_QUADS + quad) * LANES + (lane ^ (quad % min(LANES, STAGED_QUADS)));
}
//@ end

@compute @workgroup_size(WORKGROUP)
//@ if SUBGROUPS
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32,
        @builtin(subgroup_size) subgroup_size: u32) {
//@ else
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
//@ end
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
  let row_bytes = dims.row_bytes;
  let n_weight_rows = dims.n_out;
  let x0 = token * dims.x_stride + choice * dims.per_expert * (dims.n_in >> 2u);
  //@ else
  let n_tokens = batch[dims.rows_word];
  let token = workgroup.y * TOKENS;
  if (token >= n_tokens) { return; }
  var n_rows = dims.n_out;
  var row_bytes = dims.row_bytes;
  var first_column = dims.first_row;
  //@ for t in TOKENS
  let x${t} = (token + ${t}u) * dims.x_stride;
  //@ end
  //@ end
  let lane = local % LANES;
  var tile = column_of(workgroup) * (WORKGROUP / LANES);
  //@ if MIXED
  let others = ((dims.n_out + OUTS - 1u) / OUTS + WORKGROUP / LANES - 1u) / (WORKGROUP / LANES) * (WORKGROUP / LANES);
  let is_other = tile >= others;
  if (is_other) {
    tile -= others;
    n_rows = dims.other_n_out;
    row_bytes = dims.other_row_bytes;
    first_column = dims.other_first_row;
  }
  //@ end
  let row = (tile + local / LANES) * OUTS;
  //@ if not EXPERTS
  let n_weight_rows = n_rows;
  //@ end
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
  let weight${r} = min(row${r}, n_weight_rows - 1u) * row_bytes + (${r}u / OUTS) * dims.up_at;
  //@ else
  let weight${r} = min(row${r}, n_weight_rows - 1u) * row_bytes;
  //@ end
  //@ for t in TOKENS
  var sum${r}_${t} = 0.0;
  //@ end
  //@ end
  //@ if NORM
  //@ for t in TOKENS
  var squares${t} = 0.0;
  //@ if STAGED
  var staged${t} = 0.0;
  //@ end
  //@ end
  //@ end

  //@ if MIXED
  if (is_other) {
    //@ include ${GROUPS_FILE} as OTHER
  } else {
    //@ include ${GROUPS_FILE}
  }
  //@ else
  //@ include ${GROUPS_FILE}
  //@ end
  //@ if STAGED
  //@ if NORM
  // Each invocation has the squares of what it staged; those of all the workgroup become the tile's.
  //@ for t in TOKENS
  staged_squares[${t}u * WORKGROUP + local] = staged${t};
  //@ end
  workgroupBarrier();
  for (var other = lane; other < WORKGROUP; other += LANES) {
    //@ for t in TOKENS
    squares${t} += staged_squares[${t}u * WORKGROUP + other];
    //@ end
  }
  //@ end
  //@ end

  //@ if SHARED
  //@ include matmul_sum_lanes.wgsl
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
  if (row + ${r}u < n_rows && row${r} < n_weight_rows) {
    //@ for t in TOKENS
    //@ if EXPERTS
    store(slot, expert, row + ${r}u, sum${r}_${t});
    //@ else
    //@ if GATED
    store_gated(token + ${t}u, first_column + row + ${r}u, n_tokens, sum${r}_${t}, sum${r+OUTS}_${t});
    //@ else
    store(token + ${t}u, first_column + row + ${r}u, n_tokens, sum${r}_${t});
    //@ end
    //@ end
    //@ end
  }
  //@ end
}
