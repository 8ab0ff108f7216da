"""Random but legal blocks of any type, for tests and for synthetic models whose speed is measured.

Quants are uniformly random bits, so every branch of a decoder is taken; scales are set so that values are finite and
have a standard deviation near the one asked for.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from .codebook import UE4M3_HALVES
from .decode import decode
from .types import QuantType, quant_type

# type -> (byte position of a float16 field, its size relative to the block's scale). A minimum is chosen so that values
# are centred on zero: the mean quant, times the mean sub-block scale over the mean sub-block minimum.
_HALF_FIELDS: dict[str, tuple[tuple[int, float], ...]] = {
    "Q1_0": ((0, 1),),
    "Q2_0": ((0, 1),),
    "Q4_0": ((0, 1),),
    "Q4_1": ((0, 1), (2, -7.5)),
    "Q5_0": ((0, 1),),
    "Q5_1": ((0, 1), (2, -15.5)),
    "Q8_0": ((0, 1),),
    "Q8_1": ((0, 1), (2, 0)),
    "Q2_K": ((80, 1), (82, 1.5)),
    "Q3_K": ((108, 1),),
    "Q4_K": ((0, 1), (2, 7.5)),
    "Q5_K": ((0, 1), (2, 15.5)),
    "Q6_K": ((208, 1),),
    "IQ1_S": ((0, 1),),
    "IQ2_XXS": ((0, 1),),
    "IQ2_XS": ((0, 1),),
    "IQ2_S": ((0, 1),),
    "IQ3_XXS": ((0, 1),),
    "IQ3_S": ((0, 1),),
    "IQ4_NL": ((0, 1),),
    "IQ4_XS": ((0, 1),),
    "TQ1_0": ((52, 1),),
    "TQ2_0": ((64, 1),),
}
_INTEGERS = {"I8": "i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
_FLOATS = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}


def random_blocks(type: QuantType | int | str, n_blocks: int, rng: np.random.Generator, scale: float = 0.02) -> np.ndarray:
    """uint8 [n_blocks, type_size] whose values have a standard deviation of about ``scale``.

    Integer types get integers from -100 to 100 whatever the scale. Formats with coarse scales (MXFP4 has powers of two)
    come as near as they can.
    """
    type = quant_type(type)
    if type.name in _INTEGERS:
        return rng.integers(-100, 101, (n_blocks, 1)).astype(_INTEGERS[type.name]).view(np.uint8)
    if type.name in _FLOATS:
        return (rng.standard_normal((n_blocks, 1), np.float32) * scale).astype(_FLOATS[type.name]).view(np.uint8)
    if type.name == "BF16":
        values = rng.standard_normal((n_blocks, 1), np.float32) * np.float32(scale)
        return values.astype("<f4").view(np.uint8)[:, 2:].copy()
    blocks = rng.integers(0, 256, (n_blocks, type.type_size), np.uint8)
    spread = rng.uniform(0.75, 1.25, n_blocks)
    _set_scales(type.name, blocks, scale / _unit_deviation(type) * spread)
    return blocks


@cache
def _unit_deviation(type: QuantType) -> float:
    """The standard deviation of random blocks whose scale field is one."""
    blocks = np.random.default_rng(0).integers(0, 256, (256, type.type_size), np.uint8)
    _set_scales(type.name, blocks, np.ones(len(blocks)))
    return float(decode(blocks, type).std(dtype=np.float64))


def _set_scales(name: str, blocks: np.ndarray, scales: np.ndarray) -> None:
    """Write one scale per block into its scale fields."""
    if name == "MXFP4":
        blocks[:, 0] = np.clip(np.round(np.log2(scales)) + 128, 0, 254)  # half of 2^(e - 127)
    elif name == "NVFP4":
        codes = UE4M3_HALVES[:0x7F].searchsorted(scales).clip(1, 0x7E)
        blocks[:, :4] = codes[:, None]
    elif name == "Q8_K":
        blocks[:, :4] = scales.astype("<f4").view(np.uint8).reshape(-1, 4)
    elif name == "IQ1_M":
        bits = scales.astype("<f2").view(np.uint16)
        words = blocks[:, 48:].view("<u2")  # the float16 is spread over the top nibbles of four words, lowest first
        words[:] = words & 0x0FFF | (bits[:, None] >> np.array([0, 4, 8, 12], np.uint16)) << 12
    else:
        for at, factor in _HALF_FIELDS[name]:
            blocks[:, at : at + 2] = (scales * factor).astype("<f2").view(np.uint8).reshape(-1, 2)
