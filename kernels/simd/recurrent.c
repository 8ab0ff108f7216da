/* Recurrences: they go through the tokens of a batch in order, and carry a state from batch to batch
 * (bridge/graph/graph.py).
 *
 * A state has two copies; a batch reads one and writes one, which may be the same. It is a matrix whose columns do not
 * know of each other, and an item of work is a few of them, for all tokens.
 */
#include "rows.h"

/* Of an item: columns that cost little, and columns with a sum for each token. */
enum { CHEAP_COLUMNS = 64, COLUMNS = 16 };

/* A state's matrix before and after the batch, from some column on; `before` is NULL for zeros. */
typedef struct State {
  const f32 *before;
  f32 *after;
} State;

INLINE State state_of(const Context *c, u32 unit, u32 n_floats, u32 first) {
  f32 *copies = at(unit);
  const f32 *before = copies + (uintptr_t)c->params[P_STATE_READ] * n_floats + first;
  return (State){c->params[P_START] ? before : 0, copies + (uintptr_t)c->params[P_STATE_WRITTEN] * n_floats + first};
}

/* Puts `n` columns (a multiple of 4) of the state before the batch where they are changed. */
static void bring(State s, u32 n_rows, u32 width, u32 n) {
  if (s.before == s.after) return;
  for (uintptr_t row = 0; row < n_rows; row++) {
    for (u32 i = 0; i < n; i += 4) {
      store(s.after + row * width + i, s.before ? load(s.before + row * width + i) : splat(0));
    }
  }
}

typedef struct ShiftArgs {
  u32 x, x_stride, out, out_stride, weight, state, width, n_mixes;
} ShiftArgs;

static u32 shift_items(const Context *c, u32 n_rows, const void *args) {
  return ceil_div(((const ShiftArgs *)args)->width, CHEAP_COLUMNS);
}

static void shift_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ShiftArgs *a = args;
  const f32 *weight = at(a->weight);
  State s = state_of(c, a->state, a->width, 0);
  for (u32 i = item * CHEAP_COLUMNS; i < min_u32((item + 1) * CHEAP_COLUMNS, a->width); i++) {
    f32 previous = s.before ? s.before[i] : 0;
    for (u32 r = 0; r < n_rows; r++) {
      f32 x = row_of(a->x, a->x_stride, r)[i], *out = out_row(a->out, a->out_stride, r) + i;
      for (u32 m = 0; m < a->n_mixes; m++) out[m * a->width] = x + (previous - x) * weight[m * a->width + i];
      previous = x;
    }
    s.after[i] = previous;
  }
}

const Kernel token_shift = {shift_items, shift_item};

typedef struct ConvArgs {
  u32 x, x_stride, out, out_stride, weight, state, width, taps;
} ConvArgs;

static u32 conv_items(const Context *c, u32 n_rows, const void *args) {
  return ceil_div(((const ConvArgs *)args)->width, CHEAP_COLUMNS);
}

/* Column `i` of a row, counted from the oldest one that the state holds. */
INLINE f32 conv_input(const ConvArgs *a, const f32 *before, u32 row, u32 i) {
  u32 n_kept = a->taps - 1;
  if (row >= n_kept) return row_of(a->x, a->x_stride, row - n_kept)[i];
  return before ? before[row * a->width + i] : 0;
}

static void conv_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ConvArgs *a = args;
  State s = state_of(c, a->state, (a->taps - 1) * a->width, 0);
  for (u32 i = item * CHEAP_COLUMNS; i < min_u32((item + 1) * CHEAP_COLUMNS, a->width); i++) {
    const f32 *weight = (const f32 *)at(a->weight) + i * a->taps;
    for (u32 r = 0; r < n_rows; r++) {
      f32 sum = 0;
      for (u32 tap = 0; tap < a->taps; tap++) sum += weight[tap] * conv_input(a, s.before, r + tap, i);
      out_row(a->out, a->out_stride, r)[i] = sum;
    }
    /* Oldest first: each comes from a row that is not overwritten yet. */
    for (u32 kept = 0; kept + 1 < a->taps; kept++) {
      s.after[kept * a->width + i] = conv_input(a, s.before, n_rows + kept, i);
    }
  }
}

const Kernel conv = {conv_items, conv_item};

typedef struct ScanArgs {
  u32 x, x_stride, dt, dt_stride, bc, bc_stride, out, out_stride, decay, skip, state;
  u32 width, n_head, n_group, d_state, scalar_decay;
} ScanArgs;

/* Columns are lanes, four at a time; they may belong to several heads, but to one group. */
static void scan_columns(const ScanArgs *a, f32 *state, u32 n_rows, u32 first) {
  u32 d = a->width / a->n_head, n_decay = a->scalar_decay ? 1 : a->d_state, heads[4];
  const f32 *decay = at(a->decay), *skip = at(a->skip);
  for (u32 lane = 0; lane < 4; lane++) heads[lane] = (first + lane) / d;
  u32 group = heads[0] / (a->n_head / a->n_group);
  f32 rates[4];
  for (u32 r = 0; r < n_rows; r++) {
    const f32 *dt = row_of(a->dt, a->dt_stride, r), *b = row_of(a->bc, a->bc_stride, r) + group * a->d_state;
    const f32 *c = b + a->n_group * a->d_state;
    v128 step = softplus_f32x4(wasm_f32x4_make(dt[heads[0]], dt[heads[1]], dt[heads[2]], dt[heads[3]]));
    v128 x = load(row_of(a->x, a->x_stride, r) + first), kept = splat(0);
    v128 stepped = wasm_f32x4_mul(step, x);
    v128 y = wasm_f32x4_mul(x, wasm_f32x4_make(skip[heads[0]], skip[heads[1]], skip[heads[2]], skip[heads[3]]));
    for (u32 s = 0; s < a->d_state; s++) {
      if (s < n_decay) {
        for (u32 lane = 0; lane < 4; lane++) rates[lane] = decay[heads[lane] * n_decay + s];
        kept = exp_f32x4(wasm_f32x4_mul(step, load(rates)));
      }
      f32 *at_s = state + (uintptr_t)s * a->width;
      v128 value = madd(stepped, load_splat(b + s), wasm_f32x4_mul(kept, load(at_s)));
      store(at_s, value);
      y = madd(load_splat(c + s), value, y);
    }
    store(out_row(a->out, a->out_stride, r) + first, y);
  }
}

static u32 scan_items(const Context *c, u32 n_rows, const void *args) {
  return ceil_div(((const ScanArgs *)args)->width, COLUMNS);
}

static void scan_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ScanArgs *a = args;
  u32 first = item * COLUMNS, n = min_u32(COLUMNS, a->width - first);
  State s = state_of(c, a->state, a->d_state * a->width, first);
  bring(s, a->d_state, a->width, n);
  for (u32 i = 0; i < n; i += 4) scan_columns(a, s.after + i, n_rows, first + i);
}

const Kernel selective_scan = {scan_items, scan_item};

typedef struct DeltaArgs {
  u32 q, q_stride, k, k_stride, v, v_stride, gate, gate_stride, beta, out, out_stride, state;
  u32 n_head, n_head_k, head_dim, head_dim_v, interleaved;
  f32 scale;
} DeltaArgs;

/* Four columns of a head's state [head_dim, head_dim_v]; `value` is where they are in a row of v. */
static void delta_columns(const DeltaArgs *a, f32 *state, u32 n_rows, u32 head, u32 value) {
  u32 key_head = a->interleaved ? head % a->n_head_k : head * a->n_head_k / a->n_head;
  uintptr_t stride = a->head_dim_v;
  for (u32 r = 0; r < n_rows; r++) {
    const f32 *q = row_of(a->q, a->q_stride, r) + key_head * a->head_dim;
    const f32 *k = row_of(a->k, a->k_stride, r) + key_head * a->head_dim;
    v128 kept = exp_f32x4(load_splat(row_of(a->gate, a->gate_stride, r) + head)), known = splat(0), y = splat(0);
    for (u32 i = 0; i < a->head_dim; i++) known = madd(load_splat(k + i), load(state + i * stride), known);
    v128 change = wasm_f32x4_sub(load(row_of(a->v, a->v_stride, r) + value), wasm_f32x4_mul(kept, known));
    change = wasm_f32x4_mul(change, load_splat(row_of(a->beta, a->gate_stride, r) + head));
    for (u32 i = 0; i < a->head_dim; i++) {
      v128 sum = madd(load_splat(k + i), change, wasm_f32x4_mul(kept, load(state + i * stride)));
      store(state + i * stride, sum);
      y = madd(load_splat(q + i), sum, y);
    }
    store(out_row(a->out, a->out_stride, r) + value, wasm_f32x4_mul(y, splat(a->scale)));
  }
}

static u32 delta_items(const Context *c, u32 n_rows, const void *args) {
  const DeltaArgs *a = args;
  return a->n_head * ceil_div(a->head_dim_v, COLUMNS);
}

static void delta_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const DeltaArgs *a = args;
  u32 blocks = ceil_div(a->head_dim_v, COLUMNS), head = item / blocks, first = item % blocks * COLUMNS;
  u32 n = min_u32(COLUMNS, a->head_dim_v - first), size = a->head_dim * a->head_dim_v;
  State s = state_of(c, a->state, a->n_head * size, head * size + first);
  bring(s, a->head_dim, a->head_dim_v, n);
  for (u32 i = 0; i < n; i += 4) delta_columns(a, s.after + i, n_rows, head, head * a->head_dim_v + first + i);
}

const Kernel gated_delta = {delta_items, delta_item};

typedef struct WkvArgs {
  u32 r, w, k, v, stride, ab, ab_stride, out, state, width, head_dim;
} WkvArgs;

/* Four rows of a head's S, which are columns of its state; `value` is where they are in a row of v. */
static void wkv_columns(const WkvArgs *a, f32 *state, u32 n_rows, u32 head, u32 value) {
  u32 d = a->head_dim, first = head * d;
  for (u32 t = 0; t < n_rows; t++) {
    const f32 *r = row_of(a->r, a->stride, t) + first, *w = row_of(a->w, a->stride, t) + first;
    const f32 *k = row_of(a->k, a->stride, t) + first;
    const f32 *ta = row_of(a->ab, a->ab_stride, t) + first, *tb = ta + a->width;
    v128 v = load(row_of(a->v, a->stride, t) + value), removed = splat(0), y = splat(0);
    for (uintptr_t i = 0; i < d; i++) removed = madd(load_splat(ta + i), load(state + i * d), removed);
    for (uintptr_t i = 0; i < d; i++) {
      v128 sum = madd(load_splat(tb + i), removed, wasm_f32x4_mul(load_splat(w + i), load(state + i * d)));
      sum = madd(load_splat(k + i), v, sum);
      store(state + i * d, sum);
      y = madd(load_splat(r + i), sum, y);
    }
    store(out_row(a->out, a->stride, t) + value, y);
  }
}

static u32 wkv_items(const Context *c, u32 n_rows, const void *args) {
  const WkvArgs *a = args;
  return a->width / a->head_dim * ceil_div(a->head_dim, COLUMNS);
}

static void wkv_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const WkvArgs *a = args;
  u32 blocks = ceil_div(a->head_dim, COLUMNS), head = item / blocks, first = item % blocks * COLUMNS;
  u32 n = min_u32(COLUMNS, a->head_dim - first);
  State s = state_of(c, a->state, a->width * a->head_dim, head * a->head_dim * a->head_dim + first);
  bring(s, a->head_dim, a->head_dim, n);
  for (u32 i = 0; i < n; i += 4) wkv_columns(a, s.after + i, n_rows, head, head * a->head_dim + first + i);
}

const Kernel wkv7 = {wkv_items, wkv_item};
