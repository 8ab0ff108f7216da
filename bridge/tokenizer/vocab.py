"""A vocabulary as a GGUF file describes it: token texts, types, scores, special ids and the flags of its family.

This module reads and checks `tokenizer.ggml.*`; how text becomes tokens is the business of the encoders. Defaults per
family are those of llama.cpp (`llama-vocab.cpp`), which files rely on by leaving keys out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Real
from typing import Any

from bridge.errors import ModelError, UnsupportedError
from bridge.tokenizer.characters import to_bytes
from bridge.tokenizer.pretokenizers import PreTokenizer, pre_tokenizer

# Token types of the GGUF specification (`tokenizer.ggml.token_type`).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

KEY = "tokenizer.ggml."
MAX_TOKENS = 1 << 22  # the largest vocabularies in use have about 2^18 tokens


@dataclass(frozen=True)
class Family:
    """Defaults of a tokenizer model: default special ids and flags that hold when the file does not say otherwise."""

    encoder: str  # the module that encodes: "bpe", "spm", "wordpiece", "unigram" or "rwkv"
    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    sep: int | None = None
    pad: int | None = None
    mask: int | None = None
    add_bos: bool = False
    add_eos: bool = False
    add_sep: bool = False
    add_space_prefix: bool = False
    clean_spaces: bool = False


FAMILIES = {
    "llama": Family("spm", bos=1, eos=2, unk=0, add_bos=True, add_space_prefix=True),
    "gpt2": Family("bpe", bos=11, eos=11),
    "gemma4": Family("bpe"),
    "whitespace": Family("bpe", bos=11, eos=11),
    "bert": Family("wordpiece", bos=101, unk=100, sep=102, pad=0, mask=103, add_bos=True, add_sep=True, clean_spaces=True),
    "t5": Family("unigram", eos=1, unk=2, pad=0, add_eos=True),
    "rwkv": Family("rwkv"),
}

# Attribute -> keys that may hold it, the last one present wins.
SPECIAL_ID_KEYS = {
    "bos": ("bos_token_id",),
    "eos": ("eos_token_id",),
    "eot": ("eot_token_id",),
    "eom": ("eom_token_id",),
    "unk": ("unknown_token_id",),
    "sep": ("seperator_token_id",),  # spelled so in the GGUF specification
    "pad": ("padding_token_id",),
    "mask": ("mask_token_id",),
    "fim_pre": ("fim_pre_token_id", "prefix_token_id"),
    "fim_suf": ("fim_suf_token_id", "suffix_token_id"),
    "fim_mid": ("fim_mid_token_id", "middle_token_id"),
    "fim_pad": ("fim_pad_token_id",),
    "fim_rep": ("fim_rep_token_id",),
    "fim_sep": ("fim_sep_token_id",),
}


@dataclass
class Vocab:
    """The tokens of one file and what is said about them. `notes` lists what had to be assumed."""

    model: str
    family: Family
    pre: PreTokenizer | None
    tokens: list[str]
    ids: dict[str, int]
    types: Sequence[int] | None
    scores: Sequence[float] | None
    merges: Sequence[str]
    special: dict[str, int | None]
    add_bos: bool
    add_eos: bool
    add_sep: bool
    add_space_prefix: bool
    clean_spaces: bool
    escape_whitespaces: bool
    remove_extra_whitespaces: bool
    lowercase: bool
    strip_accents: bool
    charsmap: bytes
    chat_template: str
    suppressed: frozenset[int]
    names: tuple[str, str, str]  # general.name, general.architecture, pre-tokenizer name as the file gives it
    retyped: dict[int, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def type_of(self, token: int) -> int:
        """Type of a token after corrections by text (see `special_tokens.py`)."""
        if token in self.retyped:
            return self.retyped[token]
        return NORMAL if self.types is None else self.types[token]


def read_vocab(metadata: Mapping[str, Any]) -> Vocab:
    """Read a vocabulary from GGUF metadata.

    Raises UnsupportedError for a tokenizer model or pre-tokenizer that is not known (naming it), ModelError when keys are
    missing, have the wrong type or contradict each other.
    """
    model = _text(metadata, KEY + "model", required=True)
    if model not in FAMILIES:
        raise UnsupportedError(f"tokenizer model {model[:40]!r} is not supported; allowed are {', '.join(sorted(FAMILIES))}")
    family = FAMILIES[model]
    tokens = _read_tokens(metadata)
    notes: list[str] = []
    pre_name = _text(metadata, KEY + "pre")
    pre = _choose_pre_tokenizer(model, pre_name, notes) if family.encoder == "bpe" else None

    def flag(name: str, default: bool) -> bool:
        value = metadata.get(KEY + name, default)
        if not isinstance(value, bool):
            raise ModelError(f"{KEY}{name} must be true or false, got {type(value).__name__}")
        return value

    lowercase = flag("normalizer.lowercase", not (pre and pre_name == "whitespace"))
    return Vocab(
        model=model,
        family=family,
        pre=pre,
        tokens=tokens,
        ids=_index(tokens),
        types=_per_token(metadata, "token_type", len(tokens)),
        scores=_per_token(metadata, "scores", len(tokens)),
        merges=_read_merges(metadata) if pre else (),
        special=_special_ids(metadata, family, pre, len(tokens), notes),
        add_bos=flag("add_bos_token", family.add_bos or bool(pre and pre.add_bos)) or bool(pre and pre.whole_newlines),
        add_eos=flag("add_eos_token", family.add_eos),
        add_sep=flag("add_sep_token", family.add_sep or bool(pre and pre.add_sep)),
        add_space_prefix=flag("add_space_prefix", family.add_space_prefix),
        clean_spaces=pre.clean_spaces if pre else family.clean_spaces,
        escape_whitespaces=pre.escape_whitespaces if pre else True,
        remove_extra_whitespaces=flag("remove_extra_whitespaces", False),
        lowercase=lowercase,
        strip_accents=flag("normalizer.strip_accents", lowercase),
        charsmap=_charsmap(metadata) if family.encoder == "unigram" else b"",
        chat_template=_text(metadata, "tokenizer.chat_template"),
        suppressed=frozenset(token for token in metadata.get(KEY + "suppress_tokens", ()) if 0 <= token < len(tokens)),
        names=(_text(metadata, "general.name"), _text(metadata, "general.architecture"), pre_name),
        notes=notes,
    )


def _text(metadata: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    if key not in metadata:
        if required:
            raise ModelError(f"the file has no {key}, so it holds no vocabulary")
        return ""
    if not isinstance(metadata[key], str):
        raise ModelError(f"{key} must be a string, got {type(metadata[key]).__name__}")
    return metadata[key]


def _choose_pre_tokenizer(model: str, name: str, notes: list[str]) -> PreTokenizer:
    if model == "gemma4":
        return pre_tokenizer("gemma4")
    if not name:
        notes.append("the vocabulary names no pre-tokenizer; the default one is used and may cut words differently")
    return pre_tokenizer(name or "default")


def _read_tokens(metadata: Mapping[str, Any]) -> list[str]:
    tokens = metadata.get(KEY + "tokens")
    if not _is_array(tokens) or not len(tokens):
        raise ModelError(f"the file has no {KEY}tokens")
    if len(tokens) > MAX_TOKENS:
        raise ModelError(f"the vocabulary has {len(tokens)} tokens, at most {MAX_TOKENS} are allowed")
    tokens = list(tokens)
    try:
        to_bytes("".join(tokens))
    except (TypeError, UnicodeEncodeError):
        bad = next(token for token, text in enumerate(tokens) if not _is_text(text))
        raise ModelError(f"token {bad} of {len(tokens)} is not a string of bytes") from None
    return [text or f"[EMPTY_{token}]" for token, text in enumerate(tokens)] if "" in tokens else tokens


def _is_text(value: object) -> bool:
    return isinstance(value, str) and not any("\ud800" <= char < "\udc80" or "\udcff" < char <= "\udfff" for char in value)


def _is_array(value: object) -> bool:
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, (str, Mapping))


def _index(tokens: list[str]) -> dict[str, int]:
    ids = dict(zip(tokens, range(len(tokens))))
    if len(ids) != len(tokens):
        first, second = next((token, ids[text]) for token, text in enumerate(tokens) if ids[text] != token)
        raise ModelError(f"tokens {first} and {second} have the same text; token texts must be distinct")
    return ids


def _per_token(metadata: Mapping[str, Any], name: str, n_tokens: int) -> Sequence[Any] | None:
    values = metadata.get(KEY + name)
    if values is None:
        return None
    if not _is_array(values) or (len(values) and not isinstance(values[0], Real)):
        raise ModelError(f"{KEY}{name} must be an array of numbers")
    if len(values) < n_tokens:
        raise ModelError(f"{KEY}{name} has {len(values)} entries for {n_tokens} tokens")
    return values


def _read_merges(metadata: Mapping[str, Any]) -> Sequence[str]:
    merges = metadata.get(KEY + "merges")
    if merges is None and metadata.get(KEY + "pre") == "kimi-k2":
        return ()
    if not _is_array(merges) or (len(merges) and not isinstance(merges[0], str)):
        raise ModelError(f"the file has no {KEY}merges (an array of strings), which a byte pair vocabulary needs")
    return merges


def _special_ids(
    metadata: Mapping[str, Any], family: Family, pre: PreTokenizer | None, n_tokens: int, notes: list[str]
) -> dict[str, int | None]:
    ids: dict[str, int | None] = {}
    for name, keys in SPECIAL_ID_KEYS.items():
        default = getattr(family, name, None)
        if name == "bos" and pre and not pre.has_bos:
            default = None
        ids[name] = default if default is not None and default < n_tokens else None
        for key in keys:
            value = metadata.get(KEY + key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int):
                raise ModelError(f"{KEY}{key} must be an integer, got {type(value).__name__}")
            if 0 <= value < n_tokens:
                ids[name] = value
            else:
                # Converters write -1 as 4294967295 for "none"; llama.cpp ignores such ids, so files with them exist.
                notes.append(f"{KEY}{key} is {value}, outside the vocabulary of {n_tokens} tokens, and is ignored")
    return ids


def _charsmap(metadata: Mapping[str, Any]) -> bytes:
    values = metadata.get(KEY + "precompiled_charsmap")
    if values is None:
        return b""
    if not _is_array(values):
        raise ModelError(f"{KEY}precompiled_charsmap must be an array of bytes")
    data = bytes(value & 0xFF for value in values)  # the array may be of signed bytes
    if len(data) < 4 or int.from_bytes(data[:4], "little") + 4 >= len(data):
        raise ModelError(f"{KEY}precompiled_charsmap of {len(data)} bytes is shorter than its own header says")
    return data
