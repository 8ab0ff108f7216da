"""Types that store one number per element; integers and doubles are converted to float32."""

from __future__ import annotations

from functools import cache

import numpy as np


def f32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f4")


@cache
def _halves() -> np.ndarray:
    """The float32 value of every 16-bit pattern; looking values up is half again as fast as numpy's conversion."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


def f16(blocks: np.ndarray, out: np.ndarray) -> None:
    _halves().take(blocks.view("<u2"), out=out, mode="clip")


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
