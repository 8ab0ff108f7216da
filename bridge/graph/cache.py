"""The kv cache: how many rows each layer keeps, how a row is stored, and which rows a saved context has.

A layer that sees the last ``window`` positions only keeps a ring: position p is in row p modulo the number of rows. The
ring has room for the window, a batch, and ``REWIND`` positions more, so that a context can be continued from a place up
to that far back (the end of the last prompt, say) without starting again.

Types are "f32", "f16", and blocks of 32 columns with one scale: "q8_0" (signed bytes) and "q4_0" (nibbles, less 8),
quantised as ggml does (``quantize_row_q8_0_ref``, ``quantize_row_q4_0_ref``), the scale rounded to a half. Here a block
begins with its scale as a float32, which keeps everything aligned to words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.errors import InputError
from bridge.graph.graph import KvLayer

REWIND = 1024
"""Positions behind the last one that windowed layers can be continued from, however small the batches."""
ROW_MULTIPLE = 32
"""Rings have a multiple of this many rows: kernels take that many keys at once."""
BLOCK = 32
BLOCK_NBYTES = {"f32": 4 * BLOCK, "f16": 2 * BLOCK, "q8_0": 4 + BLOCK, "q4_0": 4 + BLOCK // 2}
"""Bytes of 32 columns."""
CACHE_TYPES = tuple(BLOCK_NBYTES)
QUANTISED = ("q8_0", "q4_0")


def cache_types(name: str) -> tuple[str, str]:
    """The types of K and V that ``name`` asks for: one for both ("f16") or two ("q8_0/f16"). Raises InputError."""
    types = name.split("/") if isinstance(name, str) else []
    if len(types) not in (1, 2) or not set(types) <= set(CACHE_TYPES):
        raise InputError(f"the cache type is {name!r}; it must be one of {', '.join(CACHE_TYPES)}, or two of them for K and V "
                         "with a slash between them")
    return types[0], types[-1]


@dataclass(frozen=True)
class CachePart:
    """K or V of one layer (``kind`` "k" or "v"): ``rows`` of ``width`` columns; ``window`` 0: every position has a row."""

    kind: str
    layer: int
    width: int
    type: str
    rows: int
    window: int

    @property
    def row_nbytes(self) -> int:
        return self.width * BLOCK_NBYTES[self.type] // BLOCK

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_nbytes

    def saved(self, n_tokens: int) -> list[tuple[int, int]]:
        """First row and number of rows of each run that holds the positions a context of ``n_tokens`` saves, in order."""
        count = min(n_tokens, self.window + REWIND) if self.window else n_tokens
        first = (n_tokens - count) % self.rows
        until_end = min(count, self.rows - first)
        return [run for run in ((first, until_end), (0, count - until_end)) if run[1]]


class CacheLayout:
    """The parts of all layers, in the order in which a context is saved: of each layer K, then V.

    ``k_type`` and ``v_type`` are cache types; ``margin`` is how many positions behind the furthest one written still have
    all the rows they need, None for any number.
    """

    def __init__(self, layers: Sequence[KvLayer], n_ctx: int, n_ubatch: int, k_type: str, v_type: str) -> None:
        self.types = self.k_type, self.v_type = k_type, v_type
        self.parts = tuple(
            CachePart(kind, i, width, type, _rows(layer.window, n_ctx, n_ubatch), layer.window)
            for i, layer in enumerate(layers)
            for kind, width, type in (("k", layer.k_width, k_type), ("v", layer.v_width, v_type)))
        rings = any(part.rows < n_ctx for part in self.parts)
        self.margin = max(n_ubatch, REWIND) if rings else None

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts)

    def rows(self, layer: int) -> int:
        return self.parts[2 * layer].rows

    def saved_earliest(self, n_tokens: int) -> int:
        """The first position that a saved context of ``n_tokens`` can be continued from, but for 0."""
        cut = any(part.window and n_tokens > part.window + REWIND for part in self.parts)
        return n_tokens - REWIND + 1 if cut else 0

    def saved_nbytes(self, n_tokens: int) -> int:
        """Bytes of the rows that a context of ``n_tokens`` positions saves; independent of the context size and batches."""
        return sum(count * part.row_nbytes for part in self.parts for _, count in part.saved(n_tokens))


def _rows(window: int, n_ctx: int, n_ubatch: int) -> int:
    if not window:
        return n_ctx
    return min(n_ctx, -(-(window + max(n_ubatch, REWIND)) // ROW_MULTIPLE) * ROW_MULTIPLE)


class CacheReach:
    """Which positions a context can be continued from, given what its rings have overwritten."""

    def __init__(self, margin: int | None) -> None:
        """``margin`` is that of the layout."""
        self._margin = margin
        self._furthest = 0
        self._restored = 0

    @property
    def earliest(self) -> int:
        """The first position that a batch can start at, but for 0."""
        overwritten = 0 if self._margin is None else self._furthest - self._margin + 1
        return max(0, self._restored, overwritten)

    def resume_position(self, most: int) -> int:
        """The last position up to ``most`` that a batch can start at."""
        return most if most >= self.earliest else 0

    def begin(self, start: int) -> None:
        """A batch at position ``start`` is about to be written. Raises InputError where too much was overwritten."""
        if start == 0:
            self._furthest = self._restored = 0
        elif start < self.earliest:
            raise InputError(f"a batch cannot start at position {start}: the rows it needs are overwritten; it can start "
                             f"at 0 or from {self.earliest} on")

    def end(self, position: int) -> None:
        """Positions before ``position`` are written."""
        self._furthest = max(self._furthest, position)

    def restore(self, n_tokens: int, earliest: int) -> None:
        """A saved context of ``n_tokens`` positions was put back, which can be continued from ``earliest`` on."""
        self._furthest, self._restored = n_tokens, earliest
