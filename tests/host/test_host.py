"""The host over its messages: answers, states, errors, cancellation, and the end of its life."""

import asyncio

from bridge.errors import ContextOverflow, DeviceError
from bridge.host.snapshot import EMPTY_STATE
from tests.host.answers import metadata, notes, run
from tests.host.scripted_engine import Page, ScriptedModel

STATE_KEYS = {"metadata", "contextSize", "gpuActive", "backendName", "supportsVision", "supportsAudio"}


def test_results_carry_a_state_only_where_the_protocol_says_so():
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        completed = await page.call("createCompletion", "hi", {})
        assert set(completed["state"]) == STATE_KEYS
        assert completed["state"]["contextSize"] == 64
        assert completed["state"]["gpuActive"] is True
        assert completed["state"]["backendName"] == "WebGPU"
        assert "state" not in await page.call("tokenize", "hi", False)
        assert set((await page.call("embed", "hi", {}))["state"]) == STATE_KEYS
        disposed = await page.call("dispose")
        assert (disposed["type"], disposed["state"]) == ("result", EMPTY_STATE)

    run(scenario())


def test_metadata_is_strings_and_holds_the_files_single_values():
    async def scenario():
        model = ScriptedModel(metadata={
            "general.architecture": "llama", "llama.block_count": 30, "llama.rope.freq_base": 1e4,
            "tokenizer.ggml.add_bos_token": True, "tokenizer.ggml.tokens": ["a", "b"]})
        page = Page(model)
        answer = await page.call("loadModelFromUrl", "https://e.test/m.gguf", {})
        values = answer["state"]["metadata"]
        assert all(isinstance(value, str) for value in values.values())
        assert values["llama.rope.freq_base"] == "10000"
        assert values["tokenizer.ggml.add_bos_token"] == "true"
        assert "tokenizer.ggml.tokens" not in values
        facts = metadata(answer)
        assert (facts["model_bytes"], facts["n_gpu_layers"], facts["adapter"]) == ("100", "30", "acme v1")
        assert facts["model_source"] == "network"
        assert notes(answer) == ["boot:plain", "model_network_stream", "scripted"]
        assert (facts["model_cache_state"], facts["model_cache_name"]) == ("stored", "models")

    run(scenario())


def test_before_a_load_every_model_call_says_so_and_no_state_claims_a_model():
    async def scenario():
        page = Page()
        for method, *args in [("tokenize", "x", True), ("detokenize", [1], False), ("createCompletion", "x", {}),
                              ("renderChatTemplate", [], {})]:
            answer = await page.call(method, *args)
            assert answer["message"] == "No model loaded. Call loadModelFromUrl first."
            assert answer["state"]["contextSize"] == 0
            assert metadata(answer)["model_bytes"] == "0"
        assert (await page.call("applyChatTemplate", [{"role": "user", "content": "hi"}], True, None))["value"] == \
            "user: hi\nassistant: "

    run(scenario())


def test_unknown_methods_and_messages():
    async def scenario():
        page = Page()
        page.host.handle({"type": "other", "id": 1})
        await asyncio.sleep(0)
        assert page.posted == []
        assert (await page.call("fly"))["message"] == "The engine has no method 'fly'."

    run(scenario())


def test_cancel_while_idle_does_not_touch_the_next_call():
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        await page.call("cancel")
        assert (await page.call("createCompletion", "x", {}))["value"] == "Hello world"

    run(scenario())


def test_cancel_ends_a_generation_with_what_there_is_and_its_usage():
    async def scenario():
        page = await Page(ScriptedModel(["one", 0.3, "two"])).loaded()
        id = page.send("createCompletion", "x", {})
        await asyncio.sleep(0.02)
        page.send("cancel")
        answer = await page.answer(id)
        assert answer["value"] == "one"
        assert page.events(id)[-1][1]["finishReason"] == "cancelled"

    run(scenario())


def test_a_second_generation_is_refused_and_so_is_a_load_meanwhile():
    async def scenario():
        model = ScriptedModel(["one", 0.3, "two"])
        page = await Page(model).loaded()
        first = page.send("createCompletion", "x", {})
        await asyncio.sleep(0.01)
        assert "already active" in (await page.call("createCompletion", "y", {}))["message"]
        load = await page.call("loadModelFromUrl", "https://e.test/n", {})
        assert load["message"].startswith("Failed to release the loaded model")
        assert (await page.answer(first))["value"] == "onetwo"
        assert model.closed == 0

    run(scenario())


def test_completion_errors_say_whether_generation_had_begun():
    async def scenario():
        overflow = ContextOverflow("the prompt has 70 tokens, which exceeds the context size of 64 tokens")
        page = await Page(ScriptedModel([overflow])).loaded()
        answer = await page.call("createCompletion", "x", {})
        assert answer["message"] == f"Failed to start generation: {overflow}"
        assert answer["code"] == "CONTEXT_OVERFLOW"
        page = await Page(ScriptedModel(["a", DeviceError("the device was lost: unplugged")])).loaded()
        id = page.send("createCompletion", "x", {})
        assert (await page.answer(id))["message"] == "Generation step failed: the device was lost: unplugged"
        assert [event for event, _ in page.events(id)] == ["token"]

    run(scenario())


def test_a_device_that_fails_before_the_first_token_costs_the_answer_nothing():
    async def scenario():
        first, second = ScriptedModel([DeviceError("lost")]), ScriptedModel(["from the CPU"], backend_name="simd")
        page = Page(first, second)
        await page.call("loadModelFromUrl", "https://e.test/m.gguf", {"nCtx": 64, "nGpuLayers": 99, "useCache": False})
        id = page.send("createCompletion", "x", {})
        answer = await page.answer(id)
        assert answer["value"] == "from the CPU"
        assert [event for event, _ in page.events(id)] == ["recovery"] * 3 + ["token", "usage"]
        assert {"generation_recovery_cpu_attempt", "generation_recovery_cpu_applied"} <= set(notes(answer))
        assert (answer["state"]["gpuActive"], answer["state"]["backendName"]) == (False, "WASM SIMD")
        assert (first.closed, page.engine.devices_dropped) == (1, 1)
        before, after = page.engine.source_options
        assert (after["nGpuLayers"], after["useCache"], page.engine.load_options[1].n_ctx) == (0, before["useCache"], 64)

    run(scenario())


def test_a_recovery_happens_once_and_not_where_it_would_repeat_text():
    async def scenario():
        page = await Page(ScriptedModel([DeviceError("lost")]), DeviceError("no memory")).loaded()
        answer = await page.call("createCompletion", "x", {})
        assert answer["message"] == "Failed to start generation: lost", "the first failure is the one that is told"
        assert metadata(answer)["model_bytes"] == "0"
        assert "generation_recovery_cpu_failed" in notes(answer)
        for model in (ScriptedModel(["a", DeviceError("lost")]), ScriptedModel([DeviceError("lost")], backend_name="simd")):
            page = await Page(model).loaded()
            answer = await page.call("createCompletion", "x", {})
            assert answer["message"].endswith("lost")
            assert (model.closed, len(page.engine.urls)) == (0, 1)
        again = ScriptedModel([DeviceError("lost too")], backend_name="simd")
        page = await Page(ScriptedModel([DeviceError("lost")]), again).loaded()
        assert (await page.call("createCompletion", "x", {}))["message"] == "Failed to start generation: lost too"
        assert len(page.engine.urls) == 2

    run(scenario())


def test_a_failed_device_is_replaced_at_the_next_load():
    async def scenario():
        page = await Page(ScriptedModel(["a", DeviceError("lost")]), ScriptedModel()).loaded()
        await page.call("createCompletion", "x", {})
        assert page.engine.devices_dropped == 0
        await page.call("loadModelFromUrl", "https://e.test/m.gguf", {})
        assert page.engine.devices_dropped == 1

    run(scenario())


def test_a_mistake_of_our_own_is_an_answer_and_not_a_silence(capsys):
    async def scenario():
        page = await Page(ScriptedModel([ZeroDivisionError("oops")])).loaded()
        answer = await page.call("createCompletion", "x", {})
        assert answer["message"] == "Internal error in createCompletion: ZeroDivisionError: oops"
        assert "Traceback" in capsys.readouterr().err
        assert (await page.call("tokenize", "a", False))["value"] == [97]

    run(scenario())


def test_tokens_and_text():
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        assert (await page.call("tokenize", "ab", True))["value"] == [1, 97, 98]
        assert (await page.call("detokenize", [97, 98.0], False))["value"] == "ab"
        assert (await page.call("detokenize", [], False))["value"] == ""
        assert "Detokenization failed: a token id is a number" in (await page.call("detokenize", ["x"], False))["message"]

    run(scenario())


def test_the_models_own_template_is_rendered_with_its_variables():
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        messages = [{"role": "user", "content": "hi"}]
        assert (await page.call("renderChatTemplate", messages, {"extra": "!"}))["value"] == "<<user>hi!"
        assert page.engine.packages == ["jinja2"]
        options = {"template": "{{ add_generation_prompt }}", "addAssistant": False}
        assert (await page.call("renderChatTemplate", messages, options))["value"] == "False"
        page.host._slot.model.tokenizer.chat_template = None
        assert "no chat template" in (await page.call("renderChatTemplate", messages, {}))["message"]
        assert "not iterable" in (await page.call("renderChatTemplate", 7, {"template": "x"}))["message"]

    run(scenario())


def test_capabilities_are_true_only_for_what_a_loaded_model_applies():
    async def scenario():
        page = Page(ScriptedModel())
        before = (await page.call("getCompletionCapabilities"))["value"]
        probes = ("getTextToSpeechCapabilities", "getDecisionCapabilities", "getLoraAdapterCapabilities")
        before_a_load = {probe: (await page.call(probe))["value"]["reason"] for probe in probes}
        assert not any(before["speculativeDecoding"].values())
        assert (before["minP"], before["presencePenalty"], before["thinkingBudget"]) == (False, False, False)
        await page.loaded()
        after = (await page.call("getCompletionCapabilities"))["value"]
        assert (after["minP"], after["presencePenalty"], after["thinkingBudget"]) == (True, True, True)
        assert len(after["speculativeDecoding"]) == 10
        for probe, reason in before_a_load.items():
            assert reason == "WebGPU core is not initialized", probe
        for probe in before_a_load:
            answer = (await page.call(probe))["value"]
            assert (answer["apiVersion"], answer["supported"]) == (1, False)
            assert answer["reason"].endswith(".")
        assert (await page.call("getEmbeddingCapabilities"))["value"] == {
            "apiVersion": 1, "text": False, "image": False, "audio": False}

    run(scenario())


def test_calls_this_build_cannot_serve_name_what_is_missing():
    async def scenario():
        page = Page(ScriptedModel())
        for method in ("embed", "embedBatch", "loadMultimodalProjector", "loadDraftModel", "runDecision", "synthesizeSpeech"):
            assert (await page.call(method, "x", {}))["message"] == "No model loaded. Call loadModelFromUrl first."
        await page.loaded()
        for empty in (None, "", " ", 5):
            assert (await page.call("loadMultimodalProjector", empty))["message"] == "Multimodal projector URL/path is empty."
            assert (await page.call("loadDraftModel", empty, {}))["message"] == "Draft model URL is empty."
        for method in ("runDecision", "loadLoraAdapter", "loadMultimodalProjector"):
            answer = await page.call(method, "x", {})
            assert answer["message"].startswith(f"{method} is not available in this build: it ")
            assert answer["code"] == "UNSUPPORTED"
        assert (await page.call("unloadDraftModel"))["value"] is None

    run(scenario())


def test_dispose_ends_what_runs_and_frees_model_and_device():
    async def scenario():
        model = ScriptedModel(["one", 0.3, "two"])
        page = await Page(model).loaded()
        running = page.send("createCompletion", "x", {})
        await asyncio.sleep(0.01)
        await page.call("dispose")
        assert (await page.answer(running))["value"] == "one"
        assert model.closed == 1
        assert page.engine.devices_dropped == 1
        assert "No model loaded" in (await page.call("tokenize", "x", True))["message"]

    run(scenario())


def test_a_closed_host_posts_nothing_more():
    async def scenario():
        page = await Page(ScriptedModel(["one", 0.02, "two"])).loaded()
        page.send("createCompletion", "x", {})
        await asyncio.sleep(0.01)
        page.host.close()
        before = len(page.posted)
        await asyncio.sleep(0.03)
        assert len(page.posted) == before

    run(scenario())
