"""Which tokens of a vocabulary a grammar allows next: the vocabulary's trie and the grammar's states walked together."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress
from weakref import WeakValueDictionary

from bridge.sampling.grammar.charset import MAX_CODE_POINT
from bridge.sampling.grammar.errors import AmbiguityError
from bridge.sampling.grammar.machine import Machine, Range, State, Successor
from bridge.sampling.grammar.reader import Place, Reader
from bridge.sampling.grammar.text_trie import Runs, TextNode, bits_of, characters
from bridge.sampling.grammar.vocabulary import Vocabulary

MASKS_KEPT = 64  # each up to a few hundred KB once applied
MAX_EFFORT = 2_000_000  # ways the machine looks at for one mask: a few seconds' work, which usual grammars never need
FEW = 16  # tokens below a node that are followed one by one: cheaper than making its children
DEEP = 32  # characters after which all are: few tokens are longer
WIDE, MANY = 10, 64  # characters in a class and tokens that begin in it, from which on runs pay
SPARSE = 6  # where one bit in so many or fewer is wanted, each is looked for
IS_ONE = bytes.maketrans(b"01", b"\0\1")
IS_ZERO = bytes.maketrans(b"01", b"\1\0")


class TokenMask:
    """A set of token ids. ``bits`` has one bit per token."""

    __slots__ = ("__weakref__", "_listed", "bits")

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._listed: tuple[bool, Sequence[int]] | None = None

    def __contains__(self, token: int) -> bool:
        return bool(self.bits >> token & 1)

    def __bool__(self) -> bool:
        return bool(self.bits)

    def tokens(self) -> list[int]:
        """The ids, ascending."""
        return list(_positions(self.bits, self.bits.bit_length(), "1"))

    def apply(self, scores: array) -> None:
        """Set the score of every other token to -infinity, in place."""
        n = len(scores)
        if self._listed is None:  # the shorter of two lists
            allows_few = 2 * self.bits.bit_count() < n
            self._listed = allows_few, array("I", _positions(self.bits, n, "1" if allows_few else "0"))
        allows_few, listed = self._listed
        if allows_few:
            allowed = [scores[token] for token in listed]
            scores[:] = array("f", (-math.inf,)) * n
            for token, score in zip(listed, allowed, strict=True):
                scores[token] = score
        else:
            for token in listed:
                scores[token] = -math.inf


def _positions(bits: int, n: int, wanted: str) -> Iterable[int]:
    """Which of the lowest ``n`` bits are "1" or "0", ascending."""
    digits = format(bits & (1 << n) - 1, f"0{n}b")[::-1]
    n_wanted = digits.count(wanted)
    if n_wanted * SPARSE > n:
        return compress(range(n), digits.encode().translate(IS_ONE if wanted == "1" else IS_ZERO))
    found, at = [], -1
    for _ in range(n_wanted):
        at = digits.index(wanted, at + 1)
        found.append(at)
    return found


class Masks:
    """The masks of one grammar for one vocabulary, each computed when first asked for and kept for a while.

    ``n_visited`` counts the nodes of the trie that were looked at, and the tokens that were followed one by one.
    """

    def __init__(self, reader: Reader, vocabulary: Vocabulary) -> None:
        self._reader, self._vocabulary = reader, vocabulary
        self._kept: dict[Place, TokenMask] = {}
        self._by_bits: WeakValueDictionary[int, TokenMask] = WeakValueDictionary()
        self.n_visited = 0

    def mask(self, place: Place) -> TokenMask:
        """The tokens that may come next, end tokens included where the text may end."""
        found = self._kept.pop(place, None)
        if found is None:
            bits = self._within_character(place) if place[1] else self._between_characters(place[0])
            found = self._by_bits.setdefault(bits, TokenMask(bits))  # places often allow the same, as when counting
            if len(self._kept) >= MASKS_KEPT:
                del self._kept[next(iter(self._kept))]
        self._kept[place] = found
        return found

    def _within_character(self, place: Place) -> int:
        return bits_of(list(self._others(place)), self._vocabulary.n_vocab)

    def _between_characters(self, state: State) -> int:
        vocabulary, machine = self._vocabulary, self._reader.machine
        bits = vocabulary.eog_bits if state.complete else 0
        for reference in machine.token_refs(state):
            named = vocabulary.text_bits & 1 << reference.token if reference.token < vocabulary.n_vocab else 0
            bits |= vocabulary.text_bits & ~named if reference.negated else named
        walk = _Walk(machine, vocabulary.n_vocab)
        walk.follow(vocabulary.trie, state)
        self.n_visited += walk.n_visited
        bits |= walk.bits | self._unfinished(state)
        return bits | bits_of([*walk.found, *self._others((state, None))], vocabulary.n_vocab)

    def _unfinished(self, start: State) -> int:
        """The tokens that end within a character and may come between characters, as bits."""
        machine, bits = self._reader.machine, 0
        for text, group in self._vocabulary.unfinished.items():
            self.n_visited += 1
            state = machine.run(start, text)
            if state is None or not machine.lives_within(state, 0x80, MAX_CODE_POINT):
                continue
            if machine.lives_throughout(state, 0x80, MAX_CODE_POINT):
                bits |= group.bits
            else:
                self.n_visited += len(group.tokens)
                allowed = [token for pending, token in group.tokens if machine.lives_within(state, *pending.bounds)]
                bits |= bits_of(allowed, self._vocabulary.n_vocab)
        return bits

    def _others(self, place: Place) -> Iterator[int]:
        """The tokens that begin within a character, or look so, and may come here."""
        for piece, token in self._vocabulary.others:
            if (piece[0] & 0xC0 == 0x80) == (place[1] is not None):
                self.n_visited += 1
                if self._reader.after_bytes(place, piece):
                    yield token


class _Walk:
    """One walk through a trie: ``found`` and ``bits`` are the tokens allowed."""

    def __init__(self, machine: Machine, n_vocab: int) -> None:
        self._machine, self._n_vocab = machine, n_vocab
        self._work: list[tuple[TextNode, State]] = []
        self.found: list[int] = []
        self.bits = 0
        self.n_visited = 0

    def follow(self, node: TextNode, state: State) -> None:
        """Find the tokens of ``node`` that are allowed, ``state`` being where the path to it leads."""
        self._work.append((node, state))
        limit = self._machine.effort + MAX_EFFORT
        while self._work:
            if self._machine.effort > limit:
                raise AmbiguityError("the grammar is too ambiguous: finding the tokens it allows would take too long")
            node, state = self._work.pop()
            self.n_visited += 1
            if len(node.pairs) <= FEW or node.depth >= DEEP:
                self._follow_each(node, state)
            else:
                self.found += node.ended
                successors = self._machine.successors(state)
                settled = self._follow_runs(node, successors) if successors else None
                for target, ranges in successors:
                    if ranges is not settled:
                        self._work += [(child, target) for child in node.children(ranges)]

    def _follow_each(self, node: TextNode, state: State) -> None:
        run, depth = self._machine.run, node.depth
        self.n_visited += len(node.pairs)
        self.found += [token for text, token in node.pairs if run(state, text, depth)]

    def _follow_runs(self, node: TextNode, successors: list[Successor]) -> tuple[Range, ...] | None:
        """Take the tokens that go on with the widest class at once, if the grammar stays in it; that class, or None."""
        state, ranges = max(successors, key=lambda successor: sum(last - first for first, last in successor[1]))
        if sum(last - first + 1 for first, last in ranges) < WIDE:
            return None
        second = self._machine.step_within(state, ranges)
        if second is None:
            return None
        runs = node.runs(ranges, self._n_vocab)
        if runs.n_tokens < MANY:
            return None
        if second is state:
            self.bits |= runs.clean
            self._work.append((runs.rests(None), state))
        else:
            self._follow_chain(node, runs, ranges, state)
        return ranges

    def _follow_chain(self, node: TextNode, runs: Runs, ranges: tuple[Range, ...], state: State) -> None:
        """Take runs in which every character leads to another state, as where a grammar counts characters."""
        chain = [state]
        while len(chain) < runs.longest:
            following = self._machine.step_within(chain[-1], ranges)
            if following is None:
                if any(self._machine.lives_within(chain[-1], *span) for span in ranges):
                    self._follow_longer(node, ranges, chain[-1], len(chain))
                break
            chain.append(following)
        self.bits |= runs.clean_up_to(len(chain))
        exits: dict[Successor, list[int]] = {}
        for length in runs.rest_lengths:
            if length <= len(chain):
                for successor in self._machine.successors(chain[length - 1]):
                    exits.setdefault(successor, []).append(length)
        for (target, exit_ranges), lengths in exits.items():
            if exit_ranges == ranges:
                continue  # no rest begins within the class
            for length in [None] if len(lengths) == len(runs.rest_lengths) else lengths:
                self._work += [(child, target) for child in runs.rests(length).children(exit_ranges)]

    def _follow_longer(self, node: TextNode, ranges: tuple[Range, ...], state: State, length: int) -> None:
        """Follow one by one the tokens whose runs go on after ``length`` characters, where ``state`` leads them apart."""
        goes_on = re.compile(f"[{characters(ranges)}]{{{length + 1}}}").match
        for child in node.children(ranges):
            longer = [pair for pair in child.pairs if goes_on(pair[0], node.depth)]
            self.n_visited += len(longer)
            self.found += [token for text, token in longer if self._machine.run(state, text, node.depth + length)]
