"""The time of dispatches on a device: a program that holds them often enough, less an empty one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bridge.gpu.device import Device, Dispatch

TARGET_SECONDS = 0.04
"""Of one program: far above the jitter of a submission, far below what a system's watchdog allows."""
MAX_DISPATCHES = 2048
ROUNDS = 3
NOTHING = 1e-9


class Deadline:
    """So many seconds from now, of ``clock`` (None: for ever)."""

    def __init__(self, seconds: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    @property
    def left(self) -> float:
        return float("inf") if self._end is None else self._end - self._clock()

    @property
    def is_over(self) -> bool:
        return self.left <= 0


class ProgramTimer:
    """Times programs on one device, each in one submit; ``clock`` gives seconds, of the wall or of the processor."""

    def __init__(self, device: Device, clock: Callable[[], float] = time.perf_counter) -> None:
        self._device, self._clock = device, clock
        self._result = device.create_buffer(4, label="timer")
        self._readback = device.create_readback(self._result, 4, 4, 1)

    def close(self) -> None:
        self._device.free([self._readback, self._result])

    async def seconds(self, dispatches: Sequence[Dispatch], params: Any, block: bytes) -> float:
        """Of one dispatch, the mean over those given, which are replayed in turn; ``params`` gets ``block`` first."""
        count = 1
        while True:
            # Without their costs, by which the device would cut the program into several submits (bridge.gpu.pacing).
            program = [replace(dispatches[i % len(dispatches)], cost=(0.0, 0.0)) for i in range(count)]
            found = await self._best(program, params, block, ROUNDS if count > 1 else 1)
            if found >= TARGET_SECONDS or count == MAX_DISPATCHES:
                return max(NOTHING, found / count)
            # As many as are expected to take long enough, but at most 80 times as many: the first were cold.
            wanted = count * TARGET_SECONDS / max(found, TARGET_SECONDS / 64)
            count = min(MAX_DISPATCHES, max(2 * count, int(1.25 * wanted)))

    async def _best(self, dispatches: Sequence[Dispatch], params: Any, block: bytes, rounds: int) -> float:
        """The shortest of several runs, less the shortest of as many empty ones in turn with them."""
        device = self._device
        programs = [device.create_program(listed, params, self._readback) for listed in ((), dispatches)]
        try:
            best = [float("inf"), float("inf")]
            for _ in range(1 + rounds):
                for i, program in enumerate(programs):
                    begin = self._clock()
                    await device.run(program, block, 1)
                    best[i] = min(best[i], self._clock() - begin)
            return max(NOTHING, best[1] - best[0])
        finally:
            device.free(programs)
