"""IQ1, IQ2 and IQ3: super-blocks of 256 elements whose groups of 4 or 8 are points of a lattice grid, with signs.

Layouts: ``dequantize_row_iq*`` in ggml-quants.c. The order of rounding is scale, then scale × grid value; applying a
sign never rounds.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .grids import grid, sign_bytes
from .simple import half

IQ1_DELTA = np.float32(0.125)


@cache
def _points(name: str, width: int) -> np.ndarray:
    """A grid as float32 [n_vectors, width]."""
    return np.array(grid(name), np.float32).reshape(-1, width)


@cache
def _shifted_points() -> np.ndarray:
    """The IQ1 grid with +delta, then with -delta: [2 × 2048, 8], so that the shift is one more index bit."""
    points = _points("IQ1_S", 8)
    return np.concatenate([points + IQ1_DELTA, points - IQ1_DELTA])


@cache
def _sign_rows(even_only: bool) -> np.ndarray:
    """float32 [n, 8] of 1 and -1: for each sign byte, or for each 7-bit code that leaves out the parity bit."""
    codes = np.frombuffer(sign_bytes() if even_only else bytes(range(256)), np.uint8)
    return 1 - 2 * np.unpackbits(codes[:, None], axis=1, bitorder="little").astype(np.float32)


def _combine(points: np.ndarray, signs: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
    """out = scale × points × signs; the elements of a super-block are split evenly over the scales [n, s]."""
    values = out.reshape(*scale.shape, -1)
    np.multiply(points.reshape(values.shape), scale[:, :, None], out=values)
    np.multiply(out, signs.reshape(out.shape), out=out)


def _nibble_scales(packed: np.ndarray) -> np.ndarray:
    """uint8 [n, m] -> [n, 2m]: low nibble, high nibble of each byte in turn."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1)


_SIGN_SHIFTS = np.array([0, 7, 14, 21], np.uint32)


def _signs_and_scale(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From uint32 [n, 8], four 7-bit sign codes and a 4-bit scale each: sign rows [n, 8, 4, 8] and scales [n, 8]."""
    codes = words[:, :, None] >> _SIGN_SHIFTS & 127
    return _sign_rows(True).take(codes, axis=0, mode="clip"), (words >> 28).astype(np.float32)


def iq2_xxs(blocks: np.ndarray, out: np.ndarray) -> None:
    words = blocks[:, 2:].view("<u4").reshape(-1, 8, 2)
    signs, scale = _signs_and_scale(words[:, :, 1])
    index = blocks[:, 2:].reshape(-1, 8, 8)[:, :, :4]
    points = _points("IQ2_XXS", 8).take(index, axis=0, mode="clip")
    _combine(points, signs, half(blocks, 0) * (np.float32(0.5) + scale) * np.float32(0.25), out)


def iq2_xs(blocks: np.ndarray, out: np.ndarray) -> None:
    codes = blocks[:, 2:66].view("<u2")
    points = _points("IQ2_XS", 8).take(codes & 511, axis=0, mode="clip")
    signs = _sign_rows(True).take(codes >> 9, axis=0, mode="clip")
    scale = _nibble_scales(blocks[:, 66:]).astype(np.float32)
    _combine(points, signs, half(blocks, 0) * (np.float32(0.5) + scale) * np.float32(0.25), out)


_PAIR_SHIFTS = np.array([0, 2, 4, 6], np.uint8)


def iq2_s(blocks: np.ndarray, out: np.ndarray) -> None:
    high = (blocks[:, 66:74, None] >> _PAIR_SHIFTS & 3).reshape(-1, 32)
    points = _points("IQ2_S", 8).take(blocks[:, 2:34] | high.astype(np.uint16) << 8, axis=0, mode="clip")
    signs = _sign_rows(False).take(blocks[:, 34:66], axis=0, mode="clip")
    scale = _nibble_scales(blocks[:, 74:]).astype(np.float32)
    _combine(points, signs, half(blocks, 0) * (np.float32(0.5) + scale) * np.float32(0.25), out)


def iq3_xxs(blocks: np.ndarray, out: np.ndarray) -> None:
    signs, scale = _signs_and_scale(blocks[:, 66:].view("<u4"))
    points = _points("IQ3_XXS", 4).take(blocks[:, 2:66], axis=0, mode="clip")
    _combine(points, signs, half(blocks, 0) * (np.float32(0.5) + scale) * np.float32(0.5), out)


def iq3_s(blocks: np.ndarray, out: np.ndarray) -> None:
    high = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.uint16)
    points = _points("IQ3_S", 4).take(blocks[:, 2:66] | high << 8, axis=0, mode="clip")
    signs = _sign_rows(False).take(blocks[:, 74:106], axis=0, mode="clip")
    scale = (1 + 2 * _nibble_scales(blocks[:, 106:])).astype(np.float32)
    _combine(points, signs, half(blocks, 0) * scale, out)


_TRIPLE_SHIFTS = np.array([0, 3, 6, 9], np.uint16)


def iq1_s(blocks: np.ndarray, out: np.ndarray) -> None:
    high = blocks[:, 34:].view("<u2")  # per 32 elements: four 3-bit index parts, a 3-bit scale, the sign of delta
    index = blocks[:, 2:34].reshape(-1, 8, 4) | (high[:, :, None] >> _TRIPLE_SHIFTS & 7) << 8 | (high >> 15 << 11)[:, :, None]
    scale = half(blocks, 0) * (2 * (high >> 12 & 7) + 1).astype(np.float32)
    _scaled_points(index, scale, out)


_SCALE_NIBBLE_SHIFTS = np.array([12, 8, 4, 0], np.uint16)
_NIBBLE_SHIFTS = np.array([0, 4], np.uint8)


def iq1_m(blocks: np.ndarray, out: np.ndarray) -> None:
    words = blocks[:, 48:].view("<u2")  # four 3-bit scales each; their top nibbles together are the float16 scale
    bits = np.bitwise_or.reduce((words & np.uint16(0xF000)) >> _SCALE_NIBBLE_SHIFTS, axis=1)
    scales = (words[:, :, None] >> _TRIPLE_SHIFTS & 7).reshape(-1, 16)
    scale = bits.view(np.float16).astype(np.float32)[:, None] * (2 * scales + 1).astype(np.float32)
    high = (blocks[:, 32:48, None] >> _NIBBLE_SHIFTS & 15).reshape(-1, 32)  # index bits 8-10, then the sign of delta
    _scaled_points(blocks[:, :32] | high.astype(np.uint16) << 8, scale, out)


def _scaled_points(index: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
    """out = scale × (grid value ± delta); bit 11 of an index says minus."""
    values = out.reshape(*scale.shape, -1)
    points = _shifted_points().take(index, axis=0, mode="clip")
    np.multiply(points.reshape(values.shape), scale[:, :, None], out=values)
