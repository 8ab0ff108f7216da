// The largest logit of each of N_BLOCKS blocks of the vocabulary, as an ordered key: one invocation to a block.
//
// Block b has the quads b, b + N_BLOCKS, …, so that neighbours read what lies side by side, and tokens with
// neighbouring ids, which tend to be likely together, are in different blocks.

struct Dims { n_vocab: u32, n_quads: u32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> logits: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> best: array<u32>;

//@ include logit_keys.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let block = column_of(workgroup) * WORKGROUP + local;
  if (block >= N_BLOCKS) { return; }
  var most = vec4<u32>(NO_KEY);
  let n_whole = dims.n_vocab / 4u;
  for (var quad = block; quad < n_whole; quad += N_BLOCKS) { most = max(most, keys_of(logits[quad])); }
  if (n_whole < dims.n_quads && n_whole % N_BLOCKS == block) {  // the last quad has less than four tokens
    let is_token = vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>(dims.n_vocab % 4u);
    most = max(most, select(vec4<u32>(NO_KEY), keys_of(logits[n_whole]), is_token));
  }
  best[block] = max(max(most.x, most.y), max(most.z, most.w));
}
