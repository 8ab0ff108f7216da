// The loop of matmul_tiled.wgsl over blocks of columns in a narrower type, which adds to sum…_….
//
// Elements of a quantised weight are the integers that its groups hold; their scale and offset are applied to the sum of
// products of a group. Each block of x has a scale of its own, the largest element: with INT8 the elements become
// multiples of 1/127 of it (as in llama.cpp's Q8), else halves up to 1/8, so that eight products of the largest halves
// are one. The offset is multiplied with the sum of the rounded elements.
  for (var first_block = 0u; first_block * BLOCK < dims.n_in; first_block += BLOCKS) {
    //@ if QUANTISED
    for (var job = local; job < TILE_ROWS * (BLOCK / GROUP) * BLOCKS; job += WORKGROUP) {
      let tile_row = job % TILE_ROWS;
      let part = job / TILE_ROWS;
      //@ include matmul_row_at.wgsl
      let i = first_block * (BLOCK / GROUP) + part;
      if (i * GROUP < dims.n_in) {
        let group = load_group(row_at, i);
        weight_scales[part * TILE_ROWS + tile_row] = vec2<f32>(group.scale, plain_offset(group));
        //@ if INT8
        weight_tile[part * (GROUP / 16u) * TILE_ROWS + tile_row] = group.low;
        //@ if GROUP_OF_32
        weight_tile[(part * 2u + 1u) * TILE_ROWS + tile_row] = group.high;
        //@ end
        //@ else
        //@ for j in QUADS
        weight_tile[place_of(part * QUADS + ${j}u, tile_row, TILE_ROWS)] = vec4<f16>(plain(quad${j}(group)));
        //@ end
        //@ end
      } else {
        weight_scales[part * TILE_ROWS + tile_row] = vec2<f32>(0.0);
      }
    }
    //@ else
    for (var job = local; job < TILE_ROWS * BLOCK_QUADS * BLOCKS; job += WORKGROUP) {
      let tile_row = job / (BLOCK_QUADS * BLOCKS);
      let quad = job % (BLOCK_QUADS * BLOCKS);
      //@ include matmul_row_at.wgsl
      let i = first_block * BLOCK_QUADS + quad;
      var elements = vec4<f32>(0.0);
      if (i * 4u < dims.n_in) { elements = load_tail(row_at, i); }
      weight_tile[place_of(quad, tile_row, TILE_ROWS)] = vec4<f16>(elements);
    }
    //@ end
    for (var job = local; job < TOKENS * BLOCKS; job += WORKGROUP) {
      let tile_token = job % TOKENS;
      let block = job / TOKENS;
      let first = (first_block + block) * BLOCK_QUADS;
      //@ include matmul_x_at.wgsl
      let at = x_row + first;
      //@ for j in 8
      var x${j} = vec4<f32>(0.0);
      if ((first + ${j}u) * 4u < dims.n_in) { x${j} = x[at + ${j}u]; }
      //@ if not QUANTISED
      if ((first + ${j}u) * 4u + 2u >= dims.n_in) { x${j} = vec4<f32>(x${j}.xy, 0.0, 0.0); }  // half a quad, or 0 anyway
      //@ end
      //@ end
      let most_low = max(max(abs(x0), abs(x1)), max(abs(x2), abs(x3)));
      let most4 = max(most_low, max(max(abs(x4), abs(x5)), max(abs(x6), abs(x7))));
      let scale = max(max(most4.x, most4.y), max(most4.z, most4.w)) / LARGEST;
      // The inverse of a subnormal scale would be infinite.
      let inverse = select(0.0, 1.0 / scale, scale > 1e-30);
      x_scales[block * TOKENS + tile_token] = scale;
      //@ if INT8
      //@ for j in 8
      let word${j} = pack4xI8(vec4<i32>(round(x${j} * inverse)));
      //@ end
      let low = vec4<u32>(word0, word1, word2, word3);
      let high = vec4<u32>(word4, word5, word6, word7);
      x_tile[block * 2u * TOKENS + tile_token] = low;
      x_tile[(block * 2u + 1u) * TOKENS + tile_token] = high;
      let ones = vec4<u32>(0x01010101u);
      x_sums[block * TOKENS + tile_token] = scale * vec2<f32>(vec2<i32>(dot_sixteen(low, ones), dot_sixteen(high, ones)));
      //@ else
      //@ for j in 8
      let half${j} = vec4<f16>(x${j} * inverse);
      x_tile[place_of(block * BLOCK_QUADS + ${j}u, tile_token, TOKENS)] = half${j};
      let rounded${j} = vec4<f32>(half${j});
      //@ end
      let ones = vec4<f32>(1.0);
      x_sums[block * TOKENS + tile_token] = scale * vec2<f32>(dot((rounded0 + rounded1) + (rounded2 + rounded3), ones),
                                                              dot((rounded4 + rounded5) + (rounded6 + rounded7), ones));
      //@ end
    }
    workgroupBarrier();
    for (var block = 0u; block < BLOCKS; block++) {
      //@ for c in COLUMNS
      let x_scale${c} = x_scales[block * TOKENS + token + ${c}u * TOKEN_STEP];
      let x_sums${c} = x_sums[block * TOKENS + token + ${c}u * TOKEN_STEP];
      //@ end
      //@ if QUANTISED
      for (var part = 0u; part < BLOCK / GROUP; part++) {
      //@ else
      {
      //@ end
        //@ for r in ROWS
        //@ if QUANTISED
        let scales${r} = weight_scales[(block * (BLOCK / GROUP) + part) * TILE_ROWS + row + ${r}u * ROW_STEP];
        //@ end
        //@ for c in COLUMNS
        //@ if INT8
        var dot${r}_${c} = 0i;
        //@ else
        var dots${r}_${c} = vec4<f16>(0.0h);
        //@ end
        //@ end
        //@ end
        //@ if INT8
        for (var i = part * (GROUP / 16u); i < (part + 1u) * (GROUP / 16u); i++) {
          //@ for c in COLUMNS
          let x${c} = x_tile[(block * 2u + i) * TOKENS + token + ${c}u * TOKEN_STEP];
          //@ end
          //@ for r in ROWS
          let w${r} = weight_tile[(block * 2u + i) * TILE_ROWS + row + ${r}u * ROW_STEP];
          //@ for c in COLUMNS
          dot${r}_${c} += dot_sixteen(w${r}, x${c});
          //@ end
          //@ end
        }
        //@ else
        //@ if QUANTISED
        for (var quad = block * BLOCK_QUADS + part * QUADS; quad < block * BLOCK_QUADS + (part + 1u) * QUADS; quad++) {
        //@ else
        for (var quad = block * BLOCK_QUADS; quad < (block + 1u) * BLOCK_QUADS; quad++) {
        //@ end
          let weight_at = place_of(quad, row, TILE_ROWS);
          let x_at = place_of(quad, token, TOKENS);
          //@ for c in COLUMNS
          let x${c} = x_tile[x_at + ${c}u * TOKEN_STEP];
          //@ end
          //@ for r in ROWS
          let w${r} = weight_tile[weight_at + ${r}u * ROW_STEP];
          //@ for c in COLUMNS
          dots${r}_${c} = fma(w${r}, x${c}, dots${r}_${c});
          //@ end
          //@ end
        }
        //@ end
        //@ for c in COLUMNS
        //@ if GROUP_OF_32
        let x_sum${c} = x_sums${c}.x + x_sums${c}.y;
        //@ else
        //@ if QUANTISED
        let x_sum${c} = select(x_sums${c}.x, x_sums${c}.y, part == 1u);
        //@ end
        //@ end
        //@ for r in ROWS
        //@ if INT8
        let dot_of${r}_${c} = f32(dot${r}_${c});
        //@ else
        let dot_of${r}_${c} = sum_of(dots${r}_${c});
        //@ end
        //@ if QUANTISED
        sum${r}_${c} += scales${r}.x * x_scale${c} * dot_of${r}_${c} + scales${r}.y * x_sum${c};
        //@ else
        sum${r}_${c} += x_scale${c} * dot_of${r}_${c};
        //@ end
        //@ end
        //@ end
      }
    }
    workgroupBarrier();
  }
