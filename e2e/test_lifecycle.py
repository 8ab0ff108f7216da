"""The life of a bridge in a real page: many loads without a leak, the end at any moment, and what happens when parts die."""

from __future__ import annotations

import pytest
from e2e.bridge_page import MODELS, MODES, BridgePage
from e2e.fault_server import Fault

LLAMA = MODELS / "llama-tied-f32.gguf"
DISPOSED = "Bridge has been disposed."

# Keeps every worker that the page makes, to break them later, and counts how often each was ended.
KEEP_WORKERS = """() => {
  globalThis.workers = [];
  const Worker = globalThis.Worker;
  globalThis.Worker = class extends Worker {
    ended = 0;
    constructor(...args) { super(...args); workers.push(this); }
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
    for layers in (99, 0) * 4:
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
    bridge.load(model)
    bridge.dispose()
    assert page.evaluate("() => workers.map((worker) => worker.ended)") == [1]


def test_dispose_lets_the_running_call_finish_and_refuses_the_rest(bridge, model):
    bridge.load(model)
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


@pytest.mark.parametrize("moment", ["at once", "while the engine starts", "while a model loads"])
def test_dispose_at_any_moment_settles(page, site, moment):
    for mode in MODES:
        slow = site.fault("slow.gguf", Fault(LLAMA, bytes_per_second=300_000))
        BridgePage(page, mode).open()
        outcome = page.evaluate("""async ({moment, slow}) => {
          let load = Promise.resolve("none");
          if (moment !== "at once") load = bridge.loadModelFromUrl(slow, {nCtx: 64}).catch((error) => error.message);
          if (moment === "while a model loads") await new Promise((resolve) => setTimeout(resolve, 2500));
          await bridge.dispose();
          return await load;
        }""", {"moment": moment, "slow": slow})
        assert outcome in ("none", 1), outcome


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
    bridge.load(model)
    expected = bridge.complete("Hello", nPredict=20).result
    page.evaluate("""() => {
      setTimeout(() => {
        workers[0].terminate();
        workers[0].onerror({message: "the worker was killed"});
      }, 50);
    }""")
    assert bridge.complete("Hello", nPredict=20).result == expected
    assert bridge.metadata("execution") == "main-thread"
    assert bridge.metadata("worker_fallback_reason") == "the worker was killed"
    notes = bridge.metadata("runtime_notes").split(";")
    assert notes[:2] == ["worker_fallback:the worker was killed", "worker_fallback_reload_model"]
    assert bridge.get("getContextSize()") == 128


def test_a_missing_worker_script_costs_nothing_but_the_worker(page, site, model):
    bridge = BridgePage(page, "worker").open(workerUrl=site.url("/web/not_there_worker.js"))
    assert bridge.load(model).result == 1
    assert bridge.metadata("execution") == "main-thread"
    assert bridge.complete("Hello").result


def test_a_worker_script_of_another_origin_is_started_through_a_blob(page, other_site, model):
    def share(route):
        answer = route.fetch()
        route.fulfill(response=answer, headers={**answer.headers, "access-control-allow-origin": "*"})

    page.context.route(other_site.url("/**"), share)
    bridge = BridgePage(page, "worker").open(workerUrl=other_site.url("/worker/llama_webgpu_bridge_worker.js"))
    bridge.load(model)
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
    assert bridge.load(model).result == 1
    assert bridge.complete("Hello").result


def test_a_browser_without_webgpu_gets_a_sentence(page, model):
    page.evaluate("() => Object.defineProperty(navigator, 'gpu', {value: undefined})")
    bridge = BridgePage(page, "direct").open()
    failed = bridge.load(model)
    assert failed.message.startswith("Failed to load GGUF model: this browser has no WebGPU here")
    assert failed.error["code"] == "DEVICE_FAILED"


def test_a_lost_device_is_an_error_and_the_next_load_gets_a_new_one(page, model):
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
    assert "the device was lost" in bridge.complete("Hello").message
    assert bridge.load(model).result == 1
    assert bridge.complete("Hello").result == expected
    assert page.evaluate("() => devices.length") == 2
