"""A vocabulary as a grammar sees it: tokens that are text, and tokens that begin or end within a character."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakKeyDictionary

from bridge.sampling.grammar.text_trie import LAST_CHAR, Pair, TextNode, bits_of
from bridge.sampling.grammar.utf8 import Pending, decode


class TokenizerLike(Protocol):
    """What a grammar needs of a tokenizer."""

    n_vocab: int
    eog_ids: frozenset[int]

    def plain_texts(self) -> Sequence[str | None]: ...

    def token_bytes(self, token: int, special: bool = False) -> bytes: ...

    def encode(self, text: str, add_special: bool = True, parse_special: bool = True) -> list[int]: ...


def spelling(tokenizer: TokenizerLike, token: int) -> str | bytes | None:
    """What a token writes: its text, its bytes if they are not whole characters, None if it writes nothing.

    Control tokens write their names, as in the generated text. As in llama.cpp a NUL ends what a token writes.
    """
    piece = tokenizer.token_bytes(token, special=True)
    if b"\0" in piece:
        piece = piece[: piece.index(b"\0")]
    try:
        return piece.decode() or None
    except UnicodeDecodeError:
        return _surrogates(piece) or piece


def _surrogates(piece: bytes) -> str | None:
    """The text of a piece whose fault is only that it holds surrogates, which are characters like others to a grammar."""
    try:
        return piece.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


@dataclass
class Unfinished:
    """Tokens that end within a character after the same whole ones: each with that character, and all of them as bits."""

    tokens: list[tuple[Pending, int]] = field(default_factory=list)
    bits: int = 0


class Vocabulary:
    """The tokens of one tokenizer that write something and do not end a generation.

    ``trie`` holds those that consist of whole characters, ``unfinished`` those that end within a character, by the whole
    characters before it, and ``others`` with their bytes all that begin within one or are not UTF-8 at all.
    """

    def __init__(self, tokenizer: TokenizerLike) -> None:
        self.n_vocab = n_vocab = tokenizer.n_vocab
        self.unfinished: dict[str, Unfinished] = {}
        self.others: list[tuple[bytes, int]] = []
        texts = list(tokenizer.plain_texts())
        for token in tokenizer.eog_ids:
            texts[token] = ""
        pairs: list[Pair] = [(text, token) for token, text in enumerate(texts) if text and "\0" not in text]
        for token in [token for token, text in enumerate(texts) if text is None or "\0" in text]:
            written = spelling(tokenizer, token)
            if isinstance(written, str):
                pairs.append((written, token))
            elif written is not None:
                self._add_fragment(written, token)
        self.trie = TextNode(0, pairs)
        self.eog_bits = bits_of(tokenizer.eog_ids, n_vocab)
        self.text_bits = self.trie.bits(n_vocab) | bits_of([token for _, token in self.others], n_vocab)
        for group in self.unfinished.values():
            group.bits = bits_of([token for _, token in group.tokens], n_vocab)
            self.text_bits |= group.bits

    def _add_fragment(self, piece: bytes, token: int) -> None:
        decoded = decode(piece)
        if decoded is None or decoded[1] is None or any(code_point > LAST_CHAR for code_point in decoded[0]):
            self.others.append((piece, token))
        else:
            self.unfinished.setdefault("".join(map(chr, decoded[0])), Unfinished()).tokens.append((decoded[1], token))


_VOCABULARIES: WeakKeyDictionary[TokenizerLike, Vocabulary] = WeakKeyDictionary()


def vocabulary_of(tokenizer: TokenizerLike) -> Vocabulary:
    """The vocabulary of a tokenizer, prepared once: that takes some hundred milliseconds."""
    found = _VOCABULARIES.get(tokenizer)
    if found is None:
        found = _VOCABULARIES[tokenizer] = Vocabulary(tokenizer)
    return found
