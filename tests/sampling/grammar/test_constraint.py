"""One text under a grammar: ends, characters cut between tokens, tokens named as a whole, clones, what is refused."""

import gc
import weakref
from array import array

import pytest

from bridge.errors import InputError
from bridge.sampling import Sampler, SamplingOptions
from bridge.sampling.grammar import Grammar, GrammarConstraint, GrammarError, GrammarRejection
from tests.sampling.grammar.reference import ListTokenizer

BYTES = [bytes([byte]) for byte in range(256)]
A, B, C = b"abc"


def constraint(grammar, tokenizer=None):
    tokenizer = tokenizer or ListTokenizer([*BYTES, b"ab", b"<end>", b"<think>", b""], eog=[257])
    return GrammarConstraint(Grammar.for_tokenizer(grammar, tokenizer), tokenizer)


def test_an_end_token_is_allowed_only_at_an_end_and_changes_nothing():
    text = constraint('root ::= "a" "b"?')
    assert not text.allows(257) and not text.may_end
    with pytest.raises(InputError, match="token 257 was accepted, but the grammar does not allow it here"):
        text.accept(257)
    text.accept(A)
    assert text.may_end and text.allows(257) and text.mask().tokens() == [B, 257]
    text.accept(257)
    assert text.mask().tokens() == [B, 257]
    text.accept(B)
    assert text.mask().tokens() == [257]


def test_the_name_of_an_end_token_is_no_text():
    text = constraint('root ::= "<end>"')
    assert 257 not in text.mask() and not text.allows(257)
    for byte in b"<end":
        text.accept(byte)
    assert text.mask().tokens() == [ord(">")]


def test_a_refused_token_leaves_the_place_unchanged():
    text = constraint('root ::= "ab"')
    with pytest.raises(InputError):
        text.accept(B)
    assert text.mask().tokens() == [A, 256]


def test_a_character_may_be_cut_anywhere():
    text = constraint("root ::= [é😀]+")
    assert text.mask().tokens() == [0xC3, 0xF0]
    text.accept(0xF0)
    assert text.mask().tokens() == [0x9F] and not text.may_end and not text.allows(257)
    for byte in (0x9F, 0x98, 0x80):
        text.accept(byte)
    assert text.mask().tokens() == [0xC3, 0xF0, 257]


def test_tokens_that_begin_and_end_within_characters():
    tokenizer = ListTokenizer([b"x\xc3", b"\xa9\xc3", b"\xa9", b"\xa9y", b"\xa8", "é".encode(), b"\xe2\x82", b"\x82"])
    text = constraint("root ::= [^é€]? [é]+ [^\\u20ac] [^y]?", tokenizer)
    assert text.mask().tokens() == [0, 5, 6]
    text.accept(0)
    assert text.mask().tokens() == [1, 2, 3]
    text.accept(1)
    assert text.mask().tokens() == [1, 2, 3, 4, 7]
    text.accept(4)
    assert text.may_end


def test_a_token_named_by_id_is_taken_as_a_whole_and_only_where_it_begins():
    text = constraint('root ::= <[256]> "c" | "a" <[98]> | "ab" "d"')
    assert text.mask().tokens() == [A, 256]
    text.accept(256)
    assert text.mask().tokens() == [C, ord("d")]  # read as a token, and as the text ab
    text.reset()
    text.accept(A)
    assert text.mask().tokens() == [B]
    text.accept(B)
    assert text.mask().tokens() == [ord("d"), 257]


def test_a_negated_token_is_any_other_that_writes_something():
    text = constraint("root ::= !<[256]>* <[256]>")
    allowed = text.mask().tokens()
    assert set(range(257)) - set(allowed) == {0} and 258 in allowed
    assert not {257, 259} & set(allowed)  # the end token and the empty one
    assert [token for token in range(260) if text.allows(token)] == allowed


def test_a_token_may_be_named_by_its_text_if_it_is_exactly_one():
    text = constraint('root ::= <think> "a"')
    assert text.mask().tokens() == [258]
    with pytest.raises(GrammarError, match="must be exactly one token of the vocabulary, and is not .line 1, column 10"):
        constraint("root ::= <nothing>")


def test_clones_go_on_by_themselves():
    text = constraint('root ::= "ab" | "ac"')
    text.accept(A)
    clone = text.clone()
    clone.accept(C)
    assert clone.may_end and not text.may_end and text.mask().tokens() == [B, C]


def test_nothing_allowed_is_an_error():
    text = constraint('root ::= "a"', ListTokenizer(["b", "c"]))
    with pytest.raises(GrammarRejection, match="^Grammar rejected every candidate token$"):
        text.apply(array("f", (0, 0)))


@pytest.mark.parametrize("options", [{"temp": 0}, {"seed": 3}, {"seed": 3, "top_k": 0, "top_p": 0.9, "min_p": 0.01}])
def test_a_sampler_under_a_constraint_draws_allowed_tokens_only(options):
    text = constraint('root ::= [a-c]{20} "!"')
    sampler = Sampler(SamplingOptions(**options))
    written = []
    while not text.may_end:
        token = sampler.sample(array("f", [(7 * token) % 11 for token in range(260)]), text.apply)
        sampler.accept(token)
        text.accept(token)
        written.append(token)
    assert Grammar('root ::= [a-c]{20} "!"').accepts(b"".join(text._tokenizer.pieces[token] for token in written))


def test_a_grammar_used_again_is_not_parsed_again_and_ends_with_its_tokenizer():
    tokenizer = ListTokenizer(BYTES)
    first = Grammar.for_tokenizer('root ::= "a"', tokenizer)
    assert Grammar.for_tokenizer('root ::= "a"', tokenizer) is first
    for n in range(4):
        Grammar.for_tokenizer(f'root ::= "{n}"', tokenizer)
    assert Grammar.for_tokenizer('root ::= "a"', tokenizer) is not first
    GrammarConstraint(Grammar.for_tokenizer('root ::= "a"', tokenizer), tokenizer).mask()
    alive = weakref.ref(tokenizer)
    del tokenizer, first
    gc.collect()
    assert alive() is None
