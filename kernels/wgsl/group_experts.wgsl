// Which tokens chose which expert, for the tiles of matmul_tiled.wgsl: a slot is one of the n_used choices of a token,
// token · n_used + which of them. One workgroup.
//
// `groups` gets the slots, those of an expert side by side; then the number of tiles; then for each tile its expert, the
// place of its first slot and how many it has, up to TOKENS.

struct Dims {
  n_used: u32,
  route_stride: u32,
  rows_word: u32,
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> route: array<f32>;
@group(0) @binding(3) var<storage, read_write> groups: array<u32>;

var<workgroup> counts: array<atomic<u32>, N_EXPERT>;
var<workgroup> first_slots: array<u32, N_EXPERT>;
var<workgroup> first_tiles: array<u32, N_EXPERT>;

fn expert_of(slot: u32) -> u32 {
  return min(u32(route[slot / dims.n_used * dims.route_stride + slot % dims.n_used]), N_EXPERT - 1u);
}

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
  let n_slots = batch[dims.rows_word] * dims.n_used;
  for (var i = local; i < N_EXPERT; i += WORKGROUP) { atomicStore(&counts[i], 0u); }
  workgroupBarrier();
  for (var slot = local; slot < n_slots; slot += WORKGROUP) { atomicAdd(&counts[expert_of(slot)], 1u); }
  workgroupBarrier();
  if (local == 0u) {
    var n_before = 0u;
    var n_tiles = 0u;
    for (var i = 0u; i < N_EXPERT; i++) {
      let count = atomicLoad(&counts[i]);
      first_slots[i] = n_before;
      first_tiles[i] = n_tiles;
      n_before += count;
      n_tiles += (count + TOKENS - 1u) / TOKENS;
    }
    groups[n_slots] = n_tiles;
  }
  workgroupBarrier();
  for (var i = local; i < N_EXPERT; i += WORKGROUP) {
    let count = atomicLoad(&counts[i]);
    for (var first = 0u; first < count; first += TOKENS) {
      let at = n_slots + 1u + 3u * (first_tiles[i] + first / TOKENS);
      groups[at] = i;
      groups[at + 1u] = first_slots[i] + first;
      groups[at + 2u] = min(count - first, TOKENS);
    }
  }
  workgroupBarrier();
  // An expert's places are taken from the last to the first, in whatever order the slots come.
  for (var slot = local; slot < n_slots; slot += WORKGROUP) {
    let expert = expert_of(slot);
    groups[first_slots[expert] + atomicSub(&counts[expert], 1u) - 1u] = slot;
  }
}
