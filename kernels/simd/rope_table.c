/* Cosines and sines of a batch's positions times the angles of a rope table (bridge/graph/rope.py), in double precision
 * as the host would compute them, only faster. */
#include "team.h"

typedef struct Args {
  u32 angles; /* float64 [half], radians per position */
  u32 half, out;
  f32 magnitude;
} Args;

/* pi/2 in three parts; the first two have 33 bits, so that their products with integers up to 2^20 are exact. */
static const double PI_2_HIGH = 1.57079632673412561417, PI_2_MIDDLE = 6.07710050630396597660e-11,
                    PI_2_LOW = 2.02226624879595063154e-21;

/* 1 - x²/(n (n + 1)) (1 - x²/((n + 2) (n + 3)) (1 - ...)): the series of the cosine from n = 1, of the sine over x from
 * 2, exact to 1e-16 for |x| <= pi/4. */
static double series(double square, int n) {
  double sum = 1;
  for (int i = n + 14; i >= n; i -= 2) sum = 1 - square / (i * (i + 1)) * sum;
  return sum;
}

/* Positions up to 2^20 or so times angles of at most 1. */
static void cosine_and_sine(double x, f32 magnitude, f32 *out) {
  double quarters = __builtin_nearbyint(x * 0.63661977236758134308);
  double r = ((x - quarters * PI_2_HIGH) - quarters * PI_2_MIDDLE) - quarters * PI_2_LOW;
  double c = series(r * r, 1), s = r * series(r * r, 2);
  int quadrant = (int)quarters & 3;
  double cosine = quadrant == 0 ? c : quadrant == 1 ? -s : quadrant == 2 ? -c : s;
  double sine = quadrant == 0 ? s : quadrant == 1 ? c : quadrant == 2 ? -s : -c;
  out[0] = (f32)(cosine * magnitude);
  out[1] = (f32)(sine * magnitude);
}

static void rope_table_rows(const Context *c, u32 n_rows, const void *args, u32 item) {
  const Args *a = args;
  const double *angles = at(a->angles);
  FOR_ROWS(r, item, n_rows) {
    f32 *out = (f32 *)at(a->out) + (uintptr_t)r * 2 * a->half;
    u32 position = position_of(c, r);
    for (u32 i = 0; i < a->half; i++) cosine_and_sine(position * angles[i], a->magnitude, out + 2 * i);
  }
}

const Kernel rope_table = {row_items, rope_table_rows};
