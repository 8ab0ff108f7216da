"""Known answers, computed on the live device with the model's own pipelines, before any weight is downloaded.

Drivers and shader compilers go wrong in ways that raise no error: a half that loses its subnormals, a shift by the wrong
amount, a barrier that is no barrier. Each block format of the plan decodes a few blocks, in every kernel that uses it, and
one small attention runs; what comes out must be what numpy computed when ``selftest.json`` was made
(``tools/make_gpu_selftest.py``). All of it is one submit.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from bridge.errors import DeviceError
from bridge.gpu.calls import Call, CallBuilder, Choice, Operand, Pipeline, quads
from bridge.gpu.device import Device, Dispatch, Limits
from bridge.gpu.formats import grid_bytes
from bridge.gpu.selftest_cases import N_ROWS, N_TOKENS, Case, cases_of, rope_table, rows_of
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import Tuning
from bridge.gpu.weights import place_weights
from bridge.graph.cache import QUANTISED, CacheLayout
from bridge.graph.graph import KvLayer
from bridge.plan.batch import BatchLayout
from bridge.plan.plan import Plan, Step, constant

WRITERS = ("kv_write", "write_heads")
TOLERANCE = 1e-3
"""Of the largest expected value of a row: far above rounding, far below any mistake."""
TOLERANCE_OF_SCALED = 2e-2
"""The same for products of elements that were rounded to bytes or halves (kernels/wgsl/matmul_scaled_blocks.wgsl)."""


async def self_test(device: Device, plan: Plan, tuning: Tuning, pipelines: Mapping[Pipeline, Any],
                    types: tuple[str, str], n_ctx: int) -> None:
    """Raise DeviceError when the device computes something else; ``pipelines`` are those compiled for the plan.

    ``types`` are those of the cache's K and V, ``n_ctx`` its positions; what is written to a quantised one has
    no one right answer.
    """
    is_rounded = bool(set(types) & set(QUANTISED))
    cases = [case for case in cases_of(plan) if not (is_rounded and any(step.kernel in WRITERS for step in case.steps))]
    run = _Run(device, tuning, pipelines, types, n_ctx, cases)
    try:
        results = await run.results()
    finally:
        device.free(run.handles)
    for what, case, rows, tolerance in results:
        _compare(what, case, rows, tolerance)


def _compare(what: str, case: Case, rows: Sequence[Sequence[float]], tolerance: float) -> None:
    for row, expected in zip(rows, case.expected, strict=True):
        allowed = tolerance * max(map(abs, expected))
        for column, value in zip(case.columns, expected, strict=True):
            if not abs(row[column] - value) <= allowed:  # not: also when it is no number
                raise DeviceError(f"this device computes wrong results: in the self-test of {what} it gave "
                                  f"{row[column]:.6g} for {value:.6g}")


class _Run:
    """One program for all cases; every output has a region of one buffer, so that one copy brings them all back."""

    def __init__(self, device: Device, tuning: Tuning, pipelines: Mapping[Pipeline, Any], types: tuple[str, str],
                 n_ctx: int, cases: Sequence[Case]) -> None:
        self.handles: list[Any] = []
        self._device, self._pipelines = device, pipelines
        steps = tuple(step for case in cases for step in case.steps)
        layers = {number: layer for case in cases for number, layer in case.layers.items()}
        kv_layers = tuple(layers.get(i, KvLayer(0, 0, 0)) for i in range(max(layers, default=-1) + 1))
        tables = {s.attrs["q"]["table"]: rope_table(s.attrs["q"]["n_rot"]) for s in steps if s.kernel == "write_heads"}
        plan = Plan(steps, (), {}, 0, tables, kv_layers)
        self._layout = BatchLayout(plan)
        self._cache = CacheLayout(plan.kv_layers, n_ctx, N_TOKENS, *types)
        self._builder = CallBuilder(plan, place_weights(plan, Limits()), tuning, cache=self._cache,
                                    max_workgroups=device.limits.max_compute_workgroups_per_dimension)
        self._cases = cases
        self._buffers: dict[Operand, Any] = {}
        self._size = 0  # of the results buffer
        self._regions: list[tuple[str, Case, float, int]] = []
        self._planned: list[tuple[Any, Any, list[tuple[Any, int, int | None] | None]]] = []

    async def results(self) -> list[tuple[str, Case, list[Sequence[float]], float]]:
        """(name, case, rows of its output, how far off they may be) of every variant of every case."""
        for case in self._cases:
            for slot, data in case.inputs.items():
                self._buffers[Operand("slot", slot)] = self._filled(data)
            for name, values in case.vectors.items():
                self._buffers[Operand("vector", name)] = self._filled(array("f", values).tobytes())
            for step in case.steps[:-1]:
                if step.output is not None:
                    self._buffers[Operand("slot", step.output)] = self._made(N_TOKENS * 16 * quads(step.width))
                self._plan_step(case, step)
            self._plan_step(case, case.steps[-1])
        data = await self._replay()
        found = []
        for what, case, tolerance, offset in self._regions:
            stride = 4 * quads(case.steps[-1].width)
            rows = [data[offset // 4 + t * stride:offset // 4 + (t + 1) * stride] for t in range(N_TOKENS)]
            found.append((what, case, rows, tolerance))
        return found

    def _plan_step(self, case: Case, step: Step) -> None:
        calls = calls_of(self._builder, step)
        for n_splits in sorted({call.splits_from for call in calls}):
            *before, last = [call for call in calls if call.takes(N_TOKENS, n_splits)]
            for call in before:
                self._plan_call(case, call, call.choices[0])
            for choice in last.choices:
                self._plan_call(case, last, choice, step if step is case.steps[-1] else None)

    def _plan_call(self, case: Case, call: Call, choice: Choice, last: Step | None = None) -> None:
        """``last``: the step of which the call is the end, if that is the case's result."""
        if choice.pipeline not in self._pipelines:  # formats that the plan has only together, or only apart
            return
        entries: list[Any] = []
        for operand in call.operands:
            if last and operand == Operand("slot", last.output):
                entries.append((None, self._size, N_TOKENS * 16 * quads(last.width)))
            else:
                entries.append((self._buffer(operand), 0, None))
        if last:
            tolerance = TOLERANCE_OF_SCALED if dict(choice.pipeline.values).get("SCALED") else TOLERANCE
            self._regions.append((f"{case.what} ({choice.pipeline.label})", case, tolerance, self._size))
            alignment = self._device.limits.min_storage_buffer_offset_alignment
            self._size += -(-N_TOKENS * 16 * quads(last.width) // alignment) * alignment
        rows = -(-N_TOKENS * call.repeat // choice.tile)
        self._planned.append((call, Dispatch(choice.pipeline, None, (choice.columns, rows, 1)), entries))

    async def _replay(self) -> memoryview:
        device = self._device
        results, params = self._made(self._size), self._made(self._layout.nbytes(N_TOKENS, 0))
        alignment = device.limits.min_uniform_buffer_offset_alignment
        stride = -(-max(len(call.dims) for call, _, _ in self._planned) // alignment) * alignment
        dims = self._made(stride * len(self._planned), uniform=True)
        device.write_buffer(dims, 0, b"".join(call.dims.ljust(stride, b"\0") for call, _, _ in self._planned))
        dispatches = []
        for i, (call, dispatch, entries) in enumerate(self._planned):
            constants = (dims, i * stride, -(-len(call.dims) // 16) * 16)
            bound = [(results if buffer is None else buffer, offset, size) for buffer, offset, size in entries]
            group = device.create_bind_group(dispatch.pipeline.bindings, [constants, (params, 0, None), *bound],
                                             f"self-test {call.name}")
            self.handles.append(group)
            dispatches.append(Dispatch(self._pipelines[dispatch.pipeline], group, dispatch.workgroups))
        readback = device.create_readback(results, self._size, self._size, 1)
        program = device.create_program(dispatches, params, readback)
        self.handles += [readback, program]
        await device.check()
        tokens = [t % N_ROWS for t in range(N_TOKENS)]
        return await device.run(program, self._layout.pack(tokens, 0, []), 1)

    def _buffer(self, operand: Operand) -> Any:
        if operand not in self._buffers:
            if operand.kind == "matrix":
                self._buffers[operand] = self._filled(self._rows(operand))
            elif operand.kind == "grid":
                self._buffers[operand] = self._filled(grid_bytes(operand.key))
            elif operand.kind == "constant":
                self._buffers[operand] = self._filled(constant(operand.key).tobytes())
            elif operand.kind == "partials":
                self._buffers[operand] = self._made(N_TOKENS * operand.key)
            else:  # a cache, of which the first rows are used
                part = self._cache.parts[2 * operand.key + (operand.kind == "v")]
                self._buffers[operand] = self._made(N_TOKENS * part.row_nbytes)
        return self._buffers[operand]

    def _rows(self, operand: Operand) -> bytes:
        """What a matrix's buffer holds: the rows of its format, for each tensor that shares it."""
        part = self._builder.placement.matrices[operand.key].parts[operand.part]
        data = bytearray(part.buffer_nbytes)
        for piece in part.pieces:
            rows = rows_of(piece.weight.type, piece.weight.shape[-1])
            data[piece.offset:piece.offset + len(rows)] = rows
        return bytes(data)

    def _made(self, size: int, uniform: bool = False) -> Any:
        buffer = self._device.create_buffer(size, uniform=uniform, label="self-test")
        self.handles.append(buffer)
        return buffer

    def _filled(self, data: bytes) -> Any:
        buffer = self._made(len(data))
        self._device.write_buffer(buffer, 0, data.ljust(-(-len(data) // 4) * 4, b"\0"))
        return buffer
