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
    """A model, and how long loading took."""

    model: Any
    load_ms: float


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

    started = time.perf_counter()
    with open_gguf(arguments.model) as file:
        backend, device = await choose_backend(arguments.backend)

        async def devices() -> Any:
            return device

        try:
            options = LoadOptions(n_ctx=arguments.ctx or trained_ctx(file), backend=backend, kv_type=arguments.kv)
            progress = Progress(sys.stderr)
            model = await load_model(AsyncSource(file.source), options, devices=devices, progress=progress)
            progress.clear()
            try:
                yield Loaded(model, (time.perf_counter() - started) * 1000)
            finally:
                await model.close()
        finally:
            if device:
                device.destroy()


async def choose_backend(wanted: str) -> tuple[str, Any]:
    """The backend's name, and for webgpu its opened device. "auto" takes a hardware adapter, else the reference."""
    if wanted in ("reference", "simd"):
        return wanted, None
    try:
        from bridge.gpu.wgpu_device import request_device

        device = await request_device()
    except ImportError as error:
        reason = f"WebGPU needs the {error.name} package; install this one with its 'native' extra"
        if wanted == "webgpu":
            raise UnsupportedError(reason) from error
    except DeviceError as error:
        reason = str(error)
        if wanted == "webgpu":
            raise
    else:
        if wanted == "webgpu" or not device.info.is_software:
            return "webgpu", device
        device.destroy()
        reason = "there is only a software adapter"
    print(f"bridge: computing with the slow reference backend: {reason}", file=sys.stderr)
    return "reference", None


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
