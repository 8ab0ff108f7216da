"""The estimate against what a load of the same model really allocates."""

import asyncio
from pathlib import Path

import pytest

from bridge.errors import BridgeError
from bridge.gguf import BytesSource, open_gguf
from bridge.runtime import LoadOptions, load_model
from bridge.runtime.estimate import estimate_memory
from bridge.runtime.sources import AsyncSource
from bridge.simd.wasmtime_host import WasmtimeHost

MODELS = Path(__file__).parent.parent / "data" / "models"


def estimate(name, **options):
    return asyncio.run(estimate_memory(AsyncSource(open_gguf(MODELS / name).source), LoadOptions(**options)))


MODEL_NAMES = ["llama-tied-f32.gguf", "qwen3-f16.gguf", "quant-llama-Q4_K_M.gguf", "quant-llama-IQ2_XS.gguf", "lfm2-f32.gguf",
               "gemma3-f16.gguf"]


@pytest.mark.parametrize("name", [*MODEL_NAMES, "qwen3moe-q8_0.gguf", "deepseek2-q8_0.gguf", "mamba2-q8_0.gguf",
                                  "modern-bert-q8_0.gguf"])
def test_webgpu_allocates_what_was_told(name):
    from bridge.gpu.wgpu_device import request_device

    async def scenario():
        device = await request_device()

        async def devices():
            return device

        before = device.counters.buffer_bytes
        model = await load_model(MODELS / name, LoadOptions(n_ctx=2048, n_ubatch=64, backend="webgpu"), devices=devices)
        used = device.counters.buffer_bytes - before
        await model.close()
        device.destroy()
        return used

    told = estimate(name, n_ctx=2048, n_ubatch=64, backend="webgpu")
    assert told.total == pytest.approx(asyncio.run(scenario()), rel=0.05)
    assert told.file == (MODELS / name).stat().st_size


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
@pytest.mark.parametrize("name", MODEL_NAMES)
def test_the_cpu_backend_allocates_what_was_told(name, kv_type):
    async def scenario():
        host = WasmtimeHost(1, variant="simd")

        async def cpus():
            return host

        options = LoadOptions(n_ctx=2048, n_ubatch=64, backend="simd", kv_type=kv_type, threads=1)
        model = await load_model(MODELS / name, options, cpus=cpus)
        used = model._session._memory.nbytes
        await model.close()
        host.close()
        return used

    told = estimate(name, n_ctx=2048, n_ubatch=64, backend="simd", kv_type=kv_type, threads=1)
    assert told.total == pytest.approx(asyncio.run(scenario()), rel=0.05)


def test_the_cache_grows_with_the_context_but_for_windows_and_states():
    def cache(name, **options):
        return estimate(name, **options).cache

    assert cache("llama-tied-f32.gguf", n_ctx=4096) == 2 * cache("llama-tied-f32.gguf", n_ctx=2048)
    assert cache("llama-tied-f32.gguf", n_ctx=4096, kv_type="f32") == 2 * cache("llama-tied-f32.gguf", n_ctx=4096)
    windowed = [cache("gemma3-f16.gguf", n_ctx=n_ctx) for n_ctx in (4096, 8192)]
    assert windowed[1] - windowed[0] == 4096 * 2 * 16 * 2, "one layer of three sees everything"


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
