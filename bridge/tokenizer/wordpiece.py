"""WordPiece: words normalised in BERT's way, then covered by the longest tokens from left to right."""

from __future__ import annotations

from bridge.errors import ModelError
from bridge.tokenizer.characters import (
    category,
    decode_leniently,
    has_raw_bytes,
    lower,
    split_at_whitespace,
    to_bytes,
    without_accent,
)
from bridge.tokenizer.vocab import Vocab
from bridge.tokenizer.words import SPACE_MARK, WordCache

# Ideographs that are words of their own. Extension E starts 256 too late, as in Hugging Face's tokenizers.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class WordPieceEncoder:
    """Encodes text without special tokens; a token that starts a word is written with U+2581 in front."""

    def __init__(self, vocab: Vocab) -> None:
        self._ids, self._unk = vocab.ids, vocab.special["unk"]
        self._lowercase, self._strip_accents = vocab.lowercase, vocab.strip_accents
        # First character -> lengths of the tokens that start with it, longest first.
        lengths: dict[str, set[int]] = {}
        for text in vocab.tokens:
            lengths.setdefault(text[:1], set()).add(len(text))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        self._words = WordCache(self._encode_chunk)

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of `text`, which may hold raw bytes (`from_bytes`)."""
        if has_raw_bytes(text):
            text = decode_leniently(to_bytes(text))
        ids: list[int] = []
        for chunk in split_at_whitespace(text):
            ids += self._words[chunk]
        return ids

    def _encode_chunk(self, chunk: str) -> list[int]:
        return [token for word in self._normalise(chunk) for token in self._encode_word(SPACE_MARK + word)]

    def _normalise(self, chunk: str) -> list[str]:
        """Words of text without white space: punctuation and ideographs apart, control characters dropped."""
        words: list[list[str]] = [[]]
        for char in chunk:
            if self._strip_accents:
                char = without_accent(char)
            code_point, kind = ord(char), category(ord(char))
            if kind == "C" or char in "\0\ufffd" or (self._strip_accents and kind == "M"):
                continue
            alone = kind == "P" or (kind == "S" and code_point < 0x7F) or any(a <= code_point <= b for a, b in _IDEOGRAPHS)
            char = lower(char) if self._lowercase else char
            if alone:
                words += [[char], []]
            else:
                words[-1].append(char)
        return ["".join(word) for word in words if word]

    def _encode_word(self, word: str) -> list[int]:
        """Longest match from the left; a word that cannot be covered is one unknown token."""
        ids, out, start = self._ids, [], 0
        while start < len(word):
            for length in self._lengths.get(word[start], ()):
                piece = word[start : start + length]
                token = ids.get(piece)
                if token is not None:
                    break
            else:
                if self._unk is None:
                    raise ModelError("the vocabulary has no unknown token, which WordPiece needs")
                return [self._unk]
            out.append(token)
            start += len(piece)
        return out
