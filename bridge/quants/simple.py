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
    # Whole words of a contiguous copy are shifted and masked: without SIMD, as in Pyodide, that is twice as fast as bytes.
    m = packed.shape[-1]
    word = np.uint64 if m % 8 == 0 else np.uint32 if m % 4 == 0 else np.uint8
    rest = np.ascontiguousarray(packed).view(word)
    mask = word(int.from_bytes(bytes([(1 << width) - 1]) * word().itemsize))
    fields = np.empty((*rest.shape[:-1], 8 // width, rest.shape[-1]), word)
    for i in range(8 // width):
        fields[..., i, :] = rest & mask
        rest = rest >> word(width)
    return fields.view(np.uint8)


def add_high_bits(q: np.ndarray, high: np.ndarray, shift: int) -> np.ndarray:
    """q |= high << shift, for two contiguous uint8 arrays of as many elements; gives q."""
    words = q.reshape(-1).view(np.uint64)
    words |= high.reshape(-1).view(np.uint64) << np.uint64(shift)
    return q


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


def q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = _with_fifth_bits(blocks[:, 6:], blocks[:, 2:6]).view(np.int8)
    scale_into(np.subtract(q, np.int8(16), out=q), half(blocks, 0), out)


def q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(_with_fifth_bits(blocks[:, 8:], blocks[:, 4:8]), half(blocks, 0), out)
    np.add(out, half(blocks, 2), out=out)


def _with_fifth_bits(packed: np.ndarray, fifth: np.ndarray) -> np.ndarray:
    """Nibbles uint8 [n, 16] and a little-endian word [n, 4], whose bit i belongs to element i -> [n, 2, 16]."""
    return add_high_bits(unpack(packed, 4), np.unpackbits(fifth, axis=1, bitorder="little"), 4)


def q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(blocks[:, 2:].view(np.int8), half(blocks, 0), out)


def q8_1(blocks: np.ndarray, out: np.ndarray) -> None:
    # Bytes 2 and 3 hold the scaled sum of the quants, which dot products use and decoding does not.
    scale_into(blocks[:, 4:].view(np.int8), half(blocks, 0), out)


def _neighbours(width: int, factor: int, offset: int) -> np.ndarray:
    """For each byte its fields of ``width`` bits, lowest first, as factor × field + offset: int8 in one word."""
    fields = np.arange(256)[:, None] >> np.arange(0, 8, width) & (1 << width) - 1
    return (fields * factor + offset).astype(np.int8).view(f"<u{8 // width}").ravel()


_ONE_BIT = _neighbours(1, 2, -1)  # 0, 1 -> -1, 1
_TWO_BITS = _neighbours(2, 1, -1)  # 0, 1, 2, 3 -> -1, 0, 1, 2


def q1_0(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(_ONE_BIT[blocks[:, 2:]].view(np.int8), half(blocks, 0), out)


def q2_0(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(_TWO_BITS[blocks[:, 2:]].view(np.int8), half(blocks, 0), out)
