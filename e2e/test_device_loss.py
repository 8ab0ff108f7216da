"""The GPU goes away, while it answers and while nobody looks: what is said, and that the next load works."""

from __future__ import annotations

from e2e.bridge_page import MODELS, BridgePage
from e2e.fault_server import Fault

# Keeps the devices that are made, and loses the last one with its `loseAt`th submit from now, if that is set.
KEEP_DEVICES = """() => {
  globalThis.devices = [];
  globalThis.loseAt = 0;
  const request = GPUAdapter.prototype.requestDevice;
  GPUAdapter.prototype.requestDevice = async function (...args) {
    devices.push(await request.apply(this, args));
    return devices.at(-1);
  };
  const submit = GPUQueue.prototype.submit;
  GPUQueue.prototype.submit = function (commands) {
    submit.call(this, commands);
    if (commands.length && loseAt && --loseAt === 0) devices.at(-1).destroy();
  };
}"""


def test_a_lost_device_is_told_and_the_next_load_has_another(page, site, messages):
    """In a worker; the engine on the page's thread is the same, down to the messages."""
    bridge = BridgePage(page, "worker", messages).open()
    url = site.fault("m.gguf", Fault(MODELS / "llama-tied-f32.gguf"))
    bridge.load(url, nGpuLayers=0)
    engine = page.workers[0]  # where the device will live
    engine.evaluate(KEEP_DEVICES)
    assert bridge.load(url).result == 1
    expected = bridge.complete("Hello").result

    engine.evaluate("() => { loseAt = 4; }")
    broken = bridge.complete("Hello")
    assert broken.message.startswith("Generation step failed: the device was lost: "), broken.message
    assert broken.order.count("token") in (1, 2, 3), "it had begun"
    assert bridge.call("tokenize", "Hello").result, "the model is still there"
    assert bridge.load(url).result == 1
    assert bridge.complete("Hello").result == expected
    assert engine.evaluate("() => devices.length") == 2

    engine.evaluate("() => { loseAt = 1; }")  # in a load: its self-test
    assert "the device was lost" in bridge.load(url).message
    assert bridge.load(url).result == 1
    bridge.dispose()
