/* How weights lie in memory: four rows of a matrix interleaved into a group, so that the lanes of a vector are rows.
 *
 * A group is a run of blocks of 32 columns (K formats: of super-blocks of 8 such blocks behind one header). The codes
 * of a block are 8 "quads" of 16 bytes: byte 4r + i of quad j belongs to row r and column 4j + i. Codes of fewer bits
 * are stored in planes:
 *
 *   4 bits  4 vectors; vector j holds quad j in its low nibbles and quad j + 4 in its high ones
 *   2 bits  2 vectors; vector h holds quads 4h ... 4h + 3 in bits 0-1, 2-3, 4-5, 6-7
 *   1 bit   1 vector; bit j of each byte belongs to quad j
 *
 * A value is scale * code + offset. Scales are stored as in the file, four rows side by side, so a repacked tensor is
 * about as large as the tensor it came from (K formats widen their 6-bit scales to bytes).
 *
 * Matrices of floats are interleaved element by element: four rows of one column side by side.
 */
#ifndef BRIDGE_BLOCKS_H
#define BRIDGE_BLOCKS_H

#include "base.h"

/* The order is that of LAYOUTS in bridge/simd/formats.py. */
enum Layout {
  L_F32, L_F16, L_BF16,
  L_Q4_0, L_Q4_1, L_Q5_0, L_Q5_1, L_Q8_0,
  L_Q2_K, L_Q3_K, L_Q4_K, L_Q5_K, L_Q6_K,
  L_IQ4_NL, L_IQ4_XS, L_MXFP4,
  L_WIDE8, /* signed bytes with a float32 scale for every 16 columns: what all other formats are expanded to */
  N_LAYOUTS
};

/* Bytes of a super-block's header, blocks of 32 in it, bytes of each such block; all for four rows. */
typedef struct Geometry {
  u16 head, blocks, block;
} Geometry;

INLINE Geometry geometry(enum Layout layout) {
  switch (layout) {
    case L_Q4_0: return (Geometry){0, 1, 8 + 64};
    case L_Q4_1: return (Geometry){0, 1, 16 + 64};
    case L_Q5_0: return (Geometry){0, 1, 8 + 16 + 64};
    case L_Q5_1: return (Geometry){0, 1, 16 + 16 + 64};
    case L_Q8_0: return (Geometry){0, 1, 8 + 128};
    case L_Q2_K: return (Geometry){16, 8, 8 + 32};
    case L_Q3_K: return (Geometry){8, 8, 8 + 16 + 32};
    case L_Q4_K: return (Geometry){16, 8, 8 + 64};
    case L_Q5_K: return (Geometry){16, 8, 8 + 16 + 64};
    case L_Q6_K: return (Geometry){8, 8, 8 + 32 + 64};
    case L_IQ4_NL: return (Geometry){0, 1, 8 + 64};
    case L_IQ4_XS: return (Geometry){8, 8, 4 + 64};
    case L_MXFP4: return (Geometry){0, 1, 4 + 64};
    case L_WIDE8: return (Geometry){0, 1, 32 + 128};
    default: return (Geometry){0, 0, 0};
  }
}

INLINE int is_float(enum Layout layout) { return layout <= L_BF16; }
/* Two scales in each block of 32 columns. */
INLINE int has_half_scales(enum Layout l) { return l == L_Q2_K || l == L_Q3_K || l == L_Q6_K || l == L_WIDE8; }
/* Codes are signed bytes, of which a relaxed dot product takes only what `code_flip` below makes of them. */
INLINE int has_wide_codes(enum Layout l) { return l == L_Q8_0 || l == L_IQ4_NL || l == L_IQ4_XS || l == L_WIDE8; }

INLINE u32 group_nbytes(enum Layout layout, u32 n_in) {
  if (layout == L_F32) return n_in * 16;
  if (is_float(layout)) return n_in * 8;
  Geometry g = geometry(layout);
  return n_in / (32 * g.blocks) * (g.head + g.blocks * g.block);
}

/* How this machine computes relaxed dot products of a signed byte and a byte whose top bit is set (set by
 * `probe_dots`). Wide codes are stored, and read from codebooks, with this mask: 0x80 where the second byte counts as
 * unsigned, which adds 128 to the code; 0 where it counts as signed, and where sums of products saturate, so that these
 * layouts are computed with 16 bit products instead. */
enum DotMode { DOTS_SIGNED, DOTS_UNSIGNED, DOTS_SATURATE };
extern enum DotMode dot_mode;

INLINE v128 code_flip(void) { return wasm_i8x16_splat(dot_mode == DOTS_UNSIGNED ? (i8)0x80 : 0); }

INLINE v128 nibbles_low(v128 x) { return wasm_v128_and(x, wasm_i8x16_const_splat(15)); }
INLINE v128 nibbles_high(v128 x) { return wasm_v128_and(wasm_u16x8_shr(x, 4), wasm_i8x16_const_splat(15)); }

INLINE void unpack_nibbles(const u8 *p, v128 q[8]) {
  for (int j = 0; j < 4; j++) {
    v128 x = load(p + 16 * j);
    q[j] = nibbles_low(x);
    q[j + 4] = nibbles_high(x);
  }
}

/* Bit j of each byte, moved to bit `to`. */
INLINE v128 plane_bit(v128 plane, int j, int to) {
  v128 moved = j < to ? wasm_i16x8_shl(plane, to - j) : wasm_u16x8_shr(plane, j - to);
  return wasm_v128_and(moved, wasm_i8x16_splat((i8)(1 << to)));
}

/* Bits 2j and 2j + 1 of each byte, moved to bits `to` and `to` + 1. */
INLINE v128 plane_pair(v128 plane, int j, int to) {
  v128 moved = 2 * j < to ? wasm_i16x8_shl(plane, to - 2 * j) : wasm_u16x8_shr(plane, 2 * j - to);
  return wasm_v128_and(moved, wasm_i8x16_splat((i8)(3 << to)));
}

/* kvalues_iq4nl of ggml-common.h. */
INLINE v128 iq4_codebook(void) {
  return wasm_i8x16_const(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
}
/* E2M1 of the OCP microscaling formats 1.0, doubled, plus 12. */
INLINE v128 mxfp4_codebook(void) { return wasm_i8x16_const(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0); }

INLINE v128 look_up(v128 table, v128 index) {
#ifdef __wasm_relaxed_simd__
  return wasm_i8x16_relaxed_swizzle(table, index);
#else
  return wasm_i8x16_swizzle(table, index);
#endif
}

INLINE void unpack_codebook(const u8 *p, v128 table, v128 q[8]) {
  unpack_nibbles(p, q);
  for (int j = 0; j < 8; j++) q[j] = look_up(table, q[j]);
}

/* The codes of one block of 32 columns; wide codes with their flip. */
INLINE void unpack_codes(enum Layout layout, const u8 *block, v128 q[8]) {
  switch (layout) {
    case L_Q4_0: unpack_nibbles(block + 8, q); break;
    case L_Q4_1: unpack_nibbles(block + 16, q); break;
    case L_Q4_K: unpack_nibbles(block + 8, q); break;
    case L_Q5_0: case L_Q5_1: case L_Q5_K: {
      const u8 *p = block + (layout == L_Q5_1 ? 16 : 8);
      v128 fifth = load(p);
      unpack_nibbles(p + 16, q);
      for (int j = 0; j < 8; j++) q[j] = wasm_v128_or(q[j], plane_bit(fifth, j, 4));
      break;
    }
    case L_Q6_K: {
      v128 high[2] = {load(block + 8), load(block + 24)};
      unpack_nibbles(block + 40, q);
      for (int j = 0; j < 8; j++) q[j] = wasm_v128_or(q[j], plane_pair(high[j / 4], j % 4, 4));
      break;
    }
    case L_Q2_K: {
      v128 pairs[2] = {load(block + 8), load(block + 24)};
      for (int j = 0; j < 8; j++) q[j] = plane_pair(pairs[j / 4], j % 4, 0);
      break;
    }
    case L_Q3_K: {
      v128 third = load(block + 8), pairs[2] = {load(block + 24), load(block + 40)};
      for (int j = 0; j < 8; j++) q[j] = wasm_v128_or(plane_pair(pairs[j / 4], j % 4, 0), plane_bit(third, j, 2));
      break;
    }
    case L_Q8_0: case L_WIDE8:
      for (int j = 0; j < 8; j++) q[j] = load(block + (layout == L_Q8_0 ? 8 : 32) + 16 * j);
      break;
    case L_IQ4_NL: unpack_codebook(block + 8, wasm_v128_xor(iq4_codebook(), code_flip()), q); break;
    case L_IQ4_XS: unpack_codebook(block + 4, wasm_v128_xor(iq4_codebook(), code_flip()), q); break;
    case L_MXFP4: unpack_codebook(block + 4, mxfp4_codebook(), q); break;
    default: break;
  }
}

/* What a super-block's header says, as float32 of four rows; unused without a header. */
typedef struct Header {
  v128 scale, offset;
} Header;

INLINE Header load_header(enum Layout layout, const u8 *p) {
  Header h = {wasm_f32x4_const_splat(1.0f), wasm_f32x4_const_splat(0.0f)};
  if (geometry(layout).head >= 8) h.scale = load_f16x4(p);
  if (geometry(layout).head == 16) h.offset = wasm_f32x4_neg(load_f16x4(p + 8));
  return h;
}

INLINE v128 load_u8x4(const u8 *p) {
  return wasm_f32x4_convert_i32x4(wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p))));
}
INLINE v128 load_i8x4(const u8 *p) {
  return wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(wasm_i16x8_extend_low_i8x16(wasm_v128_load32_zero(p))));
}

/* 2^(e - 128) for four bytes e: E8M0, halved because the codes are doubled; the smallest two are subnormal. */
INLINE v128 load_e8m0(const u8 *p) {
  v128 e = wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(p)));
  v128 normal = wasm_i32x4_shl(wasm_i32x4_sub(e, wasm_i32x4_const_splat(1)), 23);
  v128 first = wasm_i32x4_eq(e, wasm_i32x4_const_splat(0));
  v128 second = wasm_i32x4_eq(e, wasm_i32x4_const_splat(1));
  v128 x = wasm_v128_bitselect(wasm_i32x4_const_splat(0x00200000), normal, first);
  return wasm_v128_bitselect(wasm_i32x4_const_splat(0x00400000), x, second);
}

/* Scales and offsets of one block for the codes as `unpack_codes` gives them: of its 32 columns in [0] or, with half
 * scales, of its two halves. `raw` leaves out the offset that undoes the flip of wide codes. */
INLINE void load_scales(enum Layout layout, const u8 *block, Header h, int raw, v128 s[2], v128 o[2]) {
  switch (layout) {
    case L_Q4_0: s[0] = load_f16x4(block); o[0] = wasm_f32x4_mul(s[0], splat(-8.0f)); break;
    case L_Q5_0: s[0] = load_f16x4(block); o[0] = wasm_f32x4_mul(s[0], splat(-16.0f)); break;
    case L_Q4_1: case L_Q5_1: s[0] = load_f16x4(block); o[0] = load_f16x4(block + 8); break;
    case L_Q8_0: case L_IQ4_NL: s[0] = load_f16x4(block); break;
    case L_MXFP4: s[0] = load_e8m0(block); o[0] = wasm_f32x4_mul(s[0], splat(-12.0f)); break;
    case L_Q4_K: case L_Q5_K:
      s[0] = wasm_f32x4_mul(h.scale, load_u8x4(block));
      o[0] = wasm_f32x4_mul(h.offset, load_u8x4(block + 4));
      break;
    case L_IQ4_XS: s[0] = wasm_f32x4_mul(h.scale, load_i8x4(block)); break;
    case L_Q2_K:
      for (int i = 0; i < 2; i++) {
        v128 both = wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(wasm_v128_load32_zero(block + 4 * i)));
        s[i] = wasm_f32x4_mul(h.scale, wasm_f32x4_convert_i32x4(wasm_v128_and(both, wasm_i32x4_const_splat(15))));
        o[i] = wasm_f32x4_mul(h.offset, wasm_f32x4_convert_i32x4(wasm_u32x4_shr(both, 4)));
      }
      break;
    case L_Q3_K: case L_Q6_K:
      for (int i = 0; i < 2; i++) {
        s[i] = wasm_f32x4_mul(h.scale, load_i8x4(block + 4 * i));
        o[i] = wasm_f32x4_mul(s[i], splat(layout == L_Q3_K ? -4.0f : -32.0f));
      }
      break;
    case L_WIDE8: s[0] = load(block); s[1] = load(block + 16); break;
    default: break;
  }
  if (has_wide_codes(layout)) {
    v128 undo = splat(dot_mode == DOTS_UNSIGNED && !raw ? -128.0f : 0.0f);
    o[0] = wasm_f32x4_mul(s[0], undo);
    if (has_half_scales(layout)) o[1] = wasm_f32x4_mul(s[1], undo);
  }
}

#endif
