"""Headers that are wrong in one way each: one GGUFError with a stable code, no other exception, bounded memory."""

import random
import struct
import tracemalloc
from dataclasses import replace
from itertools import product

import pytest

from bridge.errors import BridgeError, FormatError, UnsupportedError
from bridge.gguf import DEFAULT_LIMITS, BytesSource, GGUFError, open_gguf
from tests.gguf.forge import array, entry, gguf, small_model, string, tensor, u32, u64, value

A_TENSOR = tensor("t", [4], 0, 0)


def with_entry(key, raw):
    return gguf([entry(key, raw)])


# name -> (file, code, fragment of the message)
HOSTILE = {
    "empty file": (b"", "TRUNCATED_GGUF", "the file ends inside its header"),
    "only the magic": (b"GGUF", "TRUNCATED_GGUF", "needs 8 bytes from the start of the file, there are 4"),
    "another format": (b"\x89PNG\r\n\x1a\n" * 8, "INVALID_GGUF", "not a GGUF file: it starts with bytes 89 50 4e 47"),
    "half a wrong magic": (b"GX", "INVALID_GGUF", "not a GGUF file: it starts with bytes 47 58"),
    "an HTML page": (b"<!doctype html><title>404</title>", "INVALID_GGUF", "not a GGUF file"),
    "version 1": (gguf(version=1), "UNSUPPORTED_GGUF", "GGUF version 1 is not supported; versions 2 and 3 are"),
    "version 0": (gguf(version=0), "UNSUPPORTED_GGUF", "version 0"),
    "version 4": (gguf(version=4), "UNSUPPORTED_GGUF", "version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "UNSUPPORTED_GGUF", "a big-endian GGUF file (version 3)"),
    "tensor count 2^64-1": (gguf(n_tensors=2**64 - 1), "GGUF_LIMIT_EXCEEDED", "18446744073709551615 tensors; the limit is 65536"),
    "metadata count 2^63": (gguf(n_entries=2**63), "GGUF_LIMIT_EXCEEDED", "9223372036854775808 metadata entries"),
    "more entries than bytes": (gguf(n_entries=60_000), "TRUNCATED_GGUF", "metadata (60000 entries)"),
    "more tensors than bytes": (gguf(n_tensors=60_000), "TRUNCATED_GGUF", "tensor table (60000 tensors)"),
    "key of 2^62 bytes": (gguf([string("k", length=2**62)]), "GGUF_LIMIT_EXCEEDED", "claims 4611686018427387904 bytes; the limit is 65535"),
    "key past the end": (gguf([string("k", length=60_000)]), "TRUNCATED_GGUF", "key of metadata entry 0"),
    "empty key": (with_entry("", value("u8", 1)), "INVALID_GGUF", "the key of metadata entry 0 is empty"),
    "key that is not UTF-8": (with_entry(b"k\xff", value("u8", 1)), "INVALID_GGUF", "not UTF-8: byte 1 of its 2 is 0xff"),
    "key twice": (gguf([entry("k", value("u8", 1)), entry("k", value("u8", 1))]), "INVALID_GGUF", "metadata key 'k' appears twice"),
    "unknown value type": (with_entry("k", u32(13)), "INVALID_GGUF", "'k' has unknown value type 13"),
    "value type 2^32-1": (with_entry("k", u32(2**32 - 1)), "INVALID_GGUF", "unknown value type 4294967295"),
    "string of 2^64-1 bytes": (with_entry("k", u32(8) + u64(2**64 - 1)), "GGUF_LIMIT_EXCEEDED", "value of 'k' claims 18446744073709551615"),
    "string past the end": (with_entry("k", u32(8) + u64(1000)), "TRUNCATED_GGUF", "value of 'k'"),
    "string that is not UTF-8": (with_entry("k", value("string", b"\x80")), "INVALID_GGUF", "value of 'k' is not UTF-8"),
    "bool of 2": (with_entry("k", u32(7) + b"\2"), "INVALID_GGUF", "'k' holds a bool of value 2; allowed are 0 and 1"),
    "bool of 255 in an array": (with_entry("k", array("bool", [0, 255])), "INVALID_GGUF", "a bool of value 255"),
    "array of unknown type": (with_entry("k", u32(9) + u32(77) + u64(0)), "INVALID_GGUF", "array of unknown value type 77"),
    "array of arrays": (with_entry("k", u32(9) + u32(9) + u64(1)), "UNSUPPORTED_GGUF", "'k' is an array of arrays"),
    "array of 2^61 u64": (with_entry("k", u32(9) + u32(10) + u64(2**61)), "GGUF_LIMIT_EXCEEDED", "2305843009213693952 array elements"),
    "array past the end": (with_entry("k", u32(9) + u32(10) + u64(1000)), "TRUNCATED_GGUF", "the array 'k' (1000 × u64)"),
    "strings past the end": (with_entry("k", array("string", ["a"], count=4_000_000)), "TRUNCATED_GGUF", "ends after 1 of its 4000000 strings"),
    "one string too few": (with_entry("k", array("string", ["a"] * 9, count=10) + u64(200)), "TRUNCATED_GGUF", "ends after 9 of its 10 strings"),
    "string in an array of 2^63": (
        with_entry("k", array("string", ["a"], count=2) + u64(2**63)), "GGUF_LIMIT_EXCEEDED", "string 1 of the array 'k' claims 9223372036854775808"),
    "alignment 0": (with_entry("general.alignment", value("u32", 0)), "INVALID_GGUF", "general.alignment is 0"),
    "alignment 3": (with_entry("general.alignment", value("u32", 3)), "INVALID_GGUF", "must be a power of two from 1 to 1048576"),
    "alignment 2^31": (with_entry("general.alignment", value("u32", 2**31)), "INVALID_GGUF", "general.alignment is 2147483648"),
    "alignment as a string": (with_entry("general.alignment", value("string", "32")), "INVALID_GGUF", "general.alignment is of type string; it must be u32"),
    "alignment as u64": (with_entry("general.alignment", value("u64", 32)), "INVALID_GGUF", "is of type u64; it must be u32"),
    "tokens as numbers": (with_entry("tokenizer.ggml.tokens", array("u32", [1])), "INVALID_GGUF", "tokens is of type array of u32; it must be array of string"),
    "scores as strings": (with_entry("tokenizer.ggml.scores", array("string", ["1.5"])), "INVALID_GGUF", "scores is of type array of string; it must be array of f32"),
    "scores as a number": (with_entry("tokenizer.ggml.scores", value("f32", 1)), "INVALID_GGUF", "scores is of type f32; it must be array of f32"),
    "token types as u8": (with_entry("tokenizer.ggml.token_type", array("u8", [1])), "INVALID_GGUF", "token_type is of type array of u8; it must be array of i32"),
    "merges as one string": (with_entry("tokenizer.ggml.merges", value("string", "a b")), "INVALID_GGUF", "merges is of type string; it must be array of string"),
    "tensor name of 2^40 bytes": (gguf([], [string("t", length=2**40)]), "GGUF_LIMIT_EXCEEDED", "the limit is 255 (max_tensor_name_bytes)"),
    "empty tensor name": (gguf([], [tensor("", [4], 0, 0)], bytes(16)), "INVALID_GGUF", "the name of tensor 0 is empty"),
    "tensor name that is not UTF-8": (gguf([], [tensor(b"\xff", [4], 0, 0)], bytes(16)), "INVALID_GGUF", "name of tensor 0 is not UTF-8"),
    "tensor twice": (gguf([], [A_TENSOR, tensor("t", [4], 0, 32)], bytes(64)), "INVALID_GGUF", "tensor 't' appears twice"),
    "no dimensions": (gguf([], [tensor("t", [], 0, 0)], bytes(64)), "INVALID_GGUF", "'t' has 0 dimensions; allowed are 1 to 4"),
    "five dimensions": (gguf([], [tensor("t", [1] * 5, 0, 0)], bytes(64)), "INVALID_GGUF", "'t' has 5 dimensions"),
    "2^32-1 dimensions": (gguf([], [tensor("t", [4], 0, 0, n_dims=2**32 - 1)], bytes(64)), "INVALID_GGUF", "4294967295 dimensions"),
    "a dimension of 0": (gguf([], [tensor("t", [4, 0], 0, 0)], bytes(64)), "INVALID_GGUF", "'t' has shape [0, 4]"),
    "a dimension of 2^64-1": (gguf([], [tensor("t", [2**64 - 1], 24, 0)], bytes(64)), "INVALID_GGUF", "shape [18446744073709551615]"),
    "dimensions whose product wraps": (gguf([], [tensor("t", [2**32, 2**32], 24, 0)], bytes(64)), "INVALID_GGUF", "'t' has shape"),
    "wraps to a small size": (gguf([], [tensor("t", [2**62, 4], 0, 0)], bytes(64)), "INVALID_GGUF", "product is below 2^63"),
    "unknown tensor type": (gguf([], [tensor("t", [4], 99, 0)], bytes(64)), "UNSUPPORTED_GGUF", "tensor 't': unknown tensor type id 99"),
    "removed tensor type": (gguf([], [tensor("t", [32], 31, 0)], bytes(64)), "UNSUPPORTED_GGUF", "'t': tensor type Q4_0_4_4 (id 31) was removed"),
    "row of part of a block": (
        gguf([], [tensor("t", [100], 12, 0)], bytes(64)), "INVALID_GGUF", "'t' has rows of 100 elements, not a multiple of the 256 in a Q4_K block"),
    "offset off the alignment": (
        gguf([], [tensor("t", [4], 0, 8)], bytes(64)), "INVALID_GGUF", "'t' starts at data offset 8, not a multiple of the alignment 32"),
    "tensor past the end": (gguf([], [tensor("t", [64], 0, 0)], bytes(64)), "INVALID_GGUF", "tensor 't': bytes 64-319 are past the end of a 128-byte file"),
    "offset past the end": (gguf([], [tensor("t", [4], 0, 2**40)], bytes(64)), "INVALID_GGUF", "past the end of a 128-byte file"),
    "offset near 2^64": (gguf([], [tensor("t", [4], 0, 2**64 - 32)], bytes(64)), "INVALID_GGUF", "past the end of a 128-byte file"),
    "tensors overlap": (
        gguf([], [tensor("a", [16], 0, 0), tensor("b", [4], 0, 32)], bytes(64)), "INVALID_GGUF", "'a' and 'b' overlap: the first ends at byte 160"),
    "the same bytes twice": (gguf([], [A_TENSOR, tensor("u", [4], 0, 0)], bytes(64)), "INVALID_GGUF", "overlap"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile(name):
    file, code, fragment = HOSTILE[name]
    tracemalloc.start()
    try:
        with pytest.raises(GGUFError) as raised:
            open_gguf(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    error = raised.value
    assert error.code == code and fragment in str(error), f"{error.code}: {error}"
    assert error.needs_more_bytes == (code == "TRUNCATED_GGUF")
    assert isinstance(error, FormatError) and isinstance(error, UnsupportedError) == (code == "UNSUPPORTED_GGUF")
    assert peak < 200_000


STRANGE_TOKENS = [["", ""], [b"\xff", b"\xc3"], ["a", "a"], [b"\0", "\ufeff"], []]
STRANGE_MERGES = [["a b"], [""], [b"\xff \xff"], ["no-blank"], []]


@pytest.mark.parametrize("model", ["gpt2", "llama", "bert", "t5", "rwkv", "none", "", "new"])
def test_vocabularies_of_strange_tokens(model):
    """They open, and keep their bytes; a tokenizer of them works or is refused."""
    for tokens, merges in product(STRANGE_TOKENS, STRANGE_MERGES):
        file = open_gguf(gguf([
            entry("tokenizer.ggml.model", value("string", model)),
            entry("tokenizer.ggml.pre", value("string", "default")),
            entry("tokenizer.ggml.tokens", array("string", tokens)),
            entry("tokenizer.ggml.merges", array("string", merges)),
            entry("tokenizer.ggml.token_type", array("i32", [1, 6][: len(tokens)])),
            entry("tokenizer.ggml.scores", array("f32", [float("nan"), float("inf")][: len(tokens)])),
            entry("tokenizer.ggml.eos_token_id", value("u32", 2**32 - 1)),
        ]))  # fmt: skip
        stored = [token.encode() if isinstance(token, str) else token for token in tokens]
        assert [token.encode("utf-8", "surrogateescape") for token in file.metadata["tokenizer.ggml.tokens"]] == stored
        try:
            tokenizer = file.tokenizer()
            tokenizer.decode_bytes(tokenizer.encode(b"a \xff b"))
        except BridgeError as error:
            assert error.code in ("INVALID_MODEL", "UNSUPPORTED", "INVALID_INPUT")


def test_messages_stay_short():
    with pytest.raises(GGUFError) as raised:
        open_gguf(gguf([entry("k" * 60_000, u32(99))]))
    assert len(str(raised.value)) < 250


def test_refused_at_once_although_the_file_is_long():
    """A wrong file costs its first bytes, not the whole growing prefix; so does a count that can never fit."""
    for bad in (b"\x7fELF" + bytes(1 << 22), gguf(n_entries=2**63) + bytes(1 << 22), gguf([entry("k", u32(55))]) + bytes(1 << 22)):
        source = BytesSource(bad)
        with pytest.raises(GGUFError):
            open_gguf(source)
        assert source.reads == 1 and source.bytes_read <= 256 * 1024


def test_every_limit_can_be_lowered():
    limits = {
        "max_header_bytes": (100, "max_header_bytes"),
        "max_metadata_entries": (10, "max_metadata_entries"),
        "max_key_bytes": (15, "max_key_bytes"),
        "max_string_bytes": (5, "max_string_bytes"),
        "max_array_length": (2, "max_array_length"),
        "max_tensors": (1, "max_tensors"),
        "max_tensor_name_bytes": (7, "max_tensor_name_bytes"),
        "max_dimensions": (1, "allowed are 1 to 1"),
    }
    for name, (limit, fragment) in limits.items():
        with pytest.raises(GGUFError) as raised:
            open_gguf(small_model(), limits=replace(DEFAULT_LIMITS, **{name: limit}))
        assert fragment in str(raised.value) and str(limit) in str(raised.value), name
    aligned = gguf([entry("general.alignment", value("u32", 64))])
    with pytest.raises(GGUFError, match="a power of two from 1 to 32"):
        open_gguf(aligned, limits=replace(DEFAULT_LIMITS, max_alignment=32))


GOOD = small_model()
INTERESTING = bytes([0, 1, 0x7F, 0x80, 0xFF])


def noise(rng):
    """Random bytes behind as much of a good start as keeps the parser interested, or behind nothing."""
    start = rng.choice([b"", b"GGUF", b"GGUF" + u32(3), b"GGUF" + u32(3) + u64(1) + u64(1), GOOD[: rng.randrange(len(GOOD))]])
    return start + rng.randbytes(rng.randrange(400))


def flips(rng):
    file = bytearray(GOOD)
    for _ in range(rng.randint(1, 4)):
        file[rng.randrange(len(file))] ^= 1 << rng.randrange(8)
    return bytes(file)


def overwrites(rng):
    file = bytearray(GOOD)
    at = rng.randrange(4, len(file) - 8)
    file[at : at + 8] = bytes(rng.choice(INTERESTING) for _ in range(8))
    return bytes(file)


def moves(rng):
    file = bytearray(GOOD)
    to, start, n = rng.randrange(len(file)), rng.randrange(len(file)), rng.randrange(64)
    file[to : to + n] = file[start : start + n]
    return bytes(file)


@pytest.mark.parametrize(
    "damage, rounds, least_refused, least_read",
    [(noise, 2000, 1900, 1), (flips, 2000, 800, 200), (overwrites, 700, 350, 30), (moves, 700, 300, 20)],
)
def test_random_damage(damage, rounds, least_refused, least_read):
    """Refused with a GGUFError, or read; and what was opened can be used without any error."""
    rng = random.Random(20251129)
    codes = {"TRUNCATED_GGUF", "INVALID_GGUF", "GGUF_LIMIT_EXCEEDED", "UNSUPPORTED_GGUF"}
    n_read = 0
    tracemalloc.start()
    try:
        for _ in range(rounds):
            file = damage(rng)
            try:
                opened = open_gguf(file)
            except GGUFError as error:
                assert error.code in codes and error.needs_more_bytes == (error.code == "TRUNCATED_GGUF")
                continue
            n_read += 1
            for name in opened.tensors:
                opened.bytes(name)
            for item in opened.metadata.values():
                assert isinstance(item, (str, int, float)) or list(item) is not None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rounds - n_read >= least_refused and n_read >= least_read, n_read
    assert peak < 500_000


def test_many_empty_strings_take_linear_time():
    """The quick cut fails on all of them; the walk must not be restarted for each. 8 bytes a string, 1 MiB in all."""
    n = 131_072
    file = gguf([entry("k", u32(9) + u32(8) + u64(n) + bytes(8 * n))])
    metadata = open_gguf(file).metadata
    assert len(metadata["k"]) == n and set(metadata["k"]) == {""}
