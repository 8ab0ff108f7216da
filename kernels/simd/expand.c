/* See dequantize_row_* in ggml-quants.c for the layouts, ggml-common.h for the structs. */
#include "expand.h"

static u32 u16_at(const u8 *p) { return p[0] | (u32)p[1] << 8; }
static u32 u32_at(const u8 *p) { return u16_at(p) | u16_at(p + 2) << 16; }

/* The seven stored sign bits and the eighth, which makes their number even. */
static u32 even_signs(u32 seven) { return seven | (u32)(__builtin_popcount(seven) & 1) << 7; }

/* `n` components of a grid point, negated where the bits of `signs` say so. */
static void put_point(const i8 *point, u32 signs, u32 n, i8 *codes) {
  for (u32 i = 0; i < n; i++) codes[i] = signs >> i & 1 ? -point[i] : point[i];
}

static void iq2_xxs(const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  for (u32 g = 0; g < 8; g++) {
    const u8 *indices = block + 2 + 8 * g;
    u32 bits = u32_at(indices + 4);
    for (u32 i = 0; i < 4; i++) {
      put_point(grid + 8 * indices[i], even_signs(bits >> 7 * i & 127), 8, codes + 32 * g + 8 * i);
    }
    scales[2 * g] = scales[2 * g + 1] = half_at(block) * (0.5f + (f32)(bits >> 28)) * 0.25f;
  }
}

static f32 nibble_scale(const u8 *block, const u8 *nibbles, u32 i) {
  return half_at(block) * (0.5f + (f32)(nibbles[i / 2] >> 4 * (i % 2) & 15)) * 0.25f;
}

static void iq2_xs(const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  for (u32 i = 0; i < 32; i++) {
    u32 code = u16_at(block + 2 + 2 * i);
    put_point(grid + 8 * (code & 511), even_signs(code >> 9), 8, codes + 8 * i);
  }
  for (u32 i = 0; i < 16; i++) scales[i] = nibble_scale(block, block + 66, i);
}

static void iq2_s(const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  for (u32 i = 0; i < 32; i++) {
    u32 index = block[2 + i] | (u32)(block[66 + i / 4] >> 2 * (i % 4) & 3) << 8;
    put_point(grid + 8 * index, block[34 + i], 8, codes + 8 * i);
  }
  for (u32 i = 0; i < 16; i++) scales[i] = nibble_scale(block, block + 74, i);
}

static void iq3_xxs(const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  for (u32 g = 0; g < 8; g++) {
    u32 bits = u32_at(block + 66 + 4 * g);
    for (u32 i = 0; i < 8; i++) {
      u32 signs = even_signs(bits >> 7 * (i / 2) & 127) >> 4 * (i % 2);
      put_point(grid + 4 * block[2 + 8 * g + i], signs, 4, codes + 32 * g + 4 * i);
    }
    scales[2 * g] = scales[2 * g + 1] = half_at(block) * (0.5f + (f32)(bits >> 28)) * 0.5f;
  }
}

static void iq3_s(const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  for (u32 i = 0; i < 64; i++) {
    u32 index = block[2 + i] | (u32)(block[66 + i / 8] >> i % 8 & 1) << 8;
    put_point(grid + 4 * index, block[74 + i / 2] >> 4 * (i % 2), 4, codes + 4 * i);
  }
  for (u32 g = 0; g < 8; g++) {
    f32 scale = (f32)(1 + 2 * (block[106 + g / 2] >> 4 * (g % 2) & 15));
    scales[2 * g] = scales[2 * g + 1] = half_at(block) * scale;
  }
}

/* Grid points of -1, 0, 1 plus or minus one eighth: eight times as large, and the scale an eighth. */
static void put_shifted(const i8 *point, int negative, i8 *codes) {
  for (u32 i = 0; i < 8; i++) codes[i] = 8 * point[i] + (negative ? -1 : 1);
}

static void iq1_s(const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  for (u32 g = 0; g < 8; g++) {
    u32 high = u16_at(block + 34 + 2 * g);
    for (u32 i = 0; i < 4; i++) {
      u32 index = block[2 + 4 * g + i] | (high >> 3 * i & 7) << 8;
      put_shifted(grid + 8 * index, high >> 15, codes + 32 * g + 8 * i);
    }
    scales[2 * g] = scales[2 * g + 1] = half_at(block) * (f32)(2 * (high >> 12 & 7) + 1) * 0.125f;
  }
}

static void iq1_m(const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  const u8 *words = block + 48;
  u32 bits = 0; /* the block's half, spread over the top nibbles of four words */
  for (u32 i = 0; i < 4; i++) bits |= (u16_at(words + 2 * i) >> 12) << 4 * i;
  const u8 half[2] = {(u8)bits, (u8)(bits >> 8)};
  for (u32 i = 0; i < 32; i++) {
    u32 high = block[32 + i / 2] >> 4 * (i % 2) & 15;
    put_shifted(grid + 8 * (block[i] | (high & 7) << 8), high >> 3, codes + 8 * i);
  }
  for (u32 i = 0; i < 16; i++) {
    u32 scale = u16_at(words + i / 4 * 2) >> 3 * (i % 4) & 7;
    scales[i] = half_at(half) * (f32)(2 * scale + 1) * 0.125f;
  }
}

/* Five trits in a byte, its base-3 number times 256/243 rounded up: times 3^k modulo 256 brings trit k to the top. */
static void put_trits(const u8 *bytes, u32 n, u32 n_trits, i8 *codes) {
  static const u8 POWERS[5] = {1, 3, 9, 27, 81};
  for (u32 k = 0; k < n_trits; k++) {
    for (u32 i = 0; i < n; i++) codes[k * n + i] = (i8)((u8)(bytes[i] * POWERS[k]) * 3 >> 8) - 1;
  }
}

static void tq1_0(const u8 *block, i8 *codes, f32 *scales) {
  put_trits(block, 32, 5, codes);
  put_trits(block + 32, 16, 5, codes + 160);
  put_trits(block + 48, 4, 4, codes + 240);
  for (u32 i = 0; i < 16; i++) scales[i] = half_at(block + 52);
}

static void tq2_0(const u8 *block, i8 *codes, f32 *scales) {
  for (u32 i = 0; i < 256; i++) codes[i] = (i8)(block[i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3) - 1;
  for (u32 i = 0; i < 16; i++) scales[i] = half_at(block + 64);
}

/* Half the value of an unsigned E4M3 byte (bias 7) of which ggml reads seven bits; 0x7F is zero. */
static f32 half_of_e4m3(u8 byte) {
  u32 exponent = byte >> 3 & 15, mantissa = byte & 7;
  if ((byte & 127) == 127) return 0;
  f32 value = exponent ? (f32)(8 + mantissa) : (f32)(2 * mantissa); /* in eighths of 2^(exponent - 7) */
  union { u32 bits; f32 number; } power = {(exponent - 7 - 3 - 1 + 127) << 23};
  return value * power.number;
}

static void nvfp4(const u8 *block, i8 *codes, f32 *scales) {
  static const i8 E2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (u32 i = 0; i < 64; i++) codes[i] = E2M1[block[4 + i / 16 * 8 + i % 8] >> (i % 16 < 8 ? 0 : 4) & 15];
  for (u32 i = 0; i < 4; i++) scales[i] = half_of_e4m3(block[i]);
}

static void q1_0(const u8 *block, i8 *codes, f32 *scales) {
  for (u32 i = 0; i < 128; i++) codes[i] = block[2 + i / 8] >> i % 8 & 1 ? 1 : -1;
  for (u32 i = 0; i < 8; i++) scales[i] = half_at(block);
}

static void q2_0(const u8 *block, i8 *codes, f32 *scales) {
  for (u32 i = 0; i < 64; i++) codes[i] = (i8)(block[2 + i / 4] >> 2 * (i % 4) & 3) - 1;
  for (u32 i = 0; i < 4; i++) scales[i] = half_at(block);
}

void expand_block(enum Expanded type, const u8 *block, const i8 *grid, i8 *codes, f32 *scales) {
  switch (type) {
    case T_IQ2_XXS: iq2_xxs(block, grid, codes, scales); break;
    case T_IQ2_XS: iq2_xs(block, grid, codes, scales); break;
    case T_IQ2_S: iq2_s(block, grid, codes, scales); break;
    case T_IQ3_XXS: iq3_xxs(block, grid, codes, scales); break;
    case T_IQ3_S: iq3_s(block, grid, codes, scales); break;
    case T_IQ1_S: iq1_s(block, grid, codes, scales); break;
    case T_IQ1_M: iq1_m(block, grid, codes, scales); break;
    case T_TQ1_0: tq1_0(block, codes, scales); break;
    case T_TQ2_0: tq2_0(block, codes, scales); break;
    case T_NVFP4: nvfp4(block, codes, scales); break;
    case T_Q1_0: q1_0(block, codes, scales); break;
    case T_Q2_0: q2_0(block, codes, scales); break;
  }
}
