/* Operations that go by rows of activations. Rows of a slot are `stride` floats apart, a multiple of four; vectors may
 * run into the columns that fill a row up. */
#include "matmul.h"
#include "team.h"

INLINE const f32 *row_of(u32 unit, u32 stride, u32 row) { return (const f32 *)at(unit) + (uintptr_t)row * stride; }
INLINE f32 *out_row(u32 unit, u32 stride, u32 row) { return (f32 *)at(unit) + (uintptr_t)row * stride; }

u32 row_items(const Context *c, u32 n_rows, const void *args) {
  return ceil_div(n_rows, ROWS_PER_ITEM);
}

typedef struct EmbedArgs {
  u32 weight, layout, n_in, out, out_stride;
  f32 scale;
} EmbedArgs;

static void embed_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const EmbedArgs *a = args;
  const u32 *tokens = c->params + c->params[P_TOKEN_IDS];
  uintptr_t size = group_nbytes(a->layout, a->n_in);
  FOR_ROWS(r, item, n_rows) {
    const u8 *group = (const u8 *)at(a->weight) + tokens[r] / 4 * size;
    const f32 *columns = float_panel(a->layout, group, a->n_in, c->scratch) + tokens[r] % 4;
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 i = 0; i < a->n_in; i++) out[i] = columns[4 * i] * a->scale;
  }
}

const Kernel embed = {row_items, embed_rows};

typedef struct NormArgs {
  u32 x, x_stride, out, out_stride, weight, width, group;
  f32 eps;
} NormArgs;

static f32 sum_of_squares(const f32 *x, u32 n) {
  v128 sums[2] = {splat(0), splat(0)};
  u32 i = 0;
  for (; i + 8 <= n; i += 8) {
    v128 a = load(x + i), b = load(x + i + 4);
    sums[0] = madd(a, a, sums[0]);
    sums[1] = madd(b, b, sums[1]);
  }
  f32 sum = sum_of(wasm_f32x4_add(sums[0], sums[1]));
  for (; i < n; i++) sum += x[i] * x[i];
  return sum;
}

static void norm_group(const f32 *x, const f32 *weight, f32 *out, u32 n, f32 eps) {
  f32 factor = 1.0f / __builtin_sqrtf(sum_of_squares(x, n) / (f32)n + eps);
  u32 i = 0;
  for (; i + 4 <= n; i += 4) store(out + i, wasm_f32x4_mul(wasm_f32x4_mul(load(x + i), splat(factor)), load(weight + i)));
  for (; i < n; i++) out[i] = x[i] * factor * weight[i];
}

static void rms_norm_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const NormArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->x_stride, r);
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 g = 0; g < a->width; g += a->group) norm_group(x + g, at(a->weight), out + g, a->group, a->eps);
  }
}

const Kernel rms_norm = {row_items, rms_norm_rows};

typedef struct RopeArgs {
  u32 x, x_stride, out, out_stride, width, head_dim, n_rot, neox, table;
} RopeArgs;

/* Pairs of neighbours: (a, b) -> (a cos - b sin, a sin + b cos). */
static void rotate_neighbours(const f32 *x, const f32 *table, f32 *out, u32 n_rot) {
  u32 i = 0;
  for (; i + 4 <= n_rot; i += 4) {
    v128 v = load(x + i), t = load(table + i);
    v128 cosines = wasm_i32x4_shuffle(t, t, 0, 0, 2, 2), sines = wasm_i32x4_shuffle(t, t, 1, 1, 3, 3);
    v128 signs = wasm_u32x4_const(0x80000000u, 0, 0x80000000u, 0);
    v128 swapped = wasm_v128_xor(wasm_i32x4_shuffle(v, v, 1, 0, 3, 2), signs);
    store(out + i, wasm_f32x4_add(wasm_f32x4_mul(v, cosines), wasm_f32x4_mul(swapped, sines)));
  }
  for (; i < n_rot; i += 2) {
    f32 a = x[i], b = x[i + 1];
    out[i] = a * table[i] - b * table[i + 1];
    out[i + 1] = a * table[i + 1] + b * table[i];
  }
}

/* Pairs of a column of the first half and its counterpart in the second. */
static void rotate_halves(const f32 *x, const f32 *table, f32 *out, u32 half) {
  u32 i = 0;
  for (; i + 4 <= half; i += 4) {
    v128 a = load(x + i), b = load(x + half + i), t0 = load(table + 2 * i), t1 = load(table + 2 * i + 4);
    v128 cosines = wasm_i32x4_shuffle(t0, t1, 0, 2, 4, 6), sines = wasm_i32x4_shuffle(t0, t1, 1, 3, 5, 7);
    v128 first = wasm_f32x4_sub(wasm_f32x4_mul(a, cosines), wasm_f32x4_mul(b, sines));
    v128 second = wasm_f32x4_add(wasm_f32x4_mul(a, sines), wasm_f32x4_mul(b, cosines));
    store(out + i, first);
    store(out + half + i, second);
  }
  for (; i < half; i++) {
    f32 a = x[i], b = x[half + i];
    out[i] = a * table[2 * i] - b * table[2 * i + 1];
    out[half + i] = a * table[2 * i + 1] + b * table[2 * i];
  }
}

static void rope_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const RopeArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->x_stride, r), *table = row_of(a->table, a->n_rot, r);
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 h = 0; h < a->width; h += a->head_dim) {
      if (a->neox) rotate_halves(x + h, table, out + h, a->n_rot / 2);
      else rotate_neighbours(x + h, table, out + h, a->n_rot);
      for (u32 i = a->n_rot; i < a->head_dim; i++) out[h + i] = x[h + i];
    }
  }
}

const Kernel rope = {row_items, rope_rows};

typedef struct KvArgs {
  u32 k, k_stride, v, v_stride, k_cache, v_cache, k_width, v_width, f16;
} KvArgs;

static void store_position(const f32 *x, u8 *cache, u32 n, int f16) {
  u32 i = 0;
  for (; i + 4 <= n; i += 4) {
    if (f16) store_f16x4(cache + 2 * i, load(x + i));
    else store(cache + 4 * i, load(x + i));
  }
  for (; i < n; i++) {
    if (f16) ((u16 *)cache)[i] = wasm_u16x8_extract_lane(narrow_to_halves(splat(x[i])), 0);
    else ((f32 *)cache)[i] = x[i];
  }
}

static void kv_write_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const KvArgs *a = args;
  const uintptr_t size = a->f16 ? 2 : 4;
  FOR_ROWS(r, item, n_rows) {
    uintptr_t position = c->params[P_START] + r;
    store_position(row_of(a->k, a->k_stride, r), (u8 *)at(a->k_cache) + position * a->k_width * size, a->k_width, a->f16);
    store_position(row_of(a->v, a->v_stride, r), (u8 *)at(a->v_cache) + position * a->v_width * size, a->v_width, a->f16);
  }
}

const Kernel kv_write = {row_items, kv_write_rows};

/* Element-wise operations on rows that are all `stride` apart. */
typedef struct ElementArgs {
  u32 x, y, out, stride, act;
  f32 number;
} ElementArgs;

enum Act { ACT_SILU, ACT_GELU };

INLINE v128 activate(enum Act act, v128 x) {
  v128 one = wasm_f32x4_const_splat(1.0f), z = x;
  if (act == ACT_GELU) {
    /* x/2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3): Hendrycks & Gimpel, arXiv 1606.08415. */
    v128 cubic = madd(wasm_f32x4_mul(x, x), wasm_f32x4_const_splat(0.044715f), one);
    z = wasm_f32x4_mul(wasm_f32x4_mul(x, cubic), wasm_f32x4_const_splat(2 * 0.79788456080286535588f));
  }
  return wasm_f32x4_div(x, wasm_f32x4_add(one, exp_f32x4(wasm_f32x4_neg(z))));
}

static void glu_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *gate = row_of(a->x, a->stride, r), *up = row_of(a->y, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r);
    if (a->act == ACT_SILU) {
      for (u32 i = 0; i < a->stride; i += 4) store(out + i, wasm_f32x4_mul(activate(ACT_SILU, load(gate + i)), load(up + i)));
    } else {
      for (u32 i = 0; i < a->stride; i += 4) store(out + i, wasm_f32x4_mul(activate(ACT_GELU, load(gate + i)), load(up + i)));
    }
  }
}

const Kernel glu = {row_items, glu_rows};

static void add_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r), *y = row_of(a->y, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) store(out + i, wasm_f32x4_add(load(x + i), load(y + i)));
  }
}

const Kernel add = {row_items, add_rows};

static void scale_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) store(out + i, wasm_f32x4_mul(load(x + i), splat(a->number)));
  }
}

const Kernel scale = {row_items, scale_rows};

static void softcap_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  v128 cap = splat(a->number);
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) store(out + i, wasm_f32x4_mul(cap, tanh_f32x4(wasm_f32x4_div(load(x + i), cap))));
  }
}

const Kernel softcap = {row_items, softcap_rows};

static void select_outputs_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  const u32 *rows = c->params + c->params[P_OUTPUT_ROWS];
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, rows[r]);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) store(out + i, load(x + i));
  }
}

const Kernel select_outputs = {row_items, select_outputs_rows};

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
