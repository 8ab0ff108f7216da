"""The one pass over a model file that fills the memory: which ranges to read, and cutting streams into whole steps.

In a page web/simd_upload.js makes the same pass for sources that live there, so that chunks never enter Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bridge.errors import SourceError
from bridge.simd.host import Span

MAX_GAP = 4 << 20
"""Bytes between two spans that are read and dropped; for more it pays to start a new stream."""


def ranges_of(spans: Sequence[Span]) -> list[tuple[int, int, int]]:
    """(first byte, end byte, number of spans) of each stream to read; spans are sorted and may not overlap."""
    ranges: list[tuple[int, int, int]] = []
    for span in spans:
        end = span.offset + span.length
        if ranges and span.offset < ranges[-1][1]:
            raise ValueError(f"span {span.name} begins at byte {span.offset}, before the last one ended")
        if ranges and span.offset - ranges[-1][1] <= MAX_GAP:
            start, _, count = ranges.pop()
            ranges.append((start, end, count + 1))
        else:
            ranges.append((span.offset, end, 1))
    return ranges


class StepWriter:
    """Cuts a stream that starts at byte ``position`` into spans, and spans into runs of whole steps.

    Bytes are gathered with ``stage(at, data)`` in staging memory of ``capacity`` bytes (at least one step of every
    span); ``take(span, done, count)`` says that it holds bytes ``done`` … ``done + count`` of the span.
    """

    def __init__(self, position: int, spans: Sequence[Span], capacity: int, stage: Callable[[int, Any], None],
                 take: Callable[[Span, int, int], None]) -> None:
        self._position, self._spans = position, list(spans)
        self._capacity, self._stage, self._take = capacity, stage, take
        self._staged = 0

    def feed(self, chunk: Any) -> None:
        data = memoryview(chunk).cast("B")
        while self._spans and len(data):
            span = self._spans[0]
            if self._position < span.offset:
                skip = min(span.offset - self._position, len(data))
                self._position, data = self._position + skip, data[skip:]
                continue
            end = span.offset + span.length
            room = self._capacity // span.step * span.step - self._staged
            count = min(len(data), end - self._position, room)
            self._stage(self._staged, data[:count])
            self._position, self._staged, data = self._position + count, self._staged + count, data[count:]
            if self._position == end or count == room:
                self._take(span, self._position - span.offset - self._staged, self._staged)
                self._staged = 0
            if self._position == end:
                self._spans.pop(0)

    def finish(self) -> None:
        """Raise SourceError when the stream ended before the last span was whole."""
        if self._spans:
            span = self._spans[0]
            raise SourceError(f"the stream ended at byte {self._position} of the file, inside tensor {span.name}, "
                              f"which ends at byte {span.offset + span.length}")


class Pump:
    """Moves a file's bytes through the staging memory, from a source that Python reads."""

    def __init__(self, stage: Callable[[int, Any], None], take: Callable[[Span, int, int], None],
                 capacity: int) -> None:
        self._stage, self._take, self._capacity = stage, take, capacity

    async def run(self, source: Any, spans: Sequence[Span], progress: Any, cancel: Any) -> None:
        """See bridge.simd.host.Host.upload."""
        first = 0
        for start, end, count in ranges_of(spans):
            writer = StepWriter(start, spans[first:first + count], self._capacity, self._stage, self._take)
            first += count
            async for chunk in source.stream(start, end - start):
                cancel.check()
                writer.feed(chunk)
                start += len(chunk)
                progress(start, source.size)
            writer.finish()
