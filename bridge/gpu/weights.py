"""Where a plan's weights go: which buffers each tensor needs, and which bytes of the file belong in them.

Matrices stay in their block format; one above the device's limits is split by rows. Vectors (norm weights, biases) are
always float32 on the device: those stored otherwise, and the tensors that rope tables are computed from, come to the
host first.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from bridge.errors import ModelError, UnsupportedError
from bridge.gpu.device import Limits, Segment
from bridge.gpu.formats import Format, format_of
from bridge.graph.graph import Weight, without_leading_ones
from bridge.plan.plan import Plan

VECTOR_TYPES = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class Part:
    """Rows ``first_row`` … of a matrix, in a buffer of their own."""

    first_row: int
    n_rows: int
    nbytes: int


@dataclass(frozen=True)
class Matrix:
    weight: Weight
    format: Format
    row_nbytes: int
    parts: tuple[Part, ...]

    @property
    def n_in(self) -> int:
        return self.weight.shape[-1]


@dataclass(frozen=True)
class Placement:
    """Matrices by name, vectors by name (length in elements), and the tensors that stay on the host."""

    matrices: Mapping[str, Matrix]
    vectors: Mapping[str, Weight]
    host: tuple[str, ...]


def place_weights(plan: Plan, limits: Limits) -> Placement:
    """Decide the buffers of all weights of a plan; raises UnsupportedError naming a tensor the kernels cannot take."""
    matrices: dict[str, Matrix] = {}
    vectors: dict[str, Weight] = {}
    for weight in plan.weights().values():
        if len(weight.shape) == 1:
            if weight.type not in VECTOR_TYPES:
                raise UnsupportedError(f"tensor {weight.name} is a vector of the type {weight.type}; the WebGPU backend "
                                       f"takes vectors of {', '.join(VECTOR_TYPES)}")
            vectors[weight.name] = weight
        else:
            matrices[weight.name] = _place_matrix(weight, limits)
    factors = (table.factors_tensor for table in plan.rope_tables.values() if table.factors_tensor)
    return Placement(matrices, vectors, tuple(dict.fromkeys(factors)))


def _place_matrix(weight: Weight, limits: Limits) -> Matrix:
    format, n_in = format_of(weight.type, weight.name), weight.shape[-1]
    if n_in % 2:
        raise UnsupportedError(f"tensor {weight.name} has rows of {n_in} elements; the WebGPU backend needs an even number")
    row_nbytes = n_in // format.type.block_size * format.type.type_size
    # Offsets within a binding are 32-bit numbers of bytes.
    most = min(limits.max_storage_buffer_binding_size, limits.max_buffer_size, (1 << 32) - 4)
    rows_per_part = most // row_nbytes
    if rows_per_part == 0:
        raise UnsupportedError(f"one row of tensor {weight.name} takes {row_nbytes} bytes; this device binds at most {most}")
    n_rows = prod(weight.shape[:-1])
    parts = []
    for first in range(0, n_rows, rows_per_part):
        count = min(rows_per_part, n_rows - first)
        parts.append(Part(first, count, count * row_nbytes))
    return Matrix(weight, format, row_nbytes, tuple(parts))


def segments_of(placement: Placement, tensors: Mapping[str, Any], buffers: Mapping[Any, Any]) -> list[Segment]:
    """What to read for whom, in file order; ``buffers`` has (name, part index) for matrices and name for F32 vectors."""
    segments = []
    for name, matrix in placement.matrices.items():
        info = _checked(tensors, matrix.weight)
        for i, part in enumerate(matrix.parts):
            segments.append(Segment(info.offset + part.first_row * matrix.row_nbytes, part.nbytes, buffers[name, i], name))
    for name, weight in placement.vectors.items():
        info = _checked(tensors, weight)
        segments.append(Segment(info.offset, info.nbytes, buffers[name] if weight.type == "F32" else None, name))
    for name in placement.host:
        info = tensors[name]
        if info.type.name not in VECTOR_TYPES:
            raise UnsupportedError(f"tensor {name} holds rope factors of the type {info.type.name}; "
                                   f"it must be one of {', '.join(VECTOR_TYPES)}")
        segments.append(Segment(info.offset, info.nbytes, None, name))
    return sorted(segments, key=lambda segment: segment.offset)


def _checked(tensors: Mapping[str, Any], weight: Weight) -> Any:
    info = tensors[weight.name]
    is_vector = len(weight.shape) == 1  # then the file may have it in several rows
    same = (prod(info.shape) == weight.shape[0] if is_vector
            else without_leading_ones(info.shape) == without_leading_ones(weight.shape))
    if not same or info.type.name != weight.type:
        raise ModelError(f"tensor {weight.name} is {info.type.name} {list(info.shape)} in the file; "
                         f"the plan was made for {weight.type} {list(weight.shape)}")
    return info


def to_floats(data: bytes, type_name: str) -> array:
    """The elements of a vector as float32."""
    if type_name == "F32":
        return array("f", data)
    if type_name == "F16":
        return array("f", struct.unpack(f"<{len(data) // 2}e", data))
    halves = array("H", data)
    return array("f", array("I", (half << 16 for half in halves)).tobytes())
