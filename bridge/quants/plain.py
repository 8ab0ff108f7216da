"""Types that store one number per element; integers and doubles are converted to float32."""

from __future__ import annotations

import numpy as np


def f32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f4")


def f16(blocks: np.ndarray, out: np.ndarray) -> None:
    out[:] = blocks.view("<f2")


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
