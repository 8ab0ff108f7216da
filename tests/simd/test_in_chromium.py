"""The same kernels through web/simd_host.js and the browser's own WebAssembly compiler.

On processors with VNNI the browser's relaxed dot products take the second byte as unsigned, which nothing under CPython
does, so here is where that is tested.
"""

import asyncio

import numpy as np
import pytest

from bridge.errors import Cancelled, DeviceError, InputError, SourceError, UnsupportedError
from bridge.models import build_graph
from bridge.gguf import open_gguf
from bridge.plan import lower
from bridge.runtime.cancel import CancelToken
from bridge.simd.formats import FORMATS
from bridge.simd.host import DOTS_SIGNED, DOTS_UNSIGNED, MAX_BYTES_32
from bridge.simd.session import SimdSession
from tests.golden import golden, golden_names, has_experts, model_path, tolerance, worst_difference
from tests.simd.harness import OneOperation, reference_of
from tools.page_gpu import PageSource
from tools.page_simd import open_page_host, stand_in_for_pyodide

stand_in_for_pyodide()
from bridge.simd.js_host import Rows  # noqa: E402  it needs the stand-in

PAGES = {"one thread": (1, True), "two threads": (2, True), "not isolated": (2, False)}


@pytest.fixture(scope="module", params=PAGES)
def page_host(request):
    threads, isolated = PAGES[request.param]
    with open_page_host(threads, isolated=isolated) as host:
        yield host


@pytest.fixture(scope="module")
def two_threads():
    with open_page_host(2) as host:
        yield host


async def open_model(host, name, source=None, cancel=None, progress=lambda loaded, total: None, **options):
    case = golden(name)
    file = open_gguf(str(model_path(case)))
    options = {"n_ctx": case["n_ctx"], "n_ubatch": 32, "kv_type": "f32", "precision": "exact"} | options
    session = await SimdSession.create(host, lower(build_graph(file.metadata, file.tensors, case["n_ctx"])), **options)
    try:
        source = source or PageSource(model_path(case).read_bytes())
        await session.load_weights(source, file.tensors, progress, cancel or CancelToken())
    except BaseException:
        await session.close()
        raise
    return session


async def all_logits(session, tokens):
    rows = []
    for begin in range(0, len(tokens), session.max_outputs):
        batch = tokens[begin:begin + session.max_outputs]
        rows.append(np.array(await session.evaluate(batch, begin, range(len(batch)))).reshape(len(batch), -1))
    return np.concatenate(rows)


@pytest.mark.parametrize("name", ["llama-untied-f16", "gemma2-iq4_nl", "gemma3-q4_0", "qwen3-f16", "llama-moe-q8_0",
                                  "rwkv7-f16", "qwen3next-q8_0"])
def test_goldens(page_host, name):
    async def check():
        session = await open_model(page_host, name)
        for prompt in golden(name)["prompts"]:
            logits = await all_logits(session, prompt["tokens"])
            assert worst_difference(logits, prompt["expected"]) <= tolerance(golden(name)), prompt["name"]
        await session.close()

    asyncio.run(check())


@pytest.mark.parametrize("name", [name for name in golden_names() if not has_experts(name)])
def test_rounded_activations_stay_within_llama_cpps_tolerance(two_threads, name):
    async def check():
        session = await open_model(two_threads, name, precision="fast")
        prompt = golden(name)["prompts"][0]
        logits = await all_logits(session, prompt["tokens"])
        most = golden(name)["tolerance"]["logits"]["llama_cpp_atol"]
        assert worst_difference(logits, prompt["expected"]) <= most
        await session.close()

    asyncio.run(check())


@pytest.mark.parametrize("precision, most", [("exact", 1e-5), ("fast", 0.03)])
@pytest.mark.parametrize("name", FORMATS)
def test_matmul_of_every_type(two_threads, name, precision, most):
    op = OneOperation(np.random.default_rng(2).standard_normal((6, 512)).astype(np.float32))
    op.tensors.add_blocks("w.weight", name, 37, 512)
    graph = op.finish(op.builder.matmul(op.x(), "w", 37))

    async def by_kernels():
        session = await SimdSession.create(two_threads, lower(graph), n_ctx=8, n_ubatch=8, max_outputs=8,
                                           precision=precision)
        await session.load_weights(PageSource(op.tensors.data), op.tensors.infos, lambda *counts: None, CancelToken())
        found = [np.array(await session.evaluate(tokens, 0, range(len(tokens)))) for tokens in (range(6), [3])]
        await session.close()
        return found

    batch, alone = asyncio.run(by_kernels())
    expected = np.array(asyncio.run(reference_of(graph, op.tensors).evaluate(range(6), 0, range(6))))
    assert np.abs(batch - expected).max() <= most * np.abs(expected).max()
    assert np.array_equal(alone, batch.reshape(6, -1)[3])


def test_what_is_known_of_the_machine(page_host):
    host = page_host
    threads = host.n_threads if host.is_shared else 0  # on a page's own thread all members of the team are workers
    assert host.counters.threads == threads
    assert host.variant == ("relaxed-threads" if host.is_shared else "relaxed")
    assert host.max_bytes == (16 << 30 if host.is_shared else MAX_BYTES_32)
    assert host.dot_mode in (DOTS_SIGNED, DOTS_UNSIGNED) or host.has_relaxed


def test_calls_per_batch_do_not_depend_on_the_model(two_threads):
    async def count():
        session = await open_model(two_threads, "gemma3-q4_0")
        await session.evaluate([1], 0, [0])
        before = two_threads.counters
        await session.evaluate([1], 1, [0])
        after = two_threads.counters
        await session.close()
        return after.calls - before.calls, after.runs - before.runs, after.memory_bytes - before.memory_bytes

    assert asyncio.run(count()) == (4, 1, 0)  # hand over the parameters, run, wait, copy the logits


def test_the_best_token_is_found_where_the_logits_lie(two_threads):
    async def check():
        session = await open_model(two_threads, "llama-tied-f32")
        logits = np.array(await session.evaluate([1, 2, 3], 0, [2]))
        rows = Rows(two_threads, session._jobs["logits"], 1)
        assert len(rows) == logits.size and rows.best_token() == int(logits.argmax())
        ids, values, also = rows.best_tokens(20, [5, 0])
        others = [i for i in np.argsort(-logits, kind="stable") if i not in (0, 5)]
        assert list(ids) == others[:20]
        assert np.array_equal(values, logits[list(ids)]) and np.array_equal(also, logits[[5, 0]])
        assert np.array_equal(rows.__buffer__(0), logits)
        logits[5] = np.nan
        two_threads.write(session._jobs["logits"].result, logits)
        assert rows.best_token() is None and rows.best_tokens(20, []) is None
        assert Rows(two_threads, session._jobs["logits"], 2).best_tokens(1, []) is None
        await session.close()

    asyncio.run(check())


def test_a_file_that_ends_early_and_one_that_is_cancelled(two_threads):
    data = model_path(golden("gemma3-f16")).read_bytes()
    token = CancelToken()
    with pytest.raises(SourceError, match="past the end of|ended at byte"):
        asyncio.run(open_model(two_threads, "gemma3-f16", PageSource(data[:-50000])))
    token.cancel()
    with pytest.raises(Cancelled):
        asyncio.run(open_model(two_threads, "gemma3-f16", cancel=token))
    seen = []
    session = asyncio.run(open_model(two_threads, "gemma3-f16", progress=lambda *counts: seen.append(counts)))
    assert seen[-1] == (len(data), len(data))
    asyncio.run(session.close())


def test_growth_refused_by_the_browser_is_an_error_and_a_smaller_model_loads_afterwards(two_threads):
    two_threads.page.evaluate("""() => {
      const grow = WebAssembly.Memory.prototype.grow;
      WebAssembly.Memory.prototype.grow = function (pages) {
        if (pages > 4000) throw new RangeError('no');
        return grow.call(this, pages);
      };
    }""")
    with pytest.raises(DeviceError, match=r"the browser refused to enlarge the memory from \d+ MiB to \d+ MiB"):
        asyncio.run(two_threads.reserve(1 << 30))
    session = asyncio.run(open_model(two_threads, "llama-tied-f32"))
    assert np.isfinite(np.array(asyncio.run(session.evaluate([1, 2], 0, [1])))).all()
    asyncio.run(session.close())


def test_what_is_beyond_4_gib_takes_64_bit_addresses():
    with open_page_host(2) as host:
        asyncio.run(host.reserve(1 << 20))
        assert host.variant == "relaxed-threads"
        # The memory is not grown that far here: the browser has no 5 GiB to spare everywhere.
        host.page.evaluate("() => { WebAssembly.Memory.prototype.grow = () => 0n; }")
        asyncio.run(host.reserve(5 << 30))
        assert host.variant == "relaxed64-threads"
        host.page.evaluate("() => { delete WebAssembly.Memory.prototype.grow; }")
    with open_page_host(2, memory64=False) as host:
        assert host.max_bytes == MAX_BYTES_32


def test_a_model_computes_with_64_bit_addresses():
    with open_page_host(2, memory64=True) as host:
        assert host.variant == "relaxed64-threads"

        async def check():
            session = await open_model(host, "gemma3-q4_0")
            prompt = golden("gemma3-q4_0")["prompts"][1]
            logits = await all_logits(session, prompt["tokens"])
            assert worst_difference(logits, prompt["expected"]) <= tolerance(golden("gemma3-q4_0"))
            await session.close()

        asyncio.run(check())


def test_a_browser_without_relaxed_simd_takes_the_other_build():
    refuse_first = """(() => {
      const compile = WebAssembly.compile;
      WebAssembly.compile = (bytes) => {
        WebAssembly.compile = compile;
        return Promise.reject(new WebAssembly.CompileError('no relaxed SIMD here'));
      };
    })()"""
    with open_page_host(2, before=refuse_first) as host:
        assert (host.variant, host.has_relaxed) == ("simd-threads", False)
        session = asyncio.run(open_model(host, "gemma3-q4_0", precision="fast"))
        logits = asyncio.run(session.evaluate([1, 2, 3], 0, [2]))
        assert np.isfinite(np.array(logits)).all()
        asyncio.run(session.close())


def test_a_browser_without_simd_says_so():
    with pytest.raises(UnsupportedError, match="this browser cannot run the CPU kernels, which need WebAssembly SIMD"):
        with open_page_host(2, flags=("--js-flags=--no-enable-sse4-1 --no-enable-ssse3",)):
            raise AssertionError("a host was opened")


def test_more_than_memory_64_is_refused_with_both_numbers(two_threads):
    file = open_gguf(str(model_path(golden("llama-tied-f32"))))
    plan = lower(build_graph(file.metadata, file.tensors, 64))
    with pytest.raises(InputError, match="at most 16384 MiB here"):
        asyncio.run(SimdSession.create(two_threads, plan, n_ctx=1 << 27, n_ubatch=32))
