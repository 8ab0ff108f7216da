"""The writer against gguf-py, the format's own library, and against its own promises."""

import io

import gguf
import numpy as np
import pytest

from bridge.errors import BridgeError, InputError
from bridge.gguf_writer import Typed, write_gguf


def read(tmp_path, metadata, tensors=()):
    path = tmp_path / "model.gguf"
    write_gguf(path, metadata, tensors)
    return gguf.GGUFReader(path)


@pytest.mark.parametrize(
    ("value", "types", "expected"),
    [
        ("naïve", ["STRING"], "naïve"),
        (True, ["BOOL"], True),
        (7, ["UINT32"], 7),
        (-7, ["INT32"], -7),
        (2**40, ["UINT64"], 2**40),
        (-(2**40), ["INT64"], -(2**40)),
        (0.5, ["FLOAT32"], 0.5),
        (["a", "b"], ["ARRAY", "STRING"], ["a", "b"]),
        ([1, -2], ["ARRAY", "INT32"], [1, -2]),
        ([1, 2**31], ["ARRAY", "UINT32"], [1, 2**31]),
        ([1, 0.5], ["ARRAY", "FLOAT32"], [1, 0.5]),
        ([True, False], ["ARRAY", "BOOL"], [True, False]),
        (np.arange(3), ["ARRAY", "INT32"], [0, 1, 2]),
        (Typed("uint16", 9), ["UINT16"], 9),
        (Typed("float64", 0.1), ["FLOAT64"], 0.1),
        (Typed("uint8", [1, 2]), ["ARRAY", "UINT8"], [1, 2]),
        (Typed("string", []), ["ARRAY"], []),
    ],
)
def test_metadata_is_read_back(tmp_path, value, types, expected):
    field = read(tmp_path, {"general.architecture": "llama", "key": value}).fields["key"]
    assert [t.name for t in field.types][: len(types)] == types
    if expected != []:
        assert field.contents() == expected


def test_tensors_are_read_back_with_row_major_shape(tmp_path):
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    blocks = bytes(range(36)) * 2
    reader = read(
        tmp_path, {"general.architecture": "llama"}, [("a", "F32", (3, 4), values), ("b", 2, (4, 32), blocks)]
    )
    a, b = reader.tensors
    assert a.name == "a" and a.shape.tolist() == [4, 3] and np.array_equal(a.data, values)
    assert b.tensor_type == gguf.GGMLQuantizationType.Q4_0 and b.data.tobytes() == blocks


def test_every_tensor_starts_at_a_multiple_of_the_alignment(tmp_path):
    tensors = [(f"t{n}", "I8", (n,), bytes(n)) for n in (1, 63, 64, 65)]
    reader = read(tmp_path, {"general.architecture": "llama", "general.alignment": 64}, tensors)
    assert reader.alignment == 64
    assert [t.data_offset % 64 for t in reader.tensors] == [0, 0, 0, 0]
    assert (tmp_path / "model.gguf").stat().st_size % 64 == 0


def test_data_may_be_an_iterator_of_pieces():
    whole, pieces = io.BytesIO(), io.BytesIO()
    write_gguf(whole, {}, [("t", "I8", (5,), b"abcde")])
    write_gguf(pieces, {}, [("t", "I8", (5,), iter([b"ab", bytearray(b"cde")]))])
    assert pieces.getvalue() == whole.getvalue()


@pytest.mark.parametrize(
    ("metadata", "tensors", "message"),
    [
        ({}, [("t", "Q4_0", (2, 33), b"")], "rows of 33 values; Q4_0 needs a multiple of 32"),
        ({}, [("t", "F32", (2,), b"1234567")], "needs 8 bytes of data, got 7 bytes"),
        ({}, [("t", "F32", (2,), bytes(9))], "needs 8 bytes of data, got more"),
        ({}, [("t", "F32", (2, 0), b"")], "shape \\[2, 0\\]"),
        ({}, [("t", "F32", (1,) * 5, bytes(4))], "1 to 4 positive dimensions"),
        ({}, [("t", "F32", (1,), bytes(4))] * 2, "'t' is given twice"),
        ({}, [("t", "Q9_9", (1,), bytes(4))], "Q9_9"),
        ({"k": []}, [], "'k' is an empty list"),
        ({"k": [1, "a"]}, [], "'k' mixes"),
        ({"k": None}, [], "'k' holds NoneType"),
        ({"k": Typed("uint8", 256)}, [], "256, which is no uint8"),
        ({"k": Typed("float128", 1.0)}, [], "'float128'"),
        ({"k": 2**64}, [], "does not fit 64 bits"),
        ({"general.alignment": 48}, [], "power of two; got 48"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_no_file(tmp_path, metadata, tensors, message):
    path = tmp_path / "model.gguf"
    with pytest.raises(BridgeError, match=message):
        write_gguf(path, metadata, tensors)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_keeps_the_file_that_was_there(tmp_path):
    path = tmp_path / "model.gguf"
    write_gguf(path, {"k": 1})
    before = path.read_bytes()
    with pytest.raises(InputError):
        write_gguf(path, {"k": 2}, [("t", "F32", (4,), b"short")])
    assert path.read_bytes() == before
