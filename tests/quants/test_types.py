"""The type table: names, ids and geometry."""

import subprocess
import sys

import pytest

from bridge.errors import InputError, UnsupportedError
from bridge.quants import QUANT_TYPES, quant_type, row_nbytes

# (name, id, elements, bytes) worked out by hand from the structs in ggml-common.h.
KNOWN = [
    ("F32", 0, 1, 4), ("Q4_0", 2, 32, 18), ("Q5_1", 7, 32, 24), ("Q8_0", 8, 32, 34), ("Q2_K", 10, 256, 84),
    ("Q3_K", 11, 256, 110), ("Q4_K", 12, 256, 144), ("Q5_K", 13, 256, 176), ("Q6_K", 14, 256, 210),
    ("IQ2_XXS", 16, 256, 66), ("IQ1_S", 19, 256, 50), ("IQ3_S", 21, 256, 110), ("IQ4_XS", 23, 256, 136),
    ("I64", 27, 1, 8), ("BF16", 30, 1, 2), ("TQ1_0", 34, 256, 54), ("MXFP4", 39, 32, 17), ("NVFP4", 40, 64, 36),
    ("Q1_0", 41, 128, 18), ("Q2_0", 42, 64, 18),
]  # fmt: skip


@pytest.mark.parametrize("name, id, block_size, type_size", KNOWN)
def test_geometry(name, id, block_size, type_size):
    type = quant_type(name)
    assert (type.id, type.block_size, type.type_size) == (id, block_size, type_size)
    assert quant_type(id) is type and quant_type(name.lower()) is type and quant_type(type) is type


def test_ids_and_names_are_unique():
    assert len({t.id for t in QUANT_TYPES}) == len({t.name for t in QUANT_TYPES}) == len(QUANT_TYPES) == 35


@pytest.mark.parametrize("key", [4, "Q4_2", 31, "q4_0_4_4", 38])
def test_removed_types_are_refused_by_name(key):
    with pytest.raises(UnsupportedError, match=r"tensor type \w+ \(id \d+\) was removed from ggml"):
        quant_type(key)


@pytest.mark.parametrize("key, message", [(43, "unknown tensor type id 43"), (-1, "id -1"), ("Q9_K", "'Q9_K'")])
def test_unknown_types_are_refused(key, message):
    with pytest.raises(UnsupportedError, match=message):
        quant_type(key)


def test_row_bytes():
    assert row_nbytes("Q4_K", 512) == 288
    assert row_nbytes("F16", 3) == 6
    assert row_nbytes("Q8_0", 0) == 0
    with pytest.raises(InputError, match="100 elements are not a whole number of Q4_0 blocks of 32"):
        row_nbytes("Q4_0", 100)


def test_the_table_needs_no_numpy():
    code = "import sys, bridge.quants, bridge.quants.types, bridge.gguf; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
