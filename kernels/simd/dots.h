/* Sums of products of the codes of a block of weights (four rows, 32 columns) with the codes of activations.
 *
 * Two ways, chosen when compiling: `narrow` takes bytes and multiplies 16 of them with one relaxed instruction; `wide`
 * takes 16 bit activations and works everywhere. Both give exact integers.
 */
#ifndef BRIDGE_DOTS_H
#define BRIDGE_DOTS_H

#include "activations.h"
#include "blocks.h"

/* Whether codes of this layout are multiplied in the wide way on this machine. */
INLINE int needs_wide_dots(enum Layout layout) {
#ifdef __wasm_relaxed_simd__
  return has_wide_codes(layout) && dot_mode == DOTS_SATURATE;
#else
  return 1;
#endif
}

/* acc += four rows of a quad times four activations. Narrow: lane r of acc[0] is row r. */
INLINE void dot_narrow(v128 q, const u8 *codes, v128 acc[2]) {
#ifdef __wasm_relaxed_simd__
  acc[0] = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_v128_load32_splat(codes), q, acc[0]);
#else
  __builtin_unreachable();
#endif
}

/* Wide: `q` as 16 bit numbers, rows 0 and 1 in q[0], rows 2 and 3 in q[1]; each row's sum is spread over two lanes. */
INLINE void dot_wide(const v128 q[2], const u8 *codes, v128 acc[2]) {
  v128 a = wasm_v128_load64_splat(codes);
  acc[0] = wasm_i32x4_add(acc[0], wasm_i32x4_dot_i16x8(q[0], a));
  acc[1] = wasm_i32x4_add(acc[1], wasm_i32x4_dot_i16x8(q[1], a));
}

INLINE void widen(v128 q, int is_signed, v128 out[2]) {
  out[0] = is_signed ? wasm_i16x8_extend_low_i8x16(q) : wasm_u16x8_extend_low_u8x16(q);
  out[1] = is_signed ? wasm_i16x8_extend_high_i8x16(q) : wasm_u16x8_extend_high_u8x16(q);
}

/* The sums of four rows as float32. */
INLINE v128 finish_dots(const v128 acc[2], int wide) {
  if (!wide) return wasm_f32x4_convert_i32x4(acc[0]);
  v128 even = wasm_i32x4_shuffle(acc[0], acc[1], 0, 2, 4, 6), odd = wasm_i32x4_shuffle(acc[0], acc[1], 1, 3, 5, 7);
  return wasm_f32x4_convert_i32x4(wasm_i32x4_add(even, odd));
}

#endif
