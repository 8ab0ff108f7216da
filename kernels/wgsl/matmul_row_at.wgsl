      // The byte offset of a row of the tile; rows past the end stand for the last one.
      let out = min(first_out + tile_row % TILE_OUTS, n_rows - 1u);
      //@ if GATED
      let row_at = out * row_bytes + (tile_row / TILE_OUTS) * dims.up_at;
      //@ else
      let row_at = out * row_bytes;
      //@ end
