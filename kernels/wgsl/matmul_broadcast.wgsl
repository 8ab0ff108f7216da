// y = x @ weight.T as in matmul.wgsl, which explains the flags, for software adapters with subgroups.
//
// There an invocation is a lane of a SIMD register, and a load costs as much as a dozen multiplications: it is done lane by
// lane, even if all lanes read the same element. So LANES neighbours load one quad of x each, which makes a span of columns
// in few loads, and broadcast them to each other; with SWAPS four do so by swaps in pairs, and then of pairs, which are
// shuffles of a register where SwiftShader computes a broadcast. Apart from that an invocation works for itself, on a tile of
// ROWS weight rows by TOKENS rows of x; it goes on to the end though its rows may be past the last, since others need what
// it loads.

enable subgroups;

//@ include matmul_ends.wgsl

const SPAN_QUADS: u32 = 8u;  // a whole number of groups of every quantised format, and of LANES

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32,
        @builtin(subgroup_invocation_id) subgroup_lane: u32) {
  let lane = subgroup_lane % LANES;
  //@ if SWAPS
  let is_odd = (lane & 1u) != 0u;
  let is_upper = (lane & 2u) != 0u;
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
  var tile = column_of(workgroup) * WORKGROUP;
  //@ if MIXED
  let others = ((dims.n_out + OUTS - 1u) / OUTS + WORKGROUP - 1u) / WORKGROUP * WORKGROUP;
  let is_other = tile >= others;
  if (is_other) {
    tile -= others;
    n_rows = dims.other_n_out;
    row_bytes = dims.other_row_bytes;
    first_column = dims.other_first_row;
  }
  //@ end
  let row = (tile + local) * OUTS;
  //@ if not EXPERTS
  let n_weight_rows = n_rows;
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
  //@ end
  //@ end

  //@ if MIXED
  if (is_other) {
    //@ include matmul_spans.wgsl as OTHER
  } else {
    //@ include matmul_spans.wgsl
  }
  //@ else
  //@ include matmul_spans.wgsl
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
