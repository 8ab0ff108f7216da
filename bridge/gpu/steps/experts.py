"""Mixtures of experts: who is chosen, what they compute, and the sum of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bridge.errors import UnsupportedError
from bridge.gpu.calls import WORD_OF_ROWS, Call, CallBuilder, Choice, Operand, grid_of, pack, quads
from bridge.gpu.tuning import TileShape
from bridge.plan.plan import Step

MAX_GROUPS = 32
"""A bit for each in kernels/wgsl/route.wgsl."""
SLOTS_PER_EXPERT = 4
"""From how many on average it pays to bring them together; not measured on hardware."""


def matmul_experts(b: CallBuilder, step: Step) -> Iterator[Call]:
    """In larger batches tokens that chose the same expert are brought together, so that its weights are read once for them."""
    attrs = step.attrs
    products = _products(b, step, attrs["n_used"], step.inputs[1], bool(attrs["per_expert"]))
    matrix, tiles = b.placement.matrices[step.weights[0].name], []
    if step.scratch is not None:
        tiles = [shape for shape in b.tuning.matmul if isinstance(shape, TileShape) and shape.takes(matrix.format)]
    if not tiles:
        yield from products
        return
    # With fewer most tiles would be nearly empty; a tile of many tokens is rarely full.
    apart = max(tiles[0].from_rows, -(-SLOTS_PER_EXPERT * step.weights[0].shape[0] // attrs["n_used"]))
    for call in products:
        yield replace(call, rows_below=apart)
    for call in _in_tiles(b, step, min(reversed(tiles), key=lambda shape: shape.tokens)):
        yield replace(call, rows_from=apart)


def _in_tiles(b: CallBuilder, step: Step, shape: TileShape) -> Iterator[Call]:
    matrix, attrs = b.placement.matrices[step.weights[0].name], step.attrs
    n_expert, per_expert_rows, _ = step.weights[0].shape
    groups = Operand("slot", step.scratch)
    pipeline = b.pipeline("group_experts.wgsl", "rw", WORKGROUP=b.tuning.norm_workgroup, N_EXPERT=n_expert,
                          TOKENS=shape.tokens)
    yield Call(f"groups of {step.name}", (Choice(1, 1, pipeline),), pack(
        attrs["n_used"], 4 * quads(2 * attrs["n_used"]), WORD_OF_ROWS[step.rows]),
        (Operand("slot", step.inputs[1]), groups), step.rows, once=True)
    choice = Choice(shape.tokens, -(-per_expert_rows // shape.rows_per_workgroup),
                    b.matmul_pipeline(matrix, shape, EXPERTS=True, GROUPED=True))
    for call in _products(b, step, attrs["n_used"], step.scratch, bool(attrs["per_expert"]), choice):
        yield replace(call, more_tiles=n_expert)  # of each expert the last may be half empty


def matmul_heads(b: CallBuilder, step: Step) -> Iterator[Call]:
    yield from _products(b, step, step.weights[0].shape[0], None, True)


def _products(b: CallBuilder, step: Step, n_used: int, route: int | None, own_x: bool,
              choice: Choice | None = None) -> Iterator[Call]:
    """For each part of the weight; ``route`` is the slot that tells the experts, None for all of them in order."""
    matrix, x = b.placement.matrices[step.weights[0].name], step.inputs[0]
    _, per_expert_rows, n_in = step.weights[0].shape
    if n_in % 4:
        raise UnsupportedError(f"tensor {matrix.name} has rows of {n_in} elements; "
                               "the WebGPU backend needs a multiple of 4 in experts")
    if choice is None:
        shape = b.tuning.matmul[0].fitted(n_used * per_expert_rows, n_in // matrix.format.group, 1)
        choice = Choice(1, -(-per_expert_rows // shape.rows_per_workgroup),
                        b.matmul_pipeline(matrix, shape, EXPERTS=True, HEADS=route is None))
    x_width = n_in * n_used if own_x else n_in
    bias = Operand("vector", step.weights[1].name) if step.weights[1:] else Operand("slot", x)
    for i, part in enumerate(matrix.parts):
        dims = pack(n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(x_width), 4 * quads(step.width), 0,
                    WORD_OF_ROWS[step.rows], len(step.weights) - 1, 0, n_used, per_expert_rows, int(own_x),
                    4 * quads(2 * n_used))
        operands = (Operand("matrix", matrix.name, i), Operand("slot", x), bias,
                    Operand("slot", x if route is None else route), Operand("slot", step.output), *grid_of(matrix))
        yield Call(step.name, (choice,), dims, operands, step.rows, repeat=n_used)


def route(b: CallBuilder, step: Step) -> Iterator[Call]:
    attrs, vectors = step.attrs, [Operand("vector", weight.name) for weight in step.weights]
    if attrs["n_group"] > MAX_GROUPS:
        raise UnsupportedError(f"step {step.name} has {attrs['n_group']} groups of experts; "
                               f"the WebGPU backend takes up to {MAX_GROUPS}")
    dims = pack(attrs["n_expert"], attrs["n_used"], 4 * quads(attrs["n_expert"]), 4 * quads(step.width),
                WORD_OF_ROWS[step.rows], int(attrs["normalise"]), attrs["n_group"], attrs["n_group_used"],
                float(attrs["scale"]))
    x = Operand("slot", step.inputs[0])  # also stands in for a bias or scales that are not there
    bias = vectors.pop(0) if attrs["biased"] else x
    scales = vectors.pop(0) if attrs["scaled"] else x
    pipeline = b.pipeline("route.wgsl", "rrrw", SIGMOID=attrs["gate"] == "sigmoid", BIASED=attrs["biased"],
                          SCALED=attrs["scaled"], GROUPS=attrs["n_group"] > 1)
    yield Call(step.name, (Choice(1, 1, pipeline),), dims, (x, bias, scales, Operand("slot", step.output)), step.rows)


def combine_experts(b: CallBuilder, step: Step) -> Iterator[Call]:
    n_used = step.attrs["n_used"]
    dims = pack(step.width, n_used, 4 * quads(n_used * step.width), 4 * quads(step.width), 4 * quads(2 * n_used),
                WORD_OF_ROWS[step.rows])
    yield from b.by_columns(step, "combine_experts.wgsl", dims, b.slots(step), step.width)


KERNELS = {
    "matmul_experts": matmul_experts,
    "matmul_heads": matmul_heads,
    "route": route,
    "combine_experts": combine_experts,
}
