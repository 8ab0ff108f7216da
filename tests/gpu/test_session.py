"""What a session promises besides its numbers: counts, limits, errors, and giving everything back."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from bridge.errors import Cancelled, DeviceError, InputError, SourceError, UnsupportedError
from bridge.gguf import BytesSource
from bridge.gpu.device import Limits
from bridge.gpu.session import GpuSession
from bridge.gpu.tuning import HARDWARE, SOFTWARE, with_products
from bridge.gpu.weights import LOAD, place_weights
from bridge.gpu.wgpu_device import request_device
from bridge.graph import GraphBuilder, RopeTable
from bridge.plan import lower
from bridge.runtime.cancel import CancelToken
from bridge.runtime.sources import AsyncSource
from tests.gpu.harness import OneOperation, Tensors, assert_close, open_session, reference_of, run

N_VOCAB = 51


def tiny_model(layers=2, type_name="Q8_0"):
    """A llama of width 64 with every kind of step, over random tensors."""
    tensors = Tensors()
    tensors.add_blocks("token_embd.weight", type_name, N_VOCAB, 64)
    for i in range(layers):
        for name, n_out in (("q", 64), ("k", 32), ("v", 32), ("o", 64)):
            tensors.add_blocks(f"{i}.{name}.weight", type_name, n_out, 64)
        tensors.add_floats(f"{i}.norm.weight", np.ones(64))
    tensors.add_blocks("output.weight", type_name, N_VOCAB, 64)
    b = GraphBuilder(tensors.infos)
    table = b.rope_table("main", RopeTable(16, 10000.0))
    x = b.embed("token_embd.weight", N_VOCAB, 64, scale=50.0)
    for i in range(layers):
        normed = b.rms_norm(x, f"{i}.norm", 1e-5)
        q, k, v = b.matmul(normed, f"{i}.q", 64), b.matmul(normed, f"{i}.k", 32), b.matmul(normed, f"{i}.v", 32)
        mixed = b.attention(b.rope(q, table, 16, "norm"), b.rope(k, table, 16, "norm"), v, n_head=4, n_head_kv=2,
                            head_dim=16, head_dim_v=16, scale=0.25)
        x = b.add(b.matmul(mixed, f"{i}.o", 64), x)
    return b.finish(b.matmul(b.select_outputs(x), "output", N_VOCAB), 64), tensors


@pytest.fixture
def model():
    return tiny_model()


@pytest.fixture
def counters(device):
    """The device's counters; everything a test makes must be gone at its end."""
    before = (device.counters.buffers, device.counters.buffer_bytes)
    yield device.counters
    assert (device.counters.buffers, device.counters.buffer_bytes) == before


def test_batches_of_every_size_agree_with_the_reference(device, counters, model):
    graph, tensors = model
    reference = reference_of(graph, tensors)

    async def compare():
        session = await open_session(device, graph, tensors)
        start = 0
        for n, outputs in ((1, [0]), (8, []), (3, [0, 2]), (5, [4]), (7, [0, 1, 2, 3, 4, 5, 6]), (2, [])):
            tokens = [(start * 5 + i * 3) % N_VOCAB for i in range(n)]
            got = await session.evaluate(tokens, start, outputs)
            expected = await reference.evaluate(tokens, start, outputs)
            start += n
            if outputs:
                assert_close(np.array(got), np.array(expected).reshape(-1), 2e-5)
            else:
                assert got is None
        await session.close()

    asyncio.run(compare())


def test_a_token_in_steady_state_costs_one_submit_and_one_map_and_reads_its_logits(device, counters, model):
    graph, tensors = model

    async def decode():
        session = await open_session(device, graph, tensors)
        await session.evaluate([1, 2, 3], 0, [2])
        await session.evaluate([4], 3, [0])
        before = replace(counters)
        for position in range(4, 14):
            logits = await session.evaluate([position], position, [0])
            assert len(logits) == N_VOCAB and logits.format == "f"
        assert counters == replace(before, submits=before.submits + 10, maps=before.maps + 10, waits=before.waits + 10,
                                   dispatches=before.dispatches + 10 * session.programs.n_dispatches,
                                   bytes_read=before.bytes_read + 10 * 4 * N_VOCAB)
        await session.close()

    asyncio.run(decode())


def test_opening_and_closing_again_leaves_nothing_and_compiles_nothing(device, counters, model):
    graph, tensors = model

    async def cycle():
        session = await open_session(device, graph, tensors)
        await session.evaluate([1], 0, [0])
        await session.close()
        await session.close()
        with pytest.raises(DeviceError, match="the session was closed"):
            await session.evaluate([1], 0, [0])

    asyncio.run(cycle())
    pipelines = len(device._pipelines)
    asyncio.run(cycle())
    assert len(device._pipelines) == pipelines


@pytest.mark.parametrize("type_name", ["Q8_0", "F16"])
@pytest.mark.parametrize("most", [68 * 7, 68 * 20])
def test_weights_above_the_binding_limit_are_split_by_rows(device, counters, monkeypatch, tuning, most, type_name):
    tensors = Tensors()
    tensors.add_blocks("x", type_name, 40, 64)
    tensors.add_blocks("w.weight", type_name, 50, 64)
    tensors.add_normal("w.bias", 50)
    b = GraphBuilder(tensors.infos)
    x = b.embed("x", 40, 64)
    graph = b.finish(b.select_outputs(b.matmul(x, "w", 50)), 64)
    limits = replace(device.limits, max_storage_buffer_binding_size=most)
    placed = place_weights(lower(graph), limits)
    row = placed.matrices["x"].row_nbytes
    assert len(placed.matrices["x"].parts) == -(-40 // (most // LOAD * LOAD // row)) > 1
    # Only placement sees the small limit: the other buffers are small enough on a real device of that kind.
    monkeypatch.setattr("bridge.gpu.session.place_weights", lambda plan, _: place_weights(plan, limits))
    got, expected = run(device, graph, tensors, [([39, 0, 7, 20, 6, 13], 0)], tuning=tuning)
    assert_close(got, expected)


def test_split_experts(device, counters, monkeypatch):
    op = OneOperation(np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32))
    op.tensors.add_normal("router.weight", 5, 32)
    op.tensors.add_blocks("up.weight", "Q8_0", 5, 24, 32)
    b, x = op.builder, op.x()
    route = b.route(b.matmul(x, "router", 5), 2, normalise=True)
    graph = op.finish(b.matmul_experts(x, route, "up", 24))
    limits = replace(device.limits, max_storage_buffer_binding_size=34 * 35)  # cuts through experts
    monkeypatch.setattr("bridge.gpu.session.place_weights", lambda plan, _: place_weights(plan, limits))
    got, expected = run(device, graph, op.tensors, [([0, 1, 2, 3], 0)])
    assert_close(got, expected)


def test_grids_wider_than_a_dispatch_are_folded(device, counters, monkeypatch):
    monkeypatch.setattr(device, "limits", replace(device.limits, max_compute_workgroups_per_dimension=8))
    rng = np.random.default_rng(2)
    tensors = Tensors()
    tensors.add_floats("x", rng.standard_normal((4, 640)))
    tensors.add_normal("w.weight", 3000, 640)
    b = GraphBuilder(tensors.infos)
    x = b.embed("x", 4, 640)
    graph = b.finish(b.select_outputs(b.matmul(b.add(x, x), "w", 3000)), 640)
    got, expected = run(device, graph, tensors, [([3, 1], 0)])
    assert_close(got, expected)


def test_sizes_a_device_cannot_hold_are_refused_with_the_numbers(device, counters, monkeypatch, model):
    graph, tensors = model
    monkeypatch.setattr(device, "limits", replace(device.limits, max_storage_buffer_binding_size=128 * 200))
    with pytest.raises(InputError, match="a context of 300 tokens takes 38400 bytes .* allows 25600, which is 200 tokens"):
        asyncio.run(open_session(device, graph, tensors, n_ctx=300))
    with pytest.raises(InputError, match="a batch of 200 tokens with rows of 64 floats is larger than the 25600 bytes"):
        asyncio.run(open_session(device, graph, tensors, n_ctx=200, n_ubatch=200))
    tensors.add_normal("wide", 2, 8192)
    b = GraphBuilder(tensors.infos)
    wide = b.finish(b.select_outputs(b.embed("wide", 2, 8192)), 8192)
    with pytest.raises(UnsupportedError, match="one row of tensor wide takes 32768 bytes; this device binds at most 25600"):
        asyncio.run(open_session(device, wide, tensors))


@pytest.mark.parametrize("tokens, start, outputs, message", [
    ([], 0, [], "0 tokens"),
    ([1] * 9, 0, [], "9 tokens"),
    ([1], 64, [0], "positions 64 to 64 do not fit a context of 64"),
    ([1, 2], -1, [0], "positions -1"),
    ([1, 2], 0, [0] * 9, "9 output rows"),
    ([1, N_VOCAB], 0, [0], f"token {N_VOCAB} .* 0 to {N_VOCAB - 1}"),
])
def test_bad_batches_are_refused_and_the_next_one_works(device, counters, model, tokens, start, outputs, message):
    graph, tensors = model

    async def evaluate():
        session = await open_session(device, graph, tensors)
        with pytest.raises(InputError, match=message):
            await session.evaluate(tokens, start, outputs)
        assert len(await session.evaluate([1], 0, [0])) == N_VOCAB
        await session.close()

    asyncio.run(evaluate())


async def load_and_close(device, graph, tensors, source, cancel):
    session = await GpuSession.create(device, lower(graph, SOFTWARE.rules), n_ctx=64, n_ubatch=8, tuning=SOFTWARE)
    try:
        await session.load_weights(source, tensors.infos, lambda loaded, total: None, cancel)
    finally:
        await session.close()


def test_cancelling_a_load_frees_what_it_made(device, counters, model):
    graph, tensors = model
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        asyncio.run(load_and_close(device, graph, tensors, tensors.source, cancel))


def test_a_source_that_fails_frees_what_was_made(device, counters, model):
    graph, tensors = model

    class Failing(AsyncSource):
        async def stream(self, offset, length):
            yield bytes(100)
            raise SourceError("the server hung up")

    with pytest.raises(SourceError, match="the server hung up"):
        asyncio.run(load_and_close(device, graph, tensors, Failing(BytesSource(tensors.data)), CancelToken()))


def test_progress_counts_the_file_and_memory_in_flight_is_bounded(device, counters, model, monkeypatch):
    monkeypatch.setattr("bridge.gpu.upload.SYNC_BYTES", 4096)
    monkeypatch.setattr("bridge.runtime.sources.CHUNK", 1000)
    monkeypatch.setattr(counters, "peak_bytes_in_flight", 0)
    graph, tensors = model
    seen = []

    async def load():
        session = await GpuSession.create(device, lower(graph, SOFTWARE.rules), n_ctx=64, n_ubatch=8)
        await session.load_weights(tensors.source, tensors.infos, lambda *event: seen.append(event), CancelToken())
        await session.close()

    asyncio.run(load())
    size = len(tensors.data)
    assert [loaded for loaded, _ in seen] == sorted(loaded for loaded, _ in seen) and seen[-1] == (size, size)
    assert size > 3 * 4096 and 3000 <= counters.peak_bytes_in_flight <= 4096


def test_only_tensors_of_the_plan_are_read(device, counters, model):
    graph, tensors = model
    unused = 12 << 20
    tensors.add("unused", bytes(unused), (unused // 4,))
    tensors.add_floats("last.weight", np.ones(64))
    b = GraphBuilder(tensors.infos)
    x = b.embed("token_embd.weight", N_VOCAB, 64)
    graph = b.finish(b.select_outputs(b.rms_norm(x, "last", 1e-5)), 64)
    source = BytesSource(tensors.data)
    asyncio.run(load_and_close(device, graph, tensors, AsyncSource(source), CancelToken()))
    assert source.bytes_read < 1 << 20


def test_a_lost_device_fails_pending_and_later_calls_with_a_reason(model):
    graph, tensors = model

    async def lose():
        device = await request_device()
        session = await open_session(device, graph, tensors)
        device.destroy()
        device.destroy()
        for _ in range(2):
            with pytest.raises(DeviceError, match="the device was lost: it was destroyed"):
                await session.evaluate([1], 0, [0])
        await session.close()
        assert device.counters.buffers == 0
        with pytest.raises(DeviceError, match="was lost"):
            await open_session(device, graph, tensors)

    asyncio.run(lose())


def test_a_software_adapter_is_recognised():
    device = asyncio.run(request_device(force_software=True))
    assert device.info.is_software
    device.destroy()


def test_compile_errors_name_the_pipeline(device):
    with pytest.raises(DeviceError, match="creating the pipeline broken failed.*"):
        asyncio.run(device.create_pipeline("fn main() { nonsense }", "broken", ("uniform",)))


def test_kernels_stay_within_the_limits_every_adapter_has():
    core = Limits()
    for tuning in (SOFTWARE, *(with_products(HARDWARE, products) for products in ("f32", "f16", "int8"))):
        for shape in tuning.matmul:
            assert shape.workgroup_nbytes <= core.max_compute_workgroup_storage_size
            assert shape.workgroup <= core.max_compute_invocations_per_workgroup


@pytest.mark.parametrize(("kv_type", "dtype"), [("f16", np.float16), ("f32", np.float32)])
def test_the_cache_comes_out_and_goes_back_as_the_reference_keeps_it(device, counters, model, kv_type, dtype):
    graph, tensors = model
    tokens = [3, 14, 15, 9, 26]

    async def scenario():
        session = await open_session(device, graph, tensors, n_ctx=16, n_ubatch=8, kv_type=kv_type)
        reference = reference_of(graph, tensors, kv_type=kv_type)
        await session.evaluate(tokens, 0, [])
        await reference.evaluate(tokens, 0, [])
        data = await session.read_kv(5)
        assert len(data) == session.cache.saved_nbytes(5) == reference.cache.saved_nbytes(5)
        assert_close(np.frombuffer(data, dtype).astype(np.float32),
                     np.frombuffer(await reference.read_kv(5), dtype).astype(np.float32), 2e-2)
        expected = np.array(await session.evaluate([5], 5, [0]))
        await session.evaluate([1, 1, 1, 1, 1, 1], 0, [])
        await session.write_kv(data, 5)
        assert await session.read_kv(5) == data
        np.testing.assert_array_equal(await session.evaluate([5], 5, [0]), expected)
        assert await session.read_kv(0) == b""
        await session.close()
        for call in (session.read_kv(1), session.write_kv(data, 5)):
            with pytest.raises(DeviceError, match="the session was closed"):
                await call

    asyncio.run(scenario())
