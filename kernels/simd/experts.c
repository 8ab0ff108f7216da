/* Mixtures of experts: who is chosen, and the sum of what they compute (their products: matmul.c). */
#include "rows.h"

typedef struct RouteArgs {
  u32 x, x_stride, out, out_stride, n_expert, n_used, normalise;
} RouteArgs;

static int is_taken(const f32 *ids, u32 n, u32 expert) {
  for (u32 i = 0; i < n; i++) {
    if ((u32)ids[i] == expert) return 1;
  }
  return 0;
}

/* Ids of the largest logits, ties to the lower id, then their softmax over all experts or, normalised, over themselves. */
static void route_row(const RouteArgs *a, const f32 *logits, f32 *out) {
  f32 *ids = out, *weights = out + a->n_used;
  for (u32 u = 0; u < a->n_used; u++) {
    u32 best = a->n_expert;
    for (u32 e = 0; e < a->n_expert; e++) {
      if (!is_taken(ids, u, e) && (best == a->n_expert || logits[e] > logits[best])) best = e;
    }
    ids[u] = (f32)best;
  }
  f32 most = logits[(u32)ids[0]], total = 0;
  if (!a->normalise) {
    for (u32 e = 0; e < a->n_expert; e++) total += wasm_f32x4_extract_lane(exp_f32x4(splat(logits[e] - most)), 0);
  }
  for (u32 u = 0; u < a->n_used; u++) {
    weights[u] = wasm_f32x4_extract_lane(exp_f32x4(splat(logits[(u32)ids[u]] - most)), 0);
    if (a->normalise) total += weights[u];
  }
  for (u32 u = 0; u < a->n_used; u++) weights[u] /= total;
}

static void route_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const RouteArgs *a = args;
  FOR_ROWS(r, item, n_rows) route_row(a, row_of(a->x, a->x_stride, r), out_row(a->out, a->out_stride, r));
}

const Kernel route = {row_items, route_rows};

typedef struct CombineArgs {
  u32 x, x_stride, route, route_stride, out, out_stride, n_used, width;
} CombineArgs;

static void combine_experts_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const CombineArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->x_stride, r), *weights = row_of(a->route, a->route_stride, r) + a->n_used;
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 i = 0; i < a->width; i += 4) {
      v128 sum = splat(0);
      for (u32 u = 0; u < a->n_used; u++) sum = madd(load(x + u * a->width + i), splat(weights[u]), sum);
      store(out + i, sum);
    }
  }
}

const Kernel combine_experts = {row_items, combine_experts_rows};
