"""4-bit indices into sixteen fixed values: IQ4_NL, IQ4_XS, MXFP4, NVFP4."""

from __future__ import annotations

from functools import cache

import numpy as np

from .simple import half, scale_into

# kvalues_iq4nl in ggml-common.h.
IQ4_VALUES = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
# E2M1 of the OCP microscaling formats 1.0, doubled so that they are integers; the scales below are halved in return.
E2M1_VALUES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def _e8m0_halves() -> np.ndarray:
    """2^(x - 128) for each byte x: the power-of-two scale of MXFP4, halved."""
    return np.ldexp(np.ones(256, np.float32), np.arange(256) - 128)


def _ue4m3_halves() -> np.ndarray:
    """Half the value of each unsigned E4M3 byte (bias 7); 0x7F is zero, and so ggml reads every byte's low seven bits."""
    code = np.arange(256)
    exponent, mantissa = code >> 3 & 15, code & 7
    values = np.where(exponent == 0, np.ldexp(mantissa / 8, -6), np.ldexp(1 + mantissa / 8, exponent - 7))
    values[[0, 0x7F]] = 0
    return (values / 2).astype(np.float32)


_E8M0 = _e8m0_halves()
UE4M3_HALVES = _ue4m3_halves()


@cache
def _nibble_tables(codebook: bytes) -> tuple[bytes, bytes]:
    """For each byte the codebook's value for its low nibble, and for its high one."""
    return bytes(codebook[i & 15] for i in range(256)), bytes(codebook[i >> 4] for i in range(256))


def look_up(packed: np.ndarray, codebook: np.ndarray) -> np.ndarray:
    """uint8 [..., m] -> int8 [..., 2, m]: the codebook's values for all low nibbles, then for all high ones."""
    values = np.empty((*packed.shape[:-1], 2, packed.shape[-1]), np.int8)
    stored = np.ascontiguousarray(packed).tobytes()  # of a strided view tobytes is very slow
    for i, table in enumerate(_nibble_tables(codebook.tobytes())):
        # bytes.translate beats numpy's take and indexing, above all in Pyodide.
        values[..., i, :] = np.frombuffer(stored.translate(table), np.int8).reshape(packed.shape)
    return values


def iq4_nl(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(look_up(blocks[:, 2:], IQ4_VALUES), half(blocks, 0), out)


_SCALE_SHIFTS = np.arange(0, 16, 2, dtype=np.uint16)


def iq4_xs(blocks: np.ndarray, out: np.ndarray) -> None:
    # Eight 6-bit scales: low nibbles in bytes 4-7, high pairs in the 16-bit word at byte 2.
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], axis=2).reshape(-1, 8)
    high = (blocks[:, 2:4].view("<u2") >> _SCALE_SHIFTS & 3).astype(np.uint8)
    scale = half(blocks, 0) * ((low | high << 4).view(np.int8) - np.int8(32))
    scale_into(look_up(blocks[:, 8:].reshape(-1, 8, 16), IQ4_VALUES), scale, out)


def mxfp4(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(look_up(blocks[:, 1:], E2M1_VALUES), _E8M0[blocks[:, :1]], out)


def nvfp4(blocks: np.ndarray, out: np.ndarray) -> None:
    scale_into(look_up(blocks[:, 4:].reshape(-1, 4, 8), E2M1_VALUES), UE4M3_HALVES[blocks[:, :4]], out)
