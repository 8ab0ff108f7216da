"""How fast a device copies memory and does float32 arithmetic: what the times of kernels are held against.

Measured with kernels that do nothing else (kernels/wgsl/bench_copy.wgsl, bench_multiply_add.wgsl).
"""

from __future__ import annotations

import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from bridge.bench.program_timer import ProgramTimer
from bridge.gpu.calls import pack
from bridge.gpu.device import Device, Dispatch
from bridge.gpu.wgsl import kernel_source

WORKGROUP = 256
COPY_ITEMS = 4
COPY_NBYTES = 256 << 20
"""Above the caches of any GPU; of each of two buffers."""
SOFTWARE_COPY_NBYTES = 32 << 20
CHAINS = 8
ITERATIONS = 1024
WORKGROUPS = 4096
SOFTWARE_WORKGROUPS = 16


@dataclass(frozen=True)
class DeviceSpeed:
    """``copy``: bytes read and written per second by a copy; ``peak``: float32 operations per second; ``dispatch``:
    seconds that one that computes nothing adds to a submission, as the host sees it."""

    copy: float
    peak: float
    dispatch: float

    def figures(self) -> dict[str, float]:
        """As they are told."""
        return {"copy_gb_per_second": round(self.copy / 1e9, 3), "peak_f32_gflops": round(self.peak / 1e9, 3),
                "dispatch_microseconds": round(1e6 * self.dispatch, 2)}


async def measure_device(device: Device, timer: ProgramTimer) -> DeviceSpeed:
    return DeviceSpeed(await _copy_speed(device, timer), await _peak_speed(device, timer), await _dispatch_time(device))


async def _copy_speed(device: Device, timer: ProgramTimer) -> float:
    limits, wanted = device.limits, SOFTWARE_COPY_NBYTES if device.info.is_software else COPY_NBYTES
    nbytes = min(wanted, limits.max_storage_buffer_binding_size, limits.max_buffer_size) // 16 * 16
    quads = nbytes // 16
    workgroups = -(-quads // (WORKGROUP * COPY_ITEMS))
    async with _dispatch(device, "bench_copy.wgsl", ("read", "write"), (nbytes, nbytes), pack(quads), workgroups,
                         ITEMS=COPY_ITEMS) as (dispatch, params):
        return 2 * nbytes / await timer.seconds([dispatch], params, bytes(4))


async def _peak_speed(device: Device, timer: ProgramTimer) -> float:
    workgroups = SOFTWARE_WORKGROUPS if device.info.is_software else WORKGROUPS
    dims = pack(ITERATIONS, 0.999, 0.001)
    flop, best = 2 * 4 * CHAINS * ITERATIONS * WORKGROUP * workgroups, 0.0
    for fused in (True, False):  # some compilers make calls of fma, others fuse nothing by themselves
        sizes = (16 * WORKGROUP * workgroups,)
        async with _dispatch(device, "bench_multiply_add.wgsl", ("write",), sizes, dims, workgroups,
                             CHAINS=CHAINS, FUSED=fused) as (dispatch, params):
            best = max(best, flop / await timer.seconds([dispatch], params, bytes(4)))
    return best


async def _dispatch_time(device: Device) -> float:
    timer = ProgramTimer(device, time.perf_counter)
    try:
        async with _dispatch(device, "bench_copy.wgsl", ("read", "write"), (16, 16), pack(0), 1, ITEMS=1) as prepared:
            nothing, params = prepared
            return await timer.seconds([nothing], params, bytes(4))
    finally:
        timer.close()


@asynccontextmanager
async def _dispatch(device: Device, file: str, access: tuple[str, ...], sizes: tuple[int, ...], dims: bytes,
                    workgroups: int, **values: int):
    """A dispatch of a kernel on buffers of its own, and its parameter buffer; they are freed at the end."""
    most, handles = device.limits.max_compute_workgroups_per_dimension, []

    def made(size: int, uniform: bool = False) -> Any:
        handles.append(device.create_buffer(size, uniform=uniform, label=file))
        return handles[-1]

    try:
        source = kernel_source(file, {"WORKGROUP": WORKGROUP, "MAX_WORKGROUPS": most, **values})
        bindings = ("uniform", "read", *access)
        pipeline = await device.create_pipeline(source, file, bindings)
        constants, params = made(16, uniform=True), made(4)
        device.write_buffer(constants, 0, dims.ljust(16, b"\0"))
        entries = [(constants, 0, 16), (params, 0, None), *((made(size), 0, None) for size in sizes)]
        handles.append(device.create_bind_group(bindings, entries, file))
        await device.check()
        yield Dispatch(pipeline, handles[-1], (min(workgroups, most), 1, -(-workgroups // most))), params
    finally:
        device.free(handles)
