// The loop of matmul.wgsl over the groups of its weight rows, which adds to sum…_… (and to squares…).
  let n_groups = dims.n_in / GROUP;
  for (var i = lane; i < n_groups; i += LANES) {
    //@ for r in ROWS
    let group${r} = load_group(weight${r}, i);
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
      //@ if NORM
      //@ if QUANTISED
      let scales = norm[i * QUADS + ${j}u] * QUAD_SCALES;
      //@ else
      let scales = norm[i * QUADS + ${j}u];
      //@ end
      //@ end
      //@ for t in TOKENS
      //@ if NORM
      let raw${t} = x[x${t} + i * QUADS + ${j}u];
      squares${t} += dot(raw${t}, raw${t});
      let x_quad${t} = raw${t} * scales;
      //@ else
      //@ if QUANTISED
      let x_quad${t} = x[x${t} + i * QUADS + ${j}u] * QUAD_SCALES;
      //@ else
      let x_quad${t} = x[x${t} + i * QUADS + ${j}u];
      //@ end
      //@ end
      //@ if QUANTISED
      total${t} += x_quad${t};
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
