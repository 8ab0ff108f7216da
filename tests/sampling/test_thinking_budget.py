"""A thinking budget: where a block begins and ends, what is forced when, and what a grammar sees of it."""

import math
from array import array

import pytest

from bridge.errors import InputError
from bridge.sampling import Sampler, SamplingOptions
from bridge.sampling.grammar import Grammar, GrammarConstraint, GrammarRejection
from bridge.sampling.thinking_budget import ThinkingBudget, ThinkingBudgetOptions
from bridge.sampling.token_picker import TokenPicker

START, END, MESSAGE = 100, 101, 102
TEXTS = {"<t>": [START], "</t>": [END], "stop</t>": [MESSAGE, END], "[[": [7, 7, 8], "]]": [8, 7], "stop]]": [9, 8, 7]}
N_VOCAB = 128


class Tokenizer:
    """Tokens below 128 write the character of their number; texts are tokenized as TEXTS says."""

    n_vocab = N_VOCAB
    eog_ids = frozenset([1])

    def __init__(self, pieces=None):
        self.pieces = pieces or {}

    def encode(self, text, add_special=True, parse_special=True):
        assert not add_special and parse_special
        return TEXTS.get(text, [])

    def plain_texts(self):
        return [None] * self.n_vocab

    def token_bytes(self, token, special=False):
        assert special
        return self.pieces.get(token, bytes([token]))


def budget(max_tokens, message="stop", prompt=(), start="<t>", end="</t>", pieces=None):
    return ThinkingBudget(ThinkingBudgetOptions(max_tokens, start, end, message), Tokenizer(pieces), prompt)


def forced(budget, tokens):
    """For each token that comes, what was forced before it."""
    found = []
    for token in tokens:
        found.append(budget.forced)
        budget.accept(token)
    return [*found, budget.forced]


NO = None

# The sequences of llama.cpp's own test (tests/test-reasoning-budget.cpp) and where it finds forcing to begin and end.
LLAMA_CPP = {
    "the end comes in time": ({"max_tokens": 5}, [START, 50, 51, END, 52], [NO] * 6),
    "the budget runs out": ({"max_tokens": 2}, [START, 50, 51, MESSAGE, END, 53], [NO, NO, NO, MESSAGE, END, NO, NO]),
    "open from the beginning, without budget": ({"max_tokens": 0, "prompt": [START]}, [MESSAGE, END, 52], [MESSAGE, END, NO, NO]),
    "open from the beginning": ({"max_tokens": 2, "prompt": [START]}, [50, 51, MESSAGE, END], [NO, NO, MESSAGE, END, NO]),
    "a second block has its own budget": (
        {"max_tokens": 2},
        [START, 50, END, START, 60, 61, MESSAGE, END],
        [NO, NO, NO, NO, NO, NO, MESSAGE, END, NO],
    ),
}

CASES = LLAMA_CPP | {
    "no budget at the start tag": ({"max_tokens": 0}, [50, START, MESSAGE, END, 50], [NO, NO, MESSAGE, END, NO, NO]),
    "no message": ({"max_tokens": 1, "message": ""}, [START, 50, END], [NO, NO, END, NO]),
    "an end tag outside is nothing": ({"max_tokens": 1}, [END, START, 50], [NO, NO, NO, MESSAGE]),
    "a start tag inside counts": ({"max_tokens": 2}, [START, START, 50], [NO, NO, NO, MESSAGE]),
    "the end tag as last token of the budget": ({"max_tokens": 2}, [START, 50, END, 5], [NO] * 5),
    "the prompt closed its block": ({"max_tokens": 0, "prompt": [START, 5, END]}, [50], [NO, NO]),
    "the prompt opened another": ({"max_tokens": 0, "prompt": [START, END, START, 5]}, [MESSAGE], [MESSAGE, END]),
    "tags of several tokens": (
        {"max_tokens": 9, "start": "[[", "end": "]]"},
        [7, 7, 7, 8, 5, 8, 8, 7, 6],
        [NO] * 10,
    ),
    "a tag that the prompt only begins": ({"max_tokens": 0, "start": "[[", "end": "]]", "prompt": [7, 7]}, [8, 5], [NO] * 3),
    "a tag cut by the budget": (
        {"max_tokens": 2, "start": "[[", "end": "]]"},
        [7, 7, 8, 5, 8, 9, 8, 7, 5],
        [NO, NO, NO, NO, NO, 9, 8, 7, NO, NO],
    ),
}


@pytest.mark.parametrize("options, tokens, expected", CASES.values(), ids=CASES)
def test_what_is_forced(options, tokens, expected):
    assert forced(budget(**options), tokens) == expected


def test_a_tag_may_begin_within_a_false_beginning():
    block = budget(9, start="[[", end="]]")
    for token, in_block in [(7, False), (7, False), (7, False), (8, True), (8, True), (8, True), (7, False)]:
        block.accept(token)
        assert block.in_block == in_block


@pytest.mark.parametrize(
    "tokens, expected",
    [
        ([START, 50, 51], [NO, NO, NO, MESSAGE]),
        ([START, 50, 60], [NO, NO, NO, NO]),  # begins a character of three bytes
        ([START, 50, 60, 61, 62], [NO, NO, NO, NO, NO, MESSAGE]),
        ([START, 60, 61, 62], [NO, NO, NO, NO, MESSAGE]),
        ([START, 50, 60, END, 50], [NO] * 6),
        ([START, 50, 62], [NO, NO, NO, MESSAGE]),  # a continuation of nothing
        ([START, 50, 60, 51], [NO, NO, NO, NO, MESSAGE]),  # the character is given up
    ],
)
def test_forcing_waits_until_a_character_is_complete(tokens, expected):
    pieces = {60: "你".encode()[:1], 61: "你".encode()[1:2], 62: "你".encode()[2:]}
    assert forced(budget(2, pieces=pieces), tokens) == expected


def test_forcing_leaves_one_token_whatever_its_logit_was():
    block = budget(0, prompt=[START])
    scores = array("f", range(N_VOCAB))
    block.apply(scores)
    assert [token for token, score in enumerate(scores) if score > -math.inf] == [MESSAGE] and scores[MESSAGE] == MESSAGE
    scores[MESSAGE] = -math.inf
    block.apply(scores)
    assert scores[MESSAGE] == 0
    free = budget(1, prompt=[START])
    scores = array("f", range(N_VOCAB))
    free.apply(scores)
    assert scores.tolist() == list(range(N_VOCAB))


def test_a_forced_token_outside_the_logits_is_an_error():
    with pytest.raises(InputError, match="forces token 102; the vocabulary has 50 tokens"):
        budget(0, prompt=[START]).apply(array("f", [0.0] * 50))


def test_clones_go_on_by_themselves():
    pieces = {60: b"\xe4"}
    block = budget(2, pieces=pieces)
    block.accept(START)
    block.accept(60)
    clone = block.clone()
    assert forced(clone, [61]) == [NO, MESSAGE]
    assert block.forced is None and forced(block, [END, START, 5]) == [NO] * 4
    forcing = budget(0, prompt=[START])
    forcing.accept(MESSAGE)
    assert (forcing.clone().forced, budget(0, prompt=[START]).clone().forced) == (END, MESSAGE)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"max_tokens": -1}, "max_tokens must be an integer from 0 to 2147483647; got -1"),
        ({"max_tokens": 2**31}, "max_tokens must be an integer from 0 to 2147483647; got 2147483648"),
        ({"max_tokens": 1.5}, "max_tokens must be an integer; got 1.5"),
        ({"max_tokens": None}, "max_tokens must be an integer; got None"),
        ({"start_tag": " \n"}, "start_tag must be a non-empty string"),
        ({"end_tag": None}, "end_tag must be a non-empty string"),
        ({"forced_message": 3}, "forced_message must be a string; got int"),
    ],
)
def test_options_out_of_range_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        ThinkingBudgetOptions(**({"max_tokens": 1, "start_tag": "a", "end_tag": "b"} | values))


@pytest.mark.parametrize("max_tokens", [0, 2**31 - 1])
def test_the_limits_are_allowed(max_tokens):
    assert ThinkingBudgetOptions(max_tokens, "a", "b").max_tokens == max_tokens


@pytest.mark.parametrize("tags", [{"start": "unknown"}, {"end": "unknown"}])
def test_tags_without_tokens_are_refused(tags):
    with pytest.raises(InputError, match="^thinking budget tags produce no tokens for this vocabulary$"):
        budget(1, **tags)


# ---------------------------------------------------------------- with a sampler and a grammar


class Wish:
    """Logits of a model that wants the given tokens one after the other, and ``otherwise`` next, then anything."""

    def __init__(self, wanted, otherwise=()):
        self.wanted, self.otherwise = wanted, otherwise

    def logits(self, n):
        scores = array("f", [0.0] * N_VOCAB)
        for rank, token in enumerate(self.otherwise):
            scores[token] = 2.0 - rank / 10
        scores[self.wanted[n]] = 5.0
        return scores


def picked(wish, grammar=None, block=None, **sampling):
    tokenizer = Tokenizer()
    constraint = None if grammar is None else GrammarConstraint(Grammar(grammar), tokenizer)
    picker = TokenPicker(Sampler(SamplingOptions(**({"temp": 0, "penalty": 1.0} | sampling))), constraint, block)
    found = []
    for n in range(len(wish.wanted)):
        token = picker.pick(wish.logits(n))
        picker.accept(token)
        found.append(token)
    return found


def test_a_budget_overrides_the_sampler_and_its_penalties():
    wish = Wish([START, 50, 50, 50, 50, 50])
    assert picked(wish, block=budget(2)) == [START, 50, 50, MESSAGE, END, 50]
    banned = {MESSAGE: -math.inf, END: -100.0}
    assert picked(wish, block=budget(2), logit_bias=banned) == [START, 50, 50, MESSAGE, END, 50]


def test_random_numbers_are_drawn_for_forced_tokens_too():
    """As in llama.cpp, so that a seed gives the same text after a block."""
    wish = Wish([START, 50, 5, 5, *[5] * 8])
    free = picked(wish, temp=3, top_k=0, top_p=1, seed=4)
    budgeted = picked(wish, block=budget(0, prompt=[START]), temp=3, top_k=0, top_p=1, seed=4)
    assert budgeted[:2] == [MESSAGE, END] and budgeted[2:] == free[2:]


class OnDevice(list):
    """Logits that find their best token themselves, and tell how often they were asked to."""

    asked = 0

    def best_tokens(self, k, also):
        raise AssertionError("greedy sampling without penalties needs only the best token")

    def best_token(self):
        OnDevice.asked += 1
        return self.index(max(self))


def test_where_nothing_is_forced_a_device_selects_the_candidates():
    picker = TokenPicker(Sampler(SamplingOptions(temp=0, penalty=1)), budget=budget(0))
    asked = []
    for token in (50, START, MESSAGE, END, 50):
        assert picker.pick(OnDevice(Wish([token]).logits(0))) == token
        picker.accept(token)
        asked.append(OnDevice.asked)
    assert asked == [1, 2, 2, 2, 3]


def test_a_grammar_replaces_what_it_refuses():
    assert picked(Wish(list(b"axc"), otherwise=b"yb"), 'root ::= "abc" | "azc"') == list(b"abc")


def test_a_grammar_pauses_inside_a_block():
    inside = [50, 51]
    wish = Wish([START, *inside, END, *b"zz"], otherwise=b"xy")
    assert picked(wish, '''root ::= "d" "xy"''', budget(9)) == [START, *inside, END, *b"xy"]


def test_a_grammar_pauses_in_a_block_the_prompt_left_open_and_through_its_forced_end():
    wish = Wish([50, 51, 52, 53, *b"zz"], otherwise=b"xy")
    assert picked(wish, '''root ::= "xy"''', budget(2, prompt=[START])) == [50, 51, MESSAGE, END, *b"xy"]


def test_a_start_tag_must_be_allowed_by_the_grammar():
    assert picked(Wish([START, 50], otherwise=b"xy"), '''root ::= "xy"''', budget(9)) == list(b"xy")


def test_nothing_left_is_told():
    with pytest.raises(GrammarRejection, match="^Grammar rejected every candidate token$"):
        picked(Wish([50]), "root ::= [é]")  # the vocabulary cannot write it
    with pytest.raises(GrammarRejection):
        picked(Wish([50]), 'root ::= "a"', logit_bias={ord("a"): -math.inf})
