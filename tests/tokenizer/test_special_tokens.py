"""Splitting at special tokens, and which tokens end a generation."""

import pytest

from bridge.tokenizer.special_tokens import SpecialTokenSplitter, resolve_special_tokens
from bridge.tokenizer.vocab import CONTROL, NORMAL, USER_DEFINED, read_vocab
from tests.tokenizer.vocabularies import metadata, tok


def vocab_of(tokens, **keys):
    keys.setdefault("token_type", [CONTROL] * len(tokens))
    return read_vocab(metadata("llama", tokens, **keys))


def split(text, tokens, parse_special=True, **keys):
    vocab = vocab_of(tokens, **keys)
    resolve_special_tokens(vocab)
    return SpecialTokenSplitter(vocab).split(text, parse_special)


@pytest.mark.parametrize(
    ("text", "tokens", "expected"),
    [
        ("", ["<a>"], []),
        ("x", ["<a>"], ["x"]),
        ("<a>", ["<a>"], [0]),
        ("x<a>y<a><a>", ["<a>"], ["x", 0, "y", 0, 0]),
        ("<a><ab>", ["<a>", "<ab>"], [0, 1]),
        ("aab", ["a", "ab"], [0, 1]),  # the longest token is looked for first, everywhere
        ("abc", ["ab", "bc"], [0, "c"]),  # among equals the first
        ("<a", ["<a>"], ["<a"]),
        ("é<é>é", ["<é>"], ["é", 0, "é"]),
    ],
)
def test_split(text, tokens, expected):
    assert split(text, tokens) == expected


def test_only_user_defined_tokens_without_parsing():
    types = {"token_type": [CONTROL, USER_DEFINED, NORMAL]}
    assert split("<a><b><c>", ["<a>", "<b>", "<c>"], parse_special=False, **types) == ["<a>", 1, "<c>"]


def test_phi_3_tokens_swallow_the_white_space_after_them():
    tokens = ["<|x|>", "</s>", "<s>", "<|endoftext|>"]
    phi = {"name": "Phi-3 mini"}
    assert split("a <|x|> \n b</s> c<s> d<|endoftext|> e", tokens, **phi) == ["a ", 0, "b", 1, "c", 2, " d", 3, " e"]
    assert split("a <|x|> \n b", tokens) == ["a ", 0, " \n b"]
    assert split("<|x|> \n ", tokens, **phi) == [0]


def test_mask_swallows_the_white_space_before_it():
    assert split("a \t[MASK] b", ["[MASK]"], name="modern-bert") == ["a", 0, " b"]
    assert split(" <mask> b", ["<mask>"], pre="jina-v2-de") == [0, " b"]


def ends(tokens, **keys):
    t = tok(metadata("llama", ["<unk>", "<s>", "x", *tokens], **keys))
    return {t.token_text(token) for token in t.eog_ids} - {"x"}  # x has the default EOS id of the family


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["<|im_end|>", "<|endoftext|>", "<|im_start|>"], {"<|im_end|>", "<|endoftext|>"}),
        (["<|eot_id|>", "<|eom_id|>"], {"<|eot_id|>", "<|eom_id|>"}),
        (["<end_of_turn>", "<eos>"], {"<end_of_turn>", "<eos>"}),
        (["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"], {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}),
        (["<|end|>", "<|return|>"], {"<|end|>", "<|return|>"}),
        (["<|end|>", "<|return|>", "<|call|>"], {"<|return|>", "<|call|>"}),
        (["<|end|>", "<|flush|>", "<|calls|>"], {"<|flush|>", "<|calls|>"}),
        (["</s>", "<|tool_response>"], {"<|tool_response>"}),
    ],
)
def test_tokens_that_end_a_generation(tokens, expected):
    assert ends(tokens) == expected


def test_ids_of_the_file_end_a_generation_too():
    assert ends(["a", "b"], eot_token_id=3, eom_token_id=4) == {"a", "b"}


def test_tokens_that_end_a_generation_are_control_tokens():
    t = tok(metadata("llama", ["<unk>", "<s>", "</s>", "<|im_end|>"]))
    assert t.is_control(3) and t.decode([3]) == "" and t.decode([3], special=True) == "<|im_end|>"


def test_harmony_markers_are_shown():
    t = tok(metadata("llama", ["<unk>", "<s>", "</s>", "<|channel|>"], token_type=[CONTROL] * 4))
    assert t.decode([3]) == "<|channel|>"
