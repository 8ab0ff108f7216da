#include "activations.h"
#include "team.h"

typedef struct Args {
  u32 x, out, stride, n_in, repeat, tile, wide;
} Args;

/* 32 columns of one row -> codes at `codes`, numbers `row` of each run of `rows` at `numbers`. */
INLINE void quantise_block(const f32 *x, u8 *codes, f32 *numbers, u32 row, u32 rows, int wide) {
  v128 v[8], largest = splat(0), all = splat(0);
  for (int i = 0; i < 8; i++) {
    v[i] = load(x + 4 * i);
    largest = wasm_f32x4_pmax(largest, wasm_f32x4_abs(v[i]));
    all = wasm_f32x4_add(all, v[i]);
  }
  f32 most = max_of(largest);
  /* To the nearest integer: added to 1.5 * 2^23 a number loses its fraction, and its integer is in the lowest bits. */
  const v128 magic = wasm_f32x4_const_splat(12582912.0f);
  v128 factor = splat(most > 0 ? 127.0f / most : 0.0f);
  for (int i = 0; i < 8; i++) v[i] = wasm_i32x4_sub(madd(v[i], factor, magic), magic);
  v128 halves[2];
  for (int h = 0; h < 2; h++) {
    v128 low = wasm_i16x8_narrow_i32x4(v[4 * h], v[4 * h + 1]);
    v128 high = wasm_i16x8_narrow_i32x4(v[4 * h + 2], v[4 * h + 3]);
    if (wide) {
      store(codes + 32 * h, low);
      store(codes + 32 * h + 16, high);
    } else {
      store(codes + 16 * h, wasm_i8x16_narrow_i16x8(low, high));
    }
    halves[h] = wasm_i32x4_add(wasm_i32x4_add(v[4 * h], v[4 * h + 1]), wasm_i32x4_add(v[4 * h + 2], v[4 * h + 3]));
  }
  f32 scale = most / 127.0f + 0.0f * sum_of(all); /* NaN where there is NaN or infinity, which pmax may have lost */
  f32 first = scale * sum_of(wasm_f32x4_convert_i32x4(halves[0]));
  f32 last = scale * sum_of(wasm_f32x4_convert_i32x4(halves[1]));
  numbers[row] = scale;
  numbers[rows + row] = first + last;
  numbers[2 * rows + row] = first;
  numbers[3 * rows + row] = last;
}

INLINE void quantise_row(const f32 *x, u8 *tile, u32 row, u32 rows, u32 n_in, int wide) {
  u32 codes = act_codes(rows, wide), block = act_block(rows, wide);
  for (u32 b = 0; b < n_in / 32; b++, tile += block, x += 32) {
    quantise_block(x, tile + row * act_codes(1, wide), (f32 *)(tile + codes), row, rows, wide);
  }
}

/* x [rows · repeat, n_in] -> tiles: of one row where `tile` is 1 or there is one row only, else of four. Rows that fill
 * up the last tile keep whatever is there: the results made from them are not stored. */
static void quantise_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const Args *a = args;
  u32 rows = a->tile == 1 || n_rows == 1 ? 1 : TILE;
  u32 size = act_tile(rows, a->wide, a->n_in);
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = (const f32 *)at(a->x) + (uintptr_t)r * a->stride;
    for (u32 i = 0; i < a->repeat; i++) {
      u32 row = r * a->repeat + i;
      u8 *tile = (u8 *)at(a->out) + (uintptr_t)(row / rows) * size;
      if (a->wide) quantise_row(x + i * a->n_in, tile, row % rows, rows, a->n_in, 1);
      else quantise_row(x + i * a->n_in, tile, row % rows, rows, a->n_in, 0);
    }
  }
}

const Kernel quantise = {row_items, quantise_rows};
