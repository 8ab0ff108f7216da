"""The model cache in a real browser's Cache Storage: stored on the way, used afterwards, and never trusted too far."""

from __future__ import annotations

import pytest
from e2e.bridge_page import MODELS, MODES, BridgePage, shared_bridge
from e2e.fault_server import Fault

LLAMA = MODELS / "llama-tied-f32.gguf"
CACHE = "llamadart-webgpu-model-cache-v1"

PUT = """async ({url, body, headers}) => {
  const cache = await caches.open("%s");
  const bytes = typeof body === "string" ? body : new Uint8Array(body);
  await cache.put(url, new Response(bytes, {headers}));
}""" % CACHE
KEPT = """async () => {
  const cache = await caches.open("%s");
  const kept = [];
  for (const request of await cache.keys()) {
    kept.push([request.url, (await (await cache.match(request)).arrayBuffer()).byteLength]);
  }
  return kept;
}""" % CACHE
CLEAR = "async () => { for (const name of await caches.keys()) await caches.delete(name); }"

# What a broken disk does: one bit of an entry is another one, and all else is as it was.
DAMAGE = """async ({url, at}) => {
  const cache = await caches.open("%s");
  const entry = await cache.match(url);
  const bytes = new Uint8Array(await entry.arrayBuffer());
  bytes[at < 0 ? bytes.length + at : at] ^= 8;
  await cache.put(url, new Response(bytes, {headers: entry.headers}));
}""" % CACHE


@pytest.fixture(scope="module", params=MODES)
def shared(request, browser, isolated_site):
    with shared_bridge(browser, isolated_site, request.param) as bridge:
        yield bridge


@pytest.fixture
def bridge(shared, site):
    """A bridge on a page whose caches are empty."""
    shared.page.evaluate(CLEAR)
    return shared


def load(bridge, url, **options):
    return bridge.load(url, **({"useCache": True, "nGpuLayers": 0} | options))


def notes(bridge) -> list[str]:
    return bridge.metadata("runtime_notes").split(";")


def test_the_first_load_stores_and_the_second_needs_no_server(bridge, site):
    fault = Fault(LLAMA)
    url = site.fault("m.gguf", fault)
    assert load(bridge, url).result == 1
    assert (bridge.metadata("model_source"), bridge.metadata("model_cache_state")) == ("network", "stored")
    assert bridge.metadata("model_cache_name") == CACHE
    expected = bridge.complete("Hello").result
    assert bridge.page.evaluate(KEPT) == [[url, LLAMA.stat().st_size]]
    again = load(bridge, url)
    assert again.progress[-1] == {"loaded": LLAMA.stat().st_size, "total": LLAMA.stat().st_size}
    assert (bridge.metadata("model_source"), bridge.metadata("model_cache_state")) == ("cache", "hit")
    assert "model_cache_hit" in notes(bridge)
    assert bridge.complete("Hello").result == expected
    assert len(fault.seen) == 1
    [entry] = bridge.call("listCache").result
    assert (entry["url"], entry["bytes"]) == (url, LLAMA.stat().st_size)
    assert load(bridge, url, force=True).result == 1
    assert len(fault.seen) == 2
    assert bridge.call("evictModelFromCache", url).result is True
    assert bridge.call("evictModelFromCache", url).result is False
    assert bridge.page.evaluate(KEPT) == []


def test_a_poisoned_entry_is_dropped_and_fetched_once_more(bridge, site):
    content = LLAMA.read_bytes()
    poisons = {
        "page": ("<!doctype html><title>Sign in</title>", "text/html"),
        "zeros": (list(bytes(5000)), "application/octet-stream"),
        "cut": (list(content[: len(content) // 2]), "application/octet-stream"),
        "garbage": (list(content[:100] + b"\xff" * 5000), "application/octet-stream"),
    }
    for name, (body, kind) in poisons.items():
        fault = Fault(LLAMA)
        url = site.fault(f"{name}.gguf", fault)
        bridge.page.evaluate(PUT, {"url": url, "body": body, "headers": {"content-type": kind}})
        assert load(bridge, url).result == 1, name
        assert "model_cache_entry_dropped" in notes(bridge), name
        assert (bridge.metadata("model_source"), bridge.metadata("model_cache_state")) == ("network", "stored"), name
        assert [url, len(content)] in bridge.page.evaluate(KEPT), name
        assert len(fault.seen) == 1, name
        assert bridge.complete("Hello").result, name


def test_a_bit_that_changed_in_the_weights_is_noticed_and_the_file_fetched_once_more(bridge, site):
    fault = Fault(LLAMA)
    url = site.fault("m.gguf", fault)
    load(bridge, url)
    expected = bridge.complete("Hello").result
    for n_requests, at in enumerate((LLAMA.stat().st_size // 2, -1), 2):
        bridge.page.evaluate(DAMAGE, {"url": url, "at": at})
        assert load(bridge, url).result == 1
        assert "model_cache_entry_dropped" in notes(bridge)
        assert (bridge.metadata("model_source"), len(fault.seen)) == ("network", n_requests)
        assert bridge.complete("Hello").result == expected
    assert load(bridge, url).result == 1
    assert (bridge.metadata("model_source"), len(fault.seen)) == ("cache", 3)


def test_stopped_and_broken_loads_keep_nothing(bridge, site):
    slow = site.fault("slow.gguf", Fault(LLAMA, bytes_per_second=300_000))
    stopped = load(bridge, slow, stop={"after": "progress", "count": 2, "by": "abort"})
    assert stopped.error["name"] == "AbortError"
    broken = site.fault("broken.gguf", Fault(LLAMA.read_bytes()[:100_000]))
    assert load(bridge, broken).message.startswith("Failed to load GGUF model: ")
    assert bridge.page.evaluate(KEPT) == []
    dropped = Fault(LLAMA, drop_after=LLAMA.stat().st_size // 2)
    url = site.fault("dropped.gguf", dropped)
    assert load(bridge, url).result == 1
    bridge.expect_network_error("ERR_CONTENT_LENGTH_MISMATCH")
    assert "model_stream_resume_retry:1" in notes(bridge)
    assert bridge.page.evaluate(KEPT) == [[url, LLAMA.stat().st_size]]


def test_a_full_disk_costs_the_entry_and_not_the_load(page, site, messages):
    bridge = BridgePage(page, "worker", messages).open()
    devtools = page.context.new_cdp_session(page)
    devtools.send("Storage.overrideQuotaForOrigin", {"origin": site.address, "quotaSize": 10_000})
    assert load(bridge, site.fault("m.gguf", Fault(LLAMA))).result == 1
    assert bridge.metadata("model_cache_state") == "store_failed"
    assert "model_cache_quota_exceeded" in notes(bridge)
    assert bridge.complete("Hello").result
    refused = bridge.call("prefetchModelToCache", site.fault("n.gguf", Fault(LLAMA)), {})
    assert refused.message == "Failed to store prefetched model in browser cache."
    assert page.evaluate(KEPT) == []


def test_without_cache_storage_models_load(page, site, messages):
    page.evaluate("() => Object.defineProperty(globalThis, 'caches', {value: undefined})")
    bridge = BridgePage(page, "direct", messages).open()
    assert load(bridge, site.fault("m.gguf", Fault(LLAMA))).result == 1
    assert (bridge.metadata("model_source"), bridge.metadata("model_cache_state")) == ("network", "unavailable")


def test_a_prefetched_model_loads_without_the_server(bridge, site):
    fault = Fault(LLAMA)
    url = site.fault("m.gguf", fault)
    assert bridge.call("prefetchModelToCache", url, {}).result == 1
    assert len(fault.seen) == 1
    assert load(bridge, url).result == 1
    assert (bridge.metadata("model_source"), len(fault.seen)) == ("cache", 1)
    missing = bridge.call("prefetchModelToCache", site.url("/_fault/none.gguf"), {})
    assert missing.message == "Failed to prefetch model shard: 404 Not Found"
    bridge.messages.expect("404")
