// The sums of the lanes of a tile become lane 0's; the others return.
  //@ if SUBGROUPS
  for (var distance = 1u; distance < min(LANES, subgroup_size); distance <<= 1u) {
    //@ for r in ROWS
    //@ for t in TOKENS
    sum${r}_${t} += subgroupShuffleXor(sum${r}_${t}, distance);
    //@ end
    //@ end
    //@ if NORM
    //@ for t in TOKENS
    squares${t} += subgroupShuffleXor(squares${t}, distance);
    //@ end
    //@ end
  }
  let nearest = subgroup_size;
  //@ else
  let nearest = 1u;
  //@ end
  if (nearest < LANES) {
    //@ for r in ROWS
    //@ for t in TOKENS
    parts[(${r}u * TOKENS + ${t}u) * WORKGROUP + local] = sum${r}_${t};
    //@ end
    //@ end
    //@ if NORM
    //@ for t in TOKENS
    parts[(ROWS * TOKENS + ${t}u) * WORKGROUP + local] = squares${t};
    //@ end
    //@ end
    for (var distance = LANES / 2u; distance >= nearest; distance >>= 1u) {
      workgroupBarrier();
      if (lane < distance) {
        for (var i = local; i < SUMS * WORKGROUP; i += WORKGROUP) { parts[i] += parts[i + distance]; }
      }
    }
    // Lane 0 reads only what it wrote itself in the last round.
    //@ for r in ROWS
    //@ for t in TOKENS
    sum${r}_${t} = parts[(${r}u * TOKENS + ${t}u) * WORKGROUP + local];
    //@ end
    //@ end
    //@ if NORM
    //@ for t in TOKENS
    squares${t} = parts[(ROWS * TOKENS + ${t}u) * WORKGROUP + local];
    //@ end
    //@ end
  }
  if (lane != 0u) { return; }
