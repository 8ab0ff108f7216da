"""How much work goes into one submit: long batches are cut, so that each piece takes about ``TARGET_S``.

Operating systems reset a GPU whose work does not end within a few seconds (2 s on Windows), a browser's own watchdog
follows, and a page that shares the GPU waits for the piece under way before it is drawn. How fast a device is cannot be
asked, so a pacer begins as if it were slow and follows what it sees. Work is counted in the units of ``bridge.gpu.work``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

TARGET_S = 0.06
"""Of one submit; not every kind of work is equally well estimated, and 0.1 s should not be exceeded."""
CAREFUL = 2e9
"""Units per second of a device that nothing is known of: less than what one core of a processor does on llvmpipe."""
FASTEST = 1e14
"""As much as the largest devices do; a clock with coarse ticks may claim more."""
MOST_CHANGE = 8.0
"""How far one batch may move the estimate."""
TELLING = 0.1
"""Batches expected to take less than this part of the target tell what a submit costs, or a kernel's first use, not how
fast the device is; those that take all of it count from this part of that part on."""


class Work:
    """What the dispatches of a program cost: (units, units for each position of the context) each."""

    def __init__(self, costs: Sequence[tuple[float, float]]) -> None:
        self._costs = costs
        self._fixed, self._per_key = (sum(values) for values in zip((0.0, 0.0), *costs))

    def __len__(self) -> int:
        return len(self._costs)

    def total(self, n_keys: int) -> float:
        return self._fixed + n_keys * self._per_key

    def units(self, n_keys: int) -> list[float]:
        """Of each dispatch."""
        return [fixed + n_keys * per_key for fixed, per_key in self._costs]


class Pacer:
    """Cuts batches, and learns from how long they take.

    ``begin`` is called before a batch is submitted and ``end`` when the wait for it is over; ``latency_s`` is how long the
    device takes to tell that it has nothing left to do.
    """

    def __init__(self, latency_s: float = 0.0, clock: Callable[[], float] = time.perf_counter) -> None:
        self.rate = CAREFUL
        self._latency, self._clock = latency_s, clock
        self._under_way = 0.0  # work that was submitted and not seen done
        self._last_piece = 0.0
        self._since = 0.0  # when the device began with it

    def seconds(self, work: float) -> float:
        """How long the device is expected to take."""
        return work / self.rate

    @contextmanager
    def batch(self, work: Work, n_keys: int, *, waits_for_all: bool) -> Iterator[tuple[int, ...]]:
        """Around a batch: ``begin``, and ``end`` unless it failed, when nothing is known of what was done."""
        try:
            yield self.begin(work, n_keys)
        except BaseException:
            self._under_way = 0.0
            raise
        self.end(waits_for_all)

    def begin(self, work: Work, n_keys: int = 0) -> tuple[int, ...]:
        """The dispatch that each piece ends before, for a context of ``n_keys`` positions."""
        now = self._clock()
        if now - self._since >= self.seconds(self._under_way):  # by now that is done, and the device was idle
            self._under_way, self._since = 0.0, now
        total = work.total(n_keys)
        self._under_way += total
        most = self.rate * TARGET_S
        if total <= most:
            self._last_piece = total
            return (len(work),)
        return self._cut(work.units(n_keys), most)

    def end(self, all_done: bool) -> None:
        """Everything is done or, if not ``all_done``, everything but the last piece."""
        now = self._clock()
        done = self._under_way - (0.0 if all_done else self._last_piece)
        self._learn(done, now - self._since)
        self._under_way, self._since = self._under_way - done, now

    def _cut(self, units: Sequence[float], most: float) -> tuple[int, ...]:
        ends, piece = [], 0.0
        for i, cost in enumerate(units):
            if piece and piece + cost > most:
                ends.append(i)
                piece = 0.0
            piece += cost
        self._last_piece = piece
        return (*ends, len(units))

    def _learn(self, work: float, seconds: float) -> None:
        expected = self.seconds(work)
        if expected < TELLING * TARGET_S * (1.0 if seconds < TARGET_S else TELLING):
            return
        seen = work / max(seconds - self._latency, expected / MOST_CHANGE)
        self.rate = min(max(seen, self.rate / MOST_CHANGE), FASTEST)
