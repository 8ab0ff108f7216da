"""The memory of a model: known before its weights, refused before them, used again for the next."""

import asyncio

import numpy as np
import pytest

from bridge.errors import DeviceError, InputError
from bridge.gguf import open_gguf
from bridge.models import build_graph
from bridge.plan import lower
from bridge.runtime import LoadOptions, load_model
from bridge.simd.host import MAX_BYTES_32, PAGE, first_free_byte
from bridge.simd.program import EDITION
from bridge.simd.session import SimdSession
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.golden import golden, model_path

NAMES = ("llama-tied-f32", "gemma3-q4_0", "llama-moe-q8_0", "quant-llama-IQ2_XS")


def plan_of(name):
    file = open_gguf(str(model_path(golden(name))))
    return lower(build_graph(file.metadata, file.tensors, 64))


def session_of(host, name, **options):
    options = {"n_ctx": 64, "n_ubatch": 16} | options
    return asyncio.run(SimdSession.create(host, plan_of(name), **options))


@pytest.mark.parametrize("name", NAMES)
def test_areas_do_not_overlap_and_all_fit(hosts, name):
    host = hosts("relaxed")
    memory = session_of(host, name)._memory
    areas = sorted([*memory.programs.values(), memory.params, memory.staging, memory.scratch, *memory.regions.values()],
                   key=lambda area: area.address)
    assert areas[0].address >= first_free_byte(host.n_threads)
    for before, after in zip(areas, areas[1:]):
        assert before.address % 16 == 0 and before.address + before.nbytes <= after.address
    assert areas[-1].address + areas[-1].nbytes <= memory.nbytes <= areas[-1].address + areas[-1].nbytes + 2 * PAGE


class Small:
    """A host that could have a memory of some bytes, and is never asked for it."""

    n_threads, is_shared, has_relaxed, dot_mode, variant, prefers_memory64 = 1, False, True, 0, "relaxed", False
    edition = EDITION

    def __init__(self, max_bytes):
        self.max_bytes = max_bytes

    async def reserve(self, nbytes):
        raise AssertionError("memory was asked for")


def test_what_does_not_fit_is_refused_with_both_numbers():
    with pytest.raises(InputError, match=r"the model needs \d+ MiB of memory \(1 MiB for weights, \d+ MiB for a "
                                         r"context of 100000 tokens, \d+ MiB to compute in\); .* at most 16 MiB here"):
        session_of(Small(16 << 20), "llama-tied-f32", n_ctx=100000)


def test_a_model_that_does_not_fit_is_refused_before_its_weights_are_read():
    class Source:
        """Reads the header and nothing behind it."""

        js, size = None, model_path(golden("llama-tied-f32")).stat().st_size
        _data = model_path(golden("llama-tied-f32")).read_bytes()

        async def read(self, offset, length):
            return self._data[offset:offset + length]

        def stream(self, offset, length):
            raise AssertionError("weights were read")

    async def cpus():
        return Small(2 << 20)

    with pytest.raises(InputError, match="at most 2 MiB here"):
        asyncio.run(load_model(Source(), LoadOptions(n_ctx=64, backend="simd"), cpus=cpus))


def test_memory_refused_by_the_machine_is_an_error_and_a_smaller_model_loads_afterwards():
    host = WasmtimeHost(1, variant="simd")
    host._memory.grow, grow = lambda store, pages: (_ for _ in ()).throw(_refusal()), host._memory.grow
    try:
        with pytest.raises(DeviceError, match="refused to make the memory"):
            session_of(host, "llama-tied-f32", n_ctx=60000)
        host._memory.grow = grow
        assert session_of(host, "llama-tied-f32").n_ctx == 64
    finally:
        host.close()


def _refusal():
    import wasmtime

    return wasmtime.WasmtimeError("no room")


def test_switching_models_uses_the_same_memory_again(hosts):
    host = WasmtimeHost(2)
    try:
        first = asyncio.run(_last_logits(host, "gemma3-q4_0"))
        largest = host.counters.memory_bytes
        for name in NAMES:
            asyncio.run(_last_logits(host, name))
        # What the other models left in the memory is not seen.
        assert np.array_equal(asyncio.run(_last_logits(host, "gemma3-q4_0")), first)
        assert host.counters.memories == 1 and host.counters.threads == 1
        assert host.counters.memory_bytes <= 3 * largest
    finally:
        host.close()
    assert host.counters.threads == 0


async def _last_logits(host, name):
    async def cpus():
        return host

    case = golden(name)
    model = await load_model(str(model_path(case)), LoadOptions(n_ctx=64, backend="simd"), cpus=cpus)
    try:
        return await model.evaluate(case["prompts"][1]["tokens"])
    finally:
        await model.close()


def test_32_bits_never_reach_the_end_of_the_address_space():
    assert MAX_BYTES_32 + PAGE == 1 << 32
