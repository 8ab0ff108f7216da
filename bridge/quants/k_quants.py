"""K-quants: super-blocks of 256 elements whose sub-blocks have small integer scales (and minimums).

Layouts: the structs ``block_q*_K`` in ggml-common.h and ``dequantize_row_q*_K`` in ggml-quants.c. Shapes below are
[n, …] for n super-blocks.
"""

from __future__ import annotations

import numpy as np

from .simple import half, nibbles

_PAIRS = np.array([0, 2, 4, 6], np.uint8)[:, None]
_BITS = np.arange(8, dtype=np.uint8)[:, None]


def bit_pairs(packed: np.ndarray) -> np.ndarray:
    """uint8 [n, g, m] -> [n, g, 4, m]: bits 0-1 of the m bytes of a group, then bits 2-3, 4-5 and 6-7."""
    pairs = np.right_shift(packed[:, :, None, :], _PAIRS)
    return np.bitwise_and(pairs, 3, out=pairs)


def _single_bits(packed: np.ndarray) -> np.ndarray:
    """uint8 [n, m] -> [n, 8, m]: bit 0 of every byte, then bit 1 and so on."""
    bits = np.right_shift(packed[:, None, :], _BITS)
    return np.bitwise_and(bits, 1, out=bits)


def _scales_and_mins(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eight 6-bit scales and eight 6-bit minimums in 12 bytes (Q4_K, Q5_K), each uint8 [n, 8].

    Bytes 0-3 hold scales 0-3 and bytes 4-7 minimums 0-3 in their low six bits; the two bits left over are the high
    bits of numbers 4-7, whose low nibbles are in bytes 8-11 (scale low, minimum high).
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], axis=1)
    mins = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], axis=1)
    return scales, mins


def q2_k(blocks: np.ndarray, out: np.ndarray) -> None:
    packed = blocks[:, :16]  # scale in the low nibble, minimum in the high one
    scale = half(blocks, 80) * (packed & 15)
    minimum = half(blocks, 82) * (packed >> 4)
    values = out.reshape(-1, 16, 16)
    np.multiply(bit_pairs(blocks[:, 16:80].reshape(-1, 2, 32)).reshape(values.shape), scale[:, :, None], out=values)
    np.subtract(values, minimum[:, :, None], out=values)


def q3_k(blocks: np.ndarray, out: np.ndarray) -> None:
    # Sixteen 6-bit scales: low nibbles in bytes 0-7, the high pairs of scales i, i+4, i+8, i+12 in byte 8 + i.
    low = nibbles(blocks[:, 96:104]).reshape(-1, 16)
    high = bit_pairs(blocks[:, None, 104:108]).reshape(-1, 16)
    scale = half(blocks, 108) * ((low | high << 4).view(np.int8) - np.int8(32))
    q = bit_pairs(blocks[:, 32:96].reshape(-1, 2, 32)).reshape(-1, 8, 32)
    q |= _single_bits(blocks[:, :32]) << 2
    q = q.view(np.int8).reshape(-1, 16, 16)
    np.subtract(q, np.int8(4), out=q)  # a clear mask bit means "minus four"
    np.multiply(q, scale[:, :, None], out=out.reshape(q.shape))


def q4_k(blocks: np.ndarray, out: np.ndarray) -> None:
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    q = nibbles(blocks[:, 16:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    _scale_and_shift(q, half(blocks, 0) * scales, half(blocks, 2) * mins, out)


def q5_k(blocks: np.ndarray, out: np.ndarray) -> None:
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    q = nibbles(blocks[:, 48:].reshape(-1, 4, 32)).reshape(-1, 8, 32)
    q |= _single_bits(blocks[:, 16:48]) << 4
    _scale_and_shift(q, half(blocks, 0) * scales, half(blocks, 2) * mins, out)


def _scale_and_shift(q: np.ndarray, scale: np.ndarray, minimum: np.ndarray, out: np.ndarray) -> None:
    """out = scale × q − minimum, rounding after each step; q is [n, 8, 32]."""
    values = out.reshape(q.shape)
    np.multiply(q, scale[:, :, None], out=values)
    np.subtract(values, minimum[:, :, None], out=values)


def q6_k(blocks: np.ndarray, out: np.ndarray) -> None:
    scale = half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    q = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, 2, 4, 32)
    q |= bit_pairs(blocks[:, 128:192].reshape(-1, 2, 32)) << 4
    q = q.view(np.int8).reshape(-1, 16, 16)
    np.subtract(q, np.int8(32), out=q)
    np.multiply(q, scale[:, :, None], out=out.reshape(q.shape))


def q8_k(blocks: np.ndarray, out: np.ndarray) -> None:
    # A float32 scale; the 16 sums behind the quants serve dot products only.
    np.multiply(blocks[:, 4:260].view(np.int8), blocks[:, :4].view("<f4"), out=out)
