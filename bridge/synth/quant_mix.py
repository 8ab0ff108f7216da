"""Which type each weight gets: llama.cpp's mixes (``llama-quant.cpp``), reduced to what decides size and speed.

Norms and biases are F32. The output matrix (the embedding, where that is tied) gets a better type than the layers, and the
"M" mixes give some attn_v and ffn_down matrices that better type as well. Rows that are no whole number of 256-element
blocks fall back to a 32-element type of about the same size, as llama.cpp's do.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import InputError
from bridge.quants.types import QuantType, quant_type


@dataclass(frozen=True)
class QuantMix:
    """``base`` for most matrices, ``output`` for the output matrix, ``better`` for every third attn_v and ffn_down."""

    name: str
    base: str
    output: str
    better: str
    file_type: int
    """``general.file_type``, llama.cpp's LLAMA_FTYPE."""

    def type_of(self, name: str, shape: tuple[int, ...], n_layer: int) -> QuantType:
        """The type of one tensor, by its GGUF name and row-major shape."""
        if len(shape) == 1:
            return quant_type("F32")
        wanted = self.base
        part = name.split(".")
        if name in ("output.weight", "token_embd.weight"):
            wanted = self.output
        elif part[2] in ("attn_v", "ffn_down") and uses_more_bits(int(part[1]), n_layer):
            wanted = self.better
        return fitting(quant_type(wanted), shape[-1])


def uses_more_bits(layer: int, n_layer: int) -> bool:
    """The first and last eighth of the layers and every third between."""
    return layer < n_layer // 8 or layer >= 7 * n_layer // 8 or (layer - n_layer // 8) % 3 == 2


_MIXES = {
    mix.name: mix
    for mix in (
        QuantMix("Q4_0", "Q4_0", "Q6_K", "Q4_0", 2),
        QuantMix("Q4_1", "Q4_1", "Q6_K", "Q4_1", 3),
        QuantMix("Q5_0", "Q5_0", "Q6_K", "Q5_0", 8),
        QuantMix("Q5_1", "Q5_1", "Q6_K", "Q5_1", 9),
        QuantMix("Q2_K", "Q2_K", "Q6_K", "Q3_K", 10),
        QuantMix("Q3_K_S", "Q3_K", "Q6_K", "Q3_K", 11),
        QuantMix("Q3_K_M", "Q3_K", "Q6_K", "Q4_K", 12),
        QuantMix("Q4_K_S", "Q4_K", "Q6_K", "Q4_K", 14),
        QuantMix("Q4_K_M", "Q4_K", "Q6_K", "Q6_K", 15),
        QuantMix("Q5_K_S", "Q5_K", "Q6_K", "Q5_K", 16),
        QuantMix("Q5_K_M", "Q5_K", "Q6_K", "Q6_K", 17),
        QuantMix("IQ4_NL", "IQ4_NL", "Q6_K", "IQ4_NL", 25),
        QuantMix("IQ4_XS", "IQ4_XS", "Q6_K", "IQ4_XS", 30),
        QuantMix("F32", "F32", "F32", "F32", 0),
        QuantMix("F16", "F16", "F16", "F16", 1),
        QuantMix("BF16", "BF16", "BF16", "BF16", 32),
        QuantMix("Q8_0", "Q8_0", "Q8_0", "Q8_0", 7),
        QuantMix("Q6_K", "Q6_K", "Q6_K", "Q6_K", 18),
    )
}
NAMES = tuple(_MIXES)

# For rows that are not a multiple of 256, by the type wanted (llama.cpp's tensor_type_fallback).
_FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL"}


def fitting(wanted: QuantType, n_row: int) -> QuantType:
    """``wanted``, or what llama.cpp would use for rows of ``n_row`` values that it cannot hold."""
    if n_row % wanted.block_size == 0:
        return wanted
    fallback = quant_type(_FALLBACK.get(wanted.name, "F16"))
    return fallback if n_row % fallback.block_size == 0 else quant_type("F16")


def quant_mix(name: str) -> QuantMix:
    """The mix with this name, in any case; raises InputError naming the known ones."""
    found = _MIXES.get(name.upper())
    if found is None:
        raise InputError(f"there is no quantisation mix {name!r}; known are {', '.join(NAMES)}")
    return found
