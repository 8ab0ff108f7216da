"""A grammar matcher that is slow and simple, the random texts and grammars to hold the real one against, and a vocabulary.

``Reference`` computes, for a rule and a place in the text, where the rule can end; it shares only the parsed rules with the
engine, no states, frames or counts.
"""

from __future__ import annotations

import random

from bridge.sampling.grammar.parser import parse
from bridge.sampling.grammar.rules import Call, Chars, Repeat, TokenRef


class Reference:
    def __init__(self, grammar: str) -> None:
        self.rules, numbers = parse(grammar)
        self.root = numbers["root"]

    def verdict(self, text: str) -> tuple[bool, bool]:
        """Whether ``text`` is accepted, and whether the grammar can be followed through it."""
        self.text, self.found, self.reached_end = text, {}, False
        before = None
        while before != self.found:  # rules that come back to themselves at the same place need several rounds
            before = {key: set(places) for key, places in self.found.items()}
            self.asked = set()
            accepted = len(text) in self._rule(self.root, 0)
        return accepted, accepted or self.reached_end

    def _rule(self, number: int, at: int) -> set[int]:
        """Where the rule can end if it begins at ``at``, as far as is known in this round."""
        places = self.found.setdefault((number, at), set())
        if (number, at) not in self.asked:
            self.asked.add((number, at))
            places.update(*(self._sequence(alternative, at) for alternative in self.rules[number].alternatives))
        return set(places)

    def _sequence(self, elements, at: int) -> set[int]:
        places = {at}
        for element in elements:
            places = set().union(*(self._element(element, place) for place in places))
        return places

    def _element(self, element, at: int) -> set[int]:
        match element:
            case Chars(charset):
                if at == len(self.text):
                    self.reached_end = True
                    return set()
                code = ord(self.text[at])
                return {at + 1} if any(first <= code <= last for first, last in charset.ranges) else set()
            case TokenRef():
                return set()
            case Call(rule):
                return self._rule(rule, at)
            case Repeat(rule, least, most):
                return self._repeat(rule, least, most, at)

    def _repeat(self, rule: int, least: int, most: int | None, at: int) -> set[int]:
        places, found = {at}, set()
        limit = least + len(self.text) + 1 if most is None else most
        seen = []
        for times in range(limit + 1):
            if times >= least:
                found |= places
            if not places or places in seen[least:]:
                break
            seen.append(places)
            places = set().union(*(self._rule(rule, place) for place in places)) if times < limit else set()
        return found


class Endless(Exception):
    """Random choices led to no text in the end; some grammars have none."""


def random_text(rules, number: int, rng: random.Random, depth: int = 0) -> str:
    """A text of a rule, by random choices that lean to short ones the deeper they are; may raise Endless."""
    if depth > 40:
        raise Endless
    alternatives = rules[number].alternatives
    if depth > 6:
        alternatives = sorted(alternatives, key=lambda elements: sum(not isinstance(e, Chars) for e in elements))[:1]
    return "".join(_random_element(rules, element, rng, depth) for element in rng.choice(alternatives))


def _random_element(rules, element, rng: random.Random, depth: int) -> str:
    match element:
        case Chars(charset):
            first, last = rng.choice(charset.ranges)
            return chr(rng.randint(first, min(last, first + 40)))
        case Call(rule):
            return random_text(rules, rule, rng, depth + 1)
        case Repeat(rule, least, most):
            extra = 0 if depth > 6 else rng.randint(0, 3)
            times = least + extra if most is None else min(most, least + extra)
            return "".join(random_text(rules, rule, rng, depth + 1) for _ in range(times))
    raise AssertionError(element)


def mutated(text: str, rng: random.Random, alphabet: str) -> str:
    """The text with one character left out, put in, changed or cut off."""
    at = rng.randint(0, len(text))
    match rng.randrange(4):
        case 0:
            return text[:at] + text[at + 1 :]
        case 1:
            return text[:at] + rng.choice(alphabet) + text[at:]
        case 2:
            return text[:at] + rng.choice(alphabet) + text[at + 1 :]
    return text[:at]


def random_grammar(rng: random.Random, n_rules: int = 4) -> str:
    """A grammar over few characters, so that ways to read a text abound; it may be refused as left-recursive."""
    names = ["root", *(f"r{n}" for n in range(1, n_rules))]

    def item(depth: int, first: bool) -> str:
        kind = rng.choice([0, 0, 0, 1, 1] + [2] * (not first or rng.random() < 0.1) + [3, 3] * (depth < 3))
        if kind == 0:
            text = '"' + "".join(rng.choice("abcé") for _ in range(rng.randint(1, 3))) + '"'
        elif kind == 1:
            text = rng.choice(["[a-b]", "[^a]", "[bcé]", "[^b-é]", "[^a-c\\u20ac]", ".", '"€"'])
        elif kind == 2:
            text = rng.choice(names)
        else:
            text = "(" + alternatives(depth + 1) + ")"
        return text + rng.choice(["", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,3}", "{2,}"])

    def alternatives(depth: int) -> str:
        found = [" ".join(item(depth, first=n == 0) for n in range(rng.randint(1, 3))) for _ in range(rng.randint(1, 3))]
        return " | ".join([""] * (rng.random() < 0.15) + found)  # at the end it would swallow the new line

    return "\n".join(f"{name} ::= {alternatives(0)}" for name in names) + "\n"


class ListTokenizer:
    """A tokenizer of given tokens; ids are their places in the list."""

    def __init__(self, pieces, eog=()):
        self.pieces = [piece.encode() if isinstance(piece, str) else piece for piece in pieces]
        self.n_vocab = len(self.pieces)
        self.eog_ids = frozenset(eog)

    def plain_texts(self):
        return [None] * self.n_vocab

    def token_bytes(self, token, special=False):
        return self.pieces[token]

    def encode(self, text, add_special=True, parse_special=True):
        return [self.pieces.index(text.encode())] if text.encode() in self.pieces else []
