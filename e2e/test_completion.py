"""Completions in a real page: llama.cpp's own text, streamed, stopped, queued, and refused where that is due."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bridge.gguf import open_gguf
from bridge.tokenizer import StreamDetokenizer
from e2e.bridge_page import MODELS, MODES, BridgePage, shared_bridge
from e2e.conftest import SITE
from e2e.fault_server import Fault

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "data" / "golden"
REAL = ROOT / "tests" / "data" / "real"
N_PREDICT = 8
REAL_N_PREDICT = 4
LLAMA = "llama-tied-f32"

LONG = 100
"""Tokens of a generation that is to be stopped: a software adapter takes about 10 ms for each."""


@pytest.fixture(scope="module", params=MODES)
def shared(request, browser, isolated_site):
    with shared_bridge(browser, isolated_site, request.param) as bridge:
        yield bridge


@pytest.fixture
def bridge(shared, site):
    """The bridge with the tiny llama and a context of 128 tokens."""
    load(shared, site)
    return shared


def load(bridge: BridgePage, site, name: str = LLAMA, **options) -> BridgePage:
    url = site.fault(f"{name}.gguf", Fault(MODELS / f"{name}.gguf"))
    assert bridge.load(url, **options).result == 1
    return bridge


def continuation(model: Path, prompt: dict) -> tuple[str, int]:
    """The text of llama.cpp's greedy tokens as far as they are certain, and their number."""
    tokenizer = open_gguf(model).tokenizer()
    stream = StreamDetokenizer(tokenizer)
    expected = prompt["expected"]
    safe = expected["greedy"][: min(N_PREDICT, expected["greedy_safe_steps"])]
    assert not tokenizer.eog_ids & set(safe), "pick a prompt whose answer does not end at once"
    return "".join(map(stream.push, safe)) + stream.flush(), len(safe)


def text_prompt(golden: Path) -> dict:
    return next(prompt for prompt in json.loads(golden.read_text())["prompts"] if prompt["name"] == "text")


@pytest.mark.parametrize("name", [LLAMA, "gemma3-q4_0", "qwen35-q8_0"])
def test_a_page_gets_llama_cpps_text_in_pieces(shared, site, name):
    prompt = text_prompt(GOLDEN / f"{name}.json")
    text, n_tokens = continuation(MODELS / f"{name}.gguf", prompt)
    bridge = load(shared, site, name)
    done = bridge.complete(prompt["text"], nPredict=n_tokens, tokenEventEncoding="text")
    assert done.result == text
    assert "".join(done.pieces) == text
    assert len(done.pieces) > 1
    assert done.order[-1] == "usage" and done.order.count("usage") == 1
    usage = done.usage[0]
    assert (usage["promptTokens"], usage["completionTokens"]) == (prompt["n_tokens"], n_tokens)
    assert usage["finishReason"] == "length"
    assert 0 < usage["timeToFirstTokenMs"] <= usage["durationMs"]


def test_pieces_are_bytes_and_the_prompt_is_not_evaluated_twice(bridge):
    first = bridge.complete("Hello world, this is a test", emitCurrentTextOnToken=True)
    assert bytes(byte for piece in first.pieces for byte in piece["bytes"]).decode() == first.result
    assert first.texts[-1] == first.result
    again = bridge.complete("Hello world, this is a test")
    assert again.result == first.result
    assert again.usage[0]["cachedPromptTokens"] == again.usage[0]["promptTokens"] - 1
    assert again.texts == (["" for _ in again.pieces] if bridge.mode == "worker" else first.texts)


def test_a_worker_gathers_pieces_when_asked_to(bridge):
    one_by_one = bridge.complete("Hello", nPredict=12, tokenEventEncoding="text")
    gathered = bridge.complete("Hello", nPredict=12, tokenEventEncoding="text", tokenEventFlushMs=200)
    assert gathered.result == one_by_one.result == "".join(gathered.pieces)
    assert (len(gathered.pieces) < len(one_by_one.pieces)) is (bridge.mode == "worker")


def test_a_seed_makes_sampling_repeatable(bridge):
    sampled = [bridge.complete("Hello", temp=1.5, seed=seed, nPredict=12).result for seed in (7, 7, 8)]
    assert sampled[0] == sampled[1] != sampled[2]


@pytest.mark.parametrize("by", ["abort", "cancel"])
def test_a_generation_stops_where_it_is(bridge, by):
    stopped = bridge.complete("Hello", nPredict=LONG, stop={"after": "token", "count": 3, "by": by})
    if bridge.mode == "worker" and by == "abort":
        assert stopped.error["name"] == "AbortError"
    else:
        assert stopped.result
    assert stopped.usage[0]["finishReason"] == "cancelled"
    assert 3 <= stopped.usage[0]["completionTokens"] < LONG
    assert bridge.complete("Hello").usage[0]["completionTokens"] == 6


def test_a_long_prompt_stops_before_its_first_token(shared, site):
    bridge = load(shared, site, nCtx=4000, nUbatch=32)
    prompt = "word " * 1300
    stopped = bridge.complete(prompt, stop={"after": "ms", "count": 200, "by": "cancel"})
    assert stopped.result == ""
    usage = stopped.usage[0]
    assert (usage["finishReason"], usage["completionTokens"], usage["timeToFirstTokenMs"]) == ("cancelled", 0, None)
    assert bridge.complete("Hello").result


def test_queued_calls_run_in_order_and_a_waiting_one_can_leave(bridge):
    alone = [bridge.complete(prompt, nPredict=20).result for prompt in ("One", "Two")]
    seen = bridge.page.evaluate("""async () => {
      const order = [], controller = new AbortController();
      const complete = (prompt, options = {}) => bridge.createCompletion(prompt, {
        temp: 0, penalty: 1, nPredict: 20, onUsage: () => order.push(prompt), ...options });
      const calls = [complete("One"), complete("Three", {signal: controller.signal}), complete("Two"), bridge.tokenize("x")];
      setTimeout(() => controller.abort(), 20);
      const settled = await Promise.allSettled(calls);
      const [one, left, two, ids] = settled;
      return {order, texts: [one.value, two.value], left: left.reason.name, ids: ids.value.length};
    }""")
    assert seen == {"order": ["One", "Two"], "texts": alone, "left": "AbortError", "ids": 2}


def test_refused_calls_are_one_sentence_and_the_next_call_works(shared, site):
    bridge = load(shared, site, nCtx=32)
    too_long = bridge.complete("word " * 60)
    assert too_long.message.startswith("Failed to start generation: the prompt has ")
    assert "32 tokens" in too_long.message
    assert not too_long.usage
    for options, name, text in [
        ({"minP": 2}, "RangeError", "CompletionOptions.minP must be a finite number from 0 to 1; got 2"),
        ({"presencePenalty": "1"}, "RangeError", 'CompletionOptions.presencePenalty must be a finite number; got "1"'),
        ({"thinkingBudget": 8}, "TypeError", "CompletionOptions.thinkingBudget must be an object; got 8"),
        ({"parts": [{"type": "image"}]}, "Error",
         "Multimodal input requires a loaded projector. Call loadMultimodalProjector first."),
    ]:
        refused = bridge.complete("Hello", **options)
        assert (refused.error["name"], refused.message) == (name, text)
    assert bridge.metadata("execution") == {"worker": "worker", "direct": "main-thread"}[bridge.mode]
    assert bridge.complete("Hello").result


def test_a_grammar_is_followed_and_an_invalid_one_refused(bridge):
    for seed in range(5):
        done = bridge.complete("Hello", grammar='root ::= [a-z]{3,5} ", " ("yes" | "no")', temp=1, seed=seed, nPredict=30)
        assert re.fullmatch(r"[a-z]{3,5}, (yes|no)", done.result), done.result
        assert done.usage[0]["finishReason"] == "stop"
    refused = bridge.complete("Hello", grammar="root ::= nothing")
    assert "(invalid grammar): " in refused.message
    assert bridge.metadata("execution") == {"worker": "worker", "direct": "main-thread"}[bridge.mode]
    assert bridge.complete("Hello").result


def test_the_context_limit_ends_a_generation_with_a_note(shared, site):
    bridge = load(shared, site, nCtx=32)
    done = bridge.complete("Hello", nPredict=500)
    assert done.usage[0]["finishReason"] == "length"
    assert done.usage[0]["promptTokens"] + done.usage[0]["completionTokens"] in (32, 33)
    assert "generation_stopped_context_limit" in bridge.metadata("runtime_notes")


def test_text_goes_to_tokens_and_back_and_through_templates(bridge):
    tokenizer = open_gguf(MODELS / f"{LLAMA}.gguf").tokenizer()
    text = "Hello, world \N{SLIGHTLY SMILING FACE}"
    ids = bridge.call("tokenize", text).result
    assert ids == tokenizer.encode(text)
    assert bridge.call("tokenize", text, False).result == ids[1:]
    assert bridge.call("detokenize", ids[1:]).result == text
    assert "outside the vocabulary of 512 tokens" in bridge.call("detokenize", [100000]).message
    turns = [{"role": "system", "content": "S"}, {"role": "user", "content": ["a", None, {"b": 1}]}, None]
    plain = "system: S\nuser: a,,[object Object]\nuser: \nassistant: "
    assert bridge.call("applyChatTemplate", turns, True, None).result == plain
    rendered = bridge.call("renderChatTemplate", [{"role": "user", "content": "hi"}]).result
    assert rendered == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    own = bridge.call("renderChatTemplate", [], {"template": "{{ bos_token }}{{ name }}", "name": "n"}).result
    assert own == tokenizer.token_text(tokenizer.bos_id) + "n"


def test_capabilities_are_told_truly_and_the_rest_is_refused_by_name(bridge):
    capabilities = bridge.call("getCompletionCapabilities").result
    assert (capabilities["minP"], capabilities["thinkingBudget"]) == (True, True)
    assert bridge.call("getLoraAdapterCapabilities").result["supported"] is False
    assert bridge.call("getEmbeddingCapabilities").result == {"apiVersion": 1, "text": False, "image": False, "audio": False}
    for method, *args in [("loadMultimodalProjector", "p.gguf"), ("loadLoraAdapter", "a.gguf")]:
        assert bridge.call(method, *args).message.startswith(f"{method} is not available in this build: ")
    assert bridge.complete("Hello").result


def test_stop_strings_logit_bias_templates_and_estimates(bridge, site):
    whole = bridge.complete("Hello", nPredict=12).result
    stop = whole[len(whole) // 2:][:3]
    options = {"temp": 0, "penalty": 1, "nPredict": 12, "stop": ["never there", stop]}
    stopped = bridge.call("createCompletion", "Hello", options)
    assert whole.startswith(stopped.result + stop)
    assert stopped.usage[0]["finishReason"] == "stop"
    scores = bridge.call("scoreNextToken", "Hello", {"topK": 1}).result
    banned = bridge.complete("Hello", nPredict=1, logitBias={str(scores["top"][0]["token"]): -1e9}).result
    assert banned != bridge.complete("Hello", nPredict=1).result
    rendered = bridge.call("applyChatTemplate", [{"role": "user", "content": "hi"}], False, "[{{ messages[0].content }}]")
    assert rendered.result == "[hi]"
    file = MODELS / f"{LLAMA}.gguf"
    estimate = bridge.call("estimateMemory", site.fault("estimate.gguf", Fault(file)), {"nCtx": 128}).result
    assert estimate["fileBytes"] == file.stat().st_size
    assert 0 < estimate["weightBytes"] < estimate["totalBytes"]


def test_a_wide_sampler_brings_numpy_and_still_answers(bridge):
    assert bridge.complete("Hello", temp=1, topK=0, seed=1).usage[0]["completionTokens"] == 6


def test_a_real_model_on_the_gpu_answers_as_llama_cpp_does_and_its_load_holds_little(page, messages, site):
    """Few tokens in one mode: on a software adapter they take seconds. More of real models is in test_simd.py."""
    bridge = BridgePage(page, "worker", messages).open()
    prompt = json.loads((REAL / "smollm2.json").read_text())["prompts"][0]
    model = SITE / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    bridge.load(site.url(f"/models/{model.name}")).result
    assert 0 < bridge.call("debugCounters").result["peakBytesInFlight"] <= 64 << 20, "more of the file was held at once"
    tokenizer = open_gguf(model).tokenizer()
    greedy = prompt["expected"]["greedy"][:REAL_N_PREDICT]
    done = bridge.complete(prompt["text"], nPredict=REAL_N_PREDICT)
    assert done.result == tokenizer.decode(greedy)
    assert done.usage[0]["promptTokens"] == len(prompt["tokens"])
    bridge.dispose()


def test_decoding_creates_nothing_and_crosses_to_javascript_rarely(bridge):
    bridge.complete("Hello", nPredict=N_PREDICT)
    before = bridge.call("debugCounters").result
    done = bridge.complete("Hello", nPredict=N_PREDICT)
    assert done.usage[0]["completionTokens"] == N_PREDICT
    after = bridge.call("debugCounters").result
    grown = {counter: after[counter] - before[counter] for counter in after}
    assert grown["gpuObjectsCreated"] == grown["gpuBuffers"] == 0
    assert 0 < grown["gpuSubmits"] <= N_PREDICT
    assert 0 < grown["gpuMaps"] <= N_PREDICT
    # The prompt and up to as many waits take four calls each, a token's message one. Besides there are three messages: the
    # usage, the result and the first counters' answer.
    assert grown["pythonToJsCalls"] <= 4 * (1 + grown["gpuMaps"]) + N_PREDICT + 3


def test_greedy_tokens_wait_together(bridge):
    """How many go in flight depends on how quick they are (tests/gpu/test_decode_ahead.py); some do, even here."""
    n_predict = 48
    alone = bridge.complete("Hello", nPredict=n_predict, tokenEventEncoding="text")
    before = bridge.call("debugCounters").result
    together = bridge.complete("Hello", nPredict=n_predict, tokenEventEncoding="text")
    after = bridge.call("debugCounters").result
    assert together.pieces == alone.pieces and len(together.pieces) > 1
    assert after["gpuMaps"] - before["gpuMaps"] < n_predict
    assert after["pythonToJsCalls"] - before["pythonToJsCalls"] < 4 * n_predict
