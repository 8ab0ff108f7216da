"""Token texts by their beginnings: a trie whose nodes are made when a grammar first comes to them.

Most of a vocabulary consists of words, and where a grammar allows any text it allows most words. ``Runs`` sorts the tokens of
a node by how far they stay within a class of characters, once per class, so that they need not be read again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence

from bridge.sampling.grammar.machine import Range

LAST_CHAR = 0x10FFFF
RUNS_KEPT = 8
"""How many times all of its tokens a node may hold in runs."""


class TextNode:
    """Tokens whose texts share their first ``depth`` characters; ``tokens[i]`` has the text ``texts[i]``."""

    __slots__ = ("_children", "_codes", "_ended", "_n_in_runs", "_runs", "depth", "texts", "tokens")

    def __init__(self, depth: int, texts: Sequence[str], tokens: Sequence[int]) -> None:
        self.depth, self.texts, self.tokens = depth, texts, tokens
        self._children: dict[str, TextNode] | None = None
        self._codes: list[int] = []
        self._ended: list[int] = []
        self._runs: dict[tuple[Range, ...], Runs] = {}
        self._n_in_runs = 0

    @property
    def ended(self) -> list[int]:
        """The tokens that end at this node."""
        self._expand()
        return self._ended

    def children(self, ranges: Iterable[Range]) -> list[TextNode]:
        """The nodes one character further, for characters in ``ranges``."""
        self._expand()
        found = []
        for first, last in ranges:
            if first == last:
                child = self._children.get(chr(first)) if first <= LAST_CHAR else None
                if child is not None:
                    found.append(child)
            else:
                low = bisect_left(self._codes, first)
                found += [self._children[chr(code)] for code in self._codes[low : bisect_right(self._codes, last)]]
        return found

    def runs(self, ranges: tuple[Range, ...], n_vocab: int) -> Runs:
        """The tokens whose next character is in ``ranges``, by how many more are."""
        found = self._runs.pop(ranges, None)
        if found is None:
            found = Runs(self.children(ranges), self.depth, ranges, n_vocab)
            self._n_in_runs += found.n_tokens
            while self._n_in_runs > RUNS_KEPT * len(self.tokens):
                self._n_in_runs -= self._runs.pop(next(iter(self._runs))).n_tokens
        self._runs[ranges] = found  # the last of the dict is the latest used
        return found

    def _expand(self) -> None:
        if self._children is not None:
            return
        depth = self.depth
        groups: dict[str, tuple[list[str], list[int]]] = {}
        for text, token in zip(self.texts, self.tokens, strict=True):
            if len(text) == depth:
                self._ended.append(token)
                continue
            char = text[depth]
            try:
                texts, tokens = groups[char]
            except KeyError:
                texts, tokens = groups[char] = [], []
            texts.append(text)
            tokens.append(token)
        self._children = {char: TextNode(depth + 1, *group) for char, group in groups.items()}
        self._codes = sorted(map(ord, groups))


class Runs:
    """Tokens by the length of their run: how many characters of theirs, from ``depth`` on, are in ``ranges``.

    A token that ends with its run is clean; what follows a run is the rest. ``longest`` is the length of the longest run,
    ``rest_lengths`` are those that leave a rest.
    """

    def __init__(self, nodes: Sequence[TextNode], depth: int, ranges: tuple[Range, ...], n_vocab: int) -> None:
        match = re.compile(character_class(ranges) + "*").match
        self.n_tokens = sum(len(node.tokens) for node in nodes)
        clean: dict[int, list[int]] = {}
        self._rests: dict[int, tuple[list[str], list[int]]] = {}
        for node in nodes:
            for text, token in zip(node.texts, node.tokens, strict=True):
                end = match(text, depth).end()
                if end == len(text):
                    clean.setdefault(end - depth, []).append(token)
                else:
                    texts, tokens = self._rests.setdefault(end - depth, ([], []))
                    texts.append(text[end:])
                    tokens.append(token)
        self.rest_lengths = sorted(self._rests)
        self.longest = max([*clean, *self._rests], default=0)
        self._nodes: dict[int | None, TextNode] = {}
        self._clean_lengths = sorted(clean)
        self._clean_bits = []
        bits = 0
        for length in self._clean_lengths:
            bits |= bits_of(clean[length], n_vocab)
            self._clean_bits.append(bits)

    def clean_up_to(self, length: int) -> int:
        """The clean tokens whose runs have at most so many characters, as bits."""
        n = bisect_right(self._clean_lengths, length)
        return self._clean_bits[n - 1] if n else 0

    def rests(self, length: int | None) -> TextNode:
        """What follows the runs of one length, or of all lengths together (None)."""
        found = self._nodes.get(length)
        if found is None:
            texts: list[str] = []
            tokens: list[int] = []
            for some_texts, some_tokens in self._rests.values() if length is None else [self._rests.get(length, ((), ()))]:
                texts += some_texts
                tokens += some_tokens
            found = self._nodes[length] = TextNode(0, texts, tokens)
        return found


def character_class(ranges: Iterable[Range]) -> str:
    """The ranges as a class of a regular expression, as far as they can be characters of a str."""
    pieces = [f"\\U{first:08x}-\\U{min(last, LAST_CHAR):08x}" for first, last in ranges if first <= LAST_CHAR]
    return f"[{''.join(pieces)}]"


def bits_of(tokens: Iterable[int], n_vocab: int) -> int:
    """A set of token ids as an integer with one bit per token."""
    octets = bytearray(n_vocab // 8 + 1)
    for token in tokens:
        octets[token >> 3] |= 1 << (token & 7)
    return int.from_bytes(octets, "little")
