"""Operations -> the records that the interpreter in kernels/simd/interpreter.c replays.

A record is 24 words: the operation's number, how it follows the one before, the word of the parameter block with its
number of rows, and its arguments: integers, float32 numbers, and regions as addresses in units of 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from bridge.graph.graph import OUTPUTS, TOKENS

KERNELS = (
    "rope_table", "embed", "rope", "kv_write", "select_outputs", "rms_norm", "layer_norm", "activate", "glu", "add",
    "mul", "mix_runs", "dot", "add_vector", "mul_vector", "columns", "concat", "scale", "softcap", "clamp",
    "scale_by_position", "route", "combine_experts", "quantise", "matmul", "matmul_experts", "attention",
    "token_shift", "conv", "selective_scan", "gated_delta", "wkv7", "text_attention", "text_mean", "softmax",
)
"""In the order of the interpreter's table."""

RECORD_WORDS = 24
EDITION = crc32(",".join((*KERNELS, str(RECORD_WORDS))).encode())
"""Of these tables; it is built into the kernels, so that those of another engine, out of a cache perhaps, are refused."""
RECORD_BYTES = 4 * RECORD_WORDS
MAX_OPS = 16384
WORD_OF_ROWS = {TOKENS: 0, OUTPUTS: 2}  # where the parameter block has the number of rows (bridge.plan.batch)


ITEM_KERNELS = ("matmul", "matmul_experts", "attention", "token_shift", "conv", "selective_scan", "gated_delta", "wkv7",
                "text_attention")
"""Those whose work is not cut by rows of their result."""
BESIDE, JOINED, BARRIER = range(3)
"""How an operation follows the one before: independent of it; going by the same rows, of which a thread does both; or
only when all before it is done."""


def encode(ops: Sequence[Any], regions: Mapping[Any, Any]) -> bytes:
    """The program of ``ops`` (bridge.simd.ops); ``regions`` maps each region to its area."""
    records = []
    for op, follows in zip(ops, sequence(ops)):
        words = struct.pack("<3I", KERNELS.index(op.kernel), follows, WORD_OF_ROWS[op.rows])
        words += b"".join(_argument(argument, regions) for argument in op.args)
        if len(words) > RECORD_BYTES:
            raise ValueError(f"operation {op.name} has {len(op.args)} arguments; a record holds {RECORD_WORDS - 3}")
        records.append(words.ljust(RECORD_BYTES, b"\0"))
    return b"".join(records)


def _argument(argument: Any, regions: Mapping[Any, Any]) -> bytes:
    if argument is None:
        return bytes(4)
    if isinstance(argument, tuple):
        return struct.pack("<I", regions[argument].unit)
    return struct.pack("<f" if isinstance(argument, float) else "<I", argument)


def sequence(ops: Sequence[Any]) -> list[int]:
    """How each operation follows the one before.

    One that touches what others since the last barrier may still be writing or reading needs a barrier, except that in
    operations that are joined a row is touched by one thread only.
    """
    found: list[int] = []
    before, unit = _Accesses(), _Accesses()  # since the last barrier: what is not joined to this one, and what is
    last = None
    for op in ops:
        joins = (last is not None and op.rows == last.rows
                 and op.kernel not in ITEM_KERNELS and last.kernel not in ITEM_KERNELS)
        if not joins:
            before.add_all(unit)
            unit = _Accesses()
        if before.clash(op, by_row=False) or unit.clash(op, by_row=True):
            before, unit = _Accesses(), _Accesses()
            found.append(BARRIER)
        else:
            found.append(JOINED if joins else BESIDE)
        unit.add(op)
        last = op
    return found


class _Accesses:
    """Regions read and written, each with the length of the rows it was touched by, 0 where these differ."""

    def __init__(self) -> None:
        self._read: dict[Any, int] = {}
        self._written: dict[Any, int] = {}

    def add(self, op: Any) -> None:
        for accesses, seen in ((op.reads, self._read), (op.writes, self._written)):
            for access in accesses:
                seen[access.region] = access.row if seen.get(access.region, access.row) == access.row else 0

    def add_all(self, other: _Accesses) -> None:
        self._read |= other._read
        self._written |= other._written

    def clash(self, op: Any, by_row: bool) -> bool:
        """Whether the operation reads what is written here, or writes what is touched here, other than ``by_row``."""
        pairs = [*((access, self._written) for access in (*op.reads, *op.writes)),
                 *((access, self._read) for access in op.writes)]
        return any(access.region in seen and not (by_row and access.row and seen[access.region] == access.row)
                   for access, seen in pairs)
