/* Recurrences: they go through the tokens of a batch in order, and carry a state from batch to batch
 * (bridge/graph/graph.py).
 *
 * A state has two copies; a batch reads one and writes one, which may be the same. It is a matrix whose columns do not
 * know of each other, and an item of work is a few of them, for all tokens.
 */
#include "rows.h"

/* Of an item: columns that cost little, and columns with a sum for each token. */
enum { CHEAP_COLUMNS = 64, COLUMNS = 16, QUADS = COLUMNS / 4 };

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

/* `n` columns of the state before the batch, brought to scratch memory where rows are COLUMNS apart (in the state they
 * would fall on the same lines of a cache), and back to the state after it. `n` is a multiple of 4. */
static void fetch(State s, f32 *block, u32 n_rows, u32 width, u32 n) {
  for (uintptr_t row = 0; row < n_rows; row++) {
    f32 *to = block + row * COLUMNS;
    for (u32 i = 0; i < n; i += 4) store(to + i, s.before ? load(s.before + row * width + i) : splat(0));
  }
}
static void keep(State s, const f32 *block, u32 n_rows, u32 width, u32 n) {
  for (uintptr_t row = 0; row < n_rows; row++) {
    for (u32 i = 0; i < n; i += 4) store(s.after + row * width + i, load(block + row * COLUMNS + i));
  }
}

/* Calls `work` with vectors of four columns: all of an item at once, or one after the other where there are fewer. */
#define FOR_QUADS(i, n, work)                            \
  if ((n) == COLUMNS) {                                  \
    const u32 i = 0;                                     \
    work(QUADS);                                         \
  } else {                                               \
    for (u32 i = 0; i < (n); i += 4) work(1);            \
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
  u32 x, x_stride, out, out_stride, weight, bias, state, width, taps; /* bias 0: none */
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
      f32 sum = a->bias ? ((const f32 *)at(a->bias))[i] : 0;
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

/* Columns are lanes. Four may belong to several heads, but to one group. `state` and `rates` (of decay) are blocks. */
INLINE void scan_quads(const ScanArgs *a, f32 *state, const f32 *rates, u32 n_rows, u32 first, u32 quads) {
  u32 d = a->width / a->n_head, n_rates = a->scalar_decay ? 1 : a->d_state;
  const f32 *skip = at(a->skip);
  for (u32 r = 0; r < n_rows; r++) {
    const f32 *dt = row_of(a->dt, a->dt_stride, r), *row = row_of(a->bc, a->bc_stride, r), *b[QUADS], *c[QUADS];
    v128 step[QUADS], stepped[QUADS], kept[QUADS], y[QUADS];
    for (u32 q = 0; q < quads; q++) {
      u32 column = first + 4 * q, h[4] = {column / d, (column + 1) / d, (column + 2) / d, (column + 3) / d};
      v128 x = load(row_of(a->x, a->x_stride, r) + column);
      step[q] = softplus_f32x4(wasm_f32x4_make(dt[h[0]], dt[h[1]], dt[h[2]], dt[h[3]]));
      stepped[q] = wasm_f32x4_mul(step[q], x);
      y[q] = wasm_f32x4_mul(x, wasm_f32x4_make(skip[h[0]], skip[h[1]], skip[h[2]], skip[h[3]]));
      b[q] = row + h[0] / (a->n_head / a->n_group) * a->d_state;
      c[q] = b[q] + a->n_group * a->d_state;
    }
    for (u32 s = 0; s < a->d_state; s++) {
      for (u32 q = 0; q < quads; q++) {
        f32 *at_s = state + s * COLUMNS + 4 * q;
        if (s < n_rates) kept[q] = exp_f32x4(wasm_f32x4_mul(step[q], load(rates + s * COLUMNS + 4 * q)));
        v128 value = madd(stepped[q], load_splat(b[q] + s), wasm_f32x4_mul(kept[q], load(at_s)));
        store(at_s, value);
        y[q] = madd(load_splat(c[q] + s), value, y[q]);
      }
    }
    for (u32 q = 0; q < quads; q++) store(out_row(a->out, a->out_stride, r) + first + 4 * q, y[q]);
  }
}

static u32 scan_items(const Context *c, u32 n_rows, const void *args) {
  return ceil_div(((const ScanArgs *)args)->width, COLUMNS);
}

static void scan_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ScanArgs *a = args;
  u32 first = item * COLUMNS, n = min_u32(COLUMNS, a->width - first), d = a->width / a->n_head;
  u32 n_rates = a->scalar_decay ? 1 : a->d_state;
  f32 *block = (f32 *)c->scratch, *rates = block + a->d_state * COLUMNS;
  for (u32 i = 0; i < n; i++) {
    const f32 *of_head = (const f32 *)at(a->decay) + (first + i) / d * n_rates;
    for (u32 s = 0; s < n_rates; s++) rates[s * COLUMNS + i] = of_head[s];
  }
  State s = state_of(c, a->state, a->d_state * a->width, first);
  fetch(s, block, a->d_state, a->width, n);
#define SCAN(quads) scan_quads(a, block + i, rates + i, n_rows, first + i, quads)
  FOR_QUADS(i, n, SCAN)
  keep(s, block, a->d_state, a->width, n);
}

const Kernel selective_scan = {scan_items, scan_item};

typedef struct DeltaArgs {
  u32 q, q_stride, k, k_stride, v, v_stride, gate, gate_stride, beta, out, out_stride, state;
  u32 n_head, n_head_k, head_dim, head_dim_v, interleaved;
  f32 scale;
} DeltaArgs;

/* Columns of a head's state [head_dim, head_dim_v]; `value` is where they are in a row of v. */
INLINE void delta_quads(const DeltaArgs *a, f32 *state, u32 n_rows, u32 head, u32 value, u32 quads) {
  u32 key_head = a->interleaved ? head % a->n_head_k : head * a->n_head_k / a->n_head;
  for (u32 r = 0; r < n_rows; r++) {
    const f32 *q = row_of(a->q, a->q_stride, r) + key_head * a->head_dim;
    const f32 *k = row_of(a->k, a->k_stride, r) + key_head * a->head_dim;
    v128 kept = exp_f32x4(load_splat(row_of(a->gate, a->gate_stride, r) + head));
    v128 beta = load_splat(row_of(a->beta, a->gate_stride, r) + head), change[QUADS], y[QUADS];
    for (u32 j = 0; j < quads; j++) change[j] = y[j] = splat(0);
    for (u32 i = 0; i < a->head_dim; i++) {
      for (u32 j = 0; j < quads; j++) change[j] = madd(load_splat(k + i), load(state + i * COLUMNS + 4 * j), change[j]);
    }
    for (u32 j = 0; j < quads; j++) {
      v128 v = load(row_of(a->v, a->v_stride, r) + value + 4 * j);
      change[j] = wasm_f32x4_mul(wasm_f32x4_sub(v, wasm_f32x4_mul(kept, change[j])), beta);
    }
    for (u32 i = 0; i < a->head_dim; i++) {
      for (u32 j = 0; j < quads; j++) {
        f32 *at_i = state + i * COLUMNS + 4 * j;
        v128 sum = madd(load_splat(k + i), change[j], wasm_f32x4_mul(kept, load(at_i)));
        store(at_i, sum);
        y[j] = madd(load_splat(q + i), sum, y[j]);
      }
    }
    f32 *out = out_row(a->out, a->out_stride, r) + value;
    for (u32 j = 0; j < quads; j++) store(out + 4 * j, wasm_f32x4_mul(y[j], splat(a->scale)));
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
  f32 *block = (f32 *)c->scratch;
  State s = state_of(c, a->state, a->n_head * size, head * size + first);
  fetch(s, block, a->head_dim, a->head_dim_v, n);
#define DELTA(quads) delta_quads(a, block + i, n_rows, head, head * a->head_dim_v + first + i, quads)
  FOR_QUADS(i, n, DELTA)
  keep(s, block, a->head_dim, a->head_dim_v, n);
}

const Kernel gated_delta = {delta_items, delta_item};

typedef struct WkvArgs {
  u32 r, w, k, v, stride, ab, ab_stride, out, state, width, head_dim;
} WkvArgs;

/* Rows of a head's S, which are columns of its state; `value` is where they are in a row of v. */
INLINE void wkv_quads(const WkvArgs *a, f32 *state, u32 n_rows, u32 head, u32 value, u32 quads) {
  u32 d = a->head_dim, first = head * d;
  for (u32 t = 0; t < n_rows; t++) {
    const f32 *r = row_of(a->r, a->stride, t) + first, *w = row_of(a->w, a->stride, t) + first;
    const f32 *k = row_of(a->k, a->stride, t) + first, *v = row_of(a->v, a->stride, t) + value;
    const f32 *ta = row_of(a->ab, a->ab_stride, t) + first, *tb = ta + a->width;
    v128 removed[QUADS], y[QUADS];
    for (u32 j = 0; j < quads; j++) removed[j] = y[j] = splat(0);
    for (u32 i = 0; i < d; i++) {
      const f32 *row = state + i * COLUMNS;
      for (u32 j = 0; j < quads; j++) removed[j] = madd(load_splat(ta + i), load(row + 4 * j), removed[j]);
    }
    for (u32 i = 0; i < d; i++) {
      for (u32 j = 0; j < quads; j++) {
        f32 *at_i = state + i * COLUMNS + 4 * j;
        v128 sum = madd(load_splat(tb + i), removed[j], wasm_f32x4_mul(load_splat(w + i), load(at_i)));
        sum = madd(load_splat(k + i), load(v + 4 * j), sum);
        store(at_i, sum);
        y[j] = madd(load_splat(r + i), sum, y[j]);
      }
    }
    for (u32 j = 0; j < quads; j++) store(out_row(a->out, a->stride, t) + value + 4 * j, y[j]);
  }
}

static u32 wkv_items(const Context *c, u32 n_rows, const void *args) {
  const WkvArgs *a = args;
  return a->width / a->head_dim * ceil_div(a->head_dim, COLUMNS);
}

static void wkv_item(const Context *c, u32 n_rows, const void *args, u32 item) {
  const WkvArgs *a = args;
  u32 d = a->head_dim, blocks = ceil_div(d, COLUMNS), head = item / blocks, first = item % blocks * COLUMNS;
  u32 n = min_u32(COLUMNS, d - first);
  f32 *block = (f32 *)c->scratch;
  State s = state_of(c, a->state, a->width * d, head * d * d + first);
  fetch(s, block, d, d, n);
#define WKV(quads) wkv_quads(a, block + i, n_rows, head, head * d + first + i, quads)
  FOR_QUADS(i, n, WKV)
  keep(s, block, d, d, n);
}

const Kernel wkv7 = {wkv_items, wkv_item};
