/* Decoders of the formats that have no layout of their own: they become signed bytes with a scale per 16 columns
 * (L_WIDE8). */
#ifndef BRIDGE_EXPAND_H
#define BRIDGE_EXPAND_H

#include "base.h"

/* ggml's ids of the formats that are expanded. */
enum Expanded {
  T_IQ2_XXS = 16, T_IQ2_XS = 17, T_IQ3_XXS = 18, T_IQ1_S = 19, T_IQ3_S = 21, T_IQ2_S = 22, T_IQ1_M = 29,
  T_TQ1_0 = 34, T_TQ2_0 = 35, T_NVFP4 = 40, T_Q1_0 = 41, T_Q2_0 = 42
};

/* One block -> its codes and the scale of every 16 of them. `grid` is the format's grid of bridge.quants.grids, one
 * signed byte per component, for the IQ formats. */
void expand_block(enum Expanded type, const u8 *block, const i8 *grid, i8 *codes, f32 *scales);

INLINE f32 half_at(const u8 *p) {
  i16 bits = (i16)(p[0] | p[1] << 8);
  return wasm_f32x4_extract_lane(widen_halves(wasm_i32x4_splat(bits)), 0);
}

#endif
