"""The one model a bridge has loaded, and how it is replaced: the old one goes before the new one is fetched."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bridge.errors import BridgeError, Cancelled, DeviceError, InputError, SourceError, UnsupportedError
from bridge.host.engine import Engine
from bridge.host.notes import RuntimeNotes
from bridge.host.options import LoadRequest, load_request
from bridge.host.ticker import Ticker
from bridge.runtime import CancelToken, Model

INITIAL_N_CTX = 4096
PROGRESS_S = 0.1
"""How often the bytes received are looked at, also while the header is read, before any weight is."""
SPLIT_NAME = re.compile(r"-\d{4,6}-of-(\d{4,6})\.gguf$", re.IGNORECASE)
NOT_LOADED = "No model loaded. Call loadModelFromUrl first."


@dataclass(frozen=True)
class Loaded:
    model: Model
    request: LoadRequest


class ModelSlot:
    """Holds the loaded model, or none. ``n_ctx`` is the context size that a load without one asks for."""

    def __init__(self, engine: Engine, config: Mapping[str, Any], notes: RuntimeNotes) -> None:
        self._engine, self._config, self._notes = engine, config, notes
        self._device_failed = False
        self.n_ctx = INITIAL_N_CTX
        self.loaded: Loaded | None = None

    @property
    def model(self) -> Model:
        """The loaded model; raises InputError without one."""
        if self.loaded is None:
            raise InputError(NOT_LOADED)
        return self.loaded.model

    async def load(self, source: Any, options: Mapping[str, Any], progress: Callable[[int, int], None],
                   cancel: CancelToken) -> None:
        """Replace the model. What is wrong with the arguments leaves the old one; any later failure leaves none."""
        url = single_url(source)
        try:
            request = load_request(options, self._config, self.n_ctx)
        except BridgeError as error:
            raise load_error(error) from error
        cancel.check()
        await self._release_previous()
        self._notes.extend(request.notes)
        source = await self._engine.open_source(url, options, cancel)
        report = PercentProgress(progress)
        try:
            with Ticker(PROGRESS_S, lambda: report(source.received, source.size)):
                model = await self._engine.load_model(
                    source, request.options, devices=self._engine.device,
                    cpus=lambda: self._engine.cpu(request.pool, request.memory64), progress=report, cancel=cancel)
        except BridgeError as error:
            cancel.check()  # whatever broke when the transfer was cut off
            self.note_failure(error)
            raise load_error(error) from error
        finally:
            source.close()
        self.loaded, self.n_ctx = Loaded(model, request), model.n_ctx
        if model.backend_name != "simd":
            self._engine.drop_cpu()
        if request.gpu_layers:
            self._notes.add("gpu_layers_whole_model", request.gpu_layers)

    async def release(self) -> None:
        """Free the model and its memory; harmless without one."""
        loaded, self.loaded = self.loaded, None
        if loaded is not None:
            await loaded.model.close()

    def note_failure(self, error: BridgeError) -> None:
        """After a failure of the device the next load starts on a new one."""
        self._device_failed = self._device_failed or error.code == DeviceError.code

    async def _release_previous(self) -> None:
        had_model = self.loaded is not None
        await self.release()
        if self._device_failed:
            self._engine.drop_device()
            self._engine.drop_cpu()
            self._device_failed = False
        self._notes.clear()
        self._notes.extend(self._engine.notes)
        if had_model:
            self._notes.add("previous_model_released")


class PercentProgress:
    """Passes on a report when the whole percentage grows, and the last one."""

    def __init__(self, report: Callable[[int, int], None]) -> None:
        self._report = report
        self._percent = -1

    def __call__(self, loaded: int, total: int | None) -> None:
        percent = 100 * loaded // total if total else loaded >> 20  # of an unknown total: mebibytes
        if percent > self._percent:
            self._percent = percent
            self._report(loaded, total or loaded)


def single_url(source: Any) -> str:
    """The URL of a model in one file; raises InputError for none and UnsupportedError for a set of shards."""
    urls = source if isinstance(source, list) else [source]
    urls = [url for url in urls if isinstance(url, str) and url]
    if not urls:
        raise InputError("Model URL is empty.")
    match = SPLIT_NAME.search(urls[0].split("?")[0].split("#")[0])
    shards = max(len(urls), int(match[1]) if match else 1)
    if shards > 1:
        raise UnsupportedError(f"Failed to load GGUF model: a model split into {shards} files is not available in this "
                               "build; merge the files into one.")
    return urls[0]


def load_error(error: BridgeError) -> BridgeError:
    """The same failure in the words a page expects of a load; its code stays."""
    if isinstance(error, Cancelled | SourceError):
        return error
    failure = BridgeError(f"Failed to load GGUF model: {error}")
    failure.code = error.code
    return failure
