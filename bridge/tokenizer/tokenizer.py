"""The tokenizer of one model: text to ids and back, equal to llama.cpp's for every family it supports."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from operator import index
from typing import Any, Protocol

from bridge.errors import InputError, ModelError
from bridge.tokenizer import bpe, rwkv
from bridge.tokenizer.characters import from_bytes, has_raw_bytes, to_bytes
from bridge.tokenizer.special_tokens import SpecialTokenSplitter, resolve_special_tokens
from bridge.tokenizer.spm import SpmEncoder
from bridge.tokenizer.unigram import UnigramEncoder
from bridge.tokenizer.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab, read_vocab
from bridge.tokenizer.wordpiece import WordPieceEncoder
from bridge.tokenizer.words import SPACE_MARK


class Encoder(Protocol):
    def encode(self, text: str, *, after_special: bool) -> list[int]: ...


_ENCODERS: dict[str, Callable[[Vocab], Encoder]] = {
    "bpe": bpe.BpeEncoder,
    "spm": SpmEncoder,
    "wordpiece": WordPieceEncoder,
    "unigram": UnigramEncoder,
    "rwkv": rwkv.RwkvEncoder,
}


class Tokenizer:
    """Encodes and decodes with the vocabulary of one GGUF file.

    Attributes: `n_vocab`; `bos_id`, `eos_id`, `eot_id`, `sep_id`, `pad_id`, `mask_id`, `unk_id` (None if the vocabulary
    has none); `eog_ids`, the ids that end a generation; `suppressed_ids`, those the file says must never be sampled;
    `add_bos`, `add_eos`, `add_sep`; `chat_template`, the file's Jinja template or None; `notes`, sentences on what had
    to be assumed about the file.
    """

    def __init__(self, vocab: Vocab) -> None:
        self._vocab = vocab
        self.eog_ids = resolve_special_tokens(vocab)
        self.suppressed_ids = vocab.suppressed
        self.chat_template = vocab.chat_template or None
        self.notes = tuple(vocab.notes)
        self.n_vocab = len(vocab.tokens)
        self.add_bos, self.add_eos, self.add_sep = vocab.add_bos, vocab.add_eos, vocab.add_sep
        special = vocab.special
        self.bos_id, self.eos_id, self.eot_id = special["bos"], special["eos"], special["eot"]
        self.sep_id, self.pad_id, self.mask_id, self.unk_id = special["sep"], special["pad"], special["mask"], special["unk"]
        self._pieces: dict[int, bytes] = {}
        # Made when first needed: a page that only decodes never pays for merges.
        self._encoder: Encoder | None = None
        self._splitter: SpecialTokenSplitter | None = None

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Tokenizer of the vocabulary in GGUF metadata (`tokenizer.*`, `general.name`, `general.architecture`).

        Raises UnsupportedError for an unknown tokenizer model or pre-tokenizer, ModelError for a broken vocabulary.
        """
        return cls(read_vocab(metadata))

    def encode(self, text: str | bytes, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Ids of `text`.

        `add_special` adds the BOS, EOS or separator tokens the vocabulary asks for; `parse_special` lets control tokens
        written in the text become themselves. Lone surrogates of a str count as U+FFFD, bytes may be any bytes.
        """
        vocab = self._vocab
        if self._encoder is None or self._splitter is None:
            self._encoder, self._splitter = _ENCODERS[vocab.family.encoder](vocab), SpecialTokenSplitter(vocab)
        plain = _as_plain_text(text)
        wordpiece = vocab.family.encoder == "wordpiece"
        ids: list[int] = []
        if add_special and (vocab.add_bos or wordpiece):
            ids.append(self._required("bos"))
        after_special = True
        for fragment in self._splitter.split(plain, parse_special):
            if isinstance(fragment, str):
                ids += self._encoder.encode(fragment, after_special=after_special)
            else:
                ids.append(fragment)
            after_special = isinstance(fragment, int)
        if add_special and (vocab.add_eos or wordpiece):
            ids.append(self._required("sep" if wordpiece else "eos"))
        return ids

    def decode(
        self, ids: Iterable[int], special: bool = False, remove_special: bool = False, clean_spaces: bool | None = None
    ) -> str:
        """Text of `ids`, bytes that are not UTF-8 as U+FFFD; arguments as in `decode_bytes`."""
        return self.decode_bytes(ids, special, remove_special, clean_spaces).decode("utf-8", "replace")

    def decode_bytes(
        self, ids: Iterable[int], special: bool = False, remove_special: bool = False, clean_spaces: bool | None = None
    ) -> bytes:
        """UTF-8 text of `ids`, as llama_detokenize gives it.

        `special` shows control tokens; `remove_special` drops a BOS and an EOS that `encode` adds by itself. Some
        vocabularies drop spaces before punctuation, which spoils generated text: `clean_spaces=False` keeps them.
        """
        vocab = self._vocab
        ids = list(ids)
        strip = vocab.add_space_prefix
        if remove_special and vocab.add_bos and ids and ids[0] == self.bos_id:
            ids, strip = ids[1:], False
        if remove_special and vocab.add_eos and ids and ids[-1] == self.eos_id:
            ids = ids[:-1]
        pieces = [self.token_bytes(token, special) for token in ids]
        if strip and pieces:
            pieces[0] = pieces[0].removeprefix(b" ")
        text = b"".join(pieces)
        return _clean(text) if (vocab.clean_spaces if clean_spaces is None else clean_spaces) else text

    def token_bytes(self, token: int, special: bool = False) -> bytes:
        """What one token says, by itself; nothing for a control or unknown token unless `special`."""
        token = self._checked(token)
        if not special and self._vocab.type_of(token) in (UNKNOWN, CONTROL):
            return b""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._spell(token)
        return piece

    def plain_texts(self) -> list[str | None]:
        """What all tokens say, None for those where `token_bytes` has to be asked; much faster than asking for all.

        Told are whole texts of ordinary tokens, whose `token_bytes` are their UTF-8.
        """
        vocab = self._vocab
        joined = BETWEEN_TOKENS.join(vocab.tokens)
        if vocab.family.encoder == "rwkv" or has_raw_bytes(joined) or joined.count(BETWEEN_TOKENS) >= self.n_vocab:
            return [None] * self.n_vocab
        texts: list[str | None] = []
        if vocab.pre is None or vocab.escape_whitespaces:
            texts += joined.replace(SPACE_MARK, " ").split(BETWEEN_TOKENS)
        else:
            spelled = joined.translate(bpe.CHAR_TO_LATIN).split(BETWEEN_TOKENS)
            texts += [text if text.isascii() else _from_latin(text) for text in spelled]
        for token in [token for token, kind in enumerate(vocab.types or ()) if kind != NORMAL]:
            texts[token] = None
        for token in vocab.retyped:
            texts[token] = None
        return texts

    def token_text(self, token: int) -> str:
        """The token as the vocabulary writes it."""
        return self._vocab.tokens[self._checked(token)]

    def token_id(self, text: str) -> int | None:
        """Id of the token the vocabulary writes as `text`, None if there is none."""
        return self._vocab.ids.get(text)

    def is_control(self, token: int) -> bool:
        return self._vocab.type_of(self._checked(token)) == CONTROL

    def is_eog(self, token: int) -> bool:
        """Whether the token ends a generation."""
        return token in self.eog_ids

    @property
    def begins_with_space(self) -> bool:
        """Whether encoding puts a space in front of text, which decoding takes away again."""
        return self._vocab.add_space_prefix

    def _spell(self, token: int) -> bytes:
        vocab = self._vocab
        text, kind = vocab.tokens[token], vocab.type_of(token)
        if vocab.family.encoder == "rwkv":
            return rwkv.unescape(text)
        if kind in (UNKNOWN, CONTROL, USER_DEFINED):
            return to_bytes(text)
        if kind == BYTE:
            match = re.fullmatch("<0x([0-9A-Fa-f]{2})>", text)
            if match is None:
                raise ModelError(f"token {token} is of type byte, but its text is not <0x..>")
            return bytes([int(match[1], 16)])
        if kind != NORMAL:
            return b""
        if vocab.pre is None or vocab.escape_whitespaces:
            return to_bytes(text.replace(SPACE_MARK, " "))
        return bpe.spell(text)

    def _checked(self, token: int) -> int:
        try:
            token = index(token)
        except TypeError:
            raise InputError(f"token ids must be integers, got {type(token).__name__}") from None
        if not 0 <= token < self.n_vocab:
            raise InputError(f"token id {token} is outside the vocabulary of {self.n_vocab} tokens")
        return token

    def _required(self, name: str) -> int:
        token = self._vocab.special[name]
        if token is None:
            raise ModelError(f"the vocabulary asks for a {name.upper()} token but has none")
        return token


BETWEEN_TOKENS = "\U0010ffff"
"""A character that no vocabulary has, or nothing is told of it at once."""


def _from_latin(text: str) -> str | None:
    """The text whose UTF-8 bytes are the characters' codes, if it is one."""
    try:
        return text.encode("latin-1").decode()
    except UnicodeError:
        return None


def _as_plain_text(text: str | bytes) -> str:
    """Text in which surrogates stand for raw bytes, and for nothing else."""
    if isinstance(text, (bytes, bytearray, memoryview)):
        return from_bytes(bytes(text))
    if not isinstance(text, str):
        raise InputError(f"text must be str or bytes, got {type(text).__name__}")
    return re.sub("[\ud800-\udfff]", "\ufffd", text) if has_raw_bytes(text) else text


def _clean(text: bytes) -> bytes:
    """Drop spaces before punctuation, around a lone apostrophe and before the contractions 's 'm 're 've."""
    text = re.sub(rb" ([?!.,])", rb"\1", text)
    text = re.sub(rb" ' ", rb"'", text)
    return re.sub(rb" ('(?:[sm]|re|ve))", rb"\1", text)
