// Causal attention over the cache of a layer, or attention within the texts of a batch (TEXTS_ONLY), whose keys and values
// are rows of slots.
//
// The heads of queries that share a head of keys lie side by side: a token has HEADS rows for it, and a workgroup computes
// ROWS of them, of one token or several, so that a key or value is read once for all. Positions are taken KEYS at a time:
// every invocation finds the scores of some keys, then the rows' maxima and weights, then adds to some units of the
// outputs. The softmax is online (Milakov & Gimelshein, arXiv 1805.02867): what was summed before is scaled down when new
// keys raise the maximum.
//
// With SPLIT the positions of a row are shared out between several workgroups; each leaves its sums, maximum and total in
// `partials`, which attention_merge.wgsl brings together.

struct Dims {
  n_head_kv: u32,
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
//@ if SPLIT
@group(0) @binding(5) var<storage, read_write> partials: array<f32>;
//@ else
@group(0) @binding(5) var<storage, read_write> y: array<Unit>;
//@ end
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
const KEYS: u32 = WORKGROUP * KEYS_EACH;
const SEGMENTS: u32 = WORKGROUP / ROWS;  // invocations that share the softmax of a row

var<workgroup> query: array<Unit, ROWS * K_UNITS>;
var<workgroup> scores: array<f32, ROWS * KEYS>;  // then weights
var<workgroup> maxima: array<f32, ROWS * SEGMENTS>;
var<workgroup> sums_of_weights: array<f32, ROWS * SEGMENTS>;
var<workgroup> kept: array<f32, ROWS>;  // the factor of what was summed before
var<workgroup> totals: array<f32, ROWS>;

// The positions, or rows, that a token sees: neither bound ever falls from one token to the next.
//@ if TEXTS_ONLY
fn begin_of(token: u32) -> u32 { return max(text_begin(token), token - min(dims.before, token)); }
fn end_of(token: u32) -> u32 { return min(text_end(token), token + min(dims.after, text_end(token)) + 1u); }
//@ else
fn end_of(token: u32) -> u32 { return batch[FIRST_POSITION] + token + 1u; }
fn begin_of(token: u32) -> u32 {
  let end = end_of(token);
  return select(0u, end - dims.window, dims.window != 0u && end > dims.window);
}
//@ end

fn capped(score: f32) -> f32 {
  if (dims.softcap == 0.0) { return score; }
  return dims.softcap * tanh(clamp(score / dims.softcap, -15.0, 15.0));
}

// What the distance of a key adds to its score.
fn bias(key: u32, token: u32, head: u32) -> f32 {
  let distance = i32(key) - i32(token);
  //@ if SLOPES
  return -slopes[head] * f32(abs(distance));
  //@ end
  //@ if BUCKETS
  let span = i32(dims.span);
  return bias_values[buckets[clamp(distance, -span, span) + span] * dims.n_head_kv * HEADS + head];
  //@ end
  return 0.0;
}

// exp of something that is never positive; below this bound it is 0 in float32, and not every exp takes what lies there.
fn exp_of_nonpositive(value: f32) -> f32 { return exp(max(value, -87.0)); }

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let n_tokens = batch[N_TOKENS];
  let first_row = workgroup.y * ROWS;
  let column = column_of(workgroup);
  let head_kv = column % dims.n_head_kv;
  let split = column / dims.n_head_kv;
  if (first_row >= n_tokens * HEADS || split >= SPLITS) { return; }
  var begin = begin_of(first_row / HEADS);
  var end = end_of(min((first_row + ROWS - 1u) / HEADS, n_tokens - 1u));
  //@ if SPLIT
  let share = (end - begin + SPLITS - 1u) / SPLITS;
  begin = min(begin + split * share, end);
  end = min(begin + share, end);
  //@ end

  for (var i = local; i < ROWS * K_UNITS; i += WORKGROUP) {
    let row = first_row + i / K_UNITS;
    let token = min(row / HEADS, n_tokens - 1u);
    query[i] = dims.scale * q[token * dims.q_stride + (head_kv * HEADS + row % HEADS) * K_UNITS + i % K_UNITS];
  }
  // The softmax of this invocation's row, and its part in it.
  let own_row = local / SEGMENTS;
  let segment = local % SEGMENTS;
  let has_row = own_row < ROWS;
  let own_token = min((first_row + own_row) / HEADS, n_tokens - 1u);
  let own_head = head_kv * HEADS + (first_row + own_row) % HEADS;
  let own_begin = begin_of(own_token);
  let own_end = end_of(own_token);
  var highest = LOWEST;
  var total = 0.0;
  //@ if not TEXTS_ONLY
  if (dims.has_sinks != 0u && has_row && split == 0u) {
    highest = sinks[own_head];
    total = 1.0;
  }
  //@ end
  // Its units of the outputs of some rows.
  let unit = local % UNIT_LANES;
  //@ if ROW_GROUPS
  let first_out = local / UNIT_LANES * ROWS_EACH;
  //@ else
  let first_out = 0u;
  //@ end
  //@ for b in ROWS_EACH
  let out${b} = min(first_out + ${b}u, ROWS - 1u);
  //@ for a in UNITS_EACH
  var sum${a}_${b} = Unit(0.0);
  //@ end
  //@ end
  //@ for a in UNITS_EACH
  let v_head${a} = head_kv * V_UNITS + min(unit + ${a}u * UNIT_LANES, V_UNITS - 1u);
  //@ end
  workgroupBarrier();

  for (var chunk = begin; chunk < end; chunk += KEYS) {
    let n = min(KEYS, end - chunk);
    //@ for k in KEYS_EACH
    let k_at${k} = min(chunk + ${k}u * WORKGROUP + local, end - 1u) % dims.ring * dims.k_units + head_kv * K_UNITS;
    //@ for r in ROWS
    var score${r}_${k} = 0.0;
    //@ end
    //@ end
    for (var i = 0u; i < K_UNITS; i++) {
      //@ for k in KEYS_EACH
      let columns${k} = load_k(k_at${k} + i);
      //@ end
      //@ for r in ROWS
      let query${r} = query[${r}u * K_UNITS + i];
      //@ for k in KEYS_EACH
      score${r}_${k} += dot(query${r}, columns${k});
      //@ end
      //@ end
    }
    //@ for k in KEYS_EACH
    //@ for r in ROWS
    scores[${r}u * KEYS + ${k}u * WORKGROUP + local] = score${r}_${k};
    //@ end
    //@ end
    workgroupBarrier();

    if (has_row) {
      var own_maximum = LOWEST;
      for (var i = segment; i < n; i += SEGMENTS) {
        let key = chunk + i;
        var score = LOWEST;
        if (key >= own_begin && key < own_end) {
          score = capped(scores[own_row * KEYS + i]) + bias(key, own_token, own_head);
        }
        scores[own_row * KEYS + i] = score;
        own_maximum = max(own_maximum, score);
      }
      maxima[local] = own_maximum;
    }
    workgroupBarrier();

    if (has_row) {
      var maximum = highest;
      for (var i = 0u; i < SEGMENTS; i++) { maximum = max(maximum, maxima[own_row * SEGMENTS + i]); }
      var own_sum = 0.0;
      for (var i = segment; i < n; i += SEGMENTS) {
        let score = scores[own_row * KEYS + i];
        let weight = select(0.0, exp_of_nonpositive(score - maximum), score > LOWEST);
        scores[own_row * KEYS + i] = weight;
        own_sum += weight;
      }
      sums_of_weights[local] = own_sum;
      let factor = exp_of_nonpositive(highest - maximum);
      if (segment == 0u) { kept[own_row] = factor; }
      total *= factor;
      highest = maximum;
    }
    workgroupBarrier();

    if (has_row) {
      for (var i = 0u; i < SEGMENTS; i++) { total += sums_of_weights[own_row * SEGMENTS + i]; }
    }
    //@ for b in ROWS_EACH
    let kept${b} = kept[out${b}];
    //@ for a in UNITS_EACH
    sum${a}_${b} *= kept${b};
    //@ end
    //@ end
    var cache_row = chunk % dims.ring;
    for (var i = 0u; i < n; i++) {
      //@ for a in UNITS_EACH
      let columns${a} = load_v(cache_row * dims.v_units + v_head${a});
      //@ end
      //@ for b in ROWS_EACH
      let weight${b} = scores[out${b} * KEYS + i];
      //@ for a in UNITS_EACH
      sum${a}_${b} += weight${b} * columns${a};
      //@ end
      //@ end
      cache_row++;
      if (cache_row == dims.ring) { cache_row = 0u; }
    }
    workgroupBarrier();  // before the next keys' scores overwrite the weights
  }

  //@ if SPLIT
  if (has_row && segment == 0u && first_row + own_row < n_tokens * HEADS) {
    let at = partial_of(first_row + own_row, head_kv, split) + V_UNITS * UNIT_WIDTH;
    partials[at] = highest;
    partials[at + 1u] = total;
  }
  //@ else
  if (has_row && segment == 0u) { totals[own_row] = total; }
  workgroupBarrier();
  //@ end
  //@ for b in ROWS_EACH
  if (first_out + ${b}u < ROWS && first_row + out${b} < n_tokens * HEADS) {
    let row = first_row + out${b};
    //@ for a in UNITS_EACH
    if (unit + ${a}u * UNIT_LANES < V_UNITS) {
      let column = unit + ${a}u * UNIT_LANES;
      //@ if SPLIT
      let at = partial_of(row, head_kv, split) + column * UNIT_WIDTH;
      for (var i = 0u; i < UNIT_WIDTH; i++) { partials[at + i] = sum${a}_${b}[i]; }
      //@ else
      y[row / HEADS * dims.y_stride + (head_kv * HEADS + row % HEADS) * V_UNITS + column] = sum${a}_${b} / totals[out${b}];
      //@ end
    }
    //@ end
  }
  //@ end
}

//@ if SPLIT
// Where a part of a row begins: its sums, then its maximum and its total.
fn partial_of(row: u32, head_kv: u32, split: u32) -> u32 {
  let head = row / HEADS * dims.n_head_kv * HEADS + head_kv * HEADS + row % HEADS;
  return (head * SPLITS + split) * (V_UNITS * UNIT_WIDTH + 2u);
}
//@ end
