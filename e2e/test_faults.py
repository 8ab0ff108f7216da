"""The real engine under attack: workers killed at any moment, storms of calls and cancels, two loads at once."""

from __future__ import annotations

import pytest
from e2e.bridge_page import MODELS, MODES, BridgePage
from e2e.fault_server import Fault
from e2e.test_lifecycle import KEEP_WORKERS, assert_nothing_more

LLAMA, QWEN = MODELS / "llama-tied-f32.gguf", MODELS / "qwen3-f16.gguf"
LONG_PROMPT = "Hello there, " * 25

KILL_AT = """async ({moment, slow, fast, prompt, layers}) => {
  const {LlamaWebGpuBridge} = await import("/web/llama_webgpu_bridge.js");
  const kill = () => {
    const [worker] = workers;
    worker.terminate();
    worker.onerror({message: "the worker was killed"});
  };
  const options = {nCtx: 3000, nUbatch: 32, nGpuLayers: layers, useCache: false};
  const short = {temp: 0, penalty: 1, nPredict: 6};
  globalThis.bridge = new LlamaWebGpuBridge({});
  if (moment === "boot") setTimeout(kill, 200);
  if (moment === "download") {
    let killed = false;
    options.progressCallback = () => { if (!killed) kill(); killed = true; };
    await bridge.loadModelFromUrl(slow, options);
    delete options.progressCallback;
  } else {
    await bridge.loadModelFromUrl(fast, options);
  }
  let pieces = 0;
  const onToken = () => { pieces += 1; if (moment === "decode" && pieces === 2) kill(); };
  if (moment === "prefill") setTimeout(kill, 60);
  const text = await bridge.createCompletion(moment === "prefill" ? prompt : "Hello", {...short, onToken});
  const metadata = bridge.getModelMetadata();
  return {text, execution: metadata["llamadart.webgpu.execution"], again: await bridge.createCompletion("Hello", short)};
}"""

# A generator of Park and Miller: the same storm every time.
STORM = """async ({seed, model, layers}) => {
  let state = seed;
  const random = (n) => (state = (state * 48271) % 2147483647) % n;
  const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
  const controllers = [];
  const calls = [];
  const start = (call) => calls.push(call.then(() => "done", (error) => error.name));
  const signal = () => { controllers.push(new AbortController()); return controllers.at(-1).signal; };
  const actions = [
    () => start(bridge.createCompletion("Hello", {temp: 0, nPredict: 1 + random(20), signal: signal()})),
    () => start(bridge.createCompletion("Hello there", {seed: 1, nPredict: 1 + random(9)})),
    () => start(bridge.tokenize("one two three")),
    () => start(bridge.scoreNextToken("Hello", {topK: 2})),
    () => start(bridge.stateSaveBytes([1])),
    () => start(bridge.loadModelFromUrl(model, {nCtx: 128, nGpuLayers: layers, signal: signal()})),
    () => start(bridge.prefetchModelToCache(model, {force: random(2) === 0, signal: signal()})),
    () => bridge.cancel(),
    () => controllers.length && controllers[random(controllers.length)].abort(),
    () => controllers.length && controllers.at(-1).abort(),
  ];
  for (let i = 0; i < 100; i++) {
    actions[random(actions.length)]();
    if (random(3) === 0) await pause(random(25));
  }
  const outcomes = await Promise.all(calls);
  return outcomes.reduce((counts, outcome) => ({...counts, [outcome]: (counts[outcome] ?? 0) + 1}), {});
}"""


@pytest.fixture
def model(site):
    return site.fault("m.gguf", Fault(LLAMA))


@pytest.mark.parametrize(("moment", "layers"), [("boot", 0), ("download", 0), ("prefill", 99), ("decode", 0)])
def test_a_worker_killed_at_any_moment_costs_no_answer(page, site, model, moment, layers):
    page.evaluate(KEEP_WORKERS)
    slow = site.fault("slow.gguf", Fault(LLAMA, bytes_per_second=400_000))
    case = {"moment": moment, "slow": slow, "fast": model, "prompt": LONG_PROMPT, "layers": layers}
    seen = page.evaluate(KILL_AT, case)
    assert seen["execution"] == "main-thread"
    assert page.evaluate("() => workers.map((worker) => worker.ended > 0)") == [True]
    reference = BridgePage(page, "direct").open()
    reference.load(model, nCtx=3000, nUbatch=32, nGpuLayers=layers)
    assert seen["text"] == reference.complete(LONG_PROMPT if moment == "prefill" else "Hello").result
    assert seen["again"] == reference.complete("Hello").result


@pytest.mark.parametrize(("mode", "layers"), [("worker", 99), ("direct", 0)])
def test_a_storm_of_calls_and_cancels_leaves_the_right_answer_and_nothing_else(page, model, messages, mode, layers):
    page.evaluate(KEEP_WORKERS)
    bridge = BridgePage(page, mode, messages).open()
    bridge.load(model, nGpuLayers=layers)
    expected = bridge.complete("Hello").result
    counters = []
    for round in range(3):
        outcomes = page.evaluate(STORM, {"seed": 7 + round, "model": model, "layers": layers})
        assert set(outcomes) <= {"done", "AbortError", "Error"} and outcomes["done"] > 5, outcomes
        assert bridge.load(model, nGpuLayers=layers).result == 1
        assert bridge.complete("Hello").result == expected
        counters.append(bridge.call("debugCounters").result)
    assert_nothing_more(counters[-1], counters[1])
    assert bridge.metadata("execution") == {"worker": "worker", "direct": "main-thread"}[mode]
    bridge.dispose()
    assert page.evaluate("() => [...workers, ...threads].every((worker) => worker.ended === 1)")


@pytest.mark.parametrize("mode", MODES)
def test_two_loads_at_once_run_one_after_the_other_and_the_last_one_stays(page, site, model, messages, mode):
    bridge = BridgePage(page, mode, messages).open()
    other = site.fault("q.gguf", Fault(QWEN))
    results = page.evaluate("""async ([first, second]) => {
      const options = {nCtx: 64, nGpuLayers: 0};
      return Promise.all([bridge.loadModelFromUrl(first, options), bridge.loadModelFromUrl(second, options)]);
    }""", [model, other])
    assert results == [1, 1]
    assert bridge.get("getModelMetadata()")["general.architecture"] == "qwen3"
    assert bridge.complete("Hello").result
