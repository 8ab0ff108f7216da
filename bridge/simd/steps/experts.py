"""Mixtures of experts: who is chosen, what they compute, and the sum of it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.plan.plan import Step
from bridge.simd.formats import ROWS
from bridge.simd.ops import Access, Op, OpBuilder, Region, stride

MAX_GROUPS = 32
"""A bit for each in kernels/simd/experts.c."""


def matmul_experts(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs = step.attrs
    yield from _products(b, step, attrs["n_used"], Region("slot", step.inputs[1]), bool(attrs["per_expert"]))


def matmul_heads(b: OpBuilder, step: Step) -> Iterator[Op]:
    yield from _products(b, step, step.weights[0].shape[0], None, True)


def _products(b: OpBuilder, step: Step, n_used: int, route: Region | None, per_expert: bool) -> Iterator[Op]:
    weight, x = step.weights[0], step.inputs[0]
    format, (n_expert, n_out, n_in) = b.formats[weight.name], weight.shape
    if n_out % ROWS:
        raise UnsupportedError(f"tensor {weight.name} has experts of {n_out} rows; "
                               f"the CPU backend needs a multiple of {ROWS}")
    exact = b.exact or format.layout.is_float
    source = Region("slot", x)
    if not exact:
        wide = b.is_wide(format)
        yield from b.pack_rows(step, x, n_in, wide, single=True, repeat=n_used if per_expert else 1)
        source = b.packed_region(x, n_in, wide, True)
    out = Region("slot", step.output)
    args = (source, stride(n_in * n_used if per_expert else n_in), Region("matrix", weight.name), format.layout.number,
            n_in, n_out, int(exact), route, stride(2 * n_used), n_expert, n_used, int(per_expert),
            Region("vector", step.weights[1].name) if step.weights[1:] else None, out, stride(step.width))
    reads = (Access(source), *(Access(region) for region in (route,) if region is not None))
    yield Op("matmul_experts", step.rows, args, reads, (Access(out),), step.name)


def route(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs, vectors = step.attrs, [Region("vector", weight.name) for weight in step.weights]
    if attrs["n_group"] > MAX_GROUPS:
        raise UnsupportedError(f"step {step.name} has {attrs['n_group']} groups of experts; "
                               f"the CPU backend takes up to {MAX_GROUPS}")
    bias = vectors.pop(0) if attrs["biased"] else None
    scales = vectors.pop(0) if attrs["scaled"] else None
    yield b.row_op(step, "route", lambda x, out: (
        x, stride(attrs["n_expert"]), out, stride(step.width), attrs["n_expert"], attrs["n_used"],
        int(attrs["normalise"]), int(attrs["gate"] == "sigmoid"), bias, scales, attrs["n_group"], attrs["n_group_used"],
        float(attrs["scale"])), (attrs["n_expert"],))


def combine_experts(b: OpBuilder, step: Step) -> Iterator[Op]:
    n_used = step.attrs["n_used"]
    yield b.row_op(step, "combine_experts", lambda x, route, out: (
        x, stride(n_used * step.width), route, stride(2 * n_used), out, stride(step.width), n_used, step.width),
        (n_used * step.width, 2 * n_used))


KERNELS = {
    "matmul_experts": matmul_experts,
    "matmul_heads": matmul_heads,
    "route": route,
    "combine_experts": combine_experts,
}
