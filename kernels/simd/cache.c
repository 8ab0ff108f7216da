/* Writing and reading rows of the kv cache. */
#include "cache.h"
#include "team.h"

static void widen_floats(const u8 *from, f32 *to, u32 n, int f16) {
  u32 i = 0;
  for (; i + 4 <= n; i += 4) store(to + i, f16 ? load_f16x4(from + 2 * i) : load(from + 4 * i));
  if (i == n) return;
  store(to + i, splat(0));
  for (; i < n; i++) {
    to[i] = f16 ? wasm_f32x4_extract_lane(widen_halves(wasm_i32x4_splat(((const i16 *)from)[i])), 0) : ((const f32 *)from)[i];
  }
}

/* 16 signed bytes times a scale. */
static void widen_codes(v128 codes, v128 scale, f32 *to) {
  v128 low = wasm_i16x8_extend_low_i8x16(codes), high = wasm_i16x8_extend_high_i8x16(codes);
  store(to, wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(low))));
  store(to + 4, wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(low))));
  store(to + 8, wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(high))));
  store(to + 12, wasm_f32x4_mul(scale, wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(high))));
}

void widen_cache_row(const u8 *from, f32 *to, u32 n, u32 type) {
  if (type <= CACHE_F16) {
    widen_floats(from, to, n, type == CACHE_F16);
    return;
  }
  for (u32 i = 0; i < n; i += CACHE_BLOCK) {
    v128 scale = load_splat((const f32 *)from);
    if (type == CACHE_Q8_0) {
      widen_codes(load(from + 4), scale, to + i);
      widen_codes(load(from + 20), scale, to + i + 16);
      from += Q8_0_BYTES;
    } else {
      v128 codes = load(from + 4), eight = wasm_i8x16_const_splat(8);
      widen_codes(wasm_i8x16_sub(wasm_v128_and(codes, wasm_i8x16_const_splat(15)), eight), scale, to + i);
      widen_codes(wasm_i8x16_sub(wasm_u8x16_shr(codes, 4), eight), scale, to + i + 16);
      from += Q4_0_BYTES;
    }
  }
}

static void store_floats(const f32 *x, u8 *cache, u32 n, int f16) {
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

static f32 as_half(f32 x) {
  return wasm_f32x4_extract_lane(widen_halves(wasm_i32x4_shr(wasm_i32x4_shl(narrow_to_halves(splat(x)), 16), 16)), 0);
}

static void store_q8_0(const f32 *x, u8 *block) {
  f32 most = 0;
  for (u32 i = 0; i < CACHE_BLOCK; i++) most = __builtin_fmaxf(most, __builtin_fabsf(x[i]));
  f32 scale = most / 127, factor = scale != 0 ? 1 / scale : 0;
  *(f32 *)block = as_half(scale);
  for (u32 i = 0; i < CACHE_BLOCK; i++) {
    f32 code = x[i] * factor; /* to nearest, halves away from zero */
    ((i8 *)block)[4 + i] = (i8)__builtin_truncf(code + (code < 0 ? -0.5f : 0.5f));
  }
}

static void store_q4_0(const f32 *x, u8 *block) {
  f32 largest = 0;
  for (u32 i = 0; i < CACHE_BLOCK; i++) {
    if (__builtin_fabsf(x[i]) > __builtin_fabsf(largest)) largest = x[i];
  }
  f32 scale = largest / -8, factor = scale != 0 ? 1 / scale : 0;
  *(f32 *)block = as_half(scale);
  for (u32 i = 0; i < CACHE_BLOCK / 2; i++) {
    u32 low = (u32)(x[i] * factor + 8.5f), high = (u32)(x[i + CACHE_BLOCK / 2] * factor + 8.5f);
    block[4 + i] = (u8)(min_u32(low, 15) | min_u32(high, 15) << 4);
  }
}

static void store_row(const f32 *x, u8 *cache, u32 n, u32 type) {
  if (type <= CACHE_F16) {
    store_floats(x, cache, n, type == CACHE_F16);
    return;
  }
  for (u32 i = 0; i < n; i += CACHE_BLOCK) {
    if (type == CACHE_Q8_0) store_q8_0(x + i, cache + cache_nbytes(type, i));
    else store_q4_0(x + i, cache + cache_nbytes(type, i));
  }
}

typedef struct KvArgs {
  u32 k, k_stride, v, v_stride, k_cache, v_cache, k_width, v_width, k_type, v_type, ring;
} KvArgs;

static void kv_write_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const KvArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    uintptr_t row = (c->params[P_START] + r) % a->ring;
    const f32 *k = (const f32 *)at(a->k) + (uintptr_t)r * a->k_stride, *v = (const f32 *)at(a->v) + (uintptr_t)r * a->v_stride;
    store_row(k, (u8 *)at(a->k_cache) + row * cache_nbytes(a->k_type, a->k_width), a->k_width, a->k_type);
    store_row(v, (u8 *)at(a->v_cache) + row * cache_nbytes(a->v_type, a->v_width), a->v_width, a->v_type);
  }
}

const Kernel kv_write = {row_items, kv_write_rows};
