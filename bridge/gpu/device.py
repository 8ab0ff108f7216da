"""The device the WebGPU backend computes on, as a protocol with two implementations.

``js_device`` drives ``navigator.gpu`` from Pyodide, ``wgpu_device`` the ``wgpu`` package under CPython. Both speak core
WebGPU only. Handles (buffers, pipelines, bind groups, programs) are opaque to the rest of the backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Limits:
    """The WebGPU limits that matter here, in bytes or counts; defaults are those every adapter has."""

    max_buffer_size: int = 256 << 20
    max_storage_buffer_binding_size: int = 128 << 20
    max_storage_buffers_per_shader_stage: int = 8
    max_compute_workgroup_storage_size: int = 16 << 10
    max_compute_invocations_per_workgroup: int = 256
    max_compute_workgroups_per_dimension: int = 65535
    min_storage_buffer_offset_alignment: int = 256
    min_uniform_buffer_offset_alignment: int = 256


@dataclass(frozen=True)
class AdapterInfo:
    """What the adapter says of itself; strings may be empty. ``is_software`` is our judgement from them."""

    vendor: str = ""
    architecture: str = ""
    device: str = ""
    description: str = ""
    is_software: bool = False


@dataclass
class Counters:
    """Live objects and totals, to prove that nothing leaks and nothing is created per token."""

    buffers: int = 0
    buffer_bytes: int = 0
    created: int = 0
    """Buffers, pipelines, bind groups, shader modules ever created."""
    submits: int = 0
    maps: int = 0
    calls: int = 0
    """Calls that crossed from Python to JavaScript (0 under CPython)."""


@dataclass(frozen=True)
class Dispatch:
    """One prepared kernel call; ``workgroups`` is (x, y, z)."""

    pipeline: Any
    bind_group: Any
    workgroups: tuple[int, int, int]


@dataclass(frozen=True)
class Segment:
    """``length`` bytes of the file from ``offset`` that belong at ``target_offset`` of ``buffer`` (None: kept on the host)."""

    offset: int
    length: int
    buffer: Any
    target_offset: int
    name: str = field(default="")


class Device(Protocol):
    limits: Limits
    info: AdapterInfo
    features: frozenset[str]
    counters: Counters

    def create_buffer(self, size: int, *, uniform: bool = False, label: str = "") -> Any:
        """A zeroed storage (or uniform) buffer that can be written and copied; size is rounded up to 4 bytes."""

    def destroy_buffer(self, buffer: Any) -> None: ...

    def write_buffer(self, buffer: Any, offset: int, data: Any) -> None:
        """Offset and length must be multiples of 4."""

    async def create_pipeline(self, source: str, label: str) -> Any:
        """A compute pipeline of the WGSL ``source`` (entry point ``main``); raises DeviceError with the compiler's words."""

    def create_bind_group(self, pipeline: Any, entries: Sequence[tuple[Any, int, int | None]], label: str = "") -> Any:
        """Bindings 0 … of group 0: (buffer, byte offset, byte size or None for the rest)."""

    def create_program(self, dispatches: Sequence[Dispatch], params: Any, readback: tuple[Any, int, int] | None) -> Any:
        """A list of dispatches in one compute pass, ready to be replayed.

        ``params`` is the buffer that ``run`` fills first; ``readback`` (buffer, offset, size) is what it returns.
        """

    async def run(self, program: Any, params: bytes) -> memoryview | None:
        """Write ``params``, replay, submit once and, with a readback, map once; the view is valid until the next run.

        Raises DeviceError when the device was lost or an error was raised for the submission.
        """

    async def check(self) -> None:
        """Raise DeviceError for whatever creation since the last check went wrong (validation, out of memory)."""

    async def upload(self, source: Any, segments: Sequence[Segment], progress: Any, cancel: Any) -> dict[str, bytes]:
        """Stream file bytes into buffers in one sequential pass; returns the host segments by name."""

    def destroy(self) -> None:
        """Free every buffer and the device; may be called twice."""
