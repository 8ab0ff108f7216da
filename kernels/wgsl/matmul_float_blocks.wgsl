// The loop of matmul_tiled.wgsl over blocks of columns, in floats, which adds to sum…_….
  for (var block = 0u; block * BLOCK < dims.n_in; block++) {
    //@ if QUANTISED
    for (var job = local; job < TILE_ROWS * (BLOCK / GROUP); job += WORKGROUP) {
      let tile_row = job % TILE_ROWS;
      let part = job / TILE_ROWS;
      //@ include matmul_row_at.wgsl
      let group = load_group(row_at, block * (BLOCK / GROUP) + part);
      let scale = group.scale * QUAD_SCALES;
      let offset = offset_of(group) * OFFSET_MASK;
      //@ for j in QUADS
      weight_tile[place_of(part * QUADS + ${j}u, tile_row, TILE_ROWS)] = scale * quad${j}(group) + offset;
      //@ end
    }
    //@ else
    for (var job = local; job < TILE_ROWS * BLOCK_QUADS; job += WORKGROUP) {
      let tile_row = job / BLOCK_QUADS;
      let quad = job % BLOCK_QUADS;
      //@ include matmul_row_at.wgsl
      let i = block * BLOCK_QUADS + quad;
      var elements = vec4<f32>(0.0);
      if (i * 4u < dims.n_in) { elements = load_tail(row_at, i); }
      weight_tile[place_of(quad, tile_row, TILE_ROWS)] = elements;
    }
    //@ end
    for (var job = local; job < TOKENS * BLOCK_QUADS; job += WORKGROUP) {
      let tile_token = job / BLOCK_QUADS;
      let quad = job % BLOCK_QUADS;
      let i = block * BLOCK_QUADS + quad;
      //@ include matmul_x_at.wgsl
      let at = x_row + i;
      //@ if QUANTISED
      x_tile[place_of(quad, tile_token, TOKENS)] = x[at];
      //@ else
      // The last quad may be half full, and past the row x holds anything.
      var elements = vec4<f32>(0.0);
      if (i * 4u < dims.n_in) { elements = x[at]; }
      if (i * 4u + 2u >= dims.n_in) { elements = vec4<f32>(elements.xy, 0.0, 0.0); }
      x_tile[place_of(quad, tile_token, TOKENS)] = elements;
      //@ end
    }
    workgroupBarrier();
    for (var quad = 0u; quad < BLOCK_QUADS; quad++) {
      let weight_at = place_of(quad, row, TILE_ROWS);
      let x_at = place_of(quad, token, TOKENS);
      //@ for c in COLUMNS
      let x${c} = x_tile[x_at + ${c}u * TOKEN_STEP];
      //@ end
      //@ for r in ROWS
      let w${r} = weight_tile[weight_at + ${r}u * ROW_STEP];
      //@ for c in COLUMNS
      sum${r}_${c} = plus_dot(sum${r}_${c}, w${r}, x${c});
      //@ end
      //@ end
    }
    workgroupBarrier();
  }
