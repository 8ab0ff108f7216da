"""Pair merging against the obvious quadratic loop, and its cost."""

import random

import pytest

from bridge.tokenizer.merging import merge_symbols


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
