"""SentencePiece byte pair encoding: neighbouring pieces merge into the token with the best score."""

from __future__ import annotations

from bridge.errors import ModelError
from bridge.tokenizer.characters import from_bytes, has_raw_bytes, lead_length, to_bytes
from bridge.tokenizer.merging import merge_symbols
from bridge.tokenizer.vocab import Vocab
from bridge.tokenizer.words import SPACE_MARK, WordCache, space_mark_boundary


class SpmEncoder:
    """Encodes text without special tokens; spaces are written as U+2581 and may be part of any token."""

    def __init__(self, vocab: Vocab) -> None:
        self._ids, self._scores = vocab.ids, vocab.scores
        self._unk, self._add_space_prefix = vocab.special["unk"], vocab.add_space_prefix
        self._words = WordCache(lambda word: self._merge(list(word)))
        self._boundary = space_mark_boundary(vocab.tokens)

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of `text`, which may hold raw bytes (`from_bytes`).

        `after_special`: nothing or a special token precedes, so the text begins a sentence and may get a space.
        """
        if self._add_space_prefix and after_special:
            text = " " + text
        text = text.replace(" ", SPACE_MARK)
        if has_raw_bytes(text):
            return self._merge(_symbols_of_bytes(to_bytes(text)))
        ids: list[int] = []
        for word in self._boundary.split(text):
            if word:
                ids += self._words[word]
        return ids

    def _merge(self, symbols: list[str]) -> list[int]:
        out: list[int] = []
        for symbol in merge_symbols(symbols, self._priority):
            if symbol in self._ids:
                out.append(self._ids[symbol])
            else:
                out += map(self._byte_token, to_bytes(symbol))
        return out

    def _priority(self, left: str, right: str) -> float | None:
        token = self._ids.get(left + right)
        if token is None:
            return None
        return 0.0 if self._scores is None else -self._scores[token]

    def _byte_token(self, byte: int) -> int:
        for token in (self._ids.get(f"<0x{byte:02X}>"), self._ids.get(from_bytes(bytes([byte]))), self._unk):
            if token is not None:
                return token
        raise ModelError(f"the vocabulary has no token for byte 0x{byte:02X} and no unknown token")


def _symbols_of_bytes(data: bytes) -> list[str]:
    """Characters of bytes that are not all UTF-8: a lead byte takes the bytes it announces, whatever they are."""
    symbols = []
    at = 0
    while at < len(data):
        length = lead_length(data[at])
        symbols.append(from_bytes(data[at : at + length]))
        at += length
    return symbols
