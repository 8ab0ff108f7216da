"""Host calls and options beyond the documented API: stop strings, logit bias, memory estimates, chat templates."""

import asyncio
import gc
import math
from pathlib import Path

import pytest

from bridge.errors import SourceError
from bridge.gguf import open_gguf
from bridge.host.options import completion_request
from bridge.runtime.sources import AsyncSource
from tests.host.scripted_engine import Page, ScriptedModel, ScriptedSource
from tests.host.test_scoring import scripted_model

LLAMA = Path(__file__).parent.parent / "data" / "models" / "llama-tied-f32.gguf"
MESSAGES = [{"role": "user", "content": "hi"}]


def run(scenario):
    return asyncio.run(scenario)


def test_stop_strings_and_logit_bias_reach_the_engine():
    request = completion_request({"stop": ["a", "b"], "logitBias": {"5": -math.inf, "7": 1}}, False)
    assert request.generate.stop == ("a", "b")
    assert request.generate.sampling.logit_bias == {5: -math.inf, 7: 1.0}
    assert completion_request({"stop": "x", "logitBias": None}, False).generate.stop == ("x",)


@pytest.mark.parametrize(("options", "words"), [
    ({"stop": [""]}, "CompletionOptions.stop must be a text or a list of texts"),
    ({"stop": 5}, "CompletionOptions.stop must be a text or a list of texts"),
    ({"logitBias": [1]}, "CompletionOptions.logitBias must be an object of token ids and numbers"),
    ({"logitBias": {"x": 1}}, "CompletionOptions.logitBias must be an object of token ids and numbers"),
    ({"logitBias": {"3": math.nan}}, "logit_bias of token 3"),
])
def test_bad_values_are_one_sentence(options, words):
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        answer = await page.call("createCompletion", "x", options)
        assert words in answer["message"]
        assert answer["code"] == "INVALID_INPUT"

    run(scenario())


def test_scores_of_generated_tokens_go_with_the_event_that_follows():
    async def scenario():
        model = scripted_model()
        model._session.name = "reference"
        page = await Page(model).loaded()
        options = {"nPredict": 2, "temp": 0, "penalty": 1, "nProbs": 2}
        id = page.send("createCompletion", "!", options)
        await page.answer(id)
        events = [payload for event, payload in page.events(id) if event == "token"]
        tokens = [[detail["token"] for detail in event["details"]] for event in events]
        assert tokens == [[33], [66]], "the session doubles"
        [detail] = events[0]["details"]
        assert detail["bytes"] == [33]
        assert [score["token"] for score in detail["top"]] == [33, 0]
        assert abs(detail["logprob"] - (1 - math.log(math.e + 255))) < 1e-9
        plain = page.send("createCompletion", "!", {"nPredict": 1})
        await page.answer(plain)
        assert all("details" not in payload for _, payload in page.events(plain))

    run(scenario())


async def objects_left_by(page, grammar, times):
    """How many more Python objects there are after so many refusals of a grammar."""

    async def count():
        for _ in range(times):
            assert "(invalid grammar)" in (await page.call("createCompletion", "x", {"grammar": grammar}))["message"]
        page.posted.clear()
        gc.collect()
        return len(gc.get_objects())

    await count()
    return -await count() + await count()


def test_an_invalid_grammar_is_refused_before_the_context_is_touched():
    async def scenario():
        model = scripted_model()
        model._session.name = "reference"
        page = await Page(model).loaded()
        await page.call("createCompletion", "\x02\x03", {"nPredict": 1})
        calls = len(model._session.calls)
        for grammar in ("root ::= nothing", "no rule", 'start ::= "x"', "root ::= root"):
            answer = await page.call("createCompletion", "\x02\x03\x04", {"grammar": grammar})
            assert answer["message"].startswith(
                "Failed to start generation: Failed to initialize sampler chain (invalid grammar): ")
            assert answer["code"] == "INVALID_GRAMMAR"
        assert len(model._session.calls) == calls
        assert await objects_left_by(page, "root ::= " + "(" * 50 + '"x"', times=40) < 40, "not even one per refusal"
        followed = await page.call("createCompletion", "\x02\x03", {"grammar": 'root ::= "yes"', "temp": 0})
        assert followed["value"] == "yes"

    run(scenario())


def test_an_estimate_reads_the_header_and_leaves_the_model():
    class HeaderSource(ScriptedSource, AsyncSource):
        def __init__(self):
            ScriptedSource.__init__(self)
            AsyncSource.__init__(self, open_gguf(LLAMA).source)

        def close(self):
            self.closed += 1

    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        source = HeaderSource()

        async def open_source(urls, options, cancel):
            return source

        page.engine.open_source = open_source
        estimate = (await page.call("estimateMemory", "https://e.test/m", {"nCtx": 128}))["value"]
        assert estimate["architecture"] == "llama"
        assert estimate["fileBytes"] == LLAMA.stat().st_size
        assert estimate["totalBytes"] == estimate["weightBytes"] + estimate["cacheBytes"] + estimate["scratchBytes"]
        assert (source.closed, source.committed) == (1, 0)
        assert (await page.call("createCompletion", "x", {}))["value"] == "Hello world"
        assert (await page.call("estimateMemory", "", {}))["message"] == "Model URL is empty."

        async def missing(urls, options, cancel):
            raise SourceError("Failed to fetch model shard: 404 Not Found")

        page.engine.open_source = missing
        assert (await page.call("estimateMemory", "https://e.test/m", {}))["message"].endswith("404 Not Found")

    run(scenario())


def prompt(config=None, custom=None, loaded=True, template=ScriptedModel().tokenizer.chat_template):
    async def scenario():
        model = ScriptedModel()
        model.tokenizer.chat_template = template
        page = Page(model, config=config)
        if loaded:
            await page.loaded()
        answer = await page.call("applyChatTemplate", MESSAGES, True, custom)
        completed = await page.call("createCompletion", "x", {})
        return answer["value"], completed["state"]["metadata"]["llamadart.webgpu.runtime_notes"]

    return run(scenario())


def test_the_plain_format_stays_unless_a_template_is_asked_for():
    plain = "user: hi\nassistant: "
    assert prompt()[0] == plain
    assert prompt({"useModelChatTemplate": True})[0] == "<<user>hi"
    assert prompt(custom="{{ messages[0].content }}!")[0] == "hi!"
    assert prompt({"useModelChatTemplate": True}, loaded=False)[0] == plain
    assert prompt({"useModelChatTemplate": True}, template=None)[0] == plain
    assert prompt({"useModelChatTemplate": "yes"})[0] == plain


def test_a_template_that_fails_gives_the_plain_format_and_a_note():
    text, notes = prompt(custom="{{ raise_exception('no system role') }}")
    assert text == "user: hi\nassistant: "
    assert "chat_template_failed:" in notes and "no_system_role" in notes
