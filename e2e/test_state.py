"""Saved contexts over a real engine: a new page goes on where the old one stopped."""

from __future__ import annotations

import pytest
from bridge.gguf import open_gguf
from e2e.bridge_page import MODELS, MODES, BridgePage, shared_bridge
from e2e.fault_server import Fault

LLAMA, QWEN = MODELS / "llama-tied-f32.gguf", MODELS / "qwen3-f16.gguf"
PROMPT = "Hello there, how"

SAVE = """async (prompt) => {
  const tokens = await bridge.tokenize(prompt);
  return {tokens, bytes: [...await bridge.stateSaveBytes(tokens)]};
}"""
LOAD = """async ({bytes, capacity}) => {
  const own = Uint8Array.from(bytes);
  try {
    return {...await bridge.stateLoadBytes(own, capacity), kept: own.length};
  } catch (error) {
    return {error: error.message, code: error.code};
  }
}"""


@pytest.fixture(scope="module", params=MODES)
def shared(request, browser, isolated_site):
    with shared_bridge(browser, isolated_site, request.param) as bridge:
        yield bridge


@pytest.fixture
def bridge(shared, site):
    return shared


def another_tuning() -> bytes:
    """The tiny llama with other values in one of its tensors."""
    data = bytearray(LLAMA.read_bytes())
    with open_gguf(LLAMA) as file:
        tensor = file.tensors["blk.1.attn_q.weight"]
    weights = slice(tensor.offset, tensor.offset + tensor.nbytes)
    data[weights] = data[weights][::-1]
    return bytes(data)


@pytest.mark.parametrize(("mode", "layers"), [("worker", 99), ("direct", 0)], ids=["gpu in a worker", "cpu on the page"])
def test_a_new_page_goes_on_where_the_old_one_stopped(page, site, messages, mode, layers):
    bridge = BridgePage(page, mode, messages).open()
    model = site.fault("m.gguf", Fault(LLAMA))
    bridge.load(model, nGpuLayers=layers)
    bridge.complete(PROMPT, nPredict=3)
    saved = bridge.page.evaluate(SAVE, PROMPT)
    expected = bridge.complete(PROMPT + " are you", nPredict=10)
    bridge.dispose()
    bridge.page.reload()
    bridge.open().load(model, nGpuLayers=layers)
    restored = bridge.page.evaluate(LOAD, {"bytes": saved["bytes"]})
    assert restored == {"tokens": saved["tokens"], "kept": len(saved["bytes"])}
    again = bridge.complete(PROMPT + " are you", nPredict=10)
    assert again.result == expected.result
    assert again.usage[0]["cachedPromptTokens"] == expected.usage[0]["cachedPromptTokens"] > 0


def test_a_state_moves_between_the_backends_to_the_byte(bridge, site):
    model = site.fault("m.gguf", Fault(LLAMA))
    for saver, loader in ((99, 0), (0, 99)):
        bridge.load(model, nGpuLayers=saver)
        bridge.complete(PROMPT, nPredict=3)
        saved = bridge.page.evaluate(SAVE, PROMPT)
        bridge.load(model, nGpuLayers=loader)
        assert bridge.page.evaluate(LOAD, {"bytes": saved["bytes"]})["tokens"] == saved["tokens"]
        assert bridge.page.evaluate(SAVE, PROMPT) == saved
        again = bridge.complete(PROMPT + " are you", nPredict=3)
        assert again.usage[0]["cachedPromptTokens"] == len(saved["tokens"])


def test_other_models_and_altered_bytes_are_refused_and_the_context_stays(bridge, site):
    bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=0)
    bridge.complete(PROMPT)
    bytes_ = bridge.page.evaluate(SAVE, PROMPT)["bytes"]
    expected = bridge.complete(PROMPT)
    altered = [*bytes_[:-1], bytes_[-1] ^ 1]
    for case, text in [
        ({"bytes": altered}, "State load failed: the state was altered: its checksum does not match"),
        ({"bytes": bytes_[:-5]}, "State load failed: the state has "),
        ({"bytes": []}, "State bytes are empty."),
        ({"bytes": bytes_, "capacity": 1}, "State load failed: the state records "),
    ]:
        assert bridge.page.evaluate(LOAD, case)["error"].startswith(text)
    again = bridge.complete(PROMPT)
    assert again.result == expected.result
    assert again.usage[0]["cachedPromptTokens"] == expected.usage[0]["cachedPromptTokens"] > 0
    for other in (Fault(another_tuning()), Fault(QWEN)):
        bridge.load(site.fault("other.gguf", other), nGpuLayers=0)
        assert "another model" in bridge.page.evaluate(LOAD, {"bytes": bytes_})["error"]
    assert bridge.complete("Hello").result


def test_files_live_as_long_as_their_runtime(bridge, site):
    bridge.load(site.fault("m.gguf", Fault(LLAMA)), nGpuLayers=0)
    bridge.complete(PROMPT)
    assert bridge.call("stateSaveFile", "/sessions/a", [1, 2, 3]).result is True
    assert bridge.call("stateLoadFile", "/sessions/a").result == {"tokens": [1, 2, 3]}
    assert "no state file" in bridge.call("stateLoadFile", "/sessions/b").message
    scores = bridge.call("scoreNextToken", PROMPT, {"topK": 3}).result
    assert [*scores["top"]] == sorted(scores["top"], key=lambda entry: -entry["logprob"])
    assert sum(2.718281828 ** entry["logprob"] for entry in scores["top"]) <= 1
