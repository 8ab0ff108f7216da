"""The device under CPython, on the ``wgpu`` package (WebGPU in native code; Vulkan, Metal or Direct3D 12).

Its calls block; they are asynchronous only in form. Errors are raised by wgpu at the call that causes them.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

# Mesa complains on stderr where a session has no runtime folder; it needs none to compute.
os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())

import wgpu  # noqa: E402

from bridge.errors import Cancelled, DeviceError  # noqa: E402
from bridge.gpu import kept_texts  # noqa: E402
from bridge.gpu.device import (  # noqa: E402
    F16,
    PACKED_DOT,
    SUBGROUPS,
    AdapterInfo,
    Counters,
    Dispatch,
    Limits,
    Link,
    Segment,
    is_software_adapter,
)
from bridge.gpu.pacing import Pacer, Work  # noqa: E402
from bridge.gpu.upload import Pump  # noqa: E402
from bridge.gpu.wgpu_clocks import CLOCK, Fences, Stopwatch  # noqa: E402

_FEATURES = {F16: F16, "subgroup": SUBGROUPS}
"""wgpu's names of the features that kernels may use; it has packed dot products wherever it runs, and does not say so."""

_LANE_BITS = 32

_WANTED_LIMITS = ("max-buffer-size", "max-storage-buffer-binding-size")

LOST = "device is lost"
"""In wgpu's words. What wgpu refuses so can be caught, but for a submit, which ends the process."""

_BINDING_TYPES = {"uniform": "uniform", "read": "read-only-storage", "write": "storage"}


async def request_device(power: str = "high-performance", force_software: bool = False) -> WgpuDevice:
    """The best adapter's device with the largest buffers it allows; raises DeviceError when there is none."""
    try:
        adapter = wgpu.gpu.request_adapter_sync(power_preference=power, force_fallback_adapter=force_software)
    except Exception as error:  # wgpu raises RuntimeError, or ValueError for names; without a driver also OSError
        raise DeviceError(f"no WebGPU adapter was found: {_first_line(error)}") from None
    wanted = {name: adapter.limits[name] for name in _WANTED_LIMITS if name in adapter.limits}
    features = [name for name in (*_FEATURES, CLOCK) if name in adapter.features]
    try:
        return WgpuDevice(adapter, adapter.request_device_sync(required_limits=wanted, required_features=features))
    except Exception as error:
        warnings.warn(f"WebGPU with the adapter's own limits and features was refused ({_reason(error)}); trying without",
                      stacklevel=2)
    try:
        return WgpuDevice(adapter, adapter.request_device_sync(), notes=("webgpu_limits_refused:using_defaults",))
    except Exception as error:
        raise DeviceError(f"the WebGPU adapter gave no device: {_first_line(error)}") from None


@dataclass(frozen=True, eq=False)
class _Readback:
    source: Any
    staging: Any
    row_nbytes: int
    row_stride: int
    result: bytearray


@dataclass(frozen=True, eq=False)
class _Program:
    dispatches: tuple[Dispatch, ...]
    params: Any
    readback: _Readback | None
    work: Work


class WgpuDevice:
    """A device of the ``wgpu`` package (see bridge.gpu.device.Device)."""

    def __init__(self, adapter: Any, device: Any, notes: tuple[str, ...] = ()) -> None:
        self.notes = notes
        self._device = device
        self._buffers: set[Any] = set()
        self._layouts: dict[tuple[str, ...], Any] = {}
        self._pipelines: dict[str, Any] = {}
        self._stopwatch = Stopwatch.of(device)
        self._lost: str | None = None
        self._is_destroyed = self._is_interrupted = False
        self._fences = Fences(device)
        self.pacer = Pacer()
        self.counters = Counters()
        known = {name: device.limits.get(name.replace("_", "-")) for name in Limits.__dataclass_fields__}
        self.limits = Limits(**{name: value for name, value in known.items() if value is not None})
        info = adapter.info
        self.info = AdapterInfo(**{key: info.get(key, "") for key in ("vendor", "architecture", "device", "description")})
        software = info.get("adapter_type") == "CPU" or is_software_adapter(self.info)
        features = [ours for name, ours in _FEATURES.items() if name in device.features]
        least = _subgroup_min_size(info) if SUBGROUPS in features else 0
        self.info = replace(self.info, is_software=software, features=(*features, PACKED_DOT), subgroup_min_size=least)

    @property
    def lost(self) -> str | None:
        if self._lost is None:
            try:
                self._fences.write()
            except (wgpu.GPUError, RuntimeError) as error:
                self._failure(error)
        return self._lost

    def create_buffer(self, size: int, *, uniform: bool = False, label: str = "") -> Any:
        usage = wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
        usage |= wgpu.BufferUsage.UNIFORM if uniform else wgpu.BufferUsage.STORAGE
        return self._create_buffer(-(-size // 4) * 4, usage, label)

    def write_buffer(self, buffer: Any, offset: int, data: Any) -> None:
        with self._using():
            self._device.queue.write_buffer(buffer, offset, data)

    async def read_buffer(self, buffer: Any, offset: int, nbytes: int) -> bytes:
        with self._using():
            self.counters.submits += 1
            self._count_read(nbytes)
            return bytes(self._device.queue.read_buffer(buffer, offset, nbytes))

    async def create_pipeline(self, source: str, label: str, bindings: Sequence[str]) -> Any:
        pipeline = self._pipelines.get(source)
        if pipeline is None:
            with self._creating(f"pipeline {label}"):
                layout = self._device.create_pipeline_layout(bind_group_layouts=[self._layout(tuple(bindings))])
                # wgpu's compiler knows subgroups without being told, and refuses to be told.
                code = source.replace("enable subgroups;\n", "")
                module = self._device.create_shader_module(label=label, code=code)
                pipeline = self._device.create_compute_pipeline(
                    label=label, layout=layout, compute={"module": module, "entry_point": "main"})
            self._pipelines[source] = pipeline
        return pipeline

    def create_bind_group(self, bindings: Sequence[str], entries: Sequence[tuple[Any, int, int | None]], label: str) -> Any:
        resources = [
            {"binding": i, "resource": {"buffer": buffer, "offset": offset, "size": size or buffer.size - offset}}
            for i, (buffer, offset, size) in enumerate(entries)
        ]
        with self._creating(f"bind group {label}"):
            return self._device.create_bind_group(label=label, layout=self._layout(tuple(bindings)), entries=resources)

    def create_readback(self, buffer: Any, row_nbytes: int, row_stride: int, max_rows: int) -> Any:
        size = row_nbytes * max_rows
        staging = self._create_buffer(size, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST, "readback")
        return _Readback(buffer, staging, row_nbytes, row_stride, bytearray(size))

    def create_program(self, dispatches: Sequence[Dispatch], params: Any, readback: Any = None) -> Any:
        return _Program(tuple(dispatches), params, readback, Work([d.cost for d in dispatches]))

    def free(self, handles: Sequence[Any]) -> None:
        for handle in handles:
            buffer = handle.staging if isinstance(handle, _Readback) else handle
            if buffer in self._buffers:
                self._buffers.remove(buffer)
                self.counters.buffers -= 1
                self.counters.buffer_bytes -= buffer.size
                buffer.destroy()

    async def run(self, program: Any, params: bytes, n_rows: int = 0, n_keys: int = 0) -> memoryview | None:
        self._is_interrupted = False
        with self._using(), self.pacer.batch(program.work, n_keys, waits_for_all=n_rows > 0) as (*ends, last):
            self._device.queue.write_buffer(program.params, 0, params)
            first = 0
            for end in ends:
                self._submit_and_pace(self._encoded(program, first, end))
                await asyncio.sleep(0)
                if self._is_interrupted:
                    raise Cancelled("the batch was interrupted")
                first = end
            rest = self._encoded(program, first, last, n_rows)
            if n_rows:
                self._submit(rest)
                return self._read(program.readback, n_rows * program.readback.row_nbytes)
            self._submit_and_pace(rest)
            return None

    def interrupt(self) -> None:
        self._is_interrupted = True

    async def pass_seconds(self, program: Any, params: bytes) -> float | None:
        if self._stopwatch is None:
            return None
        with self._using():
            self._device.queue.write_buffer(program.params, 0, params)
            self._submit(self._encoded(program, 0, len(program.dispatches), stopwatch=self._stopwatch))
            self._count_read(Stopwatch.NBYTES)
            return self._stopwatch.seconds(self._device.queue)

    def begin_chain(self, program: Any, params: Sequence[bytes], n_rows: int, link: Link) -> Any:
        with self._using():
            for i, block in enumerate(params):
                self._device.queue.write_buffer(program.params, 0, block)
                self._submit(self._encoded(program, 0, len(program.dispatches), n_rows, i * n_rows, link if i else None))
        return program.readback, len(params) * n_rows

    async def end_chain(self, chain: Any) -> memoryview:
        readback, n_rows = chain
        with self._using():
            _ = self.lost  # since it was begun; wgpu has no words of its own for that
            self._require()
            return self._read(readback, n_rows * readback.row_nbytes)

    async def recall(self, key: str) -> str | None:
        return kept_texts.recall(key)

    async def keep(self, key: str, text: str) -> None:
        kept_texts.keep(key, text)

    async def check(self) -> None:
        self._require()

    async def upload(self, source: Any, segments: Sequence[Segment], progress: Any, cancel: Any) -> dict[str, bytes]:
        pump = Pump(self.write_buffer, self._wait)
        try:
            return await pump.run(source, segments, progress, cancel)
        finally:
            self.counters.peak_bytes_in_flight = max(self.counters.peak_bytes_in_flight, pump.peak_bytes)

    def destroy(self) -> None:
        if self._is_destroyed:
            return
        self._is_destroyed = True
        self.free(list(self._buffers))
        self._lost = self._lost or "it was destroyed"
        self._pipelines.clear()
        self._layouts.clear()
        self._device.destroy()

    def _create_buffer(self, size: int, usage: int, label: str) -> Any:
        state = f", with {self.counters.buffer_bytes} bytes in buffers before it"
        with self._creating(f"buffer {label} of {size} bytes", state):
            buffer = self._device.create_buffer(size=size, usage=usage, label=label)
        self._buffers.add(buffer)
        self.counters.buffers += 1
        self.counters.buffer_bytes += size
        return buffer

    def _encoded(self, program: _Program, first: int, end: int, n_rows: int = 0, first_row: int = 0,
                 link: Link | None = None, stopwatch: Stopwatch | None = None) -> Any:
        """Dispatches ``first`` … ``end`` - 1 in one pass, with what a link copies before them and rows of the readback
        behind them, which are its rows from ``first_row`` on."""
        encoder = self._device.create_command_encoder()
        if link:
            encoder.copy_buffer_to_buffer(program.readback.source, link.source, program.params, link.target, 4)
        compute = encoder.begin_compute_pass(timestamp_writes=stopwatch.writes if stopwatch else None)
        for dispatch in program.dispatches[first:end]:
            compute.set_pipeline(dispatch.pipeline)
            compute.set_bind_group(0, dispatch.bind_group)
            compute.dispatch_workgroups(*dispatch.workgroups)
        compute.end()
        self.counters.dispatches += end - first
        if stopwatch:
            stopwatch.resolve(encoder)
        if n_rows:
            _copy_rows(encoder, program.readback, n_rows, first_row)
        return encoder.finish()

    def _submit(self, *commands: Any) -> None:
        self._device.queue.submit(commands)
        self.counters.submits += 1

    async def _wait(self) -> None:
        with self._using():
            self._submit_and_pace()
            self.counters.waits += self._fences.wait()

    def _submit_and_pace(self, *commands: Any) -> None:
        """Submit, and wait for what was submitted so before."""
        self._fences.write()
        self._submit(*commands)
        self.counters.waits += self._fences.turn()

    def _layout(self, bindings: tuple[str, ...]) -> Any:
        layout = self._layouts.get(bindings)
        if layout is None:
            layout = self._layouts[bindings] = self._device.create_bind_group_layout(entries=[
                {"binding": i, "visibility": wgpu.ShaderStage.COMPUTE, "buffer": {"type": _BINDING_TYPES[kind]}}
                for i, kind in enumerate(bindings)
            ])
        return layout

    @contextmanager
    def _using(self):
        self._require()
        try:
            yield
        except (wgpu.GPUError, RuntimeError) as error:
            raise self._failure(error) from error

    @contextmanager
    def _creating(self, what: str, state: str = ""):
        self._require()
        try:
            yield
        except (wgpu.GPUError, RuntimeError) as error:
            self._failure(error)
            self._require()
            raise DeviceError(f"creating the {what} failed{state}: {_reason(error) if state else error}") from error
        self.counters.created += 1

    def _read(self, readback: _Readback, nbytes: int) -> memoryview:
        readback.staging.map_sync("READ_NOSYNC", 0, nbytes)
        self._count_read(nbytes)
        result = memoryview(readback.result)[:nbytes]
        result[:] = readback.staging.read_mapped(0, nbytes, copy=False)
        readback.staging.unmap()
        return result.cast("f")

    def _count_read(self, nbytes: int) -> None:
        self.counters.maps += 1
        self.counters.bytes_read += nbytes
        self.counters.waits += 1

    def _require(self) -> None:
        if self._lost is not None:
            raise DeviceError(f"the device was lost: {self._lost}")

    def _failure(self, error: Exception) -> DeviceError:
        """What an error of wgpu means; the device may be lost from now on."""
        reason = _reason(error)
        if LOST in reason.lower():
            self._lost = self._lost or "its driver reset it or it was removed"
            return DeviceError(f"the device was lost: {self._lost}")
        return DeviceError(f"the device failed: {reason}")


def _copy_rows(encoder: Any, readback: _Readback, n_rows: int, first_row: int) -> None:
    size, stride = readback.row_nbytes, readback.row_stride
    at = first_row * size
    if size == stride:
        n_rows, size = 1, n_rows * size
    for row in range(n_rows):
        encoder.copy_buffer_to_buffer(readback.source, row * stride, readback.staging, at + row * size, size)


def _reason(error: Exception) -> str:
    """The innermost cause of an error of wgpu: the last line of its text."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _subgroup_min_size(info: Mapping[str, Any]) -> int:
    """llvmpipe's subgroups are as wide as its vectors, whose bits are in its name; wgpu says 4 to 128 of every such adapter."""
    vectors = re.fullmatch(r"llvmpipe \(LLVM [^,]+, (\d+) bits\)", info.get("device", ""))
    if vectors:
        return int(vectors[1]) // _LANE_BITS
    return info.get("subgroup_min_size", info.get("stackgroup_min_size", 0))  # which wgpu 0.32 misspells


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
