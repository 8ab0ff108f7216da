"""The layouts weights have in the CPU backend's memory, and which of them each block format of a file becomes.

A layout interleaves four rows (kernels/simd/blocks.h draws them); its number, geometry and kernels are in C, and a test
holds both tables to each other. Formats without a layout of their own are expanded when they arrive: to signed bytes
with a float32 scale per 16 columns, which holds every value of theirs exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import UnsupportedError
from bridge.quants.types import QuantType, quant_type

ROWS = 4
"""Rows of a matrix in one group."""


@dataclass(frozen=True)
class Layout:
    """Bytes of four rows: ``head`` before ``blocks`` blocks, ``block`` for each 32 columns; floats: ``element``."""

    number: int
    name: str
    head: int = 0
    blocks: int = 1
    block: int = 0
    element: int = 0

    @property
    def is_float(self) -> bool:
        return self.element > 0

    def group_nbytes(self, n_in: int) -> int:
        """Bytes of four rows of ``n_in`` columns, a multiple of 32 (256 for K formats) unless they are floats."""
        if self.is_float:
            return ROWS * self.element * n_in
        return n_in // (32 * self.blocks) * (self.head + self.blocks * self.block)


_TABLE = (
    # name, head, blocks, bytes of a block (scales + planes), bytes of an element
    ("F32", 0, 1, 0, 4),
    ("F16", 0, 1, 0, 2),
    ("BF16", 0, 1, 0, 2),
    ("Q4_0", 0, 1, 8 + 64, 0),
    ("Q4_1", 0, 1, 16 + 64, 0),
    ("Q5_0", 0, 1, 8 + 16 + 64, 0),
    ("Q5_1", 0, 1, 16 + 16 + 64, 0),
    ("Q8_0", 0, 1, 8 + 128, 0),
    ("Q2_K", 16, 8, 8 + 32, 0),
    ("Q3_K", 8, 8, 8 + 16 + 32, 0),
    ("Q4_K", 16, 8, 8 + 64, 0),
    ("Q5_K", 16, 8, 8 + 16 + 64, 0),
    ("Q6_K", 8, 8, 8 + 32 + 64, 0),
    ("IQ4_NL", 0, 1, 8 + 64, 0),
    ("IQ4_XS", 8, 8, 4 + 64, 0),
    ("MXFP4", 0, 1, 4 + 64, 0),
    ("WIDE8", 0, 1, 32 + 128, 0),
)

LAYOUTS = {row[0]: Layout(number, *row) for number, row in enumerate(_TABLE)}
EXPANDED = {
    "IQ1_S": "IQ1_S", "IQ1_M": "IQ1_S", "IQ2_XXS": "IQ2_XXS", "IQ2_XS": "IQ2_XS", "IQ2_S": "IQ2_S",
    "IQ3_XXS": "IQ3_XXS", "IQ3_S": "IQ3_S", "TQ1_0": None, "TQ2_0": None, "NVFP4": None, "Q1_0": None, "Q2_0": None,
}
"""Formats that become WIDE8, each with the grid of bridge.quants.grids that its decoder needs."""


@dataclass(frozen=True)
class Format:
    """A block format of a file with the layout it gets here; ``grid`` names the table its decoder reads."""

    type: QuantType
    layout: Layout
    grid: str | None = None

    @property
    def is_expanded(self) -> bool:
        return self.layout.name == "WIDE8"


FORMATS = {name: Format(quant_type(name), layout) for name, layout in LAYOUTS.items() if name != "WIDE8"} | {
    name: Format(quant_type(name), LAYOUTS["WIDE8"], grid) for name, grid in EXPANDED.items()
}


def format_of(type_name: str, tensor: str) -> Format:
    """The format of a tensor's type; raises UnsupportedError naming both when the kernels cannot take it."""
    found = FORMATS.get(type_name)
    if found is None:
        raise UnsupportedError(f"tensor {tensor} has the type {type_name}, which the CPU backend cannot compute with; "
                               f"it takes {', '.join(FORMATS)}")
    return found
