"""IQ1, IQ2 and IQ3: super-blocks of 256 elements whose groups of 4 or 8 are points of a lattice grid, with signs.

Layouts: ``dequantize_row_iq*`` in ggml-quants.c. A grid point is looked up as one word of 4 or 8 signed bytes; signs are
applied to those bytes, which is exact, and only the product with the scale rounds, as in ggml.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .grids import grid, sign_bytes
from .simple import half, scale_into


@cache
def _points(name: str, width: int) -> np.ndarray:
    """A grid as words of ``width`` int8 components."""
    return np.array(grid(name), np.int8).view(f"<u{width}")


@cache
def _shifted_points() -> np.ndarray:
    """Eight times the IQ1 grid plus delta, then minus delta (1/8), so that the shift is one more index bit: [2 × 2048]."""
    points = 8 * np.array(grid("IQ1_S"), np.int8)
    return np.concatenate([points + 1, points - 1]).astype(np.int8).view("<u8")


@cache
def _sign_masks(even_only: bool) -> np.ndarray:
    """For each sign byte, or each 7-bit code that leaves out the parity bit, eight bytes of 0xFF where it says minus."""
    codes = np.frombuffer(sign_bytes() if even_only else bytes(range(256)), np.uint8)
    return (np.unpackbits(codes[:, None], axis=1, bitorder="little") * np.uint8(255)).view("<u8").ravel()


def _put(points: np.ndarray, masks: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
    """out = scale × points with signs; ``points`` are words of 4 or 8, ``masks`` words of 8, ``scale`` [n, s]."""
    masks = masks.reshape(-1)
    points = points.reshape(-1).view(np.uint64) ^ masks
    signed = points.view(np.int8)
    signed -= masks.view(np.int8)  # two's complement: inverted, then plus one
    scale_into(signed, scale, out)


def _nibbles(packed: np.ndarray) -> np.ndarray:
    """uint8 [n, m] -> float32 [n, 2m]: low nibble, high nibble of each byte in turn."""
    return np.stack([packed & 15, packed >> 4], axis=2).reshape(len(packed), -1).astype(np.float32)


_SIGN_SHIFTS = np.array([0, 7, 14, 21], np.uint32)


def _masks_and_scale(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """From uint32 [n, 8], four 7-bit sign codes and a 4-bit scale each: masks [n, 8, 4] and scales [n, 8]."""
    codes = (words[:, :, None] >> _SIGN_SHIFTS).astype(np.uint8) & 127
    return _sign_masks(True)[codes], (words >> 28).astype(np.float32)


def iq2_xxs(blocks: np.ndarray, out: np.ndarray) -> None:
    words = blocks[:, 2:].view("<u4").reshape(-1, 8, 2)
    masks, scale = _masks_and_scale(words[:, :, 1])
    points = _points("IQ2_XXS", 8)[blocks[:, 2:].reshape(-1, 8, 8)[:, :, :4]]
    _put(points, masks, half(blocks, 0) * (np.float32(0.5) + scale) * np.float32(0.25), out)


def iq2_xs(blocks: np.ndarray, out: np.ndarray) -> None:
    codes = blocks[:, 2:66].view("<u2")  # nine bits of grid index, seven of signs
    points, masks = _points("IQ2_XS", 8)[codes & 511], _sign_masks(True)[codes >> 9]
    _put(points, masks, half(blocks, 0) * (np.float32(0.5) + _nibbles(blocks[:, 66:])) * np.float32(0.25), out)


_PAIR_SHIFTS = np.array([0, 2, 4, 6], np.uint8)


def iq2_s(blocks: np.ndarray, out: np.ndarray) -> None:
    high = (blocks[:, 66:74, None] >> _PAIR_SHIFTS & 3).reshape(-1, 32)
    points = _points("IQ2_S", 8)[blocks[:, 2:34] | high.astype(np.uint16) << 8]
    masks = _sign_masks(False)[blocks[:, 34:66]]
    _put(points, masks, half(blocks, 0) * (np.float32(0.5) + _nibbles(blocks[:, 74:])) * np.float32(0.25), out)


def iq3_xxs(blocks: np.ndarray, out: np.ndarray) -> None:
    masks, scale = _masks_and_scale(blocks[:, 66:].view("<u4"))
    points = _points("IQ3_XXS", 4)[blocks[:, 2:66]]
    _put(points, masks, half(blocks, 0) * (np.float32(0.5) + scale) * np.float32(0.5), out)


def iq3_s(blocks: np.ndarray, out: np.ndarray) -> None:
    high = np.unpackbits(blocks[:, 66:74], axis=1, bitorder="little").astype(np.uint16)
    points = _points("IQ3_S", 4)[blocks[:, 2:66] | high << 8]
    masks = _sign_masks(False)[blocks[:, 74:106]]
    _put(points, masks, half(blocks, 0) * (1 + 2 * _nibbles(blocks[:, 106:])), out)


_TRIPLE_SHIFTS = np.array([0, 3, 6, 9], np.uint16)
_EIGHTH = np.float32(0.125)  # exact: the smallest scale, 2^-24, is far from underflow


def iq1_s(blocks: np.ndarray, out: np.ndarray) -> None:
    high = blocks[:, 34:].view("<u2")  # per 32 elements: four 3-bit index parts, a 3-bit scale, the sign of delta
    index = blocks[:, 2:34].reshape(-1, 8, 4) | (high[:, :, None] >> _TRIPLE_SHIFTS & 7) << 8 | (high >> 15 << 11)[:, :, None]
    scale = half(blocks, 0) * (2 * (high >> 12 & 7) + 1).astype(np.float32)
    scale_into(_shifted_points()[index].view(np.int8), scale * _EIGHTH, out)


_SCALE_NIBBLE_SHIFTS = np.array([12, 8, 4, 0], np.uint16)
_NIBBLE_SHIFTS = np.array([0, 4], np.uint8)


def iq1_m(blocks: np.ndarray, out: np.ndarray) -> None:
    words = blocks[:, 48:].view("<u2")  # four 3-bit scales each; their top nibbles together are the float16 scale
    bits = np.bitwise_or.reduce((words & np.uint16(0xF000)) >> _SCALE_NIBBLE_SHIFTS, axis=1)
    scales = (words[:, :, None] >> _TRIPLE_SHIFTS & 7).reshape(-1, 16)
    scale = bits.view(np.float16).astype(np.float32)[:, None] * (2 * scales + 1).astype(np.float32)
    high = (blocks[:, 32:48, None] >> _NIBBLE_SHIFTS & 15).reshape(-1, 32)  # index bits 8-10, then the sign of delta
    index = blocks[:, :32] | high.astype(np.uint16) << 8
    scale_into(_shifted_points()[index].view(np.int8), scale * _EIGHTH, out)
