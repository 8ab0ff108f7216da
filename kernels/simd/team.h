/* What a kernel knows of the batch and of the thread that runs it. */
#ifndef BRIDGE_TEAM_H
#define BRIDGE_TEAM_H

#include "base.h"

/* Words of the parameter block, see bridge/plan/batch.py; the tables of cosines and sines are computed here. */
enum { P_TOKENS = 0, P_START = 1, P_OUTPUTS = 2, P_TOKEN_IDS = 3, P_OUTPUT_ROWS = 4, P_TEXTS = 13, P_STATE_READ = 14,
       P_STATE_WRITTEN = 15, P_HEADER = 16 };

typedef struct Context {
  const u32 *params;
  u8 *scratch; /* this thread's own, 64-byte aligned */
  u32 n_threads;
} Context;

/* For each row of the batch the first row of its text and the one after the last. */
INLINE const u32 *texts_of(const Context *c) { return c->params + c->params[P_TEXTS]; }
INLINE u32 position_of(const Context *c, u32 row) { return c->params[P_START] + row - texts_of(c)[2 * row]; }

/* An operation's work is cut into items that any thread may run, in any order: `items` counts them, `run` does one. */
typedef struct Kernel {
  u32 (*items)(const Context *c, u32 n_rows, const void *args);
  void (*run)(const Context *c, u32 n_rows, const void *args, u32 item);
} Kernel;

/* Items of operations that go by rows: four rows each. */
enum { ROWS_PER_ITEM = 4 };
u32 row_items(const Context *c, u32 n_rows, const void *args);

#define FOR_ROWS(r, item, n) \
  for (u32 r = (item)*ROWS_PER_ITEM; r < min_u32((item)*ROWS_PER_ITEM + ROWS_PER_ITEM, (n)); r++)

/* A record of a program: an operation, how it follows the one before, the word of the parameter block that holds its
 * number of rows, and its arguments (bridge/simd/program.py writes them). */
enum { RECORD_WORDS = 24 };
enum Follows { F_BESIDE, F_JOINED, F_BARRIER };
typedef struct Record {
  u32 op, follows, rows;
  u32 args[RECORD_WORDS - 3];
} Record;

extern const Kernel rope_table, embed, rope, kv_write, select_outputs, rms_norm, layer_norm, activate, glu, add, mul,
    mix_runs, dot, add_vector, mul_vector, columns, concat, scale, softcap, clamp, scale_by_position, route, combine_experts,
    quantise, matmul, matmul_experts, attention, token_shift, conv, selective_scan, gated_delta, wkv7, text_attention,
    text_mean, softmax;

#endif
