"""The kernels under CPython: a memory and threads of the ``wasmtime`` package.

Calls into wasmtime let go of the interpreter's lock, so a team is plain Python threads, each with an instance of its
own on the one memory.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import wasmtime
from wasmtime import _ffi

from bridge.errors import DeviceError, UnsupportedError
from bridge.simd.host import (
    MAX_BYTES_32,
    MAX_BYTES_64,
    MAX_THREADS,
    MODULE_BYTES,
    PAGE,
    UNIT,
    Counters,
    Job,
    Matrix,
    Span,
    first_free_byte,
)
from bridge.simd.upload import Pump

_HERE = Path(__file__).resolve()
PLACES = (_HERE.parents[1] / "_kernels" / "simd", _HERE.parents[2] / "build" / "simd")
JOIN_SECONDS = 5.0
WIDE_VARIANT = "relaxed64-threads"
"""The module with 64-bit addresses."""


class _SharedMemory(wasmtime.SharedMemory):
    """wasmtime 50's own ``_as_extern`` makes a pointer to a pointer, which ctypes then refuses."""

    def _as_extern(self) -> Any:
        memory = _ffi.wasmtime_extern_union(sharedmemory=self.ptr())
        return _ffi.wasmtime_extern_t(_ffi.WASMTIME_EXTERN_SHAREDMEMORY, memory)


@cache
def _module(variant: str, deterministic: bool) -> tuple[wasmtime.Engine, wasmtime.Module]:
    """Compiled once for the process; wasmtime needs about a second for it."""
    config = wasmtime.Config()
    config.wasm_threads = config.shared_memory = True
    config.wasm_relaxed_simd = True
    config.wasm_relaxed_simd_deterministic = deterministic
    if variant == WIDE_VARIANT:
        config.wasm_memory64 = True
        config.memory_reservation = MAX_BYTES_64  # shared memory cannot move, so all of it is set aside
    engine = wasmtime.Engine(config)
    for place in PLACES:
        file = place / f"{variant}.wasm"
        if file.is_file():
            return engine, wasmtime.Module.from_file(engine, str(file))
    raise UnsupportedError(f"the CPU kernels are not built ({variant}.wasm is missing); "
                           "run 'python -m tools.build_simd'")


class WasmtimeHost:
    """See bridge.simd.host.Host.

    ``variant`` names the module; one without threads computes with one. Beside the default one there is one with 64-bit
    addresses, for all models (``memory64`` True), for those beyond 4 GiB (None) or for none (False). ``deterministic``
    makes relaxed instructions do what the specification calls their deterministic behaviour, ``careful`` assumes the
    worst of them; both are for tests.
    """

    def __init__(self, n_threads: int | None = None, *, variant: str = "relaxed-threads", memory64: bool | None = None,
                 deterministic: bool = False, careful: bool = False) -> None:
        self._narrow, self._deterministic, self._careful = variant, deterministic, careful
        self.is_shared = variant.endswith("-threads")
        self.n_threads = min(n_threads or os.cpu_count() or 1, MAX_THREADS) if self.is_shared else 1
        self.has_relaxed = variant.startswith("relaxed")
        self.prefers_memory64 = memory64 is True
        self._has_memory64 = memory64 is not False and variant == "relaxed-threads"
        self.max_bytes = MAX_BYTES_64 if self._has_memory64 else MAX_BYTES_32
        self.counters = Counters()
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._open(WIDE_VARIANT if self.prefers_memory64 and self._has_memory64 else variant)

    @property
    def variant(self) -> str:
        return self._variant

    async def reserve(self, nbytes: int) -> None:
        wide = self._has_memory64 and (self.prefers_memory64 or nbytes > MAX_BYTES_32)
        if (variant := WIDE_VARIANT if wide else self._narrow) != self._variant:
            self._end_threads()
            self._open(variant)
        while self._call("retire_job"):  # a thread may still be looking at the program of the last model
            await asyncio.sleep(0)
        missing = -(-(nbytes - len(self._bytes)) // PAGE)
        if missing > 0:
            try:
                self._memory.grow(missing) if self.is_shared else self._memory.grow(self._store, missing)
            except wasmtime.WasmtimeError as error:
                raise DeviceError(f"wasmtime refused to make the memory {nbytes >> 20} MiB large: {error}") from None
            self._bytes = self._view()
        self._start_threads()

    def write(self, address: int, data: Any) -> None:
        view = memoryview(data).cast("B")
        self._bytes[address:address + len(view)] = view

    def read(self, address: int, nbytes: int) -> bytes:
        return bytes(self._bytes[address:address + nbytes])

    async def upload(self, source: Any, spans: Sequence[Span], staging: int, staging_nbytes: int, progress: Any,
                     cancel: Any) -> None:
        def stage(at: int, data: Any) -> None:
            self.write(staging + at, data)

        def take(span: Span, done: int, count: int) -> None:
            target = span.target
            if isinstance(target, Matrix):
                self._call("repack", target.layout, target.type_id, target.block_size, target.type_size, target.grid,
                           staging, count // span.row, target.n_in, target.to, done // span.step)
            else:
                self._call("widen_vector", target.layout, staging, count // span.row, target.to, done // span.row)

        await Pump(stage, take, staging_nbytes).run(source, spans, progress, cancel)

    async def run(self, job: Job, params: bytes, n_threads: int, n_rows: int) -> memoryview | None:
        await asyncio.sleep(0)
        self.write(job.mail * UNIT, params)
        self.counters.runs += 1
        if self._call("run", job.program, job.n_ops, job.mail, job.params, job.scratch, job.scratch_units, n_threads):
            raise DeviceError("a thread of the CPU backend failed")
        if not n_rows:
            return None
        if job.row_stride == job.row_nbytes or n_rows == 1:
            return self._bytes[job.result:job.result + n_rows * job.row_nbytes].cast("f")
        rows = bytearray()
        for i in range(n_rows):
            rows += self._bytes[job.result + i * job.row_stride:][:job.row_nbytes]
        return memoryview(rows).cast("f")

    def release(self) -> None:
        """Nothing: the memory is kept for the next model."""

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._end_threads()

    def call(self, name: str, *arguments: int) -> Any:
        """An exported function, for tests."""
        return self._call(name, *arguments)

    def _call(self, name: str, *arguments: int) -> Any:
        try:
            return self._exports[name](self._store, *arguments)
        except wasmtime.Trap as trap:
            raise DeviceError(f"the CPU kernels failed: {str(trap).splitlines()[0]}") from None

    def _open(self, variant: str) -> None:
        self._variant = variant
        self._engine, self._module = _module(variant, self._deterministic)
        self._store = wasmtime.Store(self._engine)
        is_64 = variant == WIDE_VARIANT
        limits = wasmtime.Limits(MODULE_BYTES // PAGE, MAX_BYTES_64 // PAGE if is_64 else MAX_BYTES_32 // PAGE + 1)
        type = wasmtime.MemoryType(limits, is_64=is_64, shared=self.is_shared)
        self._memory = _SharedMemory(self._engine, type) if self.is_shared else wasmtime.Memory(self._store, type)
        self._exports = wasmtime.Instance(self._store, self._module, [self._memory]).exports(self._store)
        self.edition = self._call("edition") & 0xFFFFFFFF
        self.dot_mode = self._call("probe_dots", int(self._careful))
        self._bytes = self._view()
        self.counters.memories += 1

    def _view(self) -> memoryview:
        """All of the memory. It never moves: wasmtime reserves address space for the most it may become."""
        address, nbytes = (
            (self._memory.data_ptr(), self._memory.data_len()) if self.is_shared
            else (self._memory.data_ptr(self._store), self._memory.data_len(self._store))
        )
        self.counters.memory_bytes = nbytes
        start = ctypes.addressof(address.contents)
        return memoryview((ctypes.c_uint8 * nbytes).from_address(start)).cast("B")

    def _start_threads(self) -> None:
        for number in range(len(self._threads) + 1, self.n_threads):
            thread = threading.Thread(target=self._serve, args=(number,), daemon=True)
            self._threads.append(thread)
            thread.start()
        self.counters.threads = len(self._threads)

    def _end_threads(self) -> None:
        if self._threads:
            self._call("post_job", 0, 0, 0, 0, 0, 0, 0)
            for thread in self._threads:
                thread.join(JOIN_SECONDS)
        self._threads = []
        self.counters.threads = 0

    def _serve(self, number: int) -> None:
        store = wasmtime.Store(self._engine)
        exports = wasmtime.Instance(store, self._module, [self._memory]).exports(store)
        exports["__stack_pointer"].set_value(store, first_free_byte(number + 1))
        job = 0
        try:
            while True:
                job = exports["serve"](store, number, job)
                if job & 255 == 0:
                    return
        except wasmtime.Trap:
            exports["abandon"](store)  # or the others would wait for this thread for ever
            raise
