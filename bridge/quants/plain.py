"""Types that store one number per element; integers and doubles are converted to float32."""

from __future__ import annotations

import sys

import numpy as np

_NUMPY_LACKS_SIMD = sys.platform == "emscripten"  # where five passes cost more than one slow one


def f32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f4")


def f16(blocks: np.ndarray, out: np.ndarray) -> None:
    halves, values = blocks.reshape(-1).view("<i2"), out.reshape(-1)
    if _NUMPY_LACKS_SIMD:
        values[:] = halves.view("<f2")
        return
    # Exponent and fraction go to their places in float32 and are rescaled; numpy's own conversion takes twice the time.
    bits = values.view(np.int32)
    np.left_shift(halves, 13, out=bits, dtype=np.int32)
    bits &= np.int32(-0x70000001)  # of the sign's copies only the first stays
    values *= np.float32(2.0**112)  # the exponents' biases differ by 112; exact, also for subnormal numbers
    if (halves.view("<u2") & 0x7FFF).max(initial=0) >= 0x7C00:
        values[:] = halves.view("<f2")  # infinities and NaNs are no numbers to rescale


def bf16(blocks: np.ndarray, out: np.ndarray) -> None:
    np.left_shift(blocks.view("<u2"), 16, out=out.view(np.uint32), dtype=np.uint32)


def f64(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f8")


def i8(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view(np.int8)


def i16(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<i2")


def i32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<i4")


def i64(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<i8")
