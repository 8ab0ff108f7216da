"""The device the WebGPU backend computes on, as a protocol with two implementations.

``js_device`` drives ``navigator.gpu`` from Pyodide, ``wgpu_device`` the ``wgpu`` package under CPython. Both speak core
WebGPU only. Handles (buffers, pipelines, bind groups, programs) are opaque to the rest of the backend.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bridge.gpu.pacing import Pacer


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
    """What the adapter says of itself; strings may be empty. ``is_software`` is our judgement from them.

    ``features`` are those of FEATURES that the device has; subgroups have at least ``subgroup_min_size`` invocations.
    """

    vendor: str = ""
    architecture: str = ""
    device: str = ""
    description: str = ""
    is_software: bool = False
    features: tuple[str, ...] = ()
    subgroup_min_size: int = 0


F16, SUBGROUPS, PACKED_DOT = FEATURES = ("shader-f16", "subgroups", "packed_4x8_integer_dot_product")
"""What kernels may use where it is there: two features of WebGPU and a language feature of WGSL."""

# Names under which software rasterisers appear, in any field and any case.
SOFTWARE_NAMES = ("swiftshader", "llvmpipe", "lavapipe", "softpipe", "basic render")


def is_software_adapter(info: AdapterInfo) -> bool:
    text = " ".join((info.vendor, info.architecture, info.device, info.description)).lower()
    return any(name in text for name in SOFTWARE_NAMES)


@dataclass
class Counters:
    """Live objects and totals, to prove that nothing leaks and nothing is created per token."""

    buffers: int = 0
    buffer_bytes: int = 0
    created: int = 0
    """Buffers, pipelines, bind groups ever created."""
    submits: int = 0
    dispatches: int = 0
    maps: int = 0
    bytes_read: int = 0
    """Bytes that came back from the device."""
    waits: int = 0
    """Times the host waited for the device: for bytes, for a batch under way, for an upload."""
    calls: int = 0
    """Calls that crossed from Python to JavaScript (0 under CPython)."""
    peak_bytes_in_flight: int = 0
    """Most bytes of a file that were held at once, by the host and in writes the device had not finished."""


@dataclass(frozen=True)
class Dispatch:
    """One prepared kernel call; ``workgroups`` is (x, y, z), ``cost`` what bridge.gpu.work says of it."""

    pipeline: Any
    bind_group: Any
    workgroups: tuple[int, int, int]
    cost: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Link:
    """Which word of a run's readback the next run of a chain has among its parameters, both as bytes from the beginning."""

    source: int
    target: int


@dataclass(frozen=True)
class Segment:
    """``length`` bytes of the file from ``offset`` that fill ``buffer`` from its byte ``at`` on.

    Without a buffer they go to the host. ``at`` is a multiple of 4; zeros follow when the length is not.
    """

    offset: int
    length: int
    buffer: Any
    name: str
    at: int = 0


class Device(Protocol):
    limits: Limits
    info: AdapterInfo
    counters: Counters
    pacer: Pacer
    notes: tuple[str, ...]
    """Runtime notes of how the device was had."""
    lost: str | None
    """Why the device is there no more; None while it is. A lost one fails every call but ``free`` and ``destroy``."""

    def create_buffer(self, size: int, *, uniform: bool = False, label: str = "") -> Any:
        """A zeroed storage (or uniform) buffer that can be written and copied; size is rounded up to 4 bytes."""

    def write_buffer(self, buffer: Any, offset: int, data: Any) -> None:
        """Offset and length must be multiples of 4."""

    async def read_buffer(self, buffer: Any, offset: int, nbytes: int) -> bytes:
        """A copy of what a buffer holds after everything submitted so far; offset and size must be multiples of 4.

        Raises DeviceError.
        """

    async def create_pipeline(self, source: str, label: str, bindings: Sequence[str]) -> Any:
        """A compute pipeline of the WGSL ``source`` (entry point ``main``), kept for the life of the device.

        ``bindings`` are "uniform", "read" or "write" for bindings 0 … of group 0. The same source gives the same pipeline.
        Raises DeviceError with the compiler's words.
        """

    def create_bind_group(self, bindings: Sequence[str], entries: Sequence[tuple[Any, int, int | None]], label: str) -> Any:
        """(buffer, byte offset, byte size or None for the rest) for each binding; fits every pipeline with those bindings."""

    def create_readback(self, buffer: Any, row_nbytes: int, row_stride: int, max_rows: int) -> Any:
        """Staging memory through which ``run`` returns rows of ``buffer``, where they begin ``row_stride`` bytes apart."""

    def create_program(self, dispatches: Sequence[Dispatch], params: Any, readback: Any = None) -> Any:
        """Dispatches in order, ready to be replayed; ``params`` is the buffer that ``run`` fills first."""

    def free(self, handles: Sequence[Any]) -> None:
        """Destroy buffers and readbacks, forget bind groups and programs."""

    async def run(self, program: Any, params: bytes, n_rows: int = 0, n_keys: int = 0) -> memoryview | None:
        """Write ``params``, replay and, for ``n_rows`` of the program's readback, map once.

        All is submitted at once, in one pass, unless ``pacer`` finds that this would keep the device too long, for a context
        of ``n_keys`` positions; then in pieces, of which two at most are under way. The rows come back to back as float32;
        the view is valid until the next run. Without rows it returns when all but the last piece is done.
        Raises DeviceError when the device was lost or found an error in what was submitted.
        """

    async def pass_seconds(self, program: Any, params: bytes) -> float | None:
        """Run a program once, in one submit, and return how long the device itself says it took, without what came before.

        None, and nothing is run, where the device has no clock that tells.
        """

    def interrupt(self) -> None:
        """End a ``run`` under way after the pieces submitted, if there are more: it raises Cancelled. Otherwise nothing."""

    def begin_chain(self, program: Any, params: Sequence[bytes], n_rows: int, link: Link) -> Any:
        """Submit what ``run`` would for each of ``params`` in turn, but that each run's linked word takes its place in the
        parameters of the next; all of it is short work, which is not cut.

        Returns what ``end_chain`` takes. The program's readback, which must have room for the rows of all runs, is in use
        until then. Raises DeviceError.
        """

    async def end_chain(self, chain: Any) -> memoryview:
        """The rows of every run of a chain, one run after the other, with one map; must be awaited once for each."""

    async def check(self) -> None:
        """Raise DeviceError for what went wrong in creating things since the last check (validation, out of memory)."""

    async def upload(self, source: Any, segments: Sequence[Segment], progress: Any, cancel: Any) -> dict[str, bytes]:
        """Stream file bytes into buffers in one sequential pass over the (sorted) segments; returns those for the host.

        ``progress(loaded, total)`` counts bytes of the file; ``cancel`` is a bridge.runtime CancelToken.
        """

    def destroy(self) -> None:
        """Free every buffer and the device; may be called twice."""
