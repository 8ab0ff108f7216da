/* Types, addresses and lane arithmetic shared by all kernels of the CPU backend.
 *
 * Freestanding C for WebAssembly with SIMD. Built several times (tools/build_simd.py): with or without relaxed SIMD
 * (fused multiply-add, dot products of bytes), with or without threads, with 32 or 64 bit addresses.
 */
#ifndef BRIDGE_BASE_H
#define BRIDGE_BASE_H

#include <stdint.h>
#include <wasm_simd128.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t i8;
typedef int16_t i16;
typedef int32_t i32;
typedef float f32;
typedef v128_t v128;

#define INLINE static inline __attribute__((always_inline))
#define EXPORT(name) __attribute__((export_name(name)))

/* Addresses in records are counted in units of 16 bytes, so that 32 bits reach 64 GiB. */
INLINE void *at(u32 unit) { return (void *)((uintptr_t)unit << 4); }

INLINE u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
INLINE u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }
INLINE u32 ceil_div(u32 a, u32 b) { return (a + b - 1) / b; }

/* a * b + c: fused, and so rounded once, where the build has relaxed SIMD. */
INLINE v128 madd(v128 a, v128 b, v128 c) {
#ifdef __wasm_relaxed_simd__
  return wasm_f32x4_relaxed_madd(a, b, c);
#else
  return wasm_f32x4_add(wasm_f32x4_mul(a, b), c);
#endif
}

INLINE v128 splat(f32 x) { return wasm_f32x4_splat(x); }
INLINE v128 load_splat(const f32 *p) { return wasm_v128_load32_splat(p); }
INLINE v128 load(const void *p) { return wasm_v128_load(p); }
INLINE void store(void *p, v128 x) { wasm_v128_store(p, x); }

INLINE f32 sum_of(v128 x) {
  x = wasm_f32x4_add(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  return wasm_f32x4_extract_lane(x, 0) + wasm_f32x4_extract_lane(x, 1);
}

INLINE f32 max_of(v128 x) {
  x = wasm_f32x4_pmax(x, wasm_i32x4_shuffle(x, x, 2, 3, 0, 1));
  x = wasm_f32x4_pmax(x, wasm_i32x4_shuffle(x, x, 1, 0, 3, 2));
  return wasm_f32x4_extract_lane(x, 0);
}

/* Lane i of the result is the sum of the lanes of row i. */
INLINE v128 sums_of_4(v128 a, v128 b, v128 c, v128 d) {
  v128 ab = wasm_f32x4_add(wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), wasm_i32x4_shuffle(a, b, 2, 6, 3, 7)); /* a b a b */
  v128 cd = wasm_f32x4_add(wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), wasm_i32x4_shuffle(c, d, 2, 6, 3, 7));
  return wasm_f32x4_add(wasm_i32x4_shuffle(ab, cd, 0, 1, 4, 5), wasm_i32x4_shuffle(ab, cd, 2, 3, 6, 7));
}

/* Halves in the low 16 bits of sign-extended lanes. Their exponents move to where float32 has them and are then
 * rebiased by a multiplication, which also turns subnormal halves into normal floats; infinities become 65536 and more.
 * */
INLINE v128 widen_halves(v128 extended) {
  v128 bits = wasm_v128_and(wasm_i32x4_shl(extended, 13), wasm_i32x4_const_splat((i32)0x8fffe000));
  return wasm_f32x4_mul(bits, wasm_f32x4_const_splat(0x1p112f));
}

INLINE v128 load_f16x4(const void *p) { return widen_halves(wasm_i32x4_load16x4(p)); }
INLINE v128 load_bf16x4(const void *p) { return wasm_i32x4_shl(wasm_u32x4_load16x4(p), 16); }

/* float32 -> half, to nearest even, saturating at 65504, in the low 16 bits of each lane. */
INLINE v128 narrow_to_halves(v128 x) {
  v128 sign = wasm_v128_and(wasm_u32x4_shr(x, 16), wasm_i32x4_const_splat(0x8000));
  v128 a = wasm_f32x4_pmin(wasm_f32x4_abs(x), wasm_f32x4_const_splat(65504.0f));
  /* Below 2^-14 halves are subnormal, multiples of 2^-24: adding one half rounds to just that. */
  v128 small = wasm_i32x4_sub(wasm_f32x4_add(a, wasm_f32x4_const_splat(0.5f)), wasm_f32x4_const_splat(0.5f));
  v128 odd = wasm_v128_and(wasm_u32x4_shr(a, 13), wasm_i32x4_const_splat(1));
  v128 rounded = wasm_i32x4_add(wasm_i32x4_add(a, wasm_i32x4_const_splat(0xfff - (112 << 23))), odd);
  v128 normal = wasm_u32x4_shr(rounded, 13);
  v128 is_small = wasm_f32x4_lt(a, wasm_f32x4_const_splat(0x1p-14f));
  return wasm_v128_or(wasm_v128_bitselect(small, normal, is_small), sign);
}

INLINE void store_f16x4(void *p, v128 x) {
  v128 halves = narrow_to_halves(x);
  halves = wasm_i8x16_shuffle(halves, halves, 0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13);
  wasm_v128_store64_lane(p, halves, 0);
}

/* e^x to about one unit in the last place: 2^n * e^r with |r| <= ln 2 / 2, e^r by its Taylor polynomial of degree 7.
 * Clamped to where float32 is normal: below -87 the result is about 1e-38, above 88 about 1.6e38. */
INLINE v128 exp_f32x4(v128 x) {
  x = wasm_f32x4_pmin(x, wasm_f32x4_const_splat(88.0f)); /* NaN stays */
  x = wasm_f32x4_pmax(x, wasm_f32x4_const_splat(-87.0f));
  v128 n = wasm_f32x4_nearest(wasm_f32x4_mul(x, wasm_f32x4_const_splat(1.44269504f)));
  v128 r = madd(n, wasm_f32x4_const_splat(-0.693145752f), x); /* ln 2 in two parts, the first with few bits */
  r = madd(n, wasm_f32x4_const_splat(-1.42860677e-6f), r);
  v128 p = wasm_f32x4_const_splat(1.0f / 5040);
  p = madd(p, r, wasm_f32x4_const_splat(1.0f / 720));
  p = madd(p, r, wasm_f32x4_const_splat(1.0f / 120));
  p = madd(p, r, wasm_f32x4_const_splat(1.0f / 24));
  p = madd(p, r, wasm_f32x4_const_splat(1.0f / 6));
  p = madd(p, r, wasm_f32x4_const_splat(0.5f));
  p = madd(p, r, wasm_f32x4_const_splat(1.0f));
  p = madd(p, r, wasm_f32x4_const_splat(1.0f));
  v128 power = wasm_i32x4_shl(wasm_i32x4_add(wasm_i32x4_trunc_sat_f32x4(n), wasm_i32x4_const_splat(127)), 23);
  return wasm_f32x4_mul(p, power);
}

INLINE v128 tanh_f32x4(v128 x) {
  v128 e = exp_f32x4(wasm_f32x4_add(x, x));
  v128 one = wasm_f32x4_const_splat(1.0f);
  return wasm_f32x4_sub(one, wasm_f32x4_div(wasm_f32x4_const_splat(2.0f), wasm_f32x4_add(e, one)));
}

/* ln x of a positive x: the exponent times ln 2, and 2 artanh((m - 1) / (m + 1)) of what is left, m in [sqrt(1/2), sqrt(2)). */
INLINE f32 log_of(f32 x) {
  union { f32 value; u32 bits; } v = {x};
  i32 exponent = (i32)((v.bits - 0x3f3504f3u) & 0xff800000u) >> 23;
  v.bits -= (u32)exponent << 23;
  f32 s = (v.value - 1.0f) / (v.value + 1.0f), square = s * s;
  f32 series = 1.0f + square * (1.0f / 3 + square * (1.0f / 5 + square * (1.0f / 7 + square * (1.0f / 9))));
  return (f32)exponent * 0.69314718056f + 2.0f * s * series;
}

/* ln(1 + e^x) = max(x, 0) + ln(1 + e), e = e^-|x|, by the series of 2 artanh(e / (2 + e)), an argument up to 1/3. */
INLINE v128 softplus_f32x4(v128 x) {
  v128 e = exp_f32x4(wasm_f32x4_neg(wasm_f32x4_abs(x)));
  v128 s = wasm_f32x4_div(e, wasm_f32x4_add(e, wasm_f32x4_const_splat(2.0f))), square = wasm_f32x4_mul(s, s);
  v128 p = wasm_f32x4_const_splat(1.0f / 13);
  p = madd(p, square, wasm_f32x4_const_splat(1.0f / 11));
  p = madd(p, square, wasm_f32x4_const_splat(1.0f / 9));
  p = madd(p, square, wasm_f32x4_const_splat(1.0f / 7));
  p = madd(p, square, wasm_f32x4_const_splat(1.0f / 5));
  p = madd(p, square, wasm_f32x4_const_splat(1.0f / 3));
  p = madd(p, square, wasm_f32x4_const_splat(1.0f));
  return wasm_f32x4_add(wasm_f32x4_max(x, splat(0)), wasm_f32x4_mul(wasm_f32x4_add(s, s), p));
}

#endif
