"""Where a plan's weights go: which buffers each tensor needs, and which bytes of the file belong in them.

Matrices stay in their block format. The tensors of one product that have the same format share a buffer, rows one after
the other, so that one dispatch does for all; each streams from the file to its place there. What is above the device's
limits is split by rows. Vectors (norm weights, biases) are always float32 on the device: those stored otherwise, and the
tensors that rope tables are computed from, come to the host first.
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
from bridge.plan.plan import Plan, Product, product_of

VECTOR_TYPES = ("F32", "F16", "BF16")
WORD = 4
"""Writes begin and end at multiples of so many bytes."""
LOAD = 16
"""Kernels may load so many bytes at once."""


@dataclass(frozen=True)
class Piece:
    """``n_rows`` rows of a tensor from ``first_row`` on, ``offset`` bytes into a buffer."""

    weight: Weight
    first_row: int
    n_rows: int
    offset: int


@dataclass(frozen=True)
class Part:
    """One buffer: rows ``first_row`` … of a matrix, or such rows of gate and up, then one piece of each."""

    first_row: int
    n_rows: int
    nbytes: int
    pieces: tuple[Piece, ...]

    @property
    def buffer_nbytes(self) -> int:
        return -(-self.nbytes // LOAD) * LOAD


@dataclass(frozen=True)
class Matrix:
    """One tensor, or the rows of several, whose results begin at ``first_column``; parts have buffers of their own."""

    name: str
    format: Format
    n_in: int
    row_nbytes: int
    first_column: int
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Vector:
    """A tensor that is ``at`` elements into the vector buffer ``name``."""

    weight: Weight
    name: str
    at: int


@dataclass(frozen=True)
class Placement:
    """Matrices by their buffers' names, and those of a product by its tensors' names; vectors by their tensor's name,
    the elements of each vector buffer, and the tensors that stay on the host."""

    matrices: Mapping[str, Matrix]
    products: Mapping[tuple[str, ...], tuple[Matrix, ...]]
    vectors: Mapping[str, Vector]
    vector_sizes: Mapping[str, int]
    host: tuple[str, ...]


def bias_name(product: Product) -> str | None:
    """The vector buffer with the biases of a product, zeros where a matrix has none; None if no matrix has one."""
    if not any(product.biases):
        return None
    if len(product.biases) == 1:
        return product.biases[0].name
    return "biases of " + ", ".join(matrix.name for matrix in product.matrices)


def place_weights(plan: Plan, limits: Limits) -> Placement:
    """Decide the buffers of all weights of a plan; raises UnsupportedError naming a tensor the kernels cannot take."""
    # Offsets within a binding are 32-bit numbers of bytes.
    most = min(limits.max_storage_buffer_binding_size, limits.max_buffer_size, (1 << 32) - LOAD) // LOAD * LOAD
    products: dict[tuple[str, ...], tuple[Matrix, ...]] = {}
    vectors: dict[str, Vector] = {}
    sizes: dict[str, int] = {}
    for product in (product_of(step) for step in plan.steps if step.kernel == "matmul"):
        products[tuple(matrix.name for matrix in product.matrices)] = _place_product(product, most)
        if len(product.biases) > 1 and any(product.biases):
            at, name = 0, bias_name(product)
            for matrix, bias in zip(product.matrices, product.biases, strict=True):
                if bias:
                    vectors[bias.name] = Vector(bias, name, at)
                at += matrix.shape[0]
            sizes[name] = at
    matrices = {matrix.name: matrix for placed in products.values() for matrix in placed}
    of_products = {piece.weight.name for matrix in matrices.values() for part in matrix.parts for piece in part.pieces}
    for weight in plan.weights().values():
        if len(weight.shape) > 1:
            if weight.name not in of_products:
                matrices[weight.name] = _place_matrix(weight, most)
        elif weight.name not in vectors:
            vectors[weight.name] = Vector(weight, weight.name, 0)
            sizes[weight.name] = weight.shape[0]
    for weight in (vector.weight for vector in vectors.values()):
        if weight.type not in VECTOR_TYPES:
            raise UnsupportedError(f"tensor {weight.name} is a vector of the type {weight.type}; the WebGPU backend "
                                   f"takes vectors of {', '.join(VECTOR_TYPES)}")
    factors = (table.factors_tensor for table in plan.rope_tables.values() if table.factors_tensor)
    return Placement(matrices, products, vectors, sizes, tuple(dict.fromkeys(factors)))


def _place_product(product: Product, most: int) -> tuple[Matrix, ...]:
    if product.gated:
        return (_place_halves(product.matrices, most),)
    runs: list[tuple[int, list[Weight]]] = []
    column = 0
    for weight in product.matrices:
        if runs and _may_follow(runs[-1][1], weight, most):
            runs[-1][1].append(weight)
        else:
            runs.append((column, [weight]))
        column += weight.shape[0]
    return tuple(_place_run(weights, first, most) if len(weights) > 1 else _place_matrix(weights[0], most, first)
                 for first, weights in runs)


def _may_follow(run: list[Weight], weight: Weight, most: int) -> bool:
    """Whether rows can go on in the same buffer: in one format, at whole words, within a binding."""
    if weight.type != run[-1].type:
        return False
    before = sum(_nbytes(other) for other in run)
    return before % WORD == 0 and before + _nbytes(weight) <= most


def _nbytes(weight: Weight) -> int:
    return weight.shape[0] * _row_nbytes(weight, format_of(weight.type, weight.name))


def _row_nbytes(weight: Weight, format: Format) -> int:
    n_in = weight.shape[-1]
    if n_in % 2:
        raise UnsupportedError(f"tensor {weight.name} has rows of {n_in} elements; the WebGPU backend needs an even number")
    return n_in // format.type.block_size * format.type.type_size


def _place_run(weights: list[Weight], first_column: int, most: int) -> Matrix:
    format = format_of(weights[0].type, weights[0].name)
    row_nbytes = _row_nbytes(weights[0], format)
    pieces, row = [], 0
    for weight in weights:
        pieces.append(Piece(weight, 0, weight.shape[0], row * row_nbytes))
        row += weight.shape[0]
    name = ", ".join(weight.name for weight in weights)
    return Matrix(name, format, weights[0].shape[-1], row_nbytes, first_column,
                  (Part(0, row, row * row_nbytes, tuple(pieces)),))


def _place_halves(weights: tuple[Weight, ...], most: int) -> Matrix:
    """Each part has the same rows of gate and up, since a pair of rows makes one result; both may be in one tensor."""
    gate, up = weights[0], weights[-1]
    format = format_of(gate.type, gate.name)
    row_nbytes = _row_nbytes(gate, format)
    n_rows = sum(weight.shape[0] for weight in weights) // 2
    up_first = n_rows if gate is up else 0
    rows_per_part = _rows_within(most // 2 // WORD * WORD, row_nbytes, gate)
    parts = []
    for first in range(0, n_rows, rows_per_part):
        count = min(rows_per_part, n_rows - first)
        up_at = -(-count * row_nbytes // WORD) * WORD
        parts.append(Part(first, count, up_at + count * row_nbytes,
                          (Piece(gate, first, count, 0), Piece(up, up_first + first, count, up_at))))
    name = ", ".join(weight.name for weight in weights)
    return Matrix(name, format, gate.shape[-1], row_nbytes, 0, tuple(parts))


def _place_matrix(weight: Weight, most: int, first_column: int = 0) -> Matrix:
    format = format_of(weight.type, weight.name)
    row_nbytes = _row_nbytes(weight, format)
    rows_per_part = _rows_within(most, row_nbytes, weight)
    n_rows = prod(weight.shape[:-1])
    parts = []
    for first in range(0, n_rows, rows_per_part):
        count = min(rows_per_part, n_rows - first)
        parts.append(Part(first, count, count * row_nbytes, (Piece(weight, first, count, 0),)))
    return Matrix(weight.name, format, weight.shape[-1], row_nbytes, first_column, tuple(parts))


def _rows_within(most: int, row_nbytes: int, weight: Weight) -> int:
    if most < row_nbytes:
        raise UnsupportedError(f"one row of tensor {weight.name} takes {row_nbytes} bytes; this device binds at most {most}")
    return most // row_nbytes


def segments_of(placement: Placement, tensors: Mapping[str, Any], buffers: Mapping[Any, Any]) -> list[Segment]:
    """What to read for whom, in file order; ``buffers`` has (name, part index) for matrices and names for vectors."""
    segments = []
    for name, matrix in placement.matrices.items():
        for i, part in enumerate(matrix.parts):
            for piece in part.pieces:
                info = _checked(tensors, piece.weight)
                begin, nbytes = (matrix.row_nbytes * n for n in (piece.first_row, piece.n_rows))
                segments.append(Segment(info.offset + begin, nbytes, buffers[name, i], piece.weight.name, piece.offset))
    for vector in placement.vectors.values():
        info = _checked(tensors, vector.weight)
        buffer = buffers[vector.name] if vector.weight.type == "F32" else None
        segments.append(Segment(info.offset, info.nbytes, buffer, vector.weight.name, 4 * vector.at))
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
