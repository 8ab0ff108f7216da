/* What a kernel knows of the batch and of the threads that compute it together. */
#ifndef BRIDGE_TEAM_H
#define BRIDGE_TEAM_H

#include "base.h"

/* Words of the parameter block, see bridge/plan/batch.py; the tables of cosines and sines are computed here. */
enum { P_TOKENS = 0, P_START = 1, P_OUTPUTS = 2, P_TOKEN_IDS = 3, P_OUTPUT_ROWS = 4 };

typedef struct Context {
  const u32 *params;
  u8 *scratch; /* this thread's own, 64-byte aligned */
  u32 thread, n_threads;
  u32 *next; /* of the current operation: the first item that no thread has claimed, shared */
  u32 mine;  /* the same with one thread */
} Context;

/* The next item of the current operation; threads that are late or slow claim fewer. */
INLINE u32 claim(Context *c) {
  return c->n_threads == 1 ? c->mine++ : __atomic_fetch_add(c->next, 1, __ATOMIC_RELAXED);
}

/* Row-wise operations give the same rows to the same thread, four at a time, so that they follow each other without a
 * barrier. Calls `body` for each own row `r` of n. */
#define FOR_OWN_ROWS(c, r, n)                                                  \
  for (u32 r##_4 = (c)->thread * 4; r##_4 < (n); r##_4 += (c)->n_threads * 4) \
    for (u32 r = r##_4; r < min_u32(r##_4 + 4, (n)); r++)

/* A record of a program: an operation, whether all threads must have arrived before it, the word of the parameter block
 * that holds its number of rows, and its arguments (bridge/simd/program.py writes them). */
enum { RECORD_WORDS = 24 };
typedef struct Record {
  u32 op, barrier, rows;
  u32 args[RECORD_WORDS - 3];
} Record;

typedef void Kernel(Context *c, u32 n_rows, const void *args);
Kernel rope_table, embed, rms_norm, rope, kv_write, glu, add, scale, softcap, select_outputs, route, combine_experts,
    quantise, matmul, matmul_experts, attention;

#endif
