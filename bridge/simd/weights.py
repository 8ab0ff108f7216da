"""Which bytes of the file go where in memory, and what the kernels have to do with them on the way."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from bridge.errors import ModelError, UnsupportedError
from bridge.graph.graph import Weight, without_leading_ones
from bridge.plan.plan import Plan
from bridge.simd.formats import ROWS, Format, format_of
from bridge.simd.host import Matrix, Span, Vector
from bridge.simd.ops import VECTOR_TYPES, Region


def grids_of(formats: Mapping[str, Format]) -> dict[str, bytes]:
    """The lattice grids that decoders of these formats read, one signed byte per component."""
    names = dict.fromkeys(format.grid for format in formats.values() if format.grid)
    if not names:
        return {}
    from bridge.quants.grids import grid

    return {name: bytes(component & 255 for component in grid(name)) for name in names}


def spans_of(plan: Plan, formats: Mapping[str, Format], tensors: Mapping[str, Any],
             regions: Mapping[Region, Any]) -> list[Span]:
    """What to read, in file order. Raises ModelError when the file has another tensor than the plan was made for."""
    spans = []
    for weight in plan.weights().values():
        info, format = _checked(tensors, weight), formats[weight.name]
        if len(weight.shape) == 1:
            spans.append(_vector(info, format, regions))
            continue
        grid = regions[Region("grid", format.grid)].unit if format.grid else 0
        target = Matrix(format.layout.number, format.type.id, format.type.block_size, format.type.type_size, grid,
                        weight.shape[-1], regions[Region("matrix", weight.name)].unit)
        spans.append(Span(info.offset, info.nbytes, weight.name, ROWS * info.row_nbytes, info.row_nbytes, target))
    factors = {table.factors_tensor: None for table in plan.rope_tables.values() if table.factors_tensor}
    for name in factors:
        info = tensors[name]
        if info.type.name not in VECTOR_TYPES:
            raise UnsupportedError(f"tensor {name} holds rope factors of the type {info.type.name}; "
                                   f"it must be one of {', '.join(VECTOR_TYPES)}")
        spans.append(_vector(info, format_of(info.type.name, name), regions))
    return sorted(spans, key=lambda span: span.offset)


def _vector(info: Any, format: Format, regions: Mapping[Region, Any]) -> Span:
    size = format.type.type_size
    target = Vector(format.layout.number, regions[Region("vector", info.name)].unit)
    return Span(info.offset, info.nbytes, info.name, size, size, target)


def _checked(tensors: Mapping[str, Any], weight: Weight) -> Any:
    info = tensors[weight.name]
    is_vector = len(weight.shape) == 1  # then the file may have it in several rows
    same = (prod(info.shape) == weight.shape[0] if is_vector
            else without_leading_ones(info.shape) == without_leading_ones(weight.shape))
    if not same or info.type.name != weight.type:
        raise ModelError(f"tensor {weight.name} is {info.type.name} {list(info.shape)} in the file; "
                         f"the plan was made for {weight.type} {list(weight.shape)}")
    return info
