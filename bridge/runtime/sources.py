"""Asynchronous byte sources: how the loader reads a model, whatever holds its bytes.

A source has ``size`` (bytes), ``async read(offset, length) -> bytes``, ``stream(offset, length)``, an asynchronous
iterator of byte chunks, and ``async content_mark(tensors)``, bytes that change with the weights; one that joins the
files of a split model also has ``shards``, their sizes. In a page ``bridge.host.sources`` wraps JavaScript sources in
the same shape.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable
from typing import Any

CHUNK = 4 << 20
SAMPLE_NBYTES = 1024
"""Of each tensor, in its middle: another fine-tune of a model changes every tensor it touches nearly everywhere."""


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

    async def content_mark(self, tensors: Iterable[Any]) -> bytes:
        """A hash of a sample of every tensor; of a remote file its validator, which costs no request."""
        if self._source.is_remote and self._source.identity:
            return self._source.identity.encode()
        mark = hashlib.sha256()
        for tensor in sorted(tensors, key=lambda tensor: tensor.offset):
            length = min(SAMPLE_NBYTES, tensor.nbytes)
            mark.update(self._source.read(tensor.offset + (tensor.nbytes - length) // 2, length))
        return mark.digest()

    def close(self) -> None:
        self._source.close()
