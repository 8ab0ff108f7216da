"""Windowed layers that keep a ring of rows, and quantised caches, seen through a model."""

import asyncio

import numpy as np
import pytest

from bridge.graph import cache
from bridge.runtime import GenerateOptions, LoadOptions, load_model
from bridge.runtime.state import load_state, save_state
from bridge.sampling import SamplingOptions
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.golden import MODELS

WINDOWED = MODELS / "gemma3-f16.gguf"  # windows of 16
WIDE_HEADS = MODELS / "quant-llama-Q6_K.gguf"  # heads of 64
GREEDY = SamplingOptions(temp=0.0, penalty=1.0)
PROMPT = [(7 * i) % 500 + 5 for i in range(90)]


@pytest.fixture
def short_rings(monkeypatch):
    monkeypatch.setattr(cache, "REWIND", 16)


async def opened(path, backend="reference", n_ubatch=8, kv_type="f32"):
    async def cpus():
        return WasmtimeHost(1, variant="simd")

    return await load_model(path, LoadOptions(n_ctx=256, n_ubatch=n_ubatch, backend=backend, kv_type=kv_type,
                                              precision="exact"), cpus=cpus)


async def generate(model, prompt, n=12):
    options = GenerateOptions(n_predict=n, sampling=GREEDY, ignore_eos=True)
    return [piece.token async for piece in model.generate(prompt, options)]


async def without_rings(prompt, n=12):
    model = await opened(WINDOWED, n_ubatch=256)
    assert model._session.reach.earliest == 0 and model._session.cache.margin is None
    return await generate(model, prompt, n)


@pytest.mark.parametrize("backend", ["reference", "simd"])
def test_prompts_go_on_from_where_the_rings_allow_and_no_earlier(short_rings, backend):
    async def scenario():
        model = await opened(WINDOWED, backend)
        assert {part.rows for part in model._session.cache.parts if part.window} == {32}
        for prompt, kept in [
            (PROMPT, 0),
            ([*PROMPT, 9, 9], 90),  # 12 behind
            ([*PROMPT, 9, 7], 91),
            ([*PROMPT[:80], 3], 0),  # the rows before were overwritten
            ([*PROMPT[:80], 4], 80),
            ([*PROMPT[:70], 3], 0),
            ([*PROMPT[:20], 3], 0),
            ([*PROMPT[:20], 4], 20),
        ]:
            assert await generate(model, prompt) == await without_rings(prompt)
            assert model.last_usage.cached_prompt_tokens == kept, len(prompt)

    asyncio.run(scenario())


@pytest.mark.parametrize("saver, loader", [("reference", "simd"), ("simd", "reference")])
def test_a_saved_context_goes_on_elsewhere(short_rings, saver, loader):
    async def scenario():
        first, second = await opened(WINDOWED, saver), await opened(WINDOWED, loader, n_ubatch=64)
        await generate(first, PROMPT)
        data = await save_state(first, first.tokens)
        all_rows = first.n_past * 3 * 2 * 16 * 4
        assert len(data) < 0.6 * all_rows, "of the windowed layers it has the last rows only"
        tokens = await load_state(second, data)
        assert await generate(second, [*tokens, 5]) == await without_rings([*tokens, 5])
        assert second.last_usage.cached_prompt_tokens == len(tokens)
        await load_state(second, data)
        shorter = [*tokens[:50], 5]
        assert await generate(second, shorter) == await without_rings(shorter)
        assert second.last_usage.cached_prompt_tokens == 0

    asyncio.run(scenario())


@pytest.mark.parametrize("kv_type, worst", [("q8_0", 0.05), ("q8_0/f16", 0.05), ("q4_0", 0.9)])
def test_quantised_caches_are_alike_on_backends_and_close_to_exact(kv_type, worst):
    async def scenario():
        exact = await (await opened(WIDE_HEADS)).evaluate(PROMPT[:40])
        models = [await opened(WIDE_HEADS, backend, kv_type=kv_type) for backend in ("reference", "simd")]
        assert [model.kv_type for model in models] == [kv_type, kv_type]
        first, second = [await model.evaluate(PROMPT[:40]) for model in models]
        assert 1e-4 < np.abs(first - exact).max() / np.std(exact) < worst
        assert np.abs(first - second).max() / np.std(exact) < worst / 4
        data = await save_state(models[0])
        await load_state(models[0], data)
        return len(data)

    assert asyncio.run(scenario()) > 0


def test_heads_that_blocks_do_not_fit_get_halves_and_a_note():
    model = asyncio.run(opened(WINDOWED, kv_type="q8_0"))
    assert model.kv_type == "f16"
    assert "kv_cache_quantisation_unavailable:using_f16" in model.notes
