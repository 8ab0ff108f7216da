/* softmax(q kᵀ · scale) v in one pass over blocks of keys (online softmax: Milakov & Gimelshein, arXiv 1805.02867; in blocks
 * as in Dao et al., arXiv 2205.14135).
 *
 * An item of work is a few queries that share their keys: some heads of one key head, for some tokens. A block of keys and
 * values is read and widened to float32 once for all of them.
 */
#ifndef BRIDGE_ATTENTION_H
#define BRIDGE_ATTENTION_H

#include "cache.h"
#include "team.h"

enum { KEYS = 32, MAX_QUERIES = 16 };

typedef struct Heads {
  u32 n_head, n_head_kv, head_dim, head_dim_v;
  f32 scale, softcap;
  const f32 *sinks; /* one more term of each head's softmax, without a value; may be 0 */
} Heads;

/* Rows of keys and values: where they begin, how many bytes lie from one to the next, and how they are stored (cache.h).
 * Key i is in row i modulo `ring`, a multiple of KEYS if keys go beyond it. */
typedef struct Rows {
  const u8 *k, *v;
  uintptr_t k_pitch, v_pitch;
  u32 k_type, v_type, ring;
} Rows;

/* What is added to the score of a key `d` rows after the query (bridge/graph/graph.py, text_attention): -|d| times the slope
 * of the head, or its value in row `buckets[d]` of `values`; each may be missing (0). */
typedef struct Bias {
  const f32 *slopes, *values;
  const u32 *buckets;
  i32 span;
} Bias;

/* Some heads of one key head for some tokens; a token at row `at` sees the keys from row `low` up to `end`. */
typedef struct Queries {
  u32 q, q_stride, out, out_stride, kv_head, head, n_heads, token, n_tokens;
  u32 at[MAX_QUERIES], low[MAX_QUERIES], end[MAX_QUERIES];
} Queries;

/* Scratch memory of one item (bridge/simd/memory.py reserves it), rows filled up with zeros to whole vectors. */
typedef struct Work {
  u32 dim, dim_v; /* floats of a row */
  f32 *q, *out, *scores, *keys, *values;
  f32 most[MAX_QUERIES], total[MAX_QUERIES];
} Work;

static Work work_in(u8 *scratch, const Heads *h) {
  Work w;
  w.dim = (h->head_dim + 3) & ~3u;
  w.dim_v = (h->head_dim_v + 3) & ~3u;
  w.q = (f32 *)scratch;
  w.scores = w.q + MAX_QUERIES * w.dim;
  w.out = w.scores + MAX_QUERIES * KEYS;
  w.keys = w.out + MAX_QUERIES * w.dim_v;
  w.values = w.keys + KEYS * w.dim;
  return w;
}

static void widen_rows(const u8 *from, uintptr_t pitch, u32 n, u32 dim, u32 stride, u32 type, f32 *to) {
  for (u32 i = 0; i < n; i++, from += pitch, to += stride) widen_cache_row(from, to, dim, type);
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

static void add_bias(f32 *scores, u32 n_keys, i32 distance, u32 head, u32 n_head, const Bias *b) {
  for (u32 j = 0; j < n_keys; j++, distance++) {
    i32 size = distance < 0 ? -distance : distance;
    if (b->slopes) scores[j] -= b->slopes[head] * (f32)size;
    if (!b->buckets) continue;
    i32 near = distance < -b->span ? -b->span : distance > b->span ? b->span : distance;
    scores[j] += b->values[b->buckets[near + b->span] * n_head + head];
  }
}

/* Scores -> weights e^(score - most), with what was summed before rescaled to the new maximum. `bias` may be 0. */
static void weigh(Work *w, u32 query, u32 first, u32 n_keys, const Queries *q, const Heads *h, const Bias *bias) {
  f32 *scores = w->scores + query * KEYS;
  u32 token = query / q->n_heads, low = q->low[token], end = min_u32(first + n_keys, q->end[token]);
  if (h->softcap != 0) {
    for (u32 j = 0; j < n_keys; j += 4) {
      v128 s = tanh_f32x4(wasm_f32x4_div(load(scores + j), splat(h->softcap)));
      store(scores + j, wasm_f32x4_mul(splat(h->softcap), s));
    }
  }
  if (bias) add_bias(scores, n_keys, (i32)first - (i32)q->at[token], q->head + query % q->n_heads, h->n_head, bias);
  v128 most = splat(w->most[query]);
  for (u32 j = 0; j < n_keys; j += 4) {
    v128 s = load(scores + j);
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

/* Queries are gathered token by token, and key blocks begin at fixed rows. */
static void attend(const Context *c, const Queries *q, const Heads *h, const Rows *rows, const Bias *bias) {
  Work w = work_in(c->scratch, h);
  u32 n = q->n_heads * q->n_tokens, low = q->low[0], end = q->end[0];
  for (u32 i = 0; i < n; i++) {
    u32 t = i / q->n_heads;
    const f32 *x = (const f32 *)at(q->q) + (uintptr_t)(q->token + t) * q->q_stride + (q->head + i % q->n_heads) * h->head_dim;
    store(w.q + (i + 1) * w.dim - 4, splat(0));
    for (u32 d = 0; d < h->head_dim; d++) w.q[i * w.dim + d] = x[d] * h->scale;
    for (u32 d = 0; d < w.dim_v; d += 4) store(w.out + i * w.dim_v + d, splat(0));
    w.most[i] = h->sinks ? h->sinks[q->head + i % q->n_heads] : -1e30f;
    w.total[i] = h->sinks ? 1 : 0;
    low = min_u32(low, q->low[t]);
    end = max_u32(end, q->end[t]);
  }
  const u8 *k = rows->k + cache_nbytes(rows->k_type, q->kv_head * h->head_dim);
  const u8 *v = rows->v + cache_nbytes(rows->v_type, q->kv_head * h->head_dim_v);
  for (u32 key = low / KEYS * KEYS; key < end; key += KEYS) {
    u32 n_keys = min_u32(KEYS, end - key), row = key % rows->ring, i = 0;
    widen_rows(k + row * rows->k_pitch, rows->k_pitch, n_keys, h->head_dim, w.dim, rows->k_type, w.keys);
    widen_rows(v + row * rows->v_pitch, rows->v_pitch, n_keys, h->head_dim_v, w.dim_v, rows->v_type, w.values);
    for (; i + 2 <= n; i += 2) score(&w, i, 2, n_keys);
    if (i < n) score(&w, i, 1, n_keys);
    for (i = 0; i < n; i++) weigh(&w, i, key, n_keys, q, h, bias);
    for (i = 0; i + 2 <= n; i += 2) mix_row(&w, i, 2, n_keys);
    if (i < n) mix_row(&w, i, 1, n_keys);
  }
  for (u32 i = 0; i < n; i++) {
    f32 *out = (f32 *)at(q->out) + (uintptr_t)(q->token + i / q->n_heads) * q->out_stride +
               (q->head + i % q->n_heads) * h->head_dim_v;
    for (u32 d = 0; d < h->head_dim_v; d++) out[d] = w.out[i * w.dim_v + d] / w.total[i];
  }
}

/* How the queries are cut into items. Heads that share keys stay together where there is work enough for all. */
typedef struct Cut {
  u32 group, heads, tokens, parts; /* heads of a key head; heads and tokens of an item; items for the same tokens */
} Cut;

static Cut cut(const Context *c, const Heads *h, u32 n_rows) {
  u32 group = h->n_head / h->n_head_kv;
  int alone = n_rows == 1 && c->n_threads > 1 && h->n_head_kv < 2 * c->n_threads;
  u32 heads = min_u32(alone ? 1 : group, MAX_QUERIES);
  return (Cut){group, heads, max_u32(1, MAX_QUERIES / heads), h->n_head_kv * ceil_div(group, heads)};
}

static u32 count_items(const Context *c, const Heads *h, u32 n_rows) {
  Cut k = cut(c, h, n_rows);
  return ceil_div(n_rows, k.tokens) * k.parts;
}

/* The heads and tokens of an item; what its tokens see is the caller's to say. */
static void take_item(const Context *c, Queries *q, const Heads *h, u32 item, u32 n_rows) {
  Cut k = cut(c, h, n_rows);
  u32 per_group = ceil_div(k.group, k.heads), first = item % per_group * k.heads;
  q->kv_head = item % k.parts / per_group;
  q->head = q->kv_head * k.group + first;
  q->n_heads = min_u32(k.heads, k.group - first);
  q->token = item / k.parts * k.tokens;
  q->n_tokens = min_u32(k.tokens, n_rows - q->token);
}

#endif
