// The loop of matmul_staged_groups.wgsl in bytes: blocks of 32 columns of x become multiples of 1/127 of their largest
// element, as in matmul_scaled_blocks.wgsl, each by eight neighbours of a subgroup.
  let n_groups = dims.n_in / GROUP;
  for (var first = 0u; first < n_groups; first += LANES) {
    let i = min(first + lane, n_groups - 1u);
    // The weights are on their way while x is staged.
    //@ for r in ROWS
    let group${r} = load_group(weight${r}, i);
    //@ end
    workgroupBarrier();
    for (var before = 0u; before < LANES * QUADS; before += WORKGROUP) {
      let q = before + local;
      let quad = first * QUADS + q;
      let is_there = q < LANES * QUADS && quad < n_groups * QUADS;
      //@ for t in TOKENS
      var quad${t} = vec4<f32>(0.0);
      if (is_there) {
        quad${t} = x[x${t} + quad];
        //@ if NORM
        staged${t} += dot(quad${t}, quad${t});
        quad${t} *= norm[quad];
        //@ end
      }
      let size${t} = abs(quad${t});
      var most${t} = max(max(size${t}.x, size${t}.y), max(size${t}.z, size${t}.w));
      most${t} = max(most${t}, subgroupShuffleXor(most${t}, 1u));
      most${t} = max(most${t}, subgroupShuffleXor(most${t}, 2u));
      let scale${t} = max(most${t}, subgroupShuffleXor(most${t}, 4u)) / 127.0;
      // The inverse of a subnormal scale would be infinite.
      let word${t} = pack4xI8(vec4<i32>(round(quad${t} * select(0.0, 1.0 / scale${t}, scale${t} > 1e-30))));
      var total${t} = dot4I8Packed(word${t}, 0x01010101u);
      total${t} += subgroupShuffleXor(total${t}, 1u);
      total${t} += subgroupShuffleXor(total${t}, 2u);
      //@ if GROUP_OF_32
      total${t} += subgroupShuffleXor(total${t}, 4u);
      //@ end
      if (q < LANES * QUADS) {
        staged[staged_at(${t}u, q % QUADS, q / QUADS)] = word${t};
        if (q % QUADS == 0u) {
          staged_scales[${t}u * LANES + q / QUADS] = vec2<f32>(scale${t}, scale${t} * f32(total${t}));
        }
      }
      //@ end
    }
    workgroupBarrier();
    //@ for t in TOKENS
    let low${t} = vec4<u32>(staged[staged_at(${t}u, 0u, lane)], staged[staged_at(${t}u, 1u, lane)],
                            staged[staged_at(${t}u, 2u, lane)], staged[staged_at(${t}u, 3u, lane)]);
    //@ if GROUP_OF_32
    let high${t} = vec4<u32>(staged[staged_at(${t}u, 4u, lane)], staged[staged_at(${t}u, 5u, lane)],
                             staged[staged_at(${t}u, 6u, lane)], staged[staged_at(${t}u, 7u, lane)]);
    //@ end
    let scales${t} = staged_scales[${t}u * LANES + lane];
    //@ for r in ROWS
    //@ if GROUP_OF_32
    let products${r}_${t} = f32(dot_sixteen(group${r}.low, low${t}) + dot_sixteen(group${r}.high, high${t}));
    //@ else
    let products${r}_${t} = f32(dot_sixteen(group${r}.low, low${t}));
    //@ end
    sum${r}_${t} += group${r}.scale * scales${t}.x * products${r}_${t} + plain_offset(group${r}) * scales${t}.y;
    //@ end
    //@ end
  }
