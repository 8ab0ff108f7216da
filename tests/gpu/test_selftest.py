"""The self-test accepts this device, and refuses one that decodes, multiplies or attends wrongly."""

import asyncio
from dataclasses import replace

import pytest

from bridge.errors import DeviceError
from bridge.gpu import selftest_cases, wgsl
from bridge.gpu.formats import FORMATS
from bridge.gpu.session import GpuSession
from bridge.gpu.tuning import HARDWARE, SOFTWARE
from bridge.graph.graph import ACTIVATIONS
from bridge.kernels import kernel_text
from bridge.plan import lower
from bridge.runtime.cancel import CancelToken
from bridge.sampling.selection import Selected, Selection
from tests.gpu.harness import open_session
from tests.gpu.test_fused import LAYERS, Layer
from tests.gpu.test_session import N_VOCAB, load_and_close, tiny_model
from tools import make_gpu_selftest


def test_the_answers_are_what_the_tool_writes(capsys):
    assert make_gpu_selftest.main(["--check"]) == 0, capsys.readouterr().out


def test_every_format_has_answers():
    assert set(selftest_cases.answers()["formats"]) == set(FORMATS)


def test_every_activation_has_answers():
    assert set(selftest_cases.ACTIVATION_OF) == set(ACTIVATIONS)


@pytest.mark.parametrize("file, right, wrong, message", [
    ("formats/q8_0.wgsl", "words.b, words.c)", "words.a, words.c)", "self-test of Q8_0 "),
    ("formats/bytes.wgsl", "0xff0000u, 0xff000000u", "0xff000000u, 0xff0000u", "self-test of Q8_0 "),
    ("formats/bytes.wgsl", "return unpack2x16float(", "return 1.0001 * unpack2x16float(", None),
    # A device whose conversion flushes subnormal halves to zero.
    ("formats/bytes.wgsl", "word >> ((at & 2u) << 3u)", "flush(word >> ((at & 2u) << 3u))",
     "self-test of Q8_0 "),
    ("matmul_groups.wgsl", "sum${r}_${t} += group${r}.scale", "sum${r}_${t} = group${r}.scale",
     "products \\(matmul q8_0 tokens=1"),
    ("write_heads.wgsl", "select(-sine, sine, is_second)", "0.5", "self-test of attention"),
    ("attention.wgsl", "return batch[FIRST_POSITION] + token + 1u", "return batch[FIRST_POSITION] + token + 2u",
     "self-test of attention"),
    ("attention.wgsl", "/ totals[out${b}]", "/ (totals[out${b}] - totals[out${b}])", "self-test of attention"),
])
def test_wrong_results_are_refused_before_the_download_ends(device, monkeypatch, file, right, wrong, message):
    flush = "fn flush(h: u32) -> u32 { return select(h, 0u, (h & 0x7c00u) == 0u); }\n"

    def sabotaged(path):
        text = kernel_text(path)
        if path != f"wgsl/{file}":
            return text
        assert right in text
        return (flush if "flush" in wrong else "") + text.replace(right, wrong)

    monkeypatch.setattr(wgsl, "kernel_text", sabotaged)
    graph, tensors = tiny_model()
    before = device.counters.buffers
    if message is None:
        asyncio.run(load_and_close(device, graph, tensors, tensors.source, CancelToken()))
    else:
        with pytest.raises(DeviceError, match=f"this device computes wrong results: in the .*{message}"):
            asyncio.run(load_and_close(device, graph, tensors, tensors.source, CancelToken()))
    assert device.counters.buffers == before


@pytest.mark.parametrize("file, right, wrong", [
    ("attention.wgsl", "begin + split * share", "begin + share"),
    ("attention_merge.wgsl", "total += partials[at + 1u]", "total = partials[at + 1u]"),
])
def test_shares_of_the_positions_are_tested(device, monkeypatch, file, right, wrong):
    """A context that is long enough to be shared out."""
    graph, tensors = tiny_model()
    tuning = replace(HARDWARE, attention_splits=((4, 3),))

    async def load():
        session = await GpuSession.create(device, lower(graph, tuning.rules), n_ctx=64, n_ubatch=8, tuning=tuning)
        try:
            await session.load_weights(tensors.source, tensors.infos, lambda loaded, total: None, CancelToken())
        finally:
            await session.close()

    asyncio.run(load())
    assert right in kernel_text(f"wgsl/{file}")
    monkeypatch.setattr(wgsl, "kernel_text", lambda path: kernel_text(path).replace(right, wrong))
    with pytest.raises(DeviceError, match="this device computes wrong results: in the self-test of attention .att"):
        asyncio.run(load())


@pytest.mark.parametrize("right, wrong", [
    ("row_bytes = dims.other_row_bytes", "row_bytes = dims.row_bytes"),
    ("first_column = dims.other_first_row", "first_column = dims.other_first_row + 1u"),
])
def test_two_formats_in_one_product_are_tested(device, monkeypatch, right, wrong):
    layer = Layer(**LAYERS["two formats"])
    asyncio.run(load_and_close(device, layer.graph, layer.tensors, layer.tensors.source, CancelToken()))
    monkeypatch.setattr(wgsl, "kernel_text", lambda path: kernel_text(path).replace(right, wrong))
    with pytest.raises(DeviceError, match="self-test of Q8_0 products beside others .matmul q5_0 q8_0 tokens=1. it"):
        asyncio.run(load_and_close(device, layer.graph, layer.tensors, layer.tensors.source, CancelToken()))


def test_it_is_three_submits_and_two_maps(device):
    """One for the plan's kernels, and a chain of two that finds tokens."""
    graph, tensors = tiny_model()
    before = (device.counters.submits, device.counters.maps)

    async def create():
        session = await GpuSession.create(device, lower(graph, SOFTWARE.rules), n_ctx=8, n_ubatch=8)
        await session._preparation
        await session.close()

    asyncio.run(create())
    assert (device.counters.submits - 3, device.counters.maps - 2) == before


@pytest.mark.parametrize("file, right, wrong", [
    ("best_tokens.wgsl", "keys[i] == key && ids[i] < id", "keys[i] == key && ids[i] > id"),
    ("best_tokens.wgsl", "atomicAdd(&n_found, 1u)", "atomicAdd(&n_found, 0u)"),
    ("best_of_blocks.wgsl", "quad += N_BLOCKS", "quad += 2u * N_BLOCKS"),
    ("draw_token.wgsl", "chosen_ids[i] < id ||", "chosen_ids[i] > id ||"),
    ("draw_token.wgsl", "record[DRAWN + selection(SEL_N_DRAWN)] = token;", ""),
])
def test_where_the_best_tokens_are_found_wrong_all_logits_are_read(device, monkeypatch, file, right, wrong):
    def sabotaged(path):
        text = kernel_text(path)
        assert path != f"wgsl/{file}" or right in text
        return text.replace(right, wrong) if path == f"wgsl/{file}" else text

    monkeypatch.setattr(wgsl, "kernel_text", sabotaged)
    graph, tensors = tiny_model()

    async def scenario():
        session = await open_session(device, graph, tensors)
        logits = await session.evaluate([3], 0, [0], Selection(2))
        found = isinstance(logits, Selected), len(logits), session.tokens_ahead(Selection(2)), session.notes
        await session.close()
        return found

    assert asyncio.run(scenario()) == (False, N_VOCAB, 1, ["gpu_selection_unusable:logits_read"])
