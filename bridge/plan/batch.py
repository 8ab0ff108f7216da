"""The parameter block: all that changes from one batch to the next, in one run of 32-bit words.

====================  ===================================================================
word 0                number of tokens n
word 1                position of the first token (tokens lie at consecutive positions)
word 2                number of output rows m
word 3                offset in words of the token ids (u32[n])
word 4                offset in words of the output rows (u32[m]: indices of tokens)
words 5 … 11          offset in words of each rope table (f32[n, n_rot/2, 2]), in the plan's order
word 12               offset in words of what is wanted of the logits (bridge.gpu.selection)
word 13               offset in words of the texts (u32[n, 2]: for each token the first row of its text in this batch
                      and the one after its last)
word 14               which copy of the recurrent states the batch reads (bridge.graph.states)
word 15               which one it writes
====================  ===================================================================

A token's position is word 1 plus the rows since the first of its text. Offsets are data, so
kernels and bind groups are the same for every batch size.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from bridge.graph.rope import rope_rows
from bridge.plan.plan import Plan

HEADER_WORDS = 16
WORD_TABLES = 5
WORD_SELECTION = 12
WORD_TEXTS = 13
WORD_STATES = 14
MAX_ROPE_TABLES = WORD_SELECTION - WORD_TABLES


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
        return 4 * (words_before_tables(max_tokens, max_outputs) + max_tokens * sum(self._widths))

    def pack(self, tokens: Sequence[int], start: int, outputs: Sequence[int], texts: Sequence[int] = (),
             copies: tuple[int, int] = (0, 0), selection: bytes = b"") -> bytes:
        """The block of tokens at positions start, start + 1, … whose results are wanted at the token indices ``outputs``.

        ``texts`` are the lengths of the texts the tokens make up, () for a single one; each begins at ``start``.
        ``selection`` comes last.
        """
        n, texts = len(tokens), texts or (len(tokens),)
        head = pack_head(tokens, start, outputs, texts, copies)
        offset = len(head)
        for i, width in enumerate(self._widths):
            head[WORD_TABLES + i] = offset
            offset += n * width
        head[WORD_SELECTION] = offset
        tables = [self._rows(angles, start, texts) for angles in self._angles]
        return b"".join([head.tobytes(), *tables, selection])

    @staticmethod
    def _rows(angles: tuple[Sequence[float], float], start: int, texts: Sequence[int]) -> bytes:
        if len(texts) == 1:
            return rope_rows(*angles, start, texts[0]).tobytes()
        longest = rope_rows(*angles, start, max(texts)).tobytes()
        width = len(longest) // max(texts)
        return b"".join(longest[:n * width] for n in texts)


def words_before_tables(max_tokens: int, max_outputs: int) -> int:
    """The length of the largest ``pack_head``."""
    return HEADER_WORDS + 3 * max_tokens + max_outputs


def pack_head(tokens: Sequence[int], start: int, outputs: Sequence[int], texts: Sequence[int],
              copies: tuple[int, int]) -> array:
    """The parameter block without rope tables, as words; ``texts`` are the lengths of its texts."""
    n, m = len(tokens), len(outputs)
    head = array("I", bytes(4 * HEADER_WORDS))
    head[:5] = array("I", [n, start, m, HEADER_WORDS, HEADER_WORDS + n])
    head[WORD_TEXTS:] = array("I", [HEADER_WORDS + n + m, *copies])
    head.extend(tokens)
    head.extend(outputs)
    first = 0
    for length in texts:
        head.extend([first, first + length] * length)
        first += length
    return head
