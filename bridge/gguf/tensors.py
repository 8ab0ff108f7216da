"""The tensor table: what each entry claims, checked against the file and against its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from bridge.quants.types import QuantType

from .errors import GGUFError


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Where a tensor lies and how it is stored.

    ``shape`` is row-major, outermost first: a matmul weight is ``(n_out, n_in)`` (the file lists it the other way
    round). ``offset`` counts bytes from the start of the file, in a split model from the start of its first file;
    ``shard`` says which of its files the tensor is in.
    """

    name: str
    type: QuantType
    shape: tuple[int, ...]
    offset: int
    nbytes: int
    shard: int = 0

    @property
    def dtype(self) -> str:
        return self.type.name

    @property
    def n_elements(self) -> int:
        return prod(self.shape)

    @property
    def n_rows(self) -> int:
        """Rows when all but the innermost dimension are flattened."""
        return prod(self.shape[:-1])

    @property
    def row_nbytes(self) -> int:
        return self.shape[-1] // self.type.block_size * self.type.type_size

    @property
    def end(self) -> int:
        return self.offset + self.nbytes


def shown(name: str) -> str:
    """A name from the file for a message: quoted, escaped and, where it is very long, cut."""
    return repr(name if len(name) <= 100 else name[:100] + "…")


def check_placement(tensors: list[TensorInfo], size: int | None) -> list[TensorInfo]:
    """The tensors in file order; raises GGUFError where one ends past the file or two share bytes.

    ``size`` is the file's size in bytes, or None where it is not known yet.
    """
    ordered = sorted(tensors, key=lambda tensor: tensor.offset)
    for tensor in ordered:
        if size is not None and tensor.end > size:
            raise GGUFError(
                f"tensor {shown(tensor.name)}: bytes {tensor.offset}-{tensor.end - 1} are past the end of a {size}-byte file"
            )
    for before, after in zip(ordered, ordered[1:]):
        if after.offset < before.end:
            raise GGUFError(
                f"tensors {shown(before.name)} and {shown(after.name)} overlap: the first ends at byte {before.end}, "
                f"the second starts at byte {after.offset}"
            )
    return ordered
