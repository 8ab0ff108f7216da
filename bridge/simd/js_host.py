"""The machine in a page: web/simd_host.js, driven from Pyodide.

Plans, jobs and options cross as JSON and addresses as numbers, so nothing here holds a JavaScript object but the host.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import Any

from pyodide.ffi import JsException, create_proxy, to_js

from bridge.errors import BridgeError, DeviceError, SourceError, UnsupportedError
from bridge.simd.host import MAX_SELECTED, Counters, Job, Span
from bridge.simd.upload import ranges_of


async def open_host(simd_module: Any, pool: int | None, memory64: bool | None) -> JsHost:
    """The host of the exports of web/simd_host.js, with ``pool`` threads, at most one per core (None: 8 at most).

    Addresses have 64 bits for all models (``memory64`` True), for those beyond 4 GiB (None) or for none (False), where
    the browser has them. Raises UnsupportedError when the browser cannot run the kernels and DeviceError when it
    refuses them memory or threads.
    """
    try:
        options = {"pool": pool, "memory64": memory64}
        return JsHost(await simd_module.openHost(json.dumps(options)), prefers_memory64=memory64 is True)
    except JsException as error:
        raise _host_error(error) from None


class JsHost:
    """A SimdHost of web/simd_host.js (see bridge.simd.host.Host)."""

    def __init__(self, js: Any, prefers_memory64: bool = False) -> None:
        self._js = js
        self.prefers_memory64 = prefers_memory64
        self._calls = 0
        self._job: tuple[Job, str] | None = None
        described = json.loads(js.describe())
        self.n_threads: int = described["n_threads"]
        self.is_shared: bool = described["is_shared"]
        self.max_bytes: int = described["max_bytes"]
        self.edition: int = described["edition"]
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
        plan = json.dumps({"ranges": ranges_of(spans), "spans": list(map(asdict, spans)), "capacity": staging_nbytes})
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

    async def run(self, job: Job, params: bytes, n_threads: int, n_rows: int) -> Rows | None:
        if self._job is None or self._job[0] is not job:
            self._job = job, json.dumps(asdict(job))
        await self._wait(self._call("run", self._job[1], self._bytes(params), n_threads))
        return Rows(self, job, n_rows) if n_rows else None

    def release(self) -> None:
        self._job = None
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


class Rows:
    """Rows of a result that stay in the machine's memory until they are looked at: a float32 buffer."""

    def __init__(self, host: JsHost, job: Job, n_rows: int) -> None:
        self._host, self._job, self._n_rows = host, job, n_rows
        self._copied: bytearray | None = None

    def __buffer__(self, flags: int) -> memoryview:
        job = self._job
        if self._copied is None:
            self._copied = bytearray(self._n_rows * job.row_nbytes)
            self._host._call("rows", job.result, job.row_nbytes, job.row_stride, self._n_rows).assign_to(self._copied)
        return memoryview(self._copied).cast("f")

    def best_token(self) -> int | None:
        """The first of the largest numbers of a single row; None where that cannot be told from the numbers."""
        if self._n_rows != 1:
            return None
        best = self._host._call("bestToken", self._job.result, len(self))
        return best if best >= 0 else None

    def best_tokens(self, k: int, also: Sequence[int]) -> tuple[Sequence[int], array, array] | None:
        """The k largest numbers of a single row but for those with the indices ``also``, largest first and equal ones by
        index: indices, numbers, and the numbers left out. None where they cannot be told."""
        most = k + len(also)  # of all there are the k best others are among them
        if self._n_rows != 1 or most > MAX_SELECTED:
            return None
        job = self._job
        found = self._host._call("topTokens", job.result, len(self), most, job.selected, json.dumps(list(also)))
        if found is None:
            return None
        data, left_out = found.to_bytes(), set(also)
        best = zip(array("I", data[:4 * most]), array("f", data[4 * most:8 * most]))
        ids, values = zip(*islice(((i, value) for i, value in best if i not in left_out), k))
        return ids, array("f", values), array("f", data[8 * most:])

    def __len__(self) -> int:
        return self._n_rows * self._job.row_nbytes // 4


def _host_error(error: JsException) -> BridgeError:
    kind = UnsupportedError if getattr(error, "code", None) == UnsupportedError.code else DeviceError
    return kind(str(error.message))


def _source_error(error: JsException) -> SourceError:
    """An error of web/byte_source.js: its sentence, its code and, where a server answered, the status."""
    failure = SourceError(str(error.message))
    failure.code = str(getattr(error, "code", None) or SourceError.code)
    failure.status = getattr(error, "status", None)
    return failure
