"""Known answers, computed on the live device with the model's own pipelines, before any weight is downloaded.

Drivers and shader compilers go wrong in ways that raise no error: a half that loses its subnormals, a shift by the wrong
amount, a barrier that is no barrier. Each block format of the plan decodes a few blocks, in every kernel that uses it, and
one small attention runs; what comes out must be what numpy computed when ``selftest.json`` was made
(``tools/make_gpu_selftest.py``). All of it is one submit.
"""

from __future__ import annotations

import json
import struct
from array import array
from base64 import b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from bridge.errors import DeviceError
from bridge.gpu.calls import CallBuilder, Operand, Pipeline, kv_unit, quads, unit_of
from bridge.gpu.device import Device, Dispatch, Limits
from bridge.gpu.formats import grid_bytes
from bridge.gpu.steps import calls_of
from bridge.gpu.tuning import Tuning
from bridge.gpu.weights import place_weights
from bridge.graph.cache import CacheLayout
from bridge.graph.graph import ALL, TOKENS, KvLayer, Weight
from bridge.plan.batch import BatchLayout
from bridge.plan.plan import Plan, Step, constant

N_TOKENS = 5
N_ROWS = 3
N_USED = 2
N_HEAD, N_HEAD_KV = 4, 2
HEAD_DIMS = {4: 16, 2: 10}  # by the unit in which the cache is read
ENDS = 8
"""Elements at each end of a decoded row that are compared; products cover the others."""
TOLERANCE = 1e-3
"""Of the largest expected value of a row: far above rounding, far below any mistake."""


def input_value(token: int, column: int) -> float:
    """The inputs of every case: multiples of 1/16 below 1, exact in halves too."""
    return ((column * 7 + token * 13) % 31 - 15) / 16


def chosen_experts(token: int) -> list[int]:
    """Which weight rows stand for the experts of a token."""
    return [(token + e) % N_ROWS for e in range(N_USED)]


@dataclass(frozen=True)
class _Case:
    """Steps over slots of their own; the last one's output must have the ``expected`` rows in the given columns."""

    what: str
    steps: tuple[Step, ...]
    inputs: Mapping[int, bytes]
    columns: Sequence[int]
    expected: Sequence[Sequence[float]]


@cache
def _answers() -> dict[str, Any]:
    return json.loads(files("bridge.gpu").joinpath("selftest.json").read_text())


async def self_test(device: Device, plan: Plan, tuning: Tuning, pipelines: Mapping[Pipeline, Any], kv_type: str) -> None:
    """Raise DeviceError when the device computes something else; ``pipelines`` are those compiled for the plan."""
    used = dict.fromkeys((s.kernel, s.weights[0].type) for s in plan.steps
                         if s.kernel in _FORMAT_CASES and s.attrs.get("of", "tokens") == "tokens")
    cases = [_FORMAT_CASES[kernel](type_name, 10 * i) for i, (kernel, type_name) in enumerate(used)]
    if plan.kv_layers:
        cases.append(_attention_case(HEAD_DIMS[kv_unit(plan)], 10 * len(cases)))
    texts = {_text_variant(step) for step in plan.steps if step.kernel == "text_attention"}
    cases += [_text_attention_case(*variant, 10 * (len(cases) + i)) for i, variant in enumerate(sorted(texts))]
    run = _Run(device, tuning, pipelines, kv_type, cases)
    try:
        results = await run.results()
    finally:
        device.free(run.handles)
    for what, case, rows in results:
        _compare(what, case, rows)


def _compare(what: str, case: _Case, rows: Sequence[Sequence[float]]) -> None:
    for row, expected in zip(rows, case.expected, strict=True):
        allowed = TOLERANCE * max(map(abs, expected))
        for column, value in zip(case.columns, expected, strict=True):
            if not abs(row[column] - value) <= allowed:  # not: also when it is no number
                raise DeviceError(f"this device computes wrong results: in the self-test of {what} it gave "
                                  f"{row[column]:.6g} for {value:.6g}")


class _Run:
    """One program for all cases; every output has a region of one buffer, so that one copy brings them all back."""

    def __init__(self, device: Device, tuning: Tuning, pipelines: Mapping[Pipeline, Any], kv_type: str,
                 cases: Sequence[_Case]) -> None:
        self.handles: list[Any] = []
        self._device, self._pipelines = device, pipelines
        steps = tuple(step for case in cases for step in case.steps)
        kv_width = max(N_HEAD_KV * step.attrs.get("head_dim", 0) for step in steps)
        plan = Plan(steps, (), {}, 0, {}, (KvLayer(kv_width, kv_width, 0),))
        self._kv_nbytes = 4 * N_TOKENS * kv_width
        self._layout = BatchLayout(plan)
        cache = CacheLayout(plan.kv_layers, N_TOKENS, N_TOKENS, kv_type, kv_type)
        self._builder = CallBuilder(plan, place_weights(plan, Limits()), tuning, cache=cache,
                                    max_workgroups=device.limits.max_compute_workgroups_per_dimension)
        self._cases = cases
        self._buffers: dict[Operand, Any] = {}
        self._size = 0  # of the results buffer
        self._regions: list[tuple[str, _Case, int]] = []
        self._planned: list[tuple[Any, Any, list[tuple[Any, int, int | None] | None]]] = []

    async def results(self) -> list[tuple[str, _Case, list[Sequence[float]]]]:
        """(name, case, rows of its output) of every variant of every case."""
        for case in self._cases:
            for slot, data in case.inputs.items():
                self._buffers[Operand("slot", slot)] = self._filled(data)
            for step in case.steps:
                self._plan_step(case, step)
        data = await self._replay()
        found = []
        for what, case, offset in self._regions:
            stride = 4 * quads(case.steps[-1].width)
            rows = [data[offset // 4 + t * stride:offset // 4 + (t + 1) * stride] for t in range(N_TOKENS)]
            found.append((what, case, rows))
        return found

    def _plan_step(self, case: _Case, step: Step) -> None:
        (call,) = calls_of(self._builder, step)
        for choice in call.choices:
            entries: list[Any] = []
            for operand in call.operands:
                if operand == Operand("slot", step.output):
                    entries.append((None, self._size, N_TOKENS * 16 * quads(step.width)))
                else:
                    entries.append((self._buffer(operand), 0, None))
            if step.output is not None:
                self._regions.append((f"{case.what} ({choice.pipeline.label})", case, self._size))
                alignment = self._device.limits.min_storage_buffer_offset_alignment
                self._size += -(-N_TOKENS * 16 * quads(step.width) // alignment) * alignment
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
                self._buffers[operand] = self._filled(b64decode(_answers()["formats"][operand.key.split()[-1]]["rows"]))
            elif operand.kind == "grid":
                self._buffers[operand] = self._filled(grid_bytes(operand.key))
            elif operand.kind == "constant":
                self._buffers[operand] = self._filled(constant(operand.key).tobytes())
            elif operand.kind == "vector":
                self._buffers[operand] = self._made(4 * N_HEAD)
            else:  # a cache
                self._buffers[operand] = self._made(self._kv_nbytes)
        return self._buffers[operand]

    def _made(self, size: int, uniform: bool = False) -> Any:
        buffer = self._device.create_buffer(size, uniform=uniform, label="self-test")
        self.handles.append(buffer)
        return buffer

    def _filled(self, data: bytes) -> Any:
        buffer = self._made(len(data))
        self._device.write_buffer(buffer, 0, data.ljust(-(-len(data) // 4) * 4, b"\0"))
        return buffer


def _floats(text: str, width: int) -> list[Sequence[float]]:
    values = array("f", b64decode(text))
    return [values[i:i + width] for i in range(0, len(values), width)]


def _inputs(width: int) -> bytes:
    """Rows of inputs as a slot holds them, each a whole number of vec4s."""
    padding = [0.0] * (4 * quads(width) - width)
    return b"".join(array("f", [*(input_value(t, i) for i in range(width)), *padding]).tobytes() for t in range(N_TOKENS))


def _embed_case(type_name: str, slot: int) -> _Case:
    answers = _answers()["formats"][type_name]
    n_in, ends = answers["n_in"], _floats(answers["ends"], 2 * ENDS)
    weight = Weight(f"embed {type_name}", (N_ROWS, n_in), type_name)
    step = Step("embed", (), slot, (weight,), {"of": "tokens", "scale": 1.0}, TOKENS, n_in, weight.name)
    columns = [*range(ENDS), *range(n_in - ENDS, n_in)]
    return _Case(f"{type_name} rows", (step,), {}, columns, [ends[t % N_ROWS] for t in range(N_TOKENS)])


def _matmul_case(type_name: str, slot: int) -> _Case:
    answers = _answers()["formats"][type_name]
    weight = Weight(f"matmul {type_name}", (N_ROWS, answers["n_in"]), type_name)
    step = Step("matmul", (slot,), slot + 1, (weight,), {}, TOKENS, N_ROWS, weight.name)
    return _Case(f"{type_name} products", (step,), {slot: _inputs(answers["n_in"])}, range(N_ROWS),
                 _floats(answers["products"], N_ROWS))


def _experts_case(type_name: str, slot: int) -> _Case:
    answers = _answers()["formats"][type_name]
    weight = Weight(f"experts {type_name}", (N_ROWS, 1, answers["n_in"]), type_name)
    step = Step("matmul_experts", (slot, slot + 1), slot + 2, (weight,), {"n_used": N_USED, "per_expert": False}, TOKENS,
                N_USED, weight.name)
    route = b"".join(struct.pack("<4f", *chosen_experts(t), 0.5, 0.5) for t in range(N_TOKENS))
    products = _floats(answers["products"], N_ROWS)
    return _Case(f"{type_name} experts", (step,), {slot: _inputs(answers["n_in"]), slot + 1: route}, range(N_USED),
                 [[products[t][row] for row in chosen_experts(t)] for t in range(N_TOKENS)])


def _attention_case(head_dim: int, slot: int) -> _Case:
    width, kv_width = N_HEAD * head_dim, N_HEAD_KV * head_dim
    attrs = {"layer": 0, "n_head": N_HEAD, "n_head_kv": N_HEAD_KV, "head_dim": head_dim, "head_dim_v": head_dim,
             "scale": 1.0, "softcap": 0.0, "window": 0}
    steps = (Step("kv_write", (slot + 1, slot + 2), None, (), {"layer": 0}, TOKENS, 0, "kv_write"),
             Step("attention", (slot,), slot + 3, (), attrs, TOKENS, width, "attention"))
    inputs = {slot: _inputs(width), slot + 1: _inputs(kv_width), slot + 2: _inputs(kv_width)}
    return _Case("attention", steps, inputs, range(width), _floats(_answers()["attention"][str(head_dim)], width))


def _text_variant(step: Step) -> tuple[int, bool, bool]:
    """What tells the pipelines of text attention apart: columns read at a time, and how the bias is given."""
    attrs = step.attrs
    return unit_of((attrs["head_dim"], attrs["head_dim_v"])), bool(attrs["slopes"]), bool(attrs["buckets"])


def _text_attention_case(unit: int, has_slopes: bool, has_buckets: bool, slot: int) -> _Case:
    """With nothing seen after a token and a bias of zero the answer is that of causal attention."""
    head_dim = HEAD_DIMS[unit]
    width, kv_width = N_HEAD * head_dim, N_HEAD_KV * head_dim
    attrs = {"n_head": N_HEAD, "n_head_kv": N_HEAD_KV, "head_dim": head_dim, "head_dim_v": head_dim, "scale": 1.0,
             "softcap": 0.0, "before": ALL, "after": 0, "slopes": (0.0,) * N_HEAD if has_slopes else (),
             "buckets": (0,) if has_buckets else ()}
    weights = (Weight("bias", (N_HEAD,), "F32"),) if has_buckets else ()
    step = Step("text_attention", (slot, slot + 1, slot + 2), slot + 3, weights, attrs, TOKENS, width, "text attention")
    inputs = {slot: _inputs(width), slot + 1: _inputs(kv_width), slot + 2: _inputs(kv_width)}
    return _Case("text attention", (step,), inputs, range(width), _floats(_answers()["attention"][str(head_dim)], width))


_FORMAT_CASES = {"embed": _embed_case, "matmul": _matmul_case, "matmul_experts": _experts_case}
