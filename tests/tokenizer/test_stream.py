"""Streamed text adds up to decoded text, and no piece ever has to be taken back."""

import random

import pytest

from bridge.tokenizer import StreamDetokenizer
from tests.tokenizer.packed import names, record, tokenizer
from tests.tokenizer.vocabularies import byte_level, sentencepiece, tok


def pieces(t, ids, **keywords):
    stream = StreamDetokenizer(t, **keywords)
    return [stream.push(token) for token in ids] + [stream.flush()]


@pytest.mark.parametrize("name", names())
def test_pieces_add_up_to_the_decoded_text(name):
    t, rng = tokenizer(name), random.Random(4)
    known = [token for token, *_ in record(name)["tokens"]]
    for case in record(name)["cases"]:
        ids = case["ids"]["11"] if case["ids"] else rng.choices(known, k=8)
        for special in (False, True):
            assert "".join(pieces(t, ids, special=special)) == t.decode(ids, special, clean_spaces=False)


def test_any_bytes_stream_to_what_they_decode_to():
    t, rng = tok(byte_level()), random.Random(5)
    for _ in range(500):
        data = bytes(rng.choice((0x61, 0xC3, 0xA9, 0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80, 0xEF, 0xBF, 0xFF)) for _ in range(9))
        stable = pieces(t, data)
        assert "".join(stable) == data.decode("utf-8", "replace")
        assert not any(piece.endswith("\ufffd") for piece in stable[:-1])


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("é".encode(), ["", "é", ""]),
        ("😀!".encode(), ["", "", "", "😀", "!", ""]),
        (b"a\xe4b", ["a", "", "\ufffdb", ""]),  # broken characters wait for what follows
        (b"a\xe4", ["a", "", "\ufffd"]),
        ("a\ufffd".encode(), ["a", "", "", "", "\ufffd"]),  # so do replacement characters the model wrote
        (b"", [""]),
    ],
)
def test_what_is_held_back(data, expected):
    assert pieces(tok(byte_level()), data) == expected


def test_text_includes_what_is_held_back():
    stream = StreamDetokenizer(tok(byte_level()))
    assert stream.text == ""
    for byte in b"ab\xf0\x9f":
        stream.push(byte)
    assert stream.text == "ab\ufffd"
    assert stream.flush() == "\ufffd" and stream.text == "ab\ufffd" and stream.flush() == ""


def test_leading_space_is_dropped_as_in_decoding_unless_the_text_goes_on():
    t = tok(sentencepiece({"▁a": -1.0}))
    assert pieces(t, [259, 259]) == ["a", " a", ""]
    assert pieces(t, [259, 259], continues=True) == [" a", " a", ""]
    assert pieces(t, [1, 259]) == ["", " a", ""]


def test_control_tokens_say_nothing_unless_shown():
    t = tok(byte_level())
    assert pieces(t, [97, 256]) == ["a", "", ""]
    assert pieces(t, [97, 256], special=True) == ["a", "<|end|>", ""]


def test_generated_spaces_are_kept():
    assert "".join(pieces(tok(byte_level()), b"a . b ' c")) == "a . b ' c"
