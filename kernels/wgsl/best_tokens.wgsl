// The k largest of a token's logits, largest first and equal ones by id, but for some tokens whose logits come beside
// them; and, where the batch says so, the token drawn from both (draw_token.wgsl). One workgroup.
//
// Bounds, not sorting, make the vocabulary small: a bound is the largest key of a few blocks, and as many of these as
// are wanted reach the one of that rank. So only blocks that reach it have to be looked through. What is found, a few
// hundred tokens, finds its places by counting what is before it.
//
// The batch's selection: its header (SEL_…), then for each token that is left out its id, how often it is in the
// window of the penalties, and what is added to its logit. The tokens that this kernel drew in the batches before are
// left out, too. The record: k ids, k logits, the logits of the tokens left out, and the token drawn at the word the
// header names. All logits are as they were. The first id is NONE where no token can be told: something was no
// number, or too many are equal.

struct Dims { n_vocab: u32, n_quads: u32 }

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> logits: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> best: array<u32>;
@group(0) @binding(4) var<storage, read_write> record: array<u32>;

const SEL_K: u32 = 0u;
const SEL_N_LISTED: u32 = 1u;
const SEL_N_DRAWN: u32 = 2u;
const SEL_DRAWN_AT: u32 = 3u;
const SEL_DRAWS: u32 = 4u;
const SEL_UNIFORM: u32 = 5u;
const SEL_TOP_P: u32 = 6u;
const SEL_LOG_MIN_P: u32 = 7u;
const SEL_TEMP: u32 = 8u;
const SEL_REPEAT: u32 = 9u;
const SEL_PRESENCE: u32 = 10u;
const SEL_FREQUENCY: u32 = 11u;
const SEL_LISTED: u32 = 12u;

const N_BOUNDS: u32 = 256u;  // at least as many as tokens can be wanted
const MOST_FOUND: u32 = 1024u;
const NONE: u32 = 0xffffffffu;

//@ include logit_keys.wgsl

var<workgroup> bounds: array<u32, N_BOUNDS>;
var<workgroup> most: u32;
var<workgroup> least: u32;
var<workgroup> blocks: array<u32, N_BLOCKS>;
var<workgroup> n_blocks: atomic<u32>;
var<workgroup> keys: array<u32, MOST_FOUND>;
var<workgroup> ids: array<u32, MOST_FOUND>;
var<workgroup> n_found: atomic<u32>;
// The k best, then those left out.
var<workgroup> chosen_ids: array<u32, N_BOUNDS>;
var<workgroup> chosen: array<u32, N_BOUNDS>;

fn selection(word: u32) -> u32 { return batch[batch[SELECTION] + word]; }
fn selection_float(word: u32) -> f32 { return bitcast<f32>(selection(word)); }
fn listed(i: u32) -> u32 { return selection(SEL_LISTED + 3u * i); }

// Token i of those left out: first those that the batch lists, then those drawn before.
fn left_out(i: u32) -> u32 {
  let n_listed = selection(SEL_N_LISTED);
  if (i < n_listed) { return listed(i); }
  return record[DRAWN + i - n_listed];
}

fn is_left_out(id: u32, n_left_out: u32) -> bool {
  for (var i = 0u; i < n_left_out; i++) {
    if (left_out(i) == id) { return true; }
  }
  return false;
}

fn logit_of(id: u32) -> u32 { return logits[id / 4u][id % 4u]; }

//@ include draw_token.wgsl

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) local: u32) {
  let k = selection(SEL_K);
  let n_left_out = selection(SEL_N_LISTED) + selection(SEL_N_DRAWN);

  for (var i = local; i < N_BOUNDS; i += WORKGROUP) {
    var bound = NO_KEY;
    for (var block = i; block < N_BLOCKS; block += N_BOUNDS) { bound = max(bound, best[block]); }
    bounds[i] = bound;
  }
  if (local == 0u) {  // WGSL says that they begin as zero; llvmpipe does not always
    atomicStore(&n_blocks, 0u);
    atomicStore(&n_found, 0u);
  }
  workgroupBarrier();
  for (var i = local; i < N_BOUNDS; i += WORKGROUP) {
    let place = place_among_bounds(i);
    if (place == 0u) { most = bounds[i]; }
    if (place == k + n_left_out - 1u) { least = max(bounds[i], NO_KEY + 1u); }
  }
  workgroupBarrier();

  for (var block = local; block < N_BLOCKS; block += WORKGROUP) {
    if (best[block] >= least) { blocks[atomicAdd(&n_blocks, 1u)] = block; }
  }
  workgroupBarrier();
  let quads_per_block = (dims.n_quads + N_BLOCKS - 1u) / N_BLOCKS;
  let n_quads = atomicLoad(&n_blocks) * quads_per_block;
  for (var i = local; i < n_quads; i += WORKGROUP) {
    let quad = blocks[i / quads_per_block] + (i % quads_per_block) * N_BLOCKS;
    if (quad < dims.n_quads) { find_in(quad, n_left_out); }
  }
  workgroupBarrier();

  let n = atomicLoad(&n_found);
  let is_told = most < INFINITY_KEY && n <= MOST_FOUND;
  for (var i = local; i < min(n, MOST_FOUND); i += WORKGROUP) {
    let place = place_among_found(i, min(n, MOST_FOUND));
    if (place < k) {
      let bits = logit_of(ids[i]);
      chosen_ids[place] = ids[i];
      chosen[place] = bits;
      record[place] = select(NONE, ids[i], is_told || place > 0u);
      record[k + place] = bits;
    }
  }
  for (var i = local; i < n_left_out; i += WORKGROUP) {
    let bits = logit_of(left_out(i));
    chosen_ids[k + i] = left_out(i);
    chosen[k + i] = bits;
    record[2u * k + i] = bits;
  }
  workgroupBarrier();
  draw(local, k, n_left_out, is_told);
}

fn place_among_bounds(own: u32) -> u32 {
  let bound = bounds[own];
  var place = 0u;
  for (var i = 0u; i < N_BOUNDS; i++) {
    place += u32(bounds[i] > bound || (bounds[i] == bound && i < own));
  }
  return place;
}

fn place_among_found(own: u32, n: u32) -> u32 {
  let key = keys[own];
  let id = ids[own];
  var place = 0u;
  for (var i = 0u; i < n; i++) { place += u32(keys[i] > key || (keys[i] == key && ids[i] < id)); }
  return place;
}

fn find_in(quad: u32, n_left_out: u32) {
  let found = keys_of(logits[quad]);
  //@ for i in QUAD
  find(4u * quad + ${i}u, found[${i}u], n_left_out);
  //@ end
}

fn find(id: u32, key: u32, n_left_out: u32) {
  if (id >= dims.n_vocab || key < least || is_left_out(id, n_left_out)) { return; }
  let at = atomicAdd(&n_found, 1u);
  if (at < MOST_FOUND) {
    keys[at] = key;
    ids[at] = id;
  }
}
