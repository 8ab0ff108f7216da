"""Generation under a grammar: the text follows it, and an end comes only where it may."""

import asyncio

import pytest

from bridge.runtime import GenerateOptions
from bridge.sampling import SamplingOptions
from bridge.sampling.grammar import Grammar, GrammarRejection
from tests.runtime.test_model import _model


def generated(grammar, n_predict=8, prompt=(33,), **sampling):
    model, _ = _model(n_vocab=256, n_ctx=64)

    async def collect():
        options = GenerateOptions(n_predict=n_predict, sampling=SamplingOptions(**({"temp": 0.0, "penalty": 1.0} | sampling)),
                                  grammar=Grammar.for_tokenizer(grammar, model.tokenizer))
        return [piece async for piece in model.generate(prompt, options)]

    return model, "".join(piece.text for piece in asyncio.run(collect()))


def test_what_the_grammar_allows_is_taken_and_the_rest_replaced():
    # The session wants "!" (33) and then 66, "B".
    assert generated('root ::= "!B"', 2)[1] == "!B"
    assert generated('root ::= "x" "B"', 2)[1] == "xB"


def test_it_ends_where_the_grammar_ends():
    model, text = generated('root ::= "abc"')
    assert (text, model.last_usage.finish_reason, model.last_usage.completion_tokens) == ("abc", "stop", 3)


@pytest.mark.parametrize("seed", range(20))
def test_sampled_texts_are_of_the_grammar(seed):
    grammar = Grammar('root ::= [a-c]{2,4} "-" [0-9]+')
    _, text = generated('root ::= [a-c]{2,4} "-" [0-9]+', 12, temp=1.0, top_k=0, top_p=1.0, seed=seed)
    assert grammar.accepts(text.encode()) or grammar.allows_prefix(text.encode())
    assert len(text) >= 3


def test_a_grammar_that_leaves_no_token_says_so():
    with pytest.raises(GrammarRejection, match="Grammar rejected every candidate token"):
        generated('root ::= "\\u4e00" "\\u0001"', 8)
