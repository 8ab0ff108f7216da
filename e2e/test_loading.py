"""Loading in a real page: progress, interruption, sources of every kind, and failures that leave a bridge that works."""

from __future__ import annotations

import time

import pytest
from bridge.gguf import open_gguf
from bridge.gguf_writer import write_gguf
from e2e.bridge_page import MODELS, MODES, BridgePage, shared_bridge
from e2e.fault_server import Fault
from tests.gguf.split_model import write_shards

LLAMA, QWEN = MODELS / "llama-tied-f32.gguf", MODELS / "qwen3-f16.gguf"
SLOW = 150_000
"""Bytes per second: the tiny llama takes a bit more than two seconds, in pieces of 64 KiB."""


@pytest.fixture(scope="module", params=MODES)
def shared(request, browser, isolated_site):
    with shared_bridge(browser, isolated_site, request.param) as bridge:
        yield bridge


@pytest.fixture
def bridge(shared, site):
    """A bridge that failures and other models have gone through before; ``site`` forgets its addresses afterwards."""
    return shared


def works(bridge: BridgePage) -> bool:
    return bridge.complete("Hello").result != ""


def test_progress_grows_to_the_whole_file(bridge, site):
    fault = Fault(LLAMA, bytes_per_second=SLOW)
    loading = bridge.load(site.fault("m.gguf", fault))
    assert loading.result == 1
    size = LLAMA.stat().st_size
    counts = [progress["loaded"] for progress in loading.progress]
    assert counts == sorted(set(counts)) and len(counts) > 2
    assert loading.progress[-1] == {"loaded": size, "total": size}
    assert {progress["total"] for progress in loading.progress} == {size}
    assert fault.bytes_sent == size and len(fault.seen) == 1, "one pass, one request"
    assert (bridge.get("getContextSize()"), bridge.get("isGpuActive()")) == (128, True)
    assert bridge.get("getBackendName()") == "WebGPU"
    assert bridge.metadata("model_bytes") == str(size)
    assert bridge.get("getModelMetadata()")["general.architecture"] == "llama"


@pytest.mark.parametrize("by", ["abort", "cancel"])
def test_a_stopped_download_stops_the_transfer_and_the_next_load_works(bridge, site, by):
    fault = Fault(LLAMA, bytes_per_second=SLOW / 3)
    stopped = bridge.load(site.fault("slow.gguf", fault), stop={"after": "progress", "count": 1, "by": by})
    assert stopped.error == {"name": "AbortError", "message": "Model load was cancelled.", "code": 20}
    assert bridge.call("tokenize", "x").message == "No model loaded. Call loadModelFromUrl first."
    sent = fault.bytes_sent
    time.sleep(1.5)  # one more piece may have been on its way
    assert fault.bytes_sent <= sent + 128 * 1024 < LLAMA.stat().st_size
    assert bridge.load(site.fault("m.gguf", Fault(LLAMA))).result == 1
    assert works(bridge)


def test_a_server_that_does_not_answer_can_be_left(bridge, site):
    started = time.monotonic()
    silent = site.fault("silent.gguf", Fault(LLAMA, first_byte_after=20))
    left = bridge.load(silent, stop={"after": "ms", "count": 300, "by": "abort"})
    assert left.error["name"] == "AbortError"
    assert time.monotonic() - started < 10
    assert bridge.load(site.fault("m.gguf", Fault(LLAMA))).result == 1


def test_failed_loads_say_why_and_leave_a_bridge_that_works(bridge, site, tmp_path):
    strange = tmp_path / "strange.gguf"
    write_gguf(strange, {"general.architecture": "perceptron", "perceptron.block_count": 1})
    content = LLAMA.read_bytes()
    broken = [
        (Fault(LLAMA, status=404), "Failed to fetch model shard: 404 Not Found"),
        (Fault(b"<!doctype html><title>Sign in</title>" + b" " * 4096), "Failed to load GGUF model: "),
        (Fault(content[: len(content) // 2]), "Failed to load GGUF model: "),
        (Fault(content[:1000]), "Failed to load GGUF model: "),
        (Fault(b""), "Failed to load GGUF model: "),
        (Fault(strange), "perceptron"),
    ]
    for i, (fault, text) in enumerate(broken):
        failed = bridge.load(site.fault(f"broken-{i}.gguf", fault))
        assert text in failed.message, failed.message
        assert "localhost" not in failed.message and "broken-" not in failed.message
        assert bridge.get("getContextSize()") == 0
        assert bridge.metadata("model_bytes") == "0"
    bridge.expect_network_error("404")
    assert bridge.load(site.fault("m.gguf", Fault(LLAMA))).result == 1
    assert works(bridge)


def test_bad_arguments_are_one_sentence_and_keep_the_loaded_model(bridge, site):
    url = site.fault("m.gguf", Fault(LLAMA))
    bridge.load(url)
    for source, options, text in [
        ("", {}, "Model URL is empty."),
        ([], {}, "Model URL is empty."),
        (url, {"nCtx": 1e9}, "Failed to load GGUF model: n_ctx is 1000000000; it must be an integer from 1 to 1048576"),
        (url, {"cacheTypeK": 8, "flashAttention": 0}, "Failed to load GGUF model: Non-F16 KV cache requires flashAttention"),
    ]:
        assert bridge.load(source, **options).message == text
        assert bridge.get("getContextSize()") == 128
    assert works(bridge)


def test_another_model_takes_the_place_of_the_first(bridge, site):
    bridge.load(site.fault("llama.gguf", Fault(LLAMA)))
    first = bridge.complete("Hello").result
    bridge.load(site.fault("qwen.gguf", Fault(QWEN)), nCtx=64)
    assert bridge.get("getModelMetadata()")["general.architecture"] == "qwen3"
    assert bridge.get("getContextSize()") == 64
    assert bridge.complete("Hello").result != first
    bridge.load(site.fault("llama.gguf", Fault(LLAMA)))
    assert bridge.complete("Hello").result == first


def test_servers_without_ranges_broken_transfers_and_relative_addresses(bridge, site):
    whole = Fault(LLAMA, ranges=False, etag=None)
    assert bridge.load(site.fault("whole.gguf", whole)).result == 1
    expected = bridge.complete("Hello").result
    dropped = Fault(LLAMA, drop_after=150_000, bytes_per_second=2_000_000)
    assert bridge.load(site.fault("dropped.gguf", dropped)).result == 1
    assert [request.range for request in dropped.seen][0] is None
    bridge.expect_network_error("ERR_CONTENT_LENGTH_MISMATCH")
    assert len(dropped.seen) == 2 and dropped.seen[1].range.startswith("bytes=") and dropped.seen[1].if_range
    assert bridge.complete("Hello").result == expected
    site.fault("near.gguf", Fault(LLAMA))
    assert bridge.load("../_fault/near.gguf").result == 1
    assert bridge.complete("Hello").result == expected


def test_a_file_that_changes_during_the_load_is_fetched_anew_and_never_mixed(bridge, site):
    changed = Fault(LLAMA, drop_after=150_000, bytes_per_second=2_000_000, changed_body=QWEN)
    assert bridge.load(site.fault("changed.gguf", changed)).result == 1
    assert "model_file_changed_restarted" in bridge.metadata("runtime_notes")
    assert bridge.get("getModelMetadata()")["general.architecture"] == "qwen3"
    assert works(bridge)
    bridge.expect_network_error("ERR_CONTENT_LENGTH_MISMATCH")


def test_a_local_file_loads_through_a_blob_address(bridge):
    bridge.page.evaluate("document.body.innerHTML = '<input type=file>'")
    bridge.page.set_input_files("input", LLAMA)
    address = bridge.page.evaluate("URL.createObjectURL(document.querySelector('input').files[0])")
    loading = bridge.load(address)
    assert loading.result == 1
    assert loading.progress[-1]["loaded"] == LLAMA.stat().st_size
    assert works(bridge)


def test_asking_for_the_cpu_runs_there_and_says_so(bridge, site):
    bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=0)
    assert (bridge.get("isGpuActive()"), bridge.get("getBackendName()")) == (False, "WASM SIMD")
    assert works(bridge)


def test_a_split_model_loads_by_any_of_its_files_or_by_a_list(bridge, site, tmp_path):
    bridge.load(site.fault("whole.gguf", Fault(LLAMA)))
    expected = bridge.complete("Hello").result
    with open_gguf(LLAMA) as file:
        n_tensors = len(file.tensors)
    shards = write_shards(LLAMA, tmp_path, [n_tensors - 4, 1, 3])
    urls = [site.fault(path.name, Fault(path)) for path in shards]
    loading = bridge.load(urls[1])
    size = sum(path.stat().st_size for path in shards)
    assert (loading.result, loading.progress[-1]) == (1, {"loaded": size, "total": size, "shard": 3, "shards": 3})
    assert bridge.metadata("model_bytes") == str(size)
    assert "model_split_detected:3" in bridge.metadata("runtime_notes")
    assert bridge.complete("Hello").result == expected
    assert bridge.load(urls).result == 1
    assert bridge.complete("Hello").result == expected
    missing = [*urls[:2], site.url("/_fault/none.gguf")]
    assert bridge.load(missing).message == "Failed to fetch model shard: shard 3 of 3: 404 Not Found"
    bridge.expect_network_error("404")
