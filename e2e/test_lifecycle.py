"""The life of a bridge in a real page: many loads without a leak, the end at any moment, and what happens when parts die."""

from __future__ import annotations

import pytest
from e2e.bridge_page import MODELS, MODES, BridgePage
from e2e.fault_server import Fault

LLAMA = MODELS / "llama-tied-f32.gguf"
DISPOSED = "Bridge has been disposed."

# Keeps every worker that the page makes, to break them later, and counts how often each was ended. Apart from those of
# bridges there are the threads of the CPU backend, where it is on the page's own thread.
KEEP_WORKERS = """() => {
  globalThis.workers = [];
  globalThis.threads = [];
  const Worker = globalThis.Worker;
  globalThis.Worker = class extends Worker {
    ended = 0;
    constructor(url, ...args) {
      super(url, ...args);
      (String(url).includes("simd_thread") ? threads : workers).push(this);
    }
    terminate() { this.ended += 1; super.terminate(); }
  };
}"""


@pytest.fixture(params=MODES)
def bridge(request, page, messages):
    return BridgePage(page, request.param, messages).open()


@pytest.fixture
def model(site):
    return site.fault("m.gguf", Fault(LLAMA))


ALIVE = ("gpuBuffers", "gpuBufferBytes", "cpuMemoryBytes", "cpuThreads", "jsReferences")
STRAY_OBJECTS = 300
"""Python objects that caches and the garbage collector may hold more or fewer of; a model has tens of thousands."""


def assert_nothing_more(after: dict, before: dict) -> None:
    """The engine's counters of what exists are those of before: buffers, memory, threads, references between languages."""
    assert {counter: after[counter] for counter in ALIVE} == {counter: before[counter] for counter in ALIVE}
    assert after["pythonObjects"] <= before["pythonObjects"] + STRAY_OBJECTS
    assert after["pythonMemoryBytes"] == before["pythonMemoryBytes"]


def test_a_new_bridge_knows_nothing_yet(bridge):
    n_ctx = {"worker": 0, "direct": 4096}[bridge.mode]
    assert (bridge.get("getContextSize()"), bridge.get("isGpuActive()")) == (n_ctx, False)
    assert bridge.metadata("execution") == {"worker": "worker", "direct": "main-thread"}[bridge.mode]
    assert bridge.call("tokenize", "x").message == "No model loaded. Call loadModelFromUrl first."
    assert bridge.call("applyChatTemplate", [{"role": "user", "content": "hi"}]).result == "user: hi\nassistant: "


def test_twenty_loads_leave_nothing_behind(bridge, model):
    def load_and_count(layers):
        bridge.load(model, nGpuLayers=layers)
        bridge.complete("Hello", nPredict=2)
        return bridge.call("debugCounters").result

    for layers in (99, 0):
        first = [load_and_count(layers) for _ in range(2)][-1]
        for _ in range(8):
            last = load_and_count(layers)
        assert_nothing_more(last, first)


def test_many_bridges_leave_nothing_behind(page, model):
    counts = []
    for layers in (99, 0) * 3:
        bridge = BridgePage(page, "direct").open()
        bridge.load(model, nGpuLayers=layers)
        bridge.complete("Hello", nPredict=2)
        counts.append(bridge.call("debugCounters").result)
        bridge.dispose()
    assert_nothing_more(counts[-2], counts[2])  # the first ones also paid for what is kept
    assert_nothing_more(counts[-1], counts[3])


def test_a_worker_is_ended_with_its_bridge(page, model):
    page.evaluate(KEEP_WORKERS)
    bridge = BridgePage(page, "worker").open()
    bridge.load(model, nGpuLayers=0)
    bridge.dispose()
    assert page.evaluate("() => workers.map((worker) => worker.ended)") == [1]


def test_dispose_lets_the_running_call_finish_and_refuses_the_rest(bridge, model):
    bridge.load(model, nGpuLayers=0)
    seen = bridge.page.evaluate("""async () => {
      const running = bridge.createCompletion("Hello", {temp: 0, nPredict: 20});
      const waiting = bridge.tokenize("x");
      const disposal = bridge.dispose();
      const again = bridge.dispose();
      const settled = await Promise.allSettled([waiting, running]);
      await disposal;
      const late = await bridge.tokenize("y").catch((error) => error.message);
      let level;
      try { bridge.setLogLevel(1); } catch (error) { level = error.message; }
      bridge.cancel();
      return {
        waiting: settled[0].reason.message, length: settled[1].value.length, same: disposal === again, late, level,
        metadata: bridge.getModelMetadata(), n_ctx: bridge.getContextSize(),
        backend: bridge.getBackendName(), gpu: bridge.isGpuActive(),
      };
    }""")
    assert seen.pop("length") > 0
    assert seen == {
        "waiting": DISPOSED, "same": True, "late": DISPOSED, "level": DISPOSED,
        "metadata": {"llamadart.webgpu.execution": "main-thread"}, "n_ctx": 0,
        "backend": "WASM (Prototype bridge)", "gpu": False,
    }


DISPOSE_AT = """async ({moment, slow, fast, prompt}) => {
  const until = (start) => new Promise(start);
  let call = Promise.resolve("none");
  if (moment === "while the engine starts") call = bridge.tokenize("x");
  if (moment === "while a model loads") {
    await until((begun) => { call = bridge.loadModelFromUrl(slow, {nCtx: 64, progressCallback: begun}); });
  }
  if (moment === "while a prompt is evaluated" || moment === "while it answers") {
    await bridge.loadModelFromUrl(fast, {nCtx: 2048, nUbatch: 32, nGpuLayers: 0});
    await until((begun) => {
      const answers = moment === "while it answers";
      call = bridge.createCompletion(answers ? "Hello" : prompt, {temp: 0, nPredict: 20, onToken: answers ? begun : undefined});
      if (!answers) setTimeout(begun, 15);
    });
  }
  call = call.catch((error) => error.message);
  const waiting = bridge.tokenize("y").catch((error) => error.message);
  await bridge.dispose();
  return [await call, await waiting];
}"""


@pytest.mark.parametrize("moment", ["at once", "while the engine starts", "while a model loads", "while a prompt is evaluated",
                                    "while it answers"])
def test_dispose_at_any_moment_lets_the_running_call_end_and_refuses_the_waiting_one(page, site, moment):
    page.evaluate(KEEP_WORKERS)
    for mode in MODES:
        slow = site.fault("slow.gguf", Fault(LLAMA, bytes_per_second=600_000))
        case = {"moment": moment, "slow": slow, "fast": site.fault("m.gguf", Fault(LLAMA)), "prompt": "Hello there, " * 200}
        BridgePage(page, mode).open()
        ended, waiting = page.evaluate(DISPOSE_AT, case)
        if moment == "while the engine starts":
            assert ended == "No model loaded. Call loadModelFromUrl first."
        elif moment == "while a model loads":
            assert ended == 1
        else:
            assert ended == "none" if moment == "at once" else len(ended) > 3
        assert waiting == ("No model loaded. Call loadModelFromUrl first." if moment == "at once" else DISPOSED)
    assert page.evaluate("() => workers.map((worker) => worker.ended)") == [1]
    assert page.evaluate("() => threads.every((thread) => thread.ended === 1)")


def test_two_bridges_do_not_disturb_each_other(page, model):
    texts = page.evaluate("""async (model) => {
      const {LlamaWebGpuBridge} = await import("/web/llama_webgpu_bridge.js");
      const bridges = [false, true, true].map((disableWorker) => new LlamaWebGpuBridge({disableWorker}));
      await Promise.all(bridges.map((bridge) => bridge.loadModelFromUrl(model, {nCtx: 64})));
      const texts = await Promise.all(bridges.map((bridge) => bridge.createCompletion("Hello", {temp: 0, nPredict: 6})));
      await Promise.all(bridges.map((bridge) => bridge.dispose()));
      return texts;
    }""", model)
    assert texts[0] and len(set(texts)) == 1


def test_a_dead_worker_is_replaced_by_the_pages_thread_with_the_same_model(page, model):
    page.evaluate(KEEP_WORKERS)
    bridge = BridgePage(page, "worker").open()
    bridge.load(model, nGpuLayers=0)
    expected = bridge.complete("Hello", nPredict=20).result
    text = page.evaluate("""async () => {
      const kill = () => {
        workers[0].terminate();
        workers[0].onerror({message: "the worker was killed"});
      };
      let pieces = 0;
      const onToken = () => { if (++pieces === 1) kill(); };
      return bridge.createCompletion("Hello", {temp: 0, penalty: 1, nPredict: 20, onToken});
    }""")
    assert text == expected
    assert bridge.metadata("execution") == "main-thread"
    assert bridge.metadata("worker_fallback_reason") == "the worker was killed"
    notes = bridge.metadata("runtime_notes").split(";")
    assert notes[:2] == ["worker_fallback:the worker was killed", "worker_fallback_reload_model"]
    assert bridge.get("getContextSize()") == 128


def test_a_missing_worker_script_costs_nothing_but_the_worker(page, site, model):
    bridge = BridgePage(page, "worker").open(workerUrl=site.url("/web/not_there_worker.js"))
    assert bridge.load(model, nGpuLayers=0).result == 1
    assert bridge.metadata("execution") == "main-thread"
    assert bridge.complete("Hello").result


def test_a_worker_script_of_another_origin_is_started_through_a_blob(page, other_site, model):
    def share(route):
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, "access-control-allow-origin": "*"})

    page.context.route(other_site.url("/**"), share)
    bridge = BridgePage(page, "worker").open(workerUrl=other_site.url("/worker/llama_webgpu_bridge_worker.js"))
    assert bridge.load(model, nGpuLayers=0).result == 1
    assert bridge.complete("Hello").result
    assert bridge.metadata("execution") == "worker"


def test_an_engine_that_cannot_start_says_so_and_starts_later(bridge, model):
    bridge.page.context.route("**/wheels/wheel.json", lambda route: route.abort())
    bridge.dispose()
    bridge.page.reload()
    bridge.open()
    assert "wheels/wheel.json could not be read" in bridge.call("tokenize", "x").message
    bridge.page.context.unroute("**/wheels/wheel.json")
    bridge.expect_network_error("ERR_FAILED")
    assert bridge.load(model, nGpuLayers=0).result == 1
    assert bridge.complete("Hello").result


def test_a_browser_without_webgpu_gets_a_sentence(page, model):
    page.evaluate("() => Object.defineProperty(navigator, 'gpu', {value: undefined})")
    bridge = BridgePage(page, "direct").open()
    failed = bridge.load(model)
    assert failed.message.startswith("Failed to load GGUF model: this browser has no WebGPU here")
    assert failed.error["code"] == "DEVICE_FAILED"


def test_a_lost_device_costs_no_answer_and_the_next_load_gets_a_new_one(page, model):
    page.evaluate("""() => {
      globalThis.devices = [];
      const {requestDevice} = GPUAdapter.prototype;
      GPUAdapter.prototype.requestDevice = async function (...args) {
        devices.push(await requestDevice.apply(this, args));
        return devices.at(-1);
      };
    }""")
    bridge = BridgePage(page, "direct").open()
    bridge.load(model)
    expected = bridge.complete("Hello").result
    page.evaluate("() => devices[0].destroy()")
    assert bridge.complete("Hello").result, "the CPU takes over"
    assert (bridge.get("isGpuActive()"), bridge.get("getContextSize()")) == (False, 128)
    assert "generation_recovery_cpu_applied" in bridge.metadata("runtime_notes").split(";")
    assert bridge.load(model).result == 1
    assert bridge.complete("Hello").result == expected
    assert page.evaluate("() => devices.length") == 2
