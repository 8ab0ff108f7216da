"""The figures of a small model are complete, and those that can be known beforehand are right."""

import asyncio
import json
import time

import pytest

from bridge.bench import program_timer
from bridge.bench.kernels import kernels_of, time_kernels
from bridge.bench.measure import BenchOptions, measure
from bridge.cli import main
from bridge.gpu.wgpu_device import request_device
from bridge.runtime import LoadOptions, load_model
from bridge.runtime.sources import AsyncSource
from bridge.synth import open_synth

N_LAYER, N_FF, N_VOCAB, HEADS, HEADS_KV, HEAD_DIM = 2, 512, 512, 4, 2, 64  # of synth:tiny
Q8 = 34 / 32  # bytes of an element


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(program_timer, "TARGET_SECONDS", 0.0)


@pytest.fixture(scope="module")
def device():
    device = asyncio.run(request_device())
    yield device
    device.destroy()


def with_model(device, use, name="synth:tiny-Q8_0"):
    async def devices():
        return device

    async def run():
        source = AsyncSource(open_synth(name))
        model = await load_model(source, LoadOptions(n_ctx=64, backend="webgpu", n_ubatch=8), devices=devices)
        try:
            return await use(model)
        finally:
            await model.close()

    return asyncio.run(run())


def test_kernels_are_the_dispatches_of_a_batch_with_what_they_must_move(device):
    async def find(model):
        return kernels_of(model.session, 1, 9), kernels_of(model.session, 8, 0), model.session.programs.n_dispatches

    decode, prompt, n_dispatches = with_model(device, find)
    assert sum(len(kernel.dispatches) for kernel in decode) == n_dispatches + 2  # that look through the logits
    products = {(kernel.shape, "gated" in kernel.label): kernel for kernel in decode
                if kernel.label.startswith("matmul")}
    assert (HEADS + 2 * HEADS_KV) * HEAD_DIM == N_FF == N_VOCAB  # so the head is one more of the layers' first products
    expected = {("256 to 512", False): (N_LAYER + 1, 256 * 512), ("256 to 256", False): (N_LAYER, 256 * 256),
                ("256 to 512", True): (N_LAYER, 2 * 256 * 512), ("512 to 256", False): (N_LAYER, 512 * 256)}
    assert products.keys() == expected.keys()
    for key, (calls, elements) in expected.items():
        cost = products[key].cost
        assert len(products[key].dispatches) == calls and cost.flop == calls * 2 * elements
        assert 0 < cost.nbytes - calls * elements * Q8 <= calls * 4 * 3 * 512  # activations
    (attention,) = (kernel for kernel in decode if kernel.label.startswith("attention"))
    assert attention.cost.flop == N_LAYER * 2 * HEADS * 2 * HEAD_DIM * 10
    cached = N_LAYER * 2 * 10 * HEADS_KV * HEAD_DIM * 2  # ten positions, keys and values, halves
    assert attention.cost.nbytes == cached + N_LAYER * 2 * HEADS * HEAD_DIM * 4
    last_row_only = 256 * 256 + 2 * 256 * 512 + 512 * 256  # of the last layer, and the head
    per_row = N_LAYER * 256 * 512 + (N_LAYER - 1) * last_row_only
    flop = sum(kernel.cost.flop for kernel in prompt if kernel.label.startswith("matmul"))
    assert flop == 2 * (8 * per_row + last_row_only + 256 * 512)


class ScriptedTimer:
    """Counts seconds by dispatches; ``done`` is what ran, in order."""

    def __init__(self):
        self.done = []

    async def run(self, dispatches, params, block):
        self.done.append(list(dispatches))

    async def seconds(self, dispatches, params, block):
        self.done[-1] += dispatches[:1]
        return float(len(dispatches))


def test_each_kernel_is_timed_on_what_a_batch_gives_it(device):
    timer = ScriptedTimer()

    async def time(model):
        kernels = await time_kernels(model.session, timer, range(8), 0, program_timer.Deadline())
        batch = model.session.programs.dispatches(8, 1, n_splits=model.session.programs.splits_of(8, 8), selecting=True)
        return kernels, [dispatch for *_, dispatch in batch]

    kernels, batch = with_model(device, time)
    assert [kernel.seconds for kernel in kernels] == [len(kernel.dispatches) for kernel in kernels]
    assert len(timer.done) == len(kernels) > 8
    assert all(done == batch[:len(done)] for done in timer.done)


def test_all_figures(device):
    before = device.counters.buffers
    lines = []
    options = BenchOptions(prompts=(12, 3), n_predict=3, repeat=2, cpu=True)
    found = with_model(device, lambda model: measure(model, 1.0, options, device, lines.append))
    assert device.counters.buffers == before
    assert found == json.loads(json.dumps(found, allow_nan=False))
    assert [prompt["tokens"] for prompt in found["prompts"]] == [12, 3] and found["prompt_tokens"] == 12
    assert found["per_token"]["dispatches"] == sum(row["calls"] for row in found["decode_kernels"]["kernels"])
    assert found["per_token"]["submits"] == 1 and found["per_token"]["created"] == 0
    assert found["products"][0]["file"].startswith("matmul") and found["products"][0]["tokens"] == 1
    assert found["device"]["copy_gb_per_second"] > 0 and found["device"]["peak_f32_gflops"] > 0
    for batch, n_tokens in (("decode", 1), ("prompt", 8)):
        kernels = found[f"{batch}_kernels"]
        assert kernels["tokens"] == n_tokens and kernels["complete"]
        assert kernels["sum_ms"] == pytest.approx(
            sum(row["calls"] * row["microseconds"] / 1e3 for row in kernels["kernels"]), rel=0.05)
        ratio = kernels["bytes"] / (kernels["sum_ms"] * 1e6) / found["device"]["copy_gb_per_second"]
        assert kernels["of_copy"] == pytest.approx(ratio, rel=0.1, abs=0.002)
        for row in kernels["kernels"]:
            ratio = row["gb_per_second"] / found["device"]["copy_gb_per_second"]
            assert row["of_copy"] == pytest.approx(ratio, rel=0.1, abs=0.002)
    expected = found["decode_kernels"]["bytes"] * found["decode_tokens_per_second"] / 1e9
    assert found["reached"]["decode_of_copy"] == pytest.approx(
        expected / found["device"]["copy_gb_per_second"], rel=0.1, abs=0.002)
    assert any(line.startswith("kernels of prompt, 8 tokens") for line in lines)


def test_the_devices_clock_tells_a_part_of_what_the_host_waits_for(device):
    params = device.create_buffer(4)
    program = device.create_program([], params)
    begin = time.perf_counter()
    found = asyncio.run(device.pass_seconds(program, bytes(4)))
    assert found is None or 0 <= found < time.perf_counter() - begin
    device.free([program, params])


def test_after_the_deadline_nothing_is_begun(device):
    options = BenchOptions(prompts=(30, 2), n_predict=2, repeat=50, seconds=0)
    found = with_model(device, lambda model: measure(model, 1.0, options, device))
    assert [prompt["tokens"] for prompt in found["prompts"]] == [8, 2] and len(found["runs"]) == 1
    assert not found["decode_kernels"]["complete"] and "microseconds" not in found["decode_kernels"]["kernels"][0]


def test_a_prompt_that_fills_the_context(device):
    options = BenchOptions(prompts=(64,), n_predict=1, repeat=1)
    found = with_model(device, lambda model: measure(model, 1.0, options, device))
    assert found["decode_tokens_per_second"] is None and found["reached"]["decode_of_copy"] is None
    assert found["decode_kernels"]["position"] == 63 and found["decode_kernels"]["complete"]


def test_the_command_prints_json_and_shows_lines_unless_told_not_to(capsys):
    argv = ["bench", "synth:tiny-Q4_0", "-n", "2", "--prompt-tokens", "8,4", "--repeat", "1", "--backend", "webgpu",
            "--ctx", "32", "--ubatch", "4"]
    assert main(argv) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["n_ubatch"] == 4
    assert "GB/s" in err
    assert main([*argv, "--json", "--seconds", "1"]) == 0
    assert capsys.readouterr().err == ""


def test_lengths_of_prompts_are_positive(capsys):
    assert main(["bench", "m.gguf", "--prompt-tokens", "8,0"]) == 2
    assert "'0' is not a positive number" in capsys.readouterr().err
