"""Generation with a thinking budget: the end of a block comes in the text, and errors come before the context is touched."""

import asyncio

import pytest

from bridge.errors import InputError
from bridge.runtime import GenerateOptions, Model
from bridge.sampling import SamplingOptions
from bridge.sampling.grammar import Grammar
from bridge.sampling.thinking_budget import ThinkingBudgetOptions
from tests.runtime.scripted import ByteTokenizer, ScriptedSession


class Tokenizer(ByteTokenizer):
    def encode(self, text, add_special=True, parse_special=True):
        return list(text.encode()) if text != "nothing" else []


def generated(prompt, n_predict, grammar=None, **budget):
    """The text after a prompt, and the evaluations it took. The session wants the sum of all tokens so far, modulo 256."""
    session = ScriptedSession(n_vocab=256, n_ctx=64)
    model = Model(session, Tokenizer(), metadata={}, architecture="scripted", n_vocab=256, n_ctx_train=64, nbytes=0)
    options = GenerateOptions(
        n_predict=n_predict,
        sampling=SamplingOptions(temp=0, penalty=1),
        grammar=None if grammar is None else Grammar.for_tokenizer(grammar, model.tokenizer),
        thinking_budget=ThinkingBudgetOptions(**({"start_tag": "<", "end_tag": ">"} | budget)),
    )

    async def collect():
        return [piece.text async for piece in model.generate(list(prompt), options)]

    try:
        return "".join(asyncio.run(collect())), session
    except InputError as error:
        return str(error), session


def test_a_block_that_the_prompt_opened_is_ended():
    assert generated(b"<", 6, max_tokens=0, forced_message="ok")[0][:3] == "ok>"
    assert generated(b"<", 6, max_tokens=2, forced_message="ok")[0][2:5] == "ok>"


def test_a_block_that_the_text_opens_is_ended():
    assert generated(b"\x1e\x1e", 5, max_tokens=1)[0].startswith("<x>")  # 30 + 30 = 60, "<", and then 120, "x"


def test_a_grammar_waits_for_the_end_of_the_block():
    assert generated(b"<", 10, "root ::= [a-c]{3}", max_tokens=1, forced_message="!")[0][1:] == "!>aaa"


def test_tags_without_tokens_are_told_before_anything_is_evaluated():
    text, session = generated(b"a", 4, max_tokens=1, end_tag="nothing")
    assert (text, session.calls) == ("thinking budget tags produce no tokens for this vocabulary", [])


@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_without_a_block_a_budget_changes_nothing(max_tokens):
    assert generated(b"ab", 6, max_tokens=max_tokens)[0] == generated(b"ab", 6, max_tokens=2**31 - 1)[0]
