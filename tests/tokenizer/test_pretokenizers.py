"""Words cut as llama.cpp cuts them, for every pre-tokenizer it knows."""

import hashlib
import json
import unicodedata

import pytest

from bridge.errors import UnsupportedError
from bridge.tokenizer.characters import category, lower, without_accent
from bridge.tokenizer.cuts import split
from bridge.tokenizer.pretokenizers import PRE_TOKENIZERS
from tests.tokenizer.packed import DATA
from tests.tokenizer.vocabularies import byte_level, metadata, tok

WORDS = json.loads((DATA / "words.json").read_text(encoding="utf-8"))
NAMES = [(name, row["lengths"]) for row in WORDS["word_lengths"] for name in row["names"]]


def words(name: str, text: str) -> list[str]:
    return split(text, PRE_TOKENIZERS[name].steps)


@pytest.mark.parametrize(("name", "lengths"), NAMES, ids=[name for name, _ in NAMES])
def test_words_are_llama_cpps(name, lengths):
    for text, expected in zip(WORDS["inputs"], lengths, strict=True):
        assert list(map(len, words(name, text))) == expected, text


def test_all_names_are_covered():
    assert {name for name, _ in NAMES} == set(PRE_TOKENIZERS)


@pytest.mark.parametrize("name", sorted(PRE_TOKENIZERS))
def test_no_character_is_lost(name):
    assert words(name, "") == []
    assert all("".join(words(name, text)) == text for text in WORDS["inputs"])


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt-2", "Hello world  it's 123", ["Hello", " world", " ", " it", "'s", " 123"]),
        ("llama-bpe", "Hello world  IT'S 1234", ["Hello", " world", " ", " IT", "'S", " ", "123", "4"]),
        ("qwen2", "x1234\n\n y", ["x", "1", "2", "3", "4", "\n\n", " y"]),
        ("smollm", "a 12", ["a", " ", "1", "2"]),
        ("tekken", "fooBar HTTP", ["foo", "Bar", " HTTP"]),
        ("tiny_aya", "x1234567", ["x", "1", "234", "567"]),
        ("superbpe", "1234567", ["1", "234", "567"]),
        ("kimi-k2", "abc漢字def", ["abc", "漢字", "def"]),
        ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
        ("qwen2", "नमस्ते", ["नमस", "्त", "े"]),
        ("qwen35", "नमस्ते", ["नमस्ते"]),
    ],
)
def test_words(name, text, expected):
    assert words(name, text) == expected


def test_unknown_pre_tokenizer_is_named():
    with pytest.raises(UnsupportedError, match="pre-tokenizer 'no-such-pre' is not supported"):
        tok(byte_level(pre="no-such-pre"))


def test_missing_pre_tokenizer_is_noted():
    fields = byte_level()
    del fields["tokenizer.ggml.pre"]
    assert "names no pre-tokenizer" in tok(fields).notes[0]
    assert tok(byte_level()).notes == ()


def test_unknown_tokenizer_model_is_named():
    with pytest.raises(UnsupportedError, match="tokenizer model 'plamo2' is not supported; allowed are bert, gemma4, gpt2, llama"):
        tok(metadata("plamo2", ["a"]))


def test_categories_are_those_of_unicode_15_1():
    if unicodedata.unidata_version > "15.1.0":
        table = "".join(category(code_point) or " " for code_point in range(0x3000))  # later versions only add
        assert table[0x2FFC] == "S" and table[0xCF3] == "M"
        return
    table = "".join(category(code_point) or " " for code_point in range(0x110000))
    # sha256 of llama.cpp's table of categories (unicode-data.cpp), one letter per code point, a blank where unassigned
    assert hashlib.sha256(table.encode()).hexdigest() == "a763ea363ba6d721735e81d39c92840c110f4e8a68bab3d1acf2d1c4e2e78f70"


def test_lower_case_and_accents_are_one_to_one():
    assert [lower("İ"), lower("ẞ"), lower("Σ")] == ["i", "ß", "σ"]
    assert [without_accent("é"), without_accent("ấ"), without_accent("한")] == ["e", "a", "ᄒ"]
