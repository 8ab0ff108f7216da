"""Which tokens may come next: llama.cpp's masks, and agreement with asking for one token after the other."""

import json
import math
import random
from array import array
from pathlib import Path

import pytest

from bridge.gguf import open_gguf
from bridge.sampling.grammar import Grammar, GrammarConstraint, GrammarError, masks
from tests.sampling.grammar.reference import ListTokenizer, random_grammar

RECORDED = json.loads(Path("tests/data/grammar/token-masks.json").read_text())["masks"]


@pytest.fixture(scope="module")
def tokenizer():
    return open_gguf("tests/data/models/llama-tied-f32.gguf").tokenizer()


@pytest.mark.parametrize("recorded", RECORDED, ids=[f"{mask['name']}: {mask['text']}" for mask in RECORDED])
def test_masks_are_those_of_llama_cpp(tokenizer, recorded):
    constraint = GrammarConstraint(Grammar.for_tokenizer(recorded["grammar"], tokenizer), tokenizer)
    everything = set(range(tokenizer.n_vocab))
    for step in recorded["steps"]:
        allowed = set(step["allowed"]) if "allowed" in step else everything - set(step["forbidden"])
        assert set(constraint.mask().tokens()) == allowed
        assert {token for token in everything if constraint.allows(token)} == allowed
        assert constraint.may_end == (tokenizer.eog_ids <= allowed)
        if step["next"] is not None:
            constraint.accept(step["next"])


def random_tokenizer(rng):
    """Bytes, texts over few characters, and pieces cut within characters at either end."""
    pieces = [bytes([byte]) for byte in range(256)]
    lengths = [1, 2, 2, 3, 3, 4, 5, 9, 20]
    pieces += ["".join(rng.choice("aabbcdé€") for _ in range(rng.choice(lengths))).encode() for _ in range(150)]
    for text in ("é€é€", "a€€b", "€€€", "bé€", "cc€", "aé€"):
        pieces += [text.encode()[rng.randint(0, 3) : rng.randint(3, 9)] for _ in range(4)]
    return ListTokenizer([*pieces, b"", b"a\0b", b"\xed\xa0\x80", b"end"], eog=[len(pieces) + 3])


def assert_masks_agree(seed):
    rng = random.Random(seed)
    grammar = random_grammar(rng, rng.randint(1, 4))
    if seed % 3 == 0:
        grammar = grammar.replace('"a"', "[a-z]{0,7}", 1).replace("[a-b]", '[^"d]{2,5}', 1)
    if seed % 4 == 0:
        grammar = grammar.replace('"b"', "<[260]>", 1).replace('"c"', "!<[97]>", 1)
    tokenizer = random_tokenizer(rng)
    try:
        grammar = Grammar.for_tokenizer(grammar, tokenizer)
    except GrammarError:
        return
    for _ in range(2):
        constraint = GrammarConstraint(grammar, tokenizer)
        for _ in range(5):
            allowed = constraint.mask().tokens()
            assert allowed == [token for token in range(tokenizer.n_vocab) if constraint.allows(token)]
            going_on = [token for token in allowed if token not in tokenizer.eog_ids]
            if not going_on:
                break
            constraint.accept(rng.choice(going_on))


@pytest.mark.parametrize("seed", range(24))
def test_a_mask_holds_the_tokens_that_are_allowed_one_by_one(seed):
    assert_masks_agree(seed)


@pytest.mark.parametrize("seed", range(100, 124))
def test_short_cuts_taken_wherever_possible_change_nothing(monkeypatch, seed):
    for name, value in {"FEW": 2, "MANY": 3, "WIDE": 2, "DEEP": 3}.items():
        monkeypatch.setattr(masks, name, value)
    assert_masks_agree(seed)


@pytest.mark.parametrize("n", [1, 7, 64, 300])
@pytest.mark.parametrize("share", [0, 0.02, 0.4, 0.6, 0.98, 1])
def test_applying_a_mask_leaves_only_its_tokens(n, share):
    rng = random.Random(n)
    allowed = {token for token in range(n) if rng.random() < share}
    mask = masks.TokenMask(sum(1 << token for token in allowed))
    assert mask.tokens() == sorted(allowed) and bool(mask) == bool(allowed)
    for _ in range(2):  # what is listed at first is used again
        scores = array("f", range(n))
        mask.apply(scores)
        assert scores.tolist() == [token if token in allowed else -math.inf for token in range(n)]


def test_logits_beyond_the_vocabulary_are_ruled_out():
    tokenizer = ListTokenizer(["a", "b"])
    constraint = GrammarConstraint(Grammar('root ::= "a"'), tokenizer)
    scores = array("f", (1, 2, 3, 4))
    constraint.apply(scores)
    assert scores.tolist() == [1, -math.inf, -math.inf, -math.inf]
