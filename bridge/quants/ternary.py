"""Ternary super-blocks of 256 elements: TQ1_0 (five trits a byte) and TQ2_0 (two bits each), values -1, 0, 1 × scale."""

from __future__ import annotations

import numpy as np

from .k_quants import bit_pairs
from .simple import half


def _trits() -> np.ndarray:
    """[5, 256] int8: trit k, minus one, of each byte. A byte is 256/243 of the base-3 number, rounded up, so that
    multiplying by 3^k (mod 256) and then taking the top of 3× gives trit k (dequantize_row_tq1_0)."""
    shifted = np.arange(256)[None, :] * 3 ** np.arange(5)[:, None] % 256
    return (shifted * 3 // 256 - 1).astype(np.int8)


_TRITS = _trits()


def tq1_0(blocks: np.ndarray, out: np.ndarray) -> None:
    trits = np.empty(out.shape, np.int8)
    # Bytes 0-31 give trits 0-4 of 32 elements each, bytes 32-47 of 16 each; bytes 48-51 hold four trits of four each.
    for first, last, n_trits, at in ((0, 32, 5, 0), (32, 48, 5, 160), (48, 52, 4, 240)):
        width = last - first
        for k in range(n_trits):
            _TRITS[k].take(blocks[:, first:last], out=trits[:, at + k * width : at + (k + 1) * width], mode="clip")
    np.multiply(trits, half(blocks, 52), out=out)


def tq2_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = bit_pairs(blocks[:, :64].reshape(-1, 2, 32)).reshape(out.shape).view(np.int8)
    np.subtract(q, np.int8(1), out=q)
    np.multiply(q, half(blocks, 64), out=out)
