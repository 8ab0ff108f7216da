"""Token texts by their beginnings: a trie whose nodes are made when a grammar first comes to them.

Most of a vocabulary consists of words, and where a grammar allows any text it allows most words. ``Runs`` sorts the tokens of
a node by how far they stay within a class of characters, once per class, so that they need not be read again.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from bridge.sampling.grammar.machine import Range

LAST_CHAR = 0x10FFFF
RUNS_KEPT = 8  # how many times all of its tokens a node may hold in runs
MANY = 16  # one token in so many of a vocabulary, and bytes set one by one beat bits set one by one
TO_DIGITS = bytes.maketrans(b"\0\1", b"01")


Pair = tuple[str, int]
"""The text of a token, and its id."""


class TextNode:
    """Tokens whose texts share their first ``depth`` characters."""

    __slots__ = ("_bits", "_children", "_codes", "_ended", "_n_in_runs", "_runs", "depth", "pairs")

    def __init__(self, depth: int, pairs: Sequence[Pair]) -> None:
        self.depth, self.pairs = depth, pairs
        self._children: dict[str, TextNode] | None = None  # most nodes are never looked into: they stay small
        self._codes: Sequence[int] = ()
        self._ended: Sequence[int] = ()
        self._runs: dict[tuple[Range, ...], Runs] | None = None
        self._bits: int | None = None
        self._n_in_runs = 0

    @property
    def ended(self) -> Sequence[int]:
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

    def bits(self, n_vocab: int) -> int:
        """All tokens of the node, as bits."""
        if self._bits is None:
            self._bits = bits_of([token for _, token in self.pairs], n_vocab)
        return self._bits

    def runs(self, ranges: tuple[Range, ...], n_vocab: int) -> Runs:
        """The tokens whose next character is in ``ranges``, by how many more are."""
        if self._runs is None:
            self._runs = {}
        found = self._runs.pop(ranges, None)
        if found is None:
            children = self.children(ranges)
            if 2 * sum(len(child.pairs) for child in children) > len(self.pairs):
                found = Runs(self.pairs, self.bits(n_vocab), self.depth, ranges, n_vocab)
            else:
                pairs = [pair for child in children for pair in child.pairs]
                found = Runs(pairs, bits_of([token for _, token in pairs], n_vocab), self.depth, ranges, n_vocab)
            self._n_in_runs += found.n_tokens
            while self._n_in_runs > RUNS_KEPT * len(self.pairs):
                self._n_in_runs -= self._runs.pop(next(iter(self._runs))).n_tokens
        self._runs[ranges] = found  # the last of the dict is the latest used
        return found

    def _expand(self) -> None:
        if self._children is not None:
            return
        depth = self.depth
        ended: list[int] = []
        groups: defaultdict[str, list[Pair]] = defaultdict(list)
        for pair in self.pairs:
            try:
                groups[pair[0][depth]].append(pair)
            except IndexError:
                ended.append(pair[1])
        self._children = {char: TextNode(depth + 1, pairs) for char, pairs in groups.items()}
        self._codes, self._ended = sorted(map(ord, groups)), ended


class Runs:
    """Tokens by the length of their run: how many characters of theirs, from ``depth`` on, are in ``ranges``.

    A token that ends with its run is clean; what follows a run is the rest. ``longest`` is the length of the longest run,
    ``rest_lengths`` are those that leave a rest.
    """

    def __init__(self, pairs: Sequence[Pair], bits: int, depth: int, ranges: tuple[Range, ...], n_vocab: int) -> None:
        """``bits``: the tokens of ``pairs``."""
        texts = [text[depth:] for text, _ in pairs] if depth else [text for text, _ in pairs]
        lengths = list(map(len, texts))
        excluded = [i for i, length in enumerate(lengths) if not length] if depth else []
        self._rests: dict[int, list[Pair]] = {}
        for i, run, rest in ends_of_runs(texts, ranges):
            excluded.append(i)
            lengths[i] = run
            if run:
                self._rests.setdefault(run, []).append((rest, pairs[i][1]))
        self.longest = max(lengths, default=0)
        self.rest_lengths = sorted(self._rests)
        self._pairs = pairs
        self._unclean = {pairs[i][1] for i in excluded}
        self.clean = bits ^ bits_of(self._unclean, n_vocab)
        """The clean tokens, as bits."""
        self.n_tokens = len(pairs) - len(excluded) + sum(map(len, self._rests.values()))
        self._depth, self._n_vocab = depth, n_vocab
        self._nodes: dict[int | None, TextNode] = {}
        self._clean_up_to: tuple[list[int], list[int]] | None = None

    def clean_up_to(self, length: int) -> int:
        """The clean tokens whose runs have at most so many characters, as bits."""
        if length >= self.longest:
            return self.clean
        if self._clean_up_to is None:
            self._clean_up_to = self._sum_by_length()
        lengths, sums = self._clean_up_to
        n = bisect_right(lengths, length)
        return sums[n - 1] if n else 0

    def rests(self, length: int | None) -> TextNode:
        """What follows the runs of one length, or of all lengths together (None)."""
        found = self._nodes.get(length)
        if found is None:
            chosen = self._rests.values() if length is None else [self._rests.get(length, [])]
            found = self._nodes[length] = TextNode(0, [pair for pairs in chosen for pair in pairs])
        return found

    def _sum_by_length(self) -> tuple[list[int], list[int]]:
        by_length: dict[int, list[int]] = {}
        for text, token in self._pairs:
            if token not in self._unclean:
                by_length.setdefault(len(text) - self._depth, []).append(token)
        lengths, sums, bits = sorted(by_length), [], 0
        for length in lengths:
            bits |= bits_of(by_length[length], self._n_vocab)
            sums.append(bits)
        return lengths, sums


def ends_of_runs(texts: Sequence[str], ranges: Iterable[Range]) -> Iterator[tuple[int, int, str]]:
    """The texts that leave the ranges: (which text, how many characters it stays, the rest of it).

    One search through all texts at once: in most classes that matter most tokens stay.
    """
    for code in range(LAST_CHAR, 0, -1):
        between = chr(code)
        joined = between.join(texts)
        if joined.count(between) <= max(len(texts) - 1, 0):
            break
    leaves = re.compile(f"[^{characters(ranges)}{between}][^{between}]*")
    i = start = 0
    for match in leaves.finditer(joined):
        at = match.start()
        i += joined.count(between, start, at)
        start = joined.rfind(between, start, at) + 1 or start
        yield i, at - start, match.group()


def characters(ranges: Iterable[Range]) -> str:
    """The ranges inside a class of a regular expression, as far as they can be characters of a str."""
    return "".join(f"\\U{first:08x}-\\U{min(last, LAST_CHAR):08x}" for first, last in ranges if first <= LAST_CHAR)


def bits_of(tokens: Collection[int], n_vocab: int) -> int:
    """A set of token ids as an integer with one bit per token."""
    if len(tokens) * MANY < n_vocab:
        octets = bytearray(n_vocab // 8 + 1)
        for token in tokens:
            octets[token >> 3] |= 1 << (token & 7)
        return int.from_bytes(octets, "little")
    flags = bytearray(n_vocab)
    for token in tokens:
        flags[token] = 1
    return int(flags[::-1].translate(TO_DIGITS), 2)
