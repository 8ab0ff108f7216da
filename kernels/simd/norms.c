/* Normalisation of rows or of runs of columns. */
#include "rows.h"

typedef struct NormArgs {
  u32 x, x_stride, out, out_stride;
  u32 weight, bias; /* 0: none */
  u32 width, group;
  u32 period; /* elements of weight and bias: `group` or `width` */
  f32 eps;
} NormArgs;

INLINE f32 sum_of_row(const f32 *x, u32 n) {
  v128 sums[2] = {splat(0), splat(0)};
  u32 i = 0;
  for (; i + 8 <= n; i += 8) {
    sums[0] = wasm_f32x4_add(sums[0], load(x + i));
    sums[1] = wasm_f32x4_add(sums[1], load(x + i + 4));
  }
  f32 sum = sum_of(wasm_f32x4_add(sums[0], sums[1]));
  for (; i < n; i++) sum += x[i];
  return sum;
}

INLINE f32 sum_of_squares(const f32 *x, u32 n, f32 mean) {
  v128 sums[2] = {splat(0), splat(0)}, m = splat(mean);
  u32 i = 0;
  for (; i + 8 <= n; i += 8) {
    v128 a = wasm_f32x4_sub(load(x + i), m), b = wasm_f32x4_sub(load(x + i + 4), m);
    sums[0] = madd(a, a, sums[0]);
    sums[1] = madd(b, b, sums[1]);
  }
  f32 sum = sum_of(wasm_f32x4_add(sums[0], sums[1]));
  for (; i < n; i++) sum += (x[i] - mean) * (x[i] - mean);
  return sum;
}

INLINE void norm_group(const f32 *x, const f32 *weight, const f32 *bias, f32 *out, u32 n, f32 eps, int centred) {
  f32 mean = centred ? sum_of_row(x, n) / (f32)n : 0;
  f32 factor = 1.0f / __builtin_sqrtf(sum_of_squares(x, n, mean) / (f32)n + eps);
  u32 i = 0;
  for (; i + 4 <= n; i += 4) {
    v128 y = wasm_f32x4_mul(wasm_f32x4_sub(load(x + i), splat(mean)), splat(factor));
    if (weight) y = wasm_f32x4_mul(y, load(weight + i));
    if (bias) y = wasm_f32x4_add(y, load(bias + i));
    store(out + i, y);
  }
  for (; i < n; i++) out[i] = (x[i] - mean) * factor * (weight ? weight[i] : 1.0f) + (bias ? bias[i] : 0);
}

INLINE void norm(u32 n_rows, const NormArgs *a, u32 item, int centred) {
  const f32 *weight = a->weight ? at(a->weight) : 0, *bias = a->bias ? at(a->bias) : 0;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->x_stride, r);
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 g = 0; g < a->width; g += a->group) {
      u32 w = a->period == a->width ? g : 0;
      norm_group(x + g, weight ? weight + w : 0, bias ? bias + w : 0, out + g, a->group, a->eps, centred);
    }
  }
}

static void rms_norm_rows(const Context *c, u32 n_rows, const void *args, u32 item) { norm(n_rows, args, item, 0); }
const Kernel rms_norm = {row_items, rms_norm_rows};
static void layer_norm_rows(const Context *c, u32 n_rows, const void *args, u32 item) { norm(n_rows, args, item, 1); }
const Kernel layer_norm = {row_items, layer_norm_rows};
