  // The beginning of matmul.wgsl and matmul_broadcast.wgsl: which rows of weights and of x this invocation's tile has.
  // `own_tile` is which of the workgroup's TILES it is.
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
  var tile = column_of(workgroup) * TILES;
  //@ if MIXED
  let others = ((dims.n_out + OUTS - 1u) / OUTS + TILES - 1u) / TILES * TILES;
  let is_other = tile >= others;
  if (is_other) {
    tile -= others;
    n_rows = dims.other_n_out;
    row_bytes = dims.other_row_bytes;
    first_column = dims.other_first_row;
  }
  //@ end
  let row = (tile + own_tile) * OUTS;
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
