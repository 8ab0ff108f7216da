/* Replays a program, a list of records, on a team of threads that meet at barriers.
 *
 * Thread 0 calls `run`, the others call `serve` again and again. Where the caller may not block (a page's own thread) all
 * members serve, thread 0 too, and `post_job` only tells them.
 */
#include "team.h"

/* The order is that of KERNELS in bridge/simd/program.py. */
static Kernel *const KERNELS[] = {rope_table, embed, rms_norm, rope, kv_write, glu, add, scale, softcap, select_outputs,
                                  route, combine_experts, quantise, matmul, matmul_experts, attention};

enum { MAX_OPS = 16384, SPINS = 20000 };

/* In the module's own memory, which all threads share. `job` is number << 8 | threads; `arrived` and `phase` are the barrier. */
static struct Team {
  u32 job, program, n_ops, params, scratch, scratch_units, failed;
  u32 arrived __attribute__((aligned(64)));
  u32 phase __attribute__((aligned(64)));
  u32 next[MAX_OPS] __attribute__((aligned(64)));
} team;

/* Until the word is no longer `old`: first looking again and again, as the others are mostly about to arrive; then asleep. */
static void wait_while(u32 *word, u32 old) {
  for (int i = 0; i < SPINS; i++) {
    if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != old) return;
  }
#ifdef __wasm_atomics__
  while (__atomic_load_n(word, __ATOMIC_ACQUIRE) == old) __builtin_wasm_memory_atomic_wait32((i32 *)word, (i32)old, -1);
#endif
}

static void wake(u32 *word) {
#ifdef __wasm_atomics__
  __builtin_wasm_memory_atomic_notify((i32 *)word, 0xffffffff);
#else
  (void)word;
#endif
}

static void barrier(u32 n_threads) {
  if (__atomic_load_n(&team.failed, __ATOMIC_ACQUIRE)) return;
  u32 phase = __atomic_load_n(&team.phase, __ATOMIC_ACQUIRE);
  if (__atomic_add_fetch(&team.arrived, 1, __ATOMIC_ACQ_REL) < n_threads) {
    wait_while(&team.phase, phase);
    return;
  }
  __atomic_store_n(&team.arrived, 0, __ATOMIC_RELAXED);
  __atomic_store_n(&team.phase, phase + 1, __ATOMIC_RELEASE);
  wake(&team.phase);
}

static void work(u32 thread, u32 n_threads) {
  Context c = {at(team.params), at(team.scratch + thread * team.scratch_units), thread, n_threads, 0, 0};
  const Record *record = at(team.program);
  for (u32 i = 0; i < team.n_ops; i++, record++) {
    if (record->barrier && n_threads > 1) barrier(n_threads);
    c.next = &team.next[i];
    c.mine = 0;
    KERNELS[record->op](&c, c.params[record->rows], record->args);
  }
  if (n_threads > 1) barrier(n_threads);
}

/* Tell the waiting threads of a job for the first `n_threads` (less than 256) of the team; 0 sends all of them home.
 * Addresses are in units of 16 bytes; each thread has `scratch_units` of its own. */
EXPORT("post_job") void post_job(u32 program, u32 n_ops, u32 params, u32 scratch, u32 scratch_units, u32 n_threads) {
  team.program = program;
  team.n_ops = n_ops;
  team.params = params;
  team.scratch = scratch;
  team.scratch_units = scratch_units;
  for (u32 i = 0; i < n_ops; i++) team.next[i] = 0;
  u32 number = __atomic_load_n(&team.job, __ATOMIC_RELAXED) >> 8;
  __atomic_store_n(&team.job, (number + 1) << 8 | n_threads, __ATOMIC_RELEASE);
  wake(&team.job);
}

/* Do a job as thread 0 and return when all have done their part; 1 if a thread has failed. */
EXPORT("run") u32 run(u32 program, u32 n_ops, u32 params, u32 scratch, u32 scratch_units, u32 n_threads) {
  post_job(program, n_ops, params, scratch, scratch_units, n_threads);
  work(0, n_threads);
  return __atomic_load_n(&team.failed, __ATOMIC_ACQUIRE);
}

/* A thread has failed: no barrier holds any more, so that nobody waits for it. What is computed is worthless. */
EXPORT("abandon") void abandon(void) {
  __atomic_store_n(&team.failed, 1, __ATOMIC_RELEASE);
  __atomic_add_fetch(&team.phase, 1, __ATOMIC_ACQ_REL);
  wake(&team.phase);
}

/* Wait for the job after `last`, do what thread `thread` has to do in it, and return its word: number << 8 | threads. Both
 * are in one word because a job that a thread has no part in may be over, and the next one posted, before it looks. */
EXPORT("serve") u32 serve(u32 thread, u32 last) {
  wait_while(&team.job, last);
  u32 job = __atomic_load_n(&team.job, __ATOMIC_ACQUIRE), n_threads = job & 255;
  if (thread < n_threads) work(thread, n_threads);
  return job;
}

/* What a new thread gives `serve` as the last job. */
EXPORT("current_job") u32 current_job(void) { return __atomic_load_n(&team.job, __ATOMIC_ACQUIRE); }

EXPORT("max_ops") u32 max_ops(void) { return MAX_OPS; }
