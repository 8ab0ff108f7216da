"""Pair merging against the obvious quadratic loop, and its cost."""

import random

import pytest

from bridge.tokenizer.merging import LONG, merge_symbols
from bridge.tokenizer.repetition import MAX_KINDS, merge_repetitions


def merge_slowly(symbols, priority):
    symbols = list(symbols)
    while True:
        ranked = [(rank, at) for at, pair in enumerate(zip(symbols, symbols[1:])) if (rank := priority(*pair)) is not None]
        if not ranked:
            return symbols
        at = min(ranked)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@pytest.mark.parametrize("seed", range(30))
def test_equals_the_slow_loop(seed):
    rng = random.Random(seed)
    ranks = {"".join(rng.choices("ab", k=rng.randint(2, 6))): rng.randint(0, 9) for _ in range(25)}
    for _ in range(40):
        text = rng.choices("ab", k=rng.randint(0, 30))
        assert merge_symbols(text, lambda a, b: ranks.get(a + b)) == merge_slowly(text, lambda a, b: ranks.get(a + b))


def test_leftmost_of_equals_merges_first():
    assert merge_symbols(list("aaa"), lambda a, b: 0 if len(a + b) == 2 else None) == ["aa", "a"]


def test_input_is_left_alone():
    symbols = list("ab")
    merge_symbols(symbols, lambda a, b: 0)
    assert symbols == ["a", "b"]


@pytest.mark.parametrize("n", [1_000, 10_000])
def test_pairs_looked_at_grow_linearly(n):
    looked_at = 0

    def priority(left, right):
        nonlocal looked_at
        looked_at += 1
        return 0 if len(left) == len(right) else None

    assert sum(map(len, merge_symbols(["a"] * n, priority))) == n
    assert looked_at < 3 * n


@pytest.mark.parametrize("seed", range(30))
def test_merging_repetitions_first_changes_nothing(seed):
    """Ranks at random, where a merge may make a pair that comes before itself, and by length, where none does."""
    rng = random.Random(seed)
    for _ in range(40):
        tokens = {"".join(rng.choices("ab", k=rng.randint(2, 6))) for _ in range(25)}
        ranks = {token: rng.randint(0, 9) if seed % 2 else len(token) + rng.random() for token in tokens}
        text = rng.choices("ab", k=rng.randint(0, 30)) if rng.random() < 0.5 else ["a"] * rng.randint(0, 40)

        def priority(left, right):
            return ranks.get(left + right)

        assert merge_symbols(merge_repetitions(text, priority), priority) == merge_slowly(text, priority)


def test_a_long_repetition_takes_few_questions():
    looked_at = 0

    def priority(left, right):
        nonlocal looked_at
        looked_at += 1
        return len(left + right) if len(left + right) <= 16 else None

    symbols = merge_symbols(["a"] * (16 * LONG + 3), priority)
    assert "".join(symbols) == "a" * (16 * LONG + 3)
    assert symbols.count("a" * 16) == LONG - 1
    assert looked_at < 2 * len(symbols)


def test_many_kinds_of_symbols_are_left_to_the_queue():
    symbols = [chr(0x4E00 + i) for i in range(MAX_KINDS + 1)]
    assert merge_repetitions(symbols, lambda a, b: 0) is symbols
