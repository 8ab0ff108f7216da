"""llama.cpp's verdicts: which grammars it parses, which texts it accepts, and where it refuses the others."""

import json
from pathlib import Path

import pytest

from bridge.sampling.grammar import Grammar, GrammarError

CASES = json.loads(Path("tests/data/grammar/grammars.json").read_text())["cases"]


def named(parses):
    return [pytest.param(case, id=case["name"]) for case in CASES if (case["parses"] is True) == parses]


def test_there_are_cases_of_every_kind():
    assert (len(named(True)), len(named(False))) == (50, 20)
    assert sum(len(case["accepted"]) + len(case["rejected"]) for case in CASES if case["parses"]) == 1120


@pytest.mark.parametrize("case", named(False))
def test_what_llama_cpp_refuses_or_hangs_on_is_refused(case):
    with pytest.raises(GrammarError) as failure:
        Grammar(case["grammar"])
    assert failure.value.code == "INVALID_GRAMMAR"
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize("case", named(True))
def test_texts_get_the_same_verdict(case):
    grammar = Grammar(case["grammar"])
    for text in case["accepted"]:
        assert grammar.accepts(text.encode()) and grammar.allows_prefix(text.encode()), text
    for text, is_prefix, place in case["rejected"]:
        assert not grammar.accepts(text.encode()), text
        assert grammar.allows_prefix(text.encode()) == is_prefix, text
        if not is_prefix:
            lengths = range(len(text) + 1)
            assert next(n for n in lengths if not grammar.allows_prefix(text[:n].encode())) == place + 1, text


@pytest.mark.parametrize("case", named(True))
def test_every_prefix_of_an_accepted_text_is_allowed_byte_by_byte(case):
    grammar = Grammar(case["grammar"])
    for text in case["accepted"]:
        data = text.encode()
        assert all(grammar.allows_prefix(data[:n]) for n in range(len(data) + 1)), text
