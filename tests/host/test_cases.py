"""Numbered cases of the wire protocol that the engine's side answers and that have no test of their own elsewhere.

tests/web/test_protocol_cases.py keeps the list of all of them.
"""

import asyncio

import pytest

from bridge.errors import ContextOverflow, DeviceError, SourceError
from tests.host.scripted_engine import Page, ScriptedModel
from tests.host.test_completion import complete, tokens
from tests.host.test_scoring import scripted_model

STATE_KEYS = {"metadata", "contextSize", "gpuActive", "backendName", "supportsVision", "supportsAudio"}


def run(scenario):
    return asyncio.run(scenario)


def test_case_22_every_failing_method_carries_the_state():
    async def scenario():
        page = await Page(ScriptedModel([ContextOverflow("too long")])).loaded()
        for method, *args in [("createCompletion", "x", {}), ("detokenize", ["x"], False), ("stateLoadFile", "", 5),
                              ("scoreNextToken", None, {}), ("embed", "x", {}), ("loadModelFromUrl", "", {}), ("nonsense",)]:
            answer = await page.call(method, *args)
            assert answer["type"] == "error", method
            assert set(answer["state"]) == STATE_KEYS

    run(scenario())


def test_case_26_state_bytes_travel_as_bytes():
    async def scenario():
        model = scripted_model()
        model._session.name = "reference"
        answer = await (await Page(model).loaded()).call("stateSaveBytes", [])
        assert isinstance(answer["value"], bytes)

    run(scenario())


def test_case_144_a_strategy_that_the_engine_lacks_is_named_before_anything_is_evaluated():
    async def scenario():
        model = ScriptedModel()
        page = await Page(model).loaded()
        answer = await page.call("createCompletion", "x", {"speculativeDecoding": {"strategies": ["ngram-mod"]}})
        assert "does not support CompletionOptions.speculativeDecoding." in answer["message"]
        assert (model.prompts, answer["state"]["contextSize"]) == ([], 64)

    run(scenario())


def gathered(pieces, **options):
    async def scenario():
        _, answer, events = await complete(options, pieces=pieces)
        return answer, [event for event, _ in events], [bytes(token["piece"]).decode() for token in tokens(events)]

    return run(scenario())


def test_cases_115_and_120_a_character_counts_its_utf16_units_and_is_never_cut():
    assert gathered(["é", "😀"], tokenEventFlushMs=100, tokenEventFlushChars=3)[2] == ["é😀"]
    assert gathered(["", "😀", "a"], tokenEventFlushMs=100, tokenEventFlushChars=3)[2] == ["😀a"]


def test_cases_116_to_118_pieces_are_gathered_until_the_limit_or_the_end():
    assert gathered(["ab", "cd"], tokenEventFlushMs=100, tokenEventFlushChars=100)[1:] == (["token", "usage"], ["abcd"])
    assert gathered(["ab", "cd"], tokenEventFlushMs=0, tokenEventFlushChars=100)[2] == ["ab", "cd"]


def test_case_119_what_was_gathered_comes_before_the_error_and_nothing_after():
    answer, order, texts = gathered(["ab", DeviceError("lost")], tokenEventFlushMs=100)
    assert (answer["type"], order, texts) == ("error", ["token"], ["ab"])


def test_case_121_the_timer_sends_what_is_there():
    _, order, texts = gathered(["a", "b", 0.05, "c"], tokenEventFlushMs=10, tokenEventFlushChars=100)
    assert (order, texts) == (["token", "token", "usage"], ["ab", "c"])


def test_case_122_after_the_timer_a_character_of_two_units_reaches_the_limit_by_itself():
    texts = gathered(["a", 0.05, "😀", "b"], tokenEventFlushMs=20, tokenEventFlushChars=2)[2]
    assert texts == ["a", "😀", "b"]


def test_case_123_token_then_usage_then_result_and_no_usage_after_a_failure():
    answer, order, _ = gathered(["a"])
    assert (order, answer["type"]) == (["token", "usage"], "result")
    assert "usage" not in gathered([ContextOverflow("too long")])[1]


@pytest.mark.parametrize("direct", [False, True])
def test_cases_124_and_125_counts_and_reasons(direct):
    async def scenario():
        page = await Page(ScriptedModel(["a", "b", "c"]), direct=direct).loaded()
        id = page.send("createCompletion", "!", {})
        assert (await page.answer(id))["value"] == "abc"
        assert [event for event, _ in page.events(id)] == ["token", "token", "token", "usage"]
        usage = page.events(id)[-1][1]
        assert (usage["finishReason"], usage["completionTokens"]) == ("stop", 3)
        assert 0 <= usage["timeToFirstTokenMs"] <= usage["durationMs"]
        model = scripted_model()
        model._session.name = "reference"
        page = await Page(model, direct=direct).loaded()
        id = page.send("createCompletion", "!", {"nPredict": 2, "temp": 0, "penalty": 1})
        await page.answer(id)
        kinds = [event for event, _ in page.events(id)]
        [usage] = [payload for event, payload in page.events(id) if event == "usage"]
        assert (usage["finishReason"], usage["completionTokens"], usage["promptTokens"]) == ("length", 2, 1)
        assert 0 <= usage["timeToFirstTokenMs"] <= usage["durationMs"]
        assert kinds == ["token", "token", "usage"]

    run(scenario())


def test_cases_126_and_127_no_text_and_a_cancel_while_generating():
    async def scenario():
        page = await Page(ScriptedModel(()), direct=True).loaded()
        id = page.send("createCompletion", "x", {})
        assert (await page.answer(id))["value"] == ""
        assert [payload["timeToFirstTokenMs"] for event, payload in page.events(id) if event == "usage"] == [None]
        page = await Page(ScriptedModel(["one", 0.3, "two"]), direct=True).loaded()
        id = page.send("createCompletion", "x", {})
        await asyncio.sleep(0.02)
        page.send("cancel")
        assert (await page.answer(id))["value"] == "one"
        assert page.events(id)[-1][1]["finishReason"] == "cancelled"

    run(scenario())


def test_case_166_the_same_address_again_frees_the_model_before_it_is_fetched():
    async def scenario():
        first, second = ScriptedModel(), ScriptedModel()
        page = await Page(first, second).loaded()
        opened = page.engine.open_source

        async def open_source(urls, options, cancel):
            assert first.closed == 1
            return await opened(urls, options, cancel)

        page.engine.open_source = open_source
        await page.loaded()
        assert (first.closed, second.closed, len(page.engine.urls)) == (1, 0, 2)

    run(scenario())


def test_case_169_a_refused_release_keeps_the_model_and_fetches_nothing():
    async def scenario():
        page = await Page(ScriptedModel(["one", 0.3, "two"])).loaded()
        running = page.send("createCompletion", "x", {})
        await asyncio.sleep(0.01)
        refused = await page.call("loadModelFromUrl", "https://e.test/n", {"nCtx": 7})
        assert refused["message"].startswith("Failed to release the loaded model")
        assert (refused["state"]["contextSize"], len(page.engine.urls)) == (64, 1)
        assert (await page.answer(running))["value"] == "onetwo"

    run(scenario())


def test_case_170_a_load_that_is_aborted_while_it_is_fetched_loads_nothing():
    async def scenario():
        page = Page(ScriptedModel())
        page.engine.load_pause = 2.0
        id = page.send("loadModelFromUrl", "https://e.test/m", {})
        await asyncio.sleep(0.02)
        page.send("cancel")
        assert (await page.answer(id))["message"] == "Model load was cancelled."
        assert len(page.engine.outcomes) == 1, "no model was made"
        assert (page.engine.sources[0].closed, page.engine.sources[0].committed) == (1, 0)

    run(scenario())


def test_cases_173_and_174_which_names_are_split_models():
    async def scenario():
        page = Page(*(ScriptedModel() for _ in range(3)))
        for url in ("https://e.test/m-00002-of-00003.gguf?x=1", "https://e.test/m-1-of-3.gguf",
                    "https://e.test/m-00001-of-00001.gguf"):
            await page.call("loadModelFromUrl", url, {})
        assert page.engine.urls == [[f"https://e.test/m-0000{i}-of-00003.gguf?x=1" for i in (1, 2, 3)],
                                    "https://e.test/m-1-of-3.gguf", "https://e.test/m-00001-of-00001.gguf"]

    run(scenario())


def test_case_81_a_servers_refusal_is_told_verbatim():
    async def scenario():
        page = Page()
        page.engine.missing = "Failed to fetch model shard: 404 Not Found"
        assert (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"] == page.engine.missing
        page.engine.missing = None
        page.engine.outcomes = [SourceError("Failed to fetch model shard: Range resume not honored for model shard: 200 OK")]
        assert "Range resume not honored" in (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"]

    run(scenario())
