  // Quads past the last whole group or span of the row, from FIRST on; the last may be half full, and x holds anything there.
  for (var i = ${FIRST}; i * 4u < dims.n_in; i += ${STEP}) {
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
