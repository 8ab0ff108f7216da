"""The estimate against what a load of the same model really allocates."""

import asyncio
from pathlib import Path

import pytest

from bridge.errors import BridgeError
from bridge.gguf import BytesSource, open_gguf
from bridge.runtime import LoadOptions, load_model
from bridge.runtime.estimate import estimate_memory
from bridge.runtime.sources import AsyncSource

MODELS = Path(__file__).parent.parent / "data" / "models"


def estimate(name, **options):
    return asyncio.run(estimate_memory(AsyncSource(open_gguf(MODELS / name).source), LoadOptions(**options)))


@pytest.mark.parametrize("name", ["llama-tied-f32.gguf", "qwen3-f16.gguf", "quant-llama-Q4_K_M.gguf", "lfm2-f32.gguf"])
def test_weights_cache_and_scratch_are_what_the_device_holds(name):
    from bridge.gpu.wgpu_device import request_device

    async def scenario():
        device = await request_device()

        async def devices():
            return device

        before = device.counters.buffer_bytes
        model = await load_model(MODELS / name, LoadOptions(n_ctx=256, n_ubatch=64, backend="webgpu"), devices=devices)
        used = device.counters.buffer_bytes - before
        await model.close()
        device.destroy()
        return used, model

    used, model = asyncio.run(scenario())
    told = estimate(name, n_ctx=256, n_ubatch=64)
    states = 2 * model.state_nbytes
    assert told.cache == 256 * model.saved_nbytes(1) + states - 256 * model.state_nbytes
    assert told.file == (MODELS / name).stat().st_size
    assert told.total == pytest.approx(used, rel=0.35), "parameters, padding and tables of the formats come on top"
    assert estimate(name, n_ctx=512).cache - states == 2 * (told.cache - states)
    assert estimate(name, n_ctx=256, kv_type="f32").cache - states == 2 * (told.cache - states)


def test_only_the_header_is_read_and_a_bad_one_is_told():
    class Counting(AsyncSource):
        read_to = 0

        async def read(self, offset, length):
            self.read_to = max(self.read_to, offset + length)
            return await super().read(offset, length)

    source = Counting(open_gguf(MODELS / "llama-tied-f32.gguf").source)
    told = asyncio.run(estimate_memory(source))
    assert source.read_to < source.size
    assert told.architecture == "llama"
    with pytest.raises(BridgeError):
        asyncio.run(estimate_memory(AsyncSource(BytesSource(b"<!doctype html>" * 40))))
