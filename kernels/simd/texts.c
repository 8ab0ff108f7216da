/* Operations within the texts of a batch. The parameter block has for each row the first row of its text and its end. */
#include "attention.h"
#include "rows.h"

typedef struct AttentionArgs {
  u32 q, q_stride, out, out_stride, k, k_stride, v, v_stride;
  u32 n_head, n_head_kv, head_dim, head_dim_v, before, after;
  u32 slopes, values, buckets, span;
  f32 scale, softcap;
} AttentionArgs;

INLINE const void *at_or_none(u32 unit) { return unit ? at(unit) : 0; }

static Heads heads_of(const AttentionArgs *a) {
  return (Heads){a->n_head, a->n_head_kv, a->head_dim, a->head_dim_v, a->scale, a->softcap, 0};
}

static u32 text_attention_items(const Context *c, u32 n_rows, const void *args) {
  Heads heads = heads_of(args);
  return count_items(c, &heads, n_rows);
}

static void text_attention_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const AttentionArgs *a = args;
  Heads heads = heads_of(a);
  Rows rows = {at(a->k), at(a->v), a->k_stride * sizeof(f32), a->v_stride * sizeof(f32), CACHE_F32, CACHE_F32, (u32)-1};
  Bias bias = {at_or_none(a->slopes), at_or_none(a->values), at_or_none(a->buckets), (i32)a->span};
  Queries queries = {.q = a->q, .q_stride = a->q_stride, .out = a->out, .out_stride = a->out_stride};
  const u32 *texts = texts_of(c);
  take_item(c, &queries, &heads, item, n_rows);
  for (u32 t = 0; t < queries.n_tokens; t++) {
    u32 row = queries.token + t, first = texts[2 * row], end = texts[2 * row + 1];
    queries.at[t] = row;
    queries.low[t] = row - first > a->before ? row - a->before : first;
    queries.end[t] = end - row - 1 > a->after ? row + a->after + 1 : end;
  }
  attend(c, &queries, &heads, &rows, a->slopes || a->buckets ? &bias : 0);
}

const Kernel text_attention = {text_attention_items, text_attention_item};

typedef struct MeanArgs {
  u32 x, out, stride;
} MeanArgs;

static void text_mean_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const MeanArgs *a = args;
  const u32 *texts = texts_of(c), *wanted = c->params + c->params[P_OUTPUT_ROWS];
  FOR_ROWS(r, item, n_rows) {
    u32 first = texts[2 * wanted[r]], end = texts[2 * wanted[r] + 1];
    const f32 *x = row_of(a->x, a->stride, 0);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) {
      v128 sum = splat(0);
      for (u32 row = first; row < end; row++) sum = wasm_f32x4_add(sum, load(x + (uintptr_t)row * a->stride + i));
      store(out + i, wasm_f32x4_div(sum, splat((f32)(end - first))));
    }
  }
}

const Kernel text_mean = {row_items, text_mean_rows};

typedef struct SoftmaxArgs {
  u32 x, out, stride, width;
} SoftmaxArgs;

static void softmax_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const SoftmaxArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r), most = x[0], total = 0;
    for (u32 i = 1; i < a->width; i++) most = x[i] > most ? x[i] : most;
    for (u32 i = 0; i < a->width; i++) {
      out[i] = wasm_f32x4_extract_lane(exp_f32x4(splat(x[i] - most)), 0);
      total += out[i];
    }
    for (u32 i = 0; i < a->width; i++) out[i] /= total;
  }
}

const Kernel softmax = {row_items, softmax_rows};
