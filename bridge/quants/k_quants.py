"""K-quants: super-blocks of 256 elements whose sub-blocks have small integer scales (and minimums).

Layouts: the structs ``block_q*_K`` in ggml-common.h and ``dequantize_row_q*_K`` in ggml-quants.c. Shapes below are
[n, …] for n super-blocks.
"""

from __future__ import annotations

import numpy as np

from .simple import add_high_bits, half, scale_into, shift_into, unpack

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
    scale_into(unpack(blocks[:, 16:80].reshape(-1, 2, 32), 2), half(blocks, 80) * (packed & 15), out)
    shift_into(half(blocks, 82) * (packed >> 4), out)


def q3_k(blocks: np.ndarray, out: np.ndarray) -> None:
    # Sixteen 6-bit scales: low nibbles in bytes 0-7, the high pairs of scales i, i+4, i+8, i+12 in byte 8 + i.
    low = unpack(blocks[:, 96:104], 4).reshape(-1, 16)
    high = unpack(blocks[:, 104:108], 2).reshape(-1, 16)
    scale = half(blocks, 108) * ((low | high << 4).view(np.int8) - np.int8(32))
    q = add_high_bits(unpack(blocks[:, 32:96].reshape(-1, 2, 32), 2), unpack(blocks[:, :32], 1), 2).view(np.int8)
    scale_into(np.subtract(q, np.int8(4), out=q), scale, out)  # a clear mask bit means "minus four"


def q4_k(blocks: np.ndarray, out: np.ndarray) -> None:
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    scale_into(unpack(blocks[:, 16:].reshape(-1, 4, 32), 4), half(blocks, 0) * scales, out)
    shift_into(half(blocks, 2) * mins, out)


def q5_k(blocks: np.ndarray, out: np.ndarray) -> None:
    scales, mins = _scales_and_mins(blocks[:, 4:16])
    q = add_high_bits(unpack(blocks[:, 48:].reshape(-1, 4, 32), 4), unpack(blocks[:, 16:48], 1), 4)
    scale_into(q, half(blocks, 0) * scales, out)
    shift_into(half(blocks, 2) * mins, out)


def q6_k(blocks: np.ndarray, out: np.ndarray) -> None:
    low, high = unpack(blocks[:, :128].reshape(-1, 2, 64), 4), unpack(blocks[:, 128:192].reshape(-1, 2, 32), 2)
    q = add_high_bits(low, high, 4).view(np.int8)
    scale_into(np.subtract(q, np.int8(32), out=q), half(blocks, 208) * blocks[:, 192:208].view(np.int8), out)


def q8_k(blocks: np.ndarray, out: np.ndarray) -> None:
    # A float32 scale; the 16 sums behind the quants serve dot products only.
    scale_into(blocks[:, 4:260].view(np.int8), blocks[:, :4].view("<f4"), out)
