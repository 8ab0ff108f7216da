"""Merging pairs of very long repetitive words, all occurrences of a pair at once.

A megabyte of spaces is one word to SentencePiece; there the queue of `merge_symbols` has a million entries. But such a word
has few different pairs, and as long as a merge makes no pair that comes before itself, the queue would take all its
occurrences one after the other, from left to right: so they can be merged together.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

MAX_KINDS = 128
"""Different symbols up to which counting all their pairs is cheap."""


def merge_repetitions(symbols: list[str], priority: Callable[[str, str], float | None]) -> list[str]:
    """The symbols after the first merges of `merge_symbols`: as many as can be made in few passes over all of them."""
    import numpy as np

    names = list(dict.fromkeys(symbols))
    if len(names) > MAX_KINDS:
        return symbols
    kind = {name: i for i, name in enumerate(names)}
    ids = np.fromiter(map(kind.__getitem__, symbols), np.int32, len(symbols))
    ranks = _Ranks(names, priority)
    while len(names) <= MAX_KINDS and len(ids) > 1:
        best = ranks.best_of(ids)
        if best is None:
            break
        rank, left, right = best
        merged = kind.setdefault(names[left] + names[right], len(names))
        if merged == len(names):
            names.append(names[left] + names[right])
        at = _occurrences(ids, left, right)
        neighbours = {merged, *np.unique(ids[at[at > 0] - 1]).tolist(), *np.unique(ids[at[at + 2 < len(ids)] + 2]).tolist()}
        if any(min(ranks.of(n, merged), ranks.of(merged, n)) <= rank for n in neighbours):
            break
        ids[at] = merged
        ids = np.delete(ids, at + 1)
    return list(map(names.__getitem__, ids.tolist()))


def _occurrences(ids: Any, left: int, right: int) -> Any:
    """Where the pair is merged: everywhere, or in a run of one symbol at every second place from its beginning."""
    import numpy as np

    at = np.flatnonzero((ids[:-1] == left) & (ids[1:] == right))
    if left != right:
        return at
    order = np.arange(len(at))
    begins = np.diff(at, prepend=-2) > 1
    return at[(order - np.maximum.accumulate(np.where(begins, order, 0))) % 2 == 0]


class _Ranks:
    """Priorities of pairs of kinds, each asked for once; inf for a pair that does not merge."""

    def __init__(self, names: list[str], priority: Callable[[str, str], float | None]) -> None:
        self._names, self._priority = names, priority
        self._known: dict[tuple[int, int], float] = {}

    def of(self, left: int, right: int) -> float:
        rank = self._known.get((left, right))
        if rank is None:
            found = self._priority(self._names[left], self._names[right])
            rank = self._known[left, right] = inf if found is None else found
        return rank

    def best_of(self, ids: Any) -> tuple[float, int, int] | None:
        """Rank and kinds of the pair that merges first; None if none does, or if two pairs share that rank."""
        import numpy as np

        n = len(self._names)
        present = np.flatnonzero(np.bincount(ids[:-1] * n + ids[1:], minlength=1))
        ranked = sorted((self.of(*divmod(code, n)), *divmod(code, n)) for code in present.tolist())
        if not ranked or ranked[0][0] == inf or (len(ranked) > 1 and ranked[1][0] == ranked[0][0]):
            return None
        return ranked[0]
