/* A group of weights unpacked once, as codes or as floats, and multiplied with many rows of activations. */
#include "matmul.h"

/* A panel is a run of blocks: 8 quads (`wide`: 16 vectors of 16 bit codes), then a scale and an offset of the block's
 * 32 columns, or two of each where a layout has half scales. */
INLINE u32 panel_codes(int wide) { return wide ? 256 : 128; }
INLINE u32 panel_block(int wide, int halves) { return panel_codes(wide) + 32 * halves; }

INLINE void unpack(enum Layout layout, int wide, const u8 *group, u32 n_in, u8 *panel) {
  const Geometry geo = geometry(layout);
  const int halves = has_half_scales(layout) ? 2 : 1;
  for (u32 super = 0; super < n_in / (32 * geo.blocks); super++) {
    Header header = load_header(layout, group);
    group += geo.head;
#pragma clang loop unroll(disable)
    for (u32 b = 0; b < geo.blocks; b++, group += geo.block, panel += panel_block(wide, halves)) {
      v128 q[8], s[2], o[2];
      unpack_codes(layout, group, q);
      load_scales(layout, group, header, 0, s, o);
      for (int j = 0; j < 8; j++) {
        if (wide) {
          v128 w[2];
          widen(q[j], has_wide_codes(layout), w);
          store(panel + 32 * j, w[0]);
          store(panel + 32 * j + 16, w[1]);
        } else {
          store(panel + 16 * j, q[j]);
        }
      }
      for (int h = 0; h < halves; h++) {
        store(panel + panel_codes(wide) + 16 * h, s[h]);
        store(panel + panel_codes(wide) + 16 * (halves + h), o[h]);
      }
    }
  }
}

INLINE void multiply(int wide, int halves, const u8 *panel, const u8 *x, u32 n_in, v128 sums[TILE]) {
  const int quads = 8 / halves;
  const u32 row = act_codes(1, wide), quad = wide ? 8 : 4;
  v128 f[TILE];
  for (int t = 0; t < TILE; t++) f[t] = splat(0);
  for (u32 b = 0; b < n_in / 32; b++, panel += panel_block(wide, halves), x += act_block(TILE, wide)) {
    const f32 *numbers = (const f32 *)(x + act_codes(TILE, wide));
    for (int h = 0; h < halves; h++) {
      v128 acc[TILE][2];
      for (int t = 0; t < TILE; t++) acc[t][0] = acc[t][1] = splat(0);
      for (int j = h * quads; j < (h + 1) * quads; j++) {
        for (int t = 0; t < TILE; t++) {
          const u8 *codes = x + t * row + j * quad;
          if (wide) {
            v128 w[2] = {load(panel + 32 * j), load(panel + 32 * j + 16)};
            dot_wide(w, codes, acc[t]);
          } else {
            dot_narrow(load(panel + 16 * j), codes, acc[t]);
          }
        }
      }
      v128 s = load(panel + panel_codes(wide) + 16 * h), o = load(panel + panel_codes(wide) + 16 * (halves + h));
      for (int t = 0; t < TILE; t++) {
        f[t] = madd(finish_dots(acc[t], wide), wasm_f32x4_mul(s, load_splat(numbers + t)), f[t]);
        f[t] = madd(o, load_splat(numbers + TILE * (halves == 1 ? 1 : 2 + h) + t), f[t]);
      }
    }
  }
  for (int t = 0; t < TILE; t++) sums[t] = f[t];
}

typedef void Unpack(const u8 *group, u32 n_in, u8 *panel);

#define UNPACK(layout, wide) \
  static void unpack_##layout##_##wide(const u8 *group, u32 n_in, u8 *panel) { \
    unpack(layout, wide, group, n_in, panel);                                  \
  }

#define DEFINE_WIDE(layout) UNPACK(layout, 1)
#define TABLE_WIDE(layout) [layout] = unpack_##layout##_1,
#define DEFINE_NARROW(layout) UNPACK(layout, 0)
#define TABLE_NARROW(layout) [layout] = unpack_##layout##_0,

CODES(DEFINE_NARROW)
WIDE_CODES(DEFINE_NARROW)
CODES(DEFINE_WIDE)
WIDE_CODES(DEFINE_WIDE)
static Unpack *const UNPACKS[2][N_LAYOUTS] = {{CODES(TABLE_NARROW) WIDE_CODES(TABLE_NARROW)},
                                              {CODES(TABLE_WIDE) WIDE_CODES(TABLE_WIDE)}};

void unpack_panel(enum Layout layout, const u8 *group, u32 n_in, u8 *panel) {
  UNPACKS[needs_wide_dots(layout)][layout](group, n_in, panel);
}

static void multiply_wide(const u8 *panel, const u8 *x, u32 n_in, v128 *sums) {
  multiply(1, 1, panel, x, n_in, sums);
}
static void multiply_wide_halves(const u8 *panel, const u8 *x, u32 n_in, v128 *sums) {
  multiply(1, 2, panel, x, n_in, sums);
}
#ifdef __wasm_relaxed_simd__
static void multiply_narrow(const u8 *panel, const u8 *x, u32 n_in, v128 *sums) {
  multiply(0, 1, panel, x, n_in, sums);
}
static void multiply_narrow_halves(const u8 *panel, const u8 *x, u32 n_in, v128 *sums) {
  multiply(0, 2, panel, x, n_in, sums);
}
#else
#define multiply_narrow 0
#define multiply_narrow_halves 0
#endif

void multiply_panel(enum Layout layout, const u8 *panel, const u8 *x, u32 n_in, v128 sums[TILE]) {
  static void (*const WAYS[2][2])(const u8 *, const u8 *, u32, v128 *) = {{multiply_narrow, multiply_narrow_halves},
                                                                          {multiply_wide, multiply_wide_halves}};
  WAYS[needs_wide_dots(layout)][has_half_scales(layout)](panel, x, n_in, sums);
}
