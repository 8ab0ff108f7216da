"""The decoder registry: one row per type, and the loop that feeds decoders with cache-sized pieces.

A decoder is a function ``(blocks, out)``: ``blocks`` is uint8 [n, type_size], ``out`` float32 [n, block_size], which it
fills. Every intermediate rounds to float32 where ggml's C code does (``ggml-quants.c``), so values agree bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bridge.errors import InputError, UnsupportedError

from . import codebook, k_quants, lattice, plain, simple, ternary
from .types import QuantType

Decoder = Callable[[np.ndarray, np.ndarray], None]

DECODERS: dict[str, Decoder] = {
    "F32": plain.f32,
    "F16": plain.f16,
    "BF16": plain.bf16,
    "F64": plain.f64,
    "I8": plain.i8,
    "I16": plain.i16,
    "I32": plain.i32,
    "I64": plain.i64,
    "Q1_0": simple.q1_0,
    "Q2_0": simple.q2_0,
    "Q4_0": simple.q4_0,
    "Q4_1": simple.q4_1,
    "Q5_0": simple.q5_0,
    "Q5_1": simple.q5_1,
    "Q8_0": simple.q8_0,
    "Q8_1": simple.q8_1,
    "Q2_K": k_quants.q2_k,
    "Q3_K": k_quants.q3_k,
    "Q4_K": k_quants.q4_k,
    "Q5_K": k_quants.q5_k,
    "Q6_K": k_quants.q6_k,
    "Q8_K": k_quants.q8_k,
    "IQ4_NL": codebook.iq4_nl,
    "IQ4_XS": codebook.iq4_xs,
    "MXFP4": codebook.mxfp4,
    "NVFP4": codebook.nvfp4,
    "TQ1_0": ternary.tq1_0,
    "TQ2_0": ternary.tq2_0,
    "IQ1_S": lattice.iq1_s,
    "IQ1_M": lattice.iq1_m,
    "IQ2_XXS": lattice.iq2_xxs,
    "IQ2_XS": lattice.iq2_xs,
    "IQ2_S": lattice.iq2_s,
    "IQ3_XXS": lattice.iq3_xxs,
    "IQ3_S": lattice.iq3_s,
}

# Elements decoded at once: the temporaries of a piece stay in the first two cache levels.
PIECE = 128 * 1024


def decode(blocks, type: QuantType, out: np.ndarray | None = None) -> np.ndarray:
    """See ``bridge.quants.dequantize``."""
    decoder = DECODERS.get(type.name)
    if decoder is None:
        raise UnsupportedError(f"there is no decoder for tensor type {type.name}")
    packed = np.frombuffer(blocks, np.uint8)
    n_blocks, rest = divmod(packed.size, type.type_size)
    if rest:
        raise InputError(f"{packed.size} bytes are not a whole number of {type.name} blocks of {type.type_size} bytes")
    n = n_blocks * type.block_size
    if out is None:
        out = np.empty(n, np.float32)
    elif out.dtype != np.float32 or out.size != n or not out.flags.c_contiguous:
        raise InputError(f"decoding needs a contiguous float32 array of {n} values, got {out.dtype} of {out.size}")
    packed = packed.reshape(n_blocks, type.type_size)
    values = out.reshape(n_blocks, type.block_size)
    step = PIECE // type.block_size
    with np.errstate(over="ignore", invalid="ignore"):  # hostile scales may be infinite or NaN; the values then are too
        for start in range(0, n_blocks, step):
            decoder(packed[start : start + step], values[start : start + step])
    return out
