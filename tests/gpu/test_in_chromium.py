"""The same kernels through web/gpu_device.js and the browser's own shader compiler (SwiftShader computes)."""

import asyncio
import os
import signal
from dataclasses import replace

import numpy as np
import pytest

from bridge.errors import Cancelled, DeviceError, InputError, SourceError
from bridge.gpu.device import PACKED_DOT
from bridge.gpu.formats import FORMATS
from bridge.gpu.session import GpuSession
from bridge.gpu.tuning import HARDWARE, SOFTWARE
from bridge.plan import lower
from bridge.runtime.cancel import CancelToken
from bridge.sampling import Sampler, SamplingOptions
from tests.gpu import test_block_formats, test_fused, test_operations, test_selection, test_tiles
from tests.gpu.conftest import BROADCASTS, ROW_KERNELS
from tests.gpu.harness import assert_close, reference_of, run
from tests.gpu.test_pacing import Stubborn
from tests.gpu.test_session import N_VOCAB, tiny_model
from tools.page_gpu import PageSource, open_page_device


@pytest.fixture(scope="module")
def page_device():
    with open_page_device() as device:
        yield device


async def open_session(device, graph, tensors, source=None, cancel=None, progress=lambda loaded, total: None, **options):
    options = {"n_ctx": 64, "n_ubatch": 8, "kv_type": "f32"} | options
    session = await GpuSession.create(device, lower(graph, SOFTWARE.rules), **options)
    try:
        await session.load_weights(source or PageSource(tensors.data), tensors.infos, progress, cancel or CancelToken())
    except BaseException:
        await session.close()
        raise
    return session


def test_the_adapter_is_known_to_be_software_and_core_limits_suffice(page_device):
    assert page_device.info.is_software
    assert page_device.limits.max_storage_buffers_per_shader_stage == 8
    assert page_device.limits.max_compute_invocations_per_workgroup == 256
    assert page_device.limits.max_compute_workgroup_storage_size == 16384


@pytest.mark.parametrize("kv_type, tolerance", [("f32", 2e-5), ("f16", 5e-3)])
def test_a_model_agrees_with_the_reference(page_device, kv_type, tolerance):
    graph, tensors = tiny_model()
    reference = reference_of(graph, tensors)
    seen = []

    async def compare():
        session = await open_session(page_device, graph, tensors, kv_type=kv_type,
                                     progress=lambda *event: seen.append(event))
        start = 0
        for n, outputs in ((8, []), (7, [0, 3, 6]), (1, [0])):
            tokens = [(start * 5 + i * 3) % N_VOCAB for i in range(n)]
            got = await session.evaluate(tokens, start, outputs)
            expected = await reference.evaluate(tokens, start, outputs)
            start += n
            if outputs:
                assert_close(np.array(got), np.array(expected).reshape(-1), tolerance)
        await session.close()

    asyncio.run(compare())
    assert seen[-1] == (len(tensors.data), len(tensors.data))


def test_a_source_that_python_reads_works_too(page_device):
    graph, tensors = tiny_model()

    async def load():
        session = await open_session(page_device, graph, tensors, source=tensors.source)
        got = np.array(await session.evaluate([3], 0, [0]))
        await session.close()
        return got

    assert_close(asyncio.run(load()), asyncio.run(reference_of(graph, tensors).evaluate([3], 0, [0])), 2e-5)
    assert page_device.counters.peak_bytes_in_flight >= len(tensors.data) - 64


def test_a_token_in_steady_state_costs_four_calls_one_submit_and_one_map(page_device):
    graph, tensors = tiny_model()

    async def decode():
        session = await open_session(page_device, graph, tensors)
        await session.evaluate([4], 0, [0])
        before = page_device.counters
        for position in range(1, 11):
            await session.evaluate([position], position, [0])
        after = page_device.counters
        await session.close()
        return before, after, session.programs.n_dispatches

    before, after, n_dispatches = asyncio.run(decode())
    assert after == replace(before, calls=before.calls + 40, submits=before.submits + 10, maps=before.maps + 10,
                            waits=before.waits + 10, dispatches=before.dispatches + 10 * n_dispatches,
                            bytes_read=before.bytes_read + 10 * 4 * N_VOCAB)


def test_tokens_in_flight_share_four_calls_and_one_map(page_device):
    graph, tensors = tiny_model()
    sampler = Sampler(SamplingOptions(seed=1))

    async def decode():
        session = await open_session(page_device, graph, tensors)
        for start in (0, 8):  # a program for each of the two flights that may be under way
            await (await session.decode_ahead(4, start, sampler.selections(8))).land()
        before = page_device.counters
        found = await (await session.decode_ahead(4, 16, sampler.selections(8))).land()
        after = page_device.counters
        await session.close()
        return len(found), before, after

    n_found, before, after = asyncio.run(decode())
    assert (n_found, after.calls - before.calls, after.maps - before.maps, after.waits - before.waits) == (8, 4, 1, 1)
    assert after.created == before.created and 0 < after.bytes_read - before.bytes_read <= 8 * 1024


def test_the_best_tokens_are_found_and_drawn(page_device):
    """Tint and SwiftShader: integer keys, atomics and barriers."""
    test_selection.test_the_best_tokens_in_order_and_the_logits_of_others(page_device, SOFTWARE, 4099)
    test_selection.test_where_something_is_no_number_all_logits_come(page_device, at=700, value=np.nan)
    for options in test_selection.DRAWS[1:7:2]:
        test_selection.test_the_device_draws_what_the_host_draws(page_device, options)


@pytest.mark.parametrize("type_name, tuning", [
    *(pytest.param(name, BROADCASTS, id=name) for name in FORMATS),
    *(pytest.param(name, ROW_KERNELS, id=f"{name}-hardware") for name in ("F16", "Q8_0", "Q4_K", "Q6_K")),
])
def test_every_format(page_device, type_name, tuning):
    n_in = test_block_formats.n_in_of(type_name)
    op = test_operations.OneOperation(np.random.default_rng(5).standard_normal((8, n_in)).astype(np.float32))
    if FORMATS[type_name].type.block_size == 1:
        op.tensors.add_normal("w.weight", 37, n_in, type_name=type_name)
    else:
        op.tensors.add_blocks("w.weight", type_name, 37, n_in)
    graph = op.finish(op.builder.matmul(op.x(), "w", 37))
    # Tokens one by one are in the self-test.
    assert_close(*run(page_device, graph, op.tensors, [([0, 1, 2, 3, 4, 5, 6], 0)], tuning=tuning))


def test_products_in_tiles(page_device):
    """Chromium has packed dot products everywhere; its SwiftShader has no shader-f16."""
    assert PACKED_DOT in page_device.info.features
    for products in ("f32", "int8"):
        test_tiles.check_every_format_in_tiles(page_device, products, ["F16", "Q4_0", "Q8_0", "Q6_K", "IQ2_XXS"])
    test_fused.test_a_fused_layer_in_tiles(page_device, "two formats with biases", "f32", 3e-5)


def test_lanes_of_several_subgroups(page_device):
    assert page_device.info.subgroup_min_size == 4
    test_operations.test_lanes_within_and_beyond_a_subgroup(page_device, 16, True, True)


def test_a_text_is_kept_by_the_page(page_device):
    async def keep():
        before = await page_device.recall("0f")
        await page_device.keep("0f", "kept")
        return before, await page_device.recall("0f")

    assert asyncio.run(keep()) == (None, "kept")


@pytest.mark.parametrize("name, tuning", [("normed heads", ROW_KERNELS), ("two formats with biases", ROW_KERNELS),
                                          ("whole tensors", BROADCASTS)])
def test_fused_layers(page_device, name, tuning):
    test_fused.test_a_fused_layer_equals_the_reference(page_device, tuning, name)


def test_operations_with_hard_cases(page_device):
    """The compilers of llvmpipe and SwiftShader differ; so may what they make of loops, barriers, exp and tanh."""
    test_operations.test_positions_of_a_single_token_are_shared_out(page_device, HARDWARE, "sinks", {})
    test_operations.test_attention_heads(page_device, BROADCASTS, 4, 2, 10, 6)
    asyncio.run(test_operations.caches_after_comparing(page_device, BROADCASTS, "q8_0/q4_0", saved=False))
    test_operations.test_mixture_of_experts(page_device, HARDWARE, "Q8_0", False)
    test_operations.test_rope(page_device, head_dim=10, n_rot=6, style="neox")
    test_operations.test_matmul_of_any_even_width(page_device, ROW_KERNELS, "F16", 34)
    for act in ("silu", "gelu"):
        test_operations.test_glu_up_to_extreme_values(page_device, act)
    test_operations.test_add_scale_and_softcap(page_device)
    for name in test_operations.ON_ROWS:
        test_operations.test_operation_on_rows(page_device, HARDWARE, name)
    for name in ("sinks and a window", "a cache filled by another layer", "scale_by_position"):
        test_operations.test_attention_beyond_a_layer_of_its_own(page_device, HARDWARE, name)


def test_many_sessions_leave_no_buffer_and_compile_nothing_again(page_device):
    graph, tensors = tiny_model()

    async def cycle():
        session = await open_session(page_device, graph, tensors)
        await session.evaluate([1, 2], 0, [1])
        await session.close()
        return page_device.counters

    first, *_, last = [asyncio.run(cycle()) for _ in range(6)]
    per_cycle = (last.created - first.created) / 5
    assert (last.buffers, last.buffer_bytes) == (first.buffers, first.buffer_bytes) == (0, 0)
    assert per_cycle == asyncio.run(cycle()).created - last.created


def test_a_cancelled_load_stops_the_stream_and_frees_its_buffers(page_device):
    graph, tensors = tiny_model()
    cancel = CancelToken()
    cancel.cancel()
    with pytest.raises(Cancelled):
        asyncio.run(open_session(page_device, graph, tensors, cancel=cancel))
    assert page_device.counters.buffers == 0


def test_a_file_that_ends_early_is_a_source_error(page_device):
    graph, tensors = tiny_model()
    with pytest.raises(SourceError, match="past the end of a"):
        asyncio.run(open_session(page_device, graph, tensors, source=PageSource(tensors.data[:-1000])))
    assert page_device.counters.buffers == 0


def test_errors_of_creation_name_what_was_made(page_device):
    with pytest.raises(DeviceError, match=r"creating the pipeline broken failed: line 1: expected"):
        asyncio.run(page_device.create_pipeline("fn main() { nonsense }", "broken", ("uniform",)))
    huge = page_device.create_buffer(1 << 45, label="blk.0.huge")
    with pytest.raises(DeviceError, match="creating the buffer blk.0.huge of 35184372088832 bytes failed"):
        asyncio.run(page_device.check())
    asyncio.run(page_device.check())  # told once
    page_device.free([huge])


def test_memory_that_is_not_there_is_told_before_anything_is_read(page_device, monkeypatch):
    graph, tensors = tiny_model()
    monkeypatch.setattr(page_device, "limits", replace(page_device.limits, max_storage_buffer_binding_size=1 << 50,
                                                       max_buffer_size=1 << 50))
    with pytest.raises(DeviceError, match=r"creating the buffer k cache 0 of \d+ bytes failed"):
        asyncio.run(open_session(page_device, graph, tensors, source=UnreadableSource(), n_ctx=1 << 31))
    assert page_device.counters.buffers == 0


class UnreadableSource:
    size = 0
    js = None

    def stream(self, offset, length):
        raise AssertionError("the download began")


INTERRUPT_AT_THE_THIRD_SUBMIT = """() => {
  const submit = GPUQueue.prototype.submit;
  let count = 0;
  GPUQueue.prototype.submit = function (commands) {
    submit.call(this, commands);
    if (++count < 3) return;
    GPUQueue.prototype.submit = submit;
    window.call("interrupt", []);
  };
}"""


def test_a_batch_in_pieces_computes_the_same_and_can_be_left(page_device, monkeypatch):
    graph, tensors = tiny_model()
    reference = reference_of(graph, tensors)
    monkeypatch.setattr(page_device, "pacer", Stubborn(3e4))

    async def compare():
        session = await open_session(page_device, graph, tensors)
        before = page_device.counters.submits
        page = page_device._js._page
        page.wait(page._page.evaluate(INTERRUPT_AT_THE_THIRD_SUBMIT))
        with pytest.raises(Cancelled):
            await session.evaluate([1, 2, 3, 4, 5, 6, 7, 8], 0, [7])
        assert page_device.counters.submits - before == 3
        for tokens, start, outputs in (([1, 2, 3, 4, 5, 6], 0, []), ([7, 8], 6, [1])):
            got = await session.evaluate(tokens, start, outputs)
            expected = await reference.evaluate(tokens, start, outputs)
        assert_close(np.array(got), np.array(expected).reshape(-1), 2e-5)
        assert page_device.counters.submits - before > 20
        await session.close()

    asyncio.run(compare())


def test_a_device_that_is_lost_fails_what_is_pending_and_all_later_calls_with_a_reason():
    graph, tensors = tiny_model()
    with open_page_device() as device:
        async def lose():
            session = await open_session(device, graph, tensors)
            pending = asyncio.ensure_future(session.evaluate([1, 2, 3], 0, [2]))
            await asyncio.sleep(0)
            crash_gpu(device)
            with pytest.raises(DeviceError, match="the device was lost: ."):
                await pending
                await session.evaluate([1], 0, [0])  # the batch may have been done before the crash
            with pytest.raises(DeviceError, match="the device was lost: ."):
                await session.evaluate([1], 0, [0])
            await session.close()
            assert device.counters.buffers == 0
            assert device.lost

        asyncio.run(lose())
        page = device._js._page
        page.wait(page._page.evaluate("() => window.open()"))  # another device, when the process is there again
        assert device.lost is None


def crash_gpu(device):
    """End the browser's GPU process, as a failing driver would."""
    page = device._js._page

    async def gpu_process():
        session = await page._browser.new_browser_cdp_session()
        processes = (await session.send("SystemInfo.getProcessInfo"))["processInfo"]
        return next(process["id"] for process in processes if process["type"] == "GPU")

    os.kill(page.wait(gpu_process()), signal.SIGKILL)


def test_a_destroyed_device_fails_later_calls_with_a_reason():
    graph, tensors = tiny_model()
    with open_page_device() as device:
        async def lose():
            session = await open_session(device, graph, tensors)
            device.destroy()
            with pytest.raises(DeviceError, match="the device was lost: it was destroyed"):
                await session.evaluate([1], 0, [0])
            with pytest.raises(InputError):
                await session.evaluate([], 0, [0])
            await session.close()

        asyncio.run(lose())
