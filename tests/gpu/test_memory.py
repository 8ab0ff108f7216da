"""What a session holds on the device: only the cache grows with the context, and a failure anywhere leaves nothing."""

import asyncio

import pytest

from bridge.errors import DeviceError
from bridge.gguf import open_gguf
from bridge.gpu.device import Limits
from bridge.gpu.memory import memory_of
from bridge.gpu.session import GpuSession
from bridge.gpu.tuning import HARDWARE, SOFTWARE
from bridge.gpu.weights import place_weights
from bridge.graph.cache import CacheLayout, cache_types
from bridge.models import build_graph
from bridge.plan import lower
from bridge.runtime import LoadOptions, load_model
from bridge.runtime.cancel import CancelToken
from tests.golden import MODELS
from tests.gpu.test_session import tiny_model

FILES = sorted(path.name for path in MODELS.glob("*.gguf"))


def memory_for(name, n_ctx, tuning):
    with open_gguf(MODELS / name) as file:
        graph = build_graph(file.metadata, file.tensors, n_ctx, None)
    plan = lower(graph, tuning.rules)
    n_ubatch = min(64, n_ctx)
    cache = CacheLayout(plan.kv_layers, n_ctx, n_ubatch, *cache_types("f16"))
    return memory_of(plan, place_weights(plan, Limits()), cache, tuning, n_ubatch=n_ubatch, max_outputs=8)


@pytest.mark.parametrize("tuning", [SOFTWARE, HARDWARE], ids=["software", "hardware"])
def test_only_the_cache_grows_with_the_context(tuning):
    longest = max(least for least, _ in tuning.attention_splits)  # from there on attention merges as much as it ever will
    for name in FILES:
        small, large = (memory_for(name, n_ctx, tuning) for n_ctx in (longest, 1 << 20))
        assert small.scratch_nbytes == large.scratch_nbytes, name
        assert small.weights_nbytes == large.weights_nbytes, name
        assert small.cache_nbytes <= large.cache_nbytes, name


@pytest.mark.parametrize("name", ["llama-tied-f32.gguf", "gemma3-f16.gguf", "qwen35-f32.gguf"])
def test_what_is_allocated_is_what_was_planned(device, name):
    async def allocated(n_ctx):
        async def devices():
            return device

        before = device.counters.buffer_bytes
        model = await load_model(MODELS / name, LoadOptions(n_ctx=n_ctx, backend="webgpu"), devices=devices)
        memory, nbytes = model._session.memory, device.counters.buffer_bytes - before
        await model.generate([1, 2, 3]).__anext__()
        assert device.counters.buffer_bytes - before == nbytes, "a batch allocated something"
        await model.close()
        assert device.counters.buffer_bytes == before
        return memory, nbytes

    async def scenario():
        (small, small_nbytes), (large, large_nbytes) = await allocated(512), await allocated(2048)
        assert small_nbytes - small.cache_nbytes == large_nbytes - large.cache_nbytes
        assert 0 <= small_nbytes - small.nbytes <= 64 << 10, "the constants of the calls"

    asyncio.run(scenario())


@pytest.mark.parametrize("method", ["create_buffer", "create_bind_group", "create_readback", "create_pipeline",
                                    "write_buffer"])
def test_a_failure_at_any_point_of_a_load_leaves_nothing(device, monkeypatch, method):
    graph, tensors = tiny_model()
    plan, real = lower(graph, SOFTWARE.rules), getattr(device, method)
    before = (device.counters.buffers, device.counters.buffer_bytes)

    async def load(fail_at):
        """How many calls of the method there were, and the notes."""
        calls = 0

        def failing(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == fail_at:
                raise DeviceError("no more")
            return real(*args, **kwargs)

        async def failing_later(*args, **kwargs):
            return await failing(*args, **kwargs)

        monkeypatch.setattr(device, method, failing_later if method == "create_pipeline" else failing)
        session = await GpuSession.create(device, plan, n_ctx=64, n_ubatch=8, tuning=SOFTWARE, autotune=False)
        try:
            await session.load_weights(tensors.source, tensors.infos, lambda loaded, total: None, CancelToken())
        finally:
            await session.close()
        return calls, session.notes

    total, notes = asyncio.run(load(0))
    assert total > 1 and not notes
    for fail_at in range(1, total + 1, max(1, total // 8)):
        try:
            _, notes = asyncio.run(load(fail_at))
        except DeviceError as error:
            assert "no more" in str(error)
        else:  # in the first self-test, which is done again without the adapter's features
            assert notes == ["gpu_features_unusable:core_kernels_used"]
        assert (device.counters.buffers, device.counters.buffer_bytes) == before, fail_at
