"""Mixtures of experts: who is chosen, what they compute, and the sum of it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.plan.plan import Step
from bridge.simd.formats import ROWS
from bridge.simd.ops import Access, Op, OpBuilder, Region, stride


def matmul_experts(b: OpBuilder, step: Step) -> Iterator[Op]:
    weight, (x, route), attrs = step.weights[0], step.inputs, step.attrs
    format, (n_expert, n_out, n_in) = b.formats[weight.name], weight.shape
    if n_out % ROWS:
        raise UnsupportedError(f"tensor {weight.name} has experts of {n_out} rows; "
                               f"the CPU backend needs a multiple of {ROWS}")
    exact, per_expert, n_used = b.exact or format.layout.is_float, bool(attrs["per_expert"]), attrs["n_used"]
    source = Region("slot", x)
    if not exact:
        wide = b.is_wide(format)
        yield from b.pack_rows(step, x, n_in, wide, single=True, repeat=n_used if per_expert else 1)
        source = b.packed_region(x, n_in, wide, True)
    route_region, out = Region("slot", route), Region("slot", step.output)
    args = (source, stride(n_in * n_used if per_expert else n_in), Region("matrix", weight.name), format.layout.number,
            n_in, n_out, int(exact), route_region, stride(2 * n_used), n_expert, n_used, int(per_expert), out,
            stride(step.width))
    reads = (Access(source), Access(route_region))
    yield Op("matmul_experts", step.rows, args, reads, (Access(out),), step.name)


def route(b: OpBuilder, step: Step) -> Iterator[Op]:
    attrs = step.attrs
    yield b.row_op(step, "route", lambda x, out: (
        x, stride(attrs["n_expert"]), out, stride(step.width), attrs["n_expert"], attrs["n_used"],
        int(attrs["normalise"])), (attrs["n_expert"],))


def combine_experts(b: OpBuilder, step: Step) -> Iterator[Op]:
    n_used = step.attrs["n_used"]
    yield b.row_op(step, "combine_experts", lambda x, route, out: (
        x, stride(n_used * step.width), route, stride(2 * n_used), out, stride(step.width), n_used, step.width),
        (n_used * step.width, 2 * n_used))


KERNELS = {
    "matmul_experts": matmul_experts,
    "route": route,
    "combine_experts": combine_experts,
}
