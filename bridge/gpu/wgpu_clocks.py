"""How WgpuDevice waits for what it submitted, and times it; ``wgpu`` has no more than mapped buffers for the one."""

from __future__ import annotations

from typing import Any

import wgpu

CLOCK = "timestamp-query"
"""A feature for measuring, which kernels know nothing of."""


class Fences:
    """Lets a submit pass when the one before it is done, so that two are under way.

    on_submitted_work_done of wgpu 0.32 fails with a TypeError; but a buffer that is written in a submission can be mapped when
    it is done.
    """

    def __init__(self, device: Any) -> None:
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        self._queue = device.queue
        self._last, self._next = (device.create_buffer(size=4, usage=usage) for _ in range(2))
        self._is_set = False

    def write(self) -> None:
        """What is submitted next will write the next fence; a lost device refuses this."""
        self._queue.write_buffer(self._next, 0, b"\0\0\0\0")

    def turn(self) -> bool:
        """After ``write`` and a submit: wait for the submit before it; False if there was none."""
        has_waited = self.wait()
        self._last, self._next, self._is_set = self._next, self._last, True
        return has_waited

    def wait(self) -> bool:
        """Wait for the last submit; False if that is done already."""
        if not self._is_set:
            return False
        self._last.map_sync("READ_NOSYNC")
        self._last.unmap()
        self._is_set = False
        return True


class Stopwatch:
    """Two of the device's timestamps, at the beginning and at the end of a pass."""

    NBYTES = 16

    def __init__(self, device: Any, seconds_per_tick: float) -> None:
        self._seconds_per_tick = seconds_per_tick
        self._queries = device.create_query_set(type="timestamp", count=2)
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._ticks = device.create_buffer(size=self.NBYTES, usage=usage)
        self.writes = {"query_set": self._queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1}

    @classmethod
    def of(cls, device: Any) -> Stopwatch | None:
        """None where the device has no timestamps, or wgpu does not tell how long a tick is."""
        if CLOCK not in device.features:
            return None
        try:
            from wgpu.backends.wgpu_native import lib

            nanoseconds = lib.wgpuQueueGetTimestampPeriod(device.queue._internal)
        except (ImportError, AttributeError):
            return None
        return cls(device, 1e-9 * nanoseconds) if nanoseconds > 0 else None

    def resolve(self, encoder: Any) -> None:
        encoder.resolve_query_set(self._queries, 0, 2, self._ticks, 0)

    def seconds(self, queue: Any) -> float:
        begin, end = memoryview(queue.read_buffer(self._ticks)).cast("Q")
        return (end - begin) * self._seconds_per_tick
