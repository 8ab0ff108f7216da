"""The CPU backend in a real page: threads and none, the choice of a backend, cancelling, memory, and what may be
missing."""

from __future__ import annotations

import json
import re

import pytest
from e2e.bridge_page import MODELS, MODES, BridgePage, shared_bridge
from e2e.fault_server import Fault
from tests.golden import DATA

LLAMA, QWEN, GEMMA = (MODELS / f"{name}.gguf" for name in ("llama-tied-f32", "qwen3-f16", "gemma3-q4_0"))
SMOLLM2 = "/models/SmolLM2-135M-Instruct.Q4_1.gguf"
SURE_TOKENS = 4
"""Of a greedy continuation: so many tokens neither llama.cpp's rounding nor ours changes in any of the prompts."""


@pytest.fixture(scope="module", params=MODES)
def shared(request, browser, isolated_site):
    with shared_bridge(browser, isolated_site, request.param) as bridge:
        yield bridge


@pytest.fixture
def bridge(shared, site):
    return shared


def on_cpu(bridge: BridgePage, url: str, **options) -> None:
    bridge.load(url, **{"nGpuLayers": 0, **options}).result
    assert (bridge.get("getBackendName()"), bridge.get("isGpuActive()")) == ("WASM SIMD", False)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_real_model_continues_as_in_llama_cpp(bridge, site, threads):
    on_cpu(bridge, site.url(SMOLLM2), nThreads=threads, nCtx=256)
    assert bridge.metadata("n_threads") == bridge.metadata("n_threads_batch") == str(threads)
    case = json.loads((DATA / "real" / "smollm2.json").read_text())
    for prompt in (prompt for prompt in case["prompts"] if prompt["text"]):
        expected = bridge.call("detokenize", prompt["expected"]["greedy"][:SURE_TOKENS], True).result
        found = bridge.complete(prompt["text"], nPredict=SURE_TOKENS)
        assert (found.result, found.usage[0]["promptTokens"]) == (expected, len(prompt["tokens"]))


def test_a_quantised_cache_changes_little(bridge, site):
    on_cpu(bridge, site.url(SMOLLM2), nCtx=256, cacheTypeK=8, cacheTypeV=2)
    keys = ("cache_type_k", "cache_type_v", "flash_attention")
    assert [bridge.metadata(key) for key in keys] == ["8", "2", "1"]
    assert "flash_attention:auto_enabled_for_kv_cache" in bridge.metadata("runtime_notes").split(";")
    assert " Paris" in bridge.complete("The capital of France is", nPredict=4).result
    refused = bridge.load(site.url(SMOLLM2), nGpuLayers=0, cacheTypeK=8, flashAttention=0)
    assert "Non-F16 KV cache requires flashAttention" in refused.message


def test_threads_and_a_kept_prefix_change_nothing(bridge, site):
    prompt = "The quick brown fox jumps over the lazy dog, and then"
    texts = []
    for threads in (1, 2):
        on_cpu(bridge, site.fault(f"m{threads}.gguf", Fault(GEMMA)), nThreads=threads, nThreadsBatch=3 - threads)
        for _ in range(2):  # the second time all of the prompt but its last token is in the cache
            texts.append(bridge.complete(prompt, nPredict=24).result)
    assert len(set(texts)) == 1 and texts[0]


@pytest.mark.parametrize("layers, backend, note", [
    (None, "WASM SIMD", "software_webgpu_adapter:using_cpu"),
    (-1, "WASM SIMD", "software_webgpu_adapter:using_cpu"),
    (0, "WASM SIMD", None),
    (7, "WebGPU", "gpu_layers_whole_model:7"),
])
def test_the_backend_that_is_chosen(bridge, site, layers, backend, note):
    bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=layers).result
    assert bridge.get("getBackendName()") == backend
    notes = bridge.metadata("runtime_notes").split(";")
    assert note in notes if note else not any("using_" in found for found in notes)
    assert bridge.complete("Hello").result


@pytest.mark.parametrize("threads", [0, -3, float("nan"), None, "many"])
def test_threads_that_are_no_number_leave_the_choice_to_the_engine(bridge, site, threads):
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)), nThreads=threads)
    pool = bridge.metadata("thread_pool_size")
    assert bridge.metadata("n_threads") == pool == str(min(8, bridge.page.evaluate("navigator.hardwareConcurrency")))
    assert "capped" not in bridge.metadata("runtime_notes")


@pytest.mark.parametrize("threads", [999, 1e300, float("inf")])
def test_more_threads_than_cores_are_capped_with_a_note(bridge, site, threads):
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)), nThreads=threads)
    pool = bridge.metadata("thread_pool_size")
    assert bridge.metadata("n_threads") == pool
    assert f"threads_capped_pool:{pool}" in bridge.metadata("runtime_notes")
    assert bridge.complete("Hello").result


def test_a_fraction_of_a_thread_is_cut_off(bridge, site):
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)), nThreads=1.9, nThreadsBatch=0.5)
    assert bridge.metadata("n_threads") == bridge.metadata("n_threads_batch") == "1"


def test_a_configuration_that_makes_no_sense_leaves_the_choice_to_the_engine(page, messages, site):
    wrong = {"threads": -1, "threadsBatch": float("nan"), "threadPoolSize": 0, "preferMemory64": "yes"}
    bridge = BridgePage(page, "direct", messages).open(**wrong)
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    cores = str(min(8, page.evaluate("navigator.hardwareConcurrency")))
    assert [bridge.metadata(key) for key in ("n_threads", "n_threads_batch", "thread_pool_size")] == [cores] * 3
    assert bridge.metadata("core_variant") == "wasm32"
    bridge.dispose()


@pytest.mark.parametrize("mode", MODES)
def test_the_pool_of_the_configuration(page, messages, site, mode):
    bridge = BridgePage(page, mode, messages).open(threads=2, threadPoolSize=1)
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    assert (bridge.metadata("thread_pool_size"), bridge.metadata("n_threads")) == ("1", "1")
    assert "threads_capped_pool:1" in bridge.metadata("runtime_notes")
    bridge.dispose()


def test_64_bit_addresses_for_all_models(page, messages, site):
    bridge = BridgePage(page, "worker", messages).open(preferMemory64=True)
    on_cpu(bridge, site.fault("m.gguf", Fault(GEMMA)))
    assert bridge.metadata("core_variant") == "wasm64"
    assert "core_mem64_active" in bridge.metadata("runtime_notes").split(";")
    assert bridge.complete("Hello", nPredict=8).result
    bridge.dispose()


@pytest.mark.parametrize("mode", MODES)
def test_a_page_that_is_not_isolated_computes_with_one_thread(page, messages, other_site, mode):
    page.goto(other_site.url("/_test/blank.html"))
    bridge = BridgePage(page, mode, messages).open(preferMemory64=True)
    on_cpu(bridge, other_site.fault("m.gguf", Fault(GEMMA)), nThreads=2)
    assert (bridge.metadata("n_threads"), bridge.metadata("core_variant")) == ("1", "wasm32")
    notes = bridge.metadata("runtime_notes").split(";")
    assert {"threads_capped_no_coi", "core_mem64_unavailable", "core_wasm32_active"} <= set(notes)
    assert bridge.complete("Hello").result
    bridge.dispose()


@pytest.mark.parametrize("by", ["abort", "cancel"])
def test_decoding_stops_within_a_token(bridge, site, by):
    on_cpu(bridge, site.url(SMOLLM2), nCtx=512)
    before = bridge.call("debugCounters").result["cpuRuns"]
    stopped = bridge.complete("Once upon a time", nPredict=400, stop={"after": "token", "count": 3, "by": by})
    runs = bridge.call("debugCounters").result["cpuRuns"] - before
    assert runs <= 10  # three tokens, and those that pass while the message is on its way
    if stopped.error is None:
        assert stopped.usage[0]["finishReason"] == "cancelled"
    assert bridge.complete("Hello", nPredict=2).usage[0]["finishReason"] == "length"


def test_a_long_prompt_stops_within_a_micro_batch(bridge, site):
    on_cpu(bridge, site.url(SMOLLM2), nCtx=1024, nUbatch=32)
    before = bridge.call("debugCounters").result["cpuRuns"]
    stopped = bridge.complete("word " * 900, nPredict=4, stop={"after": "ms", "count": 300, "by": "cancel"})
    runs = bridge.call("debugCounters").result["cpuRuns"] - before
    if stopped.error is None:
        assert stopped.usage[0]["completionTokens"] == 0
    assert runs < 900 / 32
    assert bridge.complete("Hello", nPredict=2).result


def test_the_page_stays_responsive_while_a_worker_computes(page, messages, site):
    bridge = BridgePage(page, "worker", messages).open()
    on_cpu(bridge, site.url(SMOLLM2), nCtx=512)
    longest = page.evaluate("""async () => {
      let last = performance.now();
      let longest = 0;
      const timer = setInterval(() => {
        const now = performance.now();
        longest = Math.max(longest, now - last);
        last = now;
      }, 5);
      await bridge.createCompletion("word ".repeat(200), {temp: 0, nPredict: 8});
      clearInterval(timer);
      return longest;
    }""")
    assert longest < 500  # a micro-batch of this model computes for about as long
    bridge.dispose()


def test_a_model_that_does_not_fit_is_refused_before_it_is_fetched(bridge, site):
    file = site.folder / SMOLLM2.lstrip("/")
    big = Fault(file, bytes_per_second=10e6)  # what is on its way while the header is looked at is not much then
    refused = bridge.load(site.fault("big.gguf", big), nGpuLayers=0, nCtx=1 << 20)
    assert re.fullmatch(r"Failed to load GGUF model: the model needs \d+ MiB of memory \(\d+ MiB for weights, "
                        r"\d+ MiB for a context of 1048576 tokens, \d+ MiB to compute in\); "
                        r"the CPU backend can have at most 16384 MiB here", refused.message)
    assert big.bytes_sent < file.stat().st_size / 3
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    assert bridge.complete("Hello").result


GROW_LITTLE = """() => {
  const {grow} = WebAssembly.Memory.prototype;
  WebAssembly.Memory.prototype.grow = function (pages) {
    if (pages > 1024) throw new RangeError("no");
    return grow.call(this, pages);
  };
}"""


def test_memory_that_the_browser_refuses_ends_the_load_and_a_smaller_model_loads(page, messages, site):
    bridge = BridgePage(page, "direct", messages).open()
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    page.evaluate(GROW_LITTLE)
    refused = bridge.load(site.fault("g.gguf", Fault(LLAMA)), nGpuLayers=0, nCtx=1 << 20)
    assert re.fullmatch(r"Failed to load GGUF model: the browser refused to enlarge the memory from \d+ MiB to \d+ MiB",
                        refused.message)
    counters = bridge.call("debugCounters").result
    assert (counters["cpuMemoryBytes"], counters["cpuThreads"]) == (0, 0)
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    assert bridge.complete("Hello").result
    bridge.dispose()


NO_SIMD = """() => {
  WebAssembly.compile = async () => { throw new WebAssembly.CompileError("Wasm SIMD unsupported"); };
}"""


def test_a_browser_without_simd_is_told_so_or_computes_on_the_gpu(page, messages, site):
    bridge = BridgePage(page, "direct", messages).open()
    bridge.call("tokenize", "start the engine, which needs the function that is taken away next")
    page.evaluate(NO_SIMD)
    failed = bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=0)
    assert failed.message == ("Failed to load GGUF model: this browser cannot run the CPU kernels, "
                              "which need WebAssembly SIMD: Wasm SIMD unsupported")
    bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=None).result
    assert bridge.get("getBackendName()") == "WebGPU"
    assert "no_cpu_backend:using_software_webgpu" in bridge.metadata("runtime_notes")
    bridge.dispose()


def test_models_are_switched_in_the_same_memory(bridge, site):
    def count(model):
        on_cpu(bridge, site.fault(model.name, Fault(model)))
        bridge.complete("Hello", nPredict=2)
        counters = bridge.call("debugCounters").result
        return {key: counters[key] for key in ("cpuMemoryBytes", "cpuThreads", "jsReferences", "gpuBuffers")}

    for model in (LLAMA, GEMMA, QWEN):
        count(model)
    first = [count(model) for model in (LLAMA, GEMMA, QWEN)]
    assert [count(model) for model in (LLAMA, GEMMA, QWEN)] == first
    assert first[0]["cpuThreads"] == int(bridge.metadata("thread_pool_size")) - (bridge.mode == "worker")


def test_a_model_on_the_gpu_gives_the_memory_back(bridge, site):
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=9).result
    counters = bridge.call("debugCounters").result
    assert (counters["cpuMemoryBytes"], counters["cpuThreads"]) == (0, 0)


def test_a_failed_load_leaves_the_threads_and_the_next_one_works(bridge, site):
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    threads = bridge.call("debugCounters").result["cpuThreads"]
    short = Fault(LLAMA, drop_after=LLAMA.stat().st_size // 2, drops=99)
    failed = bridge.load(site.fault("short.gguf", short), nGpuLayers=0, streamResumeRetries=0)
    assert failed.error
    assert bridge.call("debugCounters").result["cpuThreads"] == threads
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    assert bridge.complete("Hello").result
    bridge.messages.errors.clear()  # the browser complains of the short body


KEEP_WORKERS = """() => {
  globalThis.ended = [];
  const Worker = globalThis.Worker;
  globalThis.Worker = class extends Worker {
    terminate() { ended.push(1); super.terminate(); }
  };
}"""


def test_disposing_of_the_bridge_ends_its_threads(page, messages, site):
    page.evaluate(KEEP_WORKERS)
    bridge = BridgePage(page, "direct", messages).open()
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)), nThreads=2)
    threads = bridge.call("debugCounters").result["cpuThreads"]
    assert threads == int(bridge.metadata("thread_pool_size"))
    bridge.dispose()
    assert page.evaluate("ended.length") == threads


def test_without_the_kernels_beside_it_the_engine_says_so(page, messages, site):
    page.route("**/simd/*.wasm", lambda route: route.fulfill(status=404))
    bridge = BridgePage(page, "direct", messages).open()
    failed = bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=0)
    assert failed.message == "Failed to load GGUF model: the CPU kernels could not be fetched (status 404)"
    messages.expect("404")
    page.unroute("**/simd/*.wasm")
    on_cpu(bridge, site.fault("m.gguf", Fault(LLAMA)))
    bridge.dispose()
