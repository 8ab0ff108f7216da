"""The device in a page: ``navigator.gpu`` behind web/gpu_device.js, driven from Pyodide.

Handles are numbers, so nothing here holds a JavaScript object but the device itself. Calls are counted: a batch takes
four (hand over the parameters, run, wait, copy the logits).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyodide.ffi import JsException, create_proxy, to_js

from bridge.errors import Cancelled, DeviceError, SourceError
from bridge.gpu.device import AdapterInfo, Counters, Dispatch, Limits, Link, Segment, is_software_adapter
from bridge.gpu.pacing import Pacer, Work
from bridge.gpu.upload import Pump, ranges_of

# WebGPU's names for the limits that Limits names.
_LIMIT_NAMES = {
    "".join([first, *map(str.capitalize, rest)]): name
    for name in Limits.__dataclass_fields__ for first, *rest in [name.split("_")]
}


async def request_device(gpu_module: Any) -> JsDevice:
    """The device of the exports of web/gpu_device.js; raises DeviceError when the browser gives none."""
    try:
        return JsDevice(await gpu_module.requestDevice())
    except JsException as error:
        raise _device_error(error) from None


class JsDevice:
    """A GpuDevice of web/gpu_device.js (see bridge.gpu.device.Device)."""

    def __init__(self, js: Any) -> None:
        self._js = js
        self._calls = 0
        self._peak_bytes = 0  # of files that Python read, see Pump
        self._results: dict[int, tuple[bytearray, int]] = {}  # by readback: memory for its rows, bytes of one row
        self._readback_of: dict[int, int] = {}  # by program
        self._work: dict[int, Work] = {}
        described = json.loads(js.describe())
        self.limits = Limits(**{_LIMIT_NAMES[name]: value for name, value in described["limits"].items()})
        self.pacer = Pacer(latency_s=described["latencyMs"] / 1000)
        self.notes = tuple(described["notes"])
        fallback = described["info"].pop("isFallback")
        self.info = AdapterInfo(**described["info"], features=tuple(described["features"]),
                                subgroup_min_size=described["subgroupMinSize"])
        self.info = replace(self.info, is_software=fallback or is_software_adapter(self.info))

    @property
    def counters(self) -> Counters:
        counters = Counters(**json.loads(self._js.counters()), calls=self._calls)
        return replace(counters, peak_bytes_in_flight=max(counters.peak_bytes_in_flight, self._peak_bytes))

    @property
    def lost(self) -> str | None:
        return self._call("lost")

    def create_buffer(self, size: int, *, uniform: bool = False, label: str = "") -> int:
        return self._call("createBuffer", size, uniform, label)

    def write_buffer(self, buffer: int, offset: int, data: Any) -> None:
        self._call("writeBuffer", buffer, offset, self._bytes(data))

    async def read_buffer(self, buffer: int, offset: int, nbytes: int) -> bytes:
        found = await self._wait(self._call("readBuffer", buffer, offset, nbytes))
        self._calls += 1
        return found.to_bytes()

    async def create_pipeline(self, source: str, label: str, bindings: Sequence[str]) -> int:
        return await self._wait(self._call("createPipeline", source, label, json.dumps(bindings)))

    def create_bind_group(self, bindings: Sequence[str], entries: Sequence[tuple[int, int, int | None]], label: str) -> int:
        return self._call("createBindGroup", json.dumps(bindings), json.dumps(entries), label)

    def create_readback(self, buffer: int, row_nbytes: int, row_stride: int, max_rows: int) -> int:
        readback = self._call("createReadback", buffer, row_nbytes, row_stride, max_rows)
        self._results[readback] = (bytearray(row_nbytes * max_rows), row_nbytes)
        return readback

    def create_program(self, dispatches: Sequence[Dispatch], params: int, readback: int | None = None) -> int:
        flat = json.dumps([(d.pipeline, d.bind_group, *d.workgroups) for d in dispatches])
        program = self._call("createProgram", flat, params, readback or 0)
        self._work[program] = Work([d.cost for d in dispatches])
        if readback:
            self._readback_of[program] = readback
        return program

    def free(self, handles: Sequence[int]) -> None:
        self._call("free", json.dumps(list(handles)))
        for handle in handles:
            self._results.pop(handle, None)
            self._readback_of.pop(handle, None)
            self._work.pop(handle, None)

    async def run(self, program: int, params: bytes, n_rows: int = 0, n_keys: int = 0) -> memoryview | None:
        with self.pacer.batch(self._work[program], n_keys, waits_for_all=n_rows > 0) as (*ends, _):
            cuts = [json.dumps(ends)] if ends else []
            found = await self._wait(self._call("run", program, self._bytes(params), n_rows, *cuts))
        return self._rows(program, found, n_rows) if n_rows else None

    def interrupt(self) -> None:
        self._call("interrupt")

    def begin_chain(self, program: int, params: Sequence[bytes], n_rows: int, link: Link) -> Any:
        size = max(map(len, params))
        blocks = self._bytes(b"".join(block.ljust(size, b"\0") for block in params))
        promise = self._call("runChain", program, blocks, size, n_rows, link.source, link.target)
        return program, promise, n_rows * len(params)

    async def end_chain(self, chain: Any) -> memoryview:
        program, promise, n_rows = chain
        return self._rows(program, await self._wait(promise), n_rows)

    def _rows(self, program: int, found: Any, n_rows: int) -> memoryview:
        memory, row_nbytes = self._results[self._readback_of[program]]
        result = memoryview(memory)[:n_rows * row_nbytes]
        self._calls += 1
        found.assign_to(result)
        return result.cast("f")

    async def pass_seconds(self, program: int, params: bytes) -> None:
        """Pages are not given a clock finer than the device's jitter; see bridge.gpu.device.Device."""
        return None

    async def recall(self, key: str) -> str | None:
        return await self._wait(self._call("recall", key)) or None

    async def keep(self, key: str, text: str) -> None:
        await self._wait(self._call("keep", key, text))

    async def check(self) -> None:
        await self._wait(self._call("check"))

    async def upload(self, source: Any, segments: Sequence[Segment], progress: Any, cancel: Any) -> dict[str, bytes]:
        if getattr(source, "js", None) is None:
            return await self._upload_from_python(source, segments, progress, cancel)
        plan = json.dumps({
            "ranges": ranges_of(segments),
            "segments": [(s.offset, s.length, s.buffer or 0, s.name, s.at) for s in segments],
        })
        on_progress = create_proxy(lambda position: progress(position, source.size))
        forget = cancel.on_cancel(lambda: self._call("abortUpload"))
        try:
            cancel.check()
            host = await self._wait(self._call("upload", source.js, plan, on_progress))
            kept = [s for s in segments if s.buffer is None]
            return {s.name: found.to_bytes()[:s.length] for s, found in zip(kept, host)}
        except JsException as error:
            cancel.check()
            raise getattr(source, "error", _source_error)(error) from None
        finally:
            # Whatever ended the wait (this task may have been cancelled), nobody listens to the stream any more.
            self._call("abortUpload")
            forget()
            on_progress.destroy()

    async def _upload_from_python(self, source: Any, segments: Sequence[Segment], progress: Any, cancel: Any):
        pump = Pump(self.write_buffer, self._drain)
        try:
            return await pump.run(source, segments, progress, cancel)
        finally:
            self._peak_bytes = max(self._peak_bytes, pump.peak_bytes)

    def destroy(self) -> None:
        self._call("destroy")

    async def _drain(self) -> None:
        await self._wait(self._call("drain"))

    def _call(self, method: str, *arguments: Any) -> Any:
        self._calls += 1
        try:
            return getattr(self._js, method)(*arguments)
        except JsException as error:
            raise _device_error(error) from None

    async def _wait(self, promise: Any) -> Any:
        self._calls += 1
        try:
            return await promise
        except JsException as error:
            if error.name == "GpuInterruption":
                raise Cancelled("the batch was interrupted") from None
            if error.name == "GpuDeviceError":
                raise _device_error(error) from None
            raise

    def _bytes(self, data: Any) -> Any:
        self._calls += 1
        return to_js(memoryview(data).cast("B"))


def _device_error(error: JsException) -> DeviceError:
    return DeviceError(str(error.message))


def _source_error(error: JsException) -> SourceError:
    """An error of web/byte_source.js: its sentence, its code and, where a server answered, the status."""
    failure = SourceError(str(error.message))
    failure.code = str(getattr(error, "code", None) or SourceError.code)
    failure.status = getattr(error, "status", None)
    return failure
