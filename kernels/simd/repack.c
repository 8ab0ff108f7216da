/* Weights as they come from a file -> groups of four interleaved rows (blocks.h), a few rows at a time. */
#include "blocks.h"
#include "expand.h"
#include "matmul.h"

enum DotMode dot_mode = DOTS_SATURATE;

/* Finds out how relaxed dot products behave here; before any weight is repacked. `careful` assumes the worst. */
EXPORT("probe_dots") u32 probe_dots(u32 careful) {
  dot_mode = DOTS_SATURATE;
#ifdef __wasm_relaxed_simd__
  volatile v128 ones = wasm_i8x16_const_splat(-1), most = wasm_i8x16_const_splat(127);
  v128 dots = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(most, ones, wasm_i32x4_const_splat(0));
  i32 dot = wasm_i32x4_extract_lane(dots, 0);
  if (careful) return dot_mode;
  if (dot == 4 * 127 * -1) dot_mode = DOTS_SIGNED;
  if (dot == 4 * 127 * 255) dot_mode = DOTS_UNSIGNED;
#endif
  return dot_mode;
}

/* Four rows' copies of one block, zeros for rows that a matrix does not have. */
typedef struct Rows {
  u8 row[4][292]; /* the largest block: Q8_K's */
} Rows;

static void copy_bytes(u8 *to, const u8 *from, u32 n) {
  for (u32 i = 0; i < n; i++) to[i] = from[i];
}

/* `n` bytes from byte `from` of every row, side by side. */
INLINE u8 *put_fields(u8 *to, const Rows *b, u32 from, u32 n) {
  for (u32 r = 0; r < 4; r++, to += n) copy_bytes(to, b->row[r] + from, n);
  return to;
}

INLINE u32 word(const u8 *p) {
  u32 x;
  __builtin_memcpy(&x, p, 4);
  return x;
}
INLINE void put_word(u8 *p, u32 x) { __builtin_memcpy(p, &x, 4); }

/* `n` vectors of codes that are stored in the order of the planes already: words of the rows in turn. */
INLINE u8 *put_words(u8 *to, const Rows *b, u32 from, u32 n, u32 flip) {
  for (u32 j = 0; j < n; j++) {
    for (u32 r = 0; r < 4; r++, to += 4) put_word(to, word(b->row[r] + from + 4 * j) ^ flip);
  }
  return to;
}

/* Planes from one code per byte, 32 of each row. */
static u8 *put_nibble_plane(u8 *to, u8 codes[4][32]) {
  for (u32 j = 0; j < 4; j++) {
    for (u32 r = 0; r < 4; r++, to += 4) {
      put_word(to, (word(codes[r] + 4 * j) & 0x0f0f0f0f) | (word(codes[r] + 16 + 4 * j) & 0x0f0f0f0f) << 4);
    }
  }
  return to;
}

/* Two bits of each code from bit `shift`. */
static u8 *put_pair_planes(u8 *to, u8 codes[4][32], u32 shift) {
  for (u32 h = 0; h < 2; h++) {
    for (u32 r = 0; r < 4; r++, to += 4) {
      u32 x = 0;
      for (u32 j = 0; j < 4; j++) x |= (word(codes[r] + 16 * h + 4 * j) >> shift & 0x03030303) << 2 * j;
      put_word(to, x);
    }
  }
  return to;
}

static u8 *put_bit_plane(u8 *to, u8 codes[4][32], u32 shift) {
  for (u32 r = 0; r < 4; r++, to += 4) {
    u32 x = 0;
    for (u32 j = 0; j < 8; j++) x |= (word(codes[r] + 4 * j) >> shift & 0x01010101) << j;
    put_word(to, x);
  }
  return to;
}

/* The sixth-bit scale and minimum number `i` of Q4_K and Q5_K's twelve bytes. */
static void six_bits(const u8 *p, u32 i, u8 *scale, u8 *minimum) {
  *scale = i < 4 ? p[i] & 63 : (p[i + 4] & 15) | p[i - 4] >> 6 << 4;
  *minimum = i < 4 ? p[i + 4] & 63 : p[i + 4] >> 4 | p[i] >> 6 << 4;
}

static void repack_simple(enum Layout layout, const Rows *b, u8 *to) {
  u8 fifths[4][32];
  switch (layout) {
    case L_Q4_0: case L_IQ4_NL: put_words(put_fields(to, b, 0, 2), b, 2, 4, 0); break;
    case L_MXFP4: put_words(put_fields(to, b, 0, 1), b, 1, 4, 0); break;
    case L_Q4_1: put_words(put_fields(put_fields(to, b, 0, 2), b, 2, 2), b, 4, 4, 0); break;
    case L_Q8_0: put_words(put_fields(to, b, 0, 2), b, 2, 8, dot_mode == DOTS_UNSIGNED ? 0x80808080 : 0); break;
    case L_Q5_0: case L_Q5_1: {
      u32 bits = layout == L_Q5_0 ? 2 : 4;
      to = put_fields(to, b, 0, 2);
      if (layout == L_Q5_1) to = put_fields(to, b, 2, 2);
      for (u32 r = 0; r < 4; r++) {
        u32 x = word(b->row[r] + bits);
        for (u32 i = 0; i < 32; i++) fifths[r][i] = x >> i & 1;
      }
      put_words(put_bit_plane(to, fifths, 0), b, bits + 4, 4, 0);
      break;
    }
    default: break;
  }
}

/* Codes of block `i` of a super-block, one per byte. */
static void k_codes(enum Layout layout, const u8 *p, u32 i, u8 *codes) {
  switch (layout) {
    case L_Q2_K: case L_Q3_K: {
      const u8 *low = p + (layout == L_Q2_K ? 16 : 32) + i / 4 * 32;
      for (u32 k = 0; k < 32; k++) {
        codes[k] = low[k] >> 2 * (i % 4) & 3;
        if (layout == L_Q3_K) codes[k] |= (p[k] >> i & 1) << 2;
      }
      break;
    }
    case L_Q4_K: case L_Q5_K: {
      const u8 *low = p + (layout == L_Q4_K ? 16 : 48) + i / 2 * 32;
      for (u32 k = 0; k < 32; k++) {
        codes[k] = low[k] >> 4 * (i % 2) & 15;
        if (layout == L_Q5_K) codes[k] |= (p[16 + k] >> i & 1) << 4;
      }
      break;
    }
    case L_Q6_K: {
      const u8 *low = p + i / 4 * 64 + i % 2 * 32, *high = p + 128 + i / 4 * 32;
      for (u32 k = 0; k < 32; k++) codes[k] = (low[k] >> (i % 4 < 2 ? 0 : 4) & 15) | (high[k] >> 2 * (i % 4) & 3) << 4;
      break;
    }
    default: /* IQ4_XS */
      for (u32 k = 0; k < 32; k++) codes[k] = p[8 + 16 * i + k % 16] >> (k < 16 ? 0 : 4) & 15;
  }
}

static i8 q3_scale(const u8 *p, u32 i) {
  u32 low = i < 8 ? p[96 + i] & 15 : p[96 + i - 8] >> 4;
  return (i8)((low | (u32)(p[104 + i % 4] >> i / 4 * 2 & 3) << 4) - 32);
}

static i8 iq4_scale(const u8 *p, u32 i) {
  u32 low = p[4 + i / 2] >> 4 * (i % 2) & 15, high = word(p) >> (16 + 2 * i) & 3;
  return (i8)((low | high << 4) - 32);
}

static u8 *put_k_scales(enum Layout layout, const Rows *b, u32 i, u8 *to) {
  switch (layout) {
    case L_Q4_K: case L_Q5_K:
      for (u32 r = 0; r < 4; r++) six_bits(b->row[r] + 4, i, to + r, to + 4 + r);
      return to + 8;
    case L_IQ4_XS:
      for (u32 r = 0; r < 4; r++) to[r] = (u8)iq4_scale(b->row[r], i);
      return to + 4;
    default:
      for (u32 h = 0; h < 2; h++) {
        for (u32 r = 0; r < 4; r++, to++) {
          const u8 *p = b->row[r];
          u32 s = 2 * i + h;
          *to = layout == L_Q2_K ? p[s] : layout == L_Q6_K ? p[192 + s] : (u8)q3_scale(p, s);
        }
      }
      return to;
  }
}

static void repack_super(enum Layout layout, const Rows *b, u8 *to) {
  const u32 half = layout == L_Q2_K ? 80 : layout == L_Q3_K ? 108 : layout == L_Q6_K ? 208 : 0;
  to = put_fields(to, b, half, 2);
  if (geometry(layout).head == 16) to = put_fields(to, b, half + 2, 2);
  for (u32 i = 0; i < 8; i++) {
    u8 codes[4][32];
    for (u32 r = 0; r < 4; r++) k_codes(layout, b->row[r], i, codes[r]);
    to = put_k_scales(layout, b, i, to);
    if (layout == L_Q5_K) to = put_bit_plane(to, codes, 4);
    if (layout == L_Q6_K) to = put_pair_planes(to, codes, 4);
    if (layout == L_Q3_K) to = put_bit_plane(to, codes, 2);
    if (layout == L_Q2_K || layout == L_Q3_K) to = put_pair_planes(to, codes, 0);
    else to = put_nibble_plane(to, codes);
  }
}

static void repack_expanded(u32 type, const Rows *b, const i8 *grid, u32 n, u8 *to) {
  i8 codes[4][256];
  f32 scales[4][16];
  u32 flip = dot_mode == DOTS_UNSIGNED ? 0x80808080 : 0;
  for (u32 r = 0; r < 4; r++) expand_block(type, b->row[r], grid, codes[r], scales[r]);
  for (u32 i = 0; i < n / 32; i++) {
    for (u32 h = 0; h < 2; h++) {
      for (u32 r = 0; r < 4; r++, to += 4) *(f32 *)to = scales[r][2 * i + h];
    }
    for (u32 j = 0; j < 8; j++) {
      for (u32 r = 0; r < 4; r++, to += 4) put_word(to, word((u8 *)codes[r] + 32 * i + 4 * j) ^ flip);
    }
  }
}

static void repack_floats(enum Layout layout, const u8 *from, uintptr_t stride, u32 n_rows, u32 n_in, u8 *to) {
  u32 size = layout == L_F32 ? 4 : 2;
  for (u32 k = 0; k < n_in; k++) {
    for (u32 r = 0; r < 4; r++, to += size) {
      if (size == 4) *(u32 *)to = r < n_rows ? word(from + r * stride + 4 * k) : 0;
      else *(u16 *)to = r < n_rows ? (u16)(from[r * stride + 2 * k] | from[r * stride + 2 * k + 1] << 8) : 0;
    }
  }
}

/* Up to four rows of a matrix. */
static void repack_group(enum Layout layout, u32 type, u32 block_size, u32 type_size, const i8 *grid, const u8 *from,
                         u32 n_rows, u32 n_in, u8 *to) {
  uintptr_t stride = (uintptr_t)(n_in / block_size) * type_size;
  if (is_float(layout)) {
    repack_floats(layout, from, stride, n_rows, n_in, to);
    return;
  }
  u32 size = group_nbytes(layout, block_size < 32 ? 32 : block_size);
  Rows b = {0};
  for (u32 i = 0; i < n_in / block_size; i++, from += type_size, to += size) {
    for (u32 r = 0; r < n_rows; r++) copy_bytes(b.row[r], from + r * stride, type_size);
    if (layout == L_WIDE8) repack_expanded(type, &b, grid, block_size, to);
    else if (geometry(layout).blocks == 8) repack_super(layout, &b, to);
    else repack_simple(layout, &b, to);
  }
}

/* Rows of a tensor of ggml type `type`, at `from`, become groups at unit `to` plus group `first_group`; the last group
 * is filled up with zero rows. `from` is an address in bytes. */
EXPORT("repack") void repack(u32 layout, u32 type, u32 block_size, u32 type_size, u32 grid, uintptr_t from, u32 n_rows,
                             u32 n_in, u32 to, u32 first_group) {
  uintptr_t row = (uintptr_t)(n_in / block_size) * type_size, size = group_nbytes(layout, n_in);
  u8 *group = (u8 *)at(to) + first_group * size;
  for (; n_rows; group += size, from += 4 * row) {
    u32 n = min_u32(4, n_rows);
    repack_group(layout, type, block_size, type_size, at(grid), (const u8 *)from, n, n_in, group);
    n_rows -= n;
  }
}

/* `n` numbers of a vector, stored as floats, from address `from` -> float32 at unit `to` plus `first`. */
EXPORT("widen_vector") void widen_vector(u32 layout, uintptr_t from, u32 n, u32 to, u32 first) {
  const u8 *p = (const u8 *)from;
  u8 *out = (u8 *)at(to) + 4 * (uintptr_t)first;
  for (u32 i = 0; i < n; i++) {
    u32 bits;
    if (layout == L_F32) {
      bits = word(p + 4 * i);
    } else if (layout == L_BF16) {
      bits = (u32)(p[2 * i] | p[2 * i + 1] << 8) << 16;
    } else {
      f32 value = half_at(p + 2 * i);
      __builtin_memcpy(&bits, &value, 4);
    }
    put_word(out + 4 * i, bits);
  }
}

/* For tests: group `group` of a matrix at unit `from` as float32 [n_in][4 rows] at unit `to`. */
EXPORT("decode_group") void decode(u32 layout, u32 from, u32 group, u32 n_in, u32 to) {
  const u8 *p = (const u8 *)at(from) + (uintptr_t)group * group_nbytes(layout, n_in);
  const f32 *panel = float_panel(layout, p, n_in, at(to));
  f32 *out = at(to);
  for (u32 i = 0; i < 4 * n_in; i++) out[i] = panel[i];
}

EXPORT("group_nbytes") u32 exported_group_nbytes(u32 layout, u32 n_in) { return group_nbytes(layout, n_in); }
