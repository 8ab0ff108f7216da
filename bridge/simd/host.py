"""The machine the CPU backend computes on, as a protocol with two implementations: one WebAssembly memory and a team of
threads on it.

``js_host`` drives web/simd_host.js from Pyodide, ``wasmtime_host`` the ``wasmtime`` package under CPython. Addresses
are bytes; "units" are 16 bytes, so that 32 bits reach beyond 4 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

PAGE = 1 << 16
UNIT = 16
MODULE_BYTES = 1 << 20
"""Kept free at the start of the memory for the module's own data and its first thread's stack."""
MAX_BYTES_32 = 65535 * PAGE
"""What 32-bit addresses are used for: all but the last page, so that no end address overflows."""
MAX_BYTES_64 = 262144 * PAGE
"""What Chromium lets a memory with 64-bit addresses become."""
STACK_BYTES = 1 << 16
"""Of each thread; the stacks follow those first bytes."""
MAX_THREADS = 128

MAX_SELECTED = 2048
"""Most tokens that are looked for in the logits at once (kernels/simd/select.c)."""

DOTS_SIGNED, DOTS_UNSIGNED, DOTS_SATURATE = range(3)
"""How the machine computes relaxed dot products of bytes (kernels/simd/blocks.h)."""


def first_free_byte(n_threads: int) -> int:
    """Where a model's memory begins, behind the module's data and the stacks."""
    return MODULE_BYTES + STACK_BYTES * n_threads


@dataclass(frozen=True)
class Matrix:
    """Rows of a tensor to be interleaved at unit ``to``: the arguments of ``repack``, see kernels/simd/repack.c."""

    layout: int
    type_id: int
    block_size: int
    type_size: int
    grid: int
    n_in: int
    to: int


@dataclass(frozen=True)
class Vector:
    """Numbers of a tensor to be widened to float32 at unit ``to``; ``layout`` says how the file stores them."""

    layout: int
    to: int


@dataclass(frozen=True)
class Span:
    """``length`` bytes of the file from ``offset``, taken ``step`` bytes at a time (four rows, one number); the last
    step may be shorter by whole ``row`` bytes."""

    offset: int
    length: int
    name: str
    step: int
    row: int
    target: Matrix | Vector


@dataclass(frozen=True)
class Job:
    """A program in memory and what its runs need: units of its records, of the parameters as the caller writes them
    (mail) and as they are read, and of the threads' scratch memory.

    The result is rows of ``row_nbytes`` bytes, ``row_stride`` bytes apart from address ``result``; at address
    ``selected`` there is room for MAX_SELECTED of its numbers and their indices.
    """

    program: int
    n_ops: int
    mail: int
    params: int
    scratch: int
    scratch_units: int
    result: int
    row_nbytes: int
    row_stride: int
    selected: int


@dataclass
class Counters:
    """Totals, to prove that memory is reused and nothing is made per token."""

    memory_bytes: int = 0
    """Of the WebAssembly memory now."""
    memories: int = 0
    """WebAssembly memories ever made."""
    threads: int = 0
    """Threads now alive beside the caller's own."""
    runs: int = 0
    calls: int = 0
    """Calls that crossed from Python to JavaScript (0 under CPython)."""


class Host(Protocol):
    n_threads: int
    """Most threads in one run."""
    is_shared: bool
    """Whether threads are possible at all; a page must be cross-origin isolated."""
    max_bytes: int
    """The largest memory this machine can be asked for."""
    prefers_memory64: bool
    """Whether 64-bit addresses were asked for, for all models: there may be none."""
    edition: int
    """See bridge.simd.program."""
    has_relaxed: bool
    dot_mode: int
    @property
    def variant(self) -> str:
        """Name of the module in use (tools/build_simd.py), such as "relaxed-threads"; 64 in it: of 64-bit addresses."""

    @property
    def counters(self) -> Counters: ...

    async def reserve(self, nbytes: int) -> None:
        """Make the memory at least ``nbytes`` large; it may be the one of the last model, with what that left in it.

        Raises DeviceError when the machine refuses.
        """

    def write(self, address: int, data: Any) -> None:
        """Copy bytes into the memory."""

    def read(self, address: int, nbytes: int) -> bytes:
        """Copy bytes out of the memory."""

    async def upload(self, source: Any, spans: Sequence[Span], staging: int, staging_nbytes: int, progress: Any,
                     cancel: Any) -> None:
        """Stream file bytes through ``staging`` to their targets, in one pass over the (sorted) spans.

        ``progress(loaded, total)`` counts bytes of the file; ``cancel`` is a bridge.runtime CancelToken.
        """

    async def run(self, job: Job, params: bytes, n_threads: int, n_rows: int) -> Any:
        """Copy in the parameters, run the job, and return ``n_rows`` rows of the result as float32, None for none.

        It is valid until the next run. Lets other tasks of the event loop run first. Raises DeviceError.
        """

    def release(self) -> None:
        """The model is gone: the memory may be given back or kept for the next one."""

    def close(self) -> None:
        """Free the memory and end the threads; may be called twice."""
