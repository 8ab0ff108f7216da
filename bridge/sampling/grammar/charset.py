"""Sets of code points as sorted ranges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MAX_CODE_POINT = 0x3FFFFF
"""What four bytes hold if the lead byte's whole low half counts. Unicode ends at U+10FFFF, but llama.cpp takes the bytes
F5 to FF for lead bytes too, so that a negated class and ``.`` allow them; tokens of single bytes make that visible."""


@dataclass(frozen=True, slots=True)
class CharSet:
    """``ranges``: disjoint (first, last) pairs, ascending, never touching each other."""

    ranges: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, ranges: Iterable[tuple[int, int]]) -> CharSet:
        """The union of ``ranges``; one whose first is above its last adds nothing."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted((first, last) for first, last in ranges if first <= last):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return cls(tuple(merged))

    def negated(self) -> CharSet:
        """Every code point that is not in this set."""
        gaps, start = [], 0
        for first, last in self.ranges:
            gaps.append((start, first - 1))
            start = last + 1
        return CharSet.of([*gaps, (start, MAX_CODE_POINT)])


ANY_CHAR = CharSet(((0, MAX_CODE_POINT),))
