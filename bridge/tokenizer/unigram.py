"""Unigram language model: the sequence of tokens with the best sum of scores covers the normalised text."""

from __future__ import annotations

import struct
import sys
from array import array

from bridge.errors import ModelError
from bridge.tokenizer.characters import from_bytes, has_raw_bytes, sequence_length, to_bytes
from bridge.tokenizer.vocab import NORMAL, UNUSED, USER_DEFINED, Vocab
from bridge.tokenizer.words import SPACE_MARK

_UNKNOWN_PENALTY = 10.0  # below the worst token, as in SentencePiece


class UnigramEncoder:
    """Encodes text without special tokens by the Viterbi algorithm, one step per character."""

    def __init__(self, vocab: Vocab) -> None:
        if vocab.special["unk"] is None:
            raise ModelError("the vocabulary has no unknown token, which the unigram model needs")
        self._ids, self._unk = vocab.ids, vocab.special["unk"]
        n_tokens = len(vocab.tokens)
        types = [NORMAL] * n_tokens if vocab.types is None else vocab.types  # the file's types, not the corrected ones
        self._scores = [0.0] * n_tokens if vocab.scores is None else vocab.scores
        self._unmatched = {token for token in range(n_tokens) if types[token] not in (NORMAL, USER_DEFINED, UNUSED)}
        self._user_defined = {token for token in range(n_tokens) if types[token] == USER_DEFINED}
        worst = min((self._scores[token] for token in range(n_tokens) if types[token] == NORMAL), default=0.0)
        self._unknown_score = _as_float32(worst - _UNKNOWN_PENALTY)
        self._lengths = _lengths_by_first(vocab.tokens)
        self._normaliser = Normaliser(vocab, {vocab.tokens[token] for token in self._user_defined})

    def encode(self, text: str, *, after_special: bool) -> list[int]:
        """Ids of `text`, which may hold raw bytes (`from_bytes`)."""
        text = self._normaliser(text)
        n = len(text)
        best = [0.0] + [-sys.float_info.max] * n
        steps: list[tuple[int, int]] = [(self._unk, 0)] * (n + 1)  # (token, start) of the best way to reach each position
        for start in range(n):
            self._extend(text, start, best, steps)
        ids: list[int] = []
        end = n
        while end > 0:
            token, end = steps[end]
            # A run of unknown characters is one unknown token.
            if token != self._unk or not ids or ids[-1] != self._unk:
                ids.append(token)
        return ids[::-1]

    def _extend(self, text: str, start: int, best: list[float], steps: list[tuple[int, int]]) -> None:
        """Try every token that starts at `start`."""
        score, n, known = best[start], len(text), False
        for length in self._lengths.get(text[start], ()):
            end = start + length
            if end > n:
                break
            token = self._ids.get(text[start:end])
            if token is None or token in self._unmatched:
                continue
            known = known or length == 1
            challenger = score if token in self._user_defined else score + self._scores[token]
            if challenger > best[end]:
                best[end], steps[end] = challenger, (token, start)
        if not known and score + self._unknown_score > best[start + 1]:
            best[start + 1], steps[start + 1] = score + self._unknown_score, (self._unk, start)


def _as_float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


def _lengths_by_first(tokens: list[str]) -> dict[str, list[int]]:
    """First character -> lengths of the tokens that start with it, ascending."""
    lengths: dict[str, set[int]] = {}
    for text in tokens:
        lengths.setdefault(text[0], set()).add(len(text))
    return {first: sorted(found) for first, found in lengths.items()}


class Normaliser:
    """SentencePiece's normalisation: a compiled map of replacements, then the rules for white space.

    The map is a double array of 32-bit entries (Kanda 2018: BASE in bits 10 to 30, shifted by 8 if bit 9 is set; LEAF is
    bit 8; the label is bits 0 to 7 and 31) followed by the NUL-terminated replacements its leaves point to.
    """

    def __init__(self, vocab: Vocab, user_defined: set[str]) -> None:
        self._prepend = vocab.add_space_prefix
        self._merge_spaces = vocab.remove_extra_whitespaces
        # User-defined tokens pass unchanged. llama.cpp lets the beginnings of one pass too, so all prefixes are kept.
        self._kept = {to_bytes(text)[:n] for text in user_defined for n in range(1, len(to_bytes(text)) + 1)}
        size = int.from_bytes(vocab.charsmap[:4], "little") // 4
        self._entries = array("I", struct.unpack_from(f"<{size}I", vocab.charsmap, 4)) if vocab.charsmap else array("I")
        self._replacements = vocab.charsmap[4 + 4 * size :]

    def __call__(self, text: str) -> str:
        """Normalised text; malformed sequences are left in it as raw bytes."""
        if self._entries or self._kept or has_raw_bytes(text):
            text = from_bytes(self._replace(to_bytes(text)))
        if self._merge_spaces:
            return "".join(SPACE_MARK + word for word in text.split(" ") if word)
        words = text.lstrip(" ")
        if self._prepend and words:
            text = " " * (len(text) - len(words) + 1) + words
        return text.replace(" ", SPACE_MARK)

    def _replace(self, data: bytes) -> bytes:
        out = bytearray()
        at = 0
        while at < len(data):
            kept = self._kept_prefix(data, at)
            if kept:
                out += data[at : at + kept]
                at += kept
                continue
            length, offset = self._longest_match(data, at)
            if length:
                end = self._replacements.find(b"\0", offset)
                if end < 0:
                    raise ModelError("a replacement of tokenizer.ggml.precompiled_charsmap has no end")
                out += self._replacements[offset:end]
                at += length
            else:
                step = sequence_length(data, at)
                out += data[at : at + step] if step else "\ufffd".encode()
                at += step or 1
        return bytes(out)

    def _kept_prefix(self, data: bytes, at: int) -> int:
        length = 0
        while at + length < len(data) and data[at : at + length + 1] in self._kept:
            length += 1
        return length

    def _longest_match(self, data: bytes, at: int) -> tuple[int, int]:
        """Length of the longest replaceable prefix at `at` and where its replacement starts; length 0 if there is none."""
        if not self._entries:
            return 0, 0
        entries, length, offset = self._entries, 0, 0
        try:
            node = _base(entries[0])
            for position in range(at, len(data)):
                byte = data[position]
                if byte == 0:
                    break
                node ^= byte
                entry = entries[node]
                if entry & 0x800000FF != byte:
                    break
                node ^= _base(entry)
                if entry & 0x100:
                    length, offset = position - at + 1, entries[node] & 0x7FFFFFFF
        except IndexError:
            raise ModelError("tokenizer.ggml.precompiled_charsmap points outside itself") from None
        return length, offset


def _base(entry: int) -> int:
    return (entry >> 10) << ((entry & 0x200) >> 6)
