"""A model's bytes in a page: web/bridge/model_files.js behind the members that the loader asks for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any

from pyodide.ffi import JsException, to_js

from bridge.errors import SourceError
from bridge.host.js_numbers import finite
from bridge.runtime import CancelToken

TRANSFER_OPTIONS = {
    "streamResumeRetries": ("retries", 0, 1000),
    "fetchTimeoutMs": ("fetchTimeoutMs", 10_000, 1_800_000),
    "streamChunkTimeoutMs": ("streamChunkTimeoutMs", 5_000, 300_000),
}
"""Options of a load: their name in web/byte_source.js, and the range they are clamped to."""


class PageSource:
    """One pass over a model's files (see bridge.runtime.sources); ``js`` is the source that a device reads by itself."""

    def __init__(self, js: Any, forget: Any) -> None:
        self.js = js
        self._forget = forget

    @property
    def size(self) -> int | None:
        return self.js.size()

    @property
    def shards(self) -> tuple[int, ...]:
        """Sizes of the files of a split model; empty for a single file."""
        return tuple(self.js.shards())

    @property
    def facts(self) -> Mapping[str, Any]:
        """Where the bytes come from and what became of the cache: ``source``, ``state``, ``name``, ``notes``, ``anyFromCache``."""
        return json.loads(self.js.facts())

    async def content_mark(self, tensors: Iterable[Any]) -> bytes:
        """Checksums of all bytes; reads what is left of the files. Raises SourceError, also for a damaged entry."""
        try:
            return (await self.js.checksum()).encode()
        except JsException as error:
            raise source_error(error) from None

    async def commit(self) -> None:
        """The model is good: keep its files in the cache. Never fails."""
        await self.js.commit()

    async def discard(self) -> None:
        """The model is not good: drop what the cache has of it."""
        await self.js.discard()

    @property
    def received(self) -> int:
        return self.js.received()

    @property
    def identity(self) -> str | None:
        return self.js.identity()

    async def read(self, offset: int, length: int) -> bytes:
        try:
            return (await self.js.read(offset, length)).to_bytes()
        except JsException as error:
            raise source_error(error) from None

    async def stream(self, offset: int, length: int) -> AsyncIterator[bytes]:
        chunks = self.js.stream(offset, length)
        try:
            async for chunk in chunks:
                yield chunk.to_bytes()
        except JsException as error:
            raise source_error(error) from None
        finally:
            await chunks.aclose()

    def close(self) -> None:
        self._forget()
        self.js.close()


async def open_page_source(model_files: Any, urls: Sequence[str], options: Mapping[str, Any], cancel: CancelToken) -> PageSource:
    """Open a model's files for one sequential load; cancelling stops the transfer. Raises SourceError, Cancelled."""
    from js import AbortController, Object

    controller = AbortController.new()
    forget = cancel.on_cancel(lambda: controller.abort())
    settings = {"signal": controller.signal}
    for option, (name, least, most) in TRANSFER_OPTIONS.items():
        value = finite(options.get(option))
        if value is not None:
            settings[name] = int(min(max(value, least), most))
    wanted = {"useCache": options.get("useCache") is not False, "force": options.get("force") is True,
              "name": str(options.get("cacheName") or ""), "transfer": settings}
    try:
        source = await model_files.openModel(to_js(list(urls)), to_js(wanted, dict_converter=Object.fromEntries))
    except JsException as error:
        forget()
        cancel.check()
        raise source_error(error) from None
    return PageSource(source, forget)


def source_error(error: JsException) -> SourceError:
    """A failure of byte_source.js in the words a page expects of a load; its code and status stay."""
    failure = SourceError(f"Failed to fetch model shard: {error.message}")
    failure.code = str(getattr(error, "code", None) or SourceError.code)
    failure.status = getattr(error, "status", None)
    return failure
