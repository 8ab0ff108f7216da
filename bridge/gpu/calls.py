"""Kernel calls: which pipeline, which buffers, which constants, how large a grid; bridge.gpu.steps makes them of steps.

Those two are the only places that know both sides, the plan's vocabulary and the kernel files. Nothing here touches a
device.

Rows of every slot begin at a multiple of 16 bytes: a value of width w has rows of ``quads(w)`` vec4s.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from bridge.errors import UnsupportedError
from bridge.gpu.tuning import MatmulShape, Tuning
from bridge.gpu.weights import Matrix, Placement
from bridge.graph.cache import BLOCK, QUANTISED, CacheLayout
from bridge.graph.graph import ALL, OUTPUTS, TOKENS
from bridge.plan.plan import Plan, Step

MAX_HEAD_DIM = 576
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
        formats = [values[name] for name in ("FORMAT", "OTHER_FORMAT") if name in values]
        words += [path.removeprefix("formats/").removesuffix(".wgsl") for path in formats]
        if "TOKENS" in values:
            words.append(f"tokens={values['TOKENS']}")
        if values.get("ACT"):
            words.append(values["ACT"])
        flags = ("EXPERTS", "GATED", "NORM", "NORMED", "NEOX", "CENTRED")
        return " ".join(words + [flag.lower() for flag in flags if values.get(flag)])


class Operand(NamedTuple):
    """A buffer by what it holds: kind "slot", "matrix", "vector", "k", "v", "state", "grid", "constant", whose key is its
    numbers, floats or unsigned integers, or "partials", whose key is its bytes; ``part`` counts parts of a matrix."""

    kind: str
    key: int | str | tuple
    part: int = 0


class Choice(NamedTuple):
    """A pipeline that takes ``tile`` rows of the grid at once, its workgroups in x, and from how many rows it is worth it."""

    tile: int
    columns: int
    pipeline: Pipeline
    from_rows: int = 1


@dataclass(frozen=True)
class Call:
    """One dispatch for batches of ``rows_from`` … ``rows_below`` - 1 rows; ``choices`` of which one takes the rows of a
    single token, ``repeat`` rows of the grid for each row of the batch, or ``once`` for all of them, and ``more_tiles``.

    ``splits_from`` and ``splits_below``: likewise for the number of shares that positions are split into (Tuning).
    """

    name: str
    choices: tuple[Choice, ...]
    dims: bytes
    operands: tuple[Operand, ...]
    rows: str
    repeat: int = 1
    once: bool = False
    more_tiles: int = 0
    rows_from: int = 1
    rows_below: int = ALL
    splits_from: int = 1
    splits_below: int = ALL

    def takes(self, n_rows: int, n_splits: int = 1) -> bool:
        return self.rows_from <= n_rows < self.rows_below and self.splits_from <= n_splits < self.splits_below

    def between(self, rows_from: int, rows_below: int) -> Call:
        """The same for batches of that many rows only, without choices that none of them takes."""
        nexts = (*(choice.from_rows for choice in self.choices[1:]), ALL)
        chosen = [choice for choice, beyond in zip(self.choices, nexts)
                  if choice.from_rows < rows_below and beyond > rows_from]
        return replace(self, choices=tuple(chosen), rows_from=rows_from, rows_below=rows_below)

    def choose(self, n_rows: int) -> tuple[Pipeline, int, int]:
        """The pipeline for a batch of that many rows, and its workgroups in x and y."""
        n_rows = 1 if self.once else n_rows * self.repeat
        choice = [choice for choice in self.choices if choice.from_rows <= n_rows][-1]
        return choice.pipeline, choice.columns, -(-n_rows // choice.tile) + self.more_tiles


def quads(width: int) -> int:
    return -(-width // 4)


def kv_unit(plan: Plan) -> int:
    """How many columns of the cache are read at a time: 4, or 2 where a head may begin at an odd multiple of two."""
    return unit_of([s.attrs[key] for s in plan.steps if s.kernel == "attention" for key in ("head_dim", "head_dim_v")])


def unit_of(head_dims: Sequence[int]) -> int:
    return 2 if any(dim % 4 for dim in head_dims) else 4


def check_heads(step: Step) -> None:
    """Raise UnsupportedError for attention heads that the kernel cannot take."""
    dims = step.attrs["head_dim"], step.attrs["head_dim_v"]
    if any(dim % 2 for dim in dims) or max(dims) > MAX_HEAD_DIM:
        raise UnsupportedError(f"step {step.name} has heads of {dims[0]} and {dims[1]} columns; "
                               f"the WebGPU backend needs even numbers up to {MAX_HEAD_DIM}")


def grid_of(matrix: Matrix) -> tuple[Operand, ...]:
    return (Operand("grid", matrix.format.grid),) if matrix.format.grid else ()


def pack(*values: int | float) -> bytes:
    return struct.pack("<" + "".join("f" if isinstance(v, float) else "I" for v in values), *values)


class CallBuilder:
    """Calls for the steps of one plan on one kind of device."""

    def __init__(self, plan: Plan, placement: Placement, tuning: Tuning, *, cache: CacheLayout, max_workgroups: int) -> None:
        self.plan, self.placement, self.tuning, self.cache = plan, placement, tuning, cache
        self.table_index = {key: i for i, key in enumerate(plan.rope_tables)}
        self.kv_unit = kv_unit(plan)
        self.kv_types = {"K_TYPE": cache.k_type, "V_TYPE": cache.v_type}
        self.kv_values = {**self.kv_types, "UNIT_OF_4": self.kv_unit == 4}
        self.kv_groups = {f"{side}_GROUP": BLOCK if type in QUANTISED else self.kv_unit
                          for side, type in (("K", cache.k_type), ("V", cache.v_type))}
        self._max_workgroups = max_workgroups

    def pipeline(self, file: str, access: str, **values: int | bool | str) -> Pipeline:
        """``access``: "r" or "w" for each operand, which follow the constants and the batch."""
        values["MAX_WORKGROUPS"] = self._max_workgroups
        return Pipeline(file, tuple(values.items()), ("uniform", "read", *({"r": "read", "w": "write"}[a] for a in access)))

    def by_columns(self, step: Step, file: str, dims: bytes, operands: tuple[Operand, ...], columns: int,
                   access: str | None = None, **values: int | bool | str) -> Iterator[Call]:
        """A kernel with one invocation for each of ``columns`` columns of a row; by default it writes its last operand."""
        workgroup = self.tuning.elementwise_workgroup
        pipeline = self.pipeline(file, access or "r" * (len(operands) - 1) + "w", WORKGROUP=workgroup, **values)
        yield Call(step.name, (Choice(1, -(-columns // workgroup), pipeline),), dims, operands, step.rows)

    def slots(self, step: Step) -> tuple[Operand, ...]:
        return (*(Operand("slot", slot) for slot in step.inputs), Operand("slot", step.output))

    def elementwise(self, step: Step, file: str, *constants: float, **values: int | bool | str) -> Iterator[Call]:
        columns = quads(step.width)
        dims = pack(columns, WORD_OF_ROWS[step.rows], *constants)
        yield from self.by_columns(step, file, dims, self.slots(step), columns, **values)

    def matmul_pipeline(self, matrix: Matrix, shape: MatmulShape, *, EXPERTS: bool = False, HEADS: bool = False,
                        GROUPED: bool = False, NORM: bool = False, ACT: str | None = None, GATED: bool = False,
                        other: Matrix | None = None) -> Pipeline:
        """The flags are explained in kernels/wgsl/matmul.wgsl; ``other`` is a second matrix, in another format."""
        access = "rrrrw" + "r" * NORM + "r" * len(grid_of(matrix))
        others = {f"OTHER_{name}": value for name, value in self._loader(other).items()} if other else {}
        return self.pipeline(shape.file, access, **shape.values, **self._loader(matrix), EXPERTS=EXPERTS,
                             HEADS=HEADS, GROUPED=GROUPED, NORM=NORM, GATED=GATED, ACT=ACT or "",
                             OUTS=shape.rows // (2 if GATED else 1),
                             GRID_BINDING=8 if NORM else 7, MIXED=other is not None, **others)

    def _loader(self, matrix: Matrix) -> dict[str, int | bool | str]:
        """What its format's snippet is templated with."""
        aligned = matrix.format.is_aligned(matrix.row_nbytes)
        is_wide = self.tuning.wide_loads and (aligned or self.tuning.wide_anywhere)
        return {**matrix.format.values, "WIDE": is_wide, "ALIGNED": aligned, "SHIFTS": self.tuning.shifts}
