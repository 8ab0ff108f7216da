// The token the next batch goes on with: bias, penalties, top-k, top-p, min-p and temperature in the order of
// bridge.sampling.sampler, then the draw. The host draws again from the record, in its own arithmetic, and takes back
// what follows a token that it would not have drawn; so this one may round otherwise, in a division or an
// exponential.

const LARGEST: f32 = 3.0e38;

// The key of a token after bias and penalties; of one that was left out twice the second time NO_KEY.
fn adjusted(i: u32, k: u32) -> u32 {
  if (i < k) { return key_of(chosen[i]); }
  let id = chosen_ids[i];
  let n_listed = selection(SEL_N_LISTED);
  for (var j = k; j < i; j++) {
    if (chosen_ids[j] == id) { return NO_KEY; }
  }
  var count = 0u;
  var bias = 0.0;
  if (i - k < n_listed) {
    count = selection(SEL_LISTED + 3u * (i - k) + 1u);
    bias = selection_float(SEL_LISTED + 3u * (i - k) + 2u);
  }
  for (var j = 0u; j < selection(SEL_N_DRAWN); j++) { count += u32(record[DRAWN + j] == id); }
  var logit = clamp(finite(chosen[i]) + bias, -LARGEST, LARGEST);
  if (count > 0u) {
    let repeat = selection_float(SEL_REPEAT);
    if (logit > 0.0) { logit /= repeat; } else { logit *= repeat; }
    logit -= f32(count) * selection_float(SEL_FREQUENCY) + selection_float(SEL_PRESENCE);
    logit = clamp(logit, -LARGEST, LARGEST);
  }
  return key_of(bitcast<u32>(logit));
}

fn finite(bits: u32) -> f32 {
  if (key_of(bits) <= 0x00ffffffu) { return -LARGEST; }  // -infinity, or as good as that
  return bitcast<f32>(bits);
}

fn float_of(key: u32) -> f32 { return finite(select(~key, key & 0x7fffffffu, key >= 0x80000000u)); }

fn power(distance: f32) -> f32 { return exp(max(distance, -87.0)); }

// All invocations of the workgroup must come here.
fn draw(local: u32, k: u32, n_left_out: u32, is_told: bool) {
  let n = k + n_left_out;
  let draws = selection(SEL_DRAWS) != 0u;
  // Where nothing is drawn no loop runs; the barriers are for all.
  for (var own = local; draws && own < n; own += WORKGROUP) { keys[own] = adjusted(own, k); }
  workgroupBarrier();
  for (var own = local; draws && own < n; own += WORKGROUP) {
    let key = keys[own];
    let id = chosen_ids[own];
    var place = 0u;
    for (var i = 0u; i < n; i++) {
      place += u32(keys[i] > key || (keys[i] == key && (chosen_ids[i] < id || (chosen_ids[i] == id && i < own))));
    }
    // `bounds` and `blocks` are free by now.
    bounds[place] = key;
    ids[place] = id;
  }
  workgroupBarrier();
  let temp = selection_float(SEL_TEMP);
  for (var own = local; draws && own < k; own += WORKGROUP) {
    let distance = float_of(bounds[own]) - float_of(bounds[0]);
    keys[own] = bitcast<u32>(power(distance));
    blocks[own] = bitcast<u32>(power(distance / temp));
  }
  workgroupBarrier();
  if (draws && local == 0u) {
    var token = ids[0];
    if (temp > 0.0) { token = ids[drawn_place(n_kept(k))]; }
    if (!is_told) { token = 0u; }  // there is none, and the host does not look at what follows
    record[selection(SEL_DRAWN_AT)] = token;
    record[DRAWN + selection(SEL_N_DRAWN)] = token;
  }
}

// How many of the k best top-p and min-p leave.
fn n_kept(k: u32) -> u32 {
  let top_p = selection_float(SEL_TOP_P);
  let least_distance = selection_float(SEL_LOG_MIN_P);
  var total = 0.0;
  for (var i = 0u; i < k; i++) { total += bitcast<f32>(keys[i]); }
  var n = 1u;
  var running = bitcast<f32>(keys[0]) / total;
  while (n < k && (running < top_p || top_p >= 1.0)
         && float_of(bounds[n]) - float_of(bounds[0]) >= least_distance) {
    running += bitcast<f32>(keys[n]) / total;
    n++;
  }
  return n;
}

// Where the running sum of the first n probabilities reaches the random number.
fn drawn_place(n: u32) -> u32 {
  var total = 0.0;
  for (var i = 0u; i < n; i++) { total += bitcast<f32>(blocks[i]); }
  let reached = total * selection_float(SEL_UNIFORM);
  var place = 0u;
  var running = bitcast<f32>(blocks[0]);
  while (place + 1u < n && running < reached) {
    place++;
    running += bitcast<f32>(blocks[place]);
  }
  return place;
}
