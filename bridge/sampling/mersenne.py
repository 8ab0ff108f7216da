"""The random numbers of C++'s ``std::mt19937`` and ``std::uniform_real_distribution<double>``.

Python's ``random`` runs the same Mersenne Twister but seeds it differently, so the C++ seeding is put into its state.
Matsumoto and Nishimura 1998, "Mersenne Twister"; ISO C++ [rand.eng.mers]; libstdc++'s ``generate_canonical``.
"""

from __future__ import annotations

import math
import random
from collections import deque

STATE_WORDS = 624
SEED_MULTIPLIER = 1812433253


class MersenneTwister:
    """``std::mt19937`` seeded with a 32-bit integer."""

    def __init__(self, seed: int):
        word = seed % 2**32
        state = [word]
        for i in range(1, STATE_WORDS):
            word = (SEED_MULTIPLIER * (word ^ word >> 30) + i) % 2**32
            state.append(word)
        self._ahead: deque[float] = deque()
        self._random = random.Random()
        self._random.setstate((3, (*state, STATE_WORDS), None))  # position after the last word: the next call twists

    def next_uint32(self) -> int:
        return self._random.getrandbits(32)

    def next_double(self) -> float:
        """Uniform in [0, 1), from two 32-bit outputs of which the second is the more significant."""
        return self._ahead.popleft() if self._ahead else self._make_double()

    def peek_doubles(self, n: int, first: int = 0) -> list[float]:
        """What ``n`` calls of ``next_double`` will give, but for the ``first`` ones before them."""
        while len(self._ahead) < first + n:
            self._ahead.append(self._make_double())
        return [self._ahead[first + i] for i in range(n)]

    def _make_double(self) -> float:
        low, high = self.next_uint32(), self.next_uint32()
        value = (low + high * 2.0**32) / 2.0**64
        return value if value < 1.0 else math.nextafter(1.0, 0.0)
