"""Mixtures of experts: who is chosen, what they compute, and the sum of it."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.errors import UnsupportedError
from bridge.gpu.calls import WORD_OF_ROWS, Call, CallBuilder, Choice, Operand, grid_of, pack, quads
from bridge.plan.plan import Step


def matmul_experts(b: CallBuilder, step: Step) -> Iterator[Call]:
    matrix, (x, route), attrs = b.placement.matrices[step.weights[0].name], step.inputs, step.attrs
    n_expert, per_expert_rows, n_in = matrix.weight.shape
    n_used, own_x = attrs["n_used"], bool(attrs["per_expert"])
    if n_in % 4:
        raise UnsupportedError(f"tensor {matrix.weight.name} has rows of {n_in} elements; "
                               "the WebGPU backend needs a multiple of 4 in experts")
    shape = b.tuning.matmul[0]
    choice = Choice(1, -(-per_expert_rows // shape.rows_per_workgroup),
                    b.matmul_pipeline(matrix, shape, experts=True))
    x_width = n_in * n_used if own_x else n_in
    for i, part in enumerate(matrix.parts):
        dims = pack(n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(x_width), 4 * quads(step.width), 0,
                    WORD_OF_ROWS[step.rows], 0, 0, n_used, per_expert_rows, int(own_x), 4 * quads(2 * n_used))
        operands = (Operand("matrix", matrix.weight.name, i), Operand("slot", x), Operand("slot", x),
                    Operand("slot", route), Operand("slot", step.output), *grid_of(matrix))
        yield Call(step.name, (choice,), dims, operands, step.rows, repeat=n_used)


def route(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs = step.attrs
    dims = pack(attrs["n_expert"], attrs["n_used"], 4 * quads(attrs["n_expert"]), 4 * quads(step.width),
                WORD_OF_ROWS[step.rows], int(attrs["normalise"]))
    yield Call(step.name, (Choice(1, 1, b.pipeline("route.wgsl", "rw")),), dims, b.slots(step), step.rows)


def combine_experts(b: CallBuilder, step: Step) -> Iterator[Call]:
    n_used = step.attrs["n_used"]
    dims = pack(step.width, n_used, 4 * quads(n_used * step.width), 4 * quads(step.width), 4 * quads(2 * n_used),
                WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "combine_experts.wgsl", dims, b.slots(step), step.width)


KERNELS = {
    "matmul_experts": matmul_experts,
    "route": route,
    "combine_experts": combine_experts,
}
