/* x @ weight.T: an item of work is some groups of four rows of the weight.
 *
 * One row of x: each block is unpacked in registers and multiplied at once, because reading the weight is what takes
 * the time. More rows: a group is unpacked once into a panel in the first-level cache, which then meets every tile of
 * x. Quantised weights meet activations rounded to bytes (quantise.c), or unrounded ones in float32 where `exact` is
 * asked for; weights stored as floats are always computed in float32.
 */
#include "matmul.h"
#include "team.h"

typedef struct Args {
  u32 x, x_stride; /* packed activations, or float rows where `exact` */
  u32 weight, layout, n_in, n_out, exact;
  u32 bias;                      /* 0: none */
  u32 residual, residual_stride; /* 0: none */
  u32 out, out_stride;
} Args;

typedef struct Output {
  const f32 *bias, *residual;
  f32 *out;
  u32 residual_stride, out_stride;
} Output;

INLINE void put(const Output *o, u32 row, u32 group, v128 sums) {
  if (o->bias) sums = wasm_f32x4_add(sums, load(o->bias + 4 * group));
  if (o->residual) sums = wasm_f32x4_add(sums, load(o->residual + (uintptr_t)row * o->residual_stride + 4 * group));
  store(o->out + (uintptr_t)row * o->out_stride + 4 * group, sums);
}

/* Groups of one item: enough for little traffic on the counters, few enough for all threads to end together. */
INLINE u32 groups_per_item(const Context *c, u32 n_groups) {
  return max_u32(MAX_STREAMS, min_u32(64, n_groups / (8 * c->n_threads)) / MAX_STREAMS * MAX_STREAMS);
}

static void one_row(const Args *a, const Output *o, u32 first, u32 end) {
  u32 size = group_nbytes(a->layout, a->n_in), n = streams(a->layout), part = (end - first) / n;
  const u8 *weight = at(a->weight), *x = at(a->x);
  for (u32 g = first; g < first + part; g++) {
    const u8 *group = weight + (uintptr_t)g * size;
    v128 sums[MAX_STREAMS];
    if (is_float(a->layout)) multiply_float_streams(a->layout, group, (uintptr_t)part * size, at(a->x), a->n_in, sums);
    else multiply_streams(a->layout, group, (uintptr_t)part * size, x, a->n_in, sums);
    for (u32 i = 0; i < n; i++) put(o, 0, g + i * part, sums[i]);
  }
  for (u32 g = first + n * part; g < end; g++) {
    const u8 *group = weight + (uintptr_t)g * size;
    if (is_float(a->layout)) {
      v128 sums[MAX_STREAMS];
      multiply_float_streams(a->layout, group, 0, at(a->x), a->n_in, sums);
      put(o, 0, g, sums[0]);
    } else {
      put(o, 0, g, multiply_group(a->layout, group, x, a->n_in));
    }
  }
}

static void tiles(const Context *c, const Args *a, const Output *o, u32 n_rows, u32 first, u32 end) {
  u32 size = group_nbytes(a->layout, a->n_in);
  u32 tile = act_tile(TILE, needs_wide_dots(a->layout), a->n_in);
  for (u32 g = first; g < end; g++) {
    unpack_panel(a->layout, (const u8 *)at(a->weight) + (uintptr_t)g * size, a->n_in, c->scratch);
    const u8 *x = at(a->x);
    for (u32 r = 0; r < n_rows; r += TILE, x += tile) {
      v128 sums[TILE];
      multiply_panel(a->layout, c->scratch, x, a->n_in, sums);
      for (u32 i = 0; i < TILE && r + i < n_rows; i++) put(o, r + i, g, sums[i]);
    }
  }
}

static void in_floats(const Context *c, const Args *a, const Output *o, u32 n_rows, u32 first, u32 end) {
  u32 size = group_nbytes(a->layout, a->n_in);
  const f32 *x = at(a->x);
  for (u32 g = first; g < end; g++) {
    const f32 *panel = float_panel(a->layout, (const u8 *)at(a->weight) + (uintptr_t)g * size, a->n_in, c->scratch);
    u32 r = 0;
    for (; r + TILE <= n_rows; r += TILE) {
      v128 sums[TILE];
      multiply_floats_tile(panel, x + (uintptr_t)r * a->x_stride, a->x_stride, a->n_in, sums);
      for (u32 i = 0; i < TILE; i++) put(o, r + i, g, sums[i]);
    }
    for (; r < n_rows; r++) put(o, r, g, multiply_floats(panel, x + (uintptr_t)r * a->x_stride, a->n_in));
  }
}

static u32 matmul_items(const Context *c, u32 n_rows, const void *args) {
  const Args *a = args;
  u32 n_groups = ceil_div(a->n_out, 4);
  return n_rows ? ceil_div(n_groups, groups_per_item(c, n_groups)) : 0;
}

static void matmul_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const Args *a = args;
  const f32 *bias = a->bias ? at(a->bias) : 0, *residual = a->residual ? at(a->residual) : 0;
  Output o = {bias, residual, at(a->out), a->residual_stride, a->out_stride};
  u32 n_groups = ceil_div(a->n_out, 4), step = groups_per_item(c, n_groups), first = item * step;
  u32 end = min_u32(first + step, n_groups);
  if (n_rows == 1 && (is_float(a->layout) || !a->exact)) one_row(a, &o, first, end);
  else if (a->exact) in_floats(c, a, &o, n_rows, first, end);
  else tiles(c, a, &o, n_rows, first, end);
}

const Kernel matmul = {matmul_items, matmul_item};

/* Mixture of experts: for each expert the rows of the batch that chose it. Without a route every row has a run of columns for
 * each expert, which are heads then. */
typedef struct ExpertArgs {
  u32 x, x_stride; /* activations in tiles of one row, or float rows where `exact` */
  u32 weight, layout, n_in, n_out, exact;
  u32 route, route_stride, n_expert, n_used;
  u32 per_expert; /* x has a row of its own for each use of an expert */
  u32 bias;       /* 0: none */
  u32 out, out_stride;
} ExpertArgs;

INLINE int is_choice(const ExpertArgs *a, u32 row, u32 u, u32 expert) {
  if (!a->route) return u == expert;
  return (u32)((const f32 *)at(a->route) + (uintptr_t)row * a->route_stride)[u] == expert;
}

static void expert_groups(const Context *c, const ExpertArgs *a, u32 n_rows, u32 expert, u32 first, u32 end) {
  u32 size = group_nbytes(a->layout, a->n_in), x_size = act_tile(1, needs_wide_dots(a->layout), a->n_in);
  const u8 *weight = (const u8 *)at(a->weight) + (uintptr_t)expert * (a->n_out / 4) * size;
  for (u32 g = first; g < end; g++) {
    const u8 *group = weight + (uintptr_t)g * size;
    const f32 *panel = 0;
    for (u32 r = 0; r < n_rows; r++) {
      for (u32 u = 0; u < a->n_used; u++) {
        if (!is_choice(a, r, u, expert)) continue;
        u32 row = a->per_expert ? r * a->n_used + u : r;
        v128 sums;
        if (a->exact) {
          if (!panel) panel = float_panel(a->layout, group, a->n_in, c->scratch);
          const f32 *x = (const f32 *)at(a->x) + (uintptr_t)r * a->x_stride + (a->per_expert ? u * a->n_in : 0);
          sums = multiply_floats(panel, x, a->n_in);
        } else {
          sums = multiply_group(a->layout, group, (const u8 *)at(a->x) + (uintptr_t)row * x_size, a->n_in);
        }
        if (a->bias) sums = wasm_f32x4_add(sums, load((const f32 *)at(a->bias) + (uintptr_t)expert * a->n_out + 4 * g));
        store((f32 *)at(a->out) + (uintptr_t)r * a->out_stride + u * a->n_out + 4 * g, sums);
      }
    }
  }
}

static int is_used(const ExpertArgs *a, u32 n_rows, u32 expert) {
  for (u32 r = 0; r < n_rows; r++) {
    for (u32 u = 0; u < a->n_used; u++) {
      if (is_choice(a, r, u, expert)) return 1;
    }
  }
  return 0;
}

static u32 expert_chunks(const Context *c, const ExpertArgs *a, u32 *step) {
  u32 n_groups = a->n_out / 4;
  *step = groups_per_item(c, n_groups * a->n_used);
  return ceil_div(n_groups, *step);
}

static u32 experts_items(const Context *c, u32 n_rows, const void *args) {
  const ExpertArgs *a = args;
  u32 step;
  return n_rows ? expert_chunks(c, a, &step) * a->n_expert : 0;
}

static void experts_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ExpertArgs *a = args;
  u32 step, chunks = expert_chunks(c, a, &step), expert = item / chunks, first = item % chunks * step;
  if (is_used(a, n_rows, expert)) expert_groups(c, a, n_rows, expert, first, min_u32(first + step, a->n_out / 4));
}

const Kernel matmul_experts = {experts_items, experts_item};
