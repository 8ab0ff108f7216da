"""Operations -> the records that the interpreter in kernels/simd/interpreter.c replays.

A record is 24 words: the operation's number, whether all threads must have arrived before it, the word of the parameter
block with its number of rows, and its arguments: integers, float32 numbers, and regions as addresses in units of 16 bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.graph.graph import OUTPUTS, TOKENS

KERNELS = ("rope_table", "embed", "rms_norm", "rope", "kv_write", "glu", "add", "scale", "softcap", "select_outputs",
           "route", "combine_experts", "quantise", "matmul", "matmul_experts", "attention")
"""In the order of the interpreter's table."""

RECORD_WORDS = 24
RECORD_BYTES = 4 * RECORD_WORDS
MAX_OPS = 16384
WORD_OF_ROWS = {TOKENS: 0, OUTPUTS: 2}  # where the parameter block has the number of rows (bridge.plan.batch)


def encode(ops: Sequence[Any], regions: Mapping[Any, Any]) -> bytes:
    """The program of ``ops`` (bridge.simd.ops); ``regions`` maps each region to its area."""
    records = []
    for op, barrier in zip(ops, barriers(ops)):
        words = struct.pack("<3I", KERNELS.index(op.kernel), barrier, WORD_OF_ROWS[op.rows])
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


def barriers(ops: Sequence[Any]) -> list[bool]:
    """Before which operations all threads must meet: those that touch what others may still be writing or reading.

    Operations that go by rows of the same length give a row to the same thread, so they need none between each other.
    """
    needed = []
    written: dict[Any, int] = {}  # region -> the row of all its writers since the last barrier, 0 if they differ
    read: dict[Any, int] = {}
    for op in ops:
        meets = (any(_clash(access, written) for access in (*op.reads, *op.writes))
                 or any(_clash(access, read) for access in op.writes))
        needed.append(meets)
        if meets:
            written.clear()
            read.clear()
        for accesses, seen in ((op.reads, read), (op.writes, written)):
            for access in accesses:
                same = seen.get(access.region, access.row) == access.row
                seen[access.region] = access.row if same else 0
    return needed


def _clash(access: Any, earlier: Mapping[Any, int]) -> bool:
    return access.region in earlier and not (access.row and earlier[access.region] == access.row)
