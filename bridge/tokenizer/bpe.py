"""Byte pair encoding: words are cut by the vocabulary's pre-tokenizer and built up by its ranked merges."""

from __future__ import annotations

from bridge.tokenizer.characters import decode_leniently, has_raw_bytes, lower, split_at_whitespace, to_bytes
from bridge.tokenizer.cuts import split
from bridge.tokenizer.merging import merge_symbols
from bridge.tokenizer.vocab import Vocab
from bridge.tokenizer.words import SPACE_MARK, WordCache, space_mark_boundary

# The GPT-2 byte alphabet: printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_TO_CHAR = {byte: chr(byte) for byte in _PRINTABLE} | {byte: chr(0x100 + n) for n, byte in enumerate(_OTHERS)}
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}


_OUTSIDE = {chr(code): "\ufffe" for code in range(256) if chr(code) not in CHAR_TO_BYTE}
CHAR_TO_LATIN = str.maketrans(_OUTSIDE | {char: chr(byte) for char, byte in CHAR_TO_BYTE.items()})
"""The byte alphabet to the characters whose Latin-1 codes are the bytes; what is outside it to what Latin-1 lacks."""


def spell(token_text: str) -> bytes:
    """Bytes of a token written in the byte alphabet; characters outside it are spelled out as llama.cpp does."""
    try:
        return bytes(map(CHAR_TO_BYTE.__getitem__, token_text))
    except KeyError:
        raw = to_bytes(token_text)
    return b"".join(
        bytes([CHAR_TO_BYTE[char]])
        if char in CHAR_TO_BYTE
        else b"[UNK_BYTE_0x" + char.encode("utf-8", "surrogatepass").hex().encode() + raw + b"]"
        for char in decode_leniently(raw)
    )


class BpeEncoder:
    """Encodes text without special tokens; creating it ranks all merges, which takes a while."""

    def __init__(self, vocab: Vocab) -> None:
        assert vocab.pre is not None
        self._pre, self._ids, self._escape = vocab.pre, vocab.ids, vocab.escape_whitespaces
        self._drop_whitespace, self._lowercase = vocab.model == "whitespace", vocab.lowercase
        merges = list(vocab.merges)
        # Keyed by the merge's own text, "left right". Backwards, because the first of two equal merges counts.
        self._ranks = dict(zip(reversed(merges), range(len(merges) - 1, -1, -1)))
        self._words = WordCache(self._encode_word)
        self._boundary = space_mark_boundary(merges) if self._escape else None

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of `text`, which may hold raw bytes (`from_bytes`)."""
        if has_raw_bytes(text):
            text = decode_leniently(to_bytes(text))
        if self._drop_whitespace:
            pieces = split_at_whitespace("".join(map(lower, text)) if self._lowercase else text)
            words = [word for piece in pieces for word in split(piece, self._pre.steps)]
        else:
            words = split(text.replace(" ", SPACE_MARK) if self._escape else text, self._pre.steps)
        if self._boundary is not None:
            words = [word for piece in words for word in self._boundary.split(piece) if word]
        ids: list[int] = []
        for word in words:
            ids += self._words[word]
        return ids

    def _encode_word(self, word: str) -> list[int]:
        ids, ranks, pre = self._ids, self._ranks, self._pre
        if pre.byte_level:
            word = "".join(map(BYTE_TO_CHAR.__getitem__, word.encode("utf-8", "surrogatepass")))
        if word in ids and (pre.ignore_merges or (pre.whole_newlines and not word.strip("\n"))):
            return [ids[word]]
        out: list[int] = []
        for symbol in merge_symbols(list(word), lambda left, right: ranks.get(f"{left} {right}")):
            if symbol in ids:
                out.append(ids[symbol])
            elif pre.byte_level:
                # A merge whose result is no token falls apart into its ASCII characters; llama.cpp drops the others.
                out += [ids[char] for char in symbol if char.isascii() and char in ids]
            else:
                names = [f"<0x{byte:02X}>" for byte in symbol.encode("utf-8", "surrogatepass")]
                out += [ids[name] for name in names if name in ids]
        return out
