"""Encoding and decoding with vocabularies small enough to see through."""

import random

import pytest

from bridge.errors import InputError, ModelError
from bridge.tokenizer import Tokenizer
from bridge.tokenizer.characters import decode_leniently
from bridge.tokenizer.vocab import CONTROL, KEY, NORMAL, USER_DEFINED
from tests.tokenizer.packed import tokenizer
from tests.tokenizer.vocabularies import byte_level, metadata, sentencepiece, tok, unigram, wordpiece

MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or"]
SPACE = 32


def random_text(rng: random.Random) -> str:
    pools = ("abc ", "  \n\t", "0123456789", "éüñ", "漢字かな", "😀👍🏽", "'s't!?.,", "\u0301\u200d\ufeff", "\0\x7f\x85\ufffd")
    return "".join(rng.choice(rng.choice(pools)) for _ in range(rng.randint(0, 40)))


def random_bytes(rng: random.Random) -> bytes:
    return bytes(rng.choice((rng.randrange(256), 0x61, 0xE4, 0xBD, 0xA0, 0xED, 0xF0)) for _ in range(rng.randint(0, 24)))


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "deepseek-llm", "tekken", "kimi-k2"])
def test_byte_level_text_comes_back(pre):
    rng, t = random.Random(1), tok(byte_level(MERGES, pre=pre))
    for _ in range(200):
        text = random_text(rng)
        assert t.decode(t.encode(text, False, False), clean_spaces=False) == text


def test_byte_level_bytes_come_back_as_they_are_read():
    rng, t = random.Random(2), tok(byte_level(MERGES))
    for _ in range(300):
        data = random_bytes(rng)
        expected = decode_leniently(data).encode("utf-8", "surrogatepass")
        assert t.decode_bytes(t.encode(data, False, False), clean_spaces=False) == expected


def test_sentencepiece_bytes_come_back():
    rng, t = random.Random(3), tokenizer("ggml-vocab-llama-spm")
    for _ in range(300):
        data = random_bytes(rng)
        assert t.decode_bytes(t.encode(data, False, False)) == data


@pytest.mark.parametrize(
    ("fields", "text", "ids"),
    [
        (byte_level(MERGES), "hello world", [259, 262, 108, 100]),
        (byte_level(MERGES), "hello<|end|>", [259, 263]),
        (byte_level(["a b", "b c"]), "abc", [256, 99]),  # the lower rank wins
        (byte_level(["a b", "b c", "a b"]), "abc", [256, 99]),  # the first of two equal merges counts
        (byte_level(["b c", "a b"]), "abc", [97, 256]),
        (byte_level(["a b", "ab c"], pre="qwen2"), "abc abc", [257, SPACE, 257]),
        (sentencepiece({"▁a": -1.0, "a": -3.0, "▁": -2.0}, add_space_prefix=True), "a a", [1, 259, 259]),
        (sentencepiece({"a": -3.0, "▁": -2.0}, add_space_prefix=False), "a a", [1, 259, 260, 259]),
        (sentencepiece({"ab": -2.0, "bc": -1.0, "a": 0.0, "c": 0.0}, add_space_prefix=False), "abc", [1, 261, 260]),
        (sentencepiece({"a": 0.0}, add_space_prefix=False), "aé", [1, 259, 0xC3 + 3, 0xA9 + 3]),
        # Texts are cut into words before U+2581, but not where a token or merge goes across.
        (sentencepiece({"a": -3.0, "▁": -2.0, "a▁": -1.0, "a▁a": 0.0}, add_space_prefix=False), "a a a", [1, 262, 260, 259]),
        (metadata("gemma4", ["a", "▁", "a▁", "a▁a", "▁a", "<bos>"], merges=["a ▁", "a▁ a", "▁ a"], bos_token_id=5), "a a a", [5, 2, 3]),
        (metadata("gemma4", ["a", "▁", "▁a", "\n\n\n", "<bos>"], merges=["▁ a"], bos_token_id=4), "a a\n\n\n", [4, 0, 2, 3]),
        (sentencepiece({"▁a": 0.0}), "</s>a", [1, 2, 259]),  # text after a special token begins anew
        (wordpiece(["▁un", "able", "▁,", "▁a"]), "Unable, A", [2, 4, 5, 6, 7, 3]),
        (wordpiece(["▁un", "able"]), "unused", [2, 1, 3]),
        (wordpiece(["▁e"]), "É\u0301\0", [2, 4, 3]),
        (wordpiece(["▁É"], normalizer__lowercase=False), "É", [2, 4, 3]),
        (wordpiece(["▁中", "▁国"]), "中国", [2, 4, 5, 3]),
        (unigram({"▁ab": -1.0, "▁a": -0.3, "b": -0.9, "▁": -2.0}), "ab", [3, 1]),
        (unigram({"▁ab": -1.5, "▁a": -0.3, "b": -0.9, "▁": -2.0}), "ab", [4, 5, 1]),
        (unigram({"▁": -1.0, "a": -1.0}), "  a  xyz", [3, 4, 3, 2, 1]),  # one unknown token for a run
        (metadata("rwkv", ["<s>", "a", "ab", "\\n", "\\xe4\\xbd\\xa0", "b"], token_type=[CONTROL] + [NORMAL] * 5), "abb\n你", [2, 5, 3, 4]),
        (metadata("whitespace", ["a", "b", "ab"], merges=["a b"], pre="whitespace"), "ab  b\u2003a", [2, 1, 0]),
    ],
)
def test_ids(fields, text, ids):
    assert tok(fields).encode(text) == ids


def test_special_tokens_are_added_only_on_request():
    t = tok(byte_level(add_bos_token=True, add_eos_token=True))
    assert t.encode("a") == [256, 97, 256]
    assert t.encode("a", add_special=False) == [97]
    assert t.encode("") == [256, 256]


def test_control_tokens_are_parsed_only_on_request():
    assert tok(byte_level()).encode("<|end|>", parse_special=True) == [256]
    assert tok(byte_level()).encode("<|end|>", parse_special=False) == list(b"<|end|>")


def test_lone_surrogates_of_a_str_count_as_replacement_characters():
    t = tok(byte_level())
    assert t.encode("a\ud83d\udc00b") == t.encode("a\ufffd\ufffdb")


def test_merge_whose_result_is_no_token_falls_apart():
    fields = byte_level(["a b"])
    fields[KEY + "tokens"][256] = "unrelated"
    assert tok(fields).encode("ab") == [97, 98]


def test_merges_of_unknown_tokens_do_no_harm():
    assert tok(byte_level(["a b", "Zq ZZZ", "nospace", " ", ""])).encode("ab") == [256]


def test_tokens_that_are_not_utf_8_are_raw_bytes():
    t = tok(sentencepiece({"\udce4\udcbd": -1.0, "a": -1.0}, add_space_prefix=False))
    assert t.token_bytes(259) == b"\xe4\xbd"
    assert t.encode(b"a\xe4\xbd") == [1, 260, 259]


def test_long_runs_without_spaces_are_one_word():
    t = tok(byte_level(["a a", "aa aa"]))
    assert t.encode("a" * 40_003) == [257] * 10_000 + [256, 97]


@pytest.mark.parametrize(("ids", "keywords", "text"), [
    ([1, 259, 259], {}, " a a"),
    ([259, 259], {}, "a a"),
    ([1, 259, 2], {"special": True}, "<s> a</s>"),
    ([1, 259, 2], {"remove_special": True}, " a"),
    ([0xC3 + 3], {}, "\ufffd"),
    ([], {}, ""),
])
def test_sentencepiece_text(ids, keywords, text):
    assert tok(sentencepiece({"▁a": -1.0})).decode(ids, **keywords) == text


@pytest.mark.parametrize(("written", "cleaned"), [
    ("x . y ! z ? a , b", "x. y! z? a, b"),
    ("it 's we 're I 'm they 've", "it's we're I'm they've"),
    ("don 't we 'll", "don 't we 'll"),
    ("a ' b", "a'b"),
    ("a ' ' b", "a'' b"),
    (" .", "."),
])
def test_spaces_are_cleaned_as_llama_cpp_does(written, cleaned):
    t = tok(byte_level())
    assert t.decode(written.encode()) == cleaned
    assert t.decode(written.encode(), clean_spaces=False) == written
    assert tok(byte_level(pre="qwen2")).decode(written.encode()) == written


def test_user_defined_tokens_are_always_matched_and_shown():
    t = tok(byte_level(specials=("<tag>", "<|end|>"), token_type=[NORMAL] * 256 + [USER_DEFINED, CONTROL]))
    assert t.encode("a<tag>", parse_special=False) == [97, 256]
    assert t.decode([256, 257]) == "<tag>"
    assert (t.is_control(256), t.is_control(257)) == (False, True)


def test_decoding_never_ranks_merges(monkeypatch):
    t = tok(byte_level(MERGES))
    monkeypatch.setattr("bridge.tokenizer.bpe.BpeEncoder.__init__", None)
    assert t.decode([259, 262]) == "hello wor"


@pytest.mark.parametrize("token", [-1, 264, 10**9])
def test_ids_outside_the_vocabulary(token):
    with pytest.raises(InputError, match=f"token id {token} is outside the vocabulary of 264 tokens"):
        tok(byte_level(MERGES)).decode([97, token])


def test_single_tokens_outside_the_vocabulary():
    with pytest.raises(InputError, match="token id -1 is outside"):
        tok(byte_level()).token_bytes(-1, special=True)


def test_arguments_of_the_wrong_type():
    with pytest.raises(InputError, match="token ids must be integers, got str"):
        tok(byte_level()).decode(["97"])
    with pytest.raises(InputError, match="text must be str or bytes, got int"):
        tok(byte_level()).encode(97)


def test_what_else_the_file_says():
    t = tok(byte_level(suppress_tokens=[3, 257, -1]) | {"tokenizer.chat_template": "{{ x }}"})
    assert (t.suppressed_ids, t.chat_template) == ({3}, "{{ x }}")
    assert (t.token_id("<|end|>"), t.token_id("nothing"), t.token_text(256)) == (256, None, "<|end|>")
    assert (t.is_eog(256), t.is_eog(97)) == (True, False)


@pytest.mark.parametrize(("change", "message"), [
    ({KEY + "model": None}, "the file has no tokenizer.ggml.model"),
    ({KEY + "model": 7}, "tokenizer.ggml.model must be a string, got int"),
    ({KEY + "tokens": None}, "the file has no tokenizer.ggml.tokens"),
    ({KEY + "tokens": []}, "the file has no tokenizer.ggml.tokens"),
    ({KEY + "tokens": "abc"}, "the file has no tokenizer.ggml.tokens"),
    ({KEY + "tokens": ["a", 5]}, "token 1 of 2 is not a string of bytes"),
    ({KEY + "tokens": ["a", "\ud800"]}, "token 1 of 2 is not a string of bytes"),
    ({KEY + "tokens": ["a", "b", "a"]}, "tokens 0 and 2 have the same text"),
    ({KEY + "scores": [1.0]}, "tokenizer.ggml.scores has 1 entries for 257 tokens"),
    ({KEY + "scores": ["x"] * 257}, "tokenizer.ggml.scores must be an array of numbers"),
    ({KEY + "token_type": [1] * 256}, "tokenizer.ggml.token_type has 256 entries for 257 tokens"),
    ({KEY + "merges": None}, "the file has no tokenizer.ggml.merges"),
    ({KEY + "merges": [1, 2]}, "the file has no tokenizer.ggml.merges"),
    ({KEY + "add_bos_token": 1}, "tokenizer.ggml.add_bos_token must be true or false, got int"),
    ({KEY + "bos_token_id": "x"}, "tokenizer.ggml.bos_token_id must be an integer, got str"),
    ({KEY + "pre": ["gpt-2"]}, "tokenizer.ggml.pre must be a string, got list"),
    ({"tokenizer.chat_template": 5}, "tokenizer.chat_template must be a string, got int"),
])
def test_broken_vocabularies_are_refused_in_one_sentence(change, message):
    fields = byte_level() | change
    with pytest.raises(ModelError) as caught:
        tok({key: value for key, value in fields.items() if value is not None})
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_special_ids_out_of_range_are_ignored_and_noted():
    t = tok(byte_level(padding_token_id=4294967295))
    assert t.pad_id is None
    assert t.notes == ("tokenizer.ggml.padding_token_id is 4294967295, outside the vocabulary of 257 tokens, and is ignored",)


@pytest.mark.parametrize(("fields", "message"), [
    (metadata("gpt2", ["a"], merges=[], pre="gpt-2", add_bos_token=True), "the vocabulary asks for a BOS token but has none"),
    (metadata("bert", ["a"]), "the vocabulary asks for a BOS token but has none"),
    (metadata("t5", ["a"]), "the vocabulary has no unknown token, which the unigram model needs"),
    (metadata("rwkv", ["a"]), "the vocabulary has no token for byte 0x78 and no unknown token"),
])
def test_vocabularies_that_lack_what_encoding_needs(fields, message):
    with pytest.raises(ModelError) as caught:
        tok(fields).encode("x")
    assert str(caught.value) == message


def test_byte_token_without_a_byte():
    fields = sentencepiece({"a": -1.0})
    fields[KEY + "tokens"][3] = "<0xZZ>"
    with pytest.raises(ModelError, match="token 3 is of type byte"):
        tok(fields).decode([3])


@pytest.mark.parametrize("charsmap", [b"\0", b"\xff\xff\xff\x7f123", b"\x04\0\0\0"])
def test_broken_normalisation_map(charsmap):
    with pytest.raises(ModelError, match="precompiled_charsmap of . bytes is shorter than its own header says"):
        tok(unigram({"a": -1.0}, precompiled_charsmap=charsmap))


def test_normalisation_map_that_points_outside_itself():
    with pytest.raises(ModelError, match="precompiled_charsmap points outside itself"):
        tok(unigram({"a": -1.0}, precompiled_charsmap=b"\x04\0\0\0" + b"\xff\xff\0\0" + b"x\0")).encode("a")


def test_raw_bytes_are_read_leniently():
    assert decode_leniently(b"a\x80\xe4\xbdb\xed\xa0\x80\xc0\xaf\xf4\x90\x80\x80\xff") == "a\ufffd\ufffd\ufffdb\ud800/\ufffd\ufffd"


@pytest.mark.parametrize(("text", "said"), [("Ġword", " word"), ("a b", None), ("ÃŃ", "í"), ("Ã", None), ("\x7f", None)])
def test_texts_told_at_once_of_bytes_in_disguise(text, said):
    tokens = ["<|end|>", text, "a"]
    metadata = {KEY + "model": "gpt2", KEY + "pre": "gpt-2", KEY + "tokens": tokens, KEY + "token_type": [3, 1, 1], KEY + "merges": []}
    assert Tokenizer.from_metadata(metadata).plain_texts() == [None, said, "a"]
