"""What does not depend on how a batch is cut, on how many threads compute it, or on the build."""

import asyncio

import numpy as np
import pytest

from bridge.runtime import CancelToken, LoadOptions, load_model
from bridge.simd.formats import FORMATS
from bridge.simd.wasmtime_host import WasmtimeHost
from tests.golden import golden, model_path
from tests.simd.conftest import HOSTS
from tests.simd.harness import OneOperation, open_session

MODELS = ("gemma3-q4_0", "gemma2-iq4_nl", "llama-moe-q8_0", "quant-llama-Q4_K_M", "qwen2-f16", "rwkv7-f16",
          "granitehybrid-moe-q4_0", "qwen35-q8_0")


async def logits_of(host, name, *, n_ubatch, threads=None, precision="fast"):
    async def cpus():
        return host

    case = golden(name)
    options = LoadOptions(n_ctx=case["n_ctx"], backend="simd", n_ubatch=n_ubatch, threads=threads, precision=precision)
    model = await load_model(str(model_path(case)), options, cpus=cpus, cancel=CancelToken())
    try:
        return await model.evaluate(case["prompts"][-1]["tokens"], outputs="all")
    finally:
        await model.close()


@pytest.mark.parametrize("precision", ["fast", "exact"])
@pytest.mark.parametrize("name", MODELS)
def test_a_token_gives_the_same_numbers_alone_and_in_a_batch(host, name, precision):
    whole = asyncio.run(logits_of(host, name, n_ubatch=64, precision=precision))
    for n_ubatch in (1, 7):
        assert np.array_equal(asyncio.run(logits_of(host, name, n_ubatch=n_ubatch, precision=precision)), whole)


@pytest.mark.parametrize("name", MODELS)
def test_the_number_of_threads_changes_nothing(hosts, name):
    alone = asyncio.run(logits_of(hosts("relaxed"), name, n_ubatch=16, threads=1))
    host = WasmtimeHost(4)
    try:
        for threads in (2, 3, 4):
            assert np.array_equal(asyncio.run(logits_of(host, name, n_ubatch=16, threads=threads)), alone)
    finally:
        host.close()


@pytest.mark.parametrize("name", [name for name in FORMATS if FORMATS[name].layout.name != "F32"])
def test_builds_agree_to_rounding(hosts, name):
    op = OneOperation(np.random.default_rng(5).standard_normal((5, 512)).astype(np.float32))
    op.tensors.add_blocks("w.weight", name, 24, 512)
    graph = op.finish(op.builder.matmul(op.x(), "w", 24))

    async def by(host):
        session = await open_session(host, graph, op.tensors, precision="fast")
        found = np.array(await session.evaluate([0, 1, 2, 3, 4], 0, range(5)))
        await session.close()
        return found

    found = [asyncio.run(by(hosts(host))) for host in HOSTS]
    for other in found[1:]:
        assert np.abs(other - found[0]).max() <= 2e-6 * np.abs(found[0]).max()
