"""A file that the page holds: its size is known here, its bytes are asked for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from bridge.errors import SourceError

ReadBytes = Callable[[int, int], Awaitable[Any]]
"""``(offset, length)`` in the file -> an object with ``to_bytes()``."""


class PageSource:
    """An async source (see ``bridge.gguf.open_gguf_async``); ``shards`` are the sizes of a split model's files."""

    def __init__(self, read: ReadBytes, size: int, shards: Sequence[int] | None = None):
        self._read = read
        self.size = size
        self.shards = tuple(shards or (size,))

    async def read(self, offset: int, length: int) -> bytes:
        """Exactly these bytes; raises SourceError where the page could not get them (it knows why)."""
        if not length:
            return b""
        try:
            found = await self._read(offset, length)
        except Exception as error:
            raise SourceError("the page could not read the file") from error
        data = found.to_bytes()
        if len(data) != length:
            raise SourceError(f"the source returned {len(data)} of {length} bytes at offset {offset}")
        return data
