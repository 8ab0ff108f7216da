"""The host's surroundings in a page: JavaScript modules behind ``bridge.host.engine.Engine``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyodide.ffi import JsException, to_js

from bridge.errors import SourceError
from bridge.gpu.device import Counters
from bridge.gpu.owner import DeviceOwner
from bridge.host.host import Host
from bridge.host.sources import PageSource, open_page_source
from bridge.runtime import CancelToken, load_model
from bridge.simd.host import Counters as CpuCounters


class PageHost:
    """What JavaScript holds of a host: messages come as JavaScript objects."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def handle(self, message: Any) -> None:
        self._host.handle(message.to_py())

    def close(self) -> None:
        self._host.close()


class PyodideEngine:
    load_model = staticmethod(load_model)

    def __init__(self, js: Any) -> None:
        self._js = js
        self._devices = DeviceOwner(self._request_device)
        self._cpu: Any = None
        self._cpu_options: tuple[int | None, bool | None] | None = None
        self.notes = list(js.boot.notes)
        self.n_posts = 0

    async def open_source(self, urls: Sequence[str], options: Mapping[str, Any], cancel: CancelToken) -> PageSource:
        return await open_page_source(self._js.model_files, urls, options, cancel)

    async def device(self) -> Any:
        return await self._devices()

    async def _request_device(self) -> Any:
        from bridge.gpu.js_device import request_device

        return await request_device(self._js.gpu_device)

    def drop_device(self) -> None:
        self._devices.drop()

    async def cpu(self, pool: int | None, memory64: bool | None) -> Any:
        if self._cpu is None or self._cpu_options != (pool, memory64):
            from bridge.simd.js_host import open_host

            self.drop_cpu()
            self._cpu = await open_host(self._js.simd_host, pool, memory64)
            self._cpu_options = pool, memory64
        return self._cpu

    def drop_cpu(self) -> None:
        cpu, self._cpu = self._cpu, None
        if cpu is not None:
            cpu.close()

    async def load_package(self, name: str) -> None:
        try:
            await self._js.loadPackage(name)
        except JsException as error:
            raise SourceError(str(error.message)) from None

    def counters(self) -> dict[str, int]:
        import gc

        import pyodide_js

        gc.collect()
        gpu = self._devices.device.counters if self._devices.device is not None else Counters()
        cpu = self._cpu.counters if self._cpu is not None else CpuCounters()
        return {
            # JavaScript objects that Python holds, for all bridges on this thread together.
            "jsReferences": pyodide_js._module._hiwire_num_refs(),
            "pythonObjects": len(gc.get_objects()),
            "pythonMemoryBytes": pyodide_js._module.HEAPU8.length,
            "pythonToJsCalls": gpu.calls + cpu.calls + self.n_posts,
            "cpuMemoryBytes": cpu.memory_bytes,
            "cpuThreads": cpu.threads,
            "cpuRuns": cpu.runs,
            "gpuBuffers": gpu.buffers,
            "gpuBufferBytes": gpu.buffer_bytes,
            "gpuObjectsCreated": gpu.created,
            "gpuSubmits": gpu.submits,
            "gpuMaps": gpu.maps,
            "peakBytesInFlight": gpu.peak_bytes_in_flight,
        }


def host_for_page(post: Any, js: Any, config: Any, direct: bool) -> PageHost:
    """See bridge.host.create_host. Messages go out as JSON text with their binary values beside it."""

    engine = PyodideEngine(js)

    def post_message(message: dict[str, Any]) -> None:
        engine.n_posts += 1
        buffers: list[Any] = []
        text = json.dumps(message, default=lambda value: _placeholder(value, buffers), allow_nan=False)
        if buffers:
            post(text, to_js(buffers))
        else:
            post(text)

    settings = config.to_py() if config is not None else {}
    return PageHost(Host(post_message, engine, settings, bool(direct)))


def _placeholder(value: Any, buffers: list[Any]) -> dict[str, int]:
    """Where JSON has no way to write a value, its place among the message's buffers."""
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f"a message cannot hold a {type(value).__name__}")
    buffers.append(value)
    return {"$buffer": len(buffers) - 1}
