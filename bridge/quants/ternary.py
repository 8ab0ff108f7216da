"""Ternary super-blocks of 256 elements: TQ1_0 (five trits a byte) and TQ2_0 (two bits each), values -1, 0, 1 × scale."""

from __future__ import annotations

import numpy as np

from .simple import half, scale_into, unpack


def _trit_table(k: int) -> bytes:
    """Trit k of each byte, minus one, as int8.

    A byte is its base-3 number times 256/243, rounded up. Times 3^k modulo 256 brings trit k to the top, where it is 0,
    1 or 2 for the first, second or last third of the range (dequantize_row_tq1_0).
    """
    return bytes(((byte * 3**k % 256 * 3 >> 8) - 1) % 256 for byte in range(256))


_TRIT_TABLES = [_trit_table(k) for k in range(5)]


def _put_trits(packed: np.ndarray, n_trits: int, out: np.ndarray) -> None:
    """Write the trits of bytes [n, m] to int8 [n, n_trits × m]: first trit 0 of every byte, then trit 1, …."""
    stored = np.ascontiguousarray(packed).tobytes()
    trits = out.reshape(len(packed), n_trits, -1)
    for k in range(n_trits):
        trits[:, k] = np.frombuffer(stored.translate(_TRIT_TABLES[k]), np.int8).reshape(packed.shape)


def tq1_0(blocks: np.ndarray, out: np.ndarray) -> None:
    trits = np.empty(out.shape, np.int8)
    _put_trits(blocks[:, 0:32], 5, trits[:, :160])
    _put_trits(blocks[:, 32:48], 5, trits[:, 160:240])
    _put_trits(blocks[:, 48:52], 4, trits[:, 240:])
    scale_into(trits, half(blocks, 52), out)


def tq2_0(blocks: np.ndarray, out: np.ndarray) -> None:
    q = unpack(blocks[:, :64].reshape(-1, 2, 32), 2).view(np.int8)
    scale_into(np.subtract(q, np.int8(1), out=q), half(blocks, 64), out)
