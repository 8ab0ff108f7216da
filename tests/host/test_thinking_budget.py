"""A thinking budget over the host's messages."""

import asyncio

from tests.host.scripted_engine import Page
from tests.host.test_scoring import scripted_model


def answer(prompt, options):
    async def scenario():
        model = scripted_model()
        model._session.name = "reference"
        page = await Page(model).loaded()
        return await page.call("createCompletion", prompt, {"temp": 0, "nPredict": 4} | options)

    return asyncio.run(scenario())


def test_the_option_reaches_the_engine():
    budget = {"maxTokens": 0, "startTag": "<", "endTag": ">", "forcedMessage": "ok"}
    assert answer("<", {"thinkingBudget": budget})["value"][:3] == "ok>"
    assert answer("<", {"thinkingBudget": budget | {"forcedMessage": None}})["value"][:1] == ">"
    assert answer("<", {"thinkingBudget": budget | {"maxTokens": 1}, "grammar": 'root ::= "no"'})["value"][1:] == "ok>"


def test_a_grammar_that_leaves_nothing_fails_in_a_step():
    failure = answer("a", {"grammar": 'root ::= "a"', "logitBias": {ord("a"): float("-inf")}})
    assert failure["message"] == "Generation step failed: Grammar rejected every candidate token"
