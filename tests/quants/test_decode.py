"""Every decoder against ggml's values, bit for bit, and against blocks worked out by hand."""

import struct
from pathlib import Path

import numpy as np
import pytest

from bridge.errors import InputError
from bridge.quants import QUANT_TYPES, dequantize, quant_type
from bridge.quants.decode import DECODERS, PIECE
from bridge.quants.random import random_blocks

DATA = np.load(Path(__file__).parents[1] / "data" / "quants" / "blocks.npz")
RECORDED = sorted(name.removesuffix("_blocks") for name in DATA.files if name.endswith("_blocks"))


def test_every_type_has_a_decoder():
    assert set(DECODERS) == {type.name for type in QUANT_TYPES}


@pytest.mark.parametrize("name", RECORDED)
def test_values_equal_ggml(name):
    got = dequantize(DATA[f"{name}_blocks"].tobytes(), name)
    want = DATA[f"{name}_values"]
    assert got.shape == want.shape and got.dtype == np.float32
    # Compared as bits: minus zero and the payload of a NaN count.
    wrong = np.flatnonzero(got.view(np.uint32) != want.view(np.uint32))
    assert not wrong.size, f"{wrong.size} values differ, first at {wrong[0]}: {got[wrong[0]]!r} for {want[wrong[0]]!r}"


def f16(value):
    return struct.pack("<e", value)


# One block each with values counted out on paper from the struct's layout.
BY_HAND = {
    "Q4_0": (f16(2) + bytes([0x1F]) + bytes(15), [14] + [-16] * 15 + [-14] + [-16] * 15),
    "Q4_1": (f16(2) + f16(0.5) + bytes([0x1F]) + bytes(15), [30.5] + [0.5] * 15 + [2.5] + [0.5] * 15),
    "Q5_0": (f16(1) + struct.pack("<I", 1 << 16 | 1) + bytes([0x21]) + bytes(15), [1] + [-16] * 15 + [2] + [-16] * 15),
    "Q5_1": (f16(1) + f16(-1) + struct.pack("<I", 1 << 31) + bytes(15) + bytes([0x3F]), [-1] * 15 + [14] + [-1] * 15 + [18]),
    "Q8_0": (f16(0.5) + bytes([1, 255, 128]) + bytes(29), [0.5, -0.5, -64] + [0] * 29),
    "Q8_1": (f16(0.5) + f16(7) + bytes([1, 255]) + bytes(30), [0.5, -0.5] + [0] * 30),
    "Q2_0": (f16(3) + bytes([0b11100100]) + bytes(15), [-3, 0, 3, 6] + [-3] * 60),
    "Q1_0": (f16(3) + bytes([0b00000101]) + bytes(15), [3, -3, 3] + [-3] * 125),
    "IQ4_NL": (f16(1) + bytes([0xF0]) + bytes([0x88] * 15), [-127] + [1] * 15 + [113] + [1] * 15),
    "MXFP4": (bytes([128]) + bytes([0x9F]) + bytes(15), [-12] + [0] * 15 + [-1] + [0] * 15),
    "NVFP4": (bytes([0x38, 0, 0, 0]) + bytes([0x27]) + bytes(31), [6] + [0] * 7 + [1] + [0] * 55),
    "TQ2_0": (bytes([0b10010010]) + bytes([0x55] * 63) + f16(2), [2 if i == 0 else -2 if i == 32 else 0 if i == 64 else 2 if i == 96 else 0 for i in range(256)]),
    "Q8_K": (struct.pack("<f", 0.25) + bytes([4, 252]) + bytes(254) + bytes(32), [1, -1] + [0] * 254),
    "Q6_K": (bytes([0x21]) + bytes(127) + bytes([0b10]) + bytes(63) + bytes([2] + [0] * 15) + f16(1), [2 * (0x21 - 32)] + [-64] * 15 + [0] * 240),
    "Q4_K": (f16(1) + f16(2) + bytes([3] + [0] * 3 + [1] + [0] * 7) + bytes([0x05]) + bytes(127), [3 * 5 - 2] + [-2] * 31 + [0] * 224),
    "F64": (struct.pack("<dd", 1.5, -2), [1.5, -2]),
    "F16": (f16(1.5) + f16(-2), [1.5, -2]),
    "F32": (struct.pack("<ff", 1.5, -2), [1.5, -2]),
    "BF16": (bytes.fromhex("c03f 00c0"), [1.5, -2]),
    "I8": (bytes([1, 255]), [1, -1]),
    "I16": (struct.pack("<2h", 300, -300), [300, -300]),
    "I32": (struct.pack("<2i", 1 << 20, -1), [1 << 20, -1]),
    "I64": (struct.pack("<2q", 1 << 40, -1), [1 << 40, -1]),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_block_by_hand(name):
    block, values = BY_HAND[name]
    np.testing.assert_array_equal(dequantize(block, name), np.array(values, np.float32))


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_pieces_join_seamlessly(name):
    """Decoding more than one piece at once gives what decoding block by block gives."""
    type = quant_type(name)
    n_blocks = PIECE // type.block_size + 3
    blocks = random_blocks(type, n_blocks, np.random.default_rng(7))
    whole = dequantize(blocks, type).reshape(n_blocks, type.block_size)
    for i in (0, n_blocks - 4, n_blocks - 3, n_blocks - 1):
        np.testing.assert_array_equal(whole[i], dequantize(blocks[i], type))


@pytest.mark.parametrize("name", sorted(set(DECODERS) - {"I8", "I16", "I32", "I64"}))
def test_random_blocks_have_the_spread_asked_for(name):
    type = quant_type(name)
    blocks = random_blocks(type, 65536 // type.block_size, np.random.default_rng(3), scale=0.05)
    assert blocks.shape == (65536 // type.block_size, type.type_size) and blocks.dtype == np.uint8
    values = dequantize(blocks, type)
    assert np.isfinite(values).all()
    assert 0.035 < values.std() < 0.07  # MXFP4 only has powers of two to choose from


def test_a_part_of_a_block_is_refused():
    with pytest.raises(InputError, match="143 bytes are not a whole number of Q4_K blocks of 144 bytes"):
        dequantize(bytes(143), "Q4_K")


def test_out_receives_the_values():
    block, values = BY_HAND["Q8_0"]
    out = np.empty(32, np.float32)
    assert dequantize(block, "Q8_0", out=out) is out
    np.testing.assert_array_equal(out, values)
    for wrong in (np.empty(31, np.float32), np.empty(32, np.float64), np.empty(64, np.float32)[::2]):
        with pytest.raises(InputError, match="a contiguous float32 array of 32 values"):
            dequantize(block, "Q8_0", out=wrong)


def test_infinite_scales_decode_without_warnings():
    with np.errstate(all="raise"):
        values = dequantize(f16(np.inf) + bytes([0x08] * 16), "Q4_0")
    assert np.isnan(values[0]) and values[16] == -np.inf


def test_every_half_precision_number():
    halves = np.arange(65536, dtype=np.uint16)
    finite = halves[(halves & 0x7C00) != 0x7C00]
    for some in (halves, finite, finite[:1], halves[:0]):  # with infinities and NaNs, and without
        got = dequantize(some.tobytes(), "F16")
        np.testing.assert_array_equal(got.view(np.uint32), some.view(np.float16).astype(np.float32).view(np.uint32))
    by_struct = np.array([struct.unpack("<e", half.tobytes())[0] for half in finite], np.float32)
    np.testing.assert_array_equal(dequantize(finite.tobytes(), "F16").view(np.uint32), by_struct.view(np.uint32))
