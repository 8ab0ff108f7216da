/* Replays a program, a list of records, on a team of threads.
 *
 * Nobody waits for a thread, only for work: threads walk through the program, each claims items of the operation it is
 * at until there are none left, and waits, where the program says so, until all items before are done, by whomever. A
 * thread that comes late or is taken off its processor leaves its share to the others. Counters carry the number of
 * their job, so that one who is still walking through an old job finds nothing to do in the next.
 *
 * Thread 0 calls `run`, the others call `serve` again and again. Where the caller may not block (a page's own thread)
 * all members serve, thread 0 too, and `post_job` only tells them.
 */
#include "team.h"

/* The order is that of KERNELS in bridge/simd/program.py. */
static const Kernel *const KERNELS[] = {
    &rope_table, &embed, &rope, &kv_write, &select_outputs, &rms_norm, &layer_norm, &activate, &glu, &add, &mul,
    &mix_runs, &dot, &add_vector, &mul_vector, &columns, &concat, &scale, &softcap, &clamp, &scale_by_position,
    &route, &combine_experts, &quantise, &matmul, &matmul_experts, &attention, &token_shift, &conv, &selective_scan,
    &gated_delta, &wkv7, &text_attention, &text_mean, &softmax
};

enum { MAX_OPS = 16384, MAX_SPINS = 5000, ITEM_BITS = 20, ITEM_MASK = (1 << ITEM_BITS) - 1 };

/* In the module's own memory, which all threads share. `job` is number << 8 | threads. `next` and `done` count items of
 * the operation, or of the stretch between barriers, that begins at a record: number << ITEM_BITS | items. `progress`
 * changes whenever items are done while somebody sleeps. */
static struct Team {
  u32 job, edition, n_counters, program, n_ops, params, scratch, scratch_units, failed;
  u32 progress __attribute__((aligned(64)));
  u32 sleepers, active;
  u32 next[MAX_OPS] __attribute__((aligned(64)));
  u32 done[MAX_OPS] __attribute__((aligned(64)));
} team;

INLINE u32 look(const u32 *word) { return __atomic_load_n(word, __ATOMIC_SEQ_CST); }
INLINE void set(u32 *word, u32 value) { __atomic_store_n(word, value, __ATOMIC_SEQ_CST); }
/* Whether the word still was `*seen`, which otherwise becomes what it is. */
INLINE int replace(u32 *word, u32 *seen, u32 value) {
  return __atomic_compare_exchange_n(word, seen, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
INLINE void add_to(u32 *word, i32 n) { __atomic_add_fetch(word, (u32)n, __ATOMIC_SEQ_CST); }

static void wake(u32 *word) {
#ifdef __wasm_atomics__
  __builtin_wasm_memory_atomic_notify((i32 *)word, 0xffffffff);
#endif
}

static void sleep_while(u32 *word, u32 old) {
#ifdef __wasm_atomics__
  __builtin_wasm_memory_atomic_wait32((i32 *)word, (i32)old, -1);
#endif
}

/* A job as one thread sees it; `number` as the counters have it. */
typedef struct Walk {
  Context context;
  const Record *program;
  u32 n_ops, number;
} Walk;

/* The next item of a counter, or -1 when there is none for this job. */
static i32 claim(const Walk *w, u32 *counter, u32 n_items) {
  u32 word = look(counter);
  while (word >> ITEM_BITS == w->number && (word & ITEM_MASK) < n_items) {
    if (replace(counter, &word, word + 1)) return word & ITEM_MASK;
  }
  return -1;
}

static void report(u32 *counter, u32 n_items) {
  add_to(counter, (i32)n_items);
  if (!look(&team.sleepers)) return;
  add_to(&team.progress, 1);
  wake(&team.progress);
}

/* Until so many items are done, first looking again and again, as they mostly are at once, then asleep. Returns 0 when
 * the job is over or has failed. */
static int await_done(const Walk *w, u32 *counter, u32 n_items) {
  u32 wanted = w->number << ITEM_BITS | n_items;
  for (u32 i = 0;; i++) {
    u32 progress = look(&team.progress), word = look(counter);
    if (word == wanted) return 1;
    if (word >> ITEM_BITS != w->number || look(&team.failed)) return 0;
    if (i < MAX_SPINS) continue;
    add_to(&team.sleepers, 1);
    if (look(counter) == word) sleep_while(&team.progress, progress);
    add_to(&team.sleepers, -1);
  }
}

/* Operations that are joined: one item is the same rows in each of them. */
static void run_item(const Walk *w, u32 first, u32 end, u32 item) {
  for (u32 i = first; i < end; i++) {
    const Record *r = w->program + i;
    KERNELS[r->op]->run(&w->context, w->context.params[r->rows], r->args, item);
  }
}

static void walk(const Walk *w) {
  u32 stretch = 0, expected = 0; /* where the last barrier is, and the items since */
  for (u32 i = 0, end; i < w->n_ops; i = end) {
    const Record *r = w->program + i;
    for (end = i + 1; end < w->n_ops && w->program[end].follows == F_JOINED;) end++;
    if (r->follows == F_BARRIER) {
      if (!await_done(w, &team.done[stretch], expected)) return;
      stretch = i;
      expected = 0;
    }
    u32 n_items = KERNELS[r->op]->items(&w->context, w->context.params[r->rows], r->args), n_done = 0;
    for (i32 item; (item = claim(w, &team.next[i], n_items)) >= 0; n_done++) run_item(w, i, end, (u32)item);
    if (n_done) report(&team.done[stretch], n_done);
    expected += n_items;
  }
  await_done(w, &team.done[stretch], expected);
}

/* The same with nobody to share with. */
static void walk_alone(const Walk *w) {
  for (u32 i = 0; i < w->n_ops; i++) {
    const Record *r = w->program + i;
    u32 n_rows = w->context.params[r->rows], n_items = KERNELS[r->op]->items(&w->context, n_rows, r->args);
    for (u32 item = 0; item < n_items; item++) KERNELS[r->op]->run(&w->context, n_rows, r->args, item);
  }
}

/* A walk without operations where a job is being posted meanwhile: what was read may then belong to two. */
static Walk walk_of(u32 thread, u32 job) {
  u32 edition = look(&team.edition), n_ops = look(&team.n_ops);
  Context c = {at(look(&team.params)), at(look(&team.scratch) + thread * look(&team.scratch_units)), job & 255};
  const Record *program = at(look(&team.program));
  if (edition % 2 || look(&team.edition) != edition) n_ops = 0;
  return (Walk){c, program, n_ops, job >> 8 & ((1 << (32 - ITEM_BITS)) - 1)};
}

/* Tell the waiting threads of a job for the first `n_threads` (up to 255) of the team; 0 sends all of them home.
 * Addresses are in units of 16 bytes. The parameters are copied from `mail` to `params`, where nobody reads them for
 * the job before any more; each thread has `scratch_units` of its own. A thread that comes late to the job before may
 * read what is written here: it finds either no operations, or those of one job, all of whose items are done or, by
 * their number, not its own. `edition` is odd while the description of the job changes. */
EXPORT("post_job")
void post_job(u32 program, u32 n_ops, u32 mail, u32 params, u32 scratch, u32 scratch_units, u32 n_threads) {
  u32 number = (look(&team.job) >> 8) + 1;
  add_to(&team.edition, 1);
  for (u32 i = 0; i < max_u32(n_ops, team.n_counters); i++) { /* those of the job before, too: nothing is left in it */
    set(&team.next[i], number << ITEM_BITS);
    set(&team.done[i], number << ITEM_BITS);
  }
  const u32 *from = at(mail);
  u32 *to = at(params), n_words = n_ops ? P_HEADER + 3 * from[P_TOKENS] + from[P_OUTPUTS] : 0;
  for (u32 i = 0; i < n_words; i++) to[i] = from[i];
  team.n_counters = n_ops;
  set(&team.program, program);
  set(&team.params, params);
  set(&team.scratch, scratch);
  set(&team.scratch_units, scratch_units);
  set(&team.n_ops, n_ops);
  add_to(&team.edition, 1);
  set(&team.job, number << 8 | n_threads);
  wake(&team.job);
  wake(&team.progress); /* those who still wait for something in an old job */
}

/* Whether a thread has failed: what was computed since is worthless. */
EXPORT("has_failed") u32 has_failed(void) { return look(&team.failed); }

/* Do a job as thread 0 and return when all of it is done; 1 if a thread has failed. */
EXPORT("run")
u32 run(u32 program, u32 n_ops, u32 mail, u32 params, u32 scratch, u32 scratch_units, u32 n_threads) {
  post_job(program, n_ops, mail, params, scratch, scratch_units, n_threads);
  Walk w = walk_of(0, look(&team.job));
  if (n_threads == 1) walk_alone(&w);
  else walk(&w);
  return has_failed();
}

/* Wait for the job after `last`, do what thread `thread` finds to do in it, and return its word (see Team). */
EXPORT("serve") u32 serve(u32 thread, u32 last) {
  for (u32 i = 0; look(&team.job) == last;) {
    if (++i > MAX_SPINS) sleep_while(&team.job, last);
  }
  add_to(&team.active, 1); /* before anything of the job is read: see retire_job */
  u32 job = look(&team.job);
  Walk w = walk_of(thread, job);
  if (thread < w.context.n_threads && w.n_ops) {
    if (w.context.n_threads == 1) walk_alone(&w);
    else walk(&w);
  }
  add_to(&team.active, -1);
  return job;
}

/* Take the last job's program away from threads that have yet to look at it, and count those that may still be walking
 * through it: until there are none, it must stay as it is. */
EXPORT("retire_job") u32 retire_job(void) {
  set(&team.n_ops, 0);
  return has_failed() ? 0 : look(&team.active);
}

/* What a new thread gives `serve` as the last job. */
EXPORT("current_job") u32 current_job(void) { return look(&team.job); }

/* A thread has failed: nobody waits for its work any more, and what is computed is worthless. */
EXPORT("abandon") void abandon(void) {
  set(&team.failed, 1);
  add_to(&team.progress, 1);
  wake(&team.progress);
}

/* Of the tables of bridge/simd/program.py that these kernels were built for. */
EXPORT("edition") u32 edition(void) { return PROGRAM_EDITION; }

EXPORT("max_ops") u32 max_ops(void) { return MAX_OPS; }
