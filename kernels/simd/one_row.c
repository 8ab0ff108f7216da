/* One row of activations times groups of weights, unpacked in registers: a function for every layout. */
#include "matmul.h"

/* One block of `n` groups (1 or 2) `size` bytes apart, added to their sums. The order of the additions is that of
 * `multiply` in panel.c, so that a token gives the same result alone and in a batch. */
INLINE void multiply_block(enum Layout layout, int wide, int n, const u8 *block, uintptr_t size, const Header *headers,
                           const u8 *x, v128 *f) {
  const int halves = has_half_scales(layout) ? 2 : 1, quads = 8 / halves, quad = wide ? 8 : 4;
  const f32 *numbers = (const f32 *)(x + act_codes(1, wide));
  v128 q[2][8], s[2][2], o[2][2];
  for (int g = 0; g < n; g++) {
    unpack_codes(layout, block + g * size, q[g]);
    load_scales(layout, block + g * size, headers[g], 0, s[g], o[g]);
  }
  for (int h = 0; h < halves; h++) {
    v128 acc[2][2] = {{splat(0), splat(0)}, {splat(0), splat(0)}};
    for (int j = h * quads; j < (h + 1) * quads; j++) {
      for (int g = 0; g < n; g++) {
        if (wide) {
          v128 w[2];
          widen(q[g][j], has_wide_codes(layout), w);
          dot_wide(w, x + j * quad, acc[g]);
        } else {
          dot_narrow(q[g][j], x + j * quad, acc[g]);
        }
      }
    }
    v128 scale = load_splat(numbers), sum = load_splat(numbers + (halves == 1 ? 1 : 2 + h));
    for (int g = 0; g < n; g++) {
      f[g] = madd(finish_dots(acc[g], wide), wasm_f32x4_mul(s[g][h], scale), f[g]);
      f[g] = madd(o[g][h], sum, f[g]);
    }
  }
}

/* `n` groups (1, 2 or 4) `size` bytes apart times one row. */
INLINE void multiply(enum Layout layout, int wide, int n, const u8 *group, uintptr_t size, const u8 *x, u32 n_in,
                     v128 *sums) {
  const Geometry geo = geometry(layout);
  const int pair = n == 1 ? 1 : 2;
  v128 f[MAX_STREAMS];
  for (int g = 0; g < n; g++) f[g] = splat(0);
  for (u32 super = 0; super < n_in / (32 * geo.blocks); super++) {
    Header headers[MAX_STREAMS];
    for (int g = 0; g < n; g++) headers[g] = load_header(layout, group + g * size);
    const u8 *block = group + geo.head;
#pragma clang loop unroll(disable)
    for (u32 b = 0; b < geo.blocks; b++, block += geo.block, x += act_block(1, wide)) {
      for (int g = 0; g < n; g += pair) {
        multiply_block(layout, wide, pair, block + g * size, size, headers + g, x, f + g);
      }
    }
    group = block;
  }
  for (int g = 0; g < n; g++) sums[g] = f[g];
}

/* A function for each layout and way, so that the browser compiles only those that run. */
typedef void Multiply(int n, const u8 *group, uintptr_t size, const u8 *x, u32 n_in, v128 *sums);

#define MULTIPLY(layout, wide)                                                                                    \
  static void multiply_##layout##_##wide(int n, const u8 *group, uintptr_t size, const u8 *x, u32 n_in,         \
                                         v128 *sums) {                                                            \
    if (n == 1) multiply(layout, wide, 1, group, 0, x, n_in, sums);                                               \
    else multiply(layout, wide, streams(layout), group, size, x, n_in, sums);                                     \
  }

#define DEFINE_WIDE(layout) MULTIPLY(layout, 1)
#define TABLE_WIDE(layout) [layout] = multiply_##layout##_1,
WIDE_CODES(DEFINE_WIDE)

#ifdef __wasm_relaxed_simd__
#define DEFINE_NARROW(layout) MULTIPLY(layout, 0)
#define TABLE_NARROW(layout) [layout] = multiply_##layout##_0,
CODES(DEFINE_NARROW)
WIDE_CODES(DEFINE_NARROW)
static Multiply *const NARROW[N_LAYOUTS] = {CODES(TABLE_NARROW) WIDE_CODES(TABLE_NARROW)};
static Multiply *const WIDE[N_LAYOUTS] = {WIDE_CODES(TABLE_WIDE)};
#else
CODES(DEFINE_WIDE)
static Multiply *const *const NARROW = 0;
static Multiply *const WIDE[N_LAYOUTS] = {CODES(TABLE_WIDE) WIDE_CODES(TABLE_WIDE)};
#endif

static Multiply *way_of(enum Layout layout) { return (needs_wide_dots(layout) ? WIDE : NARROW)[layout]; }

v128 multiply_group(enum Layout layout, const u8 *group, const u8 *x, u32 n_in) {
  v128 sums;
  way_of(layout)(1, group, 0, x, n_in, &sums);
  return sums;
}

void multiply_streams(enum Layout layout, const u8 *group, uintptr_t size, const u8 *x, u32 n_in,
                      v128 sums[MAX_STREAMS]) {
  way_of(layout)(streams(layout), group, size, x, n_in, sums);
}
