"""The search for a faster tuning, on a device that takes as long as it is told; on a real one it changes no result."""

import asyncio
import json
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from bridge.errors import DeviceError
from bridge.gpu import autotune, kept_texts, wgsl
from bridge.gpu.autotune import DEADLINE_S, Autotune
from bridge.gpu.device import F16, PACKED_DOT, SUBGROUPS, AdapterInfo, Dispatch
from bridge.gpu.tuning import (
    HARDWARE, SOFTWARE, LaneShape, TileShape, tuning_for, with_broadcasts, with_subgroups, without_features,
)
from bridge.kernels import kernel_text
from tests.gpu.harness import assert_close, open_session, reference_of
from tests.gpu.test_session import tiny_model

EVERYTHING = AdapterInfo("vendor", "architecture", features=(F16, SUBGROUPS, PACKED_DOT), subgroup_min_size=32)


@dataclass
class ScriptedDevice:
    """``seconds(tuning, n_rows)`` of a dispatch; a submit takes half a millisecond more."""

    seconds: object
    info: AdapterInfo = EVERYTHING
    now: float = 0.0
    lost: str | None = None
    n_runs: int = 0
    kept: dict = field(default_factory=dict)
    live: set = field(default_factory=set)

    def create_buffer(self, size, *, label):
        return self._made("buffer")

    def create_readback(self, *sizes):
        return self._made("readback")

    def create_program(self, dispatches, params, readback):
        program = self._made(tuple(dispatches))
        return program

    def _made(self, what):
        handle = (len(self.live), what)
        self.live.add(handle)
        return handle

    def free(self, handles):
        self.live -= set(handles)

    async def run(self, program, params, n_rows):
        self.n_runs += 1
        self.now += 0.0005 + sum(self.seconds(*dispatch.pipeline) for dispatch in program[1])

    async def recall(self, key):
        return self.kept.get(key)

    async def keep(self, key, text):
        self.kept[key] = text


def search(device, *, exact=False, n_ubatch=512, model="a model"):
    async def load(tuning, n_rows):
        return [Dispatch((tuning, n_rows), None, (1, 1, 1), 1.0)] * 2

    async def run():
        found = Autotune(device, model, load, None, exact=exact, n_ubatch=n_ubatch, clock=lambda: device.now)
        return await found.best(tuning_for(device.info, exact=exact))

    return asyncio.run(run())


def prefers(**wanted):
    """Twice as fast for each of these that the first shape has, or for prompts the last."""

    def seconds(tuning, n_rows):
        shape = tuning.matmul[0 if n_rows == 1 else -1]
        return 1e-5 * n_rows * 2.0 ** -sum(getattr(shape, name, None) == value for name, value in wanted.items())

    return seconds


@pytest.mark.parametrize("wanted", [{"subgroups": False, "lanes": 8}, {"subgroups": True, "workgroup": 128},
                                    {"staged": False, "rows": 1}])
def test_the_fastest_lanes_are_taken(wanted):
    found = search(ScriptedDevice(prefers(**wanted)))
    assert {name: getattr(found.matmul[0], name) for name in wanted} == wanted
    few = found.matmul[1]  # has tiles of its own, and the rest
    assert (few.subgroups, few.staged) == (wanted.get("subgroups", True), wanted.get("staged", True))


@pytest.mark.parametrize("products", ["f32", "f16", "int8"])
def test_the_fastest_products_and_tiles_are_taken(products):
    found = search(ScriptedDevice(prefers(products=products, rows=8, workgroup=64)))
    longest = found.matmul[-1]
    assert (longest.products, longest.rows, longest.workgroup, longest.tokens) == (products, 8, 64, 32)
    # Weights that cannot be multiplied so have the same tile in floats, and shorter prompts theirs.
    shapes = {(shape.from_rows, shape.products, shape.workgroup) for shape in found.matmul if isinstance(shape, TileShape)}
    assert shapes == {(from_rows, name, size) for from_rows, size in ((9, 128), (40, 64)) for name in {"f32", products}}


@pytest.mark.parametrize("size, exact, names", [(32, False, {"f32", "int8"}), (4, False, {"f32"}), (32, True, {"f32"})])
def test_lanes_may_multiply_bytes_where_subgroups_are_large_enough(size, exact, names):
    def seconds(tuning, n_rows):
        """The last shape for one token is the one that is taken."""
        single = [shape for shape in tuning.matmul if shape.tokens == 1][-1]
        return 1e-5 * n_rows * (0.5 if single.products == "int8" and single.subgroups else 1.0)

    device = ScriptedDevice(seconds, replace(EVERYTHING, subgroup_min_size=size))
    found = search(device, exact=exact)
    lanes = [shape for shape in found.matmul if isinstance(shape, LaneShape)]
    assert {shape.products for shape in lanes} == names and lanes[0].products == "f32"
    assert [shape.from_rows for shape in found.matmul] == sorted(shape.from_rows for shape in found.matmul)
    assert without_features(found).matmul == HARDWARE.matmul and without_features(SOFTWARE) == SOFTWARE


def test_who_wants_exact_results_gets_floats():
    found = search(ScriptedDevice(prefers(products="int8", rows=8)), exact=True)
    assert {shape.products for shape in found.matmul} == {"f32"}
    assert found.matmul[-1].rows == 8


def test_nothing_better_changes_nothing():
    device = ScriptedDevice(lambda tuning, n_rows: 0.0003)
    assert search(device) == tuning_for(EVERYTHING, exact=False)
    assert not device.live


def test_short_batches_ask_about_single_tokens_only():
    device = ScriptedDevice(prefers(products="int8"))
    assert search(device, n_ubatch=16) == tuning_for(EVERYTHING, exact=False)


def test_answers_are_kept_for_the_same_adapter_and_model():
    device = ScriptedDevice(prefers(lanes=8, products="int8"))
    first, n_runs = search(device), device.n_runs
    assert search(device) == first and device.n_runs == n_runs
    search(device, model="another")
    assert device.n_runs > n_runs
    n_runs, device.info = device.n_runs, replace(EVERYTHING, architecture="another")
    search(device)
    assert device.n_runs > n_runs


@pytest.mark.parametrize("entry", ["", "{", "[]", '{"lanes": 3}', "null", '"lanes"'])
def test_a_broken_entry_is_measured_again(entry):
    device = ScriptedDevice(prefers(lanes=8))
    first = search(device)
    (key,) = device.kept
    device.kept[key], n_runs = entry, device.n_runs
    assert search(device) == first and device.n_runs > n_runs
    assert json.loads(device.kept[key])["lanes"].split()[1] == "8"


def test_an_answer_that_is_no_candidate_is_passed_over():
    device = ScriptedDevice(prefers(lanes=8))
    search(device)
    (key,) = device.kept
    device.kept[key] = '{"lanes": "1 2 3 4", "products": "f64", "colour": "red"}'
    assert search(device) == tuning_for(EVERYTHING, exact=False)


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.2, 3.0])
def test_the_deadline_holds_up_to_the_candidate_under_way(seconds):
    device = ScriptedDevice(lambda tuning, n_rows: seconds / 2)
    search(device)
    assert device.now < DEADLINE_S + 8.1 * max(seconds, autotune.RUN_S + seconds)


def test_a_failure_leaves_the_tuning_and_keeps_nothing():
    def fail(tuning, n_rows):
        raise DeviceError("out of memory")

    device = ScriptedDevice(fail)
    assert search(device) == tuning_for(EVERYTHING, exact=False)
    assert not device.kept and not device.live
    device.lost = "gone"
    with pytest.raises(DeviceError):
        search(device)


def test_texts_are_kept_in_the_users_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDGE_CACHE_DIR", str(tmp_path / "a"))
    assert kept_texts.recall("key") is None
    kept_texts.keep("key", '{"a": "b"}')
    assert kept_texts.recall("key") == '{"a": "b"}'
    (tmp_path / "a" / "key.json").write_bytes(b"\xff\xfe")
    assert kept_texts.recall("key") is None
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("BRIDGE_CACHE_DIR", str(tmp_path / "file"))
    kept_texts.keep("key", "text")
    assert kept_texts.recall("key") is None


async def _logits(device, graph, tensors, **options):
    session = await open_session(device, graph, tensors, **options)
    try:
        rows = [np.array(await session.evaluate(tokens, start, [len(tokens) - 1]))
                for tokens, start in (([3, 1, 2], 0), ([4], 3))]
        return *rows, session.notes
    finally:
        await session.close()


def _check(device, tuning, **options):
    graph, tensors = tiny_model()
    reference, buffers = reference_of(graph, tensors), device.counters.buffers
    *got, notes = asyncio.run(_logits(device, graph, tensors, tuning=tuning, **options))
    for (tokens, start), rows in zip((([3, 1, 2], 0), ([4], 3)), got):
        assert_close(rows, np.array(asyncio.run(reference.evaluate(tokens, start, [len(tokens) - 1]))).reshape(-1), 2e-5)
    assert device.counters.buffers == buffers
    return notes


def test_a_session_computes_the_same_with_whatever_is_found(device, tmp_path, monkeypatch):
    monkeypatch.setenv("BRIDGE_CACHE_DIR", str(tmp_path))
    # The last candidate is taken, however long it takes.
    for name, value in {"WORTH": 1e9, "DEADLINE_S": 60.0, "RUN_S": 0.0, "RUNS": 1}.items():
        monkeypatch.setattr(autotune, name, value)
    tuning = replace(HARDWARE, matmul=HARDWARE.matmul[:2])
    assert _check(device, tuning, autotune=True) == []
    (kept,) = tmp_path.glob("*.json")
    assert set(json.loads(kept.read_text())) == {"x", "lanes"} | {SUBGROUPS} & set(device.info.features)
    submits = device.counters.submits
    _check(device, tuning, autotune=True)
    again = device.counters.submits - submits
    submits = device.counters.submits
    _check(device, tuning)
    assert again == device.counters.submits - submits + 1  # only the self-test of what was found, once more


@pytest.mark.parametrize("tuning, right", [
    (with_subgroups(replace(HARDWARE, matmul=HARDWARE.matmul[:2])), "subgroupShuffleXor(sum"),
    (with_broadcasts(SOFTWARE, 8), "subgroupBroadcast(own"),
    (with_broadcasts(SOFTWARE, 4), "quadSwapX(own"),
], ids=["shuffles", "broadcasts", "swaps"])
def test_features_that_do_not_work_are_done_without(device, monkeypatch, tuning, right):
    if device.info.subgroup_min_size < 8:
        pytest.skip("this adapter has no subgroups of eight")
    monkeypatch.setattr(wgsl, "kernel_text", lambda path: kernel_text(path).replace(right, f"1.5 * {right}"))
    assert without_features(tuning) != tuning
    assert _check(device, tuning) == ["gpu_features_unusable:core_kernels_used"]


def test_kernels_without_lanes_or_tiles_have_no_other_sizes():
    """As where a GPU is asked to run what software adapters do."""
    tuning = with_broadcasts(SOFTWARE, 8)
    assert autotune.other_lanes(tuning) == {}
    assert all(found == tuning for found in autotune.other_tiles(tuning).values())
