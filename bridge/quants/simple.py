"""Blocks with one scale, or a scale and a minimum, and quants of 1 to 8 bits: Q1_0 to Q8_1.

Layouts: the structs ``block_q*`` in ggml-common.h. Where a block has two halves the low nibbles are its first 16
elements and the high nibbles its last 16.
"""

from __future__ import annotations

import numpy as np


def half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 stored at byte ``at`` of every block, as float32 [n, 1]."""
    return blocks[:, at : at + 2].view("<f2").astype(np.float32)


def nibbles(packed: np.ndarray) -> np.ndarray:
    """uint8 [..., m] -> [..., 2, m]: all low nibbles, then all high nibbles."""
    split = np.empty((*packed.shape[:-1], 2, packed.shape[-1]), np.uint8)
    np.bitwise_and(packed, 15, out=split[..., 0, :])
    np.right_shift(packed, 4, out=split[..., 1, :])
    return split


def q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = nibbles(blocks[:, 2:]).reshape(out.shape).view(np.int8)
    np.subtract(q, np.int8(8), out=q)
    np.multiply(q, half(blocks, 0), out=out)


def q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    q = nibbles(blocks[:, 4:]).reshape(out.shape)
    np.multiply(q, half(blocks, 0), out=out)
    np.add(out, half(blocks, 2), out=out)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """uint8 [n, 4] -> [n, 32]: bit i of the little-endian word as 16 or 0, the fifth bit of element i."""
    bits = np.unpackbits(packed, axis=1, bitorder="little")
    return np.left_shift(bits, 4, out=bits)


def q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = nibbles(blocks[:, 6:]).reshape(out.shape)
    q |= _fifth_bits(blocks[:, 2:6])
    q = q.view(np.int8)
    np.subtract(q, np.int8(16), out=q)
    np.multiply(q, half(blocks, 0), out=out)


def q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    q = nibbles(blocks[:, 8:]).reshape(out.shape)
    q |= _fifth_bits(blocks[:, 4:8])
    np.multiply(q, half(blocks, 0), out=out)
    np.add(out, half(blocks, 2), out=out)


def q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    np.multiply(blocks[:, 2:].view(np.int8), half(blocks, 0), out=out)


def q8_1(blocks: np.ndarray, out: np.ndarray) -> None:
    # Bytes 2 and 3 hold the scaled sum of the quants, which dot products use and decoding does not.
    np.multiply(blocks[:, 4:].view(np.int8), half(blocks, 0), out=out)


def q1_0(blocks: np.ndarray, out: np.ndarray) -> None:
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").view(np.int8)
    np.left_shift(bits, 1, out=bits)
    np.subtract(bits, np.int8(1), out=bits)  # 0, 1 -> -1, 1
    np.multiply(bits, half(blocks, 0), out=out)


_SHIFTS_OF_PAIRS = np.array([0, 2, 4, 6], np.uint8)


def q2_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = np.right_shift(blocks[:, 2:, None], _SHIFTS_OF_PAIRS).reshape(out.shape)
    np.bitwise_and(q, 3, out=q)
    q = q.view(np.int8)
    np.subtract(q, np.int8(1), out=q)  # 0, 1, 2, 3 -> -1, 0, 1, 2
    np.multiply(q, half(blocks, 0), out=out)
