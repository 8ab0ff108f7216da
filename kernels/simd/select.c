/* Looking at logits where they lie, so that a vocabulary of them need not be copied out for one token. */
#include "base.h"

/* The first of the largest of `n` numbers at address `from`, or -1 where one of them is NaN or positive infinity, or the
 * largest is negative infinity: the caller says what is wrong with them. */
EXPORT("best_token") i32 best_token(uintptr_t from, u32 n) {
  const f32 *x = (const f32 *)from;
  v128 most = splat(-__builtin_inff()), all = splat(0);
  u32 i = 0;
  for (; i + 4 <= n; i += 4) {
    v128 v = load(x + i);
    most = wasm_f32x4_pmax(most, v);
    all = wasm_f32x4_add(all, wasm_f32x4_sub(v, v)); /* NaN for NaN and for infinities */
  }
  f32 best = max_of(most), check = sum_of(all);
  for (; i < n; i++) {
    best = x[i] > best ? x[i] : best;
    check += x[i] - x[i];
  }
  if (check != check) return -1;
  for (i = 0; i + 4 <= n && !wasm_v128_any_true(wasm_f32x4_eq(load(x + i), splat(best)));) i += 4;
  while (x[i] != best) i++;
  return (i32)i;
}
