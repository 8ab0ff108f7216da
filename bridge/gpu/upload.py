"""The one pass over a model file that fills buffers: which ranges to read, and cutting a stream into its segments.

In a page web/gpu_device/file_pump.js makes the same pass for sources that live there, so that chunks never enter Python; it is
given the ranges found here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bridge.errors import SourceError
from bridge.gpu.device import Segment

MAX_GAP = 4 << 20
"""Bytes between two segments that are read and dropped; for more it pays to start a new stream."""

SYNC_BYTES = 16 << 20
"""Bytes handed to the device before waiting until it has taken them."""

Write = Callable[[Segment, int, Any], None]


def ranges_of(segments: Sequence[Segment]) -> list[tuple[int, int, int]]:
    """(first byte, end byte, number of segments) of each stream to read; segments are sorted and may not overlap."""
    ranges: list[tuple[int, int, int]] = []
    for segment in segments:
        end = segment.offset + segment.length
        if ranges and segment.offset < ranges[-1][1]:
            raise ValueError(f"segment {segment.name} begins at byte {segment.offset}, before the last one ended")
        if ranges and segment.offset - ranges[-1][1] <= MAX_GAP:
            start, _, count = ranges.pop()
            ranges.append((start, end, count + 1))
        else:
            ranges.append((segment.offset, end, 1))
    return ranges


class SegmentWriter:
    """Cuts a stream that starts at byte ``position`` into segments, and segments into writes of whole words.

    ``write(segment, offset, data)`` gets an offset and a length that are multiples of 4; the last is padded with zeros.
    """

    def __init__(self, position: int, segments: Sequence[Segment], write: Write) -> None:
        self._position = position
        self._segments = list(segments)
        self._write = write
        self._rest = b""  # up to 3 bytes that wait for their word to be whole

    def feed(self, chunk: Any) -> None:
        data = memoryview(chunk).cast("B")
        while self._segments and len(data):
            segment = self._segments[0]
            skip = segment.offset - self._position
            if skip > 0:
                data = self._advance(data, min(skip, len(data)))
                continue
            take = min(len(data), segment.offset + segment.length - self._position)
            self._put(segment, data[:take])
            data = self._advance(data, take)
            if self._position == segment.offset + segment.length:
                self._segments.pop(0)

    def finish(self) -> None:
        """Raise SourceError when the stream ended before the last segment was whole."""
        if self._segments:
            segment = self._segments[0]
            raise SourceError(f"the stream ended at byte {self._position} of the file, inside tensor {segment.name}, "
                              f"which ends at byte {segment.offset + segment.length}")

    def _advance(self, data: memoryview, count: int) -> memoryview:
        self._position += count
        return data[count:]

    def _put(self, segment: Segment, data: memoryview) -> None:
        at = self._position - segment.offset - len(self._rest)
        ends = self._position + len(data) == segment.offset + segment.length
        if self._rest:
            missing = min(4 - len(self._rest), len(data))
            self._rest += bytes(data[:missing])
            data = data[missing:]
            if len(self._rest) < 4 and not ends:
                return
            self._write(segment, at, self._rest.ljust(4, b"\0"))
            self._rest, at = b"", at + 4
        whole = len(data) & ~3
        if whole:
            self._write(segment, at, data[:whole])
        self._rest = bytes(data[whole:])
        if ends and self._rest:
            self._write(segment, at + whole, self._rest.ljust(4, b"\0"))
            self._rest = b""


class Pump:
    """Moves a file's bytes into a device's buffers, from a source that Python reads.

    ``peak_bytes`` is the most that was held at once, by the stream's chunk and in writes that the device had not finished.
    """

    def __init__(self, write_buffer: Callable[[Any, int, Any], None], wait: Callable[[], Awaitable[None]]) -> None:
        self._write_buffer, self._wait = write_buffer, wait
        self._pending = 0
        self.peak_bytes = 0

    async def run(self, source: Any, segments: Sequence[Segment], progress: Any, cancel: Any) -> dict[str, bytes]:
        """See bridge.gpu.device.Device.upload."""
        host = {segment.name: bytearray() for segment in segments if segment.buffer is None}

        def write(segment: Segment, offset: int, data: Any) -> None:
            if segment.buffer is None:
                host[segment.name] += data
            else:
                self._write_buffer(segment.buffer, segment.at + offset, data)

        first = 0
        for start, end, count in ranges_of(segments):
            writer = SegmentWriter(start, segments[first:first + count], write)
            first += count
            async for chunk in source.stream(start, end - start):
                cancel.check()
                await self._account(len(chunk))
                writer.feed(chunk)
                start += len(chunk)
                progress(start, source.size)
            writer.finish()
        await self._wait()
        return {s.name: bytes(host[s.name][:s.length]) for s in segments if s.buffer is None}

    async def _account(self, nbytes: int) -> None:
        if self._pending and self._pending + nbytes > SYNC_BYTES:
            await self._wait()
            self._pending = 0
        self._pending += nbytes
        self.peak_bytes = max(self.peak_bytes, self._pending)
