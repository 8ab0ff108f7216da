"""The machine in a page: web/simd_host.js, driven from Pyodide.

Plans, jobs and options cross as JSON and addresses as numbers, so nothing here holds a JavaScript object but the host.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pyodide.ffi import JsException, create_proxy, to_js

from bridge.errors import BridgeError, DeviceError, SourceError, UnsupportedError
from bridge.simd.host import Counters, Job, Span
from bridge.simd.upload import ranges_of


async def open_host(simd_module: Any, pool: int | None, memory64: bool) -> JsHost:
    """The host of the exports of web/simd_host.js, with ``pool`` threads, at most one per core (None: those, at most 8).

    ``memory64`` False keeps to 32-bit addresses. Raises UnsupportedError when the browser cannot run the kernels and
    DeviceError when it refuses them memory or threads.
    """
    try:
        options = {"pool": pool, "memory64": memory64}
        return JsHost(await simd_module.openHost(json.dumps(options)))
    except JsException as error:
        raise _host_error(error) from None


class JsHost:
    """A SimdHost of web/simd_host.js (see bridge.simd.host.Host)."""

    def __init__(self, js: Any) -> None:
        self._js = js
        self._calls = 0
        self._job: tuple[Job, str] | None = None
        self._result = bytearray()
        described = json.loads(js.describe())
        self.n_threads: int = described["n_threads"]
        self.is_shared: bool = described["is_shared"]
        self.max_bytes: int = described["max_bytes"]
        self.has_relaxed: bool = described["has_relaxed"]
        self.dot_mode: int = described["dot_mode"]

    @property
    def variant(self) -> str:
        return json.loads(self._js.describe())["variant"]

    @property
    def counters(self) -> Counters:
        return Counters(**json.loads(self._js.counters()), calls=self._calls)

    async def reserve(self, nbytes: int) -> None:
        await self._wait(self._call("reserve", nbytes))

    def write(self, address: int, data: Any) -> None:
        self._call("write", address, self._bytes(data))

    def read(self, address: int, nbytes: int) -> bytes:
        return self._call("read", address, nbytes).to_bytes()

    async def upload(self, source: Any, spans: Sequence[Span], staging: int, staging_nbytes: int, progress: Any,
                     cancel: Any) -> None:
        plan = json.dumps({"ranges": ranges_of(spans), "spans": [asdict(span) for span in spans], "capacity": staging_nbytes})
        on_progress = create_proxy(lambda position: progress(position, source.size))
        forget = cancel.on_cancel(lambda: self._call("abortUpload"))
        try:
            cancel.check()
            await self._wait(self._call("upload", source.js, staging, plan, on_progress))
        except JsException as error:
            cancel.check()
            raise _source_error(error) from None
        finally:
            forget()
            on_progress.destroy()

    async def run(self, job: Job, params: bytes, n_threads: int, n_rows: int) -> memoryview | None:
        if self._job is None or self._job[0] is not job:
            self._job = job, json.dumps(asdict(job))
            self._result = bytearray(job.row_nbytes * job.max_rows)
        found = await self._wait(self._call("run", self._job[1], self._bytes(params), n_threads, n_rows))
        if not n_rows:
            return None
        result = memoryview(self._result)[:n_rows * job.row_nbytes]
        self._calls += 1
        found.assign_to(result)
        return result.cast("f")

    def release(self) -> None:
        self._job, self._result = None, bytearray()
        self._call("release")

    def close(self) -> None:
        self._call("close")

    def _call(self, method: str, *arguments: Any) -> Any:
        self._calls += 1
        try:
            return getattr(self._js, method)(*arguments)
        except JsException as error:
            raise _host_error(error) from None

    async def _wait(self, promise: Any) -> Any:
        self._calls += 1
        try:
            return await promise
        except JsException as error:
            if error.name == "SimdHostError":
                raise _host_error(error) from None
            raise

    def _bytes(self, data: Any) -> Any:
        self._calls += 1
        return to_js(memoryview(data).cast("B"))


def _host_error(error: JsException) -> BridgeError:
    kind = UnsupportedError if getattr(error, "code", None) == UnsupportedError.code else DeviceError
    return kind(str(error.message))


def _source_error(error: JsException) -> SourceError:
    """An error of web/byte_source.js: its sentence, its code and, where a server answered, the status."""
    failure = SourceError(str(error.message))
    failure.code = str(getattr(error, "code", None) or SourceError.code)
    failure.status = getattr(error, "status", None)
    return failure
