"""Completions over the host's messages: options, token events, usage."""

import asyncio

import pytest

from tests.host.scripted_engine import Page, ScriptedModel


def run(scenario):
    return asyncio.run(scenario)


async def complete(options, pieces=("ab", "cd"), direct=False, prompt="x"):
    page = await Page(ScriptedModel(pieces), direct=direct).loaded()
    id = page.send("createCompletion", prompt, options)
    answer = await page.answer(id)
    return page, answer, page.events(id)


def tokens(events):
    return [payload for event, payload in events if event == "token"]


def test_tokens_then_usage_then_the_result():
    async def scenario():
        page, answer, events = await complete({})
        assert [event for event, _ in events] == ["token", "token", "usage"]
        assert page.posted[-1] is answer
        assert answer["value"] == "abcd"
        assert events[-1][1] == {
            "promptTokens": 2, "cachedPromptTokens": 1, "completionTokens": 2, "timeToFirstTokenMs": 12.0,
            "durationMs": 30.0, "finishReason": "stop", "promptMs": 10.0, "decodeMs": 20.0}
        assert answer["state"]["metadata"]["llamadart.webgpu.prompt_tokens_per_second"] == "100.00"
        assert answer["state"]["metadata"]["llamadart.webgpu.decode_tokens_per_second"] == "100.00"

    run(scenario())


def test_a_completion_without_text_has_no_first_token():
    async def scenario():
        _, answer, events = await complete({}, pieces=())
        assert answer["value"] == ""
        assert [event for event, _ in events] == ["usage"]
        assert events[0][1]["timeToFirstTokenMs"] is None

    run(scenario())


@pytest.mark.parametrize("options, direct, expected", [
    ({}, False, [{"piece": [97, 98], "currentText": ""}, {"piece": [99, 100], "currentText": ""}]),
    ({"emitCurrentTextOnToken": True, "tokenEventEncoding": "TEXT"}, False,
     [{"pieceText": "ab", "currentText": "ab"}, {"pieceText": "cd", "currentText": "abcd"}]),
    ({"tokenEventFlushChars": 1}, False, [{"piece": [97, 98], "currentText": ""}, {"piece": [99, 100], "currentText": ""}]),
    ({}, True, [{"piece": [97, 98], "currentText": "ab"}, {"piece": [99, 100], "currentText": "abcd"}]),
    ({"emitCurrentTextOnToken": False, "tokenEventFlushMs": 200}, True,
     [{"piece": [97, 98], "currentText": None}, {"piece": [99, 100], "currentText": None}]),
    ({"tokenEventFlushMs": 100, "tokenEventFlushChars": 100}, False, [{"piece": [97, 98, 99, 100], "currentText": ""}]),
    ({"tokenEventFlushMs": 100, "tokenEventFlushChars": 4, "tokenEventEncoding": "text"}, False,
     [{"pieceText": "abcd", "currentText": ""}]),
    ({"tokenEventFlushMs": 100, "tokenEventFlushChars": 2}, False,
     [{"piece": [97, 98], "currentText": ""}, {"piece": [99, 100], "currentText": ""}]),
])
def test_token_events_follow_their_options(options, direct, expected):
    async def scenario():
        _, _, events = await complete(options, direct=direct)
        assert tokens(events) == expected

    run(scenario())


def test_a_size_limit_counts_utf16_units_and_sends_the_latest_full_text():
    async def scenario():
        options = {"tokenEventFlushMs": 100, "tokenEventFlushChars": 3, "emitCurrentTextOnToken": True}
        _, _, events = await complete(options, pieces=["é", "😀"])
        assert tokens(events) == [{"piece": list("é😀".encode()), "currentText": "é😀"}]

    run(scenario())


def test_the_timer_is_started_by_the_first_piece_and_sends_what_is_there():
    async def scenario():
        _, _, events = await complete({"tokenEventFlushMs": 10, "tokenEventEncoding": "text"}, pieces=["a", "b", 0.05, "c"])
        assert [payload["pieceText"] for payload in tokens(events)] == ["ab", "c"]

    run(scenario())


def test_what_was_gathered_is_sent_before_an_error_and_nothing_after_it():
    async def scenario():
        from bridge.errors import DeviceError

        page, answer, events = await complete({"tokenEventFlushMs": 20}, pieces=["ab", DeviceError("lost")])
        assert [event for event, _ in events] == ["token"]
        assert answer["type"] == "error"
        await asyncio.sleep(0.04)
        assert page.posted[-1] is answer

    run(scenario())


@pytest.mark.parametrize("given, expected", [
    ({}, {"n_predict": 256, "temp": 0.8, "top_k": 40, "top_p": 0.95, "penalty": 1.1, "min_p": 0, "presence_penalty": 0}),
    ({"nPredict": 7, "temp": -1, "topK": -5, "topP": 2, "penalty": 0},
     {"n_predict": 7, "temp": 0, "top_k": 0, "top_p": 1, "penalty": 1}),
    ({"nPredict": 0}, {"n_predict": 256}),
    ({"nPredict": "12", "topK": 3.9}, {"n_predict": 12, "top_k": 3}),
    ({"nPredict": "many", "temp": "hot", "topK": True, "topP": float("nan")},
     {"n_predict": 256, "temp": 0.8, "top_k": 40, "top_p": 0.95}),
    ({"minP": 0.5, "presencePenalty": None, "seed": -1}, {"min_p": 0.5, "presence_penalty": 0, "seed": 2**32 - 1}),
    ({"seed": 1.5}, {"seed": None}),
])
def test_sampling_options_have_the_documented_defaults_and_clamps(given, expected):
    async def scenario():
        page, answer, _ = await complete(given)
        options = page.host._slot.model.options[0]
        got = {"n_predict": options.n_predict, **vars(options.sampling)}
        assert {key: got[key] for key in expected} == pytest.approx(expected)

    run(scenario())


def test_an_option_that_is_ignored_leaves_a_note():
    async def scenario():
        _, answer, _ = await complete({"temp": "hot", "topK": None})
        notes = answer["state"]["metadata"]["llamadart.webgpu.runtime_notes"]
        assert "completion_option_ignored:temp" in notes.split(";")
        assert "topK" not in notes

    run(scenario())


@pytest.mark.parametrize("options, text", [
    ({"speculativeDecoding": {"strategies": ["ngram-mod"]}},
     "This build does not support CompletionOptions.speculativeDecoding."),
    ({"thinkingBudget": 8}, "CompletionOptions.thinkingBudget must be an object"),
    ({"thinkingBudget": {"maxTokens": 2**31, "startTag": "a", "endTag": "b"}},
     "max_tokens must be an integer from 0 to 2147483647; got 2147483648"),
    ({"thinkingBudget": {"maxTokens": 1, "startTag": "a", "endTag": " "}}, "end_tag must be a non-empty string"),
    ({"grammar": 5}, "CompletionOptions.grammar must be a text in GBNF, got int"),
    ({"parts": [{"type": "image"}]}, "Multimodal input requires a loaded projector. Call loadMultimodalProjector first."),
    ({"minP": 3}, "min_p must be a number from 0 to 1; got 3"),
])
def test_options_this_build_does_not_apply_are_refused(options, text):
    async def scenario():
        _, answer, events = await complete(options)
        assert (answer["message"], events) == (text, [])

    run(scenario())


def test_empty_values_of_such_options_are_accepted():
    async def scenario():
        _, answer, _ = await complete({"grammar": "", "thinkingBudget": None, "parts": [], "minP": None})
        assert answer["value"] == "abcd"

    run(scenario())


def test_a_wide_sampler_loads_numpy_first():
    async def scenario():
        page, _, _ = await complete({"topK": 0})
        assert page.engine.packages == ["numpy"]
        page, _, _ = await complete({})
        assert page.engine.packages == []

    run(scenario())


def test_every_batch_of_a_prompt_but_the_last_is_a_sign_of_life():
    async def scenario():
        _, _, events = await complete({}, pieces=["a", "b"], prompt="x" * 69)
        counts = [payload for event, payload in events if event == "prefill"]
        assert counts == [{"evaluated": 32, "total": 70}, {"evaluated": 64, "total": 70}]
        kinds = [event for event, _ in events]
        assert kinds[kinds.index("token"):] == ["token", "token", "usage"]

    run(scenario())


def test_the_current_text_shows_what_is_held_back_and_the_pieces_do_not():
    async def scenario():
        options = {"tokenEventEncoding": "text", "emitCurrentTextOnToken": True}
        _, answer, events = await complete(options, pieces=[("a", "\ufffd"), ("", "\ufffd\ufffd"), ("é", "")])
        tokens = [(payload["pieceText"], payload["currentText"]) for event, payload in events if event == "token"]
        assert tokens == [("a", "a\ufffd"), ("é", "aé")]
        assert answer["value"] == "aé"

    run(scenario())
