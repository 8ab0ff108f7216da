// The loop of matmul_broadcast.wgsl over spans of columns, which adds to sum…_… (and to squares…).
  let n_spans = dims.n_in / (4u * SPAN_QUADS);
  for (var span = 0u; span < n_spans; span++) {
    //@ for t in TOKENS
    var quads${t}: array<vec4<f32>, LOADS>;
    //@ for n in LOADS
    {
      let i = span * SPAN_QUADS + ${n}u * LANES + lane;
      //@ if NORM
      let raw = x[x${t} + i];
      squares${t} += dot(raw, raw);
      let element = raw * norm[i];
      //@ else
      let element = x[x${t} + i];
      //@ end
      //@ if QUANTISED
      quads${t}[${n}u] = element * QUAD_SCALES;
      //@ else
      quads${t}[${n}u] = element;
      //@ end
    }
    //@ end
    //@ end
    //@ for g in SPAN_GROUPS
    {
      //@ for r in ROWS
      let group${r} = load_group(weight${r}, span * (SPAN_QUADS / QUADS) + ${g}u);
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
        //@ for r in ROWS
        let w${r} = quad${j}(group${r});
        //@ end
        //@ for t in TOKENS
        let x_quad${t} = subgroupBroadcast(quads${t}[(${g}u * QUADS + ${j}u) / LANES], (${g}u * QUADS + ${j}u) % LANES);
        //@ if QUANTISED
        total${t} += x_quad${t};
        //@ end
        //@ for r in ROWS
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
    //@ end
  }
  //@ if NORM
  //@ for t in TOKENS
  {
    var total = 0.0;
    //@ for n in LANES
    total += subgroupBroadcast(squares${t}, ${n}u);
    //@ end
    squares${t} = total;
  }
  //@ end
  //@ end

  //@ if not QUANTISED
  // Quads past the last whole span; the last may be half full, and x holds anything there.
  for (var i = n_spans * SPAN_QUADS; i * 4u < dims.n_in; i++) {
    let half_full = i * 4u + 2u >= dims.n_in;
    //@ for t in TOKENS
    let whole${t} = x[x${t} + i];
    let raw${t} = select(whole${t}, vec4<f32>(whole${t}.xy, 0.0, 0.0), half_full);
    //@ if NORM
    squares${t} += dot(raw${t}, raw${t});
    let x_quad${t} = raw${t} * norm[i];
    //@ else
    let x_quad${t} = raw${t};
    //@ end
    //@ end
    //@ for r in ROWS
    let w${r} = load_tail(weight${r}, i);
    //@ for t in TOKENS
    sum${r}_${t} += dot(w${r}, x_quad${t});
    //@ end
    //@ end
  }
  //@ end
