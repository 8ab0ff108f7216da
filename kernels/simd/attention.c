/* softmax(q kᵀ · scale) v over the cache, in one pass over blocks of keys (online softmax: Milakov & Gimelshein,
 * arXiv 1805.02867; in blocks as in Dao et al., arXiv 2205.14135).
 *
 * An item of work is a few queries that share their keys: some heads of one key head, for some tokens. A block of keys and
 * values is read and widened to float32 once for all of them.
 */
#include "team.h"

enum { KEYS = 32, MAX_QUERIES = 16 };

typedef struct Args {
  u32 q, q_stride, out, out_stride, k_cache, v_cache;
  u32 n_head, n_head_kv, head_dim, head_dim_v, window, f16;
  f32 scale, softcap;
} Args;

/* Scratch memory of one item (bridge/simd/layout.py reserves it), rows filled up with zeros to whole vectors. */
typedef struct Work {
  u32 dim, dim_v; /* floats of a row */
  f32 *q, *out, *scores, *keys, *values;
  f32 most[MAX_QUERIES], total[MAX_QUERIES];
  u32 position[MAX_QUERIES];
} Work;

static Work work_in(u8 *scratch, const Args *a) {
  Work w;
  w.dim = (a->head_dim + 3) & ~3u;
  w.dim_v = (a->head_dim_v + 3) & ~3u;
  w.q = (f32 *)scratch;
  w.scores = w.q + MAX_QUERIES * w.dim;
  w.out = w.scores + MAX_QUERIES * KEYS;
  w.keys = w.out + MAX_QUERIES * w.dim_v;
  w.values = w.keys + KEYS * w.dim;
  return w;
}

/* One row of the cache as float32. */
INLINE void widen_row(const u8 *from, f32 *to, u32 n, int f16) {
  u32 i = 0;
  for (; i + 4 <= n; i += 4) store(to + i, f16 ? load_f16x4(from + 2 * i) : load(from + 4 * i));
  if (i == n) return;
  store(to + i, splat(0));
  for (; i < n; i++) {
    to[i] = f16 ? wasm_f32x4_extract_lane(widen_halves(wasm_i32x4_splat(((const i16 *)from)[i])), 0) : ((const f32 *)from)[i];
  }
}

static void widen_rows(u32 cache, u32 first, u32 n, u32 head, u32 n_head_kv, u32 dim, u32 stride, int f16, f32 *to) {
  const uintptr_t size = f16 ? 2 : 4;
  const u8 *from = (const u8 *)at(cache) + ((uintptr_t)first * n_head_kv + head) * dim * size;
  for (u32 i = 0; i < n; i++, from += n_head_kv * dim * size, to += stride) widen_row(from, to, dim, f16);
}

/* Scores of `n` queries (1 or 2) with the block's keys, four at a time; those past the last key are never used. */
INLINE void score(const Work *w, u32 query, int n, u32 n_keys) {
  const f32 *q = w->q + query * w->dim;
  for (u32 j = 0; j < n_keys; j += 4) {
    const f32 *k = w->keys + j * w->dim;
    v128 acc[2][4];
    for (int i = 0; i < n; i++) {
      for (int t = 0; t < 4; t++) acc[i][t] = splat(0);
    }
    for (u32 d = 0; d < w->dim; d += 4) {
      v128 key[4];
      for (int t = 0; t < 4; t++) key[t] = load(k + t * w->dim + d);
      for (int i = 0; i < n; i++) {
        v128 x = load(q + i * w->dim + d);
        for (int t = 0; t < 4; t++) acc[i][t] = madd(x, key[t], acc[i][t]);
      }
    }
    for (int i = 0; i < n; i++) {
      store(w->scores + (query + i) * KEYS + j, sums_of_4(acc[i][0], acc[i][1], acc[i][2], acc[i][3]));
    }
  }
}

/* Scores -> weights e^(score - most), with what was summed before rescaled to the new maximum. */
static void weigh(Work *w, u32 query, u32 first, u32 n_keys, const Args *a) {
  f32 *scores = w->scores + query * KEYS;
  u32 position = w->position[query], low = a->window && position + 1 > a->window ? position + 1 - a->window : 0;
  u32 end = min_u32(first + n_keys, position + 1);
  v128 most = splat(w->most[query]);
  for (u32 j = 0; j < n_keys; j += 4) {
    v128 s = load(scores + j);
    if (a->softcap != 0) s = wasm_f32x4_mul(splat(a->softcap), tanh_f32x4(wasm_f32x4_div(s, splat(a->softcap))));
    v128 at_key = wasm_i32x4_add(wasm_i32x4_splat(first + j), wasm_i32x4_const(0, 1, 2, 3));
    v128 seen = wasm_v128_and(wasm_u32x4_ge(at_key, wasm_i32x4_splat(low)), wasm_u32x4_lt(at_key, wasm_i32x4_splat(end)));
    s = wasm_v128_bitselect(s, wasm_f32x4_const_splat(-1e30f), seen);
    store(scores + j, s);
    most = wasm_f32x4_max(most, s); /* not pmax: NaN must not get lost */
  }
  f32 highest = max_of(most);
  f32 shrink = wasm_f32x4_extract_lane(exp_f32x4(splat(w->most[query] - highest)), 0);
  v128 sum = splat(0);
  for (u32 j = 0; j < n_keys; j += 4) {
    v128 s = load(scores + j), weight = exp_f32x4(wasm_f32x4_sub(s, splat(highest)));
    weight = wasm_v128_andnot(weight, wasm_f32x4_eq(s, wasm_f32x4_const_splat(-1e30f)));
    store(scores + j, weight);
    sum = wasm_f32x4_add(sum, weight);
  }
  w->most[query] = highest;
  w->total[query] = w->total[query] * shrink + sum_of(sum);
  f32 *out = w->out + query * w->dim_v;
  for (u32 d = 0; d < w->dim_v; d += 4) store(out + d, wasm_f32x4_mul(load(out + d), splat(shrink)));
}

/* out += weights · values for `n` queries (1 or 2) and `4 · quads` columns from `d`. */
INLINE void mix(const Work *w, u32 query, int n, u32 d, int quads, u32 n_keys) {
  v128 acc[2][4];
  for (int i = 0; i < n; i++) {
    for (int t = 0; t < quads; t++) acc[i][t] = load(w->out + (query + i) * w->dim_v + d + 4 * t);
  }
  const f32 *v = w->values + d, *weight = w->scores + query * KEYS;
  for (u32 j = 0; j < n_keys; j++, v += w->dim_v, weight++) {
    v128 value[4];
    for (int t = 0; t < quads; t++) value[t] = load(v + 4 * t);
    for (int i = 0; i < n; i++) {
      for (int t = 0; t < quads; t++) acc[i][t] = madd(load_splat(weight + i * KEYS), value[t], acc[i][t]);
    }
  }
  for (int i = 0; i < n; i++) {
    for (int t = 0; t < quads; t++) store(w->out + (query + i) * w->dim_v + d + 4 * t, acc[i][t]);
  }
}

INLINE void mix_row(const Work *w, u32 query, int n, u32 n_keys) {
  u32 d = 0;
  for (; d + 16 <= w->dim_v; d += 16) mix(w, query, n, d, 4, n_keys);
  for (; d < w->dim_v; d += 4) mix(w, query, n, d, 1, n_keys);
}

/* The queries of heads `head` … of key head `kv_head` and tokens `token` …; they are gathered token by token. */
static void attend(const Context *c, const Args *a, u32 kv_head, u32 head, u32 n_heads, u32 token, u32 n_tokens) {
  Work w = work_in(c->scratch, a);
  u32 n = n_heads * n_tokens, start = c->params[P_START];
  for (u32 i = 0; i < n; i++) {
    u32 t = token + i / n_heads, h = head + i % n_heads;
    const f32 *q = (const f32 *)at(a->q) + (uintptr_t)t * a->q_stride + h * a->head_dim;
    store(w.q + (i + 1) * w.dim - 4, splat(0));
    for (u32 d = 0; d < a->head_dim; d++) w.q[i * w.dim + d] = q[d] * a->scale;
    for (u32 d = 0; d < w.dim_v; d += 4) store(w.out + i * w.dim_v + d, splat(0));
    w.most[i] = -1e30f;
    w.total[i] = 0;
    w.position[i] = start + t;
  }
  u32 end = start + token + n_tokens, oldest = start + token + 1;
  u32 key = a->window && oldest > a->window ? (oldest - a->window) / KEYS * KEYS : 0; /* blocks begin at fixed positions */
  for (; key < end; key += KEYS) {
    u32 n_keys = min_u32(KEYS, end - key);
    widen_rows(a->k_cache, key, n_keys, kv_head, a->n_head_kv, a->head_dim, w.dim, a->f16, w.keys);
    widen_rows(a->v_cache, key, n_keys, kv_head, a->n_head_kv, a->head_dim_v, w.dim_v, a->f16, w.values);
    u32 i = 0;
    for (; i + 2 <= n; i += 2) score(&w, i, 2, n_keys);
    if (i < n) score(&w, i, 1, n_keys);
    for (i = 0; i < n; i++) weigh(&w, i, key, n_keys, a);
    for (i = 0; i + 2 <= n; i += 2) mix_row(&w, i, 2, n_keys);
    if (i < n) mix_row(&w, i, 1, n_keys);
  }
  for (u32 i = 0; i < n; i++) {
    u32 t = token + i / n_heads, h = head + i % n_heads;
    f32 *out = (f32 *)at(a->out) + (uintptr_t)t * a->out_stride + h * a->head_dim_v;
    for (u32 d = 0; d < a->head_dim_v; d++) out[d] = w.out[i * w.dim_v + d] / w.total[i];
  }
}

/* How the queries are cut into items. Heads that share keys stay together where there is work enough for all. */
typedef struct Cut {
  u32 group, heads, tokens, parts; /* heads of a key head; heads and tokens of an item; items for the same tokens */
} Cut;

static Cut cut(const Context *c, const Args *a, u32 n_rows) {
  u32 group = a->n_head / a->n_head_kv;
  int alone = n_rows == 1 && c->n_threads > 1 && a->n_head_kv < 2 * c->n_threads;
  u32 heads = min_u32(alone ? 1 : group, MAX_QUERIES);
  return (Cut){group, heads, max_u32(1, MAX_QUERIES / heads), a->n_head_kv * ceil_div(group, heads)};
}

static u32 attention_items(const Context *c, u32 n_rows, const void *args) {
  Cut k = cut(c, args, n_rows);
  return ceil_div(n_rows, k.tokens) * k.parts;
}

static void attention_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const Args *a = args;
  Cut k = cut(c, a, n_rows);
  u32 token = item / k.parts * k.tokens, per_group = ceil_div(k.group, k.heads);
  u32 kv_head = item % k.parts / per_group, head = item % per_group * k.heads;
  u32 n_heads = min_u32(k.heads, k.group - head), n_tokens = min_u32(k.tokens, n_rows - token);
  attend(c, a, kv_head, kv_head * k.group + head, n_heads, token, n_tokens);
}

const Kernel attention = {attention_items, attention_item};
