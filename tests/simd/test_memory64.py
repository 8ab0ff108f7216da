"""64-bit addresses: taken where a model needs more than 4 GiB or they are asked for, and equal to 32-bit ones in
results."""

import asyncio

import numpy as np
import pytest

from bridge.errors import InputError
from bridge.gguf import open_gguf
from bridge.models import build_graph
from bridge.plan import lower
from bridge.runtime.cancel import CancelToken
from bridge.runtime.sources import AsyncSource
from bridge.simd.host import MAX_BYTES_32
from bridge.simd.session import SimdSession
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.golden import golden, model_path, tolerance, worst_difference

NAMES = ("llama-tied-f32", "gemma3-q4_0", "llama-moe-q8_0", "qwen3-f16", "quant-llama-Q4_0", "quant-llama-IQ2_XS")
N_CTX_OF_5_GIB = 20 << 20
"""Positions whose cache of 256 bytes each (llama-tied-f32, f16) no 32-bit address reaches the end of."""


@pytest.fixture(scope="module")
def wide():
    host = WasmtimeHost(2, memory64=True)
    yield host
    host.close()


async def open_model(host, name, **options):
    file = open_gguf(str(model_path(golden(name))))
    plan = lower(build_graph(file.metadata, file.tensors, 64))
    session = await SimdSession.create(host, plan, **{"n_ctx": 64, "n_ubatch": 32, "max_outputs": 32} | options)
    await session.load_weights(AsyncSource(file.source), file.tensors, lambda *counts: None, CancelToken())
    return session


async def logits_of(host, name, tokens, **options):
    """[tokens, vocabulary], and the notes of the session."""
    session = await open_model(host, name, **options)
    try:
        rows = np.array(await session.evaluate(tokens, 0, range(len(tokens))))
        return rows.reshape(len(tokens), -1), session.notes
    finally:
        await session.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_goldens(wide, name, precision):
    case = golden(name)
    prompt = min(case["prompts"], key=lambda prompt: len(prompt["tokens"]))
    logits, notes = asyncio.run(logits_of(wide, name, prompt["tokens"], kv_type="f32", precision=precision))
    assert wide.variant == "relaxed64-threads" and "core_mem64_active" in notes
    most = tolerance(case) if precision == "exact" else case["tolerance"]["logits"]["llama_cpp_atol"]
    assert worst_difference(logits, prompt["expected"]) <= most


def test_a_memory_beyond_4_gib_takes_them_and_a_smaller_one_does_not():
    """The cache lies before the activations, so those are where no 32-bit address reaches; little of it is ever
    touched."""
    host = WasmtimeHost(2)
    try:
        small, notes = asyncio.run(logits_of(host, "llama-tied-f32", [1, 2, 3]))
        assert host.variant == "relaxed-threads" and notes == []
        large, notes = asyncio.run(logits_of(host, "llama-tied-f32", [1, 2, 3], n_ctx=N_CTX_OF_5_GIB))
        assert host.variant == "relaxed64-threads" and notes == ["core_mem64_active"]
        assert host.counters.memory_bytes > MAX_BYTES_32 + (1 << 28)
        again, _ = asyncio.run(logits_of(host, "llama-tied-f32", [1, 2, 3]))
        assert host.variant == "relaxed-threads" and host.counters.memory_bytes < 1 << 28
    finally:
        host.close()
    assert np.array_equal(large, small) and np.array_equal(again, small)
    assert host.counters.threads == 0


def test_without_them_a_larger_model_is_refused_with_both_numbers_and_what_it_takes():
    host = WasmtimeHost(1, memory64=False)
    try:
        with pytest.raises(InputError, match=r"the model needs 5\d\d\d MiB .* at most 4096 MiB here; the wasm32 core "
                                             r"addresses at most 4 GiB; memory64 is required"):
            asyncio.run(open_model(host, "llama-tied-f32", n_ctx=N_CTX_OF_5_GIB))
    finally:
        host.close()


def test_more_than_they_may_address_is_refused_with_both_numbers(wide):
    with pytest.raises(InputError, match=r"the model needs 20\d\d\d MiB .* at most 16384 MiB here$"):
        asyncio.run(open_model(wide, "llama-tied-f32", n_ctx=4 * N_CTX_OF_5_GIB))


def test_where_there_are_none_a_preference_for_them_leaves_a_note():
    host = WasmtimeHost(1, variant="simd-threads", memory64=True)
    try:
        _, notes = asyncio.run(logits_of(host, "llama-tied-f32", [1]))
    finally:
        host.close()
    assert host.variant == "simd-threads" and notes == ["core_mem64_unavailable", "core_wasm32_active"]
