"""The one model a bridge has loaded, and how it is replaced: the old one goes before the new one is fetched."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from bridge.errors import BridgeError, Cancelled, DeviceError, FormatError, InputError, ModelError, SourceError
from bridge.gguf import shard_names
from bridge.host.engine import Engine
from bridge.host.notes import RuntimeNotes
from bridge.host.options import LoadRequest, load_request
from bridge.host.ticker import Ticker
from bridge.runtime import CancelToken, Model
from bridge.runtime.estimate import estimate_memory

INITIAL_N_CTX = 4096
PROGRESS_S = 0.1
"""How often the bytes received are looked at, also while the header is read, before any weight is."""
CACHE_SUSPECTS = (FormatError, ModelError, SourceError)
"""Failures of a load that may be those of a cache entry which was cut off, altered, or never a model."""
FILE_CHANGED = "FILE_CHANGED"
"""The code of a transfer whose file became another one before it was complete."""
NOT_LOADED = "No model loaded. Call loadModelFromUrl first."

Progress = Callable[[Mapping[str, int]], None]


@dataclass(frozen=True)
class Loaded:
    """``source`` and ``options`` are the load's own; ``facts``: where the bytes came from and what became of the cache
    (see bridge.host.sources.PageSource)."""

    model: Model
    source: Any
    options: Mapping[str, Any]
    facts: Mapping[str, Any]


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

    async def load(self, source: Any, options: Mapping[str, Any], progress: Progress, cancel: CancelToken) -> None:
        """Replace the model. What is wrong with the arguments leaves the old one; any later failure leaves none."""
        urls = model_urls(source)
        try:
            request = load_request(options, self._config, self.n_ctx)
        except BridgeError as error:
            raise load_error(error) from error
        cancel.check()
        await self._release_previous()
        self._notes.extend(request.notes)
        files = {**options, "cacheName": cache_name(options, self._config)}
        try:
            model, facts = await self._load_files(urls, request, files, progress, cancel)
        except _StartAgain:
            files["force"] = True
            model, facts = await self._load_files(urls, request, files, progress, cancel, is_last=True)
        self.loaded, self.n_ctx = Loaded(model, source, options, facts), model.n_ctx
        if model.backend_name != "simd":
            self._engine.drop_cpu()
        if request.gpu_layers:
            self._notes.add("gpu_layers_whole_model", request.gpu_layers)

    async def _load_files(self, urls: Sequence[str], request: LoadRequest, options: Mapping[str, Any], progress: Progress,
                          cancel: CancelToken, is_last: bool = False) -> tuple[Model, Mapping[str, Any]]:
        """The model and where its bytes came from. Files are kept in the cache when the model is there, not before.

        Raises _StartAgain, unless this try ``is_last``, where another one may succeed.
        """
        source = await self._engine.open_source(urls, options, cancel)
        report = PercentProgress(progress, source.shards)
        try:
            with Ticker(PROGRESS_S, lambda: report(source.received, source.size)):
                model = await self._engine.load_model(
                    source, request.options, devices=self._engine.device,
                    cpus=lambda: self._engine.cpu(request.pool, request.memory64), progress=report, cancel=cancel)
            await source.commit()
            return model, source.facts
        except BridgeError as error:
            cancel.check()  # whatever broke when the transfer was cut off
            self.note_failure(error)
            if not is_last and await self._may_start_again(source, error):
                raise _StartAgain from error
            raise load_error(error) from error
        finally:
            self._notes.extend(source.facts["notes"])
            source.close()

    async def _may_start_again(self, source: Any, error: BridgeError) -> bool:
        """Whether the fault was a file that changed on the way, or the cache's, which is then emptied of the model."""
        if source.facts["anyFromCache"] and isinstance(error, CACHE_SUSPECTS):
            await source.discard()
            self._notes.add("model_cache_entry_dropped")
            return True
        if error.code == FILE_CHANGED:
            self._notes.add("model_file_changed_restarted")
            return True
        return False

    async def estimate(self, source: Any, options: Mapping[str, Any], cancel: CancelToken) -> dict[str, Any]:
        """What a load would take, from the header alone; the loaded model has no part in it."""
        urls = model_urls(source)
        try:
            request = load_request(options, self._config, self.n_ctx)
            options = {**options, "cacheName": cache_name(options, self._config)}
            source = await self._engine.open_source(urls, options, cancel)
            try:
                estimate = await estimate_memory(source, request.options)
            finally:
                source.close()
        except BridgeError as error:
            cancel.check()
            raise load_error(error) from error
        return {
            "architecture": estimate.architecture, "nCtx": estimate.n_ctx, "nCtxTrain": estimate.n_ctx_train,
            "fileBytes": estimate.file, "weightBytes": estimate.weights, "cacheBytes": estimate.cache,
            "scratchBytes": estimate.scratch, "totalBytes": estimate.total,
        }

    async def move_to_cpu(self, progress: Progress, cancel: CancelToken) -> Model:
        """The same model on the CPU, with the options of its load; a failure leaves no model."""
        loaded = self.loaded
        assert loaded is not None
        attempt = "generation_recovery_cpu_attempt"
        try:
            await self.load(loaded.source, {**loaded.options, "nGpuLayers": 0, "force": False}, progress, cancel)
        except BridgeError:
            self._notes.extend((attempt, "generation_recovery_cpu_failed"))
            raise
        self._notes.extend((attempt, "generation_recovery_cpu_applied"))
        return self.model

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


class _StartAgain(Exception):
    """The load failed for a reason that is gone by now: fetch everything anew."""


class PercentProgress:
    """Passes on a report when the whole percentage grows, and the last one; with the shard it has come to, if there are any."""

    def __init__(self, report: Progress, shards: Sequence[int] = ()) -> None:
        self._report = report
        self._ends = list(accumulate(shards))
        self._percent = -1

    def __call__(self, loaded: int, total: int | None) -> None:
        percent = 100 * loaded // total if total else loaded >> 20  # of an unknown total: mebibytes
        if percent > self._percent:
            self._percent = percent
            shard = sum(end < loaded for end in self._ends) + 1
            place = {"shard": shard, "shards": len(self._ends)} if self._ends else {}
            self._report({"loaded": loaded, "total": total or loaded, **place})


def model_urls(source: Any) -> list[str]:
    """The files of a model: one URL, all of a split set where it is one of them, or a list as it is. Raises InputError."""
    given = source if isinstance(source, list) else [source]
    urls = [url for url in given if isinstance(url, str) and url]
    if not urls:
        raise InputError("Model URL is empty.")
    shards = shard_names(urls[0]) if len(urls) == 1 else None
    return shards[0] if shards else urls


def cache_name(options: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """The name that the call or the bridge gives the cache; empty where the default one is meant."""
    names = (options.get("cacheName"), config.get("cacheName"))
    return next((name.strip() for name in names if isinstance(name, str) and name.strip()), "")


def load_error(error: BridgeError) -> BridgeError:
    """The same failure in the words a page expects of a load; its code stays."""
    if isinstance(error, Cancelled | SourceError):
        return error
    failure = BridgeError(f"Failed to load GGUF model: {error}")
    failure.code = error.code
    return failure
