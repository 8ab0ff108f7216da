"""The time of dispatches on a device: a program that holds them often enough, less an empty one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from bridge.gpu.device import Device, Dispatch

TARGET_SECONDS = 0.04
"""Of one program: far above the jitter of a submission, far below what a system's watchdog allows."""
GPU_TARGET_SECONDS = 0.01
"""The same where a GPU tells the time itself, to a microsecond."""
MAX_DISPATCHES = 2048
FEW = 4
"""So many dispatches may differ from each other, and are always timed together."""
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
    """Times programs on one device, each in one submit.

    By the device's own clock; where it has none, or ``clock`` is given (seconds, of the processor say), by what the
    host sees, less an empty program. That includes what it takes to encode a dispatch and to hand it over.
    """

    def __init__(self, device: Device, clock: Callable[[], float] | None = None) -> None:
        self._device, self._clock = device, clock
        self._result = device.create_buffer(4, label="timer")
        self._readback = device.create_readback(self._result, 4, 4, 1)

    @property
    def target(self) -> float:
        """Seconds that a program should take to be timed well."""
        return TARGET_SECONDS if self._clock or self._device.info.is_software else GPU_TARGET_SECONDS

    def close(self) -> None:
        self._device.free([self._readback, self._result])

    async def run(self, dispatches: Sequence[Dispatch], params: Any, block: bytes) -> None:
        """Replay dispatches without looking at the clock."""
        program = self._device.create_program(dispatches, params)
        await self._device.run(program, block)
        self._device.free([program])

    async def seconds(self, dispatches: Sequence[Dispatch], params: Any, block: bytes) -> float:
        """Of one dispatch, the mean over those given, which are replayed in turn; ``params`` gets ``block`` first."""
        count = len(dispatches) if len(dispatches) <= FEW else 1
        while True:
            # Without their costs, by which the device would cut the program into several submits (bridge.gpu.pacing).
            program = [replace(dispatches[i % len(dispatches)], cost=(0.0, 0.0)) for i in range(count)]
            found = await self._best(program, params, block, ROUNDS if count > 1 else 1)
            if found >= self.target or count == MAX_DISPATCHES:
                return max(NOTHING, found / count)
            # As many as are expected to take long enough, but at most 80 times as many: the first were cold.
            wanted = count * self.target / max(found, self.target / 64)
            count = min(MAX_DISPATCHES, max(2 * count, int(1.25 * wanted)))
            if len(dispatches) < count < MAX_DISPATCHES:
                count -= count % len(dispatches)

    async def _best(self, dispatches: Sequence[Dispatch], params: Any, block: bytes, rounds: int) -> float:
        """The shortest of several runs."""
        if self._clock is None:
            found = await self._best_by_device(dispatches, params, block, rounds)
            if found is not None:
                return found
            self._clock = time.perf_counter
        return await self._best_by_clock(dispatches, params, block, rounds, self._clock)

    async def _best_by_device(self, dispatches: Sequence[Dispatch], params: Any, block: bytes,
                              rounds: int) -> float | None:
        program = self._device.create_program(dispatches, params, self._readback)
        try:
            found = [await self._device.pass_seconds(program, block) for _ in range(1 + rounds)]
            return None if None in found else max(NOTHING, min(found))
        finally:
            self._device.free([program])

    async def _best_by_clock(self, dispatches: Sequence[Dispatch], params: Any, block: bytes, rounds: int,
                             clock: Callable[[], float]) -> float:
        """Less the shortest of as many empty ones in turn with them."""
        device = self._device
        programs = [device.create_program(listed, params, self._readback) for listed in ((), dispatches)]
        try:
            best = [float("inf"), float("inf")]
            for _ in range(1 + rounds):
                for i, program in enumerate(programs):
                    begin = clock()
                    await device.run(program, block, 1)
                    best[i] = min(best[i], clock() - begin)
            return max(NOTHING, best[1] - best[0])
        finally:
            device.free(programs)
