"""Submits short enough for watchdogs: what a pacer learns of devices of any speed, and batches that it cuts."""

import asyncio
import random
from itertools import pairwise

import numpy as np
import pytest

from bridge.gguf import open_gguf
from bridge.gpu.device import AdapterInfo, Limits
from bridge.gpu.pacing import CAREFUL, TARGET_S, Pacer, Work
from bridge.gpu.session import LONGEST_DISPATCH_S, GpuSession
from bridge.gpu.tuning import HARDWARE
from bridge.models import build_graph
from bridge.plan import lower
from bridge.plan.batch import BatchLayout
from bridge.synth.model import open_synth
from tests.gpu.harness import assert_close, open_session, reference_of
from tests.gpu.test_session import N_VOCAB, tiny_model

LAYER = [(60.0, 0.0), (0.0, 0.01), (20.0, 0.0), (200.0, 0.0), (100.0, 0.0)]


class Gpu:
    """A device of a constant speed under a clock of its own; ``pieces`` are the seconds that each submit took."""

    def __init__(self, units_per_second, *, overhead_s=0.0, latency_s=0.0):
        self.speed, self.overhead, self.latency, self.now, self.pieces = units_per_second, overhead_s, latency_s, 0.0, []
        self.free_at = 0.0
        self.pacer = Pacer(latency_s, lambda: self.now)

    def run(self, work, n_keys=0, rows=True, factors=None):
        """How long each piece of a batch took, of which dispatches may take longer than estimated by ``factors``."""
        ends = self.pacer.begin(work, n_keys)
        units, pieces, done_at = work.units(n_keys), [], []
        units = [unit * factor for unit, factor in zip(units, factors)] if factors else units
        for first, end in pairwise((0, *ends)):
            seconds = sum(units[first:end]) / self.speed + self.overhead
            self.free_at = max(self.now, self.free_at) + seconds
            pieces.append(seconds)
            done_at.append(self.free_at)
            if len(done_at) > 1:
                self.now = max(self.now, done_at[-2])  # two under way
        if rows:
            self.now = self.free_at + self.latency
        self.pacer.end(rows)
        self.pieces += pieces
        return pieces


def model(scale):
    return Work([(fixed * scale, per_key * scale) for fixed, per_key in LAYER] * 30)


@pytest.mark.parametrize("speed", [CAREFUL, 1e10, 1e11, 1e13])
@pytest.mark.parametrize("scale", [1e2, 1e5, 3e7])
def test_no_submit_is_long_on_any_device_and_few_are_needed_soon(speed, scale):
    gpu, work = Gpu(speed, overhead_s=1e-4), model(scale)
    longest = max(work.units(0)) / speed
    for _ in range(10):
        last = gpu.run(work)
    assert max(gpu.pieces) <= max(0.1, longest + 1e-3)
    fewest = work.total(0) / speed / TARGET_S
    assert len(last) <= max(1, 2.5 * fewest) or longest > TARGET_S / 2


def test_a_small_batch_is_one_submit_from_the_first_on():
    gpu = Gpu(CAREFUL)
    assert [len(gpu.run(model(1e2))) for _ in range(5)] == [1] * 5


def test_longer_contexts_are_cut_finer():
    gpu, work = Gpu(1e11), model(1e6)
    for _ in range(5):
        short = gpu.run(work, n_keys=10)
    long = gpu.run(work, n_keys=100_000)
    assert len(long) >= 3 * len(short) and max(long) < 0.1


def test_a_device_that_becomes_slow_is_noticed_after_one_batch():
    gpu, work = Gpu(1e12), model(1e7)
    for _ in range(5):
        gpu.run(work)
    gpu.speed /= 7  # another page computes, or the battery is low
    gpu.run(work)
    assert max(gpu.run(work)) <= 0.1


@pytest.mark.parametrize("overhead_s", [0.002, 0.2])
def test_small_batches_say_nothing_about_speed(overhead_s):
    gpu = Gpu(1e12)
    for _ in range(6):
        gpu.run(model(1e7))
    rate, gpu.overhead = gpu.pacer.rate, overhead_s
    for _ in range(100):
        gpu.run(model(1.0))
        gpu.run(Work([]))
    assert gpu.pacer.rate == rate


def test_a_batch_far_slower_than_expected_is_believed():
    gpu, work = Gpu(1e12), model(1e5)
    for _ in range(6):
        gpu.run(model(1e7))
    gpu.speed = 1e9
    for _ in range(5):
        last = gpu.run(work)
    assert max(last) <= 0.1


def test_slow_completion_is_not_taken_for_slow_work():
    gpu, work = Gpu(1e12, latency_s=0.1), model(1e8)
    for _ in range(8):
        last = gpu.run(work)
    assert len(last) <= 2 * work.total(0) / gpu.speed / TARGET_S + 1


def test_a_clock_with_ticks_of_100_ms_does_not_run_away():
    """Firefox with resistFingerprinting: most tokens seem to take no time."""
    gpu = Gpu(1e11)
    gpu.pacer = Pacer(0.0, lambda: int(gpu.now * 10) / 10)
    for _ in range(200):
        gpu.run(model(1e5))  # 11 ms
    gpu.pieces.clear()
    for _ in range(20):
        gpu.run(model(1e7))  # 1.1 s
    assert len([piece for piece in gpu.pieces if piece > 0.2]) <= 5
    assert max(gpu.pieces) < 1.2


@pytest.mark.parametrize("pause", [0.0, 60.0])
def test_prompts_in_batches_without_rows_are_measured_too_and_pauses_are_not(pause):
    gpu, work = Gpu(1e11), model(1e7)
    for _ in range(8):
        gpu.run(work, rows=False)
        gpu.now += pause
    assert gpu.pacer.rate == pytest.approx(1e11, rel=0.5)
    assert max(gpu.pieces) < 0.1


class Stubborn(Pacer):
    """A device that never seems faster than ``rate``."""

    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def _learn(self, work, seconds):
        pass


@pytest.mark.parametrize(("rate", "fewest"), [(3e4, 50), (3e6, 10)])
def test_batches_in_pieces_compute_the_same(device, monkeypatch, rate, fewest):
    graph, tensors = tiny_model()
    reference = reference_of(graph, tensors)
    pacer = Stubborn(rate)
    monkeypatch.setattr(device, "pacer", pacer)

    async def compare():
        session = await open_session(device, graph, tensors)
        start, before = 0, device.counters.submits
        for n, outputs in ((8, []), (8, []), (5, [4]), (3, [0, 2]), (1, [0])):
            tokens = [(start * 5 + i * 3) % N_VOCAB for i in range(n)]
            got = await session.evaluate(tokens, start, outputs)
            expected = await reference.evaluate(tokens, start, outputs)
            start += n
            if outputs:
                assert_close(np.array(got), np.array(expected).reshape(-1), 2e-5)
        await session.close()
        return device.counters.submits - before

    assert asyncio.run(compare()) >= fewest


def test_a_batch_whose_dispatches_are_too_long_is_taken_in_parts(device, monkeypatch):
    graph, tensors = tiny_model()
    reference = reference_of(graph, tensors)
    runs = []
    run = device.run

    async def counted(program, params, n_rows=0, n_keys=0):
        runs.append((np.frombuffer(params, np.uint32)[0], n_rows))
        return await run(program, params, n_rows, n_keys)

    async def compare():
        session = await open_session(device, graph, tensors, n_ubatch=32)
        work = Work([dispatch.cost for _, _, dispatch in session.programs.dispatches(32, 1)])
        monkeypatch.setattr(device, "pacer", Stubborn(max(work.units(30)) / LONGEST_DISPATCH_S / 3))
        monkeypatch.setattr(device, "run", counted)
        tokens = [i * 7 % N_VOCAB for i in range(30)]
        got = await session.evaluate(tokens, 0, [29])
        expected = await reference.evaluate(tokens, 0, [29])
        assert_close(np.array(got), np.array(expected).reshape(-1), 2e-5)
        assert runs == [(8, 0), (8, 0), (8, 0), (6, 1)]
        runs.clear()
        await session.evaluate(tokens[:8], 30, [0, 7])
        await session.evaluate(tokens[:16], 38, [3, 15])
        assert runs == [(8, 2), (16, 2)], "rows of several parts would have to be put together"
        await session.close()

    asyncio.run(compare())


class WeakDevice:
    """No device, but the time that one takes for which the estimate of each dispatch is wrong by up to 3, either way."""

    limits, info, notes, lost = Limits(), AdapterInfo(), (), None

    def __init__(self, units_per_second):
        self.gpu, self.factors = Gpu(units_per_second), {}
        self.pacer = self.gpu.pacer

    def create_program(self, dispatches, params, readback=None):
        return Work([dispatch.cost for dispatch in dispatches]), [self.factor(dispatch) for dispatch in dispatches]

    def factor(self, dispatch):
        pipeline = dispatch.pipeline
        return self.factors.setdefault(pipeline, 3 ** (2 * random.Random(pipeline).random() - 1))

    async def run(self, program, params, n_rows=0, n_keys=0):
        work, factors = program
        self.gpu.run(work, n_keys, n_rows > 0, factors)


def session_without_weights(device, name, n_ubatch=64):
    """A session that can be asked to evaluate, with nothing on the device."""
    source = open_synth(name)
    file = open_gguf(source)
    plan = lower(build_graph(file.metadata, file.tensors, 4096, None), HARDWARE.rules)
    session = GpuSession(device, plan, n_ctx=4096, n_ubatch=n_ubatch, kv_type="f16", max_outputs=1, tuning=HARDWARE,
                         exact=True, autotune=False)
    session._kernels.pipelines = {choice.pipeline: choice.pipeline.label for call in session._kernels.calls
                                  for choice in call.choices}
    session.programs._bind_groups = [None] * len(session._kernels.calls)
    session.programs._readbacks = {"logits": None}
    session._layout = BatchLayout(plan)
    return session


@pytest.mark.parametrize("speed", [3e9, 3e10, 1e12])
def test_a_giant_model_on_a_weak_device_never_keeps_it_for_two_seconds(speed):
    """Operating systems reset a GPU after that; single dispatches of 8B weights take parts of it."""
    device = WeakDevice(speed)
    session = session_without_weights(device, "synth:8b-Q4_K_M")

    async def generate():
        for start in range(0, 256, 64):
            await session.evaluate([1] * 64, start, [63] if start == 192 else [])
        for position in range(256, 262):
            await session.evaluate([1], position, [0])

    asyncio.run(generate())
    assert max(device.gpu.pieces) < 1
    if speed >= 3e10:  # below, even a few rows take longer in single dispatches
        assert sum(piece > 0.3 for piece in device.gpu.pieces) <= 0.05 * len(device.gpu.pieces)
    if speed == 1e12:
        device.gpu.pieces.clear()
        asyncio.run(session.evaluate([1], 262, [0]))
        assert len(device.gpu.pieces) <= 3, "0.04 s of work by the estimate"
