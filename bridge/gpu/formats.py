"""The block formats the kernels decode: a new one is a row here and a snippet under ``kernels/wgsl/formats``.

A snippet defines ``Group``, some neighbouring elements that share a scale; ``load_group(row, i)``, group ``i`` of the row
at byte offset ``row`` of ``weight``; and ``quad0(g)`` …, four elements each, to be multiplied by ``g.scale`` and, for
formats with offsets, to have ``g.offset`` added. Quantised formats get the quads from ``formats/bytes.wgsl``. Formats of
single elements also define ``load_tail(row, quad)`` for rows that are not a whole number of groups.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import UnsupportedError
from bridge.quants.types import QuantType, quant_type


@dataclass(frozen=True)
class Format:
    """How a tensor type is decoded: elements per group, whether its bytes are signed, whether groups have an offset."""

    type: QuantType
    group: int
    signed: bool = False
    offsets: bool = False

    @property
    def values(self) -> dict[str, int | bool | str]:
        """What its snippet and the kernels around it are templated with."""
        return {
            "FORMAT": f"formats/{self.type.name.lower()}.wgsl",
            "GROUP": self.group,
            "QUADS": self.group // 4,
            "GROUP_OF_32": self.group == 32,
            "SIGNED": self.signed,
            "OFFSETS": self.offsets,
            "TAIL": self.type.block_size == 1,
        }


_TABLE = (
    # type, elements per group, signed bytes, offsets
    ("F32", 8, False, False),
    ("F16", 16, False, False),
    ("BF16", 16, False, False),
    ("Q4_0", 32, False, True),
    ("Q4_1", 32, False, True),
    ("Q5_0", 32, False, True),
    ("Q5_1", 32, False, True),
    ("Q8_0", 32, True, False),
    ("Q2_K", 16, False, True),
    ("Q3_K", 16, False, True),
    ("Q4_K", 32, False, True),
    ("Q5_K", 32, False, True),
    ("Q6_K", 16, False, True),
    ("IQ4_NL", 32, True, False),
    ("IQ4_XS", 32, True, False),
)

FORMATS = {name: Format(quant_type(name), group, signed, offsets) for name, group, signed, offsets in _TABLE}


def format_of(type_name: str, tensor: str) -> Format:
    """The format of a tensor's type; raises UnsupportedError naming both when the kernels cannot decode it."""
    found = FORMATS.get(type_name)
    if found is None:
        raise UnsupportedError(f"tensor {tensor} has the type {type_name}, which the WebGPU backend cannot decode; "
                               f"it decodes {', '.join(FORMATS)}")
    return found
