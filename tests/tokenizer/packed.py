"""The vocabularies of tests/data/tokenizer: real ones, cut down to the tokens that the recorded inputs can touch.

Token ids are those of the whole vocabulary: a token that was left out is an empty string, which no text contains. Each
file holds what llama.cpp makes of some texts: `cases` has ids by (add_special, parse_special) as two digits, and three
ways to decode ids["11"]; `pieces` has single tokens. `tools/pack_vocabs.py` makes these files.
"""

from __future__ import annotations

import base64
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

from bridge.tokenizer import Tokenizer
from bridge.tokenizer.vocab import KEY, UNUSED

DATA = Path(__file__).parent.parent / "data" / "tokenizer"


def names() -> list[str]:
    return sorted(path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz"))


@cache
def record(name: str) -> dict[str, Any]:
    return json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes()))


def metadata_of(record: dict[str, Any]) -> dict[str, Any]:
    """GGUF metadata of a record, with as many tokens as the whole vocabulary."""
    n_vocab = record["n_vocab"]
    tokens, types, scores = [""] * n_vocab, [UNUSED] * n_vocab, [0.0] * n_vocab
    for token, text, kind, score in record["tokens"]:
        tokens[token], types[token], scores[token] = text, kind, score
    metadata = record["metadata"] | {KEY + "tokens": tokens}
    if record["has_types"]:
        metadata[KEY + "token_type"] = types
    if record["has_scores"]:
        metadata[KEY + "scores"] = scores
    if record["merges"]:
        metadata[KEY + "merges"] = record["merges"]
    if record["charsmap"]:
        metadata[KEY + "precompiled_charsmap"] = base64.b64decode(record["charsmap"])
    return metadata


@cache
def tokenizer(name: str) -> Tokenizer:
    return Tokenizer.from_metadata(metadata_of(record(name)))


def given(case: dict[str, Any]) -> str | bytes:
    return case["text"] if "text" in case else bytes(case["bytes"])


def stated(value: str | dict[str, str]) -> bytes:
    """Bytes of a recorded text; those that are not UTF-8 are recorded in hexadecimal."""
    return value.encode() if isinstance(value, str) else bytes.fromhex(value["hex"])


def wrong_answers(tok: Tokenizer, record: dict[str, Any]) -> list[str]:
    """Where `tok` differs from what the record says, as readable lines; empty if it is right."""
    wrong = []
    for case in record["cases"]:
        if case["ids"] is None:
            continue  # llama.cpp stops here (code points above U+10FFFF); test_tokenizer.py checks that we do not
        for flags, ids in case["ids"].items():
            if tok.encode(given(case), flags[0] == "1", flags[1] == "1") != ids:
                wrong.append(f"ids {flags} of {given(case)!r}")
        ids, texts = case["ids"]["11"], case["detok"]
        if tok.decode_bytes(ids) != stated(texts["special_false"]):
            wrong.append(f"text of {ids}")
        if tok.decode_bytes(ids, special=True) != stated(texts["special_true"]):
            wrong.append(f"text with special tokens of {ids}")
        if tok.decode_bytes(ids, remove_special=True) != stated(texts["remove_special"]):
            wrong.append(f"text without special tokens of {ids}")
    for token, text, special_text in record["pieces"]:
        if (tok.token_bytes(token), tok.token_bytes(token, special=True)) != (stated(text), stated(special_text)):
            wrong.append(f"piece {token}")
    return wrong
