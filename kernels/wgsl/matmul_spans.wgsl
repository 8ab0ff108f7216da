// The loop of matmul_broadcast.wgsl over spans of columns, which adds to sum…_… (and to squares…).
  let n_spans = dims.n_in / (4u * SPAN_QUADS);
  for (var span = 0u; span < n_spans; span++) {
    //@ for t in TOKENS
    //@ for n in LOADS
    let i${t}_${n} = span * SPAN_QUADS + ${n}u * LANES + lane;
    //@ if NORM
    let raw${t}_${n} = x[x${t} + i${t}_${n}];
    squares${t} += dot(raw${t}_${n}, raw${t}_${n});
    let normed${t}_${n} = raw${t}_${n} * norm[i${t}_${n}];
    //@ else
    let normed${t}_${n} = x[x${t} + i${t}_${n}];
    //@ end
    //@ if QUANTISED
    let own${t}_${n} = normed${t}_${n} * QUAD_SCALES;
    let own_total${t}_${n} = dot(normed${t}_${n}, OFFSET_MASK);
    //@ else
    let own${t}_${n} = normed${t}_${n};
    //@ end
    //@ if SWAPS
    let neighbours${t}_${n} = quadSwapX(own${t}_${n});
    let even${t}_${n} = select(own${t}_${n}, neighbours${t}_${n}, is_odd);
    let odd${t}_${n} = select(neighbours${t}_${n}, own${t}_${n}, is_odd);
    let other_even${t}_${n} = quadSwapY(even${t}_${n});
    let other_odd${t}_${n} = quadSwapY(odd${t}_${n});
    let quad${t}_${n*LANES} = select(even${t}_${n}, other_even${t}_${n}, is_upper);
    let quad${t}_${n*LANES+1} = select(odd${t}_${n}, other_odd${t}_${n}, is_upper);
    let quad${t}_${n*LANES+2} = select(other_even${t}_${n}, even${t}_${n}, is_upper);
    let quad${t}_${n*LANES+3} = select(other_odd${t}_${n}, odd${t}_${n}, is_upper);
    //@ end
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
      //@ if SWAPS
      //@ if GROUP_OF_32
      let lane_total${t} = own_total${t}_0 + own_total${t}_1;
      //@ else
      let lane_total${t} = own_total${t}_${g};
      //@ end
      let pair_total${t} = lane_total${t} + quadSwapX(lane_total${t});
      let total${t} = pair_total${t} + quadSwapY(pair_total${t});
      //@ else
      var total${t} = 0.0;
      //@ end
      //@ end
      //@ end
      //@ for j in QUADS
      {
        //@ for r in ROWS
        let w${r} = quad${j}(group${r});
        //@ end
        //@ for t in TOKENS
        //@ if SWAPS
        let x_quad${t} = quad${t}_${g*QUADS+j};
        //@ else
        let x_quad${t} = subgroupBroadcast(own${t}_0, ${g*QUADS+j}u);
        //@ end
        //@ if QUANTISED
        //@ if not SWAPS
        total${t} += subgroupBroadcast(own_total${t}_0, ${g*QUADS+j}u);
        //@ end
        //@ end
        //@ for r in ROWS
        dot${r}_${t} += dot(w${r}, x_quad${t});
        //@ end
        //@ end
      }
      //@ end
      //@ for t in TOKENS
      //@ for r in ROWS
      //@ if QUANTISED
      sum${r}_${t} += group${r}.scale * dot${r}_${t} + offset_of(group${r}) * total${t};
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
  //@ include matmul_tail.wgsl with FIRST=n_spans*SPAN_QUADS STEP=1u
  //@ end
