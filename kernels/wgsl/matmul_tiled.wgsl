// y = x @ weight.T as in matmul.wgsl (without NORM and HEADS), for prompts on hardware.
//
// A workgroup computes TILE_ROWS weight rows by TOKENS rows of x. It brings a block of 32 columns of both to workgroup
// memory, where each weight is decoded once for all the tokens, and multiplies them there: an invocation has ROWS weight
// rows, ROW_STEP apart, and COLUMNS rows of x, TOKEN_STEP apart, so that what it loads is used several times and
// neighbours load, and store, neighbouring rows.
//
// With SCALED the blocks are multiplied in a narrower type (matmul_scaled_blocks.wgsl), else in floats.
// With GATED the first half of the tile's rows are of the gate, the second half the same rows of up.
// With EXPERTS a tile's rows of x are slots that chose the same expert, as group_experts.wgsl found them.

//@ if F16
enable f16;
//@ end

//@ include matmul_ends.wgsl

const BLOCK: u32 = 32u;
const BLOCK_QUADS: u32 = 8u;
const TOKEN_STEP: u32 = TOKENS / COLUMNS;  // both steps are multiples of 8
const ROW_STEP: u32 = WORKGROUP / TOKEN_STEP;
const TILE_ROWS: u32 = ROW_STEP * ROWS;
const TILE_OUTS: u32 = ROW_STEP * OUTS;

//@ if SCALED
//@ if INT8
const LARGEST: f32 = 127.0;
var<workgroup> weight_tile: array<vec4<u32>, BLOCKS * 2u * TILE_ROWS>;
var<workgroup> x_tile: array<vec4<u32>, BLOCKS * 2u * TOKENS>;
//@ else
const LARGEST: f32 = 0.125;
var<workgroup> weight_tile: array<vec4<f16>, BLOCKS * BLOCK_QUADS * TILE_ROWS>;
var<workgroup> x_tile: array<vec4<f16>, BLOCKS * BLOCK_QUADS * TOKENS>;
//@ end
var<workgroup> weight_scales: array<vec2<f32>, BLOCKS * 2u * TILE_ROWS>;  // scale and offset of each group
var<workgroup> x_scales: array<f32, BLOCKS * TOKENS>;
var<workgroup> x_sums: array<vec2<f32>, BLOCKS * TOKENS>;  // of each half of a block
//@ else
var<workgroup> weight_tile: array<vec4<f32>, BLOCK_QUADS * TILE_ROWS>;
var<workgroup> x_tile: array<vec4<f32>, BLOCK_QUADS * TOKENS>;
//@ end

// Where quad `quad` of a tile's row is, in tiles of n rows: neighbouring rows and neighbouring quads of a row are in
// different banks, since both are stored, or loaded, at once.
fn place_of(quad: u32, row: u32, n: u32) -> u32 { return quad * n + (row ^ (quad % BLOCK_QUADS)); }

//@ if SCALED
//@ if INT8
//@ include packed_dot.wgsl
//@ else
fn sum_of(v: vec4<f16>) -> f32 {
  let floats = vec4<f32>(v);
  return (floats.x + floats.y) + (floats.z + floats.w);
}
//@ end
//@ else
fn plus_dot(sum: f32, a: vec4<f32>, b: vec4<f32>) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
//@ end

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  //@ if EXPERTS
  let n_slots = batch[dims.rows_word] * dims.n_used;
  if (workgroup.y >= groups[n_slots]) { return; }
  let entry = n_slots + 1u + 3u * workgroup.y;
  let expert = groups[entry];
  let first_token = groups[entry + 1u];
  let n_in_tile = groups[entry + 2u];
  // See matmul.wgsl.
  let expert_row = expert * dims.rows_per_expert - dims.first_row;
  let n_weight_rows = dims.n_out;
  var n_rows = dims.rows_per_expert;
  //@ else
  let n_tokens = batch[dims.rows_word];
  let first_token = workgroup.y * TOKENS;
  if (first_token >= n_tokens) { return; }
  var n_rows = dims.n_out;
  //@ end
  var tile = column_of(workgroup);
  var row_bytes = dims.row_bytes;
  var first_column = dims.first_row;
  //@ if MIXED
  let others = (dims.n_out + TILE_OUTS - 1u) / TILE_OUTS;
  let is_other = tile >= others;
  if (is_other) {
    tile -= others;
    n_rows = dims.other_n_out;
    row_bytes = dims.other_row_bytes;
    first_column = dims.other_first_row;
  }
  //@ end
  let first_out = tile * TILE_OUTS;
  let row = local % ROW_STEP;
  let token = local / ROW_STEP;
  //@ for r in ROWS
  //@ for c in COLUMNS
  var sum${r}_${c} = 0.0;
  //@ end
  //@ end

  //@ if MIXED
  if (is_other) {
    //@ include ${BLOCKS_FILE} as OTHER
  } else {
    //@ include ${BLOCKS_FILE}
  }
  //@ else
  //@ include ${BLOCKS_FILE}
  //@ end

  //@ if EXPERTS
  //@ for c in COLUMNS
  if (token + ${c}u * TOKEN_STEP < n_in_tile) {
    let slot = groups[first_token + token + ${c}u * TOKEN_STEP];
    //@ for r in ROWS
    let out${r} = first_out + row + ${r}u * ROW_STEP;
    if (out${r} < n_rows && expert_row + out${r} < n_weight_rows) { store(slot, expert, out${r}, sum${r}_${c}); }
    //@ end
  }
  //@ end
  //@ else
  //@ for r in OUTS
  if (first_out + row + ${r}u * ROW_STEP < n_rows) {
    let column = first_column + first_out + row + ${r}u * ROW_STEP;
    //@ for c in COLUMNS
    //@ if GATED
    store_gated(first_token + token + ${c}u * TOKEN_STEP, column, n_tokens, sum${r}_${c}, sum${r+OUTS}_${c});
    //@ else
    store(first_token + token + ${c}u * TOKEN_STEP, column, n_tokens, sum${r}_${c});
    //@ end
    //@ end
  }
  //@ end
  //@ end
}
