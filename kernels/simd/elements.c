/* Element by element: activations, sums and products, and columns taken apart and put together. */
#include "rows.h"

/* Rows that are all `stride` apart. */
typedef struct ElementArgs {
  u32 x, y, out, stride, act;
  f32 first, second;
} ElementArgs;

/* Each is a function of four elements; ACTIVATIONS lists them in the order of bridge.graph.graph. */
INLINE v128 one(void) { return wasm_f32x4_const_splat(1.0f); }
INLINE v128 positive(v128 x) { return wasm_f32x4_max(x, splat(0)); }
INLINE v128 act_sigmoid(v128 x) { return wasm_f32x4_div(one(), wasm_f32x4_add(one(), exp_f32x4(wasm_f32x4_neg(x)))); }
INLINE v128 act_silu(v128 x) { return wasm_f32x4_div(x, wasm_f32x4_add(one(), exp_f32x4(wasm_f32x4_neg(x)))); }
/* x/2 (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3): Hendrycks & Gimpel, arXiv 1606.08415. */
INLINE v128 act_gelu(v128 x) {
  v128 cubic = madd(wasm_f32x4_mul(x, x), wasm_f32x4_const_splat(0.044715f), one());
  v128 z = wasm_f32x4_mul(wasm_f32x4_mul(x, cubic), wasm_f32x4_const_splat(2 * 0.79788456080286535588f));
  return wasm_f32x4_div(x, wasm_f32x4_add(one(), exp_f32x4(wasm_f32x4_neg(z))));
}
INLINE v128 act_gelu_quick(v128 x) {
  return wasm_f32x4_mul(x, act_sigmoid(wasm_f32x4_mul(x, wasm_f32x4_const_splat(1.702f))));
}
INLINE v128 act_relu(v128 x) { return positive(x); }
INLINE v128 act_relu2(v128 x) { return wasm_f32x4_mul(positive(x), positive(x)); }
INLINE v128 act_softplus(v128 x) { return softplus_f32x4(x); }
INLINE v128 act_tanh(v128 x) { return tanh_f32x4(x); }
INLINE v128 act_exp(v128 x) { return exp_f32x4(x); }
INLINE v128 act_sqrt(v128 x) { return wasm_f32x4_sqrt(positive(x)); }

#define ACTIVATIONS(F) F(silu) F(gelu) F(gelu_quick) F(relu) F(relu2) F(sigmoid) F(softplus) F(tanh) F(exp) F(sqrt)
#define NUMBER(name) ACT_##name,
enum Act { ACTIVATIONS(NUMBER) };

#define ACTIVATE_ROW(name) \
  case ACT_##name: for (u32 i = 0; i < n; i += 4) store(out + i, act_##name(load(x + i))); break;
static void activate_row(enum Act act, const f32 *x, f32 *out, u32 n) {
  switch (act) { ACTIVATIONS(ACTIVATE_ROW) }
}

#define GLU_ROW(name) \
  case ACT_##name:    \
    for (u32 i = 0; i < n; i += 4) store(out + i, wasm_f32x4_mul(act_##name(load(x + i)), load(up + i))); \
    break;
static void glu_row(enum Act act, const f32 *x, const f32 *up, f32 *out, u32 n) {
  switch (act) { ACTIVATIONS(GLU_ROW) }
}

static void activate_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  FOR_ROWS(r, item, n_rows) activate_row(a->act, row_of(a->x, a->stride, r), out_row(a->out, a->stride, r), a->stride);
}

const Kernel activate = {row_items, activate_rows};

static void glu_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    glu_row(a->act, row_of(a->x, a->stride, r), row_of(a->y, a->stride, r), out_row(a->out, a->stride, r), a->stride);
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
    for (u32 i = 0; i < a->stride; i += 4) {
      store(out + i, wasm_f32x4_add(wasm_f32x4_mul(load(x + i), splat(a->first)), splat(a->second)));
    }
  }
}

const Kernel scale = {row_items, scale_rows};

static void softcap_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  v128 cap = splat(a->first);
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) store(out + i, wasm_f32x4_mul(cap, tanh_f32x4(wasm_f32x4_div(load(x + i), cap))));
  }
}

const Kernel softcap = {row_items, softcap_rows};

static void clamp_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ElementArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) {
      store(out + i, wasm_f32x4_min(wasm_f32x4_max(load(x + i), splat(a->first)), splat(a->second)));
    }
  }
}

const Kernel clamp = {row_items, clamp_rows};

/* Times 1 + scale · ln(floor(position / period) + 1). */
typedef struct PositionArgs {
  u32 x, out, stride, period;
  f32 scale;
} PositionArgs;

static void scale_by_position_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const PositionArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r), factor = 1.0f + a->scale * log_of((f32)(position_of(c, r) / a->period + 1));
    for (u32 i = 0; i < a->stride; i += 4) store(out + i, wasm_f32x4_mul(load(x + i), splat(factor)));
  }
}

const Kernel scale_by_position = {row_items, scale_by_position_rows};

/* Each column of b multiplies a run of columns of a. */
typedef struct MulArgs {
  u32 a, a_stride, b, b_stride, out, width, run;
} MulArgs;

static void mul_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const MulArgs *m = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *a = row_of(m->a, m->a_stride, r), *b = row_of(m->b, m->b_stride, r);
    f32 *out = out_row(m->out, m->a_stride, r);
    if (m->run == 1) {
      for (u32 i = 0; i < m->a_stride; i += 4) store(out + i, wasm_f32x4_mul(load(a + i), load(b + i)));
      continue;
    }
    for (u32 first = 0; first < m->width; first += m->run, b++) {
      for (u32 i = first; i < first + m->run; i++) out[i] = a[i] * *b;
    }
  }
}

const Kernel mul = {row_items, mul_rows};

typedef struct DotArgs {
  u32 a, b, stride, out, out_stride, width, group;
} DotArgs;

static void dot_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const DotArgs *d = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *a = row_of(d->a, d->stride, r), *b = row_of(d->b, d->stride, r);
    f32 *out = out_row(d->out, d->out_stride, r);
    for (u32 first = 0; first < d->width; first += d->group, out++) {
      u32 i = first, end = first + d->group;
      v128 sums = splat(0);
      for (; i + 4 <= end; i += 4) sums = madd(load(a + i), load(b + i), sums);
      *out = sum_of(sums);
      for (; i < end; i++) *out += a[i] * b[i];
    }
  }
}

const Kernel dot = {row_items, dot_rows};

/* Run o of the result is the sum of c[o · n_in + i] times run i of x. */
typedef struct MixArgs {
  u32 x, x_stride, c, c_stride, out, out_stride, n_in, n_out, run;
} MixArgs;

static void mix_runs_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const MixArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->x_stride, r), *factors = row_of(a->c, a->c_stride, r);
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 o = 0; o < a->n_out; o++, factors += a->n_in, out += a->run) {
      for (u32 i = 0; i < a->run; i++) out[i] = 0;
      for (u32 j = 0; j < a->n_in; j++) {
        for (u32 i = 0; i < a->run; i++) out[i] += factors[j] * x[j * a->run + i];
      }
    }
  }
}

const Kernel mix_runs = {row_items, mix_runs_rows};

/* A vector of `period` elements, repeated over the columns of a row. */
typedef struct VectorArgs {
  u32 x, stride, weight, out, width, period;
} VectorArgs;

INLINE void vector(u32 n_rows, const VectorArgs *a, u32 item, int multiply) {
  const f32 *weight = at(a->weight);
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, r);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 first = 0; first < a->width; first += a->period, x += a->period, out += a->period) {
      for (u32 i = 0; i < a->period; i++) out[i] = multiply ? x[i] * weight[i] : x[i] + weight[i];
    }
  }
}

static void add_vector_rows(const Context *c, u32 n_rows, const void *args, u32 item) { vector(n_rows, args, item, 0); }
const Kernel add_vector = {row_items, add_vector_rows};
static void mul_vector_rows(const Context *c, u32 n_rows, const void *args, u32 item) { vector(n_rows, args, item, 1); }
const Kernel mul_vector = {row_items, mul_vector_rows};

INLINE void copy(const f32 *from, f32 *to, u32 n) {
  for (u32 i = 0; i < n; i++) to[i] = from[i];
}

/* `count` columns from `first` on of every run of `group` columns. */
typedef struct ColumnsArgs {
  u32 x, x_stride, out, out_stride, n_runs, first, count, group;
} ColumnsArgs;

static void columns_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ColumnsArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->x_stride, r) + a->first;
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 run = 0; run < a->n_runs; run++, x += a->group, out += a->count) copy(x, out, a->count);
  }
}

const Kernel columns = {row_items, columns_rows};

/* For each head its columns of a, then those of b, which may be the same for all heads (`b_step` 0). */
typedef struct ConcatArgs {
  u32 a, a_stride, b, b_stride, out, out_stride, n_head, a_width, b_width, b_step;
} ConcatArgs;

static void concat_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const ConcatArgs *m = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *a = row_of(m->a, m->a_stride, r), *b = row_of(m->b, m->b_stride, r);
    f32 *out = out_row(m->out, m->out_stride, r);
    for (u32 head = 0; head < m->n_head; head++, a += m->a_width, b += m->b_step) {
      copy(a, out, m->a_width);
      copy(b, out + m->a_width, m->b_width);
      out += m->a_width + m->b_width;
    }
  }
}

const Kernel concat = {row_items, concat_rows};
