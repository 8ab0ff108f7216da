/* Attention over the cache of a layer. */
#include "attention.h"

typedef struct Args {
  u32 q, q_stride, out, out_stride, k_cache, v_cache;
  u32 n_head, n_head_kv, head_dim, head_dim_v, window, k_type, v_type, ring;
  f32 scale, softcap;
  u32 sinks; /* 0: none */
} Args;

static Heads heads_of(const Args *a) {
  return (Heads){a->n_head, a->n_head_kv, a->head_dim, a->head_dim_v, a->scale, a->softcap, a->sinks ? at(a->sinks) : 0};
}

static u32 attention_items(const Context *c, u32 n_rows, const void *args) {
  Heads heads = heads_of(args);
  return count_items(c, &heads, n_rows);
}

static void attention_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const Args *a = args;
  Heads heads = heads_of(a);
  Rows rows = {at(a->k_cache), at(a->v_cache), cache_nbytes(a->k_type, a->n_head_kv * a->head_dim),
               cache_nbytes(a->v_type, a->n_head_kv * a->head_dim_v), a->k_type, a->v_type, a->ring};
  Queries queries = {.q = a->q, .q_stride = a->q_stride, .out = a->out, .out_stride = a->out_stride};
  take_item(c, &queries, &heads, item, n_rows);
  for (u32 t = 0; t < queries.n_tokens; t++) {
    u32 end = c->params[P_START] + queries.token + t + 1;
    queries.at[t] = end - 1;
    queries.end[t] = end;
    queries.low[t] = a->window && end > a->window ? end - a->window : 0;
  }
  attend(c, &queries, &heads, &rows, 0);
}

const Kernel attention = {attention_items, attention_item};
