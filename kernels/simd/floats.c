/* Weights as float32: decoding groups, and products without any rounding below float32. */
#include "matmul.h"

/* One block of quantised weights as float32 [32 columns][4 rows], equal to what ggml's decoders give. */
static void decode_block(enum Layout layout, const u8 *block, Header header, f32 *out) {
  const int halves = has_half_scales(layout) ? 2 : 1, wide = has_wide_codes(layout);
  v128 q[8], s[2], o[2];
  unpack_codes(layout, block, q);
  load_scales(layout, block, header, 1, s, o);
  for (int j = 0; j < 8; j++) {
    int h = halves == 2 ? j / 4 : 0;
    if (wide) q[j] = wasm_v128_xor(q[j], code_flip());
    for (int i = 0; i < 4; i++) {
      v128 moved = wasm_i32x4_shl(q[j], 24 - 8 * i); /* byte i of each lane to the top, then down again */
      v128 code = wide ? wasm_i32x4_shr(moved, 24) : wasm_u32x4_shr(moved, 24);
      v128 value = wasm_f32x4_mul(s[h], wasm_f32x4_convert_i32x4(code));
      store(out + 16 * j + 4 * i, wide ? value : wasm_f32x4_add(value, o[h]));
    }
  }
}

INLINE void decode_group(enum Layout layout, const u8 *group, u32 n_in, f32 *out) {
  const Geometry geo = geometry(layout);
  for (u32 super = 0; super < n_in / (32 * geo.blocks); super++) {
    Header header = load_header(layout, group);
    group += geo.head;
    for (u32 b = 0; b < geo.blocks; b++, group += geo.block, out += 128) decode_block(layout, group, header, out);
  }
}

const f32 *float_panel(enum Layout layout, const u8 *group, u32 n_in, u8 *panel) {
  f32 *out = (f32 *)panel;
  switch (layout) {
    case L_F32: return (const f32 *)group;
    case L_F16:
      for (u32 i = 0; i < n_in; i++) store(out + 4 * i, load_f16x4(group + 8 * i));
      break;
    case L_BF16:
      for (u32 i = 0; i < n_in; i++) store(out + 4 * i, load_bf16x4(group + 8 * i));
      break;
    default: decode_group(layout, group, n_in, out);
  }
  return out;
}

/* Columns in two sums, even and odd, and their sum at the end: in this order everywhere, so that a row of x gives the
 * same result alone and in a batch. */
INLINE v128 column(enum Layout layout, const u8 *group, u32 k) {
  if (layout == L_F16) return load_f16x4(group + 8 * k);
  if (layout == L_BF16) return load_bf16x4(group + 8 * k);
  return load(group + 16 * k);
}

INLINE void multiply_columns(enum Layout layout, int n, const u8 *group, uintptr_t size, const f32 *x, u32 n_in,
                             v128 *sums) {
  v128 even[MAX_STREAMS], odd[MAX_STREAMS];
  for (int g = 0; g < n; g++) even[g] = odd[g] = splat(0);
  u32 k = 0;
  for (; k + 2 <= n_in; k += 2) {
    v128 x0 = load_splat(x + k), x1 = load_splat(x + k + 1);
    for (int g = 0; g < n; g++) {
      even[g] = madd(column(layout, group + g * size, k), x0, even[g]);
      odd[g] = madd(column(layout, group + g * size, k + 1), x1, odd[g]);
    }
  }
  for (int g = 0; g < n; g++) {
    if (k < n_in) even[g] = madd(column(layout, group + g * size, k), load_splat(x + k), even[g]);
    sums[g] = wasm_f32x4_add(even[g], odd[g]);
  }
}

v128 multiply_floats(const f32 *panel, const f32 *x, u32 n_in) {
  v128 sum;
  multiply_columns(L_F32, 1, (const u8 *)panel, 0, x, n_in, &sum);
  return sum;
}

void multiply_float_streams(enum Layout layout, const u8 *group, uintptr_t size, const f32 *x, u32 n_in,
                            v128 sums[MAX_STREAMS]) {
  switch (layout) {
    case L_F16: multiply_columns(L_F16, MAX_STREAMS, group, size, x, n_in, sums); break;
    case L_BF16: multiply_columns(L_BF16, MAX_STREAMS, group, size, x, n_in, sums); break;
    default: multiply_columns(L_F32, MAX_STREAMS, group, size, x, n_in, sums);
  }
}

void multiply_floats_tile(const f32 *panel, const f32 *x, u32 stride, u32 n_in, v128 sums[TILE]) {
  const f32 *rows[TILE] = {x, x + stride, x + 2 * stride, x + 3 * stride};
  v128 even[TILE], odd[TILE];
  for (int t = 0; t < TILE; t++) even[t] = odd[t] = splat(0);
  u32 k = 0;
  for (; k + 2 <= n_in; k += 2) {
    v128 w0 = load(panel + 4 * k), w1 = load(panel + 4 * k + 4);
    for (int t = 0; t < TILE; t++) {
      even[t] = madd(w0, load_splat(rows[t] + k), even[t]);
      odd[t] = madd(w1, load_splat(rows[t] + k + 1), odd[t]);
    }
  }
  for (int t = 0; t < TILE; t++) {
    if (k < n_in) even[t] = madd(load(panel + 4 * k), load_splat(rows[t] + k), even[t]);
    sums[t] = wasm_f32x4_add(even[t], odd[t]);
  }
}
