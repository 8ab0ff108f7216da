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

const TILES: u32 = WORKGROUP / LANES;

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
  let lane = local % LANES;
  let own_tile = local / LANES;
  //@ include matmul_rows.wgsl
  //@ if not SHARED
  if (row >= n_rows) { return; }
  //@ end
  //@ if NORM
  //@ if STAGED
  //@ for t in TOKENS
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
  //@ include matmul_store_rows.wgsl
}
