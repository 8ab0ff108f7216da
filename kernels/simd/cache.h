/* How a row of the kv cache is stored: bridge/graph/cache.py has the same types in this order. Quantised types are blocks of
 * 32 columns, a float32 scale and then codes: signed bytes, or nibbles less 8 (columns 0-15 low, 16-31 high). */
#ifndef BRIDGE_CACHE_H
#define BRIDGE_CACHE_H

#include "base.h"

enum CacheType { CACHE_F32, CACHE_F16, CACHE_Q8_0, CACHE_Q4_0 };
enum { CACHE_BLOCK = 32, Q8_0_BYTES = 4 + 32, Q4_0_BYTES = 4 + 16 };

/* Bytes of `n` neighbouring columns, whole blocks of them where the type has blocks. */
INLINE uintptr_t cache_nbytes(u32 type, u32 n) {
  if (type == CACHE_F32) return 4 * (uintptr_t)n;
  if (type == CACHE_F16) return 2 * (uintptr_t)n;
  return (uintptr_t)n / CACHE_BLOCK * (type == CACHE_Q8_0 ? Q8_0_BYTES : Q4_0_BYTES);
}

/* Columns of one row as float32; `to` is filled up with zeros to whole vectors. */
void widen_cache_row(const u8 *from, f32 *to, u32 n, u32 type);

#endif
