"""Load the model a command names, on the backend it asks for."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TextIO

from bridge.errors import DeviceError, UnsupportedError

DEFAULT_CTX = 4096  # tokens, where the model was trained for as many


class Loaded(NamedTuple):
    """A model, how long loading took, and the WebGPU device it is on, if it is on one."""

    model: Any
    load_ms: float
    device: Any = None


def run_to_end(coroutine: Coroutine) -> Any:
    """``asyncio.run`` with a Ctrl-C that interrupts at once.

    asyncio's own handler cancels at the next suspension, and a backend computing on this thread may not reach one for
    minutes; asyncio leaves a handler that is not Python's default alone.
    """
    before = signal.signal(signal.SIGINT, lambda number, frame: signal.default_int_handler(number, frame))
    try:
        return asyncio.run(coroutine)
    finally:
        signal.signal(signal.SIGINT, before)


@asynccontextmanager
async def open_model(arguments: argparse.Namespace) -> AsyncIterator[Loaded]:
    """Load what ``arguments`` (see ``arguments.add_backend``) say; model, device and file are closed at the end."""
    from bridge.gguf import open_gguf
    from bridge.runtime import LoadOptions, load_model
    from bridge.runtime.sources import AsyncSource

    from bridge.synth import PREFIX, open_synth

    started = time.perf_counter()
    is_synthetic = arguments.model.startswith(PREFIX)
    with open_gguf(open_synth(arguments.model) if is_synthetic else arguments.model) as file:
        async with open_machine(arguments.backend, arguments.threads) as (backend, device, cpu):

            async def devices() -> Any:
                return device

            async def cpus() -> Any:
                return cpu

            options = LoadOptions(n_ctx=arguments.ctx or trained_ctx(file), backend=backend, kv_type=arguments.kv,
                                  n_ubatch=getattr(arguments, "ubatch", None),
                                  threads=arguments.threads, precision=arguments.precision,
                                  pooling=getattr(arguments, "pooling", None))
            progress = Progress(sys.stderr)
            model = await load_model(AsyncSource(file.source), options, devices=devices, cpus=cpus, progress=progress)
            progress.clear()
            try:
                yield Loaded(model, (time.perf_counter() - started) * 1000, device)
            finally:
                await model.close()


class OpenMachine(NamedTuple):
    """A backend's name, with what it computes on: for webgpu its device, for simd its host."""

    backend: str
    device: Any = None
    cpu: Any = None


@asynccontextmanager
async def open_machine(wanted: str, threads: int | None = None) -> AsyncIterator[OpenMachine]:
    """The machine for a backend, closed at the end. "auto" takes a hardware adapter, else simd, else the reference."""
    device = await open_device(wanted) if wanted in ("auto", "webgpu") else None
    if device is not None:
        try:
            yield OpenMachine("webgpu", device=device)
        finally:
            device.destroy()
        return
    cpu = open_cpu(wanted, threads) if wanted in ("auto", "simd") else None
    if cpu is not None:
        try:
            yield OpenMachine("simd", cpu=cpu)
        finally:
            cpu.close()
        return
    yield OpenMachine("reference")


async def open_device(wanted: str) -> Any:
    """The WebGPU device; for "auto" None where there is none or only a software one."""
    try:
        from bridge.gpu.wgpu_device import request_device

        device = await request_device()
    except ImportError as error:
        if wanted == "webgpu":
            raise _missing(error, "WebGPU") from error
        return None
    except DeviceError:
        if wanted == "webgpu":
            raise
        return None
    if wanted == "webgpu" or not device.info.is_software:
        return device
    device.destroy()
    return None


def open_cpu(wanted: str, threads: int | None) -> Any:
    """The host of the CPU kernels; for "auto" None, and a word about it, where they cannot run."""
    try:
        from bridge.simd.wasmtime_host import WasmtimeHost

        return WasmtimeHost(threads)
    except ImportError as error:
        reason = _missing(error, "the simd backend")
    except UnsupportedError as error:
        reason = error
    if wanted == "simd":
        raise reason
    print(f"bridge: computing with the slow reference backend: {reason}", file=sys.stderr)
    return None


def _missing(error: ImportError, what: str) -> UnsupportedError:
    return UnsupportedError(f"{what} needs the {error.name} package; install this one with its 'native' extra")


def trained_ctx(file) -> int:
    """The context the model was trained for, at most DEFAULT_CTX tokens."""
    trained = file.metadata.get(f"{file.architecture}.context_length")
    usable = isinstance(trained, int) and not isinstance(trained, bool) and trained > 0
    return min(trained, DEFAULT_CTX) if usable else DEFAULT_CTX


class Progress:
    """``progress(loaded, total)`` in bytes, shown on a terminal and nowhere else."""

    def __init__(self, stream: TextIO):
        self._stream = stream if stream.isatty() else None
        self._percent = -1

    def __call__(self, loaded: int, total: int) -> None:
        percent = 100 * loaded // max(total, 1)
        if self._stream and percent != self._percent:
            self._percent = percent
            print(f"\rloading {percent} % of {total / 1e6:.0f} MB", end="", file=self._stream, flush=True)

    def clear(self) -> None:
        if self._stream and self._percent >= 0:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
