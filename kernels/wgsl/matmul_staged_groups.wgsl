// The loop of matmul_groups.wgsl where all of a workgroup brings the columns of x that its lanes take next to workgroup
// memory: neighbours read neighbouring quads of x (and of the norm's weight) there, not ones a group apart.
  let n_groups = dims.n_in / GROUP;
  for (var first = 0u; first < n_groups; first += LANES) {
    let i = min(first + lane, n_groups - 1u);
    // The weights are on their way while x is staged.
    //@ for r in ROWS
    let group${r} = load_group(weight${r}, i);
    //@ end
    workgroupBarrier();
    for (var q = local; q < LANES * QUADS; q += WORKGROUP) {
      let quad = first * QUADS + q;
      //@ for t in TOKENS
      var quad${t} = vec4<f32>(0.0);
      if (quad < n_groups * QUADS) { quad${t} = x[x${t} + quad]; }
      //@ if NORM
      staged${t} += dot(quad${t}, quad${t});
      if (quad < n_groups * QUADS) { quad${t} *= norm[quad]; }
      //@ end
      staged[staged_at(${t}u, q % QUADS, q / QUADS)] = quad${t};
      //@ end
    }
    workgroupBarrier();
    //@ for r in ROWS
    //@ for t in TOKENS
    var dot${r}_${t} = 0.0;
    //@ end
    //@ end
    //@ if QUANTISED
    //@ for t in TOKENS
    var total${t} = vec4<f32>(0.0);
    //@ end
    //@ end
    //@ for j in QUADS
    {
      //@ for t in TOKENS
      //@ if QUANTISED
      let x_quad${t} = staged[staged_at(${t}u, ${j}u, lane)] * QUAD_SCALES;
      total${t} += x_quad${t};
      //@ else
      let x_quad${t} = staged[staged_at(${t}u, ${j}u, lane)];
      //@ end
      //@ end
      //@ for r in ROWS
      let w${r} = quad${j}(group${r});
      //@ for t in TOKENS
      dot${r}_${t} += dot(w${r}, x_quad${t});
      //@ end
      //@ end
    }
    //@ end
    //@ for t in TOKENS
    //@ if QUANTISED
    let x_total${t} = dot(total${t}, OFFSET_MASK / QUAD_SCALES);
    //@ end
    //@ for r in ROWS
    //@ if QUANTISED
    sum${r}_${t} += group${r}.scale * dot${r}_${t} + offset_of(group${r}) * x_total${t};
    //@ else
    sum${r}_${t} += dot${r}_${t};
    //@ end
    //@ end
    //@ end
  }
  //@ if not QUANTISED
  //@ include matmul_tail.wgsl with FIRST=dims.n_in/GROUP*QUADS+lane STEP=LANES
  //@ end
