/* Looking at logits where they lie, so that a vocabulary of them need not be copied out for one token. */
#include "base.h"

enum { MAX_SELECTED = 2048 };

/* Whether none of the numbers is NaN or infinite. */
static int all_finite(const f32 *x, u32 n) {
  v128 all = splat(0);
  u32 i = 0;
  for (; i + 4 <= n; i += 4) all = wasm_f32x4_add(all, wasm_f32x4_sub(load(x + i), load(x + i)));
  f32 check = sum_of(all);
  for (; i < n; i++) check += x[i] - x[i];
  return check == check;
}

/* The first of the largest of `n` numbers at address `from`, or -1 where one of them is not finite: the caller says
 * what is wrong with them. */
EXPORT("best_token") i32 best_token(uintptr_t from, u32 n) {
  const f32 *x = (const f32 *)from;
  if (!n || !all_finite(x, n)) return -1;
  v128 most = splat(x[0]);
  u32 i = 0;
  for (; i + 4 <= n; i += 4) most = wasm_f32x4_pmax(most, load(x + i));
  f32 best = max_of(most);
  for (; i < n; i++) best = x[i] > best ? x[i] : best;
  for (i = 0; i + 4 <= n && !wasm_v128_any_true(wasm_f32x4_eq(load(x + i), splat(best)));) i += 4;
  while (x[i] != best) i++;
  return (i32)i;
}

/* A heap of the best tokens so far, the worst of them on top: that with the smallest logit and, of equals, the largest
 * id. */
typedef struct Heap {
  const f32 *logits;
  u32 *ids, n;
} Heap;

static int is_worse(const Heap *h, u32 a, u32 b) {
  f32 x = h->logits[a], y = h->logits[b];
  return x < y || (x == y && a > b);
}

static void sift_down(Heap *h, u32 i, u32 n) {
  for (;;) {
    u32 child = 2 * i + 1;
    if (child >= n) return;
    if (child + 1 < n && is_worse(h, h->ids[child + 1], h->ids[child])) child++;
    if (!is_worse(h, h->ids[child], h->ids[i])) return;
    u32 id = h->ids[i];
    h->ids[i] = h->ids[child];
    h->ids[child] = id;
    i = child;
  }
}

/* The `k` largest of `n` numbers at address `from`, the largest first and equal ones by rising index: their indices at
 * address `to`, the numbers behind them. Returns 0, having written nothing, where best_token would give -1 or k is not
 * from 1 to n and MAX_SELECTED. */
EXPORT("top_tokens") u32 top_tokens(uintptr_t from, u32 n, u32 k, uintptr_t to) {
  Heap h = {(const f32 *)from, (u32 *)to, k};
  if (!k || k > n || k > MAX_SELECTED || !all_finite(h.logits, n)) return 0;
  for (u32 i = 0; i < k; i++) h.ids[i] = i;
  for (u32 i = k / 2; i-- > 0;) sift_down(&h, i, k);
  for (u32 i = k; i < n;) {
    v128 worst = splat(h.logits[h.ids[0]]);
    while (i + 4 <= n && !wasm_v128_any_true(wasm_f32x4_gt(load(h.logits + i), worst))) i += 4;
    for (u32 end = min_u32(i + 4, n); i < end; i++) {
      if (h.logits[i] > h.logits[h.ids[0]]) {
        h.ids[0] = i;
        sift_down(&h, 0, k);
      }
    }
  }
  for (u32 end = k; end-- > 1;) { /* the worst goes to the end of what is left */
    u32 id = h.ids[0];
    h.ids[0] = h.ids[end];
    h.ids[end] = id;
    sift_down(&h, 0, end);
  }
  f32 *numbers = (f32 *)(h.ids + k);
  for (u32 i = 0; i < k; i++) numbers[i] = h.logits[h.ids[i]];
  return k;
}
