"""One part of the kv cache in numpy, in the bytes that all backends save."""

from __future__ import annotations

import numpy as np

from bridge.graph.cache import BLOCK, CachePart

F32 = np.float32


class ReferenceCache:
    """Rows of positions; ``bytes`` is [rows, row_nbytes]."""

    def __init__(self, part: CachePart) -> None:
        self.part = part
        self.bytes = np.zeros((part.rows, part.row_nbytes), np.uint8)

    def store(self, start: int, values: np.ndarray) -> None:
        """Keep ``values`` [n, width] as positions start, start + 1, …"""
        rows = np.arange(start, start + len(values)) % self.part.rows
        self.bytes[rows] = _ENCODERS[self.part.type](np.ascontiguousarray(values, F32)).view(np.uint8).reshape(len(rows), -1)

    def load(self, first: int, end: int) -> np.ndarray:
        """float32 [end - first, width]: the positions from ``first`` up to ``end``, which must be held."""
        rows = self.bytes[np.arange(first, end) % self.part.rows]
        return _DECODERS[self.part.type](rows).reshape(end - first, self.part.width)


def _encode_q8_0(values: np.ndarray) -> np.ndarray:
    blocks = values.reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=-1, keepdims=True) / F32(127)
    scaled = blocks * _reciprocal(scale)
    codes = np.trunc(scaled + np.copysign(F32(0.5), scaled)).astype(np.int8)
    return np.concatenate([_as_half(scale), codes.view(np.uint8)], axis=1)


def _decode_q8_0(rows: np.ndarray) -> np.ndarray:
    scale, codes = _split(rows, BLOCK)
    return scale * codes.view(np.int8).astype(F32)


def _encode_q4_0(values: np.ndarray) -> np.ndarray:
    blocks = values.reshape(-1, BLOCK)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=-1)[:, None], axis=-1)
    scale = largest / F32(-8)
    codes = np.minimum(np.trunc(blocks * _reciprocal(scale) + F32(8.5)), 15).astype(np.uint8)
    return np.concatenate([_as_half(scale), codes[:, :BLOCK // 2] | codes[:, BLOCK // 2:] << 4], axis=1)


def _decode_q4_0(rows: np.ndarray) -> np.ndarray:
    scale, packed = _split(rows, BLOCK // 2)
    return scale * (np.concatenate([packed & 15, packed >> 4], axis=1).astype(F32) - 8)


def _reciprocal(scale: np.ndarray) -> np.ndarray:
    return np.divide(F32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _as_half(scale: np.ndarray) -> np.ndarray:
    """The bytes of the scales as float32, after rounding to halves."""
    return scale.astype(np.float16).astype(F32).view(np.uint8)


def _split(rows: np.ndarray, n_code_bytes: int) -> tuple[np.ndarray, np.ndarray]:
    blocks = np.ascontiguousarray(rows).reshape(-1, 4 + n_code_bytes)
    return np.ascontiguousarray(blocks[:, :4]).view(F32), np.ascontiguousarray(blocks[:, 4:])


_ENCODERS = {"f32": lambda x: x, "f16": lambda x: x.astype(np.float16), "q8_0": _encode_q8_0, "q4_0": _encode_q4_0}
_DECODERS = {"f32": lambda rows: np.ascontiguousarray(rows).view(F32),
             "f16": lambda rows: np.ascontiguousarray(rows).view(np.float16).astype(F32),
             "q8_0": _decode_q8_0, "q4_0": _decode_q4_0}
