/* Rows of activations in slots. Rows of a slot are `stride` floats apart, a multiple of four; vectors may run into the
 * columns that fill a row up. */
#ifndef BRIDGE_ROWS_H
#define BRIDGE_ROWS_H

#include "team.h"

INLINE const f32 *row_of(u32 unit, u32 stride, u32 row) { return (const f32 *)at(unit) + (uintptr_t)row * stride; }
INLINE f32 *out_row(u32 unit, u32 stride, u32 row) { return (f32 *)at(unit) + (uintptr_t)row * stride; }

#endif
