"""Headers that are right: what is read from them, and how little has to be read."""

import struct

import pytest

from bridge.gguf import GGUFTruncated, HeaderParser, StringArray, header_reads, open_gguf
from bridge.gguf.header import FIRST_READ
from tests.gguf import forge


def test_metadata_values():
    file = open_gguf(forge.small_model())
    metadata = file.metadata
    assert file.version == 3 and file.architecture == "llama"
    assert metadata["general.name"] == "naïve 模型"
    assert [metadata[f"test.{kind}"] for kind in ("u8", "i8", "u16", "i16", "u32", "i32", "u64", "i64")] == [7] * 8
    assert metadata["test.f32"] == 0.5 and metadata["test.f64"] == 0.1
    assert metadata["test.bool"] is True and metadata["test.flags"] == [True, False, True]
    assert list(metadata["test.scores"]) == [0.5, -1.0] and list(metadata["test.types"]) == [1, -2, 3]
    assert metadata["test.empty"] == []
    assert metadata["tokenizer.ggml.tokens"] == ["", "a", "é", "\0", "x" * 300, "last"]
    assert "test.missing" not in metadata and metadata.get("test.missing", 5) == 5
    assert list(metadata)[:2] == ["general.architecture", "general.name"] and len(metadata) == 18
    assert metadata.value_type("test.u8") == "u8" and metadata.value_type("test.scores") == "array of f32"


def test_tensor_table():
    file = open_gguf(forge.small_model())
    assert list(file.tensors) == ["a.weight", "b.weight"]
    a, b = file.tensors.values()
    assert (a.dtype, a.shape, a.nbytes, a.offset) == ("F32", (2, 4), 32, file.data_offset)
    assert (b.dtype, b.shape, b.nbytes, b.offset) == ("Q8_0", (3, 64), 204, file.data_offset + 32)
    assert (b.n_elements, b.n_rows, b.row_nbytes, b.end) == (192, 3, 68, file.size)
    assert file.data_offset % 32 == 0


def test_tensors_are_listed_in_file_order():
    tensors = [forge.tensor("second", [8], 0, 32), forge.tensor("first", [8], 0, 0)]
    assert list(open_gguf(forge.gguf([], tensors, bytes(64))).tensors) == ["first", "second"]


def test_version_2_and_another_alignment():
    entries = [forge.entry("general.alignment", forge.value("u32", 128))]
    file = open_gguf(forge.gguf(entries, [forge.tensor("t", [4], 0, 128)], bytes(144), version=2, alignment=128))
    assert file.version == 2 and file.header.alignment == 128
    assert file.data_offset % 128 == 0 and file.tensors["t"].offset == file.data_offset + 128


def test_no_tensors_needs_no_data_section():
    file = open_gguf(forge.gguf([forge.entry("general.architecture", forge.value("string", "x"))], alignment=1))
    assert file.tensors == {} and file.architecture == "x"


def test_architecture_is_none_where_the_file_does_not_say():
    assert open_gguf(forge.gguf()).architecture is None
    assert open_gguf(forge.gguf([forge.entry("general.architecture", forge.value("u32", 1))])).architecture is None


def test_shape_of_four_dimensions():
    file = open_gguf(forge.gguf([], [forge.tensor("t", [2, 3, 4, 5], 1, 0)], bytes(240)))
    assert file.tensors["t"].shape == (5, 4, 3, 2) and file.tensors["t"].n_rows == 60


def test_every_prefix_asks_for_more_and_nothing_else():
    whole = forge.small_model()
    end = HeaderParser(len(whole)).parse(whole).data_offset
    for n in range(end - 32):
        with pytest.raises(GGUFTruncated) as raised:
            HeaderParser(len(whole)).parse(whole[:n])
        assert raised.value.needs_more_bytes and n < raised.value.needed <= end


def test_growing_prefixes_give_the_same_header():
    whole = forge.small_model()
    parser, wanted, tries = HeaderParser(len(whole)), 0, 0
    while True:
        try:
            header = parser.parse(whole[:wanted])
            break
        except GGUFTruncated as error:
            wanted, tries = error.needed, tries + 1
    assert tries > 20  # it crept
    straight = HeaderParser(len(whole)).parse(whole)
    assert dict(header.metadata) == dict(straight.metadata) and header.tensors == straight.tensors


def big_vocabulary(n=200_000):
    tokens = [f"token{i}" for i in range(n)]
    entries = [
        forge.entry("tokenizer.ggml.tokens", forge.array("string", tokens)),
        forge.entry("tokenizer.ggml.scores", forge.array("f32", [0.0] * n)),
    ]
    return tokens, forge.gguf(entries, [forge.tensor("t", [1 << 20], 24, 0)], bytes(1 << 20))


def test_a_large_header_is_read_once():
    tokens, file = big_vocabulary()
    header_end = len(file) - (1 << 20)
    reads = []
    wanted = header_reads(len(file))
    try:
        offset, length = next(wanted)
        while True:
            reads.append((offset, length))
            offset, length = wanted.send(file[offset : offset + length])
    except StopIteration as finished:
        header = finished.value
    assert header.metadata["tokenizer.ggml.tokens"] == tokens
    assert reads[0] == (0, FIRST_READ)
    assert all(before[0] + before[1] == after[0] for before, after in zip(reads, reads[1:]))  # nothing twice
    assert sum(length for _, length in reads) <= 2 * header_end and len(reads) <= 6


def test_an_unknown_size_ends_with_a_short_answer():
    whole = forge.small_model()
    wanted = header_reads(None)
    offset, length = next(wanted)
    with pytest.raises(StopIteration) as finished:
        wanted.send(whole[offset : offset + length])
    assert finished.value.value.tensors["b.weight"].shape == (3, 64)

    wanted = header_reads(None)
    next(wanted)
    with pytest.raises(GGUFTruncated, match="the file ends inside its header"):
        wanted.send(whole[:300])


def test_strings_of_every_awkward_kind():
    """Cut at C speed or walked one by one, the strings are the same."""
    awkward = ["", "\0" * 6, "\0" * 7, "a" + "\0" * 7, "\0" * 20, "é" * 127, "x" * 255, "y" * 256, "z" * 70_000, "\x01" + "\0" * 7, ""]
    tokens = [t for i in range(3000) for t in ("plain", awkward[i % len(awkward)] if i % 50 == 0 else "more")] + awkward
    file = forge.gguf([forge.entry("k", forge.array("string", tokens)), forge.entry("after", forge.value("u32", 9))])
    metadata = open_gguf(file).metadata
    assert metadata["k"].tolist() == tokens and metadata["after"] == 9


def test_string_array_is_a_sequence():
    raw = ["a", "b", "c"]
    file = open_gguf(forge.gguf([forge.entry("k", forge.array("string", raw))]))
    strings = file.metadata["k"]
    assert isinstance(strings, StringArray) and len(strings) == 3
    assert strings[1] == "b" and strings[-1] == "c" and strings[:2] == ["a", "b"]  # before anything was decoded
    assert list(strings) == raw and strings == raw and strings == tuple(raw) and strings != ["a"] and strings != "abc"
    assert strings.tolist() is strings.tolist() and strings[1] == "b" and strings[:2] == ["a", "b"]
    assert "b" in strings and strings.index("c") == 2


@pytest.mark.parametrize("neighbour", [b"", b"a\0b"])
def test_token_bytes_survive_where_they_are_not_utf8(neighbour):
    raw = [b"\xff\xfe", b"ok", b"\xc3", b"\xa9", neighbour]
    strings = open_gguf(forge.gguf([forge.entry("k", forge.array("string", raw))])).metadata["k"]
    assert [s.encode("utf-8", "surrogateescape") for s in strings] == raw
    assert strings[1] == "ok"


def test_numbers_are_read_little_endian():
    body = struct.pack("<H", 0x1234)
    metadata = open_gguf(forge.gguf([forge.entry("k", forge.u32(9) + forge.u32(2) + forge.u64(1) + body)])).metadata
    assert list(metadata["k"]) == [0x1234]
