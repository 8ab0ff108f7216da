      // The byte offset of a row of the tile; rows past the end stand for the last one.
      let out = min(first_out + tile_row % TILE_OUTS, n_rows - 1u);
      //@ if EXPERTS
      let row_at = min(expert_row + out, n_weight_rows - 1u) * row_bytes;
      //@ else
      //@ if GATED
      let row_at = out * row_bytes + (tile_row / TILE_OUTS) * dims.up_at;
      //@ else
      let row_at = out * row_bytes;
      //@ end
      //@ end
