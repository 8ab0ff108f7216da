"""Ternary super-blocks of 256 elements: TQ1_0 (five trits a byte) and TQ2_0 (two bits each), values -1, 0, 1 × scale."""

from __future__ import annotations

import numpy as np

from .simple import half, scale_into, unpack


def _put_trits(packed: np.ndarray, n_trits: int, out: np.ndarray) -> None:
    """Write the trits of bytes [n, m], minus one, to int8 [n, n_trits × m]: first trit 0 of every byte, then trit 1, ….

    A byte is its base-3 number times 256/243, rounded up. Times 3^k modulo 256 brings trit k to the top, where it is 0,
    1 or 2 for the first, second or last third of the range (dequantize_row_tq1_0).
    """
    shifted = np.ascontiguousarray(packed)
    for k in range(n_trits):
        trit = np.greater(shifted, 85).view(np.int8)
        trit += np.greater(shifted, 170).view(np.int8)
        np.subtract(trit, np.int8(1), out=out[:, k * packed.shape[1] : (k + 1) * packed.shape[1]])
        shifted = shifted * np.uint8(3)


def tq1_0(blocks: np.ndarray, out: np.ndarray) -> None:
    trits = np.empty(out.shape, np.int8)
    _put_trits(blocks[:, 0:32], 5, trits[:, :160])
    _put_trits(blocks[:, 32:48], 5, trits[:, 160:240])
    _put_trits(blocks[:, 48:52], 4, trits[:, 240:])
    scale_into(trits, half(blocks, 52), out)


def tq2_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = unpack(blocks[:, :64].reshape(-1, 2, 32), 2).view(np.int8)
    scale_into(np.subtract(q, np.int8(1), out=q), half(blocks, 64), out)
