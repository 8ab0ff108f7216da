/* Mixtures of experts: who is chosen, and the sum of what they compute (their products: matmul.c). */
#include "rows.h"

typedef struct RouteArgs {
  u32 x, x_stride, out, out_stride, n_expert, n_used, normalise, sigmoid;
  u32 bias, scales; /* 0: none */
  u32 n_group, n_group_used;
  f32 scale;
} RouteArgs;

static const f32 SMALLEST_SUM = 0x1p-14f;

INLINE f32 exp_of(f32 x) { return wasm_f32x4_extract_lane(exp_f32x4(splat(x)), 0); }

/* Experts are compared by their logits, which have the order of the probabilities, or by biased probabilities. */
typedef struct Router {
  const RouteArgs *a;
  const f32 *logits, *bias;
  f32 most, total; /* the largest logit, and the sum of all e^(logit - most) */
} Router;

INLINE f32 probability(const Router *r, u32 expert) {
  if (r->a->sigmoid) return 1.0f / (1.0f + exp_of(-r->logits[expert]));
  return exp_of(r->logits[expert] - r->most) / r->total;
}

INLINE f32 score(const Router *r, u32 expert) {
  return r->bias ? probability(r, expert) + r->bias[expert] : r->logits[expert];
}

/* The sum of the two best of a group. */
static f32 worth(const Router *r, u32 group) {
  u32 size = r->a->n_expert / r->a->n_group;
  f32 best = -3e38f, second = -3e38f;
  for (u32 e = group * size; e < (group + 1) * size; e++) {
    f32 value = probability(r, e) + (r->bias ? r->bias[e] : 0);
    if (value > best) {
      second = best;
      best = value;
    } else if (value > second) {
      second = value;
    }
  }
  return best + second;
}

/* A bit for each of the groups that are worth most. */
static u32 groups_used(const Router *r) {
  u32 used = 0;
  for (u32 n = 0; n < r->a->n_group_used; n++) {
    f32 best = -3e38f;
    u32 best_group = 0;
    for (u32 group = 0; group < r->a->n_group; group++) {
      f32 value = used >> group & 1 ? -3e38f : worth(r, group);
      if (value > best) {
        best = value;
        best_group = group;
      }
    }
    used |= 1u << best_group;
  }
  return used;
}

/* Each round takes the best that comes after the last one taken, in the order (score down, id up). */
static void choose(const Router *r, f32 *ids) {
  const RouteArgs *a = r->a;
  u32 used = a->n_group > 1 ? groups_used(r) : 1, size = a->n_expert / a->n_group, taken_id = 0;
  f32 taken = 0;
  for (u32 u = 0; u < a->n_used; u++) {
    u32 best = a->n_expert;
    f32 best_score = 0;
    for (u32 e = 0; e < a->n_expert; e++) {
      if (!(used >> e / size & 1)) continue;
      f32 value = score(r, e);
      int is_left = u == 0 || value < taken || (value == taken && e > taken_id);
      if (is_left && (best == a->n_expert || value > best_score)) {
        best = e;
        best_score = value;
      }
    }
    ids[u] = (f32)best;
    taken = best_score;
    taken_id = best;
  }
}

static void route_row(const RouteArgs *a, const f32 *logits, f32 *out) {
  Router r = {a, logits, a->bias ? at(a->bias) : 0, logits[0], 0};
  for (u32 e = 1; e < a->n_expert; e++) r.most = logits[e] > r.most ? logits[e] : r.most;
  for (u32 e = 0; e < a->n_expert; e++) r.total += exp_of(logits[e] - r.most);
  choose(&r, out);
  f32 *weights = out + a->n_used, sum = 0;
  for (u32 u = 0; u < a->n_used; u++) sum += weights[u] = probability(&r, min_u32((u32)out[u], a->n_expert - 1));
  f32 factor = a->normalise ? a->scale / (sum > SMALLEST_SUM ? sum : SMALLEST_SUM) : a->scale;
  const f32 *scales = a->scales ? at(a->scales) : 0;
  for (u32 u = 0; u < a->n_used; u++) weights[u] *= factor * (scales ? scales[min_u32((u32)out[u], a->n_expert - 1)] : 1.0f);
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
