/* Activations rounded to bytes for integer dot products: every 32 columns of a row share a scale, as in ggml's Q8_0
 * (but with the scale in float32). Written by `quantise`, read by the matmuls.
 *
 * Rows are packed in tiles of 1 or 4; a tile is a run of blocks, one for every 32 columns:
 *
 *   codes   [rows][32]  bytes, or 16 bit where dot products are (`wide`)
 *   scale   [rows]      float32
 *   sums    [rows]      scale times the sum of the codes
 *   sums    [rows]      the same of the first 16 codes
 *   sums    [rows]      and of the last 16
 */
#ifndef BRIDGE_ACTIVATIONS_H
#define BRIDGE_ACTIVATIONS_H

#include "base.h"

enum { TILE = 4 };

INLINE u32 act_codes(u32 rows, int wide) { return rows * (wide ? 64 : 32); }
INLINE u32 act_block(u32 rows, int wide) { return act_codes(rows, wide) + 16 * rows; }
INLINE u32 act_tile(u32 rows, int wide, u32 n_in) { return n_in / 32 * act_block(rows, wide); }

#endif
