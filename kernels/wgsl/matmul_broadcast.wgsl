// y = x @ weight.T as in matmul.wgsl, which explains the flags, for software adapters with subgroups.
//
// There an invocation is a lane of a SIMD register, and a load costs as much as a dozen multiplications: it is done lane by
// lane, even if all lanes read the same element. So LANES neighbours load one quad of x each, which makes a span of columns
// in few loads, and broadcast them to each other; with SWAPS four do so by swaps in pairs, and then of pairs, which are
// shuffles of a register where SwiftShader computes a broadcast. Apart from that an invocation works for itself, on a tile of
// ROWS weight rows by TOKENS rows of x; it goes on to the end though its rows may be past the last, since others need what
// it loads.

enable subgroups;

//@ include matmul_ends.wgsl

const TILES: u32 = WORKGROUP;
const SPAN_QUADS: u32 = 8u;  // a whole number of groups of every quantised format, and of LANES

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32,
        @builtin(subgroup_invocation_id) subgroup_lane: u32) {
  let lane = subgroup_lane % LANES;
  //@ if SWAPS
  let is_odd = (lane & 1u) != 0u;
  let is_upper = (lane & 2u) != 0u;
  //@ end
  let own_tile = local;
  //@ include matmul_rows.wgsl

  //@ if MIXED
  if (is_other) {
    //@ include matmul_spans.wgsl as OTHER
  } else {
    //@ include matmul_spans.wgsl
  }
  //@ else
  //@ include matmul_spans.wgsl
  //@ end

  //@ include matmul_store_rows.wgsl
}
