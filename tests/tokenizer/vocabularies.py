"""Small vocabularies made by hand, for tests that need to see every token."""

from __future__ import annotations

from typing import Any

from bridge.tokenizer import Tokenizer
from bridge.tokenizer.bpe import BYTE_TO_CHAR
from bridge.tokenizer.vocab import BYTE, CONTROL, KEY, NORMAL, UNKNOWN


def metadata(model: str, tokens: list[str], **keys: Any) -> dict[str, Any]:
    """GGUF metadata; `keys` are those of `tokenizer.ggml.`, or replace `general.name`, which is `name` here."""
    fields = {KEY + "model": model, KEY + "tokens": tokens, "general.name": keys.pop("name", "")}
    return fields | {KEY + key.replace("__", "."): value for key, value in keys.items()}


def byte_level(merges: list[str] | tuple[str, ...] = (), specials: tuple[str, ...] = ("<|end|>",), **keys: Any) -> dict[str, Any]:
    """256 bytes in their order, then the results of the merges, then control tokens."""
    merged = list(dict.fromkeys(merge.replace(" ", "") for merge in merges))
    tokens = [BYTE_TO_CHAR[byte] for byte in range(256)] + merged + list(specials)
    keys.setdefault("token_type", [NORMAL] * (256 + len(merged)) + [CONTROL] * len(specials))
    keys.setdefault("pre", "gpt-2")
    return metadata("gpt2", tokens, merges=list(merges), bos_token_id=len(tokens) - 1, eos_token_id=len(tokens) - 1, **keys)


def sentencepiece(pieces: dict[str, float], **keys: Any) -> dict[str, Any]:
    """<unk> <s> </s>, 256 byte tokens from id 3 on, then pieces with their scores from id 259 on."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(pieces)
    return metadata("llama", tokens, **({"token_type": types, "scores": [0.0] * 259 + list(pieces.values())} | keys))


def wordpiece(words: list[str], **keys: Any) -> dict[str, Any]:
    """[PAD] [UNK] [CLS] [SEP], then `words` from id 4 on, those that start a word with U+2581 in front."""
    ids = {"padding_token_id": 0, "unknown_token_id": 1, "bos_token_id": 2, "seperator_token_id": 3}
    types = [CONTROL] * 4 + [NORMAL] * len(words)
    return metadata("bert", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words], **(ids | {"token_type": types} | keys))


def unigram(pieces: dict[str, float], **keys: Any) -> dict[str, Any]:
    """<pad> </s> <unk>, then pieces with their scores from id 3 on."""
    types = [CONTROL, CONTROL, UNKNOWN] + [NORMAL] * len(pieces)
    fields = {"token_type": types, "scores": [0.0] * 3 + list(pieces.values()), "add_space_prefix": True}
    return metadata("t5", ["<pad>", "</s>", "<unk>", *pieces], **(fields | {"remove_extra_whitespaces": True} | keys))


def tok(fields: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_metadata(fields)
