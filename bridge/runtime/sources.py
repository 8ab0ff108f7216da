"""Asynchronous byte sources: how the loader reads a model, whatever holds its bytes.

A source has ``size`` (bytes), ``async read(offset, length) -> bytes`` and ``stream(offset, length)``, an asynchronous
iterator of byte chunks; one that joins the files of a split model also has ``shards``, their sizes. In a page
``bridge.host.sources`` wraps JavaScript sources in the same shape.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

CHUNK = 4 << 20


class AsyncSource:
    """A synchronous source of ``bridge.gguf.sources`` seen as an asynchronous one; it blocks while it reads."""

    js = None

    def __init__(self, source: Any) -> None:
        self._source = source
        self.size: int = source.size
        self.shards: tuple[int, ...] = source.shards

    async def read(self, offset: int, length: int) -> bytes:
        return self._source.read(offset, length)

    async def stream(self, offset: int, length: int) -> AsyncIterator[bytes]:
        for chunk in self._source.stream(offset, length, CHUNK):
            yield chunk

    def close(self) -> None:
        self._source.close()
