"""The table of ggml tensor types: id, name and block geometry, without numpy.

Every id of ggml's enum (``ggml.h``, revision 0c1e57098) is known here by name. Ids that ggml once used and dropped are
kept in ``REMOVED`` so that an old file is refused by name instead of by number.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.errors import InputError, UnsupportedError


@dataclass(frozen=True, slots=True)
class QuantType:
    """One tensor type: ``block_size`` elements are stored together in ``type_size`` bytes."""

    id: int
    name: str
    block_size: int
    type_size: int

    def __str__(self) -> str:
        return self.name


# (id, name, elements per block, bytes per block); sizes from ggml-common.h, spelled as the struct's parts.
_TABLE = (
    (0, "F32", 1, 4),
    (1, "F16", 1, 2),
    (2, "Q4_0", 32, 2 + 16),
    (3, "Q4_1", 32, 2 + 2 + 16),
    (6, "Q5_0", 32, 2 + 4 + 16),
    (7, "Q5_1", 32, 2 + 2 + 4 + 16),
    (8, "Q8_0", 32, 2 + 32),
    (9, "Q8_1", 32, 2 + 2 + 32),
    (10, "Q2_K", 256, 16 + 64 + 2 + 2),
    (11, "Q3_K", 256, 32 + 64 + 12 + 2),
    (12, "Q4_K", 256, 2 + 2 + 12 + 128),
    (13, "Q5_K", 256, 2 + 2 + 12 + 32 + 128),
    (14, "Q6_K", 256, 128 + 64 + 16 + 2),
    (15, "Q8_K", 256, 4 + 256 + 32),
    (16, "IQ2_XXS", 256, 2 + 64),
    (17, "IQ2_XS", 256, 2 + 64 + 8),
    (18, "IQ3_XXS", 256, 2 + 64 + 32),
    (19, "IQ1_S", 256, 2 + 32 + 16),
    (20, "IQ4_NL", 32, 2 + 16),
    (21, "IQ3_S", 256, 2 + 64 + 8 + 32 + 4),
    (22, "IQ2_S", 256, 2 + 64 + 8 + 8),
    (23, "IQ4_XS", 256, 2 + 2 + 4 + 128),
    (24, "I8", 1, 1),
    (25, "I16", 1, 2),
    (26, "I32", 1, 4),
    (27, "I64", 1, 8),
    (28, "F64", 1, 8),
    (29, "IQ1_M", 256, 32 + 16 + 8),
    (30, "BF16", 1, 2),
    (34, "TQ1_0", 256, 48 + 4 + 2),
    (35, "TQ2_0", 256, 64 + 2),
    (39, "MXFP4", 32, 1 + 16),
    (40, "NVFP4", 64, 4 + 32),
    (41, "Q1_0", 128, 2 + 16),
    (42, "Q2_0", 64, 2 + 16),
)

REMOVED = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}

QUANT_TYPES: tuple[QuantType, ...] = tuple(QuantType(*row) for row in _TABLE)
_BY_ID = {t.id: t for t in QUANT_TYPES}
_BY_NAME = {t.name: t for t in QUANT_TYPES}
_REMOVED_IDS = {name: id_ for id_, name in REMOVED.items()}


def quant_type(key: QuantType | int | str) -> QuantType:
    """The type with this ggml id or name ("Q4_K", in any case).

    Raises UnsupportedError for a type that ggml has removed (by name) or never had.
    """
    if isinstance(key, QuantType):
        return key
    if isinstance(key, str):
        name = key.upper()
        found = _BY_NAME.get(name)
        if found is None and name in _REMOVED_IDS:
            raise _removed(_REMOVED_IDS[name])
        if found is None:
            raise UnsupportedError(f"there is no tensor type {name[:32]!r}; known are {', '.join(_BY_NAME)}")
        return found
    found = _BY_ID.get(key)
    if found is None and key in REMOVED:
        raise _removed(key)
    if found is None:
        raise UnsupportedError(f"unknown tensor type id {key}; known ids are 0 to {max(_BY_ID)}")
    return found


def _removed(id: int) -> UnsupportedError:
    return UnsupportedError(f"tensor type {REMOVED[id]} (id {id}) was removed from ggml; re-quantise the model")


def row_nbytes(type: QuantType | int | str, n: int) -> int:
    """Bytes that ``n`` consecutive elements (one row) take; ``n`` must be a multiple of the block size."""
    type = quant_type(type)
    if n < 0 or n % type.block_size:
        raise InputError(f"{n} elements are not a whole number of {type.name} blocks of {type.block_size} elements")
    return n // type.block_size * type.type_size
