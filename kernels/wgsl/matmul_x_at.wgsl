      // Where the row of x begins that a row of the tile has; rows past the end stand for the last one.
      //@ if EXPERTS
      let slot = groups[first_token + min(tile_token, n_in_tile - 1u)];
      let x_row = slot / dims.n_used * dims.x_stride + slot % dims.n_used * dims.per_expert * (dims.n_in >> 2u);
      //@ else
      let x_row = min(first_token + tile_token, n_tokens - 1u) * dims.x_stride;
      //@ end
