"""ggml's tensor types: block geometry and bit-exact decoders.

``types`` is the table and needs no numpy; a decoder is imported, and numpy with it, when something is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .types import QUANT_TYPES, REMOVED, QuantType, quant_type, row_nbytes

if TYPE_CHECKING:
    import numpy as np

__all__ = ["QUANT_TYPES", "REMOVED", "QuantType", "dequantize", "quant_type", "row_nbytes"]


def dequantize(blocks, type: QuantType | int | str, out: np.ndarray | None = None) -> np.ndarray:
    """The values of whole blocks of one type, float32 [n], equal to ggml's to the last bit.

    ``blocks`` is bytes or a contiguous array of them, ``type`` a name such as "Q4_K" or a ggml id; ``out`` receives the
    values if given (float32, contiguous). Raises InputError where the bytes are not a whole number of blocks and
    UnsupportedError for a type without a decoder.
    """
    from .decode import decode

    return decode(blocks, quant_type(type), out)
