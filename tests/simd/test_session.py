"""The life of a session and of its threads."""

import asyncio
import threading
import time

import numpy as np
import pytest

from bridge.errors import DeviceError, InputError, ModelError, UnsupportedError
from bridge.gguf import TensorInfo
from bridge.graph import GraphBuilder
from bridge.plan import lower
from bridge.quants import quant_type
from bridge.runtime import LoadOptions, load_model
from bridge.runtime.cancel import CancelToken
from bridge.simd.session import SimdSession
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.golden import golden, model_path
from tests.simd.harness import OneOperation, Tensors, open_session

X = np.random.default_rng(3).standard_normal((8, 16)).astype(np.float32)


def small():
    op = OneOperation(X)
    op.tensors.add_blocks("w.weight", "F32", 6, 16)
    return op.finish(op.builder.matmul(op.x(), "w", 6)), op.tensors


def test_batches_outside_the_session_are_refused(hosts):
    graph, tensors = small()

    async def evaluate(tokens, start, outputs):
        session = await open_session(hosts("relaxed"), graph, tensors, n_ctx=8, n_ubatch=4, max_outputs=2)
        return await session.evaluate(tokens, start, outputs)

    for batch, message in [
        (([], 0, []), "a batch has 0 tokens"),
        (([0] * 5, 0, []), "a batch has 5 tokens .* takes 1 to 4 tokens"),
        (([0] * 4, 0, [0, 1, 2]), "at most 2 output rows"),
        (([0, 8], 0, []), "token 8 is not in the vocabulary; tokens are 0 to 7"),
        (([-1], 0, []), "token -1 is not in the vocabulary"),
        (([0], 8, []), "positions 8 to 8 do not fit a context of 8"),
        (([0, 1], 7, []), "positions 7 to 8"),
        (([0], -1, []), "positions -1 to -1"),
    ]:
        with pytest.raises(InputError, match=message):
            asyncio.run(evaluate(*batch))


def test_a_session_computes_only_between_loading_and_closing(hosts):
    graph, tensors = small()

    async def life():
        session = await SimdSession.create(hosts("relaxed"), lower(graph), n_ctx=8, n_ubatch=4)
        with pytest.raises(DeviceError, match="has no weights"):
            await session.evaluate([0], 0, [0])
        await session.load_weights(tensors.source, tensors.infos, lambda *counts: None, CancelToken())
        await session.evaluate([0], 0, [0])
        await session.close()
        await session.close()
        with pytest.raises(DeviceError, match="was closed"):
            await session.evaluate([0], 0, [0])

    asyncio.run(life())


def test_another_tensor_than_the_plans_is_named(hosts):
    graph, tensors = small()
    infos = dict(tensors.infos)
    infos["w.weight"] = TensorInfo("w.weight", quant_type("F16"), (6, 16), infos["w.weight"].offset, 192)

    async def load():
        session = await SimdSession.create(hosts("relaxed"), lower(graph), n_ctx=8, n_ubatch=4)
        await session.load_weights(tensors.source, infos, lambda *counts: None, CancelToken())

    with pytest.raises(ModelError, match=r"w.weight is F16 \[6, 16\] in the file; the plan was made for F32 \[6, 16\]"):
        asyncio.run(load())


def test_quantised_vectors_are_refused_by_name(hosts):
    tensors = Tensors()
    tensors.add_blocks("e", "F32", 4, 32)
    tensors.add_blocks("n.weight", "Q8_0", 32)
    b = GraphBuilder(tensors.infos)
    graph = b.finish(b.select_outputs(b.rms_norm(b.embed("e", 4, 32), "n", 1e-5)), 32)
    with pytest.raises(UnsupportedError, match="tensor n.weight is a vector of the type Q8_0"):
        asyncio.run(open_session(hosts("relaxed"), graph, tensors))


def test_expanded_types_leave_a_note(hosts):
    op = OneOperation(np.ones((2, 256), np.float32))
    for i, name in enumerate(["IQ2_XXS", "IQ2_XXS", "TQ1_0", "Q4_K"]):
        op.tensors.add_blocks(f"w{i}.weight", name, 256, 256)
    x = op.x()
    for i in range(4):
        x = op.builder.matmul(x, f"w{i}", 256)
    session = asyncio.run(open_session(hosts("relaxed"), op.finish(x), op.tensors))
    assert session.notes == ["weights_expanded:IQ2_XXS", "weights_expanded:TQ1_0"]


@pytest.mark.parametrize("threads, threads_batch, used, notes", [
    (None, None, (2, 2), []),
    (1, None, (1, 1), []),
    (1, 2, (1, 2), []),
    (9, None, (2, 2), ["threads_capped_pool:2", "threads_batch_capped_pool:2"]),
    (2, 3, (2, 2), ["threads_batch_capped_pool:2"]),
])
def test_threads_are_capped_to_those_there_are(hosts, threads, threads_batch, used, notes):
    graph, tensors = small()
    session = asyncio.run(open_session(hosts("relaxed"), graph, tensors, threads=threads, threads_batch=threads_batch))
    assert (session.threads, session.threads_batch) == used
    assert session.notes == notes
    assert session.compute == {"threads": used[0], "threads_batch": used[1], "thread_pool": 2,
                               "variant": "relaxed-threads"}


def test_without_shared_memory_there_is_one_thread(hosts):
    graph, tensors = small()
    session = asyncio.run(open_session(hosts("single"), graph, tensors, threads=2))
    assert session.notes == ["threads_capped_no_coi"] and session.threads == 1


def test_the_cache_can_be_read_and_put_back(hosts):
    op = OneOperation(X)
    x = op.x()
    graph = op.finish(op.builder.attention(x, x, x, n_head=2, n_head_kv=2, head_dim=8, head_dim_v=8, scale=0.3))

    async def life():
        session = await open_session(hosts("relaxed"), graph, op.tensors, kv_type="f16")
        await session.evaluate([1, 2, 3], 0, [2])
        saved = await session.read_kv(3)
        assert len(saved) == session.cache.saved_nbytes(3) == 3 * 2 * 2 * 16
        expected = np.array(await session.evaluate([4], 3, [0]))
        await session.evaluate([7, 7, 7], 0, [])
        await session.write_kv(saved, 3)
        assert await session.read_kv(0) == b""
        return expected, np.array(await session.evaluate([4], 3, [0]))

    expected, found = asyncio.run(life())
    assert np.array_equal(found, expected)


def test_threads_sleep_between_batches_and_end_with_the_host():
    graph, tensors = small()
    before = threading.active_count()
    host = WasmtimeHost(3)

    async def life():
        session = await open_session(host, graph, tensors)
        for _ in range(20):
            await session.evaluate([0, 1, 2], 0, [0])
        time.sleep(0.05)  # past all spinning
        used = time.process_time()
        time.sleep(0.3)
        used = time.process_time() - used
        await session.close()
        return used

    assert asyncio.run(life()) < 0.1
    assert threading.active_count() == before + 2
    host.close()
    host.close()
    assert threading.active_count() == before


def test_threads_that_come_late_do_not_run_into_the_next_model():
    """Most of so many threads wake when their job is over, and its program about to be overwritten."""
    graph, tensors = small()
    host = WasmtimeHost(6)

    async def life():
        found = []
        for i in range(150):
            session = await open_session(host, graph, tensors)
            at = session._jobs["logits"].program * 16
            found.append(np.array(await session.evaluate([i % 8], 0, [0])))
            await session.close()
            await host.reserve(0)
            host.write(at, b"\xff" * 96)  # no operation, nor a pointer that can be followed
        return found

    found = asyncio.run(life())
    host.close()
    assert all(np.array_equal(found[i], found[i % 8]) for i in range(len(found)))


def test_programs_in_turn_do_not_get_in_each_others_way():
    """Logits and embeddings by one session: a thread that comes late to one finds the other being posted."""
    case = golden("llama-tied-f32")
    host = WasmtimeHost(6)

    async def cpus():
        return host

    async def life():
        model = await load_model(str(model_path(case)), LoadOptions(n_ctx=64, backend="simd"), cpus=cpus)
        session, found = model._session, {}
        for i in range(300):
            tokens = [i % 7 + 1, 2, 3][:1 + i % 3]
            for compute in (session.evaluate, session.embed):
                rows = np.array(await compute(tokens, 0, [len(tokens) - 1]))
                assert np.array_equal(found.setdefault((compute.__name__, *tokens), rows), rows)
        await model.close()

    asyncio.run(life())
    host.close()


def test_a_thread_that_fails_keeps_nobody_waiting():
    graph, tensors = small()
    host = WasmtimeHost(2)

    async def life():
        session = await open_session(host, graph, tensors)
        await session.evaluate([0], 0, [0])
        host.call("abandon")
        with pytest.raises(DeviceError, match="a thread of the CPU backend failed"):
            await session.evaluate([0], 0, [0])

    asyncio.run(life())
    host.close()


def test_kernels_of_another_engine_are_refused(hosts, monkeypatch):
    graph, _ = small()
    monkeypatch.setattr(hosts("relaxed"), "edition", 0)
    with pytest.raises(DeviceError, match="the CPU kernels were built for another version of the engine"):
        asyncio.run(SimdSession.create(hosts("relaxed"), lower(graph), n_ctx=8, n_ubatch=4))


def test_bad_precision_is_refused(hosts):
    graph, _ = small()
    with pytest.raises(InputError, match="precision is 'double'; it must be one of fast, exact"):
        asyncio.run(SimdSession.create(hosts("relaxed"), lower(graph), n_ctx=8, n_ubatch=4, precision="double"))


@pytest.mark.parametrize("name, broken", [("w.weight", np.nan), ("w.weight", np.inf), ("x", np.nan), ("x", np.inf)])
@pytest.mark.parametrize("precision", ["fast", "exact"])
def test_broken_numbers_are_not_hidden(hosts, name, broken, precision):
    """NaN and infinity come through, so that what they did to the logits is seen."""
    op = OneOperation(np.where(np.eye(8, 32, dtype=bool) & (name == "x"), broken, 1).astype(np.float32))
    op.tensors.add_floats("w.weight", np.where(np.eye(6, 32, dtype=bool) & (name != "x"), broken, 1))
    op.tensors.add_blocks("q.weight", "Q8_0", 8, 32)
    x = op.x()
    graph = op.finish(op.builder.matmul(x, "w", 6) if name != "x" else op.builder.matmul(x, "q", 8))

    async def logits():
        session = await open_session(hosts("relaxed"), graph, op.tensors, precision=precision)
        return np.array(await session.evaluate([0, 1, 2], 0, [0, 1, 2]))

    assert not np.isfinite(asyncio.run(logits())).all()
