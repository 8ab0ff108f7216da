"""What a kernel call cannot do without: the bytes it must move, and the arithmetic of its products.

Counted is what a perfect kernel would take, each byte once: weights in their block format, activations, the visible
part of the cache. Measured times are held against it (bridge.bench). How long a call will take is estimated elsewhere
(bridge.gpu.work).
"""

from __future__ import annotations

from typing import NamedTuple

from bridge.gpu.calls import Call, Operand
from bridge.gpu.weights import Placement
from bridge.graph.cache import CacheLayout
from bridge.plan.plan import Plan, Step

FLOAT_NBYTES = 4
LOOK_UP = ("best_tokens.wgsl",)
"""Kernels that read a handful of what their buffers hold."""
CACHE_WRITERS = ("kv_write", "write_heads")


class Cost(NamedTuple):
    """Bytes read and written, and floating point operations, a multiplication and an addition being two."""

    nbytes: int
    flop: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.nbytes + other.nbytes, self.flop + other.flop)


class Costs:
    """Costs of the calls of one plan."""

    def __init__(self, plan: Plan, placement: Placement, cache: CacheLayout) -> None:
        self._plan, self._placement = plan, placement
        self._cache = {(part.kind, part.layer): part for part in cache.parts}

    def of(self, step: Step, call: Call, n_rows: int, position: int) -> Cost:
        """The cost of a step's call for ``n_rows`` rows, the first of which is at ``position``."""
        total = Cost(0, 0)
        if call.choices[0].pipeline.file in LOOK_UP:
            return total
        for operand in dict.fromkeys(call.operands):  # one that stands in for others is there several times
            total += self._operand(step, operand, n_rows, position)
        if step.kernel == "text_attention":
            total += Cost(0, _attention_flop(step, n_rows * n_rows))
        return total

    def _operand(self, step: Step, operand: Operand, n_rows: int, position: int) -> Cost:
        if operand.kind == "matrix":
            return self._matrix(step, operand, n_rows)
        if operand.kind in ("k", "v"):
            return self._cached(step, operand, n_rows, position)
        if operand.kind == "slot":
            return Cost(FLOAT_NBYTES * n_rows * self._width(step, operand.key), 0)
        if operand.kind == "vector":
            return Cost(FLOAT_NBYTES * self._placement.vector_sizes[operand.key], 0)
        if operand.kind == "state":
            return Cost(2 * FLOAT_NBYTES * self._plan.states[operand.key], 0)  # read and written
        return Cost(0, 0)

    def _width(self, step: Step, slot: int) -> int:
        """The columns that a step uses of a slot, which may be wider."""
        widths = {**dict(zip(step.inputs, step.input_widths)), step.output: step.width}
        if "group_columns" in step.attrs:
            widths[step.scratch] = step.attrs["group_columns"]
        return widths.get(slot, self._plan.slots[slot].width)

    def _matrix(self, step: Step, operand: Operand, n_rows: int) -> Cost:
        matrix = self._placement.matrices[operand.key]
        part = matrix.parts[operand.part]
        if step.kernel == "embed":
            return Cost(n_rows * matrix.row_nbytes // len(matrix.parts), 0)
        elements = matrix.n_in * sum(piece.n_rows for piece in part.pieces)
        if step.kernel == "matmul_experts":
            n_expert, n_used = step.weights[0].shape[0], step.attrs["n_used"]
            touched = min(n_expert, n_rows * n_used)
            return Cost(part.nbytes * touched // n_expert, 2 * elements * n_rows * n_used // n_expert)
        return Cost(part.nbytes, 2 * elements * n_rows)

    def _cached(self, step: Step, operand: Operand, n_rows: int, position: int) -> Cost:
        part = self._cache[operand.kind, operand.key]
        if step.kernel in CACHE_WRITERS:
            return Cost(n_rows * part.row_nbytes, 0)
        window = step.attrs["window"] or position + n_rows
        visible = sum(min(window, position + i + 1) for i in range(n_rows))
        rows = min(position + n_rows, window + n_rows - 1)
        flop = _attention_flop(step, visible) if operand.kind == "k" else 0
        return Cost(rows * part.row_nbytes, flop)


def _attention_flop(step: Step, pairs: int) -> int:
    """Of scores and weighted sums for so many pairs of a query and a key, all heads."""
    attrs = step.attrs
    return 2 * attrs["n_head"] * (attrs["head_dim"] + attrs["head_dim_v"]) * pairs
