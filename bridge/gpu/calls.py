"""Steps of a plan as kernel calls: which pipeline, which buffers, which constants, how large a grid.

This is the only place that knows both sides, the plan's vocabulary and the kernel files. Nothing here touches a device.

Rows of every slot begin at a multiple of 16 bytes: a value of width w has rows of ``quads(w)`` vec4s.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from bridge.errors import UnsupportedError
from bridge.gpu.tuning import MatmulShape, Tuning
from bridge.gpu.weights import Matrix, Placement
from bridge.graph.graph import OUTPUTS, TOKENS
from bridge.plan.plan import Plan, Step

MAX_HEAD_DIM = 512
WORD_OF_ROWS = {TOKENS: 0, OUTPUTS: 2}  # where the parameter block has the number of rows (bridge.plan.batch)


class Pipeline(NamedTuple):
    """What one compute pipeline is made of; equal ones are made once."""

    file: str
    values: tuple[tuple[str, int | bool | str], ...]
    bindings: tuple[str, ...]

    @property
    def label(self) -> str:
        """Its kernel and what sets it apart: "matmul q4_k tokens=4"."""
        values = dict(self.values)
        words = [self.file.removesuffix(".wgsl")]
        if "FORMAT" in values:
            words.append(values["FORMAT"].removeprefix("formats/").removesuffix(".wgsl"))
        if "TOKENS" in values:
            words.append(f"tokens={values['TOKENS']}")
        return " ".join(words + [flag.lower() for flag in ("EXPERTS", "NEOX", "SILU", "GELU", "KV_F16") if values.get(flag)])


class Operand(NamedTuple):
    """A buffer by what it holds: kind "slot", "matrix", "vector", "k", "v" or "grid"; ``part`` counts parts of a matrix."""

    kind: str
    key: int | str
    part: int = 0


class Choice(NamedTuple):
    """A pipeline that takes ``tile`` rows of the grid at once, and its workgroups in x."""

    tile: int
    columns: int
    pipeline: Pipeline


@dataclass(frozen=True)
class Call:
    """One dispatch per batch; ``choices`` of which one has tile 1, ``repeat`` rows of the grid for each row of the batch."""

    name: str
    choices: tuple[Choice, ...]
    dims: bytes
    operands: tuple[Operand, ...]
    rows: str
    repeat: int = 1

    def choose(self, n_rows: int) -> tuple[Pipeline, int, int]:
        """The pipeline for a batch of that many rows, and its workgroups in x and y."""
        n_rows *= self.repeat
        # A tile that is at least half full costs less than rows one by one (python -m tools.kernel_bench --tokens 2,4,8).
        choice = max((c for c in self.choices if c.tile <= 2 * n_rows), key=lambda c: c.tile)
        return choice.pipeline, choice.columns, -(-n_rows // choice.tile)


def quads(width: int) -> int:
    return -(-width // 4)


def kv_unit(plan: Plan) -> int:
    """How many columns of the cache are read at a time: 4, or 2 where a head may begin at an odd multiple of two."""
    heads = [s.attrs[key] for s in plan.steps if s.kernel == "attention" for key in ("head_dim", "head_dim_v")]
    return 2 if any(dim % 4 for dim in heads) else 4


def _grid(matrix: Matrix) -> tuple[Operand, ...]:
    return (Operand("grid", matrix.format.grid),) if matrix.format.grid else ()


def _pack(*values: int | float) -> bytes:
    return struct.pack("<" + "".join("f" if isinstance(v, float) else "I" for v in values), *values)


class CallBuilder:
    """Calls for the steps of one plan on one kind of device."""

    def __init__(self, plan: Plan, placement: Placement, tuning: Tuning, *, kv_type: str, max_workgroups: int) -> None:
        self._plan, self._placement, self._tuning = plan, placement, tuning
        self._table_index = {key: i for i, key in enumerate(plan.rope_tables)}
        self._kv_unit = kv_unit(plan)
        self._kv_values = {"KV_F16": kv_type == "f16", "UNIT_OF_4": self._kv_unit == 4}
        self._max_workgroups = max_workgroups

    def calls(self, step: Step) -> list[Call]:
        """The calls of a step: one, or one for each part of its weight. Raises UnsupportedError for what no kernel does."""
        kernel = _KERNELS.get(step.kernel)
        if kernel is None:
            raise UnsupportedError(f"the WebGPU backend has no kernel for {step.kernel} (step {step.name})")
        if step.kernel in _AT_POSITIONS and step.rows != TOKENS:
            raise UnsupportedError(f"the WebGPU backend computes {step.kernel} for all tokens of a batch, not for some "
                                   f"(step {step.name})")
        return list(kernel(self, step))

    def _pipeline(self, file: str, access: str, **values: int | bool | str) -> Pipeline:
        """``access``: "r" or "w" for each operand, which follow the constants and the batch."""
        values["MAX_WORKGROUPS"] = self._max_workgroups
        return Pipeline(file, tuple(values.items()), ("uniform", "read", *({"r": "read", "w": "write"}[a] for a in access)))

    def _by_columns(self, step: Step, file: str, dims: bytes, operands: tuple[Operand, ...], columns: int,
                    access: str | None = None, **values: int | bool | str) -> Iterator[Call]:
        """A kernel with one invocation for each of ``columns`` columns of a row; by default it writes its last operand."""
        workgroup = self._tuning.elementwise_workgroup
        pipeline = self._pipeline(file, access or "r" * (len(operands) - 1) + "w", WORKGROUP=workgroup, **values)
        yield Call(step.name, (Choice(1, -(-columns // workgroup), pipeline),), dims, operands, step.rows)

    def _slots(self, step: Step) -> tuple[Operand, ...]:
        return (*(Operand("slot", slot) for slot in step.inputs), Operand("slot", step.output))

    def embed(self, step: Step) -> Iterator[Call]:
        matrix = self._placement.matrices[step.weights[0].name]
        format, n_in = matrix.format, matrix.n_in
        columns = n_in // format.group + quads(n_in % format.group)
        for i, part in enumerate(matrix.parts):
            dims = _pack(n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(n_in), float(step.attrs["scale"]))
            operands = (Operand("matrix", matrix.weight.name, i), Operand("slot", step.output), *_grid(matrix))
            access = "rw" + "r" * (len(operands) - 2)
            yield from self._by_columns(step, "embed.wgsl", dims, operands, columns, access, **format.values, GRID_BINDING=4)

    def matmul(self, step: Step) -> Iterator[Call]:
        matrix, bias = self._placement.matrices[step.weights[0].name], step.weights[1:]
        x, residual = step.inputs[0], step.inputs[1:]
        slot = Operand("slot", x)  # also stands in for a bias or residual that is not there
        stride = 4 * quads(step.width)
        for i, part in enumerate(matrix.parts):
            dims = _pack(matrix.n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(matrix.n_in), stride, stride,
                         WORD_OF_ROWS[step.rows], len(bias), len(residual))
            operands = (Operand("matrix", matrix.weight.name, i), slot,
                        Operand("vector", bias[0].name) if bias else slot,
                        Operand("slot", residual[0]) if residual else slot, Operand("slot", step.output), *_grid(matrix))
            yield Call(step.name, self._matmul_choices(matrix, part.n_rows), dims, operands, step.rows)

    def _matmul_choices(self, matrix: Matrix, n_rows: int) -> tuple[Choice, ...]:
        return tuple(
            Choice(shape.tokens, -(-n_rows // shape.rows_per_workgroup), self._matmul_pipeline(matrix, shape, experts=False))
            for shape in self._tuning.matmul
        )

    def _matmul_pipeline(self, matrix: Matrix, shape: MatmulShape, experts: bool) -> Pipeline:
        return self._pipeline("matmul.wgsl", "rrrrw" + "r" * len(_grid(matrix)), **shape.values, **matrix.format.values,
                              EXPERTS=experts, GRID_BINDING=7)

    def matmul_experts(self, step: Step) -> Iterator[Call]:
        matrix, (x, route), attrs = self._placement.matrices[step.weights[0].name], step.inputs, step.attrs
        n_expert, per_expert_rows, n_in = matrix.weight.shape
        n_used, own_x = attrs["n_used"], bool(attrs["per_expert"])
        if n_in % 4:
            raise UnsupportedError(f"tensor {matrix.weight.name} has rows of {n_in} elements; "
                                   "the WebGPU backend needs a multiple of 4 in experts")
        shape = self._tuning.matmul[0]
        choice = Choice(1, -(-per_expert_rows // shape.rows_per_workgroup),
                        self._matmul_pipeline(matrix, shape, experts=True))
        x_width = n_in * n_used if own_x else n_in
        for i, part in enumerate(matrix.parts):
            dims = _pack(n_in, part.n_rows, matrix.row_nbytes, part.first_row, quads(x_width), 4 * quads(step.width), 0,
                         WORD_OF_ROWS[step.rows], 0, 0, n_used, per_expert_rows, int(own_x), 4 * quads(2 * n_used))
            operands = (Operand("matrix", matrix.weight.name, i), Operand("slot", x), Operand("slot", x),
                        Operand("slot", route), Operand("slot", step.output), *_grid(matrix))
            yield Call(step.name, (choice,), dims, operands, step.rows, repeat=n_used)

    def route(self, step: Step) -> Iterator[Call]:
        attrs = step.attrs
        dims = _pack(attrs["n_expert"], attrs["n_used"], 4 * quads(attrs["n_expert"]), 4 * quads(step.width),
                     WORD_OF_ROWS[step.rows], int(attrs["normalise"]))
        yield Call(step.name, (Choice(1, 1, self._pipeline("route.wgsl", "rw")),), dims, self._slots(step), step.rows)

    def combine_experts(self, step: Step) -> Iterator[Call]:
        n_used = step.attrs["n_used"]
        dims = _pack(step.width, n_used, 4 * quads(n_used * step.width), 4 * quads(step.width), 4 * quads(2 * n_used),
                     WORD_OF_ROWS[step.rows])
        yield from self._by_columns(step, "combine_experts.wgsl", dims, self._slots(step), step.width)

    def rms_norm(self, step: Step) -> Iterator[Call]:
        group = step.attrs["group"]
        dims = _pack(group, 4 * quads(step.width), WORD_OF_ROWS[step.rows], float(step.attrs["eps"]))
        operands = (Operand("slot", step.inputs[0]), Operand("vector", step.weights[0].name), Operand("slot", step.output))
        pipeline = self._pipeline("rms_norm.wgsl", "rrw", WORKGROUP=self._tuning.norm_workgroup)
        yield Call(step.name, (Choice(1, step.width // group, pipeline),), dims, operands, step.rows)

    def rope(self, step: Step) -> Iterator[Call]:
        attrs = step.attrs
        if attrs["head_dim"] % 2 or attrs["n_rot"] % 2:
            raise UnsupportedError(f"step {step.name} rotates {attrs['n_rot']} of {attrs['head_dim']} columns of a head; "
                                   "the WebGPU backend needs even numbers")
        dims = _pack(attrs["head_dim"] // 2, attrs["n_rot"] // 2, step.width // 2, 4 * quads(step.width),
                     self._table_index[attrs["table"]])
        yield from self._by_columns(step, "rope.wgsl", dims, self._slots(step), step.width // 2,
                                    NEOX=attrs["style"] == "neox")

    def kv_write(self, step: Step) -> Iterator[Call]:
        layer, unit = step.attrs["layer"], self._kv_unit
        k_width, v_width = self._plan.kv_layers[layer].k_width, self._plan.kv_layers[layer].v_width
        dims = _pack(k_width // unit, v_width // unit, 4 * quads(k_width) // unit, 4 * quads(v_width) // unit)
        operands = (*(Operand("slot", slot) for slot in step.inputs), Operand("k", layer), Operand("v", layer))
        yield from self._by_columns(step, "kv_write.wgsl", dims, operands, (k_width + v_width) // unit, "rrww",
                                    **self._kv_values)

    def attention(self, step: Step) -> Iterator[Call]:
        attrs, kv, unit = step.attrs, self._plan.kv_layers[step.attrs["layer"]], self._kv_unit
        head_dim, head_dim_v, n_head = attrs["head_dim"], attrs["head_dim_v"], attrs["n_head"]
        if head_dim % 2 or head_dim_v % 2 or max(head_dim, head_dim_v) > MAX_HEAD_DIM:
            raise UnsupportedError(f"step {step.name} has heads of {head_dim} and {head_dim_v} columns; "
                                   f"the WebGPU backend needs even numbers up to {MAX_HEAD_DIM}")
        dims = _pack(n_head, n_head // attrs["n_head_kv"], head_dim // unit, head_dim_v // unit, kv.k_width // unit,
                     kv.v_width // unit, 4 * quads(n_head * head_dim) // unit, 4 * quads(step.width) // unit, attrs["window"],
                     float(attrs["scale"]), float(attrs["softcap"]))
        pipeline = self._pipeline("attention.wgsl", "rrrw", WORKGROUP=self._tuning.attention_workgroup,
                                  CHUNK=self._tuning.attention_chunk, MAX_HEAD_UNITS=MAX_HEAD_DIM // unit, **self._kv_values)
        operands = (Operand("slot", step.inputs[0]), Operand("k", attrs["layer"]), Operand("v", attrs["layer"]),
                    Operand("slot", step.output))
        yield Call(step.name, (Choice(1, n_head, pipeline),), dims, operands, step.rows)

    def glu(self, step: Step) -> Iterator[Call]:
        act = step.attrs["act"]
        if act not in ("silu", "gelu"):
            raise UnsupportedError(f"the WebGPU backend has no activation {act} (step {step.name}); it has silu and gelu")
        yield from self._elementwise(step, "glu.wgsl", SILU=act == "silu", GELU=act == "gelu")

    def add(self, step: Step) -> Iterator[Call]:
        yield from self._elementwise(step, "add.wgsl")

    def scale(self, step: Step) -> Iterator[Call]:
        yield from self._elementwise(step, "scale.wgsl", float(step.attrs["scale"]))

    def softcap(self, step: Step) -> Iterator[Call]:
        yield from self._elementwise(step, "softcap.wgsl", float(step.attrs["cap"]))

    def select_outputs(self, step: Step) -> Iterator[Call]:
        columns = quads(step.width)
        yield from self._by_columns(step, "select_outputs.wgsl", _pack(columns), self._slots(step), columns)

    def _elementwise(self, step: Step, file: str, *constants: float, **values: int | bool | str) -> Iterator[Call]:
        columns = quads(step.width)
        dims = _pack(columns, WORD_OF_ROWS[step.rows], *constants)
        yield from self._by_columns(step, file, dims, self._slots(step), columns, **values)


_AT_POSITIONS = ("embed", "rope", "kv_write", "attention")  # a row's number tells its token and its position

_KERNELS: dict[str, Callable[[CallBuilder, Step], Iterator[Call]]] = {
    name: getattr(CallBuilder, name)
    for name in ("embed", "matmul", "matmul_experts", "route", "combine_experts", "rms_norm", "rope", "kv_write",
                 "attention", "glu", "add", "scale", "softcap", "select_outputs")
}
