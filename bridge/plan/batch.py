"""The parameter block: all that changes from one batch to the next, in one run of 32-bit words.

====================  ===================================================================
word 0                number of tokens n
word 1                position of the first token (tokens lie at consecutive positions)
word 2                number of output rows m
word 3                offset in words of the token ids (u32[n])
word 4                offset in words of the output rows (u32[m]: indices of tokens)
words 5 … 13          offset in words of each rope table (f32[n, n_rot/2, 2]), in the plan's order
word 14               which copy of the recurrent states the batch reads (bridge.graph.states)
word 15               which one it writes
====================  ===================================================================

Offsets are data, so kernels and bind groups are the same for every batch size.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from bridge.graph.rope import rope_rows
from bridge.plan.plan import Plan

HEADER_WORDS = 16
WORD_TABLES = 5
WORD_STATES = 14
MAX_ROPE_TABLES = WORD_STATES - WORD_TABLES


class BatchLayout:
    """Packs parameter blocks for one plan; ``factors`` holds the values of the tensors its rope tables name."""

    def __init__(self, plan: Plan, factors: Mapping[str, Sequence[float]] | None = None) -> None:
        tables = list(plan.rope_tables.values())
        if len(tables) > MAX_ROPE_TABLES:
            raise ValueError(f"a plan has {len(tables)} rope tables; the parameter block holds {MAX_ROPE_TABLES}")
        self.table_index = {key: i for i, key in enumerate(plan.rope_tables)}
        self._widths = [table.n_rot for table in tables]
        self._angles = [
            table.frequencies(factors[table.factors_tensor] if factors and table.factors_tensor else None)
            for table in tables
        ]

    def nbytes(self, max_tokens: int, max_outputs: int) -> int:
        """The largest block for batches of at most that many tokens and output rows."""
        return 4 * (HEADER_WORDS + max_tokens + max_outputs + max_tokens * sum(self._widths))

    def pack(self, tokens: Sequence[int], start: int, outputs: Sequence[int],
             copies: tuple[int, int] = (0, 0)) -> bytes:
        """The block of tokens at positions start … whose logits are wanted at the token indices ``outputs``."""
        n = len(tokens)
        offset = HEADER_WORDS + n + len(outputs)
        header = array("I", [n, start, len(outputs), HEADER_WORDS, HEADER_WORDS + n])
        for width in self._widths:
            header.append(offset)
            offset += n * width
        header.extend([0] * (WORD_STATES - len(header)))
        header.extend(copies)
        header.extend(tokens)
        header.extend(outputs)
        tables = [rope_rows(angles, magnitude, start, n).tobytes() for angles, magnitude in self._angles]
        return b"".join([header.tobytes(), *tables])
