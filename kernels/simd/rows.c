/* What goes by token and position: rows of embeddings, rotations, the cache, and the rows that are wanted. */
#include "matmul.h"
#include "rows.h"

u32 row_items(const Context *c, u32 n_rows, const void *args) {
  return ceil_div(n_rows, ROWS_PER_ITEM);
}

typedef struct EmbedArgs {
  u32 weight, layout, n_in, out, out_stride, of;
  f32 scale;
} EmbedArgs;

enum { OF_TOKENS, OF_POSITIONS, OF_FIRST };

static void embed_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const EmbedArgs *a = args;
  const u32 *tokens = c->params + c->params[P_TOKEN_IDS];
  uintptr_t size = group_nbytes(a->layout, a->n_in);
  FOR_ROWS(r, item, n_rows) {
    u32 row = a->of == OF_TOKENS ? tokens[r] : a->of == OF_POSITIONS ? position_of(c, r) : 0;
    const u8 *group = (const u8 *)at(a->weight) + row / 4 * size;
    const f32 *columns = float_panel(a->layout, group, a->n_in, c->scratch) + row % 4;
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 i = 0; i < a->n_in; i++) out[i] = columns[4 * i] * a->scale;
  }
}

const Kernel embed = {row_items, embed_rows};

typedef struct RopeArgs {
  u32 x, x_stride, out, out_stride, width, head_dim, n_rot, neox, table;
} RopeArgs;

/* Pairs of neighbours: (a, b) -> (a cos - b sin, a sin + b cos). */
static void rotate_neighbours(const f32 *x, const f32 *table, f32 *out, u32 n_rot) {
  u32 i = 0;
  for (; i + 4 <= n_rot; i += 4) {
    v128 v = load(x + i), t = load(table + i);
    v128 cosines = wasm_i32x4_shuffle(t, t, 0, 0, 2, 2), sines = wasm_i32x4_shuffle(t, t, 1, 1, 3, 3);
    v128 signs = wasm_u32x4_const(0x80000000u, 0, 0x80000000u, 0);
    v128 swapped = wasm_v128_xor(wasm_i32x4_shuffle(v, v, 1, 0, 3, 2), signs);
    store(out + i, wasm_f32x4_add(wasm_f32x4_mul(v, cosines), wasm_f32x4_mul(swapped, sines)));
  }
  for (; i < n_rot; i += 2) {
    f32 a = x[i], b = x[i + 1];
    out[i] = a * table[i] - b * table[i + 1];
    out[i + 1] = a * table[i + 1] + b * table[i];
  }
}

/* Pairs of a column of the first half and its counterpart in the second. */
static void rotate_halves(const f32 *x, const f32 *table, f32 *out, u32 half) {
  u32 i = 0;
  for (; i + 4 <= half; i += 4) {
    v128 a = load(x + i), b = load(x + half + i), t0 = load(table + 2 * i), t1 = load(table + 2 * i + 4);
    v128 cosines = wasm_i32x4_shuffle(t0, t1, 0, 2, 4, 6), sines = wasm_i32x4_shuffle(t0, t1, 1, 3, 5, 7);
    v128 first = wasm_f32x4_sub(wasm_f32x4_mul(a, cosines), wasm_f32x4_mul(b, sines));
    v128 second = wasm_f32x4_add(wasm_f32x4_mul(a, sines), wasm_f32x4_mul(b, cosines));
    store(out + i, first);
    store(out + half + i, second);
  }
  for (; i < half; i++) {
    f32 a = x[i], b = x[half + i];
    out[i] = a * table[2 * i] - b * table[2 * i + 1];
    out[half + i] = a * table[2 * i + 1] + b * table[2 * i];
  }
}

static void rope_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const RopeArgs *a = args;
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->x_stride, r), *table = row_of(a->table, a->n_rot, r);
    f32 *out = out_row(a->out, a->out_stride, r);
    for (u32 h = 0; h < a->width; h += a->head_dim) {
      if (a->neox) rotate_halves(x + h, table, out + h, a->n_rot / 2);
      else rotate_neighbours(x + h, table, out + h, a->n_rot);
      for (u32 i = a->n_rot; i < a->head_dim; i++) out[h + i] = x[h + i];
    }
  }
}

const Kernel rope = {row_items, rope_rows};

typedef struct SelectArgs {
  u32 x, out, stride;
} SelectArgs;

static void select_outputs_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const SelectArgs *a = args;
  const u32 *rows = c->params + c->params[P_OUTPUT_ROWS];
  FOR_ROWS(r, item, n_rows) {
    const f32 *x = row_of(a->x, a->stride, rows[r]);
    f32 *out = out_row(a->out, a->stride, r);
    for (u32 i = 0; i < a->stride; i += 4) store(out + i, load(x + i));
  }
}

const Kernel select_outputs = {row_items, select_outputs_rows};
