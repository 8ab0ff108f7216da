"""Greedy pair merging, the loop that byte pair encoding and SentencePiece share."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from bridge.tokenizer.repetition import merge_repetitions

Priority = Callable[[str, str], "float | None"]

LONG = 4096
"""Symbols from which on repetitions are looked for; ordinary words have a dozen."""


def merge_symbols(symbols: list[str], priority: Priority) -> list[str]:
    """Merge neighbouring symbols, lowest priority first and leftmost among equals, until no pair can merge.

    `priority(left, right)` is None for a pair that does not merge. Takes O(n log n) however the merges fall.
    """
    if len(symbols) >= LONG:
        symbols = merge_repetitions(symbols, priority)
    n = len(symbols)
    if n < 2:
        return symbols
    symbols = symbols.copy()
    before, after = list(range(-1, n - 1)), list(range(1, n + 1))
    # An entry is stale once either side has grown or gone; both show in the length of the pair.
    heap: list[tuple[float, int, int, int]] = []
    for left in range(n - 1):
        rank = priority(symbols[left], symbols[left + 1])
        if rank is not None:
            heap.append((rank, left, left + 1, len(symbols[left]) + len(symbols[left + 1])))
    heapify(heap)

    while heap:
        _, left, right, size = heappop(heap)
        a, b = symbols[left], symbols[right]
        if not a or not b or len(a) + len(b) != size:
            continue
        merged = symbols[left] = a + b
        symbols[right] = ""
        following = after[left] = after[right]
        if following < n:
            before[following] = left
            rank = priority(merged, symbols[following])
            if rank is not None:
                heappush(heap, (rank, left, following, size + len(symbols[following])))
        preceding = before[left]
        if preceding >= 0:
            rank = priority(symbols[preceding], merged)
            if rank is not None:
                heappush(heap, (rank, preceding, left, len(symbols[preceding]) + size))
    return [symbol for symbol in symbols if symbol]
