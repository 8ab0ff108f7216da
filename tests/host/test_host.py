"""The host over its messages: answers, states, errors, cancellation, and the life of the loaded model."""

import asyncio

import pytest

from bridge.errors import ContextOverflow, DeviceError, FormatError, SourceError
from bridge.host.snapshot import EMPTY_STATE
from tests.host.scripted_engine import Page, ScriptedModel

STATE_KEYS = {"metadata", "contextSize", "gpuActive", "backendName", "supportsVision", "supportsAudio"}


def run(scenario):
    return asyncio.run(scenario)


def metadata(answer):
    return {key.removeprefix("llamadart.webgpu."): value for key, value in answer["state"]["metadata"].items()}


def notes(answer):
    return metadata(answer)["runtime_notes"].split(";")


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


def test_a_load_reports_percentages_that_grow_and_closes_its_source():
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        assert page.events(1) == [("progress", {"loaded": n, "total": 100}) for n in (10, 50, 100)]
        assert page.engine.sources[0].closed == 1
        assert page.engine.load_options[0].n_ctx == 4096

    run(scenario())


def test_bytes_that_arrive_before_any_weight_count_as_progress(monkeypatch):
    monkeypatch.setattr("bridge.host.models.PROGRESS_S", 0.01)

    async def scenario():
        page = Page(ScriptedModel())
        page.engine.load_pause = 0.1

        async def read_header_only(source, options, *, progress, cancel, **more):
            for received in (5, 5, 40):
                source.received = received
                await asyncio.sleep(0.03)
            return page.engine.outcomes.pop(0)

        page.engine.load_model = read_header_only
        await page.loaded()
        assert [payload["loaded"] for _, payload in page.events(1)] == [5, 40]
        before = len(page.posted)
        await asyncio.sleep(0.03)
        assert len(page.posted) == before

    run(scenario())


def test_a_new_load_frees_the_old_model_first_and_keeps_its_context_size_as_the_default():
    async def scenario():
        first, second = ScriptedModel(n_ctx=64), ScriptedModel(n_ctx=64)
        page = await Page(first, second).loaded()
        answer = await page.call("loadModelFromUrl", "https://e.test/n.gguf", {})
        assert (first.closed, second.closed) == (1, 0)
        assert page.engine.load_options[1].n_ctx == 64
        assert "previous_model_released" in notes(answer)

    run(scenario())


@pytest.mark.parametrize("failure, text", [
    (FormatError("not a GGUF file: it begins with 3c68746d"),
     "Failed to load GGUF model: not a GGUF file: it begins with 3c68746d"),
    (SourceError("Failed to fetch model shard: network error"), "Failed to fetch model shard: network error"),
])
def test_a_failed_load_leaves_no_model_and_the_next_one_works(failure, text):
    async def scenario():
        page = await Page(ScriptedModel(), failure, ScriptedModel()).loaded()
        answer = await page.call("loadModelFromUrl", "https://e.test/bad", {})
        assert (answer["message"], answer["code"]) == (text, failure.code)
        assert metadata(answer)["model_bytes"] == "0"
        assert page.engine.sources[1].closed == 1
        assert "No model loaded" in (await page.call("tokenize", "x", True))["message"]
        assert (await page.call("loadModelFromUrl", "https://e.test/good", {}))["type"] == "result"

    run(scenario())


def test_a_missing_file_is_told_as_the_server_put_it():
    async def scenario():
        page = Page()
        page.engine.missing = "Failed to fetch model shard: 404 Not Found"
        assert (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"] == page.engine.missing

    run(scenario())


@pytest.mark.parametrize("source, options, text", [
    ("", {}, "Model URL is empty."),
    (["", None], {}, "Model URL is empty."),
    ("m.gguf", {"nCtx": 10**9}, "Failed to load GGUF model: n_ctx is 1000000000; it must be"),
    ("m.gguf", {"cacheTypeK": 8, "flashAttention": 0}, "Non-F16 KV cache requires flashAttention"),
])
def test_bad_load_arguments_leave_the_loaded_model(source, options, text):
    async def scenario():
        page = await Page(ScriptedModel()).loaded()
        answer = await page.call("loadModelFromUrl", source, options)
        assert text in answer["message"]
        assert metadata(answer)["model_bytes"] == "100"
        assert len(page.engine.urls) == 1
        assert (await page.call("createCompletion", "x", {}))["value"] == "Hello world"

    run(scenario())


def test_a_list_with_one_url_and_a_set_of_one_shard_are_single_files():
    async def scenario():
        page = Page(ScriptedModel(), ScriptedModel())
        for source in (["https://e.test/a.gguf", ""], "https://e.test/m-00001-of-00001.gguf"):
            assert (await page.call("loadModelFromUrl", source, {}))["type"] == "result"
        assert page.engine.urls == ["https://e.test/a.gguf", "https://e.test/m-00001-of-00001.gguf"]

    run(scenario())


def test_any_shard_of_a_set_and_a_list_name_all_files():
    async def scenario():
        page = Page(ScriptedModel(), ScriptedModel())
        shards = [f"https://e.test/m-{i:05}-of-00003.gguf?x=1" for i in (1, 2, 3)]
        answer = await page.call("loadModelFromUrl", shards[1], {})
        assert answer["type"] == "result"
        assert page.events()[-1] == ("progress", {"loaded": 100, "total": 100, "shard": 3, "shards": 3})
        await page.call("loadModelFromUrl", ["https://e.test/b", "https://e.test/a"], {})
        assert page.engine.urls == [shards, ["https://e.test/b", "https://e.test/a"]]

    run(scenario())


def test_files_are_kept_only_when_the_model_is_there():
    async def scenario():
        page = Page(ScriptedModel(), FormatError("the file is no GGUF"), config={"cacheName": " mine "})
        await page.call("loadModelFromUrl", "https://e.test/m", {})
        await page.call("loadModelFromUrl", "https://e.test/m", {"cacheName": "other"})
        assert [(source.committed, source.discarded, source.closed) for source in page.engine.sources] == [(1, 0, 1), (0, 0, 1)]
        assert [options["cacheName"] for options in page.engine.source_options] == ["mine", "other"]

    run(scenario())


@pytest.mark.parametrize("failure", [FormatError("not a GGUF"), SourceError("the server returned 5 of 9 bytes")])
def test_a_cache_entry_that_is_no_good_is_dropped_and_fetched_once_more(failure):
    async def scenario():
        page = Page(failure, ScriptedModel())
        page.engine.cached = True
        answer = await page.call("loadModelFromUrl", "https://e.test/m", {})
        assert answer["value"] == 1
        assert [source.discarded for source in page.engine.sources] == [1, 0]
        assert page.engine.source_options[1]["force"] is True
        assert notes(answer)[1:4] == ["model_cache_entry_dropped", "model_cache_hit", "model_network_stream"]
        page.engine.outcomes = [failure, failure]
        assert str(failure) in (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"]
        page.engine.outcomes = [DeviceError("out of memory")]
        assert "out of memory" in (await page.call("loadModelFromUrl", "https://e.test/m", {}))["message"]
        assert page.engine.sources[-1].discarded == 0, "the file is not to blame"

    run(scenario())


def test_a_file_that_changes_on_the_way_is_fetched_anew_once():
    async def scenario():
        changed = SourceError("Failed to fetch model shard: the file changed identity since it was opened")
        changed.code = "FILE_CHANGED"
        page = Page(changed, ScriptedModel(), changed, changed)
        answer = await page.call("loadModelFromUrl", "https://e.test/m", {})
        assert answer["value"] == 1
        assert "model_file_changed_restarted" in notes(answer)
        assert page.engine.source_options[1]["force"] is True
        answer = await page.call("loadModelFromUrl", "https://e.test/m", {})
        assert (answer["message"], answer["code"]) == (str(changed), "FILE_CHANGED")
        assert len(page.engine.sources) == 4

    run(scenario())


def test_a_cancelled_load_stops_and_leaves_no_model():
    async def scenario():
        page = Page(ScriptedModel(), ScriptedModel())
        page.engine.load_pause = 2.0
        id = page.send("loadModelFromUrl", "https://e.test/m.gguf", {})
        await asyncio.sleep(0.02)
        assert (await page.call("cancel"))["value"] is None
        answer = await page.answer(id)
        assert (answer["message"], answer["code"]) == ("Model load was cancelled.", "CANCELLED")
        assert page.engine.sources[0].closed == 1
        page.engine.load_pause = 0
        assert (await page.call("loadModelFromUrl", "https://e.test/m.gguf", {}))["type"] == "result"

    run(scenario())


def test_whatever_breaks_when_a_transfer_is_cut_off_counts_as_cancelled():
    async def scenario():
        page = Page(SourceError("Failed to fetch model shard: network error: aborted"))

        async def cut_off(*args, cancel, **more):
            cancel.cancel()
            raise SourceError("Failed to fetch model shard: network error: aborted")

        page.engine.load_model = cut_off
        answer = await page.call("loadModelFromUrl", "https://e.test/m.gguf", {})
        assert answer["message"] == "Model load was cancelled."

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
