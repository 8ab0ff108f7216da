"""The block formats the kernels decode: a new one is a row here and a snippet under ``kernels/wgsl/formats``.

A snippet defines ``Group``, some neighbouring elements; ``load_group(row, i)``, group ``i`` of the row at byte offset
``row`` of ``weight``; and ``quad0(g)`` …, four elements each. Quantised formats only fill the group that
``formats/bytes.wgsl`` defines, a byte for each element and a scale (and offset) for all. Formats of single elements also
define ``load_tail(row, quad)`` for rows that are not a whole number of groups. Formats whose blocks index a lattice grid
read it from one more storage buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import UnsupportedError
from bridge.quants.grids import grid
from bridge.quants.types import QuantType, quant_type


@dataclass(frozen=True)
class Format:
    """How a tensor type is decoded: elements per group, whether its bytes are signed, whether groups have an offset.

    ``grid`` names the grid of bridge.quants.grids that its blocks index.
    """

    type: QuantType
    group: int
    signed: bool = False
    offsets: bool = False
    grid: str | None = None

    @property
    def values(self) -> dict[str, int | bool | str]:
        """What its snippet and the kernels around it are templated with."""
        return {
            "FORMAT": f"formats/{self.type.name.lower()}.wgsl",
            "GROUP": self.group,
            "QUADS": self.group // 4,
            "SPAN_GROUPS": 32 // self.group,
            "GROUP_OF_32": self.group == 32,
            "SIGNED": self.signed,
            "OFFSETS": self.offsets,
            "QUANTISED": self.type.block_size > 1,
            "WIDE": False,
            "SHIFTS": False,
            "ALIGNED": False,
        }

    def is_aligned(self, row_nbytes: int) -> bool:
        """Whether all that its snippet reads four words at a time of such rows begins at a multiple of 16 bytes."""
        return row_nbytes % 16 == 0 and (self.type.block_size == 1 or self.type.type_size % 16 == 0)


_TABLE = (
    # type, elements per group, signed bytes, offsets, grid
    ("F32", 8, False, False, None),
    ("F16", 16, False, False, None),
    ("BF16", 16, False, False, None),
    ("Q1_0", 32, False, True, None),
    ("Q2_0", 32, False, True, None),
    ("Q4_0", 32, False, True, None),
    ("Q4_1", 32, False, True, None),
    ("Q5_0", 32, False, True, None),
    ("Q5_1", 32, False, True, None),
    ("Q8_0", 32, True, False, None),
    ("Q2_K", 16, False, True, None),
    ("Q3_K", 16, False, True, None),
    ("Q4_K", 32, False, True, None),
    ("Q5_K", 32, False, True, None),
    ("Q6_K", 16, False, True, None),
    ("IQ1_S", 32, False, True, "IQ1_S"),
    ("IQ1_M", 16, False, True, "IQ1_S"),
    ("IQ2_XXS", 32, True, False, "IQ2_XXS"),
    ("IQ2_XS", 16, True, False, "IQ2_XS"),
    ("IQ2_S", 16, True, False, "IQ2_S"),
    ("IQ3_XXS", 32, True, False, "IQ3_XXS"),
    ("IQ3_S", 32, True, False, "IQ3_S"),
    ("IQ4_NL", 32, True, False, None),
    ("IQ4_XS", 32, True, False, None),
    ("MXFP4", 32, True, False, None),
    ("NVFP4", 16, True, False, None),
    ("TQ1_0", 16, False, True, None),
    ("TQ2_0", 32, False, True, None),
)

FORMATS = {row[0]: Format(quant_type(row[0]), *row[1:]) for row in _TABLE}


def grid_bytes(name: str) -> bytes:
    """A grid as the kernels want it: one byte per component; IQ1's -1, 0, 1 as 8, 16, 24 (formats/shifted_grid.wgsl)."""
    points = grid(name)
    return bytes(16 + 8 * point for point in points) if name == "IQ1_S" else points.tobytes()


def format_of(type_name: str, tensor: str) -> Format:
    """The format of a tensor's type; raises UnsupportedError naming both when the kernels cannot decode it."""
    found = FORMATS.get(type_name)
    if found is None:
        raise UnsupportedError(f"tensor {tensor} has the type {type_name}, which the WebGPU backend cannot decode; "
                               f"it decodes {', '.join(FORMATS)}")
    return found
