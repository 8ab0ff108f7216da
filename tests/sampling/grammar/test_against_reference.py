"""Random grammars and texts: the engine agrees with a matcher too simple to be wrong in the same way."""

import contextlib
import random

import pytest

from bridge.sampling.grammar import Grammar, GrammarError
from tests.sampling.grammar.reference import Endless, Reference, mutated, random_grammar, random_text

ALPHABET = "abcdé€x"
LONGEST = 24  # the reference recurses once per character and rule


def texts_of(reference, rng, n):
    texts = []
    for _ in range(n):
        with contextlib.suppress(Endless):
            texts.append(random_text(reference.rules, reference.root, rng))
    return [text for text in texts if len(text) <= LONGEST and "\0" not in text]


@pytest.mark.parametrize("seed", range(80))
def test_random_grammars(seed):
    rng = random.Random(seed)
    while True:
        text = random_grammar(rng, rng.randint(1, 5))
        try:
            grammar = Grammar(text)
            break
        except GrammarError as error:
            assert "left" in str(error), text
    reference = Reference(text)
    derived = texts_of(reference, rng, 10)
    assert [text for text in derived if not grammar.accepts(text.encode())] == []
    for tried in (*derived, *(mutated(text, rng, ALPHABET) for text in [*derived, "", "ab", "é€"] * 3)):
        assert (grammar.accepts(tried.encode()), grammar.allows_prefix(tried.encode())) == reference.verdict(tried), (text, tried)
