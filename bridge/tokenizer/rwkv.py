"""RWKV World vocabulary: the longest token that matches the bytes ahead, again and again."""

from __future__ import annotations

import re

from bridge.errors import ModelError
from bridge.tokenizer.characters import to_bytes
from bridge.tokenizer.vocab import Vocab

_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r"}


def unescape(text: str) -> bytes:
    """Bytes of a token as the vocabulary writes it: \\t \\n \\r \\x00 to \\xff, and a backslash before itself or a quote."""
    out, last = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        out += to_bytes(text[last : match.start()])
        byte, char = match.groups()
        out += bytes([int(byte, 16)]) if byte else to_bytes(_NAMED.get(char, char))
        last = match.end()
    return bytes(out) + to_bytes(text[last:])


class RwkvEncoder:
    """Encodes text without special tokens, byte by byte; there are no words and no scores."""

    def __init__(self, vocab: Vocab) -> None:
        self._unk = vocab.special["unk"]
        self._ids = {unescape(text): token for token, text in enumerate(vocab.tokens)}
        lengths: dict[int, set[int]] = {}
        for piece in self._ids:
            if piece:
                lengths.setdefault(piece[0], set()).add(len(piece))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of `text`, which may hold raw bytes (`from_bytes`)."""
        data = to_bytes(text)
        ids: list[int] = []
        at = 0
        while at < len(data):
            for length in self._lengths.get(data[at], ()):
                token = self._ids.get(data[at : at + length])
                if token is not None:
                    break
            else:
                token, length = self._unk, 1
            if token is None:
                raise ModelError(f"the vocabulary has no token for byte 0x{data[at]:02X} and no unknown token")
            ids.append(token)
            at += length
        return ids
