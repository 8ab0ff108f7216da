/* Products of one group of four rows of a weight with rows of activations; lanes of results are rows of the weight. */
#ifndef BRIDGE_MATMUL_H
#define BRIDGE_MATMUL_H

#include "dots.h"

/* A function for each quantised layout, so that an engine compiles only those that run: lists for making and for
 * finding them. The second list has the layouts of `has_wide_codes`. */
#define CODES(F) F(L_Q4_0) F(L_Q4_1) F(L_Q5_0) F(L_Q5_1) F(L_Q2_K) F(L_Q3_K) F(L_Q4_K) F(L_Q5_K) F(L_Q6_K) F(L_MXFP4)
#define WIDE_CODES(F) F(L_Q8_0) F(L_IQ4_NL) F(L_IQ4_XS) F(L_WIDE8)

/* One row of packed activations (a tile of one). */
v128 multiply_group(enum Layout layout, const u8 *group, const u8 *x, u32 n_in);
/* The same for `streams` groups `size` bytes apart. Far apart, so that memory is read in several streams: a processor
 * reads ahead in each, but no further than the end of a page. K formats have room in registers for two only. */
enum { MAX_STREAMS = 4 };
INLINE u32 streams(enum Layout layout) { return geometry(layout).blocks == 8 ? 2 : MAX_STREAMS; }
void multiply_streams(enum Layout layout, const u8 *group, uintptr_t size, const u8 *x, u32 n_in,
                      v128 sums[MAX_STREAMS]);

/* A group unpacked for several tiles: for every block its codes, then its scales and offsets. */
void unpack_panel(enum Layout layout, const u8 *group, u32 n_in, u8 *panel);
/* A panel times a tile of four rows. */
void multiply_panel(enum Layout layout, const u8 *panel, const u8 *x, u32 n_in, v128 sums[TILE]);

/* A group decoded to float32 [n_in][4 rows]: at `panel`, or where the group is if it is stored so. */
const f32 *float_panel(enum Layout layout, const u8 *group, u32 n_in, u8 *panel);
v128 multiply_floats(const f32 *panel, const f32 *x, u32 n_in);
/* Like multiply_streams, for weights that are stored as floats. */
void multiply_float_streams(enum Layout layout, const u8 *group, uintptr_t size, const f32 *x, u32 n_in,
                            v128 sums[MAX_STREAMS]);
/* Four rows of x, `stride` floats apart. */
void multiply_floats_tile(const f32 *panel, const f32 *x, u32 stride, u32 n_in, v128 sums[TILE]);

#endif
