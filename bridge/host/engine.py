"""What the host asks of its surroundings: model bytes, a device, packages, and a way to load a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from bridge.runtime import CancelToken


class Engine(Protocol):
    notes: list[str]
    """Runtime notes of the start-up."""

    async def open_source(self, urls: Sequence[str], options: Mapping[str, Any], cancel: CancelToken) -> Any:
        """A source for ``load_model``, with ``received`` (bytes so far), ``facts`` of the cache, ``commit()``, ``discard()``
        and ``close()`` (see bridge.host.sources.PageSource).

        Raises SourceError, and Cancelled when cancelled meanwhile.
        """

    async def device(self) -> Any:
        """The device to compute on; the same for every load, until it is lost or ``drop_device``."""

    def drop_device(self) -> None:
        """Destroy the device, so that the next load gets a new one; harmless without one."""

    async def cpu(self, pool: int | None, memory64: bool | None) -> Any:
        """The host of the CPU backend, with ``pool`` threads (None: the engine chooses); the same until ``drop_cpu``.

        Raises UnsupportedError and DeviceError.
        """

    def drop_cpu(self) -> None:
        """Free the memory of the CPU backend and end its threads; harmless without one."""

    async def load_package(self, name: str) -> None:
        """Make a Python package importable that is not loaded at start-up. Raises SourceError."""

    def counters(self) -> dict[str, int]:
        """Live and total objects, to show that nothing leaks."""

    load_model: Any
    """``bridge.runtime.load_model``."""
