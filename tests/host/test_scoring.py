"""Next-token scores over the host's messages, on a real model object with a session that can be read."""

import asyncio
import math

from bridge.runtime import Model
from tests.host.scripted_engine import Page
from tests.runtime.scripted import ByteTokenizer, ScriptedSession


class Tokenizer(ByteTokenizer):
    def encode(self, text, add_special=True, parse_special=True):
        return list(text.encode())

    notes = ()


def scripted_model(**session):
    opened = ScriptedSession(n_vocab=256, **session)
    return Model(opened, Tokenizer(), metadata={"general.architecture": "llama"}, architecture="llama", n_vocab=256,
                 n_ctx_train=0, nbytes=10)


def answers(*calls):
    async def scenario():
        model = scripted_model()
        model._session.name = "reference"
        page = await Page(model).loaded()
        return [await page.call("scoreNextToken", *call) for call in calls]

    return asyncio.run(scenario())


def test_scores_have_bytes_and_null_for_what_cannot_happen():
    [answer] = answers(["\x02\x03", {"candidates": [5, 6], "topK": 1}])
    value = answer["value"]
    total = math.log(math.e + 255)
    assert [entry["token"] for entry in value["candidates"]] == [5, 6]
    assert abs(value["candidates"][0]["logprob"] - (1 - total)) < 1e-9
    assert value["top"] == [{"token": 5, "bytes": b"\x05", "logprob": value["candidates"][0]["logprob"]}]
    assert value["promptTokens"] == 2
    assert "state" not in answer


def test_refusals_are_one_sentence_and_keep_their_code():
    for args, words, code in [
        (["x", {"candidates": [256]}], "candidates[0] is 256, which is outside the vocabulary of 256 tokens", "INVALID_INPUT"),
        (["x", {"topK": 257}], "topK is 257, which is outside the vocabulary of 256 tokens", "INVALID_INPUT"),
        (["x", {}], "nothing was asked for: pass candidates, a positive topK, or both", "INVALID_INPUT"),
        ([None, {"topK": 1}], "prompt must be a string, got NoneType", "INVALID_INPUT"),
        (["x", {"topK": 1.5}], "topK is not an integer", "INVALID_INPUT"),
        (["x" * 33, {"topK": 1}], "the prompt has 33 tokens, which exceeds the context size of 32 tokens", "CONTEXT_OVERFLOW"),
    ]:
        [answer] = answers(args)
        assert (answer["message"], answer["code"]) == (f"Next-token scoring failed: {words}", code)
