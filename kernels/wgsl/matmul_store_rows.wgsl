  // The end of matmul.wgsl and matmul_broadcast.wgsl: the factor of the norm, then every sum to its place.
  //@ if NORM
  //@ for t in TOKENS
  let factor${t} = 1.0 / sqrt(squares${t} / f32(dims.n_in) + dims.eps);
  //@ for r in ROWS
  sum${r}_${t} *= factor${t};
  //@ end
  //@ end
  //@ end
  //@ for r in OUTS
  if (row + ${r}u < n_rows && row${r} < n_weight_rows) {
    //@ for t in TOKENS
    //@ if EXPERTS
    store(slot, expert, row + ${r}u, sum${r}_${t});
    //@ else
    //@ if GATED
    store_gated(token + ${t}u, first_column + row + ${r}u, n_tokens, sum${r}_${t}, sum${r+OUTS}_${t});
    //@ else
    store(token + ${t}u, first_column + row + ${r}u, n_tokens, sum${r}_${t});
    //@ end
    //@ end
    //@ end
  }
  //@ end
