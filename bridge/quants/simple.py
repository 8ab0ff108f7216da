"""Blocks with one scale, or a scale and a minimum, and quants of 1 to 8 bits: Q1_0 to Q8_1.

Layouts: the structs ``block_q*`` in ggml-common.h. Where a block has two halves the low nibbles are its first 16
elements and the high nibbles its last 16.
"""

from __future__ import annotations

import numpy as np


def half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 stored at byte ``at`` of every block, as float32 [n, 1]."""
    return blocks[:, at : at + 2].view("<f2").astype(np.float32)


def unpack(packed: np.ndarray, width: int) -> np.ndarray:
    """Split bytes into fields of ``width`` bits: uint8 [..., m] -> [..., 8 // width, m].

    First come the lowest fields of all m bytes, last the highest: the order in which ggml lays elements out.
    """
    packed = np.ascontiguousarray(packed)  # shifting a contiguous copy is several times faster than strided views
    fields = np.empty((*packed.shape[:-1], 8 // width, packed.shape[-1]), np.uint8)
    mask = (1 << width) - 1
    field = np.empty_like(packed)
    for i in range(8 // width):
        np.right_shift(packed, i * width, out=field)
        fields[..., i, :] = np.bitwise_and(field, mask, out=field)
    return fields


def scale_into(q: np.ndarray, scale: np.ndarray, out: np.ndarray) -> None:
    """out = q × scale; the elements of a block are split evenly over its scales, float32 [n, s]."""
    values = out.reshape(*scale.shape, -1)
    np.copyto(values, q.reshape(values.shape))  # converting first is faster than a multiplication of mixed types
    np.multiply(values, scale[:, :, None], out=values)


def shift_into(minimum: np.ndarray, out: np.ndarray) -> None:
    """out −= minimum, per sub-block like ``scale_into``."""
    values = out.reshape(*minimum.shape, -1)
    np.subtract(values, minimum[:, :, None], out=values)


def q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = unpack(blocks[:, 2:], 4).view(np.int8)
    scale_into(np.subtract(q, np.int8(8), out=q), half(blocks, 0), out)


def q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(unpack(blocks[:, 4:], 4), half(blocks, 0), out)
    np.add(out, half(blocks, 2), out=out)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """uint8 [n, 4] -> [n, 32]: bit i of the little-endian word as 16 or 0, the fifth bit of element i."""
    bits = np.unpackbits(packed, axis=1, bitorder="little")
    return np.left_shift(bits, 4, out=bits)


def q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = unpack(blocks[:, 6:], 4).reshape(out.shape)
    q |= _fifth_bits(blocks[:, 2:6])
    q = q.view(np.int8)
    scale_into(np.subtract(q, np.int8(16), out=q), half(blocks, 0), out)


def q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    q = unpack(blocks[:, 8:], 4).reshape(out.shape)
    q |= _fifth_bits(blocks[:, 4:8])
    scale_into(q, half(blocks, 0), out)
    np.add(out, half(blocks, 2), out=out)


def q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(blocks[:, 2:].view(np.int8), half(blocks, 0), out)


def q8_1(blocks: np.ndarray, out: np.ndarray) -> None:
    # Bytes 2 and 3 hold the scaled sum of the quants, which dot products use and decoding does not.
    scale_into(blocks[:, 4:].view(np.int8), half(blocks, 0), out)


def q1_0(blocks: np.ndarray, out: np.ndarray) -> None:
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little").view(np.int8)
    np.left_shift(bits, 1, out=bits)
    scale_into(np.subtract(bits, np.int8(1), out=bits), half(blocks, 0), out)  # 0, 1 -> -1, 1


def q2_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = np.ascontiguousarray(unpack(blocks[:, 2:], 2).swapaxes(1, 2)).view(np.int8)  # the four fields of a byte are neighbours
    scale_into(np.subtract(q, np.int8(1), out=q), half(blocks, 0), out)  # 0, 1, 2, 3 -> -1, 0, 1, 2
