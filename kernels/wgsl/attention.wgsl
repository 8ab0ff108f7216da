// Causal attention over the cache of a layer, or attention within the texts of a batch (TEXTS_ONLY), whose keys and values
// are rows of slots: one workgroup for each head of each token.
//
// The softmax is online (Milakov & Gimelshein, arXiv 1805.02867): positions are taken in chunks; each chunk's scores go to
// workgroup memory, and what was summed before is scaled down when a chunk raises the maximum. Every invocation owns some
// units of output columns in `sums`.

struct Dims {
  n_head: u32,
  heads_per_kv: u32,
  k_head_units: u32,
  v_head_units: u32,
  k_units: u32,  // of a position, all heads
  v_units: u32,
  q_stride: u32,  // in units
  y_stride: u32,
  window: u32,
  scale: f32,
  softcap: f32,
  before: u32,  // of a text: how many tokens are seen in each direction
  after: u32,
  span: u32,  // of the buckets, in each direction
  has_sinks: u32,
  ring: u32,  // rows of the cache: position p is in row p modulo that
}

@group(0) @binding(0) var<uniform> dims: Dims;
@group(0) @binding(2) var<storage, read> q: array<Unit>;
@group(0) @binding(3) var<storage, read> k_cache: array<KElement>;
@group(0) @binding(4) var<storage, read> v_cache: array<VElement>;
@group(0) @binding(5) var<storage, read_write> y: array<Unit>;
//@ if not TEXTS_ONLY
@group(0) @binding(6) var<storage, read> sinks: array<f32>;
//@ end
//@ if SLOPES
@group(0) @binding(6) var<storage, read> slopes: array<f32>;
//@ end
//@ if BUCKETS
@group(0) @binding(6) var<storage, read> bias_values: array<f32>;
@group(0) @binding(7) var<storage, read> buckets: array<u32>;
//@ end

//@ include kv_units.wgsl

const LOWEST: f32 = -3.0e38;

var<workgroup> query: array<Unit, MAX_HEAD_UNITS>;
var<workgroup> sums: array<Unit, MAX_HEAD_UNITS>;
var<workgroup> scores: array<f32, CHUNK>;
var<workgroup> maxima: array<f32, WORKGROUP>;
var<workgroup> totals: array<f32, WORKGROUP>;

fn score(k_at: u32) -> f32 {
  var value = 0.0;
  for (var i = 0u; i < dims.k_head_units; i++) { value += dot(query[i], load_k(k_at + i)); }
  if (dims.softcap == 0.0) { return value; }
  return dims.softcap * tanh(clamp(value / dims.softcap, -15.0, 15.0));
}

// What the distance of a key adds to its score.
fn bias(key: u32, row: u32, head: u32) -> f32 {
  let distance = i32(key) - i32(row);
  //@ if SLOPES
  return -slopes[head] * f32(abs(distance));
  //@ end
  //@ if BUCKETS
  let span = i32(dims.span);
  return bias_values[buckets[clamp(distance, -span, span) + span] * dims.n_head + head];
  //@ end
  return 0.0;
}

// exp of something that is never positive; below this bound it is 0 in float32, and not every exp takes what lies there.
fn exp_of_nonpositive(value: f32) -> f32 { return exp(max(value, -87.0)); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let token = workgroup.y;
  let head = column_of(workgroup);
  if (token >= batch[N_TOKENS] || head >= dims.n_head) { return; }
  //@ if TEXTS_ONLY
  let end = min(text_end(token), token + min(dims.after, text_end(token)) + 1u);
  let begin = max(text_begin(token), token - min(dims.before, token));
  //@ else
  let end = batch[FIRST_POSITION] + token + 1u;
  var begin = 0u;
  if (dims.window != 0u && end > dims.window) { begin = end - dims.window; }
  //@ end
  let k_head = (head / dims.heads_per_kv) * dims.k_head_units;
  let v_head = (head / dims.heads_per_kv) * dims.v_head_units;

  for (var i = local; i < dims.k_head_units; i += WORKGROUP) {
    query[i] = dims.scale * q[token * dims.q_stride + head * dims.k_head_units + i];
  }
  for (var i = local; i < dims.v_head_units; i += WORKGROUP) { sums[i] = Unit(0.0); }
  workgroupBarrier();

  var highest = LOWEST;
  var total = 0.0;
  //@ if not TEXTS_ONLY
  if (dims.has_sinks != 0u) {
    highest = sinks[head];
    total = 1.0;
  }
  //@ end
  for (var chunk = begin; chunk < end; chunk += CHUNK) {
    let n = min(CHUNK, end - chunk);
    var own_maximum = highest;
    for (var i = local; i < n; i += WORKGROUP) {
      let value = score((chunk + i) % dims.ring * dims.k_units + k_head) + bias(chunk + i, token, head);
      scores[i] = value;
      own_maximum = max(own_maximum, value);
    }
    maxima[local] = own_maximum;
    workgroupBarrier();

    var maximum = maxima[0];
    for (var i = 1u; i < WORKGROUP; i++) { maximum = max(maximum, maxima[i]); }
    var own_total = 0.0;
    for (var i = local; i < n; i += WORKGROUP) {
      let weight = exp_of_nonpositive(scores[i] - maximum);
      scores[i] = weight;
      own_total += weight;
    }
    totals[local] = own_total;
    workgroupBarrier();

    let kept = exp_of_nonpositive(highest - maximum);
    total *= kept;
    for (var i = 0u; i < WORKGROUP; i++) { total += totals[i]; }
    for (var i = local; i < dims.v_head_units; i += WORKGROUP) {
      var sum = kept * sums[i];
      let first = chunk % dims.ring;
      let until_end = min(n, dims.ring - first);
      var at = first * dims.v_units + v_head + i;
      for (var j = 0u; j < until_end; j++) {
        sum += scores[j] * load_v(at);
        at += dims.v_units;
      }
      at = v_head + i;
      for (var j = until_end; j < n; j++) {
        sum += scores[j] * load_v(at);
        at += dims.v_units;
      }
      sums[i] = sum;
    }
    highest = maximum;
    workgroupBarrier();  // before the next chunk overwrites the scores
  }

  for (var i = local; i < dims.v_head_units; i += WORKGROUP) {
    y[token * dims.y_stride + head * dims.v_head_units + i] = sums[i] / total;
  }
}
